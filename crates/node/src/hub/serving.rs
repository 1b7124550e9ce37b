//! How a node finds out whether its side of the cluster has [quorum](super::quorum), and what follows; the members of the cluster.

use std::{collections::BTreeSet, time::Duration};

use thicket_overlay::{NodeId, NodeSlot, NodeStatus, Output};
use thicket_session::time::Instant;

use super::{Hub, HubOperator, HubView, JOINING, Message, members::Membership, quorum::State};
use crate::{
    EventLevel, ForgetError, Keyspace, MembershipReport, NO_QUORUM, NODE_REMOVED, Now, PARTITIONED,
    Partition, QUORUM, messages::ToWorker,
};

impl Hub {
    /// Another node sends its list of members.
    pub(super) fn handle_members(&mut self, announced: &[Membership<'_>]) {
        for member in announced {
            self.cx.members.merge(member);
        }
        // A node that was removed while it was away joins again, and announces that itself: others may receive a removal while a node that leaves is
        // still linked, and must not undo it.
        if !self.placing.is_draining() {
            let own = &self.cx.config.overlay;
            self.cx.members.join(own.node, &own.name, &own.address);
        }
        let cx = &mut self.cx;
        for (node, name) in cx.overlay.others_up() {
            if !cx.members.knows(node) {
                cx.members.join(node, name, cx.overlay.address_of(node));
            }
        }
    }

    /// A node that leaves on purpose and stores nothing does not come back under its identity: it removes itself from the members, so that
    /// restarts of one node after the other do not make a majority impossible. A node that stores comes back as itself and stays a member.
    pub(super) fn leave_members(&mut self, now: Now) {
        if self.placing.is_draining() && !self.cx.config.stores {
            self.cx.members.remove(self.cx.config.overlay.node);
            self.note_members();
            self.send_members();
            // It leaves with a round, and there is none after the shutdown.
            self.cx.overlay.end_round(now.instant);
        }
    }

    /// Where nothing depends on it, two kinds of members are not passed on: a node that lists a link with the recipient, which has seen it join
    /// too; and one that is gone, as nodes that store nothing have another identity at each start.
    fn is_announced(&self, member: &Membership<'_>, to: NodeId) -> bool {
        let overlay = &self.cx.overlay;
        let has_joined_there = member.changes == 1 && overlay.lists(member.node, to);
        self.cx.config.partition == Partition::Majority
            || member.changes.is_multiple_of(2)
            || overlay.slot_of(member.node).is_some() && !has_joined_there
    }

    /// Stores changes of the members, and tells the workers. After every input, so that it is stored with its round.
    pub(super) fn note_members(&mut self) {
        let changed = self.cx.members.take_changed();
        if changed.is_empty() {
            return;
        }
        self.ownership.send_nodes(&mut self.cx);
        for (key, value) in changed {
            let store = self.retained.store();
            store.keep(Keyspace::Members, key, value);
        }
    }

    /// Sends members if they are due. Where the quorum depends on them that is at once; elsewhere when nodes that come up together list their links,
    /// so that few members are left to send.
    pub(super) fn review_members(&mut self, now: Now) {
        if self.newcomers.slots.is_empty() && !self.cx.members.has_unsent() {
            return;
        }
        let since = *self.newcomers.since.get_or_insert(now.instant);
        let is_at_once = self.cx.config.partition == Partition::Majority;
        if is_at_once || now.instant >= since + JOINING {
            self.send_members();
        }
    }

    /// When members are due to be sent.
    pub(super) fn next_members(&self) -> Option<Instant> {
        Some(self.newcomers.since? + JOINING)
    }

    /// Sends nodes that have come up the whole list of members, and all others what has changed in it.
    fn send_members(&mut self) {
        let newcomers = std::mem::take(&mut self.newcomers).slots;
        let unannounced = self.cx.members.take_unsent();
        for (slot, node) in self.cx.up.clone() {
            let announced = self.cx.members.announced().into_iter();
            let is_due = |it: &Membership<'_>| {
                let is_new = newcomers.contains(&slot) || unannounced.contains(&it.node);
                is_new && self.is_announced(it, node)
            };
            let announced: Vec<_> = announced.filter(is_due).collect();
            if !announced.is_empty() {
                let encoded = Message::Members(announced).encode();
                self.cx.send_encoded(node, slot, encoded);
            }
        }
    }

