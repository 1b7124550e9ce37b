//! Whole clusters of overlays in one thread, in virtual time, from one seed.
//!
//! `THICKET_SIMULATION_SEED` plays one seed of each scenario; `THICKET_SIMULATION_SEEDS` says how many seeds each scenario runs (default 16); a failure names the scenario and the seed, and
//! belongs into `KEPT` from then on.

mod cluster;
mod network;
mod node;

use std::panic::{catch_unwind, resume_unwind};

use thicket_mqtt::Qos;

use cluster::{Cluster, Settings};
use thicket_overlay::routing::RoutingMode;

/// Seeds that failed once, by scenario.
const KEPT: &[(&str, u64)] = &[
    // Records without numbers waited behind a numbered one that waited for their credit.
    ("everything", 246),
];

/// What happened in the last life of every node: shows that a scenario is about what it says.
#[derive(Default)]
struct Tally {
    messages: usize,
    resends: u64,
    duplicates: u64,
    jumps: usize,
    gone: usize,
    relayed: u64,
    tunnels: u64,
}

impl Tally {
    fn add(&mut self, cluster: &mut Cluster) {
        for node in &mut cluster.nodes {
            let life = node.life();
            self.messages += life.delivered.len();
            self.jumps += life.jumps;
            self.gone += life.went_out.len();
            self.relayed += life.overlay.counters().relayed_messages;
            self.tunnels += life.overlay.counters().tunnels;
            for status in life.overlay.nodes() {
                self.resends += status.counters.resends;
                self.duplicates += status.counters.duplicates;
            }
        }
    }
}

