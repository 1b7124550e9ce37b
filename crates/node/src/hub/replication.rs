//! Backups of sessions on their way between the workers of nodes, and the promotion of those of a node that is down.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::NodeId;

use super::{
    Hub, Message,
    control::{BackupPosition, PART_BYTES, Part},
};
use crate::{
    EventLevel, Now, WorkerId,
    mail::{Content, UpNode},
};

/// Bytes of one record; a primary whose record is longer is not believed.
const RECORD_BYTES: usize = 64 * 1024 * 1024;

/// What the hub knows of backups.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// Parts of a record that has not all come, by primary.
    parts: BTreeMap<(NodeId, u8), Vec<u8>>,
    /// Barriers of workers, by the number of the request: the worker and its own number.
    barriers: BTreeMap<u64, (WorkerId, u64)>,
    /// Nodes that are down, with the workers that have not said that its sessions are theirs now.
    promoting: BTreeMap<NodeId, BTreeSet<WorkerId>>,
    /// What workers were told of how much other nodes can take.
    capabilities: Vec<(NodeId, u64)>,
}

impl Hub {
    /// Every worker hears which other nodes are up.
    pub(super) fn tell_nodes(&mut self) {
        let up = self.cx.up.iter().map(|(slot, node)| UpNode {
            node: *node,
            slot: *slot,
        });
        let nodes: Vec<_> = up.collect();
        for worker in self.cx.workers() {
            self.cx.mail(worker, Content::Nodes(nodes.clone()));
        }
    }

    /// The workers hear how much other nodes can take, if that is news: backups go where there is room for them.
    pub(super) fn tell_capabilities(&mut self) {
        let up = self.cx.up.values();
        let capabilities: Vec<(NodeId, u64)> = up
            .map(|node| (*node, self.cx.overlay.capability_of(*node)))
            .collect();
        if capabilities != self.replication.capabilities {
            for worker in self.cx.workers() {
                self.cx
                    .mail(worker, Content::Capabilities(capabilities.clone()));
            }
            self.replication.capabilities = capabilities;
        }
    }

    /// Records of a node that have not all come never will.
    pub(super) fn forget_backup_parts(&mut self, node: NodeId) {
        self.replication.parts.retain(|(from, _), _| *from != node);
    }

    /// A node is down: the backups here of its sessions become the sessions. Nothing is registered before that. `is_news`: this side saw it go,
    /// and publishes the wills of its clients; else those it was with have.
    pub(super) fn promote_backups(&mut self, node: NodeId, is_news: bool) {
        self.forget_backup_parts(node);
        let workers: BTreeSet<WorkerId> = self.cx.workers().collect();
        for worker in &workers {
            self.cx
                .mail_after_records(*worker, Content::Promote { node, is_news });
        }
        self.replication.promoting.insert(node, workers);
    }

    pub(super) fn is_promoting(&self) -> bool {
        !self.replication.promoting.is_empty() || self.cx.standing.has_away()
    }

    pub(super) fn handle_promoted(&mut self, now: Now, from: WorkerId, node: NodeId) {
        let Some(workers) = self.replication.promoting.get_mut(&node) else {
            return;
        };
        workers.remove(&from);
        if workers.is_empty() {
            self.replication.promoting.remove(&node);
            self.have_taken_over(now, node);
        }
        if !self.is_promoting() {
            self.register_everywhere(now);
        }
    }

    /// A record of a worker's stream.
    pub(super) fn send_backups(
        &mut self,
        from: WorkerId,
        to: NodeId,
        stream: u64,
        position: u64,
        record: &[u8],
    ) {
        let backup = BackupPosition {
            worker: from.0,
            stream,
            position,
        };
        let Some(slot) = self.cx.overlay.slot_of(to) else {
            return;
        };
        if self.cx.standing.is_gone(slot) {
            // What waits for these backups hears it when it is known how this side stands.
            return;
        }
        let last = record.len().saturating_sub(1) / PART_BYTES;
        for (index, bytes) in record.chunks(PART_BYTES).enumerate() {
            let part = Part {
                bytes,
                is_last: index == last,
            };
            let (kind, payload) = Message::Replicate { backup, part }.encode();
            if let Err(error) = self.cx.overlay.send_control(slot, kind, &payload) {
                let fields = vec![("node", to.to_string()), ("error", error.to_string())];
                self.cx.event(EventLevel::Warn, "backups not sent", fields);
                // The worker begins a new stream; one whose beginning is missing is passed over.
                self.cx.mail(from, Content::BackupsLost { node: to });
                return;
            }
        }
    }

    pub(super) fn handle_backup(&mut self, from: NodeId, backup: BackupPosition, part: Part<'_>) {
        let key = (from, backup.worker);
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
        let BackupPosition {
            worker,
            stream,
            position,
        } = backup;
        let home = WorkerId(worker % self.cx.config.workers);
        let content = Content::Copied {
            from,
            worker,
            stream,
            position,
            record,
        };
        // Behind the messages that came before: the record may name them.
        self.cx.mail_after_records(home, content);
    }

    pub(super) fn handle_backups_held(&mut self, by: NodeId, backup: BackupPosition, held: u64) {
        if backup.worker < self.cx.config.workers {
            let content = Content::BackupsAreHeld {
                by,
                stream: backup.stream,
                applied: backup.position,
                held,
            };
            self.cx.mail(WorkerId(backup.worker), content);
        }
    }

    pub(super) fn handle_backups_wanted(
        &mut self,
        by: NodeId,
        worker: u8,
        stream: u64,
        wanted: Vec<(u64, u64)>,
    ) {
        if worker < self.cx.config.workers {
            let content = Content::BackupsAreWanted { by, stream, wanted };
            self.cx.mail(WorkerId(worker), content);
        }
    }

    /// A worker wants to know when all that was on its way to it has come.
    pub(super) fn begin_backup_barrier(&mut self, from: WorkerId, barrier: u64) {
        let request = self.next_request();
        self.replication.barriers.insert(request, (from, barrier));
        self.begin_barrier(request);
    }

    /// Other nodes have nothing more on its way; the other workers say it themselves. False: it was no barrier of backups.
    pub(super) fn backup_barrier_passed(&mut self, request: u64) -> bool {
        let Some((home, barrier)) = self.replication.barriers.remove(&request) else {
            return false;
        };
        for worker in self.cx.workers() {
            if worker != home {
                self.cx.mail(worker, Content::Synchronise { request, home });
            }
        }
        self.cx
            .mail_after_records(home, Content::BackupBarrierPassed { barrier, request });
        true
    }
}
