//! All links of a node, and which of them a round must examine: those that changed since the last round, and those with a deadline.
//!
//! With many nodes, most rounds concern one link. The cost of all nodes together must not grow with the square of their number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use thicket_session::time::Instant;

use crate::config::Timing;
use crate::identity::LinkId;
use crate::link::{Link, LinkState};
use crate::sorted_set::SortedSet;

/// Links by number. Access that may change a link marks it for the round.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    /// Links that may have changed since the last round; some may be gone.
    changed: SortedSet<LinkId>,
    /// When each link must be examined, changed or not: one entry for each, as of the end of the
    /// last round. It may be early: what a link is waited for is put off with all that it receives,
    /// and its entry follows when it is due.
    agenda: BTreeSet<(Instant, LinkId)>,
    due: BTreeMap<LinkId, Instant>,
    /// Links whose data waits for capacity in the out-buffer, as of the end of the last round.
    throttled: SortedSet<LinkId>,
    /// Rises whenever a link begins, changes its state or ends.
    generation: u64,
}

impl Deref for Links {
    type Target = BTreeMap<LinkId, Link>;

    fn deref(&self) -> &Self::Target {
        &self.links
    }
}

impl Links {
    pub(crate) fn get_mut(&mut self, id: &LinkId) -> Option<&mut Link> {
        let link = self.links.get_mut(id)?;
        self.changed.insert(*id);
        Some(link)
    }

    pub(crate) fn insert(&mut self, id: LinkId, link: Link) {
        self.generation += 1;
        self.changed.insert(id);
        self.links.insert(id, link);
    }

    pub(crate) fn remove(&mut self, id: &LinkId) -> Option<Link> {
        let link = self.links.remove(id)?;
        self.generation += 1;
        self.changed.insert(*id);
        Some(link)
    }

    pub(crate) fn set_state(&mut self, id: LinkId, state: LinkState) {
        if let Some(link) = self.get_mut(&id) {
            link.state = state;
            self.generation += 1;
        }
    }

    /// Stays the same while the same links lead to the same nodes.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds the links that a round at `now` examines: they changed, or are due.
    pub(crate) fn add_to_look_at(&self, now: Instant, ids: &mut SortedSet<LinkId>) {
        ids.extend(self.changed.iter().copied());
        let due = self.agenda.iter().take_while(|(at, _)| *at <= now);
        ids.extend(due.map(|(_, id)| *id));
    }

    /// Links that may have changed since the last round, ascending; some may be gone.
    pub(crate) fn changed(&self) -> &[LinkId] {
        &self.changed
    }

    /// Links with data that waits for capacity in the out-buffer, in no order.
    pub(crate) fn throttled(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        let changed = self.changed.iter();
        let others = self.throttled.iter();
        let others = others.filter(|id| !self.changed.contains(id));
        let links = changed.chain(others);
        let links = links.filter_map(|id| Some((*id, self.links.get(id)?)));
        links.filter(|(_, link)| link.is_throttled)
    }

    /// When a round must examine a link without any event.
    pub(crate) fn next_due(&self, timing: &Timing) -> Option<Instant> {
        let known = self.agenda.iter();
        let unchanged = known.filter(|(_, id)| !self.changed.contains(id));
        let first = unchanged.map(|(at, _)| *at).next();
        let changed = self.changed.iter().filter_map(|id| self.links.get(id));
        changed
            .map(|link| link.next_look(timing))
            .chain(first)
            .min()
    }

    /// The round that examined these links is over. The next one examines links again for which more than `most` bytes wait.
    pub(crate) fn end_round(
        &mut self,
        now: Instant,
        looked_at: &[LinkId],
        most: usize,
        timing: &Timing,
    ) {
        let mut ids = std::mem::take(&mut self.changed);
        ids.extend(looked_at.iter().copied());
        for id in ids.iter().copied() {
            let link = self.links.get(&id);
            if link.is_some_and(|link| link.is_throttled) {
                self.throttled.insert(id);
            } else {
                self.throttled.remove(&id);
            }
            let next = link.map(|link| link.next_look(timing));
            self.put_on_agenda(now, id, next);
        }
        let links = &self.links;
        let is_full = |id: &LinkId| {
            links
                .get(id)
                .is_some_and(|link| link.pending().len() > most)
        };
        self.changed.extend(ids.iter().copied().filter(is_full));
        // The memory is used again.
        if self.changed.is_empty() {
            ids.clear();
            self.changed = ids;
        }
    }

    /// `next`: when a link must be examined; `None`: it is gone.
    fn put_on_agenda(&mut self, now: Instant, id: LinkId, next: Option<Instant>) {
        let before = self.due.get(&id).copied();
        let is_early = |(before, next): (Instant, Instant)| now < before && before <= next;
        if before == next || before.zip(next).is_some_and(is_early) {
            return;
        }
        if let Some(at) = before {
            self.agenda.remove(&(at, id));
            self.due.remove(&id);
        }
        if let Some(at) = next {
            self.agenda.insert((at, id));
            self.due.insert(id, at);
        }
    }
}

impl Link {
    /// When a round must examine it without any event.
    fn next_look(&self, timing: &Timing) -> Instant {
        match &self.state {
            LinkState::Up { .. } => self.next_check(timing.down_after),
            LinkState::Selected { .. } | LinkState::Resumed { .. } => {
                self.next_check(timing.down_after).min(self.deadline)
            }
            LinkState::Dialled | LinkState::Accepted | LinkState::Candidate { .. } => self.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeId;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn ids(numbers: &[u32]) -> SortedSet<LinkId> {
        numbers.iter().copied().map(LinkId).collect()
    }

    fn to_look_at(links: &Links, now: Instant) -> SortedSet<LinkId> {
        let mut ids = SortedSet::default();
        links.add_to_look_at(now, &mut ids);
        ids
    }

    /// Three links that are up and last received something at 0 ms, after a round.
    fn links() -> Links {
        let mut links = Links::default();
        for id in 0..3 {
            let state = LinkState::Up {
                node: NodeId(u64::from(id)),
            };
            links.insert(LinkId(id), Link::new(state, None, at(0), at(5_000)));
        }
        links.end_round(at(0), &[], 100, &Timing::default());
        links
    }

    #[test]
    fn a_round_looks_at_links_that_changed_and_at_those_whose_time_has_come() {
        let (mut links, timing) = (links(), Timing::default());
        assert_eq!(to_look_at(&links, at(10)), ids(&[]));
        assert_eq!(links.next_due(&timing), Some(at(1_000)), "silence");
        links.get_mut(&LinkId(1)).expect("there").next_hello = Some(at(300));
        assert_eq!(to_look_at(&links, at(10)), ids(&[1]), "changed");
        assert_eq!(links.next_due(&timing), Some(at(300)), "before the round");
        links.end_round(at(0), &[], 100, &timing);
        assert_eq!(links.next_due(&timing), Some(at(300)), "and after it");
        assert_eq!(to_look_at(&links, at(299)), ids(&[]));
        assert_eq!(to_look_at(&links, at(300)), ids(&[1]));
        links.remove(&LinkId(1));
        links.get_mut(&LinkId(2)).expect("there").is_throttled = true;
        links.end_round(at(300), &ids(&[1]), 100, &timing);
        assert_eq!(links.next_due(&timing), Some(at(1_000)), "one is gone");
        assert_eq!(to_look_at(&links, at(1_000)), ids(&[0, 2]));
        let throttled: Vec<_> = links.throttled().map(|(id, _)| id).collect();
        assert_eq!(throttled, [LinkId(2)]);
    }
}
