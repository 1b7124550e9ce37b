//! Clients that asked for several sessions are not moved but placed again, all of them in one plan.
//!
//! | step | node |
//! | --- | --- |
//! | sends all where the client's sessions should be | the rebalancer |
//! | sends the first session to its node, maybe the one where it is (DISCONNECT 0x9C) | where it is connected |
//! | connects, and asks where its sessions should be, as clients do that have several | the client |
//! | places the client: it has the answer already | the placer |
//! | moves its topics, each to its new session before it leaves the old one | the client |
//!
//! A client that does not ask again was moved like any other.

use std::collections::{BTreeMap, BTreeSet};

use thicket_placement::{
    Move, MoveReason, ParameterError, Placeable, PlacedSession, Placement, Plan, PlannedSession,
    RebalanceLimits, Situation, TopicId, plan_placements,
};

use super::inventory::{Inventory, KnownNode, Topics};
use crate::{Now, hub::placing::Placing};

/// Clients with several sessions, of those that a plan is made for.
#[derive(Debug, Default)]
pub(super) struct Several {
    clients: Vec<OneOfSeveral>,
    /// The names of all their sessions.
    names: BTreeSet<String>,
}

#[derive(Debug)]
struct OneOfSeveral {
    placement: Placement,
    max_sessions: u8,
    /// By number: the index in the inventory.
    sessions: BTreeMap<u16, usize>,
}

/// Where a client should be, with the sessions that it may have.
type Placed = (Placement, u8);

impl Placing {
    /// Those whose first session may be sent elsewhere now. Filters with wildcards are placed by what they match, which is not known here: a client
    /// that has one is moved as a whole.
    pub(super) fn clients_with_several(
        &self,
        now: Now,
        inventory: &Inventory,
        has_rested: impl Fn(&str) -> bool,
    ) -> Several {
        let mut found: BTreeMap<&str, OneOfSeveral> = BTreeMap::new();
        let mut stay: BTreeSet<&str> = BTreeSet::new();
        for (index, (_, client)) in inventory.all().enumerate() {
            let name = &*client.client_id;
            let further = || {
                let (of, number) = name.rsplit_once('~')?;
                let number: u16 = number.parse().ok().filter(|number| *number > 1)?;
                Some((self.placed_with_several(now, of)?, of, number))
            };
            let first = self.placed_with_several(now, name);
            let known = first.map(|placed| (placed, name, 1)).or_else(further);
            let Some(((placement, max_sessions), of, number)) = known else {
                continue;
            };
            let has_wildcards = client.filters.iter().any(|it| it.contains(['+', '#']));
            if has_wildcards || number == 1 && !(client.can_move && has_rested(name)) {
                stay.insert(of);
            }
            let one = found.entry(of).or_insert_with(|| OneOfSeveral {
                placement: placement.clone(),
                max_sessions,
                sessions: BTreeMap::new(),
            });
            one.sessions.insert(number, index);
        }
        found.retain(|of, one| !stay.contains(of) && one.sessions.contains_key(&1));
        let clients: Vec<OneOfSeveral> = found.into_values().collect();
        let indices = clients.iter().flat_map(|one| one.sessions.values());
        let names = indices.map(|index| inventory.client(*index).1.to_string());
        Several {
            names: names.collect(),
            clients,
        }
    }
}

