//! Shared subscriptions: one member gets each message, fairly, and nobody who is away starves the others.

use std::collections::BTreeMap;

use thicket_mqtt::{Connect, Packet, Subscribe, SubscribeFilter};
use thicket_node::OnFull;
use thicket_session::server::Message;

use super::{
    V5,
    cluster::{become_whole, client_at},
    id, play, qos, resuming,
};
use thicket_simulation::{TesterId, World, net::Weather, node::NodeSpec};

/// Payloads that came to `tester`.
fn payloads(world: &mut World, tester: TesterId) -> Vec<String> {
    let payload = |said: &String| said.split('\'').nth(1).map(str::to_owned);
    let heard = world.tester(tester).take_heard();
    heard
        .iter()
        .filter(|said| said.starts_with("PUBLISH"))
        .filter_map(payload)
        .collect()
}

#[test]
fn each_message_goes_to_one_member_and_all_get_their_share() {
    for of_qos in 0..=2 {
        play(|world| {
            let members: Vec<_> = (0..4)
                .map(|number| world.plain(&format!("member-{number}")))
                .collect();
            for member in &members {
                world.tester(*member).acknowledges = true;
                world.subscribe(*member, "$share/group/a/+", of_qos);
            }
            let publisher = world.plain("publisher");
            world.tester(publisher).acknowledges = true;
            for number in 1..=100_u16 {
                let as_id = if of_qos == 0 { 0 } else { number };
                world.publish(publisher, "a/b", &number.to_string(), of_qos, as_id);
            }
            world.run_for(3_000);
            let mut count = BTreeMap::new();
            for member in members {
                let got = payloads(world, member);
                let fair = (15..=35).contains(&got.len());
                assert!(fair, "seed {}: {} of 100", world.net.seed, got.len());
                for payload in got {
                    *count.entry(payload).or_insert(0) += 1;
                }
            }
            assert!(count.values().all(|count| *count == 1), "{count:?}");
            assert_eq!(count.len(), 100, "seed {}", world.net.seed);
        });
    }
}

#[test]
fn a_member_who_is_away_gets_nothing_while_another_is_there() {
    play(|world| {
        let away = world.client(resuming(V5, "away", 1000), "CONNACK");
        let there = world.client(resuming(V5, "there", 1000), "CONNACK");
        for member in [away, there] {
            world.tester(member).acknowledges = true;
            world.subscribe(member, "$share/group/a", 1);
        }
        world.hang_up(away);
        world.run_for(500);
        let publisher = world.plain("publisher");
        for number in 1..=10 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        world.run_for(1_000);
        assert_eq!(payloads(world, there).len(), 10, "seed {}", world.net.seed);
    });
}

#[test]
fn when_all_members_are_away_a_waiting_session_keeps_the_messages() {
    play(|world| {
        let first = world.client(resuming(V5, "first", 1000), "CONNACK");
        let second = world.client(resuming(V5, "second", 1000), "CONNACK");
        for member in [first, second] {
            world.subscribe(member, "$share/group/a", 1);
            world.hang_up(member);
        }
        world.run_for(500);
        let publisher = world.plain("publisher");
        for number in 1..=10 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        world.run_for(1_000);
        let mut got = Vec::new();
        for name in ["first", "second"] {
            let back = world.connect(0, resuming(V5, name, 1000));
            world.tester(back).acknowledges = true;
            world.run_for(1_000);
            got.extend(payloads(world, back));
        }
        got.sort_by_key(|payload| payload.parse::<u32>().expect("a number"));
        let expected: Vec<String> = (1..=10).map(|number| number.to_string()).collect();
        assert_eq!(got, expected, "seed {}", world.net.seed);
    });
}