    /// Returns an output of the overlay, unless it waits until it is decided whether this side has quorum; it is kept then.
    pub(super) fn defers(&mut self, now: Now, output: Output) -> Option<Output> {
        let has_no_effect = matches!(
            output,
            Output::Dial { .. } | Output::Flush(_) | Output::Close(_) | Output::Event(_)
        );
        if has_no_effect || self.cx.config.partition == Partition::Serve {
            return Some(output);
        }
        let out = match output {
            Output::NodeDown { slot, .. } => Some(slot),
            _ => None,
        };
        match &mut self.cx.quorum.state {
            State::Serving if out.is_some() => {
                self.cx.quorum.state = State::Unsure {
                    since: now.instant,
                    waiting: [output].into(),
                    gone: out.into_iter().collect(),
                    back: BTreeSet::new(),
                };
                self.cx.outgoing.hold_acknowledgements(true);
                None
            }
            State::Unsure {
                since,
                waiting,
                gone,
                back,
            } => {
                if let Output::NodeUp { slot, .. } = &output
                    && gone.contains(slot)
                {
                    back.insert(*slot);
                }
                if let Some(slot) = out {
                    *since = now.instant;
                    gone.insert(slot);
                    back.remove(&slot);
                }
                waiting.push_back(output);
                None
            }
            State::Serving | State::Starting | State::Minority => Some(output),
        }
    }

    /// Decides whether this side has quorum. Once a round.
    pub(super) fn review_quorum(&mut self, now: Now) {
        if self.cx.config.partition == Partition::Serve || !self.cx.is_ready {
            return;
        }
        self.review_replaced();
        let reachable = self.cx.overlay.reachable();
        let members = self.cx.members.counted(&reachable);
        let is_most = |count: usize| count * 2 > members;
        let has_most = is_most(reachable.len()) && !self.cx.overlay.misses_nodes();
        match &self.cx.quorum.state {
            State::Starting | State::Serving | State::Unsure { .. } if !has_most => {
                self.begin_minority(now)
            }
            State::Unsure { gone, .. } if !is_most(self.steady(gone).count() + 1) => {
                self.begin_minority(now)
            }
            State::Starting => self.cx.quorum.state = State::Serving,
            State::Unsure {
                since, gone, back, ..
            } if is_most(self.agreeing(*since, gone, back)) => {
                let node_of = |slot: &NodeSlot| self.cx.overlay.node_of(*slot);
                self.cx.quorum.returned = back.iter().filter_map(node_of).collect();
                self.end_doubt(now, State::Serving);
                self.cx.quorum.returned.clear();
            }
            State::Minority if has_most && self.sees_all() => self.end_minority(now),
            State::Serving | State::Unsure { .. } | State::Minority => {}
        }
    }

    /// Where this side has quorum, a node with the name and the address of a member that is down replaces it (`members`).
    fn review_replaced(&mut self) {
        if self.cx.quorum.state != State::Serving || !self.cx.members.is_unreviewed() {
            return;
        }
        let replaced = (self.cx.members).take_replaced(&self.cx.overlay.reachable());
        for (node, name, by) in replaced {
            self.cx.members.remove(node);
            let fields = vec![
                ("node", node.to_string()),
                ("name", name),
                ("replaced_by", by.to_string()),
            ];
            self.cx.event(EventLevel::Info, NODE_REMOVED, fields);
        }
        self.note_members();
    }

    /// Whether the nodes that are back and all nodes that they reach are up, and their interests are applied.
    fn sees_all(&self) -> bool {
        self.cx.overlay.is_ready() && self.cx.overlay.is_listed()
    }

