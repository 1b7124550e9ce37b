//! Two nodes that are partitioned while each has every session, and what becomes of the sessions when the partition heals.

use thicket_mqtt::{Connect, Disconnect, Packet, Publish, ReasonCode, Subscribe, Unsubscribe};
use thicket_node::Partition;

use super::{
    V5,
    backups::{become_covered, subscriber_gone_from},
    cluster::{client_at, plain},
    id, qos, resuming,
};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

/// Plays a scenario on two nodes with one or two workers, partitioned in both ways.
#[track_caller]
fn play(scenario: impl Fn(&mut World, Parting)) {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        for parting in [Parting::Cut, Parting::Held] {
            let mut world = World::new(seed, weather);
            for index in 0..2_u8 {
                let node = world.add_node(NodeSpec::new(1 + (index + seed as u8) % 2));
                world.start(node);
            }
            become_covered(&mut world);
            scenario(&mut world, parting);
        }
    }
}

/// Nodes with so many workers each, and two backups of each session.
fn with_two_backups(seed: u64, weather: Weather, workers: [u8; 4]) -> World {
    let mut world = World::new(seed, weather);
    for workers in workers {
        let node = world.add_node(NodeSpec {
            backups: 2,
            ..NodeSpec::new(workers)
        });
        world.start(node);
    }
    become_covered(&mut world);
    world
}

fn part(world: &mut World, parting: Parting) {
    world.net.part(0, 1, parting);
    world.run_for(3_000);
}

#[track_caller]
fn heal(world: &mut World) {
    world.net.heal(0, 1);
    become_covered(world);
    world.run_for(1_000);
}

/// A publisher at a node, which says that the message is taken.
#[track_caller]
fn publish_at(world: &mut World, node: usize, topic: &str, payload: &str, qos: u8) {
    let name = format!("publisher-{node}");
    let publisher = client_at(world, node, Connect::new(V5, &name), "CONNACK");
    world.publish(publisher, topic, payload, qos, 1);
    let taken = ["PUBACK 1", "PUBREC 1"][usize::from(qos) - 1];
    let heard = world.hear(publisher);
    // Perhaps nobody wants it.
    let is_taken = heard == [taken] || heard == [format!("{taken} 0x10")];
    assert!(is_taken, "{heard:?} (seed {})", world.net.seed);
    world.hang_up(publisher);
}

/// What was heard of PUBLISH, without packet identifiers, in the order of the alphabet.
pub(super) fn messages(world: &mut World, client: TesterId) -> Vec<String> {
    let heard = world.hear(client);
    let publishes = heard.iter().filter(|said| said.starts_with("PUBLISH"));
    let mut messages: Vec<String> = publishes
        .map(|said| said.split(" #").next().unwrap_or_default().to_owned())
        .collect();
    messages.sort();
    messages
}

#[test]
fn a_session_gets_once_what_was_published_on_either_side() {
    play(|world, parting| {
        let away = client_at(world, 0, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 2);
        world.hang_up(away);
        become_covered(world);
        publish_at(world, 0, "a", "before", 2);
        part(world, parting);
        for node in [0, 1] {
            publish_at(world, node, "a", ["north", "south"][node], 2);
        }
        heal(world);
        for node in [0, 1] {
            publish_at(world, node, "a", ["then", "there"][node], 1);
        }
        let back = world.connect(1, resuming(V5, "away", 1000));
        let expected = [
            "PUBLISH a 'before' q2",
            "PUBLISH a 'north' q2",
            "PUBLISH a 'south' q2",
            "PUBLISH a 'then' q1",
            "PUBLISH a 'there' q1",
        ];
        assert_eq!(messages(world, back), expected, "seed {}", world.net.seed);
        let merged = |node| -> u64 {
            world
                .traffic(node)
                .iter()
                .map(|it| it.merged_sessions)
                .sum()
        };
        assert_eq!(merged(0) + merged(1), 1);
    });
}

