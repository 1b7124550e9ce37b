//! Clients that may have several sessions are placed again while they are connected: [`replan`](super::replan) for the clients of a [`Situation`].

use std::collections::{BTreeMap, BTreeSet};

use super::board::Board;
use super::replan::{Attached, fill};
use super::{Balance, RebalanceClient, RebalanceLimits, Situation, WORTH_RATE, WORTH_SHARE, check};
use crate::cluster::Cluster;
use crate::error::ParameterError;
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::strategy::{Interest, Limits, Role};

/// A client that may have several sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct Placeable {
    /// Its sessions: indices of clients of the situation, at least one.
    pub sessions: Vec<usize>,
    /// Sessions that it may have, at least 1.
    pub max_sessions: usize,
}

/// A session that a client should have.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedSession {
    /// Index of the node.
    pub node: usize,
    /// What it publishes there, with messages a second.
    pub publishes: Vec<(TopicId, f64)>,
    /// What it receives there, with messages a second.
    pub subscribes: Vec<(TopicId, f64)>,
}

/// Clients that should be placed again, and what that gains.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementPlan {
    /// Index of the client in the question, and its sessions: of those that change.
    pub clients: Vec<(usize, Vec<PlannedSession>)>,
    /// Before any of them.
    pub before: Balance,
    /// After all of them.
    pub after: Balance,
}

/// Places clients again, all others staying where they are. `None`: that gains too little, by the measures of moves.
///
/// # Errors
/// A number is not one, or an index names no client, node or topic.
pub fn plan_placements(
    situation: &Situation,
    clients: &[Placeable],
    limits: RebalanceLimits,
) -> Result<Option<PlacementPlan>, ParameterError> {
    check(situation, limits)?;
    check_clients(situation, clients)?;
    let situation = with_all_named(situation, limits.gamma);
    let brokers: Vec<usize> = (0..situation.nodes.len())
        .filter(|node| situation.nodes[*node].takes_clients && !situation.nodes[*node].is_draining)
        .collect();
    // Where its sessions are does not show where a client is: it stays as it was placed when it asked.
    if clients.is_empty() || brokers.len() < 2 || !situation.distances.are_even() {
        return Ok(None);
    }
    let board = Board::new(&situation, limits.gamma);
    let before = board.balance();
    let planned = planned(&situation, clients, &board, &brokers, limits)?;
    let mut after = situation.clone();
    let mut changed = Vec::new();
    let placed: BTreeSet<usize> = clients.iter().flat_map(|it| it.sessions.clone()).collect();
    let all = (0..).zip(std::mem::take(&mut after.clients));
    let mut others: Vec<RebalanceClient> = all
        .filter(|(at, _)| !placed.contains(at))
        .map(|(_, client)| client)
        .collect();
    for (index, sessions) in planned.into_iter().enumerate() {
        others.extend(sessions.iter().map(client_of));
        if !is_there(&situation, &clients[index], &sessions) {
            changed.push((index, sessions));
        }
    }
    after.clients = others;
    let after = Board::new(&after, limits.gamma).balance();
    let saves = before.internal - after.internal;
    let is_worth_it =
        saves >= WORTH_SHARE * before.internal && saves >= WORTH_RATE * changed.len() as f64;
    Ok(
        (is_worth_it && !changed.is_empty()).then_some(PlacementPlan {
            clients: changed,
            before,
            after,
        }),
    )
}

fn check_clients(situation: &Situation, clients: &[Placeable]) -> Result<(), ParameterError> {
    for client in clients {
        for session in &client.sessions {
            if *session >= situation.clients.len() {
                let why = "must be the index of a client";
                return Err(ParameterError::new("sessions", why, *session));
            }
        }
    }
    Ok(())
}

/// Publishers that are not listed become clients that stay, one a node: what is measured of a topic is counted once wherever its listed ones go.
fn with_all_named(situation: &Situation, gamma: f64) -> Situation {
    let named_only = Situation {
        measured: Vec::new(),
        ..situation.clone()
    };
    let board = Board::new(&named_only, gamma);
    let mut unnamed: BTreeMap<usize, Vec<(TopicId, f64)>> = BTreeMap::new();
    for (topic, node, rate) in &situation.measured {
        let named = board.published_at(*topic, *node);
        if *rate > 2.0 * named {
            unnamed
                .entry(*node)
                .or_default()
                .push((*topic, rate - named));
        }
    }
    let mut all = situation.clone();
    all.measured.clear();
    all.clients.extend(
        unnamed
            .into_iter()
            .map(|(node, publishes)| RebalanceClient {
                node,
                rate: 0.0,
                publishes,
                subscribes: Vec::new(),
                may_move: false,
            }),
    );
    all
}

