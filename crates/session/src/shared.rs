//! Which member of a shared subscription's group gets the next message (5.0, 4.8.2).

/// The weight of a member: a session counts one, a worker or a node as many as it has sessions of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareWeight {
    /// Sessions with a connected client.
    pub connected: u32,
    /// Sessions that keep messages for a client that is away.
    pub offline: u32,
}

impl ShareWeight {
    /// One session with a connected client.
    pub const CONNECTED: Self = Self {
        connected: 1,
        offline: 0,
    };
    /// One session whose client is away.
    pub const OFFLINE: Self = Self {
        connected: 0,
        offline: 1,
    };

    const fn in_tier(self, tier: Tier) -> u32 {
        match tier {
            Tier::Connected => self.connected,
            Tier::Offline => self.offline,
        }
    }
}

/// The members of one group, chosen in turn by weight.
///
/// Smooth weighted round-robin: over any run of as many choices as the weights add up to, each member comes as often as its weight, spread out, not
/// in a row. While any member is connected, offline members get nothing. A choice costs one pass over the members. Members are kept in their order,
/// so the same members and choices give the same result everywhere, whichever joined first.
///
/// The same type serves three levels, the nodes of a cluster, the workers of a node, the sessions of a worker: `M` identifies a member at that level.
#[derive(Debug, Clone)]
pub struct ShareGroup<M> {
    /// Sorted by `id`, each once.
    members: Vec<Member<M>>,
}

#[derive(Debug, Clone)]
struct Member<M> {
    id: M,
    weight: ShareWeight,
    /// How far the member is behind its share, for each tier; the sums over the members stay near zero.
    credit: [i64; 2],
}

/// Only the first tier with an eligible member is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Connected = 0,
    Offline = 1,
}

const TIERS: [Tier; 2] = [Tier::Connected, Tier::Offline];

impl<M> Default for ShareGroup<M> {
    fn default() -> Self {
        Self {
            members: Vec::new(),
        }
    }
}

impl<M: Ord> ShareGroup<M> {
    /// A group without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `id` a member with `weight`, or changes its weight. A zero weight removes it.
    pub fn set(&mut self, id: M, weight: ShareWeight) {
        if weight == ShareWeight::default() {
            self.remove(&id);
            return;
        }
        match self.position(&id) {
            Ok(index) if self.members[index].weight == weight => return,
            Ok(index) => self.members[index].weight = weight,
            Err(index) => self.members.insert(
                index,
                Member {
                    id,
                    weight,
                    credit: [0, 0],
                },
            ),
        }
        self.clamp_credit();
    }

    /// Removes `id`. Returns whether it was a member.
    pub fn remove(&mut self, id: &M) -> bool {
        let Ok(index) = self.position(id) else {
            return false;
        };
        self.members.remove(index);
        self.clamp_credit();
        true
    }

    /// The weight of `id`, `None` if it is no member.
    #[must_use]
    pub fn weight(&self, id: &M) -> Option<ShareWeight> {
        self.position(id)
            .ok()
            .map(|index| self.members[index].weight)
    }

    /// The sum of all weights: the weight of this group as a member of the level above.
    #[must_use]
    pub fn total_weight(&self) -> ShareWeight {
        self.members
            .iter()
            .fold(ShareWeight::default(), |sum, member| ShareWeight {
                connected: sum.connected.saturating_add(member.weight.connected),
                offline: sum.offline.saturating_add(member.weight.offline),
            })
    }

    /// The member whose turn it is, `None` if there are no members.
    pub fn choose(&mut self) -> Option<&M> {
        self.choose_where(|_| true)
    }

    /// The member whose turn it is among those that `is_eligible`, for instance because they did not refuse the message.
    ///
    /// Those passed over lose no turn: their credit stays as it is.
    pub fn choose_where(&mut self, is_eligible: impl Fn(&M) -> bool) -> Option<&M> {
        let index = TIERS
            .iter()
            .find_map(|tier| self.choose_in_tier(*tier, &is_eligible))?;
        Some(&self.members[index].id)
    }

