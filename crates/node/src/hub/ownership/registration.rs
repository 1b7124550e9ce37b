//! The sessions of this node, as its workers report them, are registered: each at the registrar of its client identifier.

use std::{collections::BTreeMap, sync::Arc};

use thicket_overlay::{Incarnation, NodeId, rendezvous};
use thicket_session::server::Epoch;

use super::Ownership;
use crate::{
    Now, WorkerId,
    hub::{
        context::Context,
        control::{Message, Registrable, Registration, Released},
        directory::Entry,
    },
    messages::SessionState,
};

/// Bytes of client identifiers in one `Register`.
const REGISTER_BYTES: usize = 256 * 1024;

impl Ownership {
    /// A worker reports the state of a session.
    pub(in crate::hub) fn handle_session(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: WorkerId,
        client_id: &Arc<str>,
        state: SessionState,
        epoch: Epoch,
    ) {
        match state {
            SessionState::Connected | SessionState::Waiting => {
                let entry = cx
                    .directory
                    .entries
                    .entry(Arc::clone(client_id))
                    .or_insert(Entry {
                        home: from,
                        epoch,
                        is_open: true,
                        is_connected: false,
                    });
                if entry.is_open && entry.home != from {
                    return self.note_own_branch(cx, from, client_id, epoch);
                }
                entry.home = from;
                entry.epoch = entry.epoch.max(epoch);
                entry.is_open = true;
                entry.is_connected = state == SessionState::Connected;
            }
            SessionState::TakenOver => self.handle_taken_over(cx, now, from, client_id, epoch),
            SessionState::Branch => {
                // First: what the registrar answers at once is not about a claim that was granted.
                self.give_way(cx, from, client_id);
                self.handle_taken_over(cx, now, from, client_id, epoch);
            }
            SessionState::Contested => {
                self.send_to_registrar(cx, now, client_id, &Message::Contested { client_id });
            }
            SessionState::Ended => self.session_left(cx, now, from, client_id, Released::Ended),
            SessionState::Gone => self.session_left(cx, now, from, client_id, Released::Gone),
        }
    }

    /// There is no session here any more.
    fn session_left(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: WorkerId,
        client_id: &Arc<str>,
        release: Released,
    ) {
        let is_opening = self.is_opening(client_id);
        let Some(entry) = cx.directory.entries.get_mut(client_id) else {
            return;
        };
        if entry.home != from {
            self.own_branch_ended(cx, now, from, client_id);
            return;
        }
        entry.is_open = false;
        self.moves_lose_session(client_id);
        if self.adopt_own_branch(cx, now, client_id, is_opening) {
            return;
        }
        // A connection on its way there opens another one.
        if !is_opening {
            cx.directory.entries.remove(client_id);
            self.report_release(cx, now, client_id, release);
        }
    }

    /// Informs the registrar that there is no session here.
    pub(super) fn report_release(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &str,
        release: Released,
    ) {
        let release = Message::Release { client_id, release };
        self.send_to_registrar(cx, now, client_id, &release);
    }

    /// The node that serialises the claims of a client identifier (rule 11).
    fn registrar_of(&self, cx: &Context, client_id: &str) -> NodeId {
        rendezvous(client_id, &cx.directory.reachable).unwrap_or(cx.own())
    }

    pub(in crate::hub) fn send_to_registrar(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &str,
        message: &Message<'_>,
    ) {
        let registrar = self.registrar_of(cx, client_id);
        if registrar == cx.own() {
            self.handle_registrar_message(cx, now, registrar, message);
        } else {
            cx.send(registrar, message);
        }
    }

    /// The set of reachable nodes changed: every session is registered at its registrar of now.
    pub(super) fn directory_sees(&mut self, cx: &mut Context, now: Now) {
        cx.directory.reachable = cx.up.values().copied().chain([cx.own()]).collect();
        cx.directory.reachable.sort_unstable();
        let own = (cx.own(), cx.config.overlay.incarnation);
        let started = |node: &NodeId| match cx.directory.incarnations.get(node) {
            Some(incarnation) if *node != own.0 => (*node, *incarnation),
            Some(_) | None => own,
        };
        let view = cx.directory.reachable.iter().map(started);
        cx.directory.view = view_of(view);
        self.register_everywhere(cx, now);
    }

