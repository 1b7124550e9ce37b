//! Where the backups of a node's sessions are if each has one, by the rule of nodes, and what the node's death leads to.
//!
//! | when | the backup of a session goes |
//! | --- | --- |
//! | the session begins | to the node that subscribes to most of its topics, among equals to one drawn by its name; while there is another, not to one with more than its share of the sessions |
//! | it has messages | away from a node that would take over more than its share of their load, those of the busiest sessions first |
//!
//! Nodes use [`above_share`] and [`better_backup`] themselves. When a node dies, each of its sessions is at its backup's node, with its client.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Publisher};
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::placer::{Assignment, Placer};

/// What a node holds at most, in percent of its share: gamma (Detti IV.A).
pub const GAMMA_PERCENT: u64 = 110;
/// Sessions beyond that: of a few, topics alone decide.
pub const BACKUP_SLACK: u64 = 16;
/// What a session counts beside its messages, thousandths of a message a second.
pub const SESSION_LOAD: u64 = 100;
/// Below this load of all sessions, in thousandths of a message a second, no backup moves: any node can take it over.
pub const LEAST_LOAD: u64 = 100_000;
/// Topics that are considered when a backup is chosen.
const TOPICS: usize = 16;

/// Whether `load` of all `total` is more than a node with `weight` of the capacity `all` should take over.
#[must_use]
pub fn above_share(load: u64, total: u64, weight: u64, all: u64) -> bool {
    let share = u128::from(total) * u128::from(weight) / u128::from(all.max(1));
    u128::from(load) > share * u128::from(GAMMA_PERCENT) / 100
}

/// Where the backup of a session with this load should be instead of at `from`: at the node that holds least for its capacity, if `from` would take over
/// more than its share and that one would not.
///
/// `nodes`: those that may hold backups, each with its capacity. `held`: the load that each would take over. `is_free`: whether a node has no
/// replica of the session.
pub fn better_backup<N: Copy + Ord>(
    nodes: &[(N, u64)],
    held: &BTreeMap<N, u64>,
    from: N,
    load: u64,
    is_free: impl Fn(N) -> bool,
) -> Option<N> {
    let total: u64 = held.values().sum();
    let all = nodes.iter().map(|(_, weight)| weight).sum();
    let held_by = |node: N| held.get(&node).copied().unwrap_or(0);
    let (_, own) = nodes.iter().find(|(node, _)| *node == from)?;
    if !above_share(held_by(from), total, *own, all) {
        return None;
    }
    let fits = nodes.iter().filter(|(node, weight)| {
        is_free(*node) && !above_share(held_by(*node) + load, total, *weight, all)
    });
    let best = fits.min_by(|(one, a), (other, b)| {
        let fullness = |node: &N| u128::from(held_by(*node));
        (fullness(one) * u128::from(*b)).cmp(&(fullness(other) * u128::from(*a)))
    });
    best.map(|(node, _)| *node)
}

/// A cluster after the death of a broker. It is still there, without clients.
#[derive(Debug, Clone)]
pub struct Failover {
    /// The clients where they are then.
    pub cluster: Cluster,
    /// Clients that had a session there, and where it is then.
    pub moved: Vec<(ClientId, BrokerId)>,
}

/// A session at the broker that dies.
struct Session<'a> {
    client: ClientId,
    topics: Vec<&'a Assignment>,
    /// Thousandths of a message a second.
    load: u64,
    backup: BrokerId,
}

