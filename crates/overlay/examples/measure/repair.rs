//! How long it takes until all nodes agree on a tree: after a start, and after a node has ended.

use thicket_overlay::routing::RoutingMode;

use crate::cluster::{Cluster, Delays, Dice, End, MS, Routing, SECOND};

const DRAWS: u64 = 20;

fn print(name: &str, took: &[Option<f64>]) {
    let known: Vec<f64> = took.iter().copied().flatten().collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let most = known.iter().copied().fold(0.0, f64::max);
    let never = took.len() - known.len();
    println!(
        "  {name:<44} mean {mean:>6.1} ms, most {most:>6.1} ms{}",
        if never > 0 {
            format!(", {never} never")
        } else {
            String::new()
        }
    );
}

/// Convergence and repair of five nodes.
pub fn run() {
    println!(
        "until all nodes are in RUNTIME with one tree ({DRAWS} draws; nodes hear of each other at the start)"
    );
    for nodes in [2, 5, 10] {
        for (name, is_wide) in [("10 ms one way", true), ("0.1 ms one way", false)] {
            let took: Vec<_> = (0..DRAWS)
                .map(|seed| cluster(nodes, is_wide, seed).time_to_agree())
                .collect();
            print(&format!("{nodes} nodes start, links of {name}"), &took);
        }
    }
    for (name, how) in [("is killed", End::Killed), ("goes silent", End::Silent)] {
        for (links, is_wide) in [("10 ms one way", true), ("0.1 ms one way", false)] {
            let took: Vec<_> = (0..DRAWS).map(|seed| repair(how, is_wide, seed)).collect();
            print(&format!("one of 5 {name}, links of {links}"), &took);
        }
    }
}

fn cluster(nodes: usize, is_wide: bool, seed: u64) -> Cluster {
    let delays = if is_wide {
        Delays::wide(nodes, &mut Dice(seed))
    } else {
        Delays::same(nodes, MS / 10)
    };
    Cluster::new(nodes, Routing::by(RoutingMode::Topic), delays)
}

/// The root ends at some moment.
fn repair(how: End, is_wide: bool, seed: u64) -> Option<f64> {
    let mut cluster = cluster(5, is_wide, seed);
    cluster.run_for(3 * SECOND + Dice(seed).below(SECOND));
    let root = cluster.nodes[0].overview().single.root.0 as usize - 1;
    cluster.end(root, how);
    cluster.time_to_agree()
}
