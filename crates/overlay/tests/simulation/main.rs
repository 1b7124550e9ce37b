//! Whole clusters of overlays in one thread, in virtual time, from one seed.
//!
//! `THICKET_SIMULATION_SEEDS` says how many seeds each scenario runs (default 8); a failure names the scenario and the seed, and
//! belongs into `KEPT` from then on.

mod cluster;
mod network;
mod node;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use thicket_mqtt::Qos;

use cluster::{Cluster, Settings};

/// Seeds that failed once, by scenario.
const KEPT: &[(&str, u64)] = &[];

fn for_each_seed(scenario: &str, run: fn(u64)) {
    let count = std::env::var("THICKET_SIMULATION_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8);
    let kept = KEPT
        .iter()
        .filter(|(name, _)| *name == scenario)
        .map(|(_, seed)| *seed);
    for seed in kept.chain(0..count) {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("scenario {scenario:?} failed with seed {seed}");
            resume_unwind(cause);
        }
    }
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
        let context = format!("node {index}: {:#?}", life.events);
        assert_eq!(life.up.len(), count - 1, "all are up; {context}");
        assert!(life.overlay.is_ready(), "ready; {context}");
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

fn plain(_: &mut thicket_overlay::OverlayConfig) {}

#[test]
fn on_clean_links_nothing_is_lost_or_doubled_and_the_order_is_kept() {
    for_each_seed("clean", |seed| {
        let mut cluster = Cluster::new(
            seed,
            Settings {
                nodes: 3 + seed as usize % 3,
                delay: 8,
                configure: plain,
            },
        );
        work(&mut cluster, 3000, |_| {});
        settle_and_check(&mut cluster);
        for node in &mut cluster.nodes {
            assert_eq!(node.life().out_of_order, 0, "streams stay in order");
            assert_eq!(node.life().jumps, 0, "nobody is taken for somebody else");
        }
    });
}
