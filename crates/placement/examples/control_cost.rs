//! What a full restart costs the placer: 2,500 publishers and 2,500 subscribers of 10 topics each ask one after the other, with up to four
//! sessions at four nodes. Prints the time of all and of the last hundred, and the overhead h that follows. Then the time of the largest request, and of
//! the same once more.
//!
//! `cargo run --release -p thicket-placement --example control_cost`

// The library reads no clock; measuring it takes one.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use thicket_placement::{Asked, ControlPlane, Wanted, overhead};

const TOPICS: u64 = 2_500;
const SUBSCRIBERS: u64 = 2_500;
const WANTED: u64 = 10;
const LARGEST: u64 = 100_000;

fn main() {
    let nodes = [1, 2, 3, 4].into();
    let mut control = ControlPlane::new(&nodes, 1.1).expect("there are nodes");
    let mut clients: Vec<Asked> = (0..TOPICS).map(publisher).collect();
    clients.extend((0..SUBSCRIBERS).map(subscriber));
    // All come at once: in no order.
    let mut state = 1_u64;
    for last in (1..clients.len()).rev() {
        clients.swap(last, next(&mut state) as usize % (last + 1));
    }
    let began = Instant::now();
    let mut last_hundred = began;
    for (number, client) in clients.iter().enumerate() {
        if number + 100 == clients.len() {
            last_hundred = Instant::now();
        }
        control.place(client).expect("rates are good");
    }
    let cluster = control.cluster();
    let external: f64 = cluster
        .traffic()
        .brokers
        .iter()
        .map(|it| it.external_out)
        .sum();
    println!(
        "{} clients in {:.3} s, the last hundred in {:.4} s; internal {} msg/s, h {:.4}",
        clients.len(),
        began.elapsed().as_secs_f64(),
        last_hundred.elapsed().as_secs_f64(),
        cluster.internal(),
        overhead(cluster.internal(), external)
    );
    for when in ["first", "again"] {
        let began = Instant::now();
        control.place(&largest()).expect("rates are good");
        let seconds = began.elapsed().as_secs_f64();
        println!("a client with {LARGEST} topics, {when}: {seconds:.3} s");
    }
}

fn largest() -> Asked {
    let wanted = |topic| Wanted {
        filter: format!("many/{topic}"),
        best: None,
        rate: None,
    };
    Asked {
        client_id: "largest".into(),
        publish: Vec::new(),
        subscribe: (0..LARGEST).map(wanted).collect(),
        max_sessions: 4,
        home: None,
    }
}

fn publisher(number: u64) -> Asked {
    Asked {
        client_id: format!("p{number}"),
        publish: vec![(format!("user/{number}"), Some(0.2))],
        subscribe: Vec::new(),
        max_sessions: 4,
        home: None,
    }
}

fn subscriber(number: u64) -> Asked {
    let mut state = number + 1;
    // Low numbers are wanted most.
    let topics = (0..WANTED).map(|_| {
        let share = (next(&mut state) % 10_000) as f64 / 10_000.0;
        (share.powi(4) * TOPICS as f64) as u64
    });
    let mut topics: Vec<u64> = topics.collect();
    topics.sort_unstable();
    topics.dedup();
    let wanted = |topic: u64| Wanted {
        filter: format!("user/{topic}"),
        best: None,
        rate: None,
    };
    Asked {
        client_id: format!("s{number}"),
        publish: Vec::new(),
        subscribe: topics.into_iter().map(wanted).collect(),
        max_sessions: 4,
        home: None,
    }
}

/// splitmix64.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
