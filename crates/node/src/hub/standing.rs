//! Whether this node's side of the cluster serves (rule 19 between nodes).
//!
//! | standing | event | next |
//! | --- | --- | --- |
//! | starting | clients may be let in | serving or minority |
//! | serving | a node is down, more than half are left | unsure: what follows from it waits |
//! | serving, unsure | not more than half are left, or there are more members than was known, or others go on reaching one that is down | minority; what waited follows |
//! | unsure | more than half were heard since, and do not see those that are down either | serving; what waited follows |
//! | unsure | one that was down is back | minority, for a moment; what waited follows |
//! | minority | more than half are there, with all whom they reach, and what they want is known | serving |
//!
//! Two nodes without a way to each other, not even over the others who reach both, would each count more than half: neither serves.
//!
//! In a minority backups stay backups, and what was to be acknowledged when a node fell silent is refused.
//!
//! Nodes that are cut off together fall silent one after the other: until the rest was heard again nobody may act as if only one
//! node were gone, as acknowledgements that waited for it alone would leave, and backups of its sessions would become sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thicket_overlay::{Incarnation, NodeId, NodeSlot, Output};
use thicket_session::time::Instant;

use super::{Hub, Message, members::Membership};
use crate::{
    EventLevel, ForgetError, Keyspace, MembershipReport, NO_QUORUM, NODE_REMOVED, Now, PARTITIONED,
    Partition, QUORUM, mail::Content,
};

/// How this side stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum State {
    #[default]
    Starting,
    Serving,
    Unsure {
        since: Instant,
        /// What the overlay said since.
        waiting: VecDeque<Output>,
        /// Nodes whose going out waits.
        gone: BTreeSet<NodeSlot>,
        /// One of them is back: it was this node that was cut off, or nobody.
        is_back: bool,
    },
    Minority,
}

/// Whether this side serves, and what waits until it does.
#[derive(Debug, Default)]
pub(super) struct Standing {
    state: State,
    /// Nodes that went out while this side was the smaller one, whose sessions do not go on here.
    away: BTreeMap<NodeId, Option<Incarnation>>,
}

impl Standing {
    pub const fn is_minority(&self) -> bool {
        matches!(self.state, State::Minority)
    }

    /// Whether what follows from this node's going out waits. It is told nothing meanwhile, even if it is back: it would be told under
    /// what is not true any more.
    pub fn is_gone(&self, slot: NodeSlot) -> bool {
        match &self.state {
            State::Unsure { gone, .. } => gone.contains(&slot),
            State::Starting | State::Serving | State::Minority => false,
        }
    }

    /// Whether nodes may be out of which nobody has been told yet.
    pub const fn is_unsure(&self) -> bool {
        matches!(self.state, State::Unsure { .. })
    }

    /// Whether sessions of other nodes may still become ours.
    pub fn has_away(&self) -> bool {
        !self.away.is_empty()
    }
}

impl Hub {
    /// What an operator sees of all this.
    #[must_use]
    pub fn membership(&self) -> MembershipReport {
        MembershipReport {
            serves: !self.cx.standing.is_minority(),
            members: self.cx.members.len() as u64,
            reachable: self.cx.overlay.reachable().len() as u64,
        }
    }

    /// Removes a node that is down from the members, by its identity or its name; answers both. It may join again.
    ///
    /// # Errors
    /// [`ForgetError`]; nothing has changed.
    pub fn forget(&mut self, now: Now, node: &str) -> Result<(String, String), ForgetError> {
        let named = |(id, member): (NodeId, &super::members::Member)| {
            let is_it = member.name == node || id.to_string() == node;
            is_it.then(|| (id, member.name.clone()))
        };
        let mut found: Vec<_> = self.cx.members.iter().filter_map(named).collect();
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
        if self.cx.overlay.reachable().contains(&id) {
            return Err(ForgetError::Up { node: node.into() });
        }
        self.cx.members.remove(id);
        for worker in self.cx.workers() {
            self.cx.mail(worker, Content::Forgotten { node: id });
        }
        self.cx.event(
            EventLevel::Info,
            NODE_REMOVED,
            vec![("node", id.to_string()), ("name", name.clone())],
        );
        self.note_members();
        self.review_standing(now);
        Ok((id.to_string(), name))
    }

