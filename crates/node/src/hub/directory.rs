//! Which client identifiers have their sessions on this node, and on which worker.

use std::sync::Arc;

use hashbrown::HashMap;
use thicket_overlay::{NodeId, rendezvous};

use super::{Hub, Message};
use crate::{Now, WorkerId, mail::SessionState};

/// Bytes of client identifiers in one `Register`.
const REGISTER_BYTES: usize = 256 * 1024;

/// Where a session of this node lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub home: WorkerId,
    /// Raised by every claim in the cluster: of two nodes that think they have the session the higher one has it.
    pub epoch: u64,
}

/// The sessions of this node, and the nodes that are asked about client identifiers.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub entries: HashMap<Arc<str>, Entry, foldhash::quality::FixedState>,
    /// This node and those that are up, ascending.
    reachable: Vec<NodeId>,
    /// Names that set: nodes with equal sets agree on every registrar.
    pub view: u64,
}

impl Hub {
    /// A worker says what became of a session.
    pub(super) fn handle_session(
        &mut self,
        now: Now,
        from: WorkerId,
        client_id: &Arc<str>,
        state: SessionState,
    ) {
        match state {
            SessionState::Connected | SessionState::Waiting => {
                let entry = self
                    .directory
                    .entries
                    .entry(Arc::clone(client_id))
                    .or_insert(Entry {
                        home: from,
                        epoch: 0,
                    });
                entry.home = from;
            }
            SessionState::Ended => {
                let is_home = self
                    .directory
                    .entries
                    .get(client_id)
                    .is_some_and(|entry| entry.home == from);
                if is_home && let Some(entry) = self.directory.entries.remove(client_id) {
                    self.tell_registrar(
                        now,
                        client_id,
                        &Message::Release {
                            client_id,
                            epoch: entry.epoch,
                        },
                    );
                }
            }
        }
    }

    /// The node that serialises the claims of a client identifier (rule 11).
    pub(super) fn registrar_of(&self, client_id: &str) -> NodeId {
        rendezvous(client_id, &self.directory.reachable).unwrap_or(self.own())
    }

    pub(super) fn tell_registrar(&mut self, now: Now, client_id: &str, message: &Message<'_>) {
        let registrar = self.registrar_of(client_id);
        if registrar == self.own() {
            self.handle_registrar_message(now, registrar, message);
        } else {
            self.send(registrar, message);
        }
    }

    /// The set of reachable nodes changed: every session is registered where it belongs now.
    pub(super) fn register_all(&mut self, now: Now) {
        self.directory.reachable = self.up.values().copied().chain([self.own()]).collect();
        self.directory.reachable.sort_unstable();
        self.directory.view = view_of(&self.directory.reachable);
        for node in self.directory.reachable.clone() {
            let mut sessions: Vec<(Arc<str>, u64)> = self
                .directory
                .entries
                .iter()
                .filter(|(client_id, _)| self.registrar_of(client_id) == node)
                .map(|(client_id, entry)| (Arc::clone(client_id), entry.epoch))
                .collect();
            sessions.sort_unstable();
            self.register_at(now, node, &sessions);
        }
    }

    fn register_at(&mut self, now: Now, node: NodeId, sessions: &[(Arc<str>, u64)]) {
        let mut messages = Vec::new();
        let mut page: Vec<(&str, u64)> = Vec::new();
        let mut bytes = 0;
        for (client_id, epoch) in sessions {
            bytes += client_id.len() + 12;
            page.push((client_id, *epoch));
            if bytes > REGISTER_BYTES {
                messages.push(Message::Register {
                    sessions: std::mem::take(&mut page),
                });
                bytes = 0;
            }
        }
        if !page.is_empty() {
            messages.push(Message::Register { sessions: page });
        }
        messages.push(Message::RegisterEnd {
            view: self.directory.view,
        });
        for message in messages {
            if node == self.own() {
                self.handle_registrar_message(now, node, &message);
            } else {
                self.send(node, &message);
            }
        }
    }
}

/// A fingerprint of a set of nodes (FNV-1a): the same on every machine.
fn view_of(nodes: &[NodeId]) -> u64 {
    let bytes = nodes.iter().flat_map(|node| node.0.to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