/// Runs a scenario for every seed; answers what happened in all of them.
fn for_each_seed(scenario: &str, run: fn(u64) -> Cluster) -> Tally {
    let count = std::env::var("THICKET_SIMULATION_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(16);
    let kept = KEPT
        .iter()
        .filter(|(name, _)| *name == scenario)
        .map(|(_, seed)| *seed);
    let mut tally = Tally::default();
    let only = std::env::var("THICKET_SIMULATION_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = only.map_or_else(|| kept.chain(0..count).collect(), |seed| vec![seed]);
    for seed in seeds {
        match catch_unwind(|| run(seed)) {
            Ok(mut cluster) => tally.add(&mut cluster),
            Err(cause) => {
                eprintln!("scenario {scenario:?} failed with seed {seed}");
                resume_unwind(cause);
            }
        }
    }
    tally
}

/// Everything at once for a while: interests, messages, control.
fn work(cluster: &mut Cluster, millis: u64, mut fault: impl FnMut(&mut Cluster)) {
    let end = cluster.now + millis;
    while cluster.now < end {
        let pause = 1 + cluster.dice.below(12);
        cluster.run_until(cluster.now + pause);
        let index = cluster.dice.below(cluster.nodes.len() as u64) as usize;
        if cluster.nodes[index].is_alive {
            for _ in 0..cluster.dice.below(4) {
                match cluster.dice.below(16) {
                    0..6 => cluster.forward(index, Qos::AtLeastOnce),
                    6..9 => cluster.forward(index, Qos::AtMostOnce),
                    9 => cluster.rematch(index),
                    10..13 => cluster.change_interest(index),
                    _ => cluster.send_control(index),
                }
            }
            cluster.end_round(index);
        }
        fault(cluster);
    }
}

/// Everything heals, and after a while everything holds that should.
fn settle_and_check(cluster: &mut Cluster) {
    cluster.network.blocked.clear();
    for index in 0..cluster.nodes.len() {
        if !cluster.nodes[index].is_alive {
            let incarnation = cluster.nodes[index].incarnation + 1;
            cluster.start(index, incarnation);
        }
    }
    cluster.run_until(cluster.now + 30_000);
    let count = cluster.nodes.len();
    let ids: Vec<_> = cluster.nodes.iter().map(|node| node.id).collect();
    let context = history(cluster);
    let owners: Vec<_> = (0..count)
        .map(|index| cluster.nodes[index].life().own.clone())
        .collect();
    for index in 0..count {
        for other in 0..index {
            assert_eq!(
                cluster.network.open_between(index, other),
                1,
                "links between {index} and {other}"
            );
        }
        let life = cluster.nodes[index].life();
        assert_eq!(
            life.up.len(),
            count - 1,
            "all are up at node {index}; {context}"
        );
        assert!(life.overlay.is_ready(), "node {index} is ready; {context}");
        for (slot, table) in &life.tables {
            let node = life.overlay.node_of(*slot).expect("up");
            let other = ids.iter().position(|id| *id == node).expect("one of ours");
            assert_eq!(*table, owners[other], "table of {other} at node {index}");
        }
        let counters = life.overlay.counters();
        assert_eq!(
            (
                counters.unacknowledged_messages,
                counters.unacknowledged_bytes
            ),
            (0, 0),
            "all is acknowledged; {context}"
        );
        assert!(
            life.sent.values().all(|sent| sent.is_acknowledged),
            "all is acknowledged; {context}"
        );
        for status in life.overlay.nodes() {
            assert_eq!(
                status.counters.refused, 0,
                "nobody breaks a rule; {context}"
            );
        }
    }
    check_delivered(cluster);
    check_control(cluster);
}

/// What every node would have logged.
fn history(cluster: &Cluster) -> String {
    let mut lines = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        lines.push(format!("node {index} ({})", node.id));
        for (number, life) in node.lives.iter().enumerate() {
            lines.extend(
                life.events
                    .iter()
                    .map(|event| format!("  life {number}: {event}")),
            );
        }
    }
    lines.join("\n")
}

/// What was acknowledged without excuse is there; deliveries were checked to come once when they came.
fn check_delivered(cluster: &Cluster) {
    for (index, node) in cluster.nodes.iter().enumerate() {
        let life_number = node.lives.len() - 1;
        for ((stream, number), sent) in node.lives.last().into_iter().flat_map(|life| &life.sent) {
            let name = (index, life_number, *stream, *number);
            for (other, other_life) in sent.destinations.values() {
                let delivered = &cluster.nodes[*other].lives[*other_life].delivered;
                assert!(
                    delivered.contains(&name),
                    "{name:?} never reached node {other}"
                );
            }
        }
    }
}

/// Control between two nodes that never gave each other up came whole.
fn check_control(cluster: &Cluster) {
    for (index, node) in cluster.nodes.iter().enumerate() {
        let life = node.lives.last().expect("started");
        for (slot, count) in &life.control_sent {
            let other = life.overlay.node_of(*slot).expect("known");
            let other = cluster
                .nodes
                .iter()
                .find(|node| node.id == other)
                .and_then(|node| node.lives.last())
                .expect("ours");
            let back = other.overlay.slot_of(node.id).expect("known");
            let excused = other.control_lost.contains(&back)
                || life.control_lost.contains(slot)
                || !life.never_out(slot)
                || !other.never_out(&back);
            if !excused {
                let received = other.control_received.get(&back).map_or(0, Vec::len);
                assert_eq!(
                    received as u64, *count,
                    "control from node {index} in slot {slot:?}"
                );
            }
        }
    }
}

fn calm(nodes: usize, mode: RoutingMode) -> Settings {
    Settings {
        mode,
        nodes,
        delay: 8,
        is_calm: true,
        configure: plain,
    }
}

/// Every way to route has its turn.
fn mode_of(seed: u64) -> RoutingMode {
    RoutingMode::ALL[(seed % 4) as usize]
}

fn plain(_: &mut thicket_overlay::OverlayConfig) {}

#[test]
fn on_clean_links_nothing_is_lost_or_doubled_and_the_order_is_kept() {
    let tally = for_each_seed("clean", |seed| {
        let mut cluster = Cluster::new(seed, calm(3 + seed as usize % 3, mode_of(seed)));
        // One comes when the others are at work already.
        cluster.kill(1, false);
        work(&mut cluster, 1000, |_| {});
        cluster.start(1, 2);
        work(&mut cluster, 2000, |_| {});
        settle_and_check(&mut cluster);
        let context = history(&cluster);
        for node in &mut cluster.nodes {
            // Over trees only the order of a topic is kept, and a stream has many.
            let is_mesh = mode_of(seed) == RoutingMode::Mesh;
            assert!(
                !is_mesh || node.life().out_of_order == 0,
                "streams stay in order"
            );
            assert_eq!(node.life().jumps, 0, "nobody is taken for somebody else");
            let resends: u64 = node
                .life()
                .overlay
                .nodes()
                .iter()
                .map(|status| status.counters.resends)
                .sum();
            assert_eq!(resends, 0, "nothing is sent twice; {context}");
        }
        cluster
    });
    assert!(tally.messages > 0 && tally.resends == 0 && tally.gone == 0);
}

#[test]
fn a_node_that_joins_many_gets_each_record_about_once() {
    let nodes = 20;
    let mut cluster = Cluster::new(1, calm(nodes, RoutingMode::Mesh));
    cluster.run_until(cluster.now + 3000);
    cluster.kill(1, false);
    cluster.run_until(cluster.now + 3000);
    cluster.start(1, 2);
    let now = thicket_session::time::Instant::from_millis(cluster.now);
    for index in 2..nodes {
        let address = cluster.nodes[index].address.clone();
        let address = thicket_overlay::Input::Discovered { address: &address };
        cluster.nodes[1].life().overlay.handle_input(now, address);
    }
    cluster.end_round(1);
    // Until then links carry little else.
    cluster.run_until(cluster.now + 500);
    let statuses = cluster.nodes[1].life().overlay.nodes();
    assert!(statuses.len() == nodes && statuses.iter().all(|status| status.is_up));
    let came: u64 = statuses.iter().map(|it| it.counters.control_in_bytes).sum();
    // A record of a node with so many links is longer than this; over each link all of them would be `others` times as much.
    let (record, others) = (10 * nodes as u64, nodes as u64 - 1);
    assert!(came < others * others * record / 2, "{came} bytes");
}

/// A link breaks: what was on its way is lost.
fn cut_a_link(cluster: &mut Cluster) {
    let open = |wire: &network::Wire| {
        wire.ends
            .iter()
            .all(|end| end.is_open && end.link.is_some())
    };
    let wires: Vec<_> = (0..cluster.network.wires.len())
        .filter(|at| open(&cluster.network.wires[*at]))
        .collect();
    let chosen = cluster.dice.below(wires.len() as u64) as usize;
    if let Some(wire) = wires.get(chosen) {
        cluster.network.cut(cluster.now, *wire);
    }
}

#[test]
fn over_links_that_break_nothing_is_lost_or_doubled() {
    let tally = for_each_seed("breaking links", |seed| {
        let mut cluster = Cluster::new(
            seed,
            Settings {
                mode: mode_of(seed),
                nodes: 2 + seed as usize % 3,
                delay: 8,
                is_calm: false,
                configure: plain,
            },
        );
        work(&mut cluster, 4000, |cluster| {
            if cluster.dice.one_in(60) {
                cut_a_link(cluster);
            }
        });
        settle_and_check(&mut cluster);
        for node in &mut cluster.nodes {
            let events = node.life().events.join("\n");
            assert!(
                node.life().went_out.is_empty(),
                "a broken link is no reason to give a node up:\n{events}"
            );
        }
        cluster
    });
    assert!(
        tally.resends > 0 && tally.duplicates > 0,
        "links broke while messages were on their way"
    );
}

#[test]
fn partitions_heal_without_help() {
    let tally = for_each_seed("partitions", |seed| {
        let nodes = 3 + seed as usize % 3;
        let mut cluster = Cluster::new(
            seed,
            Settings {
                mode: mode_of(seed),
                nodes,
                delay: 8,
                is_calm: false,
                configure: plain,
            },
        );
        work(&mut cluster, 6000, |cluster| {
            if cluster.dice.one_in(150) {
                cluster.network.blocked.clear();
                let sides = cluster.dice.next();
                let is_partial = cluster.dice.one_in(3);
                for a in 0..nodes {
                    for b in 0..a {
                        let is_apart = sides >> a & 1 != sides >> b & 1;
                        if is_apart && !(is_partial && cluster.dice.one_in(2)) {
                            cluster.network.block(a, b);
                        }
                    }
                }
            }
        });
        settle_and_check(&mut cluster);
        cluster
    });
    assert!(tally.gone > 0, "partitions lasted");
    assert!(
        tally.relayed > 0 && tally.tunnels > 0,
        "messages and links went over others"
    );
}

#[test]
fn nodes_that_die_and_return_are_taken_for_what_they_are() {
    let tally = for_each_seed("restarts", |seed| {
        let mut cluster = Cluster::new(
            seed,
            Settings {
                mode: mode_of(seed),
                nodes: 3 + seed as usize % 2,
                delay: 8,
                is_calm: false,
                configure: plain,
            },
        );
        work(&mut cluster, 8000, |cluster| {
            if cluster.dice.one_in(200) {
                let index = cluster.dice.below(cluster.nodes.len() as u64) as usize;
                let node = &cluster.nodes[index];
                if node.is_alive {
                    let quietly = cluster.dice.one_in(3);
                    cluster.kill(index, quietly);
                } else {
                    // Sometimes a clock went back, or a disk was restored: the incarnation is used already.
                    let stale = cluster.dice.below(4);
                    let incarnation = node.incarnation;
                    cluster.start(
                        index,
                        if stale == 0 {
                            incarnation
                        } else {
                            incarnation.saturating_sub(1) + stale
                        },
                    );
                }
            }
        });
        settle_and_check(&mut cluster);
        cluster
    });
    assert!(
        tally.jumps > 0 && tally.gone > 0,
        "incarnations were used again"
    );
}

#[test]
fn everything_at_once() {
    let tally = for_each_seed("everything", |seed| {
        let settings = Settings {
            mode: mode_of(seed),
            nodes: 4,
            delay: 20,
            is_calm: false,
            configure: |config| {
                config.links_are_proved = true;
                config.limits.credit_bytes = 100_000;
                config.limits.out_buffer_bytes = 30_000;
                config.limits.batch_bytes = 8_000;
                config.limits.interest_changes = 4;
            },
        };
        let mut cluster = Cluster::new(seed, settings);
        work(&mut cluster, 8000, |cluster| {
            match cluster.dice.below(500) {
                0 => cut_a_link(cluster),
                1 => {
                    let (a, b) = (
                        cluster.dice.below(4) as usize,
                        cluster.dice.below(4) as usize,
                    );
                    cluster.network.block(a, b);
                }
                2 | 3 => cluster.network.blocked.clear(),
                4 => {
                    let index = cluster.dice.below(4) as usize;
                    let incarnation = cluster.nodes[index].incarnation + 1;
                    if cluster.nodes[index].is_alive {
                        let quietly = cluster.dice.one_in(2);
                        cluster.kill(index, quietly);
                    } else {
                        cluster.start(index, incarnation);
                    }
                }
                _ => {}
            }
        });
        settle_and_check(&mut cluster);
        cluster
    });
    assert!(tally.resends > 0 && tally.gone > 0);
}