    /// Registers at every registrar that asked.
    pub(super) fn register_everywhere(&mut self, cx: &mut Context, now: Now) {
        for (node, round) in cx.directory.asked.clone() {
            self.register_at(cx, now, node, round);
        }
    }

    /// A registrar begins again, at this time of its clock for claims.
    pub(in crate::hub) fn handle_register_asked(
        &mut self,
        cx: &mut Context,
        now: Now,
        node: NodeId,
        round: u64,
        unix_ms: u64,
    ) {
        cx.clock.follow(now, unix_ms);
        cx.directory.asked.insert(node, round);
        self.register_at(cx, now, node, round);
    }

    /// Registers all sessions that a node is the registrar of. What is being fetched or opened is a claim, whatever else is here.
    fn register_at(&mut self, cx: &mut Context, now: Now, node: NodeId, round: u64) {
        if self.is_promoting(cx) {
            // Sessions of a node that is down are about to be promoted here: until then this node must not report that this was all.
            return;
        }
        let mut sessions: BTreeMap<Arc<str>, (Epoch, Registrable)> = BTreeMap::new();
        for (client_id, entry) in &cx.directory.entries {
            if self.registrar_of(cx, client_id) == node {
                let state = Registrable::here(entry.is_connected);
                sessions.insert(Arc::clone(client_id), (entry.epoch, state));
            }
        }
        for (client_id, epoch) in self.claims.granted() {
            if self.registrar_of(cx, client_id) == node {
                sessions.insert(Arc::clone(client_id), (epoch, Registrable::Claimed));
            }
        }
        let sessions = sessions.iter().map(|(client_id, session)| {
            let (epoch, state) = *session;
            Registration {
                client_id,
                epoch,
                state,
            }
        });
        let ended = self.registrar.ended.iter();
        let ended = ended.filter(|(client_id, _)| self.registrar_of(cx, client_id) == node);
        let ended: Vec<(String, Epoch)> = ended
            .filter(|_| node != cx.own())
            .map(|(client_id, epoch)| (client_id.to_owned(), epoch))
            .collect();
        let ended = ended.iter().map(|(client_id, epoch)| Registration {
            client_id,
            epoch: *epoch,
            state: Registrable::Ended,
        });
        let registrations = sessions.chain(ended);
        let view = cx.directory.view;
        for message in register_pages(round, registrations)
            .into_iter()
            .chain([Message::RegisterEnd { round, view }])
        {
            if node == cx.own() {
                self.handle_registrar_message(cx, now, node, &message);
            } else {
                cx.send(node, &message);
            }
        }
    }
}

/// At least one page, none much longer than [`REGISTER_BYTES`].
fn register_pages<'a>(
    round: u64,
    registrations: impl Iterator<Item = Registration<'a>>,
) -> Vec<Message<'a>> {
    let mut pages: Vec<Vec<Registration<'a>>> = vec![Vec::new()];
    let mut bytes = 0;
    for registration in registrations {
        if bytes > REGISTER_BYTES {
            pages.push(Vec::new());
            bytes = 0;
        }
        bytes += registration.client_id.len() + 13;
        pages.last_mut().expect("never empty").push(registration);
    }
    pages
        .into_iter()
        .enumerate()
        .map(|(index, sessions)| Message::Register {
            round,
            is_first: index == 0,
            sessions,
        })
        .collect()
}

/// A fingerprint of a set of nodes (FNV-1a): the same on every machine.
fn view_of(nodes: impl Iterator<Item = (NodeId, Incarnation)>) -> u64 {
    let bytes = nodes.flat_map(|(node, incarnation)| {
        let numbers = [node.0, incarnation.0];
        numbers.into_iter().flat_map(u64::to_le_bytes)
    });
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
