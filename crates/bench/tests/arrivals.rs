//! Publishers that arrive one by one, at real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use thicket_bench::arrivals::{
    ArrivalOrder, Arrivals, ArrivalsOutcome, Attach, Redirect, in_order, parse_types, run,
};
use thicket_bench::generator::{Node, Watch};
use thicket_bench::relay::Relay;
use thicket_mqtt::{Connack, Packet, ProtocolVersion, ReasonCode};

fn broker() -> Node {
    let relay = Relay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let node = Node::resolve(&relay.local_addr().unwrap().to_string()).unwrap();
    std::thread::spawn(move || relay.run());
    node
}

/// Sends every client to the servers of `reference`.
fn dispatcher(reference: String) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Node::resolve(&listener.local_addr().unwrap().to_string()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let connack = Connack {
                server_reference: Some(&reference),
                ..Connack::new(ReasonCode::UseAnotherServer)
            };
            let mut bytes = Vec::new();
            let packet = Packet::Connack(Box::new(connack));
            packet.encode(ProtocolVersion::V5, &mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    node
}

fn arrivals(nodes: Vec<Node>, attach: Attach) -> Arrivals {
    let types = parse_types("3@100:64,1@500:64").unwrap();
    Arrivals {
        nodes,
        publishers: in_order(&types, ArrivalOrder::Given, 1),
        subscribers: 0,
        ramp: Duration::from_millis(50),
        hold: Duration::from_secs(4),
        attach,
        redirect: Redirect::Follow,
        prefix: "test".to_owned(),
    }
}

fn places(outcome: &ArrivalsOutcome) -> Vec<(String, usize)> {
    let brokers = outcome.brokers.iter();
    brokers
        .map(|one| (one.broker.clone(), one.publishers))
        .collect()
}

#[test]
fn a_client_whose_turn_is_at_a_broker_that_is_down_goes_to_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let down = Node::resolve(&listener.local_addr().unwrap().to_string()).unwrap();
    drop(listener);
    let up = broker();
    let mut all = arrivals(vec![up.clone(), down.clone()], Attach::RoundRobin);
    // They connect at the same time, so that turns of one fall between those of another.
    all.subscribers = 6;
    let outcome = run(&all, &Watch::default(), &mut |_, _| {}).unwrap();
    assert_eq!(outcome.received.as_ref().map(|it| it.lost), Some(0));
    let mut expected = vec![(up.name, 4), (down.name, 0)];
    expected.sort();
    assert_eq!(places(&outcome), expected);
}

#[test]
fn publishers_go_to_brokers_in_turn_and_keep_their_own_rates() {
    let mut nodes = vec![broker(), broker()];
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let watch = Watch {
        pids: vec![std::process::id()],
    };
    let outcome = run(
        &arrivals(nodes.clone(), Attach::RoundRobin),
        &watch,
        &mut |_, _| {},
    )
    .unwrap();
    let expected: Vec<_> = nodes.iter().map(|node| (node.name.clone(), 2)).collect();
    assert_eq!(places(&outcome), expected);
    let ends: Vec<f64> = outcome.brokers.iter().map(|one| one.at_end_per_s).collect();
    // The first has two of 100, the second one of 100 and that of 500: three times as much.
    let ratio = ends[1] / ends[0];
    assert!((2.0..4.5).contains(&ratio), "{ends:?}");
    assert_eq!(outcome.processes[0].pid, std::process::id());
    assert!(!outcome.processes[0].points.is_empty());
    assert_eq!(outcome.redirects, 0);
}

#[test]
fn subscribers_are_there_before_the_first_publisher_and_receive_everything() {
    let nodes = vec![broker()];
    let mut all = arrivals(nodes, Attach::RoundRobin);
    all.subscribers = 3;
    let outcome = run(&all, &Watch::default(), &mut |_, _| {}).unwrap();
    assert_eq!(outcome.brokers[0].publishers, 4, "without subscribers");
    let received = outcome.received.unwrap();
    assert_eq!((received.lost, received.messages % 3), (0, 0));
    assert!(received.messages > 3 * 800, "{}", received.messages);
    assert!(received.latency.is_some());
    // Messages are sent in ticks, so some are a little late.
    assert!(outcome.behind_schedule_ms > 0.0);
    let published: f64 = outcome.brokers.iter().map(|one| one.at_end_per_s).sum();
    let ratio = received.at_end_per_s / published;
    assert!((2.0..4.0).contains(&ratio), "{ratio}");
    all.publishers
        .iter_mut()
        .for_each(|one| one.payload_len = 8);
    let outcome = run(&all, &Watch::default(), &mut |_, _| {}).unwrap();
    let received = outcome.received.unwrap();
    assert_eq!(
        (received.lost, received.latency),
        (0, None),
        "no time in it"
    );
}

#[test]
fn publishers_follow_a_reference_and_the_next_dispatcher_if_one_is_dead() {
    let target = broker();
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let dead = Node::resolve(&SocketAddr::to_string(&nobody)).unwrap();
    let alive = dispatcher(format!("{} other:1", target.name));
    let mut all = arrivals(vec![dead, alive], Attach::Dispatch);
    all.hold = Duration::from_secs(3);
    let outcome = run(&all, &Watch::default(), &mut |_, _| {}).unwrap();
    assert_eq!(places(&outcome), [(target.name, 4)]);
    assert_eq!(outcome.redirects, 4);
}

#[test]
fn a_reference_is_followed_once_an_attempt_and_not_at_all_if_ignored() {
    let second = dispatcher("127.0.0.1:1".to_owned());
    let first = dispatcher(second.name.clone());
    for redirect in [Redirect::Follow, Redirect::Ignore] {
        let mut all = arrivals(vec![first.clone()], Attach::Redirect);
        all.redirect = redirect;
        let error = run(&all, &Watch::default(), &mut |_, _| {})
            .unwrap_err()
            .to_string();
        let refusing = match redirect {
            Redirect::Follow => &second,
            Redirect::Ignore => &first,
        };
        assert!(error.starts_with(&refusing.name), "{redirect:?}: {error}");
        assert!(error.contains("UseAnotherServer (0x9C)"), "{error}");
    }
}
