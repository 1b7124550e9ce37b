//! Carries replication records between the workers of two nodes, and tracks the promotion of the backups of a node that is down.

use std::collections::BTreeSet;

use thicket_overlay::NodeId;

use super::Ownership;
use crate::{
    EventLevel, Now, WorkerId,
    hub::{
        context::Context,
        control::{Message, PART_BYTES, Part},
    },
    messages::{BackupReport, ReplicationStream, ToWorker, UpNode},
};

/// Bytes of one record; a primary with a longer record is not trusted.
const RECORD_BYTES: usize = 64 * 1024 * 1024;

impl Ownership {
    /// Sends every worker the other nodes.
    pub(in crate::hub) fn send_nodes(&mut self, cx: &mut Context) {
        let up = cx.up.iter().map(|(slot, node)| UpNode {
            node: *node,
            slot: *slot,
        });
        let up: Vec<_> = up.collect();
        let own = cx.own();
        let members = cx.members.iter().map(|(node, _)| node);
        let members: Vec<_> = members.filter(|node| *node != own).collect();
        cx.change_cluster(|it| (it.up, it.members) = (up, members));
    }

    /// Sends the workers the free capacities of other nodes, if these have changed: backups go where there is capacity for them.
    pub(in crate::hub) fn send_capabilities(&mut self, cx: &mut Context) {
        let up = cx.up.values();
        let capabilities: Vec<(NodeId, u64)> = up
            .map(|node| (*node, cx.overlay.capability_of(*node)))
            .collect();
        if capabilities != cx.cluster.capabilities {
            cx.change_cluster(|it| it.capabilities = capabilities);
        }
    }

    /// Drops records of a node that have not arrived completely: they never will.
    pub(in crate::hub) fn forget_backup_parts(&mut self, node: NodeId) {
        self.replication.parts.retain(|(from, _), _| *from != node);
    }

    /// A node is down: the backups here of its sessions are promoted. Nothing is registered before that. `publishes_wills`: this side declared it
    /// down while it had quorum; otherwise the side it was on has published them.
    pub(in crate::hub) fn promote_backups(
        &mut self,
        cx: &mut Context,
        node: NodeId,
        publishes_wills: bool,
    ) {
        self.forget_backup_parts(node);
        let workers: BTreeSet<WorkerId> = cx.workers().collect();
        for worker in &workers {
            cx.send_to_worker_after_records(
                *worker,
                ToWorker::Promote {
                    node,
                    publishes_wills,
                },
            );
        }
        self.replication.promoting.insert(node, workers);
    }

    pub(super) fn is_promoting(&self, cx: &Context) -> bool {
        !self.replication.promoting.is_empty() || cx.quorum.has_away()
    }

    /// Whether backups of a node's sessions are being promoted.
    pub(in crate::hub) fn promotes(&self, node: NodeId) -> bool {
        self.replication.promoting.contains_key(&node)
    }

    /// A worker has promoted its backups of a node's sessions. Returns whether all have now.
    pub(in crate::hub) fn promoted(&mut self, from: WorkerId, node: NodeId) -> bool {
        let Some(workers) = self.replication.promoting.get_mut(&node) else {
            return false;
        };
        workers.remove(&from);
        let are_all = workers.is_empty();
        if are_all {
            self.replication.promoting.remove(&node);
        }
        are_all
    }

    /// Registers the sessions of this node where they were not while backups were being promoted.
    pub(in crate::hub) fn register_promoted(&mut self, cx: &mut Context, now: Now) {
        if !self.is_promoting(cx) {
            self.register_everywhere(cx, now);
        }
    }

    /// A record of a worker's stream.
    pub(in crate::hub) fn send_backups(
        &mut self,
        cx: &mut Context,
        from: WorkerId,
        to: NodeId,
        stream: u64,
        position: u64,
        record: &[u8],
    ) {
        let stream = ReplicationStream {
            worker: from.0,
            id: stream,
        };
        let Some(slot) = cx.overlay.slot_of(to) else {
            return;
        };
        if cx.quorum.is_gone(slot) {
            // What waits for these backups is informed when it is decided whether this side has quorum.
            return;
        }
        let last = record.len().saturating_sub(1) / PART_BYTES;
        for (index, bytes) in record.chunks(PART_BYTES).enumerate() {
            let part = Part {
                bytes,
                is_last: index == last,
            };
            let replicate = Message::Replicate {
                stream,
                position,
                part,
            };
            let (kind, payload) = replicate.encode();
            if let Err(error) = cx.overlay.send_control(slot, kind, &payload) {
                let fields = vec![("node", to.to_string()), ("error", error.to_string())];
                cx.event(
                    EventLevel::Warn,
                    "a replication record was not sent",
                    fields,
                );
                // The worker begins a new stream; one whose beginning is missing is ignored.
                let lost = ToWorker::BackupsLost {
                    node: to,
                    absence: None,
                };
                cx.send_to_worker(from, lost);
                return;
            }
        }
    }

    pub(in crate::hub) fn handle_replicate(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        stream: ReplicationStream,
        position: u64,
        part: Part<'_>,
    ) {
        let key = (from, stream.worker);
        let parts = self.replication.parts.entry(key).or_default();
        parts.extend_from_slice(part.bytes);
        if parts.len() > RECORD_BYTES {
            self.replication.parts.remove(&key);
            return;
        }
        if !part.is_last {
            return;
        }
        let record = self.replication.parts.remove(&key).unwrap_or_default();
        let home = WorkerId(stream.worker % cx.config.workers);
        let content = ToWorker::Replicate {
            from,
            stream,
            position,
            record,
        };
        // Behind the messages that came before: the record may refer to them.
        cx.send_to_worker_after_records(home, content);
    }

    pub(in crate::hub) fn handle_backup_report(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        stream: ReplicationStream,
        report: BackupReport,
    ) {
        if stream.worker < cx.config.workers {
            let content = ToWorker::BackupReport {
                from,
                stream: stream.id,
                report,
            };
            cx.send_to_worker(WorkerId(stream.worker), content);
        }
    }
}
