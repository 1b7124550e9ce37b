//! More than one backup of each session: what is found when two nodes are gone at once.

use thicket_mqtt::{Connect, Packet, Unsubscribe};

use super::{
    V5,
    backups::{become_covered, send_again, subscriber_gone_from},
    cluster::{client_at, plain},
    id, resuming,
};
use thicket_simulation::{
    World,
    net::{Parting, Weather},
    node::NodeSpec,
};

/// The node that has the sessions.
const PRIMARY: usize = 1;
/// The others; two of them have backups.
const OTHERS: [usize; 3] = [0, 2, 3];

fn spec(workers: u8) -> NodeSpec {
    NodeSpec {
        backups: 2,
        ..NodeSpec::new(workers)
    }
}

/// A cluster with two backups of each session.
#[track_caller]
fn cluster(seed: u64, weather: Weather, nodes: u8) -> World {
    let mut world = World::new(seed, weather);
    for index in 0..nodes {
        let node = world.add_node(spec(1 + (index + seed as u8) % 2));
        world.start(node);
    }
    become_covered(&mut world);
    world
}

/// Plays a scenario on four nodes with one or two workers, in two kinds of weather.
#[track_caller]
fn play(scenario: impl Fn(&mut World)) {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        scenario(&mut cluster(seed, weather, 4));
    }
}

/// Backups that nodes hold, by node.
fn backups(world: &World) -> Vec<u64> {
    let of_node = |node| world.memory(node).iter().map(|it| it.backups).sum();
    (0..world.nodes.len()).map(of_node).collect()
}

/// Two nodes that live when the primary and another one are gone.
fn survivors(gone: usize) -> [usize; 2] {
    let left: Vec<usize> = OTHERS.into_iter().filter(|node| *node != gone).collect();
    [left[0], left[1]]
}

#[test]
fn nothing_is_lost_or_comes_twice_when_the_primary_and_any_other_node_die_one_after_the_other() {
    // Before, while and after the next node goes on with the session.
    for delay in [0, 1, 5, 20, 50] {
        for gone in OTHERS {
            play(|world| {
                let [one, other] = survivors(gone);
                subscriber_gone_from(world, PRIMARY);
                let publisher = client_at(world, one, Connect::new(V5, "publisher"), "CONNACK");
                world.publish(publisher, "a/1", "one", 1, 1);
                world.publish(publisher, "a/2", "two", 2, 2);
                world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
                world.kill(PRIMARY);
                world.run_for(delay);
                world.kill(gone);
                // The others may not even know it yet.
                world.publish(publisher, "a/3", "three", 1, 3);
                world.expect(publisher, &["PUBACK 3"]);
                let back = world.connect(other, resuming(V5, "away", 1000));
                world.run_for(2_000);
                let said = hear_unnumbered(world, back);
                let expected = [
                    "CONNACK present",
                    "PUBLISH a/1 'one' q1",
                    "PUBLISH a/2 'two' q2",
                    "PUBLISH a/3 'three' q1",
                ];
                let seed = world.net.seed;
                assert_eq!(said, expected, "{gone} gone after {delay} ms (seed {seed})");
                become_covered(world);
            });
        }
    }
}

#[test]
fn in_flight_messages_resume_when_two_nodes_have_died_at_once() {
    for gone in OTHERS {
        play(|world| {
            let [one, other] = survivors(gone);
            let client = client_at(world, PRIMARY, resuming(V5, "client", 1000), "CONNACK");
            world.subscribe(client, "a", 2);
            world.subscribe(client, "b", 1);
            world.send(
                client,
                &Packet::Unsubscribe(Unsubscribe::new(id(9), vec!["b"])),
            );
            world.expect(client, &["UNSUBACK 9 [00]"]);
            let publisher = client_at(world, one, Connect::new(V5, "publisher"), "CONNACK");
            for number in 1..=3 {
                world.publish(publisher, "a", &number.to_string(), 2, number);
            }
            world.expect(publisher, &["PUBREC 1", "PUBREC 2", "PUBREC 3"]);
            let heard = world.hear(client);
            assert_eq!(heard.len(), 3, "{heard:?}");
            world.send(client, &Packet::Pubrec(plain(1)));
            world.expect(client, &["PUBREL 1"]);
            world.send(client, &Packet::Pubrec(plain(2)));
            world.expect(client, &["PUBREL 2"]);
            become_covered(world);
            world.kill(PRIMARY);
            world.kill(gone);
            let back = world.connect(other, resuming(V5, "client", 1000));
            let expected = [
                "CONNACK present",
                "PUBREL 1",
                "PUBREL 2",
                "PUBLISH a '3' q2 #3 dup",
            ];
            world.expect(back, &expected);
            world.publish(publisher, "b", "not wanted", 1, 9);
            world.expect(publisher, &["PUBACK 9 0x10"]);
        });
    }
}

