//! Of several links between two nodes one is used. The node with the lower id decides, so that both agree in any race; then each reports where its
//! earlier links ended, and they continue from there.

use thicket_mqtt::{Disconnect, Packet, ReasonCode};
use thicket_session::time::Instant;

use super::handshake::Refusal;
use super::{Overlay, slot_of_index};
use crate::hello::Hello;
use crate::identity::{LinkId, NodeId, NodeSlot};
use crate::interface::{EventLevel, Output};
use crate::link::LinkState;
use crate::message::{Message, Resume};
use crate::peer::{Peer, PeerState};
use crate::record_versions::{Purpose, RecordVersions};
use crate::view::NodeRecord;
use crate::wanted_records::WantedRecords;

impl Overlay {
    fn decides_against(&self, node: NodeId) -> bool {
        self.config.node < node
    }

    /// Both ends are identified.
    pub(super) fn on_candidate(&mut self, now: Instant, id: LinkId, hello: Hello) {
        if let Some(address) = self.links.get(&id).and_then(|link| link.dialled.clone()) {
            self.dialler.identify(&address, hello.node);
        }
        if !hello.address.is_empty() {
            self.dialler
                .note_address(now, &hello.address, Some(hello.node));
        }
        let Some(slot) = self.slot_for(&hello) else {
            let text = format!("{} nodes are the maximum", self.config.limits.nodes);
            return self.refuse(now, id, &Refusal::protocol(text));
        };
        let node = hello.node;
        self.set_state(
            id,
            LinkState::Candidate {
                peer: Box::new(hello),
            },
        );
        if let Some(link) = self.links.get_mut(&id) {
            // Both ends are alive: the rest takes one round trip.
            link.deadline = link.deadline.min(now + self.config.timing.down_after);
        }
        let known = self.known_process(slot, id);
        if !self.decides_against(node) {
            let (has_link, selects_seen) =
                known.map_or((false, 0), |peer| (peer.link.is_some(), peer.selects));
            self.write_message(
                slot,
                id,
                &Message::Candidate {
                    has_link,
                    selects_seen,
                },
            );
        } else if known
            .and_then(|peer| peer.link)
            .is_none_or(|used| Self::is_tunnel(used) && !Self::is_tunnel(id))
        {
            // A direct link is better than a tunnel.
            self.select(now, slot, id);
        }
    }

    /// The peer, if the process at the other end of the candidate is the one it had.
    fn known_process(&self, slot: NodeSlot, id: LinkId) -> Option<&Peer> {
        let LinkState::Candidate { peer: hello } = &self.links.get(&id)?.state else {
            return None;
        };
        self.peer(slot).filter(|peer| peer.process == hello.process)
    }

    /// The slot of the node; a new one the first time.
    fn slot_for(&mut self, hello: &Hello) -> Option<NodeSlot> {
        if let Some(slot) = self.slots.get(&hello.node) {
            return Some(*slot);
        }
        // Slots are never reused, so that an old number never means another node; what is bounded is the number of nodes that are not down.
        let present = self.peers.iter().filter(|peer| !peer.is_down()).count() + 1;
        if present >= self.config.limits.nodes || self.peers.len() + 1 >= usize::from(u16::MAX) {
            return None;
        }
        let slot = slot_of_index(self.peers.len());
        self.peers
            .push(Peer::new(hello, self.config.limits.credit_bytes));
        self.slots.insert(hello.node, slot);
        Some(slot)
    }

    /// We decide, and a link is in use: if the other node has lost it and we did not notice, the candidate replaces it.
    pub(super) fn on_candidate_message(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        id: LinkId,
        has_link: bool,
        selects_seen: u64,
    ) {
        let Some(peer) = self.known_process(slot, id) else {
            return self.select(now, slot, id);
        };
        // A node that has not seen our last choice cannot tell whether it has a link.
        let has_lost_it = !has_link && selects_seen == peer.selects;
        if peer.link.is_none() || has_lost_it {
            self.select(now, slot, id);
        } else {
            // The reason code is that of a connection taken over by another one of the same client id.
            let packet = Packet::Disconnect(Disconnect::new(ReasonCode::SessionTakenOver));
            self.write_packet(id, &packet);
            self.close_link(now, id);
        }
    }