#[test]
fn groups_and_plain_subscriptions_do_not_mix() {
    play(|world| {
        let client = world.plain("client");
        world.tester(client).acknowledges = true;
        world.subscribe(client, "a", 0);
        world.subscribe(client, "$share/one/a", 0);
        world.subscribe(client, "$share/two/+", 0);
        let publisher = world.plain("publisher");
        world.publish(publisher, "a", "x", 0, 0);
        world.run_for(500);
        assert_eq!(payloads(world, client), ["x", "x", "x"]);
    });
}

#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    play(|world| {
        let client = world.plain("client");
        let mut subscribe = Subscribe::new(id(1), "$share/group/a", qos(0));
        subscribe.filters[0].options.no_local = true;
        world.send(client, &Packet::Subscribe(subscribe));
        world.expect(client, &["DISCONNECT 0x82", "closed"]);
    });
}

#[test]
fn a_message_for_one_of_thousands_of_groups_costs_its_receiver_as_much_as_for_one_alone() {
    const GROUPS: usize = 2_000;
    const MESSAGES: usize = 50;
    let mut world = World::new(1, Weather::CALM);
    for workers in [1, 2] {
        let mut spec = NodeSpec::new(workers);
        spec.limits.out_buffer_bytes = u32::MAX;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_whole(&mut world);
    let member = client_at(&mut world, 1, Connect::new(V5, "member"), "CONNACK");
    let filters: Vec<String> = (0..GROUPS).map(|of| format!("$share/{of}/a")).collect();
    subscribe_to_each(&mut world, member, &filters, 0);
    world.run_for(2_000);
    world.tester(member).take_heard();
    let publisher = client_at(&mut world, 0, Connect::new(V5, "publisher"), "CONNACK");
    for number in 0..MESSAGES {
        world.publish(publisher, "a", &number.to_string(), 0, 0);
    }
    // A round takes a millisecond at least; with all groups counted for each message thousands would be needed.
    world.run_for(1_500);
    assert_eq!(payloads(&mut world, member).len(), GROUPS * MESSAGES);
}

/// Members of a group at these nodes: one that acknowledges nothing, and has capacity for few messages, at the first of them, the others elsewhere.
fn members_of_which_one_is_stuck(
    world: &mut World,
    places: &[usize],
    is_persistent: bool,
    of_qos: u8,
) -> Vec<TesterId> {
    let mut members = Vec::new();
    for (number, node) in places.iter().enumerate() {
        let client_id = format!("member-{number}");
        let mut connect = resuming(V5, &client_id, if is_persistent { 1000 } else { 0 });
        connect.receive_maximum = Some(if number == 0 { 1 } else { 1000 });
        let member = client_at(world, *node, connect, "CONNACK");
        world.tester(member).acknowledges = number > 0;
        world.subscribe(member, "$share/group/a", of_qos);
        members.push(member);
    }
    world.run_for(2_000);
    for member in &members {
        world.tester(*member).take_heard();
    }
    members
}

#[test]
fn a_member_whose_queue_is_full_leaves_messages_to_others_wherever_they_are() {
    // The nodes of the stuck member, of the other one, and of the publisher; workers of a node.
    let places: [(&[usize], usize, u8); 6] = [
        (&[0, 0], 0, 3),
        (&[0, 0], 1, 1),
        (&[0, 0], 1, 3),
        (&[0, 1], 0, 2),
        (&[0, 1], 1, 2),
        (&[0, 1], 2, 2),
    ];
    let bounds = [(OnFull::Drop, true), (OnFull::Refuse, false)];
    let kinds = [(1, false), (2, true), (1, true), (2, false)];
    for (members_at, publisher_at, workers) in places {
        for (on_full, by_messages) in bounds {
            for (of_qos, is_persistent) in kinds {
                let mut world = World::new(1, Weather::CALM);
                for _ in 0..3 {
                    let mut spec = NodeSpec::new(workers);
                    spec.limits.on_full = on_full;
                    if by_messages {
                        spec.limits.queue_messages = 10;
                    } else {
                        spec.limits.queue_bytes = 10 * Message::cost_of(3);
                    }
                    let node = world.add_node(spec);
                    world.start(node);
                }
                become_whole(&mut world);
                let world = &mut world;
                let members =
                    members_of_which_one_is_stuck(world, members_at, is_persistent, of_qos);
                let publisher = client_at(
                    world,
                    publisher_at,
                    Connect::new(V5, "publisher"),
                    "CONNACK",
                );
                world.tester(publisher).acknowledges = true;
                for number in 1..=60 {
                    world.publish(publisher, "a", &number.to_string(), of_qos, number);
                }
                world.run_for(3_000);
                let case = format!(
                    "{members_at:?}, {publisher_at}, {on_full:?}, QoS {of_qos}, {is_persistent}"
                );
                let heard = world.tester(publisher).take_heard();
                let last = if of_qos == 1 { "PUBACK" } else { "PUBCOMP" };
                let done = |said: &&String| said.starts_with(last) && !said.contains("0x97");
                assert_eq!(heard.iter().filter(done).count(), 60, "{case}: {heard:?}");
                let sessions = world.sessions();
                let kept = |client_id: &str| {
                    let session = sessions.iter().find(|(_, it)| it.client_id == client_id);
                    session.map_or(0, |(_, it)| it.queued_messages + it.inflight)
                };
                let stuck = kept("member-0");
                let come = payloads(world, members[1]).len();
                assert!((1..=11).contains(&stuck), "{case}: {stuck}");
                assert_eq!(stuck + come, 60, "{case}: {stuck} wait");
            }
        }
    }
}

#[test]
fn a_group_of_which_all_members_are_full_drops_or_refuses_a_message_once() {
    for on_full in [OnFull::Drop, OnFull::Refuse] {
        for publisher_at in 0..3 {
            let mut world = World::new(1, Weather::CALM);
            for workers in 1..=3 {
                let mut spec = NodeSpec::new(workers);
                spec.limits.on_full = on_full;
                spec.limits.queue_messages = 2;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_whole(&mut world);
            let world = &mut world;
            for (number, node) in [1, 2, 2].into_iter().enumerate() {
                let client_id = format!("member-{number}");
                let connect = resuming(V5, &client_id, 1000);
                let member = client_at(world, node, connect, "CONNACK");
                world.subscribe(member, "$share/group/a", 1);
                world.hang_up(member);
            }
            world.run_for(2_000);
            let publisher = client_at(
                world,
                publisher_at,
                Connect::new(V5, "publisher"),
                "CONNACK",
            );
            for number in 1..=9 {
                world.publish(publisher, "a", &number.to_string(), 1, number);
            }
            world.run_for(3_000);
            let case = format!("{on_full:?}, published at {publisher_at}");
            let heard = world.tester(publisher).take_heard();
            let refused = heard.iter().filter(|said| said.ends_with("0x97")).count();
            let expected = if on_full == OnFull::Refuse { 3 } else { 0 };
            assert_eq!((heard.len(), refused), (9, expected), "{case}: {heard:?}");
            let sessions = world.sessions();
            let kept: usize = sessions.iter().map(|(_, it)| it.queued_messages).sum();
            assert_eq!(kept, 6, "{case}");
            let traffic = (0..3).flat_map(|node| world.traffic(node));
            let lost = traffic.map(|it| {
                let owed = it.unacknowledged_messages;
                [it.queue_dropped_messages, it.queue_refused_messages, owed]
            });
            let lost = lost.fold([0; 3], |sum: [u64; 3], it| {
                std::array::from_fn(|at| sum[at] + it[at])
            });
            let expected = if on_full == OnFull::Refuse {
                [0, 3, 0]
            } else {
                [3, 0, 0]
            };
            assert_eq!(lost, expected, "{case}");
        }
    }
}

/// Sends one SUBSCRIBE with all these filters.
fn subscribe_to_each(world: &mut World, client: TesterId, filters: &[String], of_qos: u8) {
    let mut subscribe = Subscribe::new(id(1), &filters[0], qos(of_qos));
    let first = subscribe.filters[0];
    let each = filters.iter();
    subscribe.filters = each
        .map(|filter| SubscribeFilter { filter, ..first })
        .collect();
    world.send(client, &Packet::Subscribe(subscribe));
}

/// Messages for members that a round may bring forth: each is ten units of the 200,000 of a round, and what was begun is done.
const IN_A_ROUND: u64 = 21_000;

/// A client of a node with many shared subscriptions to one topic, each of another name.
fn member_of_many(world: &mut World, node: usize, groups: usize, of_qos: u8) -> TesterId {
    let member = client_at(world, node, Connect::new(V5, "member"), "CONNACK");
    world.tester(member).acknowledges = true;
    let filters: Vec<String> = (0..groups).map(|of| format!("$share/{of}/a")).collect();
    for filters in filters.chunks(1_000) {
        subscribe_to_each(world, member, filters, of_qos);
        world.run_for(200);
    }
    world.run_for(2_000);
    world.tester(member).take_heard();
    member
}

/// Nodes with one worker each.
fn nodes_with_large_buffers(nodes: usize) -> World {
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..nodes {
        let mut spec = NodeSpec::new(1);
        spec.limits.out_buffer_bytes = u32::MAX;
        spec.limits.subscriptions = u32::MAX;
        spec.limits.inflight_maximum = u16::MAX;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_whole(&mut world);
    world
}

#[test]
fn a_message_for_thousands_of_groups_is_divided_and_acknowledged_after_its_last_portion() {
    for (nodes, of_qos) in [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
        let mut world = nodes_with_large_buffers(nodes);
        // More than are in flight to a client at a time would wait in its queue.
        let groups = if of_qos == 0 { 60_000 } else { 30_000 };
        let member = member_of_many(&mut world, nodes - 1, groups, of_qos);
        let groups = groups as u64;
        let publisher = client_at(&mut world, 0, Connect::new(V5, "publisher"), "CONNACK");
        world.tester(publisher).acknowledges = true;
        let other = client_at(&mut world, 0, Connect::new(V5, "other"), "CONNACK");
        let case = format!("{nodes} nodes, QoS {of_qos}");
        for payload in ["1", "2"] {
            let as_id = if of_qos == 0 {
                0
            } else {
                payload.parse().expect("a number")
            };
            world.publish(publisher, "a", payload, of_qos, as_id);
        }
        let sent = |world: &mut World| -> u64 {
            let workers = world.traffic(nodes - 1);
            workers.iter().map(|it| it.external_out_messages).sum()
        };
        let answers = |world: &mut World, client, packet: &str| {
            let heard = world.tester(client).take_heard();
            heard.iter().filter(|it| it.starts_with(packet)).count() as u64
        };
        let answer = if of_qos == 2 { "PUBREC" } else { "PUBACK" };
        let (before, mut given, mut served, mut acknowledged) = (sent(&mut world), 0, 0, 0);
        for step in 0..2_000 {
            if step % 20 == 0 {
                world.publish(other, "other", "x", 1, 1);
            }
            world.run_for(1);
            given = sent(&mut world) - before;
            acknowledged += answers(&mut world, publisher, answer);
            let is_due = acknowledged * groups <= given;
            assert!(is_due, "{case}: {acknowledged} acknowledged of {given}");
            let answered = answers(&mut world, other, "PUBACK");
            served += if given < 2 * groups { answered } else { 0 };
        }
        assert_eq!(given, 2 * groups, "{case}");
        let most = world.most_delivered(nodes - 1);
        assert!(most <= IN_A_ROUND, "{case}: {most} in a round");
        assert!(served > 0, "{case}: others waited");
        assert_eq!(acknowledged, if of_qos == 0 { 0 } else { 2 }, "{case}");
        let payloads = payloads(&mut world, member);
        let is_in_order = payloads.is_sorted();
        assert!(is_in_order, "{case}: a message overtook another one");
    }
}