    /// Other nodes that have been up all the time.
    fn steady<'a>(
        &self,
        gone: &'a BTreeSet<NodeSlot>,
    ) -> impl Iterator<Item = NodeStatus> + use<'a> {
        let others = self.cx.overlay.nodes().into_iter().skip(1);
        others.filter(|status| status.is_up && !gone.contains(&status.slot))
    }

    /// Number of nodes that have been up all the time, sent something since then, and have no link to any of those that are still gone, this one
    /// included: they have not declared this one down.
    fn agreeing(
        &self,
        since: Instant,
        gone: &BTreeSet<NodeSlot>,
        back: &BTreeSet<NodeSlot>,
    ) -> usize {
        let still_gone = gone.difference(back);
        let still_gone: Vec<NodeId> = still_gone
            .filter_map(|slot| self.cx.overlay.node_of(*slot))
            .collect();
        let agrees = |status: &NodeStatus| {
            let last = self.cx.overlay.last_received(status.slot);
            let sees = |gone: &NodeId| self.cx.overlay.lists(status.node, *gone);
            last.is_some_and(|last| last > since) && !still_gone.iter().any(sees)
        };
        self.steady(gone).filter(agrees).count() + 1
    }

    /// It is decided whether this side has quorum: what waited follows.
    fn end_doubt(&mut self, now: Now, state: State) {
        let before = std::mem::replace(&mut self.cx.quorum.state, state);
        self.cx.outgoing.hold_acknowledgements(false);
        if let State::Unsure { waiting, .. } = before {
            for output in waiting {
                self.perform(now, output);
            }
        }
    }

    fn begin_minority(&mut self, now: Now) {
        let message = if self.cx.overlay.misses_nodes() {
            PARTITIONED
        } else {
            NO_QUORUM
        };
        self.send_quorum_state(EventLevel::Warn, message);
        // What all had acknowledged before is acknowledged.
        self.send_minority(true);
        self.end_doubt(now, State::Minority);
        self.ownership.refuse_claims(&mut self.cx);
    }

    fn end_minority(&mut self, now: Now) {
        self.cx.quorum.state = State::Serving;
        self.send_quorum_state(EventLevel::Info, QUORUM);
        self.send_minority(false);
        for node in std::mem::take(&mut self.cx.quorum.away).into_keys() {
            self.ownership.promote_backups(&mut self.cx, node, false);
        }
        // Others may have accepted messages for sessions here while they considered this node down, and a node with a backup may not have noticed
        // that: what its primary has not received is found by a full sync.
        for node in self.cx.up.values().copied().collect::<Vec<_>>() {
            self.cx
                .send_to_workers_after_records(|| ToWorker::BackupsLost {
                    node,
                    absence: None,
                });
        }
        self.ownership.advance_claims(&mut self.cx, now);
    }

    fn send_minority(&mut self, is_minority: bool) {
        self.cx.outgoing.seal(&mut self.cx.outputs);
        self.cx.change_cluster(|it| it.is_minority = is_minority);
    }

    fn send_quorum_state(&mut self, level: EventLevel, message: &'static str) {
        let fields = vec![
            ("members", self.cx.members.len().to_string()),
            ("reachable", self.cx.overlay.reachable().len().to_string()),
        ];
        self.cx.event(level, message, fields);
    }

    /// A node is down: its sessions fail over to their backups, unless this side has no quorum.
    pub(super) fn lose_sessions_of(&mut self, now: Now, node: NodeId) {
        self.cx.members.note_down(node, now.wall);
        if self.cx.quorum.is_minority() || self.cx.quorum.returned.contains(&node) {
            let incarnation = self.cx.directory.incarnations.get(&node).copied();
            self.ownership.forget_backup_parts(node);
            self.cx.quorum.away.insert(node, incarnation);
        } else {
            self.ownership.promote_backups(&mut self.cx, node, true);
        }
    }

    /// A node is back whose sessions did not fail over to this one: they are where it registers them, and the backups here are out of date. If it was
    /// restarted it has lost what it had in memory, and the backups may be all there is.
    pub(super) fn regain_sessions_of(&mut self, node: NodeId) {
        let Some(before) = self.cx.quorum.away.remove(&node) else {
            return;
        };
        if before == self.cx.directory.incarnations.get(&node).copied() {
            self.cx
                .send_to_workers_after_records(|| ToWorker::DropBackups { node });
        } else {
            self.ownership.promote_backups(&mut self.cx, node, false);
        }
    }
}

impl HubView<'_> {
    /// The node that has not acknowledged the oldest message for the longest time, by name, and that time. Publishers wait for it.
    #[must_use]
    pub fn slowest_link(&self) -> Option<(String, Duration)> {
        let overlay = &self.hub.cx.overlay;
        let waits = overlay.nodes().into_iter().filter_map(|status| {
            let waits = overlay.unadmitted_for(status.slot)?;
            Some((status.name, waits))
        });
        waits.max_by_key(|(_, waits)| *waits)
    }

    /// The operator's report of all this.
    #[must_use]
    pub fn membership(&self) -> MembershipReport {
        let reachable = self.hub.cx.overlay.reachable();
        MembershipReport {
            serves: !self.hub.cx.quorum.is_minority(),
            members: self.hub.cx.members.counted(&reachable) as u64,
            reachable: reachable.len() as u64,
        }
    }
}

impl HubOperator<'_> {
    /// Removes a node that is down from the members, by its identity or its name. Returns both. It may join again.
    ///
    /// # Errors
    /// [`ForgetError`]; nothing has changed.
    pub fn forget(&mut self, node: &str) -> Result<(String, String), ForgetError> {
        let now = self.now;
        let named = |(id, member): (NodeId, &super::members::Member)| {
            let is_it = member.name == node || id.to_string() == node;
            is_it.then(|| (id, member.name.clone()))
        };
        let mut found: Vec<_> = self.hub.cx.members.iter().filter_map(named).collect();
        let (id, name) = match (found.pop(), found.is_empty()) {
            (None, _) => return Err(ForgetError::Unknown { node: node.into() }),
            (Some(one), true) => one,
            (Some(last), false) => {
                let ids = found.iter().chain([&last]).map(|(id, _)| id.to_string());
                return Err(ForgetError::Ambiguous {
                    node: node.into(),
                    ids: ids.collect(),
                });
            }
        };
        if self.hub.cx.overlay.reachable().contains(&id) {
            return Err(ForgetError::Up { node: node.into() });
        }
        self.hub.cx.members.remove(id);
        self.hub.cx.event(
            EventLevel::Info,
            NODE_REMOVED,
            vec![("node", id.to_string()), ("name", name.clone())],
        );
        self.hub.note_members();
        self.hub.review_quorum(now);
        Ok((id.to_string(), name))
    }
}
