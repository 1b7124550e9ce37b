//! The end of a round: deadlines, our record, what must be sent to each node, data, and reports to the hub.

use std::time::Duration;

use thicket_session::time::Instant;

use super::trees::Hop;
use super::{Overlay, slot_of_index};
use crate::identity::{LinkId, NodeId, NodeSlot};
use crate::interface::{EventLevel, Output};
use crate::link::{Link, LinkState, SentHello};
use crate::measure::{capability, publish_capability, publish_count, quantise_rtt, rtt_moved};
use crate::message::{AcknowledgeView, InterestBatch, InterestBatchKind, Message};
use crate::overview::OverlayState;
use crate::peer::{Peer, PeerState};
use crate::routing::ListedLink;
use crate::sorted_set::SortedSet;
use crate::view::NodeRecord;

/// Links that come up within this time are put into one record, and records that arrive within it are announced together: when many nodes start, each
/// gets many links at once and receives every record over each of them.
const GATHERING: Duration = Duration::from_millis(20);

/// How a link differs from its entry in our record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// The link is gone, or it is a new one.
    Lost,
    /// The link is not in the record.
    Gained,
    Rtt,
}

/// Memory that a round fills, kept for the next one.
#[derive(Debug, Default)]
pub(super) struct RoundMemory {
    looked_at: SortedSet<LinkId>,
    to_serve: SortedSet<LinkId>,
    places: SortedSet<usize>,
    hops: Vec<Hop>,
}

/// The kinds of deadlines of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deadline {
    Handshake,
    Silence,
}

impl Overlay {
    /// Ends a round: compares deadlines with the clock, then writes overlay messages, data, control and acknowledgements, in this order, to the
    /// out-buffers. Call it after the inputs of a round and before polling its outputs.
    pub fn end_round(&mut self, now: Instant) {
        // The caller may have polled the order to close already and performs it after this.
        let (outputs, closed) = (&self.outputs, &self.closed);
        self.closing
            .retain(|id, _| outputs.contains(&Output::Close(*id)) || !closed.contains(id));
        self.closed = self.closing.keys().copied().collect();
        self.note_time(now);
        let mut looked_at = std::mem::take(&mut self.round.looked_at);
        looked_at.clear();
        self.links.add_to_look_at(now, &mut looked_at);
        self.end_late_links(now, &looked_at);
        self.update_own_record(now);
        self.announce_due_records(now);
        self.ask_for_records();
        self.update_topology(now);
        self.end_late_peers(now);
        self.update_linkless(now);
        self.open_tunnels(now);
        self.send_parked(now);
        self.warn_of_linkless(now);
        let hops = self.hops_to_serve(now);
        for &(slot, id) in &hops {
            self.send_hello(now, slot, id);
            if self.is_link_up(id) {
                self.send_applied(slot, id);
                self.send_interests(slot, id);
                if !self.routes_over_trees() {
                    self.fill_with_data(now, slot, id);
                }
            }
        }
        for &hop in &hops {
            self.seal_tree_batch(hop);
        }
        // Control follows data: it may name messages, and the other node has less to do if it has them already. Acknowledgements follow control: they
        // must not overtake what it reports about the message.
        for &(slot, id) in &hops {
            if self.is_link_up(id) {
                self.send_control_messages(slot, id);
                self.send_acknowledgements(slot, id);
            }
        }
        self.pump_tunnels();
        self.report_settled();
        self.report_completed();
        self.dial_due(now);
        // Taking the order to flush changes no link that has not changed.
        for place in 0..self.links.changed().len() {
            let id = self.links.changed()[place];
            let link = self.links.get_mut(&id).filter(|_| !Self::is_tunnel(id));
            if link.is_some_and(Link::take_flush) {
                self.outputs.push_back(Output::Flush(id));
            }
        }
        self.note_convergence(now);
        self.note_moved_links();
        self.peers.end_round();
        let most = self.most_pending_bytes();
        self.links
            .end_round(now, &looked_at, most, &self.config.timing);
        self.round.looked_at = looked_at;
        self.round.hops = hops;
        self.last_round = now;
    }

