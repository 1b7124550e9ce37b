//! What nodes say to each other beside messages, and what they keep, as topics and nodes grow.

use thicket_overlay::Overlay;
use thicket_overlay::routing::{RootPolicy, RoutingMode};

use crate::cluster::{Cluster, Delays, Dice, Routing, SECOND};

/// Control between five nodes over `seconds`, with a subscription and a publication for each topic.
fn control(mode: RoutingMode, topics: u64, seconds: u64) -> u64 {
    let mut cluster = Cluster::new(5, Routing::by(mode), Delays::wide(5, &mut Dice(7)));
    cluster.run_for(5 * SECOND);
    let before = cluster.bytes().1;
    let name = |topic| format!("topic-tree/{topic:04}/");
    (0..topics).for_each(|topic| cluster.subscribe((topic % 5) as usize, &name(topic)));
    cluster.run_for(2 * SECOND);
    (0..topics).for_each(|topic| cluster.publish(((topic + 1) % 5) as usize, &name(topic), 1024));
    cluster.run_for((seconds - 2) * SECOND);
    cluster.bytes().1 - before
}

/// By way of routing, and for a new topic.
pub fn run() {
    println!("control, 5 nodes");
    let (flood, topic) = (
        control(RoutingMode::Flood, 60, 500),
        control(RoutingMode::Topic, 60, 500),
    );
    let more = (topic as f64 / flood as f64 - 1.0) * 100.0;
    println!("  500 s, 60 topics: flood {flood} B, topic {topic} B, {more:+.1} %");
    let new =
        (control(RoutingMode::Topic, 180, 20) - control(RoutingMode::Topic, 60, 20)) / 120 / 5;
    println!("  a new topic (subscription, first publication, acknowledgements): {new} B a node");
    let idle = control(RoutingMode::Topic, 0, 100) / 100 / 10;
    println!("  idle: {idle} B/s a link, both directions, without TCP and IP");
}

/// Nodes from 5 to 50, topics from 100 to 10,000, three subscribers each.
pub fn growth() {
    println!(
        "growth (topic, balance; three subscribing nodes a topic and a publication; per node, kB = 1000 B)"
    );
    println!(
        "  nodes  topics  agreed after  control of the start  control a topic  trees  state     roots held  idle control"
    );
    for nodes in [5, 10, 20, 50] {
        for topics in [100, 1_000, 10_000] {
            grow(nodes, topics);
        }
    }
}

fn grow(nodes: usize, topics: u64) {
    let mut dice = Dice(50);
    let routing = Routing {
        mode: RoutingMode::Topic,
        policy: RootPolicy::Balance,
    };
    let delays = Delays::wide(nodes, &mut dice).rounded();
    let mut cluster = Cluster::new(nodes, routing, delays);
    let agreed = cluster.time_to_agree();
    cluster.run_for(2 * SECOND);
    let start = cluster.bytes().1;
    cluster.run_for(SECOND);
    let idle = cluster.bytes().1 - start;
    let mut publishers = Vec::new();
    for topic in 0..topics {
        let name = format!("site/{topic}/temp");
        let mut place = || dice.below(nodes as u64) as usize;
        (0..3).for_each(|_| cluster.subscribe(place(), &name));
        publishers.push((place(), name));
    }
    let begin = (cluster.now, cluster.bytes().1);
    cluster.run_for(2 * SECOND);
    for some in publishers.chunks(100) {
        some.iter()
            .for_each(|(index, name)| cluster.publish(*index, name, 100));
        cluster.run_for(SECOND / 10);
    }
    cluster.run_for(2 * SECOND);
    let seconds = (cluster.now - begin.0) / SECOND;
    let added = (cluster.bytes().1 - begin.1).saturating_sub(seconds * idle);
    let overviews: Vec<_> = cluster.nodes.iter().map(Overlay::overview).collect();
    let mean = |value: fn(&thicket_overlay::Overview) -> usize| {
        overviews.iter().map(value).sum::<usize>() / nodes
    };
    let roots: Vec<u64> = overviews[0].nodes.iter().map(|node| node.roots).collect();
    println!(
        "  {nodes:>5}  {topics:>6}  {:>9.0} ms  {:>17.1} kB  {:>13.0} B  {:>5}  {:>5} kB  {:>4} to {:<4}  {:>6.0} B/s",
        agreed.unwrap_or(f64::INFINITY),
        start as f64 / nodes as f64 / 1000.0,
        added as f64 / topics as f64 / nodes as f64,
        mean(|overview| overview.tree_count),
        mean(|overview| overview.tree_bytes) / 1000,
        roots.iter().min().copied().unwrap_or(0),
        roots.iter().max().copied().unwrap_or(0),
        idle as f64 / nodes as f64,
    );
}
