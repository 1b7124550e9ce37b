//! The generator against the relay: what was sent is what arrived, for every pattern, version and quality of service.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use thicket_bench::generator::{
    Arrivals, Fleet, Generator, Load, Node, Scenario, Span, Watch, WillMessage,
};
use thicket_bench::relay::Relay;
use thicket_bench::workload::{TopicTemplate, Workload, level_probabilities};
use thicket_bench::{BenchError, Outcome};
use thicket_mqtt::{ProtocolVersion, Qos};

/// A relay in a thread of its own; it ends with the test's process.
fn relay() -> Node {
    let relay = Relay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = relay.local_addr().unwrap();
    std::thread::spawn(move || relay.run());
    Node {
        namespace: None,
        name: address.to_string(),
        address,
    }
}

fn scenario(workload: Workload) -> Scenario {
    Scenario {
        prefix: "test".to_owned(),
        ..Scenario::new(vec![relay()], workload)
    }
}

fn run(scenario: Scenario, load: Load, messages: u64) -> Outcome {
    let mut generator = Generator::connect(scenario).unwrap();
    let span = Span {
        drain: Duration::from_secs(30),
        ..Span::messages(messages)
    };
    generator
        .run(load, span, &Watch::default(), &mut |_| {})
        .unwrap()
}

fn workloads() -> [(Workload, u64); 5] {
    [
        (Workload::Pair { pairs: 20 }, 1),
        (
            Workload::FanOut {
                publishers: 1,
                subscribers: 50,
            },
            50,
        ),
        (
            Workload::FanIn {
                publishers: 50,
                subscribers: 1,
            },
            1,
        ),
        (
            Workload::FanOut {
                publishers: 3,
                subscribers: 4,
            },
            4,
        ),
        (
            Workload::FanIn {
                publishers: 4,
                subscribers: 3,
            },
            3,
        ),
    ]
}

#[test]
fn every_message_arrives_once_and_in_order_in_a_closed_loop() {
    for (workload, recipients) in workloads() {
        for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
                let name = format!("{} {version:?} {qos:?}", workload.describe());
                let scenario = Scenario {
                    version,
                    qos,
                    ..scenario(workload.clone())
                };
                let outcome = run(scenario, Load::Closed { window: 7 }, 1000);
                let counts = outcome.counts;
                assert!(counts.is_clean(), "{name}: {counts:?}");
                assert_eq!(
                    (counts.published, counts.delivered),
                    (1000, 1000 * recipients),
                    "{name}"
                );
                assert_eq!(counts.expected, counts.delivered, "{name}");
                assert_eq!(
                    outcome.delivered, counts.delivered,
                    "{name}: all of it was measured"
                );
                assert!(outcome.latency.is_some(), "{name}");
            }
        }
    }
}

#[test]
fn every_message_arrives_once_and_in_order_in_an_open_loop() {
    for arrivals in [
        Arrivals::Constant,
        Arrivals::Poisson,
        Arrivals::LogNormal {
            coefficient_of_variation: 0.5,
        },
    ] {
        for qos in [Qos::AtMostOnce, Qos::ExactlyOnce] {
            let scenario = Scenario {
                qos,
                ..scenario(Workload::Pair { pairs: 10 })
            };
            let outcome = run(
                scenario,
                Load::Open {
                    rate_per_s: 20_000.0,
                    arrivals,
                },
                4000,
            );
            assert!(
                outcome.counts.is_clean(),
                "{arrivals:?} {qos:?}: {:?}",
                outcome.counts
            );
            assert_eq!(outcome.counts.delivered, 4000, "{arrivals:?} {qos:?}");
        }
    }
}

#[test]
fn social_and_iot_patterns_deliver_what_their_plans_expect() {
    let social = Workload::Social {
        topics: 50,
        publishers: None,
        subscribers: 20,
        topics_per_subscriber: 5,
        alpha: 1.13,
    };
    let iot = Workload::Iot {
        depth: 4,
        fan_out: 3,
        level_probabilities: level_probabilities(4, 1.5),
        subscribers: 15,
    };
    for workload in [social, iot] {
        // Above QoS 0 the topics nobody wants are published too.
        let outcome = run(
            Scenario {
                qos: Qos::AtLeastOnce,
                ..scenario(workload.clone())
            },
            Load::Closed { window: 3 },
            3000,
        );
        assert!(
            outcome.counts.is_clean(),
            "{workload:?}: {:?}",
            outcome.counts
        );
        assert_eq!(outcome.counts.published, 3000, "{workload:?}");
        assert_eq!(
            outcome.counts.delivered, outcome.counts.expected,
            "{workload:?}"
        );
    }
}

