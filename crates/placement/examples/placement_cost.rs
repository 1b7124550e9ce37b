//! What placing one client costs in time, and what a hundred thousand clients cost in memory.
//!
//! `cargo run --release -p thicket-placement --example placement_cost -- [brokers] [subscribers] [topics]`

// The library reads no clock; measuring it takes one.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use thicket_placement::{ArrivalOrder, Cluster, MatchingOptions, Placer, Setting, StrategyKind};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse())
        .collect::<Result<_, _>>()?;
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let setting = Setting {
        brokers: number(0, 8),
        subscribers: number(1, 5000),
        topics: number(2, 5000),
        ..Setting::figure_13()
    };
    let workload = setting.workload(ArrivalOrder::Random, 1)?;
    let mut cluster = Cluster::new(setting.brokers)?;
    for rate in workload.rates() {
        cluster.add_topic(*rate)?;
    }
    let strategy = StrategyKind::Thicket.build(setting.limits()?, MatchingOptions::default(), 1);
    let mut placer = Placer::new(cluster, strategy);
    let before = resident_bytes();
    let mut micros = Vec::with_capacity(setting.subscribers);
    for client in workload.clients() {
        let interests = workload.interests(client);
        let start = Instant::now();
        placer.arrive(client, &interests)?;
        if workload.is_subscriber(client) {
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    micros.sort_by(f64::total_cmp);
    println!(
        "{} brokers, {} subscribers of 10 of {} topics, 4 sessions: {:.1} us to place one (median), {:.1} us at most for 9 of 10",
        setting.brokers,
        setting.subscribers,
        setting.topics,
        micros[micros.len() / 2],
        micros[micros.len() * 9 / 10],
    );
    println!(
        "resident memory: {} MB in all, {} MB more than before the first client; h_rt {:.4}",
        resident_bytes() / 1_000_000,
        (resident_bytes() - before) / 1_000_000,
        placer.cluster().traffic().routing_overhead(),
    );
    Ok(())
}

/// 0 where there is no `/proc`.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    resident.unwrap_or(0) * 4096
}