    /// Another node tells what it knows.
    pub(super) fn handle_members(&mut self, told: &[Membership<'_>]) {
        for member in told {
            self.cx.members.merge(member);
        }
        // A node that was removed while it was away joins again, and says so itself: others may hear of a removal while a node that
        // leaves is still linked, and must not undo it.
        if !self.placing.is_draining() {
            let own = &self.cx.config.overlay;
            self.cx.members.join(own.node, &own.name);
        }
        let cx = &mut self.cx;
        for (node, name) in cx.overlay.others_up() {
            if !cx.members.knows(node) {
                cx.members.join(node, name);
            }
        }
    }

    /// A node that leaves on purpose and stores nothing does not come back under its identity: it removes itself from the members, so that
    /// restarts of one node after the other do not make a majority impossible. A node that stores comes back as itself and stays a member.
    pub(super) fn leave_members(&mut self, now: Now) {
        if self.placing.is_draining() && !self.cx.config.stores {
            self.cx.members.remove(self.cx.config.overlay.node);
            self.note_members();
            self.tell_changed_members();
            // It leaves with a round, and there is none after the goodbye.
            self.cx.overlay.end_round(now.instant);
        }
    }

    /// Tells a node all that is known.
    pub(super) fn tell_members(&mut self, slot: NodeSlot, node: NodeId) {
        let told = self.cx.members.told().into_iter();
        let told = told.filter(|it| self.is_told(it, node)).collect();
        let encoded = Message::Members(told).encode();
        self.cx.send_encoded(node, slot, encoded);
    }

    /// Where nothing hangs on it, two kinds of members are not handed on: a node that says to have a link with the other one, which has seen
    /// it join too; and one that is gone, as nodes that keep nothing have another identity at each start.
    fn is_told(&self, member: &Membership<'_>, to: NodeId) -> bool {
        let overlay = &self.cx.overlay;
        let has_joined_there = member.changes == 1 && overlay.lists(member.node, to);
        self.cx.config.partition == Partition::Majority
            || member.changes.is_multiple_of(2)
            || overlay.slot_of(member.node).is_some() && !has_joined_there
    }

    /// Stores what has changed of the members. After every input, so that it is stored with its round.
    pub(super) fn note_members(&mut self) {
        for (key, value) in self.cx.members.take_changed() {
            let store = self.retained.store();
            store.keep(Keyspace::Members, key, value);
        }
    }

    /// Tells all nodes that are up what has changed of the members in this round. Whoever comes up is told everything.
    pub(super) fn tell_changed_members(&mut self) {
        let untold = self.cx.members.take_untold();
        if untold.is_empty() {
            return;
        }
        for (slot, node) in self.cx.up.clone() {
            let told = self.cx.members.told().into_iter();
            let told = told.filter(|it| untold.contains(&it.node) && self.is_told(it, node));
            let told: Vec<_> = told.collect();
            if !told.is_empty() {
                let encoded = Message::Members(told).encode();
                self.cx.send_encoded(node, slot, encoded);
            }
        }
    }

    /// Whether an order of the overlay waits until it is known how this side stands; it is taken then.
    pub(super) fn defers(&mut self, now: Now, output: Output) -> Option<Output> {
        let has_no_effect = matches!(
            output,
            Output::Dial { .. } | Output::Flush(_) | Output::Close(_) | Output::Event(_)
        );
        if has_no_effect || self.cx.config.partition == Partition::Serve {
            return Some(output);
        }
        let out = match output {
            Output::NodeDown { slot } => Some(slot),
            _ => None,
        };
        match &mut self.cx.standing.state {
            State::Serving if out.is_some() => {
                self.cx.standing.state = State::Unsure {
                    since: now.instant,
                    waiting: [output].into(),
                    gone: out.into_iter().collect(),
                    is_back: false,
                };
                self.cx.outgoing.hold_acknowledgements(true);
                None
            }
            State::Unsure {
                since,
                waiting,
                gone,
                is_back,
            } => {
                *is_back |= matches!(&output, Output::NodeUp { slot, .. } if gone.contains(slot));
                if out.is_some() {
                    *since = now.instant;
                    gone.extend(out);
                }
                waiting.push_back(output);
                None
            }
            State::Serving | State::Starting | State::Minority => Some(output),
        }
    }

    /// Looks whether this side serves. Once a round.
    pub(super) fn review_standing(&mut self, now: Now) {
        if self.cx.config.partition == Partition::Serve || !self.cx.is_ready {
            return;
        }
        let members = self.cx.members.len();
        let is_most = |count: usize| count * 2 > members;
        let has_most =
            is_most(self.cx.overlay.reachable().len()) && !self.cx.overlay.misses_nodes();
        match &self.cx.standing.state {
            State::Starting | State::Serving | State::Unsure { .. } if !has_most => {
                self.begin_minority(now)
            }
            State::Unsure { is_back: true, .. } => self.begin_minority(now),
            State::Starting => self.cx.standing.state = State::Serving,
            State::Unsure { since, gone, .. } if is_most(self.agreeing(*since, gone)) => {
                self.end_doubt(now, State::Serving);
            }
            State::Minority if has_most && self.sees_all() => self.end_minority(now),
            State::Serving | State::Unsure { .. } | State::Minority => {}
        }
    }

    /// Whether the nodes that those reach that are back are back too, and what they all want is known.
    fn sees_all(&self) -> bool {
        self.cx.overlay.is_ready() && self.cx.overlay.is_listed()
    }

    /// Nodes that were heard since then and do not see any of those that are gone, this one included.
    fn agreeing(&self, since: Instant, gone: &BTreeSet<NodeSlot>) -> usize {
        let gone: Vec<NodeId> = gone
            .iter()
            .filter_map(|slot| self.cx.overlay.node_of(*slot))
            .collect();
        let heard = |status: &thicket_overlay::NodeStatus| {
            let last = self.cx.overlay.last_heard(status.slot);
            let sees = |gone: &NodeId| self.cx.overlay.lists(status.node, *gone);
            status.is_up && last.is_some_and(|last| last > since) && !gone.iter().any(sees)
        };
        self.cx
            .overlay
            .nodes()
            .iter()
            .skip(1)
            .filter(|it| heard(it))
            .count()
            + 1
    }

    /// It is known how this side stands: what waited follows.
    fn end_doubt(&mut self, now: Now, state: State) {
        let before = std::mem::replace(&mut self.cx.standing.state, state);
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
        self.tell_standing(EventLevel::Warn, message);
        for worker in self.cx.workers() {
            // What was acknowledged by all before is acknowledged.
            self.cx.mail_after_records(worker, Content::Minority(true));
        }
        self.end_doubt(now, State::Minority);
        self.ownership.refuse_claims(&mut self.cx);
    }

    fn end_minority(&mut self, now: Now) {
        self.cx.standing.state = State::Serving;
        self.tell_standing(EventLevel::Info, QUORUM);
        for worker in self.cx.workers() {
            self.cx.mail_after_records(worker, Content::Minority(false));
        }
        for node in std::mem::take(&mut self.cx.standing.away).into_keys() {
            self.ownership.promote_backups(&mut self.cx, node, false);
        }
        // Others may have taken messages for sessions here while this node was down for them, and where a backup is nobody may have noticed
        // that it was: what its primary has not heard of comes out when it is told anew.
        for node in self.cx.up.values().copied().collect::<Vec<_>>() {
            for worker in self.cx.workers() {
                self.cx
                    .mail_after_records(worker, Content::BackupsLost { node });
            }
        }
        self.ownership.advance_claims(&mut self.cx, now);
    }

    fn tell_standing(&mut self, level: EventLevel, message: &'static str) {
        let fields = vec![
            ("members", self.cx.members.len().to_string()),
            ("reachable", self.cx.overlay.reachable().len().to_string()),
        ];
        self.cx.event(level, message, fields);
    }

    /// A node is down: its sessions fail over to their backups, unless this side is the smaller one.
    pub(super) fn lose_sessions_of(&mut self, now: Now, node: NodeId) {
        self.cx.members.note_out(node, now.wall);
        if self.cx.standing.is_minority() {
            let incarnation = self.cx.directory.incarnations.get(&node).copied();
            self.ownership.forget_backup_parts(node);
            self.cx.standing.away.insert(node, incarnation);
        } else {
            self.ownership.promote_backups(&mut self.cx, node, true);
        }
    }

    /// A node is back whose sessions did not fail over to this one: they are where it says, and the backups here are out of date. If it was started
    /// again it has lost what it had in memory, and the backups may be all there is.
    pub(super) fn regain_sessions_of(&mut self, node: NodeId) {
        let Some(before) = self.cx.standing.away.remove(&node) else {
            return;
        };
        if before == self.cx.directory.incarnations.get(&node).copied() {
            for worker in self.cx.workers() {
                self.cx
                    .mail_after_records(worker, Content::DropBackups { node });
            }
        } else {
            self.ownership.promote_backups(&mut self.cx, node, false);
        }
    }
}