#[test]
fn publishers_of_one_topic_are_told_apart_and_payloads_of_all_sizes_arrive() {
    let workload = Workload::Social {
        topics: 3,
        publishers: Some(20),
        subscribers: 6,
        topics_per_subscriber: 2,
        alpha: 0.0,
    };
    let with = |payload_len: usize| Scenario {
        qos: Qos::AtLeastOnce,
        subscriber_qos: Some(Qos::AtMostOnce),
        payload_len,
        topic: Some(TopicTemplate::parse("topic-tree/{random}/").unwrap()),
        will: Some(WillMessage {
            topic: "will".to_owned(),
            payload_len: 30,
            qos: Qos::AtMostOnce,
            retain: false,
        }),
        keep_alive_s: 1,
        ..scenario(workload.clone())
    };
    let sizes: Vec<u32> = (16..900).step_by(7).collect();
    let varied = Scenario {
        payload_sizes: Some(sizes.into()),
        ..with(900)
    };
    // Long enough for several PINGREQ.
    let open = Load::Open {
        rate_per_s: 1500.0,
        arrivals: Arrivals::Constant,
    };
    let outcome = run(varied, open, 3000);
    assert!(outcome.counts.is_clean(), "{:?}", outcome.counts);
    assert_eq!(outcome.counts.published, 3000);
    assert!(outcome.behind_schedule_mean_ms <= outcome.behind_schedule_ms);
    let error = Generator::connect(with(8)).unwrap_err().to_string();
    assert!(error.contains("each needs a topic of its own"), "{error}");
}

#[test]
fn connections_are_begun_at_their_rate() {
    let scenario = Scenario {
        connects_per_s: Some(100.0),
        ..scenario(Workload::Pair { pairs: 15 })
    };
    let generator = Generator::connect(scenario).unwrap();
    // The first is begun at once, the thirtieth after 0.29 s.
    assert!(generator.connecting() >= Duration::from_millis(290));
}

#[test]
fn payloads_shorter_than_the_stamp_are_counted_too() {
    for payload_len in [0, 3, 4, 15, 16, 5000] {
        let scenario = Scenario {
            payload_len,
            ..scenario(Workload::FanIn {
                publishers: 5,
                subscribers: 2,
            })
        };
        let outcome = run(scenario, Load::Closed { window: 5 }, 500);
        assert!(
            outcome.counts.is_clean(),
            "{payload_len} bytes: {:?}",
            outcome.counts
        );
        assert_eq!(outcome.counts.delivered, 1000, "{payload_len} bytes");
        assert_eq!(
            outcome.latency.is_some(),
            payload_len >= 16,
            "{payload_len} bytes"
        );
    }
}

#[test]
fn one_set_of_clients_runs_one_load_after_the_other() {
    let mut generator = Generator::connect(scenario(Workload::Pair { pairs: 5 })).unwrap();
    for messages in [100, 250, 1] {
        let outcome = generator
            .run(
                Load::Closed { window: 4 },
                Span::messages(messages),
                &Watch::default(),
                &mut |_| {},
            )
            .unwrap();
        assert!(outcome.counts.is_clean(), "{:?}", outcome.counts);
        assert_eq!(
            (outcome.counts.published, outcome.counts.delivered),
            (messages, messages)
        );
    }
}

#[test]
fn volleys_leave_together_and_arrive_whole() {
    let load = Load::Volleys { window: 10 };
    let outcome = run(scenario(Workload::Pair { pairs: 3 }), load, 300);
    assert!(outcome.counts.is_clean(), "{:?}", outcome.counts);
    assert_eq!(outcome.counts.delivered, 300);
}

#[test]
fn clients_over_several_nodes_reach_only_their_own() {
    // Two relays that know nothing of each other: with locality 0 nothing can arrive, and every message is counted lost.
    let nodes = vec![relay(), relay()];
    let attachment = thicket_bench::workload::Attachment::Locality0;
    let scenario = Scenario {
        nodes,
        attachment,
        prefix: "test".to_owned(),
        ..Scenario::new(Vec::new(), Workload::Pair { pairs: 3 })
    };
    let mut generator = Generator::connect(scenario).unwrap();
    let span = Span {
        drain: Duration::from_millis(50),
        ..Span::messages(12)
    };
    let outcome = generator
        .run(
            Load::Closed { window: 4 },
            span,
            &Watch::default(),
            &mut |_| {},
        )
        .unwrap();
    assert_eq!(
        (
            outcome.counts.published,
            outcome.counts.lost,
            outcome.counts.delivered
        ),
        (12, 12, 0)
    );
}

