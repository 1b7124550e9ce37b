//! Publishers with a subscriber each, as `thicket bench placement --pattern pairs` has them.

use thicket_placement::{Asked, ControlPlane, Random, Wanted};

const PAIRS: u32 = 400;

fn asked(client_id: String, sessions: usize) -> Asked {
    Asked {
        client_id,
        publish: Vec::new(),
        subscribe: Vec::new(),
        max_sessions: sessions,
        home: None,
    }
}

/// They come one by one, by rank; returns the messages a second between nodes.
fn internal(rank: &mut dyn FnMut(u32) -> [u64; 2], rate: fn(u32) -> f64, sessions: usize) -> f64 {
    let mut control = ControlPlane::new(&[1, 2, 3, 4].into(), 1.1).unwrap();
    let mut comes: Vec<(u64, u32, bool)> = Vec::new();
    for pair in 0..PAIRS {
        let [publisher, subscriber] = rank(pair);
        comes.extend([(publisher, pair, true), (subscriber, pair, false)]);
    }
    comes.sort_unstable();
    for (_, pair, publishes) in comes {
        let topic = format!("pair/{pair}");
        let mut asked = asked(format!("{pair} {publishes}"), sessions);
        if publishes {
            asked.publish.push((topic, Some(rate(pair))));
        } else {
            asked.subscribe.push(Wanted {
                filter: topic,
                best: None,
                rate: None,
            });
        }
        control.place(&asked).unwrap();
    }
    control.cluster().traffic().internal()
}

#[test]
fn pairs_meet_at_one_node_in_whatever_order_they_come() {
    let even = |_: u32| 5.0;
    let uneven = |pair: u32| 1.0 + f64::from(pair % 17);
    for sessions in [1, 4] {
        for (name, rate) in [("even", even as fn(u32) -> f64), ("uneven", uneven)] {
            let mut random = Random::new(7, 0);
            let mut drawn = |_: u32| [0; 2].map(|_| random.next_u64());
            let in_order: [fn(u32) -> [u64; 2]; 3] = [
                |pair| [pair, 1000 + pair].map(u64::from),
                |pair| [1000 + pair, pair].map(u64::from),
                |pair| [2 * pair, 2 * pair + 1].map(u64::from),
            ];
            for mut rank in in_order {
                assert_eq!(
                    internal(&mut rank, rate, sessions),
                    0.0,
                    "{sessions} {name}"
                );
            }
            // Now and then the node of the one has no capacity within gamma for the other.
            let all: f64 = (0..PAIRS).map(rate).sum();
            let crossing = internal(&mut drawn, rate, sessions);
            assert!(
                crossing <= 0.03 * all,
                "{sessions} {name}: {crossing} of {all}"
            );
        }
    }
}