    /// The members with their weights, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&M, ShareWeight)> {
        self.members
            .iter()
            .map(|member| (&member.id, member.weight))
    }

    /// Number of members.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn position(&self, id: &M) -> Result<usize, usize> {
        self.members.binary_search_by(|member| member.id.cmp(id))
    }

    fn choose_in_tier(&mut self, tier: Tier, is_eligible: &impl Fn(&M) -> bool) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for (index, member) in self.members.iter_mut().enumerate() {
            let weight = i64::from(member.weight.in_tier(tier));
            if weight == 0 || !is_eligible(&member.id) {
                continue;
            }
            total += weight;
            let credit = &mut member.credit[tier as usize];
            *credit += weight;
            // The first of equals, so that ties end the same everywhere.
            if best.is_none_or(|(_, most)| *credit > most) {
                best = Some((index, *credit));
            }
        }
        let (index, _) = best?;
        self.members[index].credit[tier as usize] -= total;
        Some(index)
    }

    /// After a change, what a member is ahead or behind may belong to weights that are gone: a member that was a thousand sessions and is now one
    /// would pay back a thousand turns. No member keeps more than one round.
    fn clamp_credit(&mut self) {
        let total = self.total_weight();
        for member in &mut self.members {
            for tier in TIERS {
                let weight = member.weight.in_tier(tier);
                let round = i64::from(total.in_tier(tier));
                let credit = &mut member.credit[tier as usize];
                *credit = if weight == 0 {
                    0
                } else {
                    (*credit).clamp(-round, round)
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn weight(connected: u32, offline: u32) -> ShareWeight {
        ShareWeight { connected, offline }
    }

    fn group(members: &[(char, u32, u32)]) -> ShareGroup<char> {
        let mut group = ShareGroup::new();
        for (id, connected, offline) in members {
            group.set(*id, weight(*connected, *offline));
        }
        group
    }

    fn choices(group: &mut ShareGroup<char>, count: usize) -> String {
        (0..count).filter_map(|_| group.choose().copied()).collect()
    }

    #[test]
    fn members_come_in_turn_by_weight() {
        type Members = &'static [(char, u32, u32)];
        let cases: &[(&str, Members, &str)] = &[
            ("nobody", &[], ""),
            ("one", &[('a', 1, 0)], "aaaa"),
            ("equals", &[('a', 1, 0), ('b', 1, 0), ('c', 1, 0)], "abcabc"),
            (
                "weights are spread out",
                &[('a', 5, 0), ('b', 1, 0), ('c', 1, 0)],
                "aabacaa",
            ),
            (
                "order of joining does not matter",
                &[('c', 1, 0), ('b', 1, 0), ('a', 5, 0)],
                "aabacaa",
            ),
            (
                "offline ones wait",
                &[('a', 0, 1), ('b', 1, 0), ('c', 0, 3)],
                "bbbb",
            ),
            ("all are offline", &[('a', 0, 1), ('b', 0, 1)], "abab"),
            (
                "offline sessions of a node with connected ones",
                &[('a', 1, 9), ('b', 2, 0)],
                "babbab",
            ),
            ("no weight is no member", &[('a', 0, 0), ('b', 1, 0)], "bb"),
        ];
        for (name, members, expected) in cases {
            assert_eq!(
                choices(&mut group(members), expected.len()),
                *expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_member_that_comes_back_gets_its_share_and_no_more() {
        let mut group = group(&[('a', 1, 0), ('b', 1, 0)]);
        group.set('b', ShareWeight::OFFLINE);
        assert_eq!(choices(&mut group, 10), "aaaaaaaaaa");
        group.set('b', ShareWeight::CONNECTED);
        let back = choices(&mut group, 10);
        assert_eq!(back.matches('b').count(), 5, "{back}");
    }

    #[test]
    fn a_member_that_shrank_does_not_pay_back_old_turns() {
        let mut group = group(&[('a', 1_000_000, 0), ('b', 1, 0)]);
        choices(&mut group, 500_000);
        group.set('a', ShareWeight::CONNECTED);
        let next = choices(&mut group, 12);
        assert!(
            next.matches('a').count() >= 4 && next.matches('b').count() >= 4,
            "{next}"
        );
    }

    #[test]
    fn only_eligible_members_are_chosen() {
        let mut group = group(&[('a', 1, 0), ('b', 1, 0), ('c', 0, 1)]);
        assert_eq!(group.choose_where(|id| *id == 'b'), Some(&'b'));
        assert_eq!(
            group.choose_where(|id| *id == 'c'),
            Some(&'c'),
            "offline, but the only one left"
        );
        assert_eq!(group.choose_where(|_| false), None);
        assert!(group.remove(&'b'));
        assert!(!group.remove(&'b'));
        assert_eq!(group.total_weight(), weight(1, 1));
        assert_eq!(group.weight(&'c'), Some(ShareWeight::OFFLINE));
        assert_eq!((group.len(), group.is_empty()), (2, false));
        assert_eq!(group.iter().map(|(id, _)| *id).collect::<String>(), "ac");
    }

    proptest! {
        #[test]
        fn each_round_is_shared_exactly_by_weight(weights in prop::collection::vec(1_u32..6, 1..6), rounds in 1_usize..4) {
            let mut group = ShareGroup::new();
            for (id, connected) in weights.iter().enumerate() {
                group.set(id, weight(*connected, 0));
            }
            let total: u32 = weights.iter().sum();
            for _ in 0..rounds {
                let mut taken = BTreeMap::<usize, u32>::new();
                for _ in 0..total {
                    *taken.entry(*group.choose().unwrap()).or_default() += 1;
                }
                prop_assert_eq!(taken.values().copied().collect::<Vec<_>>(), weights.clone());
            }
        }

        #[test]
        fn nobody_starves_whatever_changes(
            changes in prop::collection::vec((0_u8..5, 0_u32..4, 0_u32..2, 0_usize..30), 1..30),
        ) {
            let mut group = ShareGroup::new();
            for (id, connected, offline, messages) in changes {
                group.set(id, weight(connected, offline));
                (0..messages).for_each(|_| { group.choose(); });
            }
            let total = group.total_weight();
            let recipients: Vec<u8> = group.iter().filter(|(_, weight)| match total.connected {
                0 => weight.offline > 0,
                _ => weight.connected > 0,
            }).map(|(id, _)| *id).collect();
            let mut missing = recipients.clone();
            // Credit is at most one round behind, so two rounds and a bit reach everybody.
            for _ in 0..3 * (total.connected.max(total.offline)) {
                let chosen = *group.choose().unwrap();
                prop_assert!(recipients.contains(&chosen));
                missing.retain(|id| *id != chosen);
            }
            prop_assert!(missing.is_empty(), "{:?} of {:?}", missing, group);
        }
    }
}