#[test]
fn a_client_that_stayed_where_it_was_stays_and_gets_what_was_published_on_the_other_side() {
    play(|world, parting| {
        let client = client_at(world, 0, resuming(V5, "steady", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        become_covered(world);
        part(world, parting);
        for node in [0, 1] {
            publish_at(world, node, "a", ["north", "south"][node], 2);
        }
        let here = messages(world, client);
        assert_eq!(here, ["PUBLISH a 'north' q2"]);
        heal(world);
        assert_eq!(world.hear(client).len(), 1, "it is not sent away");
        publish_at(world, 1, "a", "after", 1);
        assert_eq!(messages(world, client), ["PUBLISH a 'after' q1"]);
    });
}

/// A node counts on from what it knows of a publisher's session: what is sent again to it may get the generation that the node where the
/// publisher was has given to something else.
#[test]
fn a_message_that_is_sent_again_is_not_mistaken_for_one_completed_on_the_other_side() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for _ in 0..3 {
            let node = world.add_node(NodeSpec::new(1));
            world.start(node);
        }
        let world = &mut world;
        become_covered(world);
        // Of some of them the first node has no backup: it keeps messages for their nodes.
        let subscribers: Vec<_> = (0..8)
            .map(|index| {
                let name = format!("subscriber-{index}");
                let client = client_at(world, 1 + index % 2, resuming(V5, &name, 1000), "CONNACK");
                world.subscribe(client, "a", 2);
                client
            })
            .collect();
        let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
        become_covered(world);
        for node in [1, 2] {
            world.net.part(0, node, Parting::Cut);
        }
        world.run_for(3_000);
        for (packet_id, payload) in [(1, "one"), (2, "two")] {
            world.publish(publisher, "a", payload, 2, packet_id);
            world.expect(publisher, &[&format!("PUBREC {packet_id}")]);
            world.send(publisher, &Packet::Pubrel(plain(packet_id)));
            world.expect(publisher, &[&format!("PUBCOMP {packet_id}")]);
        }
        world.publish(publisher, "a", "again", 2, 3);
        world.hear(publisher);
        world.hang_up(publisher);
        let there = client_at(world, 1, resuming(V5, "publisher", 1000), "CONNACK present");
        let again = Publish {
            dup: true,
            qos: qos(2),
            packet_id: Some(id(3)),
            ..Publish::new("a", b"again")
        };
        world.send(there, &Packet::Publish(again));
        world.expect(there, &["PUBREC 3"]);
        for node in [1, 2] {
            world.net.heal(0, node);
        }
        become_covered(world);
        world.run_for(1_000);
        let expected = ["again", "one", "two"].map(|it| format!("PUBLISH a '{it}' q2"));
        for client in subscribers {
            let mut came = messages(world, client);
            // Both sides took it, and nobody can tell that it is the same.
            came.dedup();
            assert_eq!(came, expected, "seed {}", world.net.seed);
        }
    }
}