impl Several {
    pub const fn len(&self) -> usize {
        self.clients.len()
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Moves of first sessions, each with the placement of its client. `None`: all are where they should be, or nearly.
    pub fn plan(
        &self,
        situation: &Situation,
        topics: &Topics,
        nodes: &[KnownNode],
        inventory: &Inventory,
        limits: RebalanceLimits,
    ) -> Result<Option<(Plan, Vec<Placed>)>, ParameterError> {
        let placeable = |one: &OneOfSeveral| Placeable {
            sessions: one.sessions.values().copied().collect(),
            max_sessions: usize::from(one.max_sessions),
        };
        let all: Vec<Placeable> = self.clients.iter().map(placeable).collect();
        let Some(mut planned) = plan_placements(situation, &all, limits)? else {
            return Ok(None);
        };
        planned.clients.truncate(limits.moves);
        let saves = (planned.before.internal - planned.after.internal)
            / planned.clients.len().max(1) as f64;
        let (mut moves, mut placements) = (Vec::new(), Vec::new());
        for (index, sessions) in planned.clients {
            let one = &self.clients[index];
            let numbered = one.numbered(sessions, situation);
            let first = one.sessions[&1];
            let Some(to) = numbered.get(&1).map(|session| session.node) else {
                continue;
            };
            moves.push(Move {
                client: first,
                from: situation.clients[first].node,
                to,
                reason: MoveReason::Topics,
                saves,
            });
            let placement = one.placement(&numbered, topics, nodes, inventory);
            placements.push((placement, one.max_sessions));
        }
        let plan = Plan {
            moves,
            before: planned.before,
            after: planned.after,
        };
        Ok(Some((plan, placements)))
    }
}

impl OneOfSeveral {
    /// A session at a node where the client has one keeps its number, the others get the lowest free ones; there is always a first.
    fn numbered(
        &self,
        sessions: Vec<PlannedSession>,
        situation: &Situation,
    ) -> BTreeMap<u16, PlannedSession> {
        let number_at = |node: usize| {
            let mut sessions = self.sessions.iter();
            let there = sessions.find(|(_, index)| situation.clients[**index].node == node);
            there.map(|(number, _)| *number)
        };
        let (stay, new): (Vec<_>, Vec<_>) = sessions
            .into_iter()
            .partition(|session| number_at(session.node).is_some());
        let mut numbered: BTreeMap<u16, PlannedSession> = stay
            .into_iter()
            .map(|session| (number_at(session.node).unwrap_or(1), session))
            .collect();
        for session in new {
            let number = (1..).find(|number| !numbered.contains_key(number));
            numbered.insert(number.unwrap_or(u16::MAX), session);
        }
        if !numbered.contains_key(&1)
            && let Some((_, session)) = numbered.pop_first()
        {
            numbered.insert(1, session);
        }
        numbered
    }

    /// With what the client asked for and is not seen doing: it stays with the session of its number, else with the first.
    fn placement(
        &self,
        numbered: &BTreeMap<u16, PlannedSession>,
        topics: &Topics,
        nodes: &[KnownNode],
        inventory: &Inventory,
    ) -> Placement {
        let named = |all: &[(TopicId, f64)]| -> Vec<(String, f64)> {
            let named = all.iter().map(|it| (topics.name(it.0).to_owned(), it.1));
            named.collect()
        };
        let sessions = numbered.iter().map(|(number, session)| {
            let placed = PlacedSession {
                number: *number,
                node: nodes[session.node].node.0,
                publish: named(&session.publishes),
                subscribe: named(&session.subscribes),
            };
            (*number, placed)
        });
        let mut sessions: BTreeMap<u16, PlacedSession> = sessions.collect();
        let known = |of: fn(&PlacedSession) -> &Vec<(String, f64)>| -> BTreeSet<String> {
            let all = sessions.values().flat_map(of);
            all.map(|(name, _)| name.clone()).collect()
        };
        let (published, subscribed) = (known(|it| &it.publish), known(|it| &it.subscribe));
        let mut late: Vec<(u16, String, Option<f64>)> = Vec::new();
        for session in &self.placement.sessions {
            let unseen = session.publish.iter();
            let unseen = unseen.filter(|(name, _)| !published.contains(name));
            late.extend(unseen.map(|(name, rate)| (session.number, name.clone(), Some(*rate))));
        }
        for (number, index) in &self.sessions {
            let filters = inventory.filters(*index).iter();
            let unseen = filters.filter(|filter| !subscribed.contains(&***filter));
            late.extend(unseen.map(|filter| (*number, filter.to_string(), None)));
        }
        for (number, name, rate) in late {
            let number = if sessions.contains_key(&number) {
                number
            } else {
                1
            };
            let Some(session) = sessions.get_mut(&number) else {
                continue;
            };
            match rate {
                Some(rate) => session.publish.push((name, rate)),
                None => session.subscribe.push((name, 1.0)),
            }
        }
        Placement {
            client_id: self.placement.client_id.clone(),
            sessions: sessions.into_values().collect(),
        }
    }
}