/// The sessions of each client in its turn.
fn planned(
    situation: &Situation,
    clients: &[Placeable],
    board: &Board<'_>,
    brokers: &[usize],
    limits: RebalanceLimits,
) -> Result<Vec<Vec<PlannedSession>>, ParameterError> {
    let mut empty = Cluster::new(brokers.len())?;
    for topic in 0..situation.topic_count {
        empty.add_topic(board.rate(TopicId(topic as u32)))?;
    }
    let broker_of = |node: usize| {
        let found = brokers.binary_search(&node);
        found.ok().map(|at| BrokerId(at as u16))
    };
    let placed: BTreeSet<usize> = clients.iter().flat_map(|it| it.sessions.clone()).collect();
    let free = clients.iter().enumerate().map(|(index, client)| {
        let id = ClientId(index as u32);
        (
            (id, held(situation, client, &broker_of)),
            client.max_sessions,
        )
    });
    let staying = situation.clients.iter().enumerate();
    let staying = staying.filter(|(at, _)| !placed.contains(at));
    let staying: Vec<Attached> = staying
        .filter_map(|(at, client)| {
            let broker = broker_of(client.node)?;
            let held = interests(client).map(|it| (it, broker)).collect();
            Some((ClientId((clients.len() + at) as u32), held))
        })
        .collect();
    let limits = Limits::new(1, limits.gamma)?;
    let filled = fill(empty, limits, &staying, &free.collect::<Vec<_>>())?;
    Ok(filled
        .into_iter()
        .map(|(_, at)| sessions(board, brokers, &at))
        .collect())
}

/// What a client does now, and where.
fn held(
    situation: &Situation,
    client: &Placeable,
    broker_of: &impl Fn(usize) -> Option<BrokerId>,
) -> Vec<(Interest, BrokerId)> {
    let mut held: BTreeMap<TopicId, (Interest, BrokerId)> = BTreeMap::new();
    let seen = client.sessions.iter().flat_map(|session| {
        let session = &situation.clients[*session];
        interests(session).map(|it| (it, session.node))
    });
    for (interest, node) in seen {
        let broker = broker_of(node).unwrap_or(BrokerId(0));
        held.entry(interest.topic)
            .and_modify(|known| known.0.role = known.0.role.and(interest.role))
            .or_insert((interest, broker));
    }
    held.into_values().collect()
}

fn interests(client: &RebalanceClient) -> impl Iterator<Item = Interest> + '_ {
    let published = client.publishes.iter().map(|(topic, rate)| Interest {
        topic: *topic,
        role: Role::Publisher { rate: *rate },
    });
    let subscribed = client.subscribes.iter().map(|topic| Interest {
        topic: *topic,
        role: Role::Subscriber,
    });
    published.chain(subscribed)
}

fn sessions(
    board: &Board<'_>,
    brokers: &[usize],
    at: &[(Interest, BrokerId)],
) -> Vec<PlannedSession> {
    let mut by_broker: BTreeMap<BrokerId, PlannedSession> = BTreeMap::new();
    for (interest, broker) in at {
        let session = by_broker.entry(*broker).or_insert_with(|| PlannedSession {
            node: brokers[broker.index()],
            publishes: Vec::new(),
            subscribes: Vec::new(),
        });
        if let Some(rate) = interest.role.publish_rate() {
            session.publishes.push((interest.topic, rate));
        }
        if interest.role.subscribes() {
            let rate = board.rate(interest.topic);
            session.subscribes.push((interest.topic, rate));
        }
    }
    by_broker.into_values().collect()
}

/// Whether the client has its sessions with their topics already.
fn is_there(situation: &Situation, client: &Placeable, planned: &[PlannedSession]) -> bool {
    let node_of = |topic: TopicId, subscribes: bool| {
        let mut sessions = planned.iter().filter(|it| {
            let topics = if subscribes {
                &it.subscribes
            } else {
                &it.publishes
            };
            topics.iter().any(|known| known.0 == topic)
        });
        sessions.next().map(|it| it.node)
    };
    client.sessions.iter().all(|session| {
        let session = &situation.clients[*session];
        let here = Some(session.node);
        let mut topics = session.publishes.iter().map(|it| (it.0, false));
        let stays = topics.all(|(topic, role)| node_of(topic, role) == here);
        let mut wanted = session.subscribes.iter();
        stays && wanted.all(|topic| node_of(*topic, true) == here)
    })
}

/// A session as a client of a situation.
fn client_of(session: &PlannedSession) -> RebalanceClient {
    let rate = |topics: &[(TopicId, f64)]| -> f64 { topics.iter().map(|it| it.1).sum() };
    RebalanceClient {
        node: session.node,
        rate: rate(&session.publishes) + rate(&session.subscribes),
        publishes: session.publishes.clone(),
        subscribes: session.subscribes.iter().map(|it| it.0).collect(),
        may_move: true,
    }
}