#[test]
fn a_publication_that_is_sent_again_after_two_deaths_is_not_taken_twice() {
    for gone in OTHERS {
        play(|world| {
            let [one, other] = survivors(gone);
            let subscriber = client_at(world, one, resuming(V5, "subscriber", 1000), "CONNACK");
            world.subscribe(subscriber, "a", 2);
            let publisher = client_at(world, PRIMARY, resuming(V5, "publisher", 1000), "CONNACK");
            become_covered(world);
            world.publish(publisher, "a", "x", 2, 7);
            world.expect(publisher, &["PUBREC 7"]);
            world.expect(subscriber, &["PUBLISH a 'x' q2 #1"]);
            world.kill(gone);
            world.kill(PRIMARY);
            let back = client_at(
                world,
                other,
                resuming(V5, "publisher", 1000),
                "CONNACK present",
            );
            send_again(world, back);
            world.expect(subscriber, &[]);
        });
    }
}

#[test]
fn one_backup_is_promoted_and_the_other_stays_a_backup() {
    play(|world| {
        for number in 0..20 {
            let name = format!("client-{number}");
            let client = client_at(world, PRIMARY, resuming(V5, &name, 1000), "CONNACK");
            world.subscribe(client, "a", 1);
            world.hang_up(client);
        }
        become_covered(world);
        let before = backups(world);
        assert_eq!(before.iter().sum::<u64>(), 40, "{before:?}");
        assert_eq!(before[PRIMARY], 0);
        world.kill(PRIMARY);
        become_covered(world);
        assert_eq!(world.sessions().len(), 20, "each of them once");
        assert_eq!(backups(world).iter().sum::<u64>(), 40);
        let merged = |node| -> u64 {
            world
                .traffic(node)
                .iter()
                .map(|it| it.merged_sessions)
                .sum()
        };
        let merged: Vec<u64> = OTHERS.into_iter().map(merged).collect();
        assert_eq!(merged, [0, 0, 0], "nobody else went on with one");
    });
}

#[test]
fn the_next_backup_is_promoted_if_the_first_one_has_lost_the_session() {
    let mut waited = 0;
    for number in 0..8 {
        let mut world = World::new(number, Weather::CALM);
        for _ in 0..4 {
            let node = world.add_node(spec(1));
            world.start(node);
        }
        become_covered(&mut world);
        let name = format!("client-{number}");
        let client = client_at(&mut world, PRIMARY, resuming(V5, &name, 1000), "CONNACK");
        let without = OTHERS.into_iter().find(|node| backups(&world)[*node] == 0);
        let without = without.expect("two of three have one");
        let watcher = client_at(&mut world, without, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "wanted/there", 1);
        // A backup goes to where the topic is wanted, and one of the other two ends; one of them does not hear which.
        let deaf = OTHERS.into_iter().find(|node| *node != without);
        world
            .net
            .part(PRIMARY, deaf.expect("the first of two"), Parting::Held);
        let subscribe = thicket_mqtt::Subscribe::new(id(1), "wanted/there", super::qos(1));
        world.send(client, &Packet::Subscribe(subscribe));
        world.run_for(30);
        world.kill(PRIMARY);
        let killed_at = world.net.now;
        let back = world.connect(without, resuming(V5, &name, 1000));
        let mut heard = Vec::new();
        let mut is_counted = false;
        while heard.is_empty() && world.net.now < killed_at + 9_000 {
            world.run_for(100);
            heard = world.tester(back).take_heard();
            let lacks = |node: usize| {
                let traffic = world.traffic(node);
                traffic.iter().any(|it| it.under_replicated_sessions > 0)
            };
            is_counted |= OTHERS.into_iter().any(lacks);
        }
        assert_eq!(heard, ["CONNACK present"], "client {number}");
        let has_waited = world.net.now > killed_at + 2_000;
        assert!(is_counted || !has_waited, "it has no primary, and counts");
        waited += usize::from(has_waited);
        become_covered(&mut world);
        let sessions = world.sessions().into_iter();
        let homes = sessions.filter(|(_, session)| session.client_id == name);
        assert_eq!(homes.count(), 1, "client {number}");
    }
    assert!(waited > 0, "none was found to have no backup");
}

