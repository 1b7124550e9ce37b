//! When the rebalancer looks at clients.

use std::time::Duration;

use thicket_node::{NodeLoad, RebalanceConfig, RebalanceMode};
use thicket_simulation::{World, net::Weather, node::NodeSpec};

use super::backups::become_covered;

const REST_S: u64 = 10;
/// Enough for a plan, if there is a reason for one.
const SOON_S: u64 = 5;

/// The nodes measure their loads each second; of the second one so many clients are left.
fn pass(world: &mut World, seconds: u64, left: u64) {
    for _ in 0..seconds {
        for node in 0..3 {
            let load = NodeLoad {
                connections: if node == 1 { left } else { 100 },
                ..NodeLoad::default()
            };
            world.set_load(node, load);
        }
        world.run_for(1000);
    }
}

/// Made by all nodes so far.
fn plans(world: &World) -> u64 {
    let machines = world.nodes.iter().filter_map(|it| it.machines.as_ref());
    machines
        .map(|it| it.hub.view().rebalance_counts().plans)
        .sum()
}

#[test]
fn nobody_is_moved_while_a_node_drains_and_until_its_clients_have_rested() {
    for seed in 1..4 {
        let mut world = World::new(seed, Weather::CALM);
        for _ in 0..3 {
            let mut spec = NodeSpec::new(1);
            spec.redirection.rebalance = RebalanceConfig {
                mode: RebalanceMode::On,
                rest: Duration::from_secs(REST_S),
                interval: Duration::from_secs(1),
                noise: 0,
            };
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        pass(&mut world, SOON_S, 100);
        assert!(plans(&world) > 0, "the rebalancer looks when it starts");
        assert!(world.drain(1), "no session is left");
        // A plan that was being made.
        world.run_for(200);
        let before = plans(&world);
        pass(&mut world, 3 * REST_S, 50);
        assert_eq!(plans(&world), before, "while it drains");
        pass(&mut world, REST_S - 2, 0);
        assert_eq!(plans(&world), before, "until they have rested");
        pass(&mut world, SOON_S, 0);
        assert!(plans(&world) > before, "a node has gone");
    }
}
