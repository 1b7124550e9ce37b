//! What a session keeps about its branches: sessions of the same client on other nodes, which were one with it until a partition.
//!
//! When a branch is merged (`merge`), a message that both branches once held and that one of them no longer holds is finished. A branch carries what
//! it held when it was split off its primary. The other one held that too if it has merged what that primary had (its [`Ancestors`]), or lists it
//! itself.

use std::{collections::BTreeSet, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::{
    server::{Ancestor, Branch, Delivery, MessageId},
    time::Instant,
    topic::SubscriptionFilter,
};

use super::sessions::Session;

/// Messages remembered of the branches that a session merged: as many as the queues of two.
const MERGED: usize = 200_000;

/// Filters remembered of a session during a partition.
const TOUCHED: usize = 10_000;

/// What a session keeps while another node may have it too.
#[derive(Debug, Default, Clone)]
pub(in crate::worker) struct Divergence {
    /// See [`Branch::from`].
    pub from: Option<Ancestor>,
    /// See [`Branch::known`]; ascending.
    pub known: Vec<MessageId>,
    /// See [`Branch::pending`]; ascending.
    pub pending: Vec<MessageId>,
    /// See [`Branch::shared`].
    pub shared: BTreeSet<MessageId>,
    /// See [`Branch::is_partial`].
    pub is_partial: bool,
    /// See [`Branch::touched`].
    pub touched: BTreeSet<SubscriptionFilter>,
    /// Of these, those that were touched before the session was handed over to this node, and not since.
    touched_before: BTreeSet<SubscriptionFilter>,
    /// The primary of which this one is a copy: it handed the session over, or this was its backup.
    copy_of: Option<Ancestor>,
    /// A client has connected since.
    pub is_served: bool,
    /// What came here with the session, or was merged from other branches: until those have ended they may be merged once more.
    pub merged: BTreeSet<Name>,
}

/// A worker of a node.
pub(in crate::worker) type WorkerOfNode = (NodeId, u8);

/// The earlier sessions whose whole content this one has, because it moved here from them or merged them. A branch that was split off from one of
/// them has nothing new from before the split.
#[derive(Debug, Default, Clone)]
pub(in crate::worker) struct Ancestors(Vec<Ancestor>);

impl Ancestors {
    /// The latest are kept: what was split off an older one is recognised by its numbers alone.
    const MAXIMUM: usize = 16;

    pub fn note(&mut self, ancestor: Ancestor) {
        if ancestor.number == 0 || self.0.contains(&ancestor) {
            return;
        }
        if self.0.len() == Self::MAXIMUM {
            self.0.remove(0);
        }
        self.0.push(ancestor);
    }

    /// Adds those of a branch that was merged.
    pub fn extend(&mut self, branch: &Branch) {
        for ancestor in branch.ancestors.iter().flatten() {
            self.note(*ancestor);
        }
    }
}

impl Divergence {
    /// The description that arrived with a session that moved here.
    pub fn of(branch: &Branch) -> Self {
        Self {
            from: branch.from,
            known: branch.known.clone(),
            pending: branch.pending.clone(),
            shared: branch.shared.iter().copied().collect(),
            is_partial: branch.is_partial,
            touched: branch.touched.iter().cloned().collect(),
            touched_before: branch.touched.iter().cloned().collect(),
            copy_of: branch.ancestors.iter().flatten().last().copied(),
            is_served: true,
            merged: BTreeSet::new(),
        }
    }

    /// What is kept when another branch has been merged. That branch ends only when it is evicted. If the registrar changes before, it is registered
    /// and merged again, and by then nothing else would distinguish what it asked for and holds from what is new. `has_had_all`: that branch has had
    /// all that the primary of this one had when this one was split off.
    pub fn after(
        self,
        branch: &Branch,
        has_had_all: bool,
        names: impl IntoIterator<Item = Name>,
    ) -> Self {
        let mut after = Self {
            is_served: true,
            is_partial: self.is_partial && !has_had_all,
            ..self
        };
        let free = MERGED.saturating_sub(after.shared.len());
        let shared = branch.known.iter().chain(&branch.shared);
        after.shared.extend(shared.take(free));
        branch
            .touched
            .iter()
            .cloned()
            .for_each(|filter| after.touch(filter));
        after.note_merged(names);
        after
    }

    /// These came with another branch. Beyond the bound a branch that is registered again may give its client a message twice.
    fn note_merged(&mut self, names: impl IntoIterator<Item = Name>) {
        let free = MERGED.saturating_sub(self.merged.len());
        self.merged.extend(names.into_iter().take(free));
    }

    /// What both this one and another branch held once. `is_ours_split`, `is_theirs_split`: the other one has had all that the primary had when this
    /// one was split off, or the reverse.
    pub fn known_with(
        &self,
        branch: &Branch,
        is_ours_split: bool,
        is_theirs_split: bool,
    ) -> BTreeSet<MessageId> {
        let held =
            |id: &&MessageId| self.known.binary_search(id).is_ok() || self.shared.contains(id);
        let theirs = branch.known.iter().chain(&branch.shared);
        let mut known: BTreeSet<MessageId> = theirs.filter(held).copied().collect();
        if is_ours_split {
            known.extend(&self.known);
        }
        if is_theirs_split {
            known.extend(&branch.known);
        }
        known
    }

    /// Whether this is a copy of another branch, which has never been one itself.
    pub fn is_copy_of(&self, branch: &Branch) -> bool {
        let is_it = |ancestor: &Ancestor| Some(*ancestor) == self.copy_of;
        branch.from.is_none() && branch.ancestors.iter().flatten().any(is_it)
    }

    /// Whether nobody has asked for the filter since this one is a copy.
    pub fn has_kept(&self, filter: &SubscriptionFilter) -> bool {
        !self.touched.contains(filter) || self.touched_before.contains(filter)
    }

    /// A SUBSCRIBE or UNSUBSCRIBE that the other node may lack.
    pub fn touch(&mut self, filter: SubscriptionFilter) {
        self.touched_before.remove(&filter);
        if self.touched.len() < TOUCHED {
            self.touched.insert(filter);
        }
    }
}

impl Session {
    /// See [`Divergence`].
    pub fn divergence_mut(&mut self) -> &mut Divergence {
        self.divergence.get_or_insert_default()
    }

    /// What a store, or the former primary, says of filters; see [`Divergence::touched`].
    pub fn touch_all(&mut self, filters: Vec<SubscriptionFilter>) {
        if !filters.is_empty() {
            let divergence = self.divergence_mut();
            filters.into_iter().for_each(|it| divergence.touch(it));
        }
    }

    /// A backup is promoted. `known` ascends; see [`Divergence`], also for the others.
    pub fn split_off(
        &mut self,
        from: Ancestor,
        known: Vec<MessageId>,
        mut pending: Vec<MessageId>,
        is_partial: bool,
    ) {
        pending.sort_unstable();
        self.outbound.branch();
        self.outbound.record_finished();
        self.inbound.branch();
        self.divergence = Some(Box::new(Divergence {
            from: Some(from),
            copy_of: Some(from),
            known,
            pending,
            is_partial,
            ..Divergence::default()
        }));
    }

    /// All nodes are up, and none has another branch of the session. What its client asked for is remembered: a backup that did not receive it may
    /// still be promoted.
    pub fn forget_branches(&mut self) {
        if let Some(divergence) = &mut self.divergence {
            **divergence = Divergence {
                touched: std::mem::take(&mut divergence.touched),
                ..Divergence::default()
            };
        }
    }

    /// The session moved here with what it holds. Where it was it ends only when it is evicted; if the registrar changes before, what is there is
    /// registered, and merged as another branch.
    pub fn note_moved_here(&mut self) {
        let held = self.outbound.held_from(0);
        let names = held.filter_map(|held| held.delivery().and_then(name));
        let names: Vec<Name> = names.collect();
        self.divergence_mut().note_merged(names);
    }

    /// The description of this branch for another node.
    pub fn branch(&self, own: WorkerOfNode, now: Instant) -> Branch {
        let none = Divergence::default();
        let divergence = self.divergence.as_deref().unwrap_or(&none);
        let mut ancestors = self.ancestors.clone();
        ancestors.note(self.as_ancestor(own));
        Branch {
            from: divergence.from,
            known: divergence.known.clone(),
            pending: divergence.pending.clone(),
            touched: divergence.touched.iter().cloned().collect(),
            is_partial: divergence.is_partial,
            is_interrupted: self.is_interrupted,
            since_connect: self.connected_at.map(|at| now.since(at)),
            is_unserved: divergence.from.is_some() && !divergence.is_served,
            ancestors: Some(ancestors.0),
            shared: divergence.shared.iter().copied().collect(),
            finished: self.outbound.finished().cloned().unwrap_or_default(),
        }
    }

    /// This session as an ancestor, until it is recorded under another number.
    pub fn as_ancestor(&self, (node, worker): WorkerOfNode) -> Ancestor {
        Ancestor {
            node: node.0,
            worker,
            number: self.stored.number,
        }
    }

    /// Sets the description that arrived with a session from another node.
    pub fn set_branch(&mut self, branch: &Branch) {
        self.ancestors.extend(branch);
        self.outbound.add_finished(&branch.finished);
        if branch.from.is_some() {
            // Other nodes that have the session too give other generations to what its client publishes there.
            self.inbound.branch_names();
        }
        let divergence = Divergence::of(branch);
        let is_rival = divergence.from.is_some()
            || !divergence.pending.is_empty()
            || !divergence.touched.is_empty();
        self.divergence = is_rival.then(|| Box::new(divergence));
    }

    /// Whether this is a promoted backup, and the rival has had all that its primary had then.
    pub fn is_split_off(&self, rival: &Branch) -> bool {
        let from = self
            .divergence
            .as_deref()
            .and_then(|divergence| divergence.from);
        from.is_some_and(|from| match &rival.ancestors {
            Some(ancestors) => ancestors.contains(&from),
            // Of an older version, which sends no more.
            None => rival.from.is_none(),
        })
    }

    /// Whether the rival is a promoted backup, and this one has had all that its primary had then.
    pub fn is_other_split_off(&self, own: WorkerOfNode, rival: &Branch) -> bool {
        rival.from.is_some_and(|from| match &rival.ancestors {
            Some(_) => from == self.as_ancestor(own) || self.ancestors.0.contains(&from),
            // Of an older version, which sends no more.
            None => self
                .divergence
                .as_deref()
                .is_none_or(|divergence| divergence.from.is_none()),
        })
    }

    /// A backup has all of the session since this node was restarted.
    pub const fn end_interruption(&mut self) {
        self.is_interrupted = false;
    }
}

/// Identifies a delivery of a message that has a number: the message, and the group that chose the session.
pub(in crate::worker) type Name = (MessageId, Option<Arc<str>>);

pub fn name(delivery: &Delivery) -> Option<Name> {
    let id = delivery.message.id();
    (id.number > 0).then(|| (id, delivery.group.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u64) -> MessageId {
        MessageId {
            node: 1,
            incarnation: 1,
            stream: 0,
            number,
        }
    }

    const fn ancestor(node: u64, number: u64) -> Ancestor {
        Ancestor {
            node,
            worker: 0,
            number,
        }
    }

    fn session() -> Session {
        let limits = crate::Limits::default();
        Session::new(1, "client".into(), 7, 60, &limits)
    }

    #[test]
    fn what_was_split_off_a_primary_is_told_from_what_was_split_off_when_it_had_the_session_again()
    {
        let own = (NodeId(1), 0);
        let rival = |from, ancestors: &[Ancestor]| Branch {
            from,
            ancestors: Some(ancestors.to_vec()),
            ..Branch::default()
        };
        let mut ours = session();
        ours.stored.number = 5;
        ours.ancestors.note(ancestor(2, 3));
        let of = |node, number| rival(Some(ancestor(node, number)), &[]);
        // Of this one, of what it has merged, and of the same nodes at another time.
        let cases = [(1, 5, true), (1, 6, false), (2, 3, true), (2, 4, false)];
        for (node, number, expected) in cases {
            let is_split_off = ours.is_other_split_off(own, &of(node, number));
            assert_eq!(is_split_off, expected, "{node} {number}");
        }
        assert!(!ours.is_split_off(&rival(None, &[ancestor(2, 3)])));
        ours.split_off(ancestor(2, 4), vec![id(1)], Vec::new(), false);
        assert!(!ours.is_split_off(&rival(None, &[ancestor(2, 3)])));
        assert!(ours.is_split_off(&rival(None, &[ancestor(2, 3), ancestor(2, 4)])));
        // A node of an older version sends no ancestors.
        let older = Branch::default();
        assert!(ours.is_split_off(&older) && !ours.is_other_split_off(own, &older));
    }

    #[test]
    fn what_a_branch_held_before_it_was_handed_over_is_told_from_what_was_asked_for_since() {
        let filter = |text: &str| SubscriptionFilter::parse(text).expect("valid");
        let primary = Branch {
            touched: vec![filter("before"), filter("again")],
            ancestors: Some(vec![ancestor(2, 3), ancestor(2, 4)]),
            ..Branch::default()
        };
        let mut ours = Divergence::of(&primary);
        ours.touch(filter("again"));
        ours.touch(filter("since"));
        let kept =
            ["never touched", "before", "again", "since"].map(|it| ours.has_kept(&filter(it)));
        assert_eq!(kept, [true, true, false, false]);
        let later = Branch {
            ancestors: Some(vec![ancestor(2, 4), ancestor(2, 9)]),
            ..Branch::default()
        };
        assert!(ours.is_copy_of(&primary) && ours.is_copy_of(&later));
        let former = Branch {
            ancestors: Some(vec![ancestor(2, 3)]),
            ..Branch::default()
        };
        let promoted = Branch {
            from: Some(ancestor(2, 3)),
            ..later
        };
        assert!(!ours.is_copy_of(&former) && !ours.is_copy_of(&promoted));
    }

    #[test]
    fn what_two_branches_of_a_lost_primary_held_is_known_to_both() {
        let ours = Divergence {
            known: vec![id(1), id(2)],
            shared: BTreeSet::from([id(3)]),
            ..Divergence::default()
        };
        let theirs = Branch {
            known: vec![id(2), id(3), id(4)],
            shared: vec![id(1), id(5)],
            ..Branch::default()
        };
        let known = |is_ours_split, is_theirs_split| {
            let known = ours.known_with(&theirs, is_ours_split, is_theirs_split);
            known.into_iter().map(|id| id.number).collect::<Vec<_>>()
        };
        assert_eq!(known(false, false), [1, 2, 3]);
        assert_eq!(known(false, true), [1, 2, 3, 4]);
        let none = Branch::default();
        let with_none = |is_ours_split| ours.known_with(&none, is_ours_split, false);
        assert_eq!(with_none(false), BTreeSet::new());
        assert_eq!(with_none(true), BTreeSet::from([id(1), id(2)]));
        // What theirs held counts from now on, also for the next one.
        let after = ours.clone().after(&theirs, false, []);
        let next = Branch {
            known: vec![id(4), id(5), id(6)],
            ..Branch::default()
        };
        let known = after.known_with(&next, false, false);
        assert_eq!(known, BTreeSet::from([id(4), id(5)]));
    }

    #[test]
    fn the_latest_ancestors_are_kept() {
        let mut ancestors = Ancestors::default();
        (1..=20).for_each(|number| ancestors.note(ancestor(1, number)));
        ancestors.note(ancestor(1, 20));
        ancestors.note(ancestor(2, 0));
        let numbers: Vec<u64> = ancestors.0.iter().map(|it| it.number).collect();
        assert_eq!(numbers, (5..=20).collect::<Vec<_>>());
    }
}