#[test]
fn acknowledgements_wait_for_a_lagging_backup_until_it_is_removed() {
    let mut world = cluster(1, Weather::CALM, 3);
    let client = client_at(&mut world, PRIMARY, resuming(V5, "client", 1000), "CONNACK");
    become_covered(&mut world);
    world.publish(client, "a", "x", 2, 1);
    world.expect(client, &["PUBREC 1 0x10"]);
    // One of its two backups hears nothing any more, from anybody; that is not known yet.
    world.net.part(PRIMARY, 2, Parting::Held);
    world.net.part(0, 2, Parting::Held);
    world.send(client, &Packet::Pubrel(plain(1)));
    world.publish(client, "a", "y", 2, 2);
    world.run_for(300);
    assert_eq!(world.tester(client).take_heard(), Vec::<String>::new());
    let mut heard = Vec::new();
    for _ in 0..30 {
        heard.extend(world.hear(client));
    }
    assert_eq!(heard, ["PUBCOMP 1", "PUBREC 2 0x10"]);
    world.net.heal(PRIMARY, 2);
    world.net.heal(0, 2);
    become_covered(&mut world);
    assert_eq!(backups(&world), [1, 0, 1]);
}

#[test]
fn with_fewer_nodes_than_backups_all_have_one_and_a_node_that_comes_gets_its_own() {
    let mut world = World::new(1, Weather::CALM);
    for nodes in 1..=4_usize {
        let node = world.add_node(spec(1 + nodes as u8 % 2));
        world.start(node);
        if nodes == 2 {
            subscriber_gone_from(&mut world, PRIMARY);
        }
        become_covered(&mut world);
        let sum: u64 = backups(&world).iter().sum();
        let expected = match nodes {
            1 => 0,
            2 => 1,
            _ => 2,
        };
        assert_eq!(sum, expected, "{nodes} nodes: {:?}", backups(&world));
    }
    // A node fewer than wanted is gone: that is seen until another one has a backup.
    let holder = OTHERS.into_iter().find(|node| backups(&world)[*node] > 0);
    world.kill(holder.expect("two of them"));
    become_covered(&mut world);
    assert_eq!(backups(&world).iter().sum::<u64>(), 2);
}

#[test]
fn a_node_is_drained_and_its_sessions_keep_their_other_backups() {
    play(|world| {
        subscriber_gone_from(world, PRIMARY);
        let here = client_at(world, PRIMARY, resuming(V5, "here", 1000), "CONNACK");
        world.subscribe(here, "b", 2);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        world.publish(publisher, "a/1", "one", 1, 1);
        world.publish(publisher, "b", "two", 2, 2);
        world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
        assert_eq!(world.hear(here), ["PUBLISH b 'two' q2 #1"]);
        assert!(world.drain(PRIMARY), "nothing is left");
        assert_eq!(world.hear(here), ["DISCONNECT 0x9C", "closed"]);
        become_covered(world);
        assert_eq!(backups(world).iter().sum::<u64>(), 4);
        world.stop(PRIMARY);
        become_covered(world);
        let back = world.connect(2, resuming(V5, "here", 1000));
        world.expect(back, &["CONNACK present", "PUBLISH b 'two' q2 #1 dup"]);
        let back = world.connect(0, resuming(V5, "away", 1000));
        world.expect(back, &["CONNACK present", "PUBLISH a/1 'one' q1 #1"]);
        let sessions = world.sessions();
        assert_eq!(sessions.len(), 3, "{sessions:?}");
    });
}

/// A cluster whose nodes let their sessions have these numbers of backups.
#[track_caller]
fn mixed(seed: u64, weather: Weather, backups: &[u8]) -> World {
    let mut world = World::new(seed, weather);
    for (index, backups) in backups.iter().enumerate() {
        let mut spec = spec(1 + (index as u8 + seed as u8) % 2);
        spec.backups = *backups;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    world
}

/// Plays a scenario on such a cluster, in two kinds of weather.
#[track_caller]
fn play_mixed(backups: &[u8], scenario: impl Fn(&mut World)) {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        scenario(&mut mixed(seed, weather, backups));
    }
}

#[track_caller]
fn expect_backups(world: &World, expected: u64, when: &str) {
    let (backups, seed) = (backups(world), world.net.seed);
    let sum: u64 = backups.iter().sum();
    assert_eq!(sum, expected, "{when}: {backups:?} (seed {seed})");
}

/// What a tester hears in a second, without packet identifiers.
fn hear_unnumbered(world: &mut World, tester: thicket_simulation::TesterId) -> Vec<String> {
    let heard = world.hear(tester);
    let unnumbered = |said: &String| said.split(" #").next().unwrap_or_default().to_owned();
    heard.iter().map(unnumbered).collect()
}

#[test]
fn the_setting_of_the_primary_s_node_decides_the_number_of_backups() {
    play_mixed(&[0, 1, 2, 3], |world| {
        let mut expected = 0;
        for node in 0..4 {
            let name = format!("client-{node}");
            let client = client_at(world, node, resuming(V5, &name, 1000), "CONNACK");
            world.subscribe(client, "a", 1);
            become_covered(world);
            expected += node as u64;
            expect_backups(world, expected, &name);
        }
    });
}