/// Lets a broker die, when each session of it has one backup and all other brokers have the same capacity. `name` is that of a client. `None`: no
/// other broker is left.
pub(crate) fn failover(
    placer: &Placer,
    gone: BrokerId,
    name: impl Fn(ClientId) -> String,
) -> Option<Failover> {
    let cluster = placer.cluster();
    let nodes: Vec<(BrokerId, u64)> = cluster
        .brokers()
        .filter(|broker| *broker != gone)
        .map(|broker| (broker, 1))
        .collect();
    if nodes.is_empty() {
        return None;
    }
    let mut sessions: Vec<Session<'_>> = Vec::new();
    let mut held: BTreeMap<BrokerId, u64> = BTreeMap::new();
    for number in 0..placer.client_count() {
        let client = ClientId(number as u32);
        let topics = placer.assignments(client).iter();
        let topics: Vec<&Assignment> = topics.filter(|it| it.broker == gone).collect();
        if topics.is_empty() {
            continue;
        }
        let backup = first_backup(cluster, &nodes, &held, &topics, &name(client))?;
        *held.entry(backup).or_default() += 1;
        sessions.push(Session {
            client,
            load: SESSION_LOAD + (1000.0 * messages(cluster, client, &topics)).round() as u64,
            topics,
            backup,
        });
    }
    level(&nodes, &mut sessions);
    let mut after = cluster.clone();
    for session in &sessions {
        for assignment in &session.topics {
            let topic = assignment.topic;
            if assignment.publishes {
                let publisher = after.unpublish(topic, session.client);
                let broker = session.backup;
                after.publish(
                    topic,
                    Publisher {
                        broker,
                        ..publisher
                    },
                );
            }
            if assignment.subscribes {
                after.unsubscribe(topic, gone);
                after.subscribe(topic, session.backup);
            }
        }
    }
    Some(Failover {
        cluster: after,
        moved: sessions.iter().map(|it| (it.client, it.backup)).collect(),
    })
}

/// The broker that gets the backup of a session that begins; `held`: how many each has.
fn first_backup(
    cluster: &Cluster,
    nodes: &[(BrokerId, u64)],
    held: &BTreeMap<BrokerId, u64>,
    topics: &[&Assignment],
    name: &str,
) -> Option<BrokerId> {
    let total: u64 = held.values().sum::<u64>() + 1;
    let most = total / nodes.len().max(1) as u64 * GAMMA_PERCENT / 100 + BACKUP_SLACK;
    let has_capacity = |broker: BrokerId| held.get(&broker).copied().unwrap_or(0) < most;
    let wanted = topics.iter().filter(|it| it.subscribes).take(TOPICS);
    let wanted: Vec<TopicId> = wanted.map(|it| it.topic).collect();
    let listens = |broker: BrokerId| {
        let there = wanted
            .iter()
            .filter(|topic| cluster.listens(**topic, broker));
        there.count()
    };
    let brokers = nodes.iter().map(|(broker, _)| *broker);
    brokers.max_by_key(|broker| (has_capacity(*broker), listens(*broker), draw(name, *broker)))
}

/// Messages a second between a client and its session.
fn messages(cluster: &Cluster, client: ClientId, topics: &[&Assignment]) -> f64 {
    let of = |it: &&&Assignment| {
        let publishers = cluster.publishers(it.topic).iter();
        let rates = |own: bool| {
            let some = publishers
                .clone()
                .filter(move |one| !own || one.client == client);
            some.map(|one| one.rate).sum::<f64>()
        };
        let published = if it.publishes { rates(true) } else { 0.0 };
        let received = if it.subscribes { rates(false) } else { 0.0 };
        published + received
    };
    topics.iter().map(|it| of(&it)).sum()
}

/// Moves backups until none moves any more. Each step lowers what is above a share, so it ends.
fn level(nodes: &[(BrokerId, u64)], sessions: &mut [Session<'_>]) {
    let mut held: BTreeMap<BrokerId, u64> = BTreeMap::new();
    for session in sessions.iter() {
        *held.entry(session.backup).or_default() += session.load;
    }
    if held.values().sum::<u64>() < LEAST_LOAD {
        return;
    }
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(sessions[*at].load), sessions[*at].client));
    loop {
        let mut has_moved = false;
        for at in &order {
            let Session { load, backup, .. } = sessions[*at];
            let better = better_backup(nodes, &held, backup, load, |node| node != backup);
            let Some(better) = better else { continue };
            *held.entry(backup).or_default() -= load;
            *held.entry(better).or_default() += load;
            sessions[*at].backup = better;
            has_moved = true;
        }
        if !has_moved {
            return;
        }
    }
}