#[test]
fn a_client_that_stayed_where_it_was_gets_no_pubrel_again() {
    play(|world, parting| {
        let client = client_at(world, 0, resuming(V5, "steady", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        publish_at(world, 0, "a", "once", 2);
        assert_eq!(world.hear(client), ["PUBLISH a 'once' q2 #1"]);
        world.send(client, &Packet::Pubrec(plain(1)));
        world.expect(client, &["PUBREL 1"]);
        become_covered(world);
        part(world, parting);
        world.send(client, &Packet::Pubcomp(plain(1)));
        heal(world);
        assert!(world.hear(client).is_empty(), "seed {}", world.net.seed);
    });
}

#[test]
fn a_session_that_moves_while_its_backup_is_promoted_keeps_its_queue() {
    for (seed, parted_for) in (0..100).map(|run| (run, 20 + run % 20 * 4)) {
        let mut world = World::new(seed, Weather::ROUGH);
        for _ in 0..2 {
            let node = world.add_node(NodeSpec::new(2));
            world.start(node);
        }
        become_covered(&mut world);
        let away = client_at(&mut world, 1, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 2);
        world.hang_up(away);
        become_covered(&mut world);
        let publishers = [0, 1].map(|node| {
            let name = format!("publisher-{node}");
            client_at(&mut world, node, Connect::new(V5, &name), "CONNACK")
        });
        world.run_for(1_000);
        world.publish(publishers[0], "a", "north", 2, 1);
        world.run_for(15);
        world.net.part(0, 1, Parting::Cut);
        world.run_for(10);
        let back = world.connect(0, resuming(V5, "away", 1000));
        world.run_for(parted_for);
        world.net.heal(0, 1);
        for (index, payload) in ["one", "two", "three"].iter().enumerate() {
            world.publish(publishers[1], "a", payload, 2, index as u16 + 1);
            world.run_for(20);
        }
        become_covered(&mut world);
        world.run_for(5_000);
        let expected = ["north", "one", "three", "two"].map(|it| format!("PUBLISH a '{it}' q2"));
        assert_eq!(messages(&mut world, back), expected, "seed {seed}");
    }
}

#[test]
fn what_was_delivered_on_one_side_does_not_come_again() {
    what_was_delivered_on_one_side_stays_away("a");
}

#[test]
fn what_a_group_gave_to_a_session_and_was_delivered_on_one_side_does_not_come_again() {
    what_was_delivered_on_one_side_stays_away("$share/g/a");
}

fn what_was_delivered_on_one_side_stays_away(filter: &str) {
    play(|world, parting| {
        let away = client_at(world, 0, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, filter, 2);
        world.hang_up(away);
        become_covered(world);
        for payload in ["one", "two"] {
            publish_at(world, 0, "a", payload, 2);
        }
        part(world, parting);
        let there = world.connect(1, resuming(V5, "away", 1000));
        assert_eq!(messages(world, there).len(), 2);
        let first = 21_846;
        for identifier in [first, first + 1] {
            world.send(there, &Packet::Pubrec(plain(identifier)));
            world.expect(there, &[&format!("PUBREL {identifier}")]);
            world.send(there, &Packet::Pubcomp(plain(identifier)));
        }
        world.hang_up(there);
        publish_at(world, 0, "a", "three", 2);
        heal(world);
        let back = world.connect(0, resuming(V5, "away", 1000));
        assert_eq!(messages(world, back), ["PUBLISH a 'three' q2"]);
    });
}

#[test]
fn messages_delivered_by_a_node_that_was_restarted_are_not_repeated_by_the_one_that_was_away() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for workers in [1, 2, 1] {
            let mut spec = NodeSpec::new(workers);
            spec.stores = true;
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        subscriber_gone_from(&mut world, 2);
        publish_at(&mut world, 0, "a", "x", 2);
        world.kill(1);
        become_covered(&mut world);
        world.kill(2);
        world.run_for(4_000);
        world.start(1);
        become_covered(&mut world);
        let client = world.connect(1, resuming(V5, "away", 1000));
        world.tester(client).acknowledges = true;
        world.run_for(1_000);
        assert_eq!(messages(&mut world, client), ["PUBLISH a 'x' q2"]);
        world.start(2);
        become_covered(&mut world);
        world.run_for(2_000);
        assert_eq!(messages(&mut world, client), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_retained_message_that_was_delivered_on_one_side_does_not_come_again() {
    play(|world, parting| {
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        let kept = Publish {
            retain: true,
            qos: qos(2),
            packet_id: Some(id(1)),
            ..Publish::new("kept", b"r")
        };
        world.send(publisher, &Packet::Publish(kept));
        world.expect(publisher, &["PUBREC 1"]);
        let away = client_at(world, 0, resuming(V5, "away", 1000), "CONNACK");
        let subscribe = Subscribe::new(id(1), "kept", qos(2));
        world.send(away, &Packet::Subscribe(subscribe));
        world.expect(away, &["SUBACK 1 [02]", "PUBLISH kept 'r' q2 #1 retain"]);
        world.hang_up(away);
        become_covered(world);
        part(world, parting);
        let there = world.connect(1, resuming(V5, "away", 1000));
        assert_eq!(messages(world, there).len(), 1);
        world.send(there, &Packet::Pubrec(plain(1)));
        world.expect(there, &["PUBREL 1"]);
        world.send(there, &Packet::Pubcomp(plain(1)));
        world.hang_up(there);
        heal(world);
        let back = world.connect(1, resuming(V5, "away", 1000));
        assert_eq!(messages(world, back), [""; 0], "seed {}", world.net.seed);
    });
}

#[test]
fn messages_that_reached_a_node_before_its_backup_do_not_count_as_held_by_the_backup() {
    for seed in 1..9 {
        let mut world = World::new(seed, Weather::ROUGH);
        for _ in 0..3 {
            let mut spec = NodeSpec::new(1);
            spec.tunnels = false;
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        // The backup goes where the topic is wanted.
        let north = client_at(&mut world, 0, Connect::new(V5, "north"), "CONNACK");
        world.subscribe(north, "a", 0);
        let away = client_at(&mut world, 1, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        let south = client_at(&mut world, 2, Connect::new(V5, "south"), "CONNACK");
        world.subscribe(south, "a", 1);
        become_covered(&mut world);
        for other in [0, 2] {
            world.net.part(1, other, Parting::Cut);
        }
        world.run_for(3_000);
        publish_at(&mut world, 0, "a", "meanwhile", 1);
        assert_eq!(messages(&mut world, south), ["PUBLISH a 'meanwhile' q1"]);
        // It tells the third node what it has, which lacks the message, and is out of sight again.
        world.net.heal(1, 2);
        world.run_for(12_000);
        world.net.part(1, 2, Parting::Cut);
        world.run_for(3_000);
        for other in [0, 2] {
            world.net.heal(1, other);
        }
        become_covered(&mut world);
        world.run_for(1_000);
        let back = world.connect(2, resuming(V5, "away", 1000));
        let expected = ["PUBLISH a 'meanwhile' q1"];
        assert_eq!(messages(&mut world, back), expected, "seed {seed}");
    }
}

#[test]
fn the_last_change_of_a_subscription_wins_on_whichever_side_it_arrived() {
    play(|world, parting| {
        let client = client_at(world, 0, resuming(V5, "both", 1000), "CONNACK");
        for topic in ["left", "kept"] {
            world.subscribe(client, topic, 1);
        }
        world.hang_up(client);
        become_covered(world);
        part(world, parting);
        let north = client_at(world, 0, resuming(V5, "both", 1000), "CONNACK present");
        world.subscribe(north, "north", 1);
        world.send(
            north,
            &Packet::Unsubscribe(Unsubscribe::new(id(7), vec!["left"])),
        );
        world.expect(north, &["UNSUBACK 7 [00]"]);
        world.hang_up(north);
        let south = client_at(world, 1, resuming(V5, "both", 1000), "CONNACK present");
        world.subscribe(south, "south", 1);
        world.hang_up(south);
        heal(world);
        for topic in ["north", "south", "left", "kept"] {
            publish_at(world, 0, topic, "x", 1);
        }
        let back = world.connect(0, resuming(V5, "both", 1000));
        let expected = ["kept", "north", "south"].map(|topic| format!("PUBLISH {topic} 'x' q1"));
        assert_eq!(messages(world, back), expected, "seed {}", world.net.seed);
    });
}

#[test]
fn a_half_open_connection_on_one_side_does_not_undo_what_its_client_asked_for_on_the_other() {
    play(|world, parting| {
        let half_open = client_at(world, 0, resuming(V5, "both", 1000), "CONNACK");
        world.subscribe(half_open, "a", 1);
        become_covered(world);
        part(world, parting);
        let south = client_at(world, 1, resuming(V5, "both", 1000), "CONNACK present");
        world.subscribe(south, "a", 2);
        world.hang_up(south);
        // The client sent it before it went to the other side. The node reads it late, and does not know that the client has gone.
        let unsubscribe = Unsubscribe::new(id(7), vec!["a"]);
        world.send(half_open, &Packet::Unsubscribe(unsubscribe));
        world.expect(half_open, &["UNSUBACK 7 [00]"]);
        heal(world);
        publish_at(world, 0, "a", "x", 1);
        let back = world.connect(0, resuming(V5, "both", 1000));
        let seed = world.net.seed;
        assert_eq!(messages(world, back), ["PUBLISH a 'x' q1"], "seed {seed}");
    });
}

#[test]
fn a_clean_start_on_one_side_ends_what_the_other_one_has() {
    play(|world, parting| {
        let client = client_at(world, 0, resuming(V5, "anew", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        become_covered(world);
        publish_at(world, 0, "a", "old", 1);
        part(world, parting);
        let connect = Connect {
            clean_start: true,
            ..resuming(V5, "anew", 1000)
        };
        let there = client_at(world, 1, connect, "CONNACK");
        world.subscribe(there, "b", 1);
        world.hang_up(there);
        publish_at(world, 0, "a", "north", 1);
        heal(world);
        publish_at(world, 0, "a", "after", 1);
        publish_at(world, 0, "b", "wanted", 1);
        let back = world.connect(0, resuming(V5, "anew", 1000));
        assert_eq!(messages(world, back), ["PUBLISH b 'wanted' q1"]);
    });
}

#[test]
fn the_later_of_two_clean_starts_holds_whatever_the_wall_clocks_say() {
    play(|world, parting| {
        // Set while the nodes run: before the partition both have numbered claims by the same clock.
        world.nodes[0].spec.wall_ahead = 60_000;
        part(world, parting);
        let clean = Connect {
            clean_start: true,
            ..resuming(V5, "twice", 1000)
        };
        let first = client_at(world, 0, clean.clone(), "CONNACK");
        world.subscribe(first, "a", 1);
        world.hang_up(first);
        world.run_for(1_000);
        let second = client_at(world, 1, clean, "CONNACK");
        world.subscribe(second, "b", 1);
        world.hang_up(second);
        heal(world);
        publish_at(world, 0, "a", "given up", 1);
        publish_at(world, 1, "b", "wanted", 1);
        let back = world.connect(0, resuming(V5, "twice", 1000));
        assert_eq!(messages(world, back), ["PUBLISH b 'wanted' q1"]);
    });
}

/// A node is away, standing still or killed with what it stored, and meanwhile a session that it has ends elsewhere.
#[test]
fn a_session_that_ended_while_its_node_was_away_stays_ended() {
    for seed in 1..=6 {
        for (is_killed, is_majority) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let mut world = World::new(seed, [Weather::CALM, Weather::ROUGH][seed as usize % 2]);
            for index in 0..3 {
                let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
                spec.stores = true;
                if is_majority {
                    spec.partition = Partition::Majority;
                }
                let node = world.add_node(spec);
                world.start(node);
            }
            let world = &mut world;
            become_covered(world);
            for client_id in ["disconnected", "cleaned", "brief"] {
                let client = client_at(world, 0, resuming(V5, client_id, 1000), "CONNACK");
                world.subscribe(client, "a", 1);
                world.hang_up(client);
            }
            become_covered(world);
            publish_at(world, 1, "a", "old", 1);
            if is_killed {
                world.kill(0);
            } else {
                world.pause(0);
            }
            world.run_for(3_000);
            let ends = |client_id| resuming(V5, client_id, 0);
            let disconnected = world.connect(1, ends("disconnected"));
            let cleaned = world.connect(
                2,
                Connect {
                    clean_start: true,
                    ..ends("cleaned")
                },
            );
            for client in [disconnected, cleaned] {
                world.run_for(500);
                world.send(
                    client,
                    &Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
                );
            }
            // This one is still connected when the node is back, and goes while the two sessions may be merged.
            let brief = world.connect(
                1,
                Connect {
                    clean_start: true,
                    ..ends("brief")
                },
            );
            world.run_for(500);
            if is_killed {
                world.start(0);
            } else {
                world.resume(0);
            }
            world.run_for(seed * 60);
            world.hang_up(brief);
            become_covered(world);
            world.run_for(2_000);
            publish_at(world, 1, "a", "new", 1);
            for client_id in ["disconnected", "cleaned", "brief"] {
                let back = world.connect(2, resuming(V5, client_id, 1000));
                let heard = world.hear(back);
                assert_eq!(
                    heard,
                    ["CONNACK"],
                    "{client_id}, seed {seed}, {is_killed}, {is_majority}"
                );
            }
        }
    }
}

/// A client stays at a node that the others do not see. They lose each other too, so that two of them have its session, one after the other, and merge
/// what they have before they see the client's node again.
#[test]
fn the_branch_of_a_connected_client_wins_over_nodes_that_have_merged_it() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let world = &mut with_two_backups(seed, weather, [1, 2, 1, 2]);
        let client = client_at(world, 0, resuming(V5, "steady", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        become_covered(world);
        let merged = |world: &mut World| -> u64 {
            let traffic = [1, 2, 3].map(|node| world.traffic(node)).concat();
            traffic.iter().map(|it| it.merged_sessions).sum()
        };
        let away = [(0, 1), (0, 2), (0, 3)];
        let others = [(1, 2), (1, 3), (2, 3)];
        let part = |world: &mut World, pairs: &[(usize, usize)]| {
            let cut = |&(one, other): &(usize, usize)| world.net.part(one, other, Parting::Cut);
            pairs.iter().for_each(cut);
            world.run_for(3_000);
        };
        part(world, &away);
        for node in [0, 1] {
            publish_at(world, node, "a", ["home", "away"][node], 2);
        }
        part(world, &others);
        publish_at(world, 2, "a", "alone", 2);
        for (one, other) in others {
            world.net.heal(one, other);
        }
        world.run_for(5_000);
        assert!(merged(world) > 0, "seed {seed}");
        for (one, other) in away {
            world.net.heal(one, other);
        }
        become_covered(world);
        publish_at(world, 3, "a", "then", 2);
        let expected = ["alone", "away", "home", "then"];
        let expected = expected.map(|payload| format!("PUBLISH a '{payload}' q2"));
        assert_eq!(messages(world, client), expected, "seed {seed}");
    }
}

/// Two nodes that meet again die before they have merged the branches of a session, and a third one has backups of both: in two workers, or in one.
#[test]
fn branches_are_merged_where_backups_of_both_are_promoted() {
    // The times after which two workers of the third node, or one, promote backups.
    for (seed, after) in [(40, 195), (111, 150), (299, 90), (6, 25), (28, 135)] {
        let weather = [Weather::CALM, Weather::ROUGH][seed as usize % 2];
        let world = &mut with_two_backups(seed, weather, [2, 1, 2, 1]);
        let client = client_at(world, 0, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        become_covered(world);
        let across = [(0, 1), (0, 3), (2, 1), (2, 3)];
        for (one, other) in across {
            world.net.part(one, other, Parting::Cut);
        }
        world.run_for(3_000);
        world.subscribe(client, "north", 2);
        world.hang_up(client);
        let there = client_at(world, 1, resuming(V5, "away", 1000), "CONNACK present");
        world.subscribe(there, "south", 2);
        world.hang_up(there);
        for (node, topic) in [(0, "north"), (1, "south"), (0, "a"), (1, "a")] {
            publish_at(world, node, topic, &format!("from {node}"), 2);
        }
        world.run_for(3_000);
        for (one, other) in across {
            world.net.heal(one, other);
        }
        world.run_for(after);
        world.kill(0);
        world.kill(1);
        become_covered(world);
        let back = world.connect(2, resuming(V5, "away", 1000));
        let came = messages(world, back);
        let expected = [
            "PUBLISH a 'from 0' q2",
            "PUBLISH a 'from 1' q2",
            "PUBLISH north 'from 0' q2",
            "PUBLISH south 'from 1' q2",
        ];
        assert_eq!(came, expected, "seed {seed}");
        let traffic = [2, 3].map(|node| world.traffic(node)).concat();
        let merged: u64 = traffic.iter().map(|it| it.merged_sessions).sum();
        assert!(merged > 0, "seed {seed}");
        for topic in ["a", "north", "south"] {
            publish_at(world, 3, topic, "after", 2);
        }
        let expected = ["a", "north", "south"].map(|topic| format!("PUBLISH {topic} 'after' q2"));
        assert_eq!(messages(world, back), expected, "seed {seed}");
    }
}