#[test]
fn a_session_that_moves_has_as_many_backups_as_the_node_it_came_to_says() {
    play_mixed(&[0, 2, 1, 3], |world| {
        subscriber_gone_from(world, PRIMARY);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        for (number, (node, expected)) in (1..).zip([(0, 0), (2, 1), (3, 3), (1, 2), (2, 1)]) {
            world.publish(publisher, "a/1", &number.to_string(), 2, number);
            world.expect(publisher, &[&format!("PUBREC {number}")]);
            let back = world.connect(node, resuming(V5, "away", 1000));
            let heard = hear_unnumbered(world, back);
            let message = format!("PUBLISH a/1 '{number}' q2");
            assert_eq!(heard.first().map(String::as_str), Some("CONNACK present"));
            assert_eq!(heard.last(), Some(&message), "{heard:?}");
            world.hang_up(back);
            become_covered(world);
            expect_backups(world, expected, &format!("at node {node}"));
        }
    });
}

#[test]
fn after_failover_a_session_has_as_many_backups_as_its_new_primary_says() {
    for others in [0, 1, 2, 3] {
        play_mixed(&[others, 2, others, others], |world| {
            subscriber_gone_from(world, PRIMARY);
            expect_backups(world, 2, "at first");
            let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
            world.publish(publisher, "a/1", "one", 2, 1);
            world.expect(publisher, &["PUBREC 1"]);
            world.kill(PRIMARY);
            become_covered(world);
            let nodes_left = OTHERS.len() as u64 - 1;
            let expected = u64::from(others).min(nodes_left);
            expect_backups(world, expected, &format!("with {others} at the others"));
            let back = world.connect(2, resuming(V5, "away", 1000));
            let heard = hear_unnumbered(world, back);
            assert_eq!(heard, ["CONNACK present", "PUBLISH a/1 'one' q2"]);
        });
    }
}

#[test]
fn with_backups_0_no_earlier_backup_is_promoted_later() {
    play_mixed(&[0, 2, 0, 0], |world| {
        subscriber_gone_from(world, PRIMARY);
        world.kill(PRIMARY);
        become_covered(world);
        let home = |world: &World| world.sessions().first().map(|(node, _)| *node);
        let home = home(world).expect("one goes on");
        let back = client_at(world, home, resuming(V5, "away", 1000), "CONNACK present");
        let publisher = client_at(world, home, Connect::new(V5, "publisher"), "CONNACK");
        world.publish(publisher, "a/1", "one", 2, 1);
        world.expect(publisher, &["PUBREC 1"]);
        assert_eq!(world.hear(back).len(), 1);
        world.kill(home);
        let other = OTHERS.into_iter().find(|node| *node != home);
        let other = other.expect("two are left");
        world.run_for(5_000);
        let back = world.connect(other, resuming(V5, "away", 1000));
        assert_eq!(world.hear(back), ["CONNACK"]);
    });
}

#[test]
fn a_queue_is_found_when_the_node_it_leaves_dies_on_the_way_to_one_without_backups() {
    for delay in [0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 80] {
        play_mixed(&[0, 2, 0, 0], |world| {
            subscriber_gone_from(world, PRIMARY);
            let publisher = client_at(world, 2, Connect::new(V5, "publisher"), "CONNACK");
            world.publish(publisher, "a/1", "one", 1, 1);
            world.publish(publisher, "a/2", "two", 2, 2);
            world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
            let back = world.connect(0, resuming(V5, "away", 1000));
            world.run_for(delay);
            world.kill(PRIMARY);
            world.run_for(3_000);
            let heard = hear_unnumbered(world, back);
            let expected = [
                "CONNACK present",
                "PUBLISH a/1 'one' q1",
                "PUBLISH a/2 'two' q2",
            ];
            let seed = world.net.seed;
            assert_eq!(heard, expected, "after {delay} ms (seed {seed})");
            become_covered(world);
            assert_eq!(world.sessions().len(), 2, "after {delay} ms (seed {seed})");
        });
    }
}

#[test]
fn a_member_of_a_group_that_fails_over_gets_what_a_node_without_backups_accepted_meanwhile() {
    for delay in [0, 5, 20, 40, 60, 100] {
        play_mixed(&[0, 2, 2, 2], |world| {
            let away = client_at(world, PRIMARY, resuming(V5, "away", 1000), "CONNACK");
            world.subscribe(away, "$share/g/a", 1);
            world.hang_up(away);
            become_covered(world);
            let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
            world.kill(PRIMARY);
            world.run_for(delay);
            world.publish(publisher, "a", "x", 1, 1);
            world.run_for(3_000);
            assert_eq!(world.tester(publisher).take_heard(), ["PUBACK 1"]);
            let back = world.connect(2, resuming(V5, "away", 1000));
            let heard = hear_unnumbered(world, back);
            let seed = world.net.seed;
            let expected = ["CONNACK present", "PUBLISH a 'x' q1"];
            assert_eq!(heard, expected, "after {delay} ms (seed {seed})");
        });
    }
}