    /// Uses this link from now on.
    pub(super) fn select(&mut self, now: Instant, slot: NodeSlot, id: LinkId) {
        let Some(LinkState::Candidate { peer: hello }) =
            self.links.get(&id).map(|link| link.state.clone())
        else {
            return;
        };
        let credit_bytes = self.config.limits.credit_bytes;
        let decides = self.decides_against(hello.node);
        let is_restarted = self
            .peer(slot)
            .is_some_and(|peer| peer.process != hello.process);
        if let Some(former) = self.peer(slot).and_then(|peer| peer.link) {
            self.close_link(now, former);
        }
        if is_restarted {
            self.close_candidates_of_former(now, &hello);
            self.mark_down(slot, EventLevel::Warn, "started again");
        }
        let Some(peer) = self.peer_mut(slot) else {
            return;
        };
        if is_restarted {
            peer.start_process(&hello, credit_bytes);
        }
        peer.name.clone_from(&hello.name);
        peer.incarnation = hello.incarnation;
        peer.link = Some(id);
        peer.has_acknowledged = false;
        peer.selects += 1;
        self.set_state(id, LinkState::Selected { peer: hello });
        if let Some(link) = self.links.get_mut(&id) {
            // From here on silence is measured.
            link.selected_at = now;
            link.last_received = now;
            link.next_hello = decides.then_some(now);
        }
        if decides {
            self.write_message(slot, id, &Message::Select);
        }
        let versions = RecordVersions::of(self.view.records());
        self.write_message(slot, id, &Message::Versions(versions));
        self.view_changed = true;
    }

    /// Another process of a node is linked: what a former one had sent, a `Select` among it, may still be on its way.
    fn close_candidates_of_former(&mut self, now: Instant, hello: &Hello) {
        let is_of_former = |state: &LinkState| {
            let LinkState::Candidate { peer } = state else {
                return false;
            };
            peer.node == hello.node && peer.process != hello.process
        };
        let links = self.links.iter();
        let of_former: Vec<LinkId> = links
            .filter(|(_, link)| is_of_former(&link.state))
            .map(|(id, _)| *id)
            .collect();
        for id in of_former {
            self.close_link(now, id);
        }
    }

