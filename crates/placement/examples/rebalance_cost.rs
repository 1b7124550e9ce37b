//! What a plan of moves gains and costs: Detti's Fig. 13 with 8 brokers, clients attached at random, one session each.
//!
//! `cargo run --release -p thicket-placement --example rebalance_cost`

// The library reads no clock; measuring it takes one.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use thicket_placement::{
    ArrivalOrder, Placeable, Random, RebalanceClient, RebalanceLimits, RebalanceNode, Setting,
    Situation, plan_moves, plan_placements,
};

fn main() -> Result<(), thicket_placement::ParameterError> {
    for (topics, subscribers, brokers) in [(5000, 5000, 8), (500, 500, 4), (5000, 5000, 3)] {
        let setting = Setting {
            topics,
            subscribers,
            brokers,
            ..Setting::figure_13()
        };
        let mut situation = scattered(&setting)?;
        for name in ["scattered", "settled"] {
            let started = Instant::now();
            let plan = plan_moves(&situation, RebalanceLimits::default())?;
            println!(
                "{} clients, {brokers} nodes, {name}: internal {:.0} -> {:.0} msg/s, Jain {:.4} -> {:.4}, {} moves, {:.1} ms",
                topics + subscribers,
                plan.before.internal,
                plan.after.internal,
                plan.before.jain,
                plan.after.jain,
                plan.moves.len(),
                started.elapsed().as_secs_f64() * 1000.0
            );
            if name == "scattered" {
                with_sessions(&situation)?;
            }
            for step in &plan.moves {
                situation.clients[step.client].node = step.to;
            }
        }
    }
    Ok(())
}

/// All clients may have four sessions.
fn with_sessions(situation: &Situation) -> Result<(), thicket_placement::ParameterError> {
    let client = |at| Placeable {
        sessions: vec![at],
        max_sessions: 4,
    };
    let clients: Vec<Placeable> = (0..situation.clients.len()).map(client).collect();
    let started = Instant::now();
    let plan = plan_placements(situation, &clients, RebalanceLimits::default())?;
    let took = started.elapsed().as_secs_f64() * 1000.0;
    if let Some(plan) = plan {
        let sessions = plan.clients.iter().map(|(_, sessions)| sessions.len());
        println!(
            "  placed anew with up to four sessions: internal {:.0} -> {:.0} msg/s, Jain {:.4} -> {:.4}, {} clients with {} sessions, {took:.1} ms",
            plan.before.internal,
            plan.after.internal,
            plan.before.jain,
            plan.after.jain,
            plan.clients.len(),
            sessions.sum::<usize>(),
        );
    }
    Ok(())
}

fn scattered(setting: &Setting) -> Result<Situation, thicket_placement::ParameterError> {
    let workload = setting.workload(ArrivalOrder::Random, 1)?;
    let mut random = Random::new(1, 7);
    let clients = workload.clients().map(|id| {
        let mut client = RebalanceClient {
            node: random.below(setting.brokers),
            rate: 0.0,
            publishes: Vec::new(),
            subscribes: Vec::new(),
            may_move: true,
        };
        for interest in workload.interests(id) {
            let rate = workload.rates()[interest.topic.index()];
            client.rate += rate;
            match interest.role.publish_rate() {
                Some(rate) => client.publishes.push((interest.topic, rate)),
                None => client.subscribes.push(interest.topic),
            }
        }
        client
    });
    let node = |key| RebalanceNode {
        key,
        capacity: 1.0,
        takes_clients: true,
        is_draining: false,
        unnamed_load: 0.0,
    };
    Ok(Situation {
        clients: clients.collect(),
        nodes: (0..setting.brokers as u64).map(node).collect(),
        topic_count: setting.topics,
        measured: Vec::new(),
        distances: thicket_placement::Distances::default(),
    })
}