#[test]
fn a_refused_connection_is_told_in_words() {
    let free_port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let node = Node {
        namespace: None,
        name: free_port.to_string(),
        address: free_port,
    };
    let error =
        Generator::connect(Scenario::new(vec![node], Workload::Pair { pairs: 1 })).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot connect to {free_port}: ")),
        "{error}"
    );
}

#[test]
fn a_refused_subscription_is_told_with_its_reason() {
    let error = Generator::connect(scenario(Workload::Shared {
        publishers: 1,
        groups: 1,
        members: 2,
    }))
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("refused the subscription of test-s"),
        "{error}"
    );
    assert!(error.to_string().ends_with("(0x80)"), "{error}");
}

#[test]
fn threads_share_the_pairs_and_their_counts_add_up() {
    let mut fleet = Fleet::connect(scenario(Workload::Pair { pairs: 7 }), 3).unwrap();
    fleet.keep_samples(3000);
    let outcome = fleet
        .run(
            Load::Closed { window: 5 },
            Span::messages(1000),
            &Watch::default(),
            &mut |_| {},
        )
        .unwrap();
    assert!(outcome.counts.is_clean(), "{:?}", outcome.counts);
    assert_eq!(
        (outcome.counts.published, outcome.counts.delivered),
        (1000, 1000)
    );
    assert!(
        outcome.workload.ends_with("in 3 threads"),
        "{}",
        outcome.workload
    );
    // All arrivals, with numbers that are those of one workload.
    let samples = fleet.samples();
    assert_eq!((fleet.threads(), samples.len()), (3, 1000));
    assert!(samples.iter().all(|it| it.subscriber == it.stream));
    let mut streams: Vec<u32> = samples.iter().map(|it| it.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams, [0, 1, 2, 3, 4, 5, 6]);

    let fan_in = scenario(Workload::FanIn {
        publishers: 4,
        subscribers: 1,
    });
    let error = Fleet::connect(fan_in, 2).unwrap_err().to_string();
    assert!(error.contains("only pair can be shared out"), "{error}");
}

/// In front of a relay: passes bytes on, but ends its first connection after `most` bytes of the client, and the third without an answer.
fn faulty(relay: Node, most: usize) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pass = |mut from: TcpStream, mut to: TcpStream, most: usize| {
        std::thread::spawn(move || {
            let (mut buffer, mut passed) = ([0; 4096], 0);
            while passed < most
                && let Ok(len @ 1..) = from.read(&mut buffer)
                && to.write_all(&buffer[..len]).is_ok()
            {
                passed += len;
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        })
    };
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let client = client.unwrap();
            if number == 2 {
                continue;
            }
            let there = TcpStream::connect(relay.address).unwrap();
            let most = if number == 0 { most } else { usize::MAX };
            pass(
                client.try_clone().unwrap(),
                there.try_clone().unwrap(),
                most,
            );
            pass(there, client, usize::MAX);
        }
    });
    Node {
        namespace: None,
        name: address.to_string(),
        address,
    }
}

#[test]
fn a_client_that_loses_its_connection_makes_another_and_sends_what_was_not_acknowledged() {
    for reconnect in [true, false] {
        let workload = Workload::Pair { pairs: 1 };
        let scenario = Scenario {
            nodes: vec![faulty(relay(), 4000)],
            qos: Qos::AtLeastOnce,
            reconnect,
            ..scenario(workload)
        };
        let mut generator = Generator::connect(scenario).unwrap();
        generator.keep_samples(1000);
        let load = Load::Open {
            rate_per_s: 400.0,
            arrivals: Arrivals::Constant,
        };
        let span = Span {
            drain: Duration::from_secs(30),
            ..Span::messages(200)
        };
        let outcome = generator.run(load, span, &Watch::default(), &mut |_| {});
        if !reconnect {
            let error = outcome.expect_err("its connection ends");
            assert!(matches!(error, BenchError::Closed { .. }), "{error}");
            continue;
        }
        let counts = outcome.unwrap().counts;
        assert_eq!((counts.published, counts.lost), (200, 0), "{counts:?}");
        assert_eq!(counts.closed_connections, 1, "{counts:?}");
        assert_eq!(counts.refused_connections, 1, "{counts:?}");
        let mut acknowledged: Vec<u32> = generator
            .acknowledgements()
            .iter()
            .map(|it| it.number)
            .collect();
        acknowledged.sort_unstable();
        assert!(acknowledged.into_iter().eq(0..200), "each once");
    }
}