    /// The links that may have something to send, by slot: those of peers that changed, those that changed themselves, those with a hello due, and
    /// those with data waiting for capacity. After a change of our interests, all links.
    fn hops_to_serve(&mut self, now: Instant) -> Vec<Hop> {
        let mut hops = std::mem::take(&mut self.round.hops);
        hops.clear();
        let version = self.own_interests.version();
        if std::mem::replace(&mut self.interests_served, version) != version {
            hops.extend(self.linked_peers());
            return hops;
        }
        let mut ids = std::mem::take(&mut self.round.to_serve);
        ids.clear();
        self.links.add_to_look_at(now, &mut ids);
        // A tunnel regains capacity at the end of a round, when its bytes have moved to the links that carry it.
        ids.extend(self.links.throttled().map(|(id, _)| id));
        let mut places = std::mem::take(&mut self.round.places);
        places.clear();
        places.extend(self.peers.changed().iter().copied());
        for id in ids.iter() {
            let node = self.links.get(id).and_then(|link| link.state.node());
            let slot = node.and_then(|node| self.slots.get(&node));
            places.extend(slot.and_then(|slot| slot.index().checked_sub(1)));
        }
        let hop = |place: &usize| Some((slot_of_index(*place), self.peers.get(*place)?.link?));
        hops.extend(places.iter().filter_map(hop));
        (self.round.to_serve, self.round.places) = (ids, places);
        hops
    }

    fn is_link_up(&self, id: LinkId) -> bool {
        let link = self.links.get(&id);
        link.is_some_and(|link| matches!(link.state, LinkState::Up { .. }))
    }

    /// Records how long it took until every reachable node was first known and the tree agreed.
    fn note_convergence(&mut self, now: Instant) {
        if self.counters.convergence_ms == 0 && self.state() == OverlayState::Runtime {
            let took = now.since(self.started).as_millis();
            self.counters.convergence_ms = u64::try_from(took).unwrap_or(u64::MAX).max(1);
        }
    }

