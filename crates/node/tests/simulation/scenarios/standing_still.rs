//! A node of a cluster with a majority that stands still while its sessions are promoted elsewhere.

use thicket_mqtt::{Acknowledgement, Packet, ReasonCode};
use thicket_node::Partition;

use super::{V5, backups::become_covered, cluster::client_at, id, merging::messages, resuming};
use thicket_simulation::{World, net::Weather, node::NodeSpec};

/// A publisher with much in flight leaves a node that stands still: its bytes wait there unread,
/// and it sends them again elsewhere. The node must not accept them when it goes on.
#[test]
fn what_waits_unread_at_a_node_that_stood_still_is_not_accepted_twice_with_a_majority() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        for workers in [1, 2] {
            let mut world = World::new(seed, weather);
            for _ in 0..3 {
                let mut spec = NodeSpec::new(workers);
                spec.partition = Partition::Majority;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            let subscriber = client_at(&mut world, 2, resuming(V5, "subscriber", 1000), "CONNACK");
            world.tester(subscriber).acknowledges = true;
            world.subscribe(subscriber, "t", 2);
            become_covered(&mut world);
            for (round, node) in [(0, 0), (1, 1)] {
                let (here, there) = (node, (node + 1) % 2);
                let publisher = world.connect(here, resuming(V5, "publisher", 1000));
                world.run_for(1_000);
                become_covered(&mut world);
                world.pause(here);
                let all: Vec<String> = (0..100).map(|it| format!("{round}-{it}")).collect();
                for (index, payload) in all.iter().enumerate() {
                    world.publish(publisher, "t", payload, 2, 1 + index as u16);
                }
                world.run_for(100);
                world.hang_up(publisher);
                world.run_for(3_000);
                let publisher = world.connect(there, resuming(V5, "publisher", 1000));
                world.run_for(2_000);
                for (index, payload) in all.iter().enumerate() {
                    world.publish(publisher, "t", payload, 2, 1 + index as u16);
                }
                world.run_for(1_000);
                world.resume(here);
                world.run_for(5_000);
                for index in 0..all.len() {
                    let packet_id = id(1 + index as u16);
                    let pubrel = Acknowledgement::new(packet_id, ReasonCode::Success);
                    world.send(publisher, &Packet::Pubrel(pubrel));
                }
                world.run_for(2_000);
                world.hang_up(publisher);
                become_covered(&mut world);
                let mut heard = messages(&mut world, subscriber);
                heard.sort();
                let mut expected: Vec<String> = all
                    .iter()
                    .map(|payload| format!("PUBLISH t '{payload}' q2"))
                    .collect();
                expected.sort();
                assert_eq!(
                    heard, expected,
                    "seed {seed}, {workers} workers, round {round}"
                );
            }
        }
    }
}
