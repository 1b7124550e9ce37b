//! Model, simulation and brute force agree.

use thicket_placement::{
    Application, ArrivalOrder, BrokerId, ClientId, Cluster, Interest, Limits, MatchingOptions,
    Publisher, Request, Role, Run, Setting, Statistic, StrategyKind, TopicId, simulate,
};

fn setting(application: Application) -> Setting {
    Setting {
        application,
        topics: 343,
        subscribers: 300,
        brokers: 5,
        ..Setting::figure_13()
    }
}

#[test]
fn random_attachment_comes_out_as_the_model_says_in_both_scenarios() {
    let iot = Application::Iot {
        depth: 4,
        fanout: Some(7),
        levels: Some(vec![0.0, 0.03, 0.3, 0.67]),
    };
    for application in [Application::Social { subscriptions: 6 }, iot] {
        let setting = setting(application);
        let run = Run {
            broker_count: setting.brokers,
            strategy: StrategyKind::Random,
            limits: setting.limits().unwrap(),
            matching: MatchingOptions::default(),
        };
        let measured: Vec<_> = (1..=60)
            .map(|seed| {
                let workload = setting.workload(ArrivalOrder::Random, seed).unwrap();
                simulate(&run, &workload, seed).unwrap()
            })
            .collect();
        for name in [
            "external_in",
            "external_out",
            "internal",
            "routing_overhead",
        ] {
            let values: Vec<f64> = measured
                .iter()
                .filter_map(|measures| measures.by_name(name))
                .collect();
            let statistic = Statistic::of(&values);
            let predicted = setting.theory(name).unwrap().unwrap();
            // Five standard errors, and a hundredth for the approximation of Eq. 1.
            let allowed = 5.0 * statistic.sd / (statistic.n as f64).sqrt() + 0.01 * predicted;
            assert!(
                (statistic.mean - predicted).abs() <= allowed,
                "{:?} {name}: simulated {statistic:?}, predicted {predicted}",
                setting.application
            );
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_other_seeds_other_ones() {
    let setting = setting(Application::Social { subscriptions: 6 });
    let measure = |strategy, seed| {
        let run = Run {
            broker_count: setting.brokers,
            strategy,
            limits: setting.limits().unwrap(),
            matching: MatchingOptions::default(),
        };
        let workload = setting.workload(ArrivalOrder::Random, seed).unwrap();
        simulate(&run, &workload, seed).unwrap()
    };
    for strategy in StrategyKind::EVERYDAY {
        assert_eq!(measure(strategy, 1), measure(strategy, 1));
        assert_ne!(measure(strategy, 1), measure(strategy, 2));
    }
}

#[test]
fn thicket_keeps_every_broker_within_gamma_and_beats_the_paper_in_every_order() {
    let setting = Setting {
        topics: 1000,
        subscribers: 1000,
        ..Setting::figure_13()
    };
    for order in ArrivalOrder::ALL {
        let measure = |strategy| {
            let run = Run {
                broker_count: setting.brokers,
                strategy,
                limits: setting.limits().unwrap(),
                matching: MatchingOptions::default(),
            };
            simulate(&run, &setting.workload(order, 7).unwrap(), 7).unwrap()
        };
        let thicket = measure(StrategyKind::Thicket);
        let greedy = measure(StrategyKind::MultiSession);
        let random = measure(StrategyKind::Random);
        assert_eq!(thicket.above_gamma, 0.0, "{}", order.name());
        assert!(thicket.jain >= 0.99);
        assert!(
            thicket.routing_overhead < greedy.routing_overhead,
            "{}",
            order.name()
        );
        assert!(greedy.routing_overhead < random.routing_overhead);
    }
}

/// All maps of topics to brokers with no more than `sessions` brokers, tried one by one.
fn least_growth(cluster: &Cluster, topics: &[TopicId], sessions: usize) -> f64 {
    let brokers = cluster.broker_count() as u32;
    let mut least = f64::INFINITY;
    for assignment in 0..brokers.pow(topics.len() as u32) {
        let mut after = cluster.clone();
        let mut used = Vec::new();
        let mut rest = assignment;
        for topic in topics {
            let broker = BrokerId((rest % brokers) as u16);
            rest /= brokers;
            used.push(broker);
            after.subscribe(*topic, broker);
        }
        used.sort_unstable();
        used.dedup();
        if used.len() <= sessions {
            least = least.min(after.internal() - cluster.internal());
        }
    }
    least
}

#[test]
fn the_optimum_is_what_trying_every_assignment_finds() {
    // Publishers and single subscribers spread so that every broker has something; loads stay within a gamma of 10.
    let mut cluster = Cluster::new(4).unwrap();
    for topic in 0..6_u32 {
        let id = cluster.add_topic(1.0 + f64::from(topic)).unwrap();
        cluster.publish(
            id,
            Publisher {
                client: ClientId(topic),
                broker: BrokerId((topic * 7 % 4) as u16),
                rate: 1.0 + f64::from(topic),
            },
        );
        cluster.subscribe(id, BrokerId((topic * 3 % 4) as u16));
    }
    let topics: Vec<TopicId> = (0..6).map(TopicId).collect();
    let interests: Vec<Interest> = topics
        .iter()
        .map(|topic| Interest {
            topic: *topic,
            role: Role::Subscriber,
        })
        .collect();
    for sessions in 1..=4 {
        let decision = StrategyKind::Optimum
            .build(
                Limits::new(sessions, 10.0).unwrap(),
                MatchingOptions::default(),
                1,
            )
            .place(
                &cluster,
                &Request {
                    interests: &interests,
                    open: &[],
                    home: None,
                },
            );
        let mut after = cluster.clone();
        for (topic, broker) in topics.iter().zip(&decision.brokers) {
            after.subscribe(*topic, *broker);
        }
        let found = after.internal() - cluster.internal();
        let least = least_growth(&cluster, &topics, sessions);
        assert!(
            (found - least).abs() < 1e-12,
            "{sessions} sessions: {found}, least {least}"
        );
    }
}