/// The same for a name and a broker every time (FNV-1a, mixed).
fn draw(name: &str, broker: BrokerId) -> u64 {
    let bytes = name.bytes().chain(broker.0.to_le_bytes());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Arrival, Replay};
    use crate::strategy::{Limits, MatchingOptions, StrategyKind};

    #[test]
    fn a_backup_moves_only_from_a_node_above_its_share_to_one_that_stays_within() {
        let nodes = [(1, 1), (2, 1), (3, 2)];
        let held = BTreeMap::from([(1, 600), (2, 200), (3, 200)]);
        let better = |from, load| better_backup(&nodes, &held, from, load, |node| node != from);
        assert_eq!(better(1, 100), Some(3), "it has twice the capacity");
        assert_eq!(better(1, 400), None, "too much for any other");
        assert_eq!(better(2, 100), None, "within its share");
        let only_second = |node| node == 2;
        let second = |load| better_backup(&nodes, &held, 1, load, only_second);
        assert_eq!((second(75), second(76)), (Some(2), None));
        assert_eq!(better_backup(&nodes, &held, 9, 1, |_| true), None);
    }

    /// Sessions at the first of four brokers, one with many messages, and all of their topics wanted at the second.
    fn uneven() -> Replay {
        let limits = Limits::new(1, 1.1).unwrap();
        let strategy = StrategyKind::RoundRobin.build(limits, MatchingOptions::default(), 0);
        let mut replay = Replay::new(4, strategy).unwrap();
        for number in 0..60 {
            let topic = format!("t/{number}");
            let rate = if number < 6 { 60.0 } else { 10.0 };
            for client in [format!("p{number}"), format!("w{number}")] {
                let publishes = client.starts_with('p');
                let arrival = Arrival {
                    publish: if publishes {
                        vec![topic.clone()]
                    } else {
                        Vec::new()
                    },
                    subscribe: vec![topic.clone()],
                    rates: if publishes {
                        BTreeMap::from([(topic.clone(), rate)])
                    } else {
                        BTreeMap::new()
                    },
                    client,
                    ..Arrival::default()
                };
                replay.handle_arrival(&arrival).unwrap();
            }
        }
        replay
    }

    #[test]
    fn no_broker_takes_over_more_than_its_share_though_all_topics_are_wanted_at_one() {
        let replay = uneven();
        let before = replay.traffic();
        for gone in 0..4 {
            let Failover { cluster, moved } = replay.failover(BrokerId(gone)).unwrap();
            let after = cluster.traffic();
            let died = after.brokers[usize::from(gone)];
            assert_eq!(died, crate::BrokerTraffic::default(), "{gone}");
            assert_eq!(moved.len(), 30, "{gone}");
            assert_eq!(after.external_in(), before.external_in());
            assert_eq!(after.external_out(), before.external_out());
            let load = |of: &crate::BrokerTraffic| of.external_in + of.external_out;
            let taken: Vec<f64> = (0..4)
                .filter(|broker| *broker != usize::from(gone))
                .map(|broker| load(&after.brokers[broker]) - load(&before.brokers[broker]))
                .collect();
            let most = taken.iter().copied().fold(0.0, f64::max);
            let share = load(&before.brokers[usize::from(gone)]) / 3.0;
            assert!(most <= 1.1 * share + 1e-6, "{gone}: {taken:?}");
        }
        let again = uneven().failover(BrokerId(0)).unwrap();
        assert_eq!(again.moved, replay.failover(BrokerId(0)).unwrap().moved);
    }

    #[test]
    fn a_few_sessions_go_where_their_topics_are_wanted() {
        let limits = Limits::new(1, 1.1).unwrap();
        let strategy = StrategyKind::RoundRobin.build(limits, MatchingOptions::default(), 0);
        let mut replay = Replay::new(3, strategy).unwrap();
        for (client, topic) in [("a", "x"), ("b", "y"), ("c", "x")] {
            let arrival = Arrival {
                client: client.to_owned(),
                subscribe: vec![topic.to_owned()],
                ..Arrival::default()
            };
            replay.handle_arrival(&arrival).unwrap();
        }
        let moved = replay.failover(BrokerId(0)).unwrap().moved;
        assert_eq!(moved, [(ClientId(0), BrokerId(2))]);
        assert!(
            Replay::new(
                1,
                StrategyKind::RoundRobin.build(limits, MatchingOptions::default(), 0)
            )
            .unwrap()
            .failover(BrokerId(0))
            .is_none()
        );
    }
}
