//! What a thread was handed and has not taken is bounded: clients that publish wait, and other nodes get no credit.

use thicket_mqtt::{Connect, Publish};

use super::{V5, cluster::become_whole};
use thicket_simulation::{TesterId, World, net::Weather, node::NodeSpec};

/// Bytes of a message: two hundred fill a thread twice.
const PAYLOAD: usize = 100_000;
const MESSAGES: usize = 200;
/// What a thread may be handed, and what one more round of its sender adds at most: all that a publisher's socket holds.
const BOUND: u64 = 12 * 1024 * 1024;
/// The thread of the subscriber does nothing for so long, ms.
const BUSY: u64 = 2_000;

fn spec(workers: u8) -> NodeSpec {
    let mut spec = NodeSpec::new(workers);
    spec.limits.out_buffer_bytes = u32::MAX;
    spec.limits.relocate_after = u32::MAX;
    spec
}

/// A client of this worker of a node.
fn client_of(world: &mut World, node: usize, worker: u8) -> TesterId {
    for number in 0..100 {
        let client_id = format!("client-{node}-{worker}-{number}");
        let client = world.connect(node, Connect::new(V5, &client_id));
        world.expect(client, &["CONNACK"]);
        let sessions = world.sessions();
        let own = sessions
            .iter()
            .find(|(_, session)| session.client_id == client_id);
        if own.is_some_and(|(_, session)| session.worker == worker) {
            return client;
        }
        world.hang_up(client);
        world.run_for(100);
    }
    panic!("no client came to worker {worker}");
}

/// Publishes all messages, while the thread of the subscriber does nothing for a while. Returns the most that it was handed.
fn publish_to_busy(world: &mut World, publisher: TesterId, node: usize) -> u64 {
    let payload = vec![b'x'; PAYLOAD];
    for _ in 0..MESSAGES {
        let publish = Publish::new("a", &payload);
        world.send(publisher, &thicket_mqtt::Packet::Publish(publish));
    }
    let until = world.net.now + BUSY;
    world.net.keep_busy(node, 1, until);
    let mut most = 0;
    while world.net.now < until {
        world.run_for(20);
        let by_workers = world
            .memory(node)
            .iter()
            .map(|it| it.handed_bytes)
            .sum::<u64>();
        most = most.max(by_workers + world.hub_memory(node).handed_bytes);
    }
    most
}

fn received(world: &mut World, subscriber: TesterId) -> usize {
    let heard = world.tester(subscriber).take_heard();
    heard
        .iter()
        .filter(|said| said.starts_with("PUBLISH"))
        .count()
}

#[test]
fn publishers_wait_while_a_worker_is_behind() {
    for seed in 1..=2 {
        let mut world = World::new(seed, Weather::CALM);
        let node = world.add_node(spec(2));
        world.start(node);
        let subscriber = client_of(&mut world, node, 1);
        world.subscribe(subscriber, "a", 0);
        let publisher = client_of(&mut world, node, 0);
        let most = publish_to_busy(&mut world, publisher, node);
        assert!(most > 4 << 20, "seed {seed}: it was handed {most} bytes");
        assert!(most <= BOUND, "seed {seed}: it was handed {most} bytes");
        world.run_for(20_000);
        assert_eq!(received(&mut world, subscriber), MESSAGES, "seed {seed}");
    }
}

#[test]
fn a_node_drops_at_qos_0_what_a_worker_of_another_node_does_not_take() {
    for seed in 1..=2 {
        let mut world = World::new(seed, Weather::CALM);
        for workers in 1..=2 {
            let node = world.add_node(spec(workers));
            world.start(node);
        }
        become_whole(&mut world);
        let subscriber = client_of(&mut world, 1, 1);
        world.subscribe(subscriber, "a", 0);
        let publisher = client_of(&mut world, 0, 0);
        let most = publish_to_busy(&mut world, publisher, 1);
        assert!(most > 4 << 20, "seed {seed}: it was handed {most} bytes");
        // What is under way has credit too.
        assert!(
            most <= BOUND + (8 << 20),
            "seed {seed}: it was handed {most} bytes"
        );
        world.run_for(20_000);
        let dropped: u64 = world.traffic(0).iter().map(|it| it.dropped_messages).sum();
        let received = received(&mut world, subscriber) as u64;
        assert!(dropped > 0, "seed {seed}: none was dropped");
        assert_eq!(received + dropped, MESSAGES as u64, "seed {seed}");
        // The credit is there again.
        world.publish(publisher, "a", "later", 0, 0);
        world.expect(subscriber, &["PUBLISH a 'later'"]);
    }
}