    /// Sends our record if the other end lacks it, and then where earlier links ended. Each end requests the other records that it lacks.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        id: LinkId,
        known: &RecordVersions,
    ) {
        let Some(LinkState::Selected { peer: hello }) =
            self.links.get(&id).map(|link| link.state.clone())
        else {
            return;
        };
        self.note_offers(now, id, known);
        if known.lacks(self.view.own()) {
            let own = self.view.own().clone();
            self.write_message(slot, id, &Message::Record(own));
        }
        let credit_window = self.config.limits.credit_bytes;
        let Some(peer) = self.peer_mut(slot) else {
            return;
        };
        let resume = Message::Resume(Resume {
            given_up: peer.given_up,
            interests_received: peer.interests.received(),
            interests_applied: peer.interests.applied(),
            control_received: peer.control_received,
            credit_limit: peer.inbound.start_link(),
            credit_window,
        });
        self.write_message(slot, id, &resume);
        self.set_state(id, LinkState::Resumed { peer: hello });
    }

    /// The other end of a link has these versions of records: those that are missing here are wanted. Its own record it sends unasked.
    pub(super) fn note_offers(&mut self, now: Instant, id: LinkId, offered: &RecordVersions) {
        let from = self.links.get(&id).and_then(|link| link.state.node());
        let awaited_since = (offered.purpose == Purpose::All).then_some(now);
        for (node, age) in &offered.versions {
            let known = self.view.record(*node).map(NodeRecord::age);
            if known == Some(*age) {
                self.relays.note_repeated(*node, id);
            } else if known < Some(*age) && Some(*node) != from {
                self.wanted.offer(*node, *age, id, awaited_since);
            }
        }
    }

    /// Requests the records of which others have a later version, each from one node. A node with a link sends its own record over that.
    pub(super) fn ask_for_records(&mut self) {
        if !self.wanted.has_unasked() {
            return;
        }
        let mut wanted = std::mem::replace(&mut self.wanted, WantedRecords::new(0));
        let asked = wanted.ask(|node, age| {
            let peer = self.peer_of(node).filter(|it| it.process == age.process)?;
            let link = peer.link?;
            let is_selected = self.links.get(&link)?.state.is_selected();
            is_selected.then_some(link)
        });
        self.wanted = wanted;
        for (id, nodes) in asked {
            let node = self.links.get(&id).and_then(|link| link.state.node());
            let Some(slot) = node.and_then(|node| self.slots.get(&node).copied()) else {
                continue;
            };
            let known = |node: NodeId| (node, self.view.record(node).map(NodeRecord::age));
            let wanting = RecordVersions::wanting(nodes.into_iter().map(known));
            self.write_message(slot, id, &Message::Versions(wanting));
        }
    }

    /// Sends the records that the other end lacks.
    pub(super) fn send_lacking(&mut self, slot: NodeSlot, id: LinkId, known: &RecordVersions) {
        let records = self.view.records().filter(|record| known.lacks(record));
        let records: Vec<_> = records.cloned().collect();
        for record in records {
            self.write_message(slot, id, &Message::Record(record));
        }
    }

    /// The other node reports where earlier links ended: the link is up.
    pub(super) fn on_resume(&mut self, slot: NodeSlot, id: LinkId, resume: Resume) {
        let own_version = self.own_interests.version();
        let has_changes = resume
            .interests_received
            .filter(|version| self.own_interests.has_changes_since(*version));
        let Some(peer) = self.peer_mut(slot) else {
            return;
        };
        let node = peer.node;
        // A version that we never had is from another process: nothing is known.
        peer.interests_sent = has_changes;
        peer.interests_acknowledged = resume
            .interests_applied
            .filter(|version| *version <= own_version && has_changes.is_some());
        peer.owes_applied = peer.interests.applied().is_some();
        let has_given_us_up = resume.given_up != peer.gave_us_up;
        peer.gave_us_up = resume.given_up;
        if has_given_us_up {
            peer.inbound.begin_again();
        }
        // Causes an acknowledgement to be sent, which shows that this end is up.
        peer.owes_control = true;
        peer.control.start_link(resume.control_received);
        let lost = peer
            .outbound
            .start_link(resume.credit_limit, resume.credit_window);
        peer.counters.dropped += lost;
        peer.link_epoch += u32::from(!Self::is_tunnel(id));
        let before = std::mem::replace(&mut peer.state, PeerState::Up);
        let up = Output::NodeUp {
            slot,
            node,
            incarnation: peer.incarnation,
            name: peer.name.clone(),
        };
        let fields = vec![("node", node.to_string()), ("name", peer.name.clone())];
        self.set_state(id, LinkState::Up { node });
        self.view_changed = true;
        match before {
            PeerState::Down => {
                self.outputs.push_back(up);
                self.event(EventLevel::Info, "node is up", fields);
            }
            PeerState::Lost { .. } if has_given_us_up => {
                self.outputs.push_back(Output::ControlLost { slot })
            }
            PeerState::Lost { .. } | PeerState::Up => {}
        }
    }

    /// Appends a message to a link, and counts it for the node as control.
    pub(super) fn write_message(&mut self, slot: NodeSlot, id: LinkId, message: &Message<'_>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let bytes = link.write_message(message) as u64;
        if let Some(peer) = self.peer_mut(slot) {
            peer.counters.control_out_messages += 1;
            peer.counters.control_out_bytes += bytes;
        }
    }
}
