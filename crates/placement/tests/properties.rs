//! What holds for every strategy, whatever clients come, change and leave.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use thicket_placement::{
    BrokerId, ClientId, Cluster, Dimension, Interest, Limits, MatchingOptions, Placer, Role,
    StrategyKind, TopicId,
};

const TOPICS: u32 = 12;
const CLIENTS: u32 = 15;

#[derive(Debug, Clone)]
enum Act {
    Arrive(u32, Vec<(u32, u8)>),
    Leave(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let wants = prop::collection::vec((0..TOPICS, 0..4_u8), 0..8);
    let act = prop_oneof![
        4 => (0..CLIENTS, wants).prop_map(|(client, wants)| Act::Arrive(client, wants)),
        1 => (0..CLIENTS).prop_map(Act::Leave),
    ];
    prop::collection::vec(act, 1..60)
}

fn kinds() -> impl Strategy<Value = StrategyKind> {
    prop::sample::select(
        StrategyKind::EVERYDAY
            .into_iter()
            .chain([StrategyKind::Optimum])
            .collect::<Vec<_>>(),
    )
}

/// Rates that are no binary fractions, so that increments round.
fn interest(topic: u32, role: u8) -> Interest {
    let rate = 0.1 + 0.7 * f64::from(topic % 3);
    Interest {
        topic: TopicId(topic),
        role: match role {
            0 => Role::Publisher { rate },
            1 => Role::Both { rate },
            _ => Role::Subscriber,
        },
    }
}

fn placer(kind: StrategyKind, brokers: usize, limits: Limits, matching: MatchingOptions) -> Placer {
    let mut cluster = Cluster::new(brokers).unwrap();
    for topic in 0..TOPICS {
        cluster.add_topic(0.5 + f64::from(topic)).unwrap();
    }
    Placer::new(cluster, kind.build(limits, matching, 1))
}

/// Internal traffic from who is where, by the definition: every publisher's messages once to each other broker that has a
/// subscriber of the topic.
fn internal_by_definition(placer: &Placer) -> f64 {
    let mut listening: BTreeMap<TopicId, BTreeSet<BrokerId>> = BTreeMap::new();
    let mut publishing: Vec<(TopicId, BrokerId, f64)> = Vec::new();
    for client in (0..CLIENTS).map(ClientId) {
        for assignment in placer.assignments(client) {
            if assignment.subscribes {
                listening
                    .entry(assignment.topic)
                    .or_default()
                    .insert(assignment.broker);
            }
            if assignment.publishes {
                let rate = 0.1 + 0.7 * f64::from(assignment.topic.0 % 3);
                publishing.push((assignment.topic, assignment.broker, rate));
            }
        }
    }
    publishing
        .iter()
        .map(|(topic, broker, rate)| {
            let receivers = listening.get(topic).into_iter().flatten();
            rate * receivers.filter(|receiver| *receiver != broker).count() as f64
        })
        .sum()
}

fn check(
    placer: &Placer,
    client: ClientId,
    wants: &[(u32, u8)],
    allowed: usize,
) -> Result<(), TestCaseError> {
    let assigned: Vec<TopicId> = placer
        .assignments(client)
        .iter()
        .map(|assignment| assignment.topic)
        .collect();
    let mut wanted: Vec<TopicId> = Vec::new();
    for (topic, _) in wants {
        if !wanted.contains(&TopicId(*topic)) {
            wanted.push(TopicId(*topic));
        }
    }
    prop_assert_eq!(assigned, wanted, "each topic once, in order");
    for other in (0..CLIENTS).map(ClientId) {
        prop_assert!(placer.sessions(other).len() <= allowed, "{:?}", other);
    }
    let counted = placer.cluster().traffic().internal();
    let defined = internal_by_definition(placer);
    for found in [placer.cluster().internal(), counted] {
        prop_assert!(
            (found - defined).abs() <= 1e-9 * (1.0 + defined),
            "{found} {defined}"
        );
    }
    Ok(())
}

fn loads_agree(placer: &Placer) -> Result<(), TestCaseError> {
    for dimension in [Dimension::Input, Dimension::Output] {
        let sum: f64 = placer.cluster().loads(dimension).iter().sum();
        let total = placer.cluster().total_load(dimension);
        prop_assert!((sum - total).abs() <= 1e-9 * (1.0 + total), "{sum} {total}");
    }
    prop_assert!(placer.cluster().awaited_input() >= -1e-9);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sessions_topics_and_traffic_hold_after_every_step(
        kind in kinds(),
        brokers in 1..7_usize,
        sessions in 1..5_usize,
        literal in any::<bool>(),
        acts in acts(),
    ) {
        let limits = Limits::new(sessions, 1.1).unwrap();
        let matching = if literal { MatchingOptions::literal() } else { MatchingOptions::default() };
        let mut placer = placer(kind, brokers, limits, matching);
        let mut present = BTreeSet::new();
        for act in acts {
            match act {
                Act::Arrive(client, wants) => {
                    let client = ClientId(client);
                    let interests: Vec<Interest> =
                        wants.iter().map(|(topic, role)| interest(*topic, *role)).collect();
                    let before: BTreeMap<TopicId, BrokerId> = placer
                        .assignments(client)
                        .iter()
                        .map(|assignment| (assignment.topic, assignment.broker))
                        .collect();
                    let placed = placer.arrive(client, &interests).unwrap();
                    let single = matches!(
                        kind,
                        StrategyKind::Random | StrategyKind::RoundRobin
                            | StrategyKind::LeastLoaded | StrategyKind::BestMatch
                    );
                    check(&placer, client, &wants, if single { 1 } else { sessions })?;
                    for assignment in placer.assignments(client) {
                        if let Some(broker) = before.get(&assignment.topic) {
                            prop_assert_eq!(assignment.broker, *broker, "kept topics stay");
                        }
                        let above = |dimension| {
                            limits.exceeded(placer.cluster(), assignment.broker, dimension)
                        };
                        let over = (assignment.publishes && above(Dimension::Input))
                            || (assignment.subscribes && above(Dimension::Output));
                        prop_assert!(placed.flagged || !over, "no broker above gamma unless flagged");
                    }
                    present.insert(client);
                }
                Act::Leave(client) => {
                    let client = ClientId(client);
                    placer.leave(client);
                    prop_assert!(placer.assignments(client).is_empty());
                    present.remove(&client);
                }
            }
            loads_agree(&placer)?;
        }
        for client in present {
            placer.leave(client);
        }
        prop_assert_eq!(placer.cluster().internal(), 0.0);
        prop_assert_eq!(placer.cluster().traffic().external_in(), 0.0);
        prop_assert_eq!(placer.cluster().total_load(Dimension::Output), 0.0);
    }

    #[test]
    fn the_optimum_of_a_client_is_never_dearer_than_the_greedy_choice(
        acts in acts(),
        brokers in 1..6_usize,
        sessions in 1..5_usize,
        wants in prop::collection::btree_set(0..TOPICS, 1..8),
    ) {
        // The same past for both, then one subscriber more.
        let limits = Limits::new(sessions, 1.1).unwrap();
        let growth = |kind: StrategyKind| {
            let mut past = placer(StrategyKind::Random, brokers, limits, MatchingOptions::default());
            for topic in 0..TOPICS {
                past.arrive(ClientId(100 + topic), &[interest(topic, 0)]).unwrap();
            }
            for act in &acts {
                if let Act::Arrive(client, wants) = act {
                    let interests: Vec<Interest> =
                        wants.iter().map(|(topic, _)| interest(*topic, 2)).collect();
                    past.arrive(ClientId(*client), &interests).unwrap();
                }
            }
            let before = past.cluster().internal();
            let interests: Vec<Interest> = wants.iter().map(|topic| interest(*topic, 2)).collect();
            let request = thicket_placement::Request { interests: &interests, open: &[], home: None };
            let decision = kind
                .build(limits, MatchingOptions::default(), 1)
                .place(past.cluster(), &request);
            let mut after = past.cluster().clone();
            for (interest, broker) in interests.iter().zip(&decision.brokers) {
                after.subscribe(interest.topic, *broker);
            }
            after.internal() - before
        };
        let greedy = growth(StrategyKind::MultiSession);
        let optimum = growth(StrategyKind::Optimum);
        prop_assert!(optimum <= greedy + 1e-9, "{optimum} {greedy}");
    }
}