    /// When to hand in `Input::Timeout` and end a round.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timing = &self.config.timing;
        let lost = self.peers.lost().into_iter();
        let peers = lost.filter_map(|place| match self.peers[place].state {
            PeerState::Lost { since, .. } if self.peers[place].link.is_none() => {
                let waits = [since + timing.down_after, since + timing.link_grace];
                waits.into_iter().find(|at| *at > self.last_round)
            }
            PeerState::Lost { .. } | PeerState::Up | PeerState::Down => None,
        });
        let linkless = self
            .linkless
            .values()
            .filter(|until| **until > self.last_round)
            .copied();
        let record = self
            .record_is_stale()
            .then(|| self.record_sent + timing.record_interval);
        let goes_on = self.has_capacity_to_fill() || self.can_pump() || self.wanted.has_unasked();
        let refill = goes_on.then_some(self.last_round);
        peers
            .chain(self.links.next_due(timing))
            .chain(linkless)
            .chain(record)
            .chain(self.links_gained.map(|since| since + GATHERING))
            .chain(self.relays.first().map(|since| since + GATHERING))
            .chain(self.records_due())
            .chain(self.next_dial())
            .chain(refill)
            .chain(
                self.former_is_up_until
                    .filter(|until| *until > self.last_round),
            )
            .chain(self.next_tunnel_due())
            .chain(self.peers.next_resend(timing.resend_after))
            .chain(self.next_breath())
            .min()
    }

    /// While there are links, rounds are due so often that a longer time without one shows that this process was paused.
    fn next_breath(&self) -> Option<Instant> {
        let mut links = self.links.values();
        let is_linked = links.any(|link| link.state.is_selected());
        is_linked.then(|| self.last_round + self.config.timing.hello_interval)
    }

    pub(super) fn linked_peers(&self) -> impl Iterator<Item = (NodeSlot, LinkId)> + '_ {
        self.peers
            .iter()
            .enumerate()
            .filter_map(|(index, peer)| Some((slot_of_index(index), peer.link?)))
    }

    /// Detects that this process was paused. Call it before the inputs of a round are handed in; [`Self::end_round`] does so too.
    ///
    /// A node that did not run for long has been silent, so others may have declared it down and promoted their backups: what was received before,
    /// and what the sockets still hold, is out of date. Nor does the silence of others prove anything. So the links are closed before anything is
    /// read from them, and the next ones establish which node has marked which as down.
    pub fn note_time(&mut self, now: Instant) {
        let paused = now.since(self.last_round);
        if paused < self.config.timing.lease() {
            return;
        }
        self.last_pause = Some((self.last_round, now));
        self.last_round = now;
        let is_selected = |(id, link): (&LinkId, &Link)| link.state.is_selected().then_some(*id);
        let selected: Vec<LinkId> = self.links.iter().filter_map(is_selected).collect();
        if selected.is_empty() {
            return;
        }
        thicket_session::reach!("time lease");
        let fields = vec![("paused_ms", paused.as_millis().to_string())];
        self.event(EventLevel::Warn, "this node stood still", fields);
        for id in selected {
            if let Some(link) = self.links.get_mut(&id) {
                link.last_received = now;
            }
            self.close_link(now, id);
        }
    }

    /// Bytes of a link have arrived and are handed in later: the node at its other end is not silent.
    pub fn note_received(&mut self, now: Instant, link: LinkId) {
        if let Some(link) = self.links.get_mut(&link) {
            link.last_received = now;
        }
    }

    /// The last pause of this process: from, until. What was noticed just after it happened at some time in between.
    #[must_use]
    pub const fn last_pause(&self) -> Option<(Instant, Instant)> {
        self.last_pause
    }

    /// Whether a node may have marked this one as down: its link is gone, and it is neither linked again nor down yet. Its view of the
    /// cluster is then too old to answer clients from. As of the end of the last round, and after [`Self::note_time`].
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.peers.has_lost()
    }

    /// More than this waits for a socket only if the other end reads too slowly.
    const fn most_pending_bytes(&self) -> usize {
        self.config.limits.out_buffer_bytes + self.config.limits.control_bytes
    }

    fn end_late_links(&mut self, now: Instant, looked_at: &[LinkId]) {
        let down_after = self.config.timing.down_after;
        let late = |link: &Link| {
            let silent = link.state.is_selected() && now >= link.last_received + down_after;
            let unfinished = !matches!(link.state, LinkState::Up { .. }) && now >= link.deadline;
            match (silent, unfinished) {
                (true, _) => Some(Deadline::Silence),
                (false, true) => Some(Deadline::Handshake),
                (false, false) => None,
            }
        };
        let links = |id: &LinkId| Some((*id, self.links.get(id)?));
        let ended: Vec<_> = looked_at
            .iter()
            .filter_map(links)
            .filter_map(|(id, link)| Some((id, late(link)?)))
            .collect();
        for (id, deadline) in ended {
            match deadline {
                Deadline::Silence => {
                    thicket_session::reach!("time down_after");
                    self.close_silent_link(now, id);
                }
                Deadline::Handshake => {
                    thicket_session::reach!("time handshake_timeout");
                    self.close_link(now, id);
                }
            }
        }
        // A node that reads so slowly, while it still sends, would make us buffer control messages without end.
        let maximum = self.most_pending_bytes();
        let full: Vec<_> = looked_at
            .iter()
            .filter_map(|id| Some((*id, self.links.get(id)?)))
            .filter(|(_, link)| link.pending().len() > maximum)
            .map(|(id, _)| id)
            .collect();
        for id in full {
            thicket_session::reach!("overlay/rounds: a link takes too little");
            self.close_silent_link(now, id);
        }
    }

    fn end_late_peers(&mut self, now: Instant) {
        let down_after = self.config.timing.down_after;
        for index in self.peers.lost() {
            let peer = &self.peers[index];
            let PeerState::Lost {
                since,
                is_unreachable,
            } = peer.state
            else {
                continue;
            };
            let is_over = is_unreachable || now >= since + down_after;
            // A node that others reach is reached over them; if it is down, they will detect that soon.
            let is_elsewhere = self.trees.topology().contains(peer.node)
                && now < since + self.config.timing.link_grace;
            if peer.link.is_none() && now >= since + self.config.timing.link_grace {
                thicket_session::reach!("time link_grace");
            }
            if peer.link.is_none() && is_over && !is_elsewhere {
                let took = now.since(since).as_millis();
                self.counters.repairs += 1;
                self.counters.last_repair_ms = u64::try_from(took).unwrap_or(u64::MAX);
                self.counters.repair_ms += self.counters.last_repair_ms;
                let reason = if is_unreachable {
                    "unreachable"
                } else {
                    "silent"
                };
                self.mark_down(slot_of_index(index), EventLevel::Warn, reason);
            }
        }
    }

    /// Lost links are published at once, new ones are gathered first; numbers for display wait for `record_interval`.
    fn update_own_record(&mut self, now: Instant) {
        let measures = self.measures_to_publish(now);
        self.note_moved_links();
        let is_due =
            now >= self.record_sent + self.config.timing.record_interval && self.record_is_stale();
        if !is_due && !self.links_are_due(now) {
            return;
        }
        let links = self.listed_links();
        if is_due {
            thicket_session::reach!("time record_interval");
        }
        self.links_gained = None;
        self.moved_links.clear();
        let (clients, subscriptions) = (self.clients, self.subscriptions);
        let interest_version = self.own_interests.version();
        let before = self.view.own().clone();
        self.view.change_own(|own| {
            own.version += 1;
            own.links = links.into();
            own.clients = clients;
            own.subscriptions = subscriptions;
            own.interest_version = interest_version;
            (own.capability, own.roots, own.rate) = measures;
        });
        let record = self.view.own().clone();
        self.note_lost_links(&before, &record);
        self.note_changed_record(Some(&before), &record);
        self.record_sent = now;
        self.flood(Some(&before), &record, &[]);
    }

    /// Announces the records of other nodes that have been gathered for long enough.
    fn announce_due_records(&mut self, now: Instant) {
        let until =
            Instant::from_millis(now.as_millis().saturating_sub(GATHERING.as_millis() as u64));
        let due = self.relays.take_until(now, until);
        if !due.is_empty() {
            self.announce_records(&due);
        }
    }

    /// A record has replaced another one: marks what must be recomputed in this round.
    pub(super) fn note_changed_record(&mut self, before: Option<&NodeRecord>, after: &NodeRecord) {
        if before.is_some_and(|before| before.differs_in_numbers_only(after)) {
            self.numbers_changed = true;
        } else {
            self.view_changed = true;
        }
    }

    /// Whether the difference between our links and our record must be published now.
    fn links_are_due(&mut self, now: Instant) -> bool {
        let has = |moved: Moved| self.moved_links.values().any(|it| *it == moved);
        if has(Moved::Lost) {
            return true;
        }
        if !has(Moved::Gained) {
            self.links_gained = None;
            return false;
        }
        let since = *self.links_gained.get_or_insert(now);
        let is_over = now >= since + GATHERING;
        if is_over {
            thicket_session::reach!("time GATHERING");
        }
        is_over
    }

    /// Compares the links of the peers that changed with our record.
    fn note_moved_links(&mut self) {
        for place in self.peers.changed() {
            match self.moved(&self.peers[*place]) {
                Some(moved) => {
                    self.moved_links.insert(*place, moved);
                }
                None if self.moved_links.is_empty() => {}
                None => {
                    self.moved_links.remove(place);
                }
            }
        }
    }

    /// How the link with a node differs from its entry in our record.
    fn moved(&self, peer: &Peer) -> Option<Moved> {
        let own = self.view.own();
        match (own.link(peer.node), self.listed_link(peer)) {
            (Some(_), None) => Some(Moved::Lost),
            (Some(before), Some(link)) if before.epoch != link.epoch => Some(Moved::Lost),
            (Some(before), Some(link)) => (*before != link).then_some(Moved::Rtt),
            (None, Some(_)) => Some(Moved::Gained),
            (None, None) => None,
        }
    }

    /// Links of a node that are gone or were replaced: what was sent on them may be lost.
    pub(super) fn note_lost_links(&mut self, before: &NodeRecord, after: &NodeRecord) {
        let lost = after.links_lost_since(before).into_iter();
        self.lost_links
            .extend(lost.map(|other| (after.node.min(other), after.node.max(other))));
    }

    fn listed_links(&self) -> Vec<ListedLink> {
        let links = self.peers.iter().filter_map(|peer| self.listed_link(peer));
        let mut links: Vec<_> = links.collect();
        links.sort_unstable();
        links
    }

    /// A link that is up, with the RTT to publish: the published RTT stays until the measured one has clearly left its step.
    fn listed_link(&self, peer: &Peer) -> Option<ListedLink> {
        let is_own = peer.link.is_some_and(|link| !Self::is_tunnel(link));
        if peer.state != PeerState::Up || !is_own {
            return None;
        }
        let before = self.view.own().link(peer.node).map(|link| link.rtt);
        let measured = peer.rtt_us.unwrap_or(0);
        let rtt = before.filter(|before| peer.rtt_us.is_none() || !rtt_moved(*before, measured));
        Some(ListedLink {
            node: peer.node,
            rtt: rtt.unwrap_or_else(|| quantise_rtt(measured)),
            epoch: peer.link_epoch,
        })
    }

    fn record_is_stale(&self) -> bool {
        let own = self.view.own();
        own.clients != self.clients
            || own.subscriptions != self.subscriptions
            || own.interest_version != self.own_interests.version()
            || (own.capability, own.roots, own.rate) != self.last_measures
            || !self.moved_links.is_empty()
    }

    /// Capability, roots held and publish rate as the record should show them.
    fn measures_to_publish(&mut self, now: Instant) -> (u64, u64, u64) {
        let weights = self.config.routing.weights;
        let (alpha, beta) = (weights.alpha, weights.beta);
        let rate = self.rate.rate(now);
        let measured = capability(self.available.0, self.available.1, alpha, beta);
        let own = self.view.own();
        self.last_measures = (
            publish_capability(own.capability, measured, alpha, beta),
            publish_count(own.roots, self.trees.roots_held()),
            publish_count(own.rate, rate),
        );
        self.last_measures
    }

    /// Nodes that others reach and this one does not delay what waits for every reachable node, for a limited time.
    fn update_linkless(&mut self, now: Instant) {
        if !std::mem::take(&mut self.view_changed) {
            return;
        }
        let until = now + self.config.timing.link_grace;
        let own = self.config.node;
        let missing =
            |node: &NodeId| *node != own && self.peer_of(*node).is_none_or(|peer| peer.is_down());
        let component = self.trees.topology().nodes().iter();
        let linkless = component.map(|node| node.node).filter(missing);
        self.linkless = linkless
            .map(|node| (node, self.linkless.get(&node).copied().unwrap_or(until)))
            .collect();
    }

    /// Warns of nodes that are no longer waited for although others reach them: what is published here does not get there.
    fn warn_of_linkless(&mut self, now: Instant) {
        let passed = |until: &Instant| *until > self.last_round && *until <= now;
        let given_up: Vec<_> = self
            .linkless
            .iter()
            .filter(|(_, until)| passed(until))
            .map(|(node, _)| *node)
            .collect();
        for node in given_up {
            let fields = vec![("node", node.to_string())];
            self.event(
                EventLevel::Warn,
                "others reach a node that this one has no link with",
                fields,
            );
        }
    }

    /// Whether a node is reachable, or about to be, that has no link with this one yet.
    pub(super) fn waits_for_a_link(&self) -> bool {
        self.misses_nodes_for_now() || self.has_links_coming()
    }

    /// Whether a node that is not up is about to be: a link with it is being established.
    #[must_use]
    pub fn has_links_coming(&self) -> bool {
        let is_coming = |peer: &Peer| peer.is_down() && peer.link.is_some();
        self.peers.iter().any(is_coming)
    }

    /// Whether others reach a node that this one does not, or have records that this one awaits, and the time for that has not passed.
    fn misses_nodes_for_now(&self) -> bool {
        let mut linkless = self.linkless.values();
        linkless.any(|until| *until > self.last_round) || self.records_due().is_some()
    }

    /// Until when to wait for records that neighbours had when their links began.
    fn records_due(&self) -> Option<Instant> {
        let due = self.wanted.awaited_since()? + self.config.timing.link_grace;
        (due > self.last_round).then_some(due)
    }

    fn send_hello(&mut self, now: Instant, slot: NodeSlot, id: LinkId) {
        let Some(link) = self
            .links
            .get_mut(&id)
            .filter(|link| link.next_hello.is_some_and(|at| now >= at))
        else {
            return;
        };
        thicket_session::reach!("time hello_interval");
        link.next_hello = Some(now + self.config.timing.hello_interval);
        // Bytes that wait for the socket already show that we are alive; a hello behind them would measure the queue.
        if link.pending().len() >= self.config.limits.out_buffer_bytes {
            return;
        }
        link.hello_sequence += 1;
        let sequence = link.hello_sequence;
        link.hello = Some(SentHello { sequence, at: now });
        let rtt_us = self.peer(slot).and_then(|peer| peer.rtt_us);
        self.write_message(slot, id, &Message::Hello { sequence, rtt_us });
    }

    fn send_applied(&mut self, slot: NodeSlot, id: LinkId) {
        let Some(peer) = self.peer_mut(slot) else {
            return;
        };
        if std::mem::take(&mut peer.owes_applied)
            && let Some(version) = peer.interests.applied()
        {
            self.write_message(slot, id, &Message::InterestsApplied { version });
        }
    }

    fn send_interests(&mut self, slot: NodeSlot, id: LinkId) {
        let (current, maximum) = (self.own_interests.version(), self.config.limits.batch_bytes);
        let index = slot.index().saturating_sub(1);
        let (Some(peer), Some(link)) = (self.peers.get_mut(index), self.links.get_mut(&id)) else {
            return;
        };
        let counters = &mut peer.counters;
        let mut write = |batch: InterestBatch<'_>| {
            counters.control_out_messages += 1;
            counters.control_out_bytes += link.write_message(&Message::Interests(batch)) as u64;
        };
        match peer.interests_sent {
            Some(sent) if sent == current => return,
            Some(mut from) if self.own_interests.has_changes_since(from) => {
                while from < current {
                    self.scratch.clear();
                    let to = self
                        .own_interests
                        .encode_changes(from, maximum, &mut self.scratch);
                    write(InterestBatch {
                        kind: InterestBatchKind::Changes,
                        from,
                        to,
                        entries: &self.scratch,
                    });
                    from = to;
                }
            }
            Some(_) | None => self.own_interests.encode_snapshot(maximum, write),
        }
        peer.interests_sent = Some(current);
    }

    fn send_control_messages(&mut self, slot: NodeSlot, id: LinkId) {
        let index = slot.index().saturating_sub(1);
        let (Some(peer), Some(link)) = (self.peers.get_mut(index), self.links.get_mut(&id)) else {
            return;
        };
        let (control, counters) = (&mut peer.control, &mut peer.counters);
        control.send(|queued| {
            let (sequence, kind) = (queued.sequence, queued.kind);
            let message = Message::Control {
                sequence,
                kind,
                payload: &queued.payload,
            };
            counters.control_out_messages += 1;
            counters.control_out_bytes += link.write_message(&message) as u64;
        });
    }

    fn send_acknowledgements(&mut self, slot: NodeSlot, id: LinkId) {
        let mut streams = std::mem::take(&mut self.scratch);
        streams.clear();
        if let Some(peer) = self.peer_mut(slot)
            && (peer.owes_control || peer.inbound.owes())
        {
            peer.owes_control = false;
            let control_received = peer.control_received;
            let credit_limit = peer.inbound.take_acknowledgements(peer.node, &mut streams);
            let view = AcknowledgeView {
                credit_limit,
                control_received,
                streams: &streams,
            };
            self.write_message(slot, id, &Message::Acknowledge(view));
        }
        self.scratch = streams;
    }

    /// Whether a link has capacity again for waiting data: then the next round follows at once.
    fn has_capacity_to_fill(&self) -> bool {
        let maximum = self.config.limits.out_buffer_bytes;
        let mut throttled = self.links.throttled();
        throttled.any(|(_, link)| link.pending().len() < maximum)
    }

    fn report_settled(&mut self) {
        if self.misses_nodes_for_now() || self.peers.has_coming() {
            return;
        }
        let own = self.own_interests.version();
        // A node that has applied nothing yet is below every version.
        let settled = self.peers.acknowledged_by_all(own);
        let version = settled.map_or(0, |version| version.min(own));
        let before = std::mem::replace(&mut self.settled, version);
        if version > before {
            self.outputs.push_back(Output::InterestSettled { version });
        }
    }

    fn report_completed(&mut self) {
        let completed: Vec<_> = self.store.take_completed().collect();
        for (stream, ranges) in completed {
            self.forget_routes(stream, &ranges);
            self.outputs
                .push_back(Output::Acknowledged { stream, ranges });
        }
    }

    fn dial_due(&mut self, now: Instant) {
        if self.next_dial().is_some_and(|due| due <= now) {
            let linked = self.linked_nodes();
            let has_link = |node| linked.binary_search(&node).is_ok();
            for address in self.dialler.take_due(now, has_link) {
                self.outputs.push_back(Output::Dial { address });
            }
        }
        // Searching all links and addresses takes time proportional to the nodes: only when one has changed.
        if self.dial.0 != self.dial_depends_on() {
            self.dial = (self.dial_depends_on(), self.find_next_dial());
        }
    }

    /// When the next address is to be dialled.
    fn next_dial(&self) -> Option<Instant> {
        if self.leaving {
            return None;
        }
        let (depended_on, due) = self.dial;
        if depended_on == self.dial_depends_on() {
            due
        } else {
            self.find_next_dial()
        }
    }

    fn find_next_dial(&self) -> Option<Instant> {
        let linked = self.linked_nodes();
        self.dialler
            .next_due(|node| linked.binary_search(&node).is_ok())
    }

    /// The inputs of the next dial, as numbers that rise with every change.
    const fn dial_depends_on(&self) -> (u64, u64) {
        (self.links.generation(), self.dialler.generation())
    }
}
