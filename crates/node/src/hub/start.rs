//! How a node starts: when it looks for others, and from when on it serves clients.
//!
//! | step | until |
//! | --- | --- |
//! | recovery: it dials nobody, as others would receive the answer that it has no sessions | all workers have reported what they have recovered |
//! | discovery | `discovery_grace` is over, and the interests of the nodes that are up have arrived |
//! | it waits for the other members, if it knows any | all are up or one serves, or `restart_grace` is over |

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use super::Hub;
use crate::{EventLevel, HubOutput, Now, READY, WorkerId};

impl Hub {
    /// Starts with what these workers recover.
    pub(super) fn begin_recovery(&mut self, workers: impl IntoIterator<Item = WorkerId>) {
        self.start.recovering.extend(workers);
    }

    /// A worker has reported what it has recovered.
    pub(super) fn note_recovered(&mut self, now: Now, worker: WorkerId) {
        self.start.recovering.remove(&worker);
        self.review_recovery(now);
    }

    /// Dials a node: when all workers have recovered.
    pub(super) fn dial(&mut self, address: String) {
        if self.start.recovering.is_empty() {
            self.cx.outputs.push_back(HubOutput::Dial { address });
        } else {
            self.start.dials.push(address);
        }
    }

    /// Discovery begins when all workers have reported what they have recovered.
    pub(super) fn review_recovery(&mut self, now: Now) {
        if self.start.discovered_at.is_none() && self.start.recovering.is_empty() {
            self.start.discovered_at = Some(now.instant + self.cx.config.discovery_grace);
            for address in std::mem::take(&mut self.start.dials) {
                self.cx.outputs.push_back(HubOutput::Dial { address });
            }
        }
    }

    /// A node that has its data from before does not know what became of its sessions, nor which
    /// sessions the others have: where all nodes start at once, as after a loss of power, the first
    /// one would give clients sessions without what the others hold, and accept messages without
    /// knowing who wants them. So it waits for the other members, unless one that serves tells it:
    /// not for ever, as they may be gone.
    pub(super) fn check_ready(&mut self, now: Now) {
        if self.cx.is_ready || !self.cx.overlay.is_ready() {
            return;
        }
        let had_its_time = self.start.discovered_at.filter(|at| now.instant >= *at);
        let Some(discovered_at) = had_its_time else {
            return;
        };
        thicket_session::reach!("time discovery_grace");
        let is_over = now.instant >= discovered_at + self.cx.config.restart_grace;
        if !is_over && !self.placing.has_server() && self.missing_members().next().is_some() {
            return self.wait_for_members();
        }
        if self.start.is_waiting && is_over {
            thicket_session::reach!("time restart_grace");
        }
        self.cx.is_ready = true;
        self.placing.begin_to_serve(&mut self.cx, now);
        self.review_quorum(now);
        let nodes = self.cx.up.len() + 1;
        let fields = vec![("nodes", nodes.to_string())];
        self.cx.event(EventLevel::Info, READY, fields);
        self.take_early_hints(now);
        self.ownership.advance_claims(&mut self.cx, now);
    }

    /// The other members that are not up.
    fn missing_members(&self) -> impl Iterator<Item = NodeId> {
        let others = self.cx.members.iter().map(|(node, _)| node);
        others.filter(|node| *node != self.cx.own() && !self.cx.is_up(*node))
    }

    fn wait_for_members(&mut self) {
        if std::mem::replace(&mut self.start.is_waiting, true) {
            return;
        }
        let missing = self.missing_members();
        let names: Vec<String> = missing.map(|node| self.member_name(node)).collect();
        let most = self.cx.config.restart_grace.as_secs();
        let fields = vec![
            ("missing", names.join(", ")),
            ("at_most_s", most.to_string()),
        ];
        let message = "no node serves yet: waiting for the other members";
        self.cx.event(EventLevel::Info, message, fields);
    }

    /// When the next step of the start is due.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let discovered_at = self.start.discovered_at.filter(|_| !self.cx.is_ready)?;
        Some(match self.start.is_waiting {
            true => discovered_at + self.cx.config.restart_grace,
            false => discovered_at,
        })
    }
}
