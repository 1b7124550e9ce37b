//! A linked node that lies: what it sends is refused or ignored, counted, and costs little; the other nodes are served as before.

use super::*;
use crate::identity::StreamId;
use crate::message::{AcknowledgedStream, put_stream};
use crate::record::{BatchHeader, Record};
use crate::routing::ListedLink;
use crate::tree_name::{Aliases, MemberSet, TreeHeader, TreeName};
use crate::tunnel::{Frame, FrameKind};
use crate::wire::put_varint;
use crate::wire_version::WireRange;

/// Node 3 lies over `LINK`, node 9 is honest.
const LIAR: u64 = 3;
const HONEST: u64 = 9;
const OTHER_LINK: LinkId = LinkId(2);

/// Both are up.
fn linked() -> Overlay {
    let mut overlay = Stage::Up.reach();
    overlay.add_link(now(), OTHER_LINK, LinkState::Accepted, None);
    overlay.on_candidate(now(), OTHER_LINK, hello(HONEST));
    for name in ["Versions", "Resume"] {
        let bytes = packet(name, Stage::SelectedDeciding);
        overlay.handle_received(now(), OTHER_LINK, &bytes, |_| {});
    }
    overlay.end_round(now());
    while overlay.poll_output().is_some() {}
    overlay
}

fn publish(channel: Channel, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let publish = Publish {
        topic_alias: Some(channel.alias()),
        ..Publish::new(channel.topic(), payload)
    };
    publish
        .encode(ProtocolVersion::V5, &mut bytes)
        .expect("encodable");
    bytes
}

fn said(message: &Message<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    message.encode(&mut payload);
    publish(message.channel(), &payload)
}

fn record_of(node: u64, change: impl FnOnce(&mut NodeRecord)) -> Vec<u8> {
    let Message::Record(mut record) = message("Record", node) else {
        panic!("a record")
    };
    change(&mut record);
    said(&Message::Record(record))
}

fn numbered(number: u64, len: usize) -> Vec<u8> {
    let (payload, mut bytes) = (vec![0; len], Vec::new());
    Record {
        number,
        topic: "a",
        payload: &payload,
        ..Record::default()
    }
    .encode(&mut bytes);
    bytes
}

fn batch(origin: u64, low: u64, records: &[u8]) -> Vec<u8> {
    let (incarnation, stream) = (Incarnation(1), StreamId(0));
    let mut payload = Vec::new();
    BatchHeader {
        origin: NodeId(origin),
        incarnation,
        stream,
        low,
    }
    .encode(&mut payload);
    payload.extend_from_slice(records);
    publish(Channel::Data, &payload)
}

/// A batch on a tree over `members`, from the first of them to the others.
fn tree_payload(members: &[u64], low: u64, records: &[u8]) -> Vec<u8> {
    let nodes: Vec<NodeId> = members.iter().copied().map(NodeId).collect();
    let name = TreeName {
        root: nodes[0],
        members: nodes.clone(),
    };
    let header = TreeHeader {
        remaining: MemberSet::of(&name, nodes[1..].iter().copied()),
        name: Arc::new(name),
        origin: nodes[0],
        incarnation: Incarnation(1),
        stream: StreamId(0),
        low,
        hops: 0,
    };
    let mut payload = Vec::new();
    header.encode(&mut Aliases::default(), &mut payload);
    payload.extend_from_slice(records);
    payload
}

fn acknowledgement(origin: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut streams = Vec::new();
    let stream = AcknowledgedStream {
        origin: NodeId(origin),
        incarnation: Incarnation(1),
        stream: StreamId(0),
    };
    put_stream(&mut streams, stream, 0, std::iter::empty());
    streams.pop();
    put_varint(&mut streams, ranges.len() as u64);
    for (gap, more) in ranges {
        put_varint(&mut streams, *gap);
        put_varint(&mut streams, *more);
    }
    said(&Message::Acknowledge(AcknowledgeView {
        credit_limit: 0,
        control_received: 0,
        streams: &streams,
    }))
}

/// What no correct node sends: name, bytes, and the text in the log.
fn refused() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let huge = |front: &[u8]| {
        let mut bytes = front.to_vec();
        put_varint(&mut bytes, 1 << 40);
        bytes
    };
    // A record up to the number of its links; a tree name up to the number of its members.
    let mut cut_record = Vec::new();
    message("Record", 7).encode(&mut cut_record);
    cut_record.pop();
    let tree = |change: fn(&mut Vec<u8>)| {
        let mut payload = tree_payload(&[LIAR, OWN], 1, &[]);
        change(&mut payload);
        publish(Channel::Tree, &payload)
    };
    let mut gap_too_large = numbered(5, 1);
    put_varint(&mut gap_too_large, 6);
    let mut below = numbered(5, 1);
    put_varint(&mut below, 0);
    let frame = |kind: u8| {
        let mut payload = Vec::new();
        let frame = Frame {
            from: NodeId(LIAR),
            to: NodeId(OWN),
            tunnel: 1,
            hops: 0,
            kind: FrameKind::Open,
            sequence: 0,
            bytes: b"",
        };
        frame.encode(&mut payload);
        payload[25] = kind;
        publish(Channel::Tunnel, &payload)
    };
    vec![
        (
            "links beyond the bytes",
            publish(Channel::View, &huge(&cut_record)),
            "malformed",
        ),
        (
            "a long record",
            record_of(7, |record| record.name = "x".repeat(70_000)),
            "record length",
        ),
        (
            "an incarnation to end all",
            record_of(7, |record| record.incarnation = Incarnation(u64::MAX)),
            "incarnation",
        ),
        (
            "an unknown kind of control",
            publish(Channel::Interests, &[99]),
            "message kind",
        ),
        ("a cut message", publish(Channel::Link, &[4]), "malformed"),
        (
            "bytes behind a message",
            publish(Channel::Link, &[5, 1, 0]),
            "malformed",
        ),
        (
            "interests out of nowhere",
            packet("Interests, gap", Stage::Up),
            "",
        ),
        (
            "many successors",
            publish(Channel::Interests, &huge(&[1, 3, 0, 1, 1, b'a', 0, 0, 0])),
            "does not fit",
        ),
        (
            "a batch of another node",
            batch(HONEST, 1, &numbered(1, 1)),
            "is not the node at the other end",
        ),
        (
            "a batch with half a record",
            batch(LIAR, 1, &numbered(1, 9)[..4]),
            "malformed",
        ),
        (
            "numbers never sent",
            acknowledgement(OWN, &[(1, 999)]),
            "number 1000 is acknowledged and was never sent",
        ),
        (
            "numbers of another node",
            acknowledgement(HONEST, &[(1, 9)]),
            "is not the node at the other end",
        ),
        (
            "ranges beyond all numbers",
            acknowledgement(OWN, &[(u64::MAX, 1)]),
            "acknowledged range",
        ),
        (
            "a tree never named",
            tree(|payload| payload[1] = 0),
            "tree alias",
        ),
        (
            "another version of trees",
            tree(|payload| payload[0] = 9),
            "tree batch version",
        ),
        (
            "members beyond the bytes",
            publish(Channel::Tree, &huge(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            "malformed",
        ),
        (
            "a destination beyond the members",
            tree(|payload| *payload.last_mut().expect("bits") = 0x80),
            "remaining destinations beyond",
        ),
        (
            "a gap beyond the number",
            publish(
                Channel::Tree,
                &tree_payload(&[LIAR, OWN], 1, &gap_too_large),
            ),
            "gap before a record",
        ),
        (
            "a number never sent again",
            publish(Channel::Tree, &tree_payload(&[LIAR, OWN], 6, &below)),
            "number below those sent again",
        ),
        ("an unknown kind of frame", frame(9), "frame kind"),
        (
            "twice what is needed to be up",
            packet("Resume", Stage::Up),
            "Resume on a link that is up",
        ),
    ]
}

/// Node 9 is up, and what it sends arrives.
fn assert_goes_on(name: &str, overlay: &mut Overlay) {
    overlay.end_round(now());
    assert!(overlay.reachable().contains(&NodeId(HONEST)), "{name}");
    let mut came = 0;
    overlay.handle_received(
        now(),
        OTHER_LINK,
        &batch(HONEST, 1, &numbered(1, 10)),
        |_| came += 1,
    );
    assert_eq!(came, 1, "{name}");
}

#[test]
fn what_no_node_says_ends_its_link_with_a_reason_in_the_log_and_a_count() {
    for (name, bytes, reason) in refused() {
        let mut overlay = linked();
        let (refusals, interests) = (
            overlay.counters.refused_links,
            overlay.peers[1].interests.received(),
        );
        overlay.receive(&bytes);
        assert!(!overlay.links.contains_key(&LINK), "{name}");
        assert_eq!(overlay.counters.refused_links, refusals + 1, "{name}");
        assert_eq!(
            overlay
                .nodes()
                .iter()
                .map(|node| node.counters.refused)
                .sum::<u64>(),
            1,
            "{name}"
        );
        let logged = overlay.outputs.iter().any(|output| match output {
            Output::Event(event) => {
                event.message == "link refused" && format!("{:?}", event.fields).contains(reason)
            }
            _ => false,
        });
        assert!(logged, "{name}: {:?}", overlay.outputs);
        assert_eq!(overlay.peers[1].interests.received(), interests, "{name}");
        assert_goes_on(name, &mut overlay);
    }
}

/// A record that says where it ends and which number it has: a link that ended for it would end again and again, as it is sent again over each.
#[test]
fn a_message_that_cannot_be_read_is_dropped_named_and_reported_and_the_next_one_is_delivered() {
    let unreadable = |number| {
        let mut bytes = Vec::new();
        let topic = "a".repeat(65_536);
        Record {
            number,
            topic: &topic,
            ..Record::default()
        }
        .encode(&mut bytes);
        bytes
    };
    for number in [0, 1] {
        let all = [unreadable(number), numbered(2, 1)].concat();
        let mut on_tree = unreadable(number);
        if number > 0 {
            put_varint(&mut on_tree, 0);
        }
        on_tree.extend(numbered(2, 1));
        put_varint(&mut on_tree, 0);
        for bytes in [
            batch(LIAR, 1, &all),
            publish(Channel::Tree, &tree_payload(&[LIAR, OWN], 1, &on_tree)),
        ] {
            let mut overlay = linked();
            let mut came = Vec::new();
            overlay.handle_received(now(), LINK, &bytes, |it| came.push(it.record.number));
            assert_eq!(came, [2]);
            assert!(overlay.links.contains_key(&LINK));
            assert_eq!(overlay.counters.unreadable_messages, 1);
            let reported = overlay.outputs.iter().filter_map(|output| match output {
                Output::Unreadable { number, .. } => Some(*number),
                _ => None,
            });
            assert_eq!(
                reported.collect::<Vec<_>>(),
                vec![1; usize::from(number > 0)]
            );
            let is_named = |output: &Output| match output {
                Output::Event(event) => {
                    format!("{:?}", event.fields).contains("topic of 65536 bytes is no topic name")
                }
                _ => false,
            };
            assert!(overlay.outputs.iter().any(is_named));
        }
    }
}

#[test]
fn a_wire_version_we_do_not_speak_is_refused_before_anything_is_read() {
    let ours = WireRange::OWN;
    let (older, newer) = (ours.oldest - 1, ours.newest + 1);
    let cases = [
        ("older", older, older, format!("{older}")),
        (
            "newer",
            newer,
            newer + 1,
            format!("{newer} to {}", newer + 1),
        ),
    ];
    for (name, oldest, newest, said) in cases {
        let wire = WireRange { oldest, newest };
        let said = format!("wire version {said} is not supported, only {ours}");
        refuse_wire(name, wire, &said);
    }
}

fn refuse_wire(name: &str, wire: WireRange, said: &str) {
    let mut overlay = Stage::Accepted.reach();
    let stranger = Hello {
        wire,
        ..hello(LIAR)
    };
    let properties = stranger.to_properties();
    let client_id = stranger.client_id();
    let connect = Connect {
        user_properties: properties
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect(),
        ..Connect::new(ProtocolVersion::V5, &client_id)
    };
    let mut bytes = Vec::new();
    Packet::Connect(Box::new(connect))
        .encode(ProtocolVersion::V5, &mut bytes)
        .expect("encodable");
    overlay.receive(&bytes);
    assert!(overlay.links.is_empty(), "{name}");
    let outputs = format!("{:?}", overlay.outputs);
    assert!(outputs.contains(said), "{name}: {outputs}");
    assert_eq!(overlay.counters.refused_links, 1, "{name}");
}

#[test]
fn data_beyond_what_was_granted_ends_its_link() {
    let mut overlay = linked();
    // A single record may be larger than the window, so the bound is the window plus the longest packet.
    let large = numbered(0, 11 << 20);
    for _ in 0..2 {
        overlay.receive(&batch(LIAR, 1, &large));
    }
    assert!(overlay.links.contains_key(&LINK), "22 MiB are allowed for");
    overlay.receive(&batch(LIAR, 1, &large));
    assert!(!overlay.links.contains_key(&LINK));
    assert_goes_on("credit", &mut overlay);
}

#[test]
fn old_records_are_passed_over_and_counted() {
    let mut overlay = linked();
    overlay.receive(&record_of(7, |record| record.version = 9));
    let known = overlay.view.record(NodeId(7)).cloned();
    for version in 0..=9 {
        overlay.receive(&record_of(7, |record| {
            record.version = version;
            record.capability = 77;
        }));
    }
    assert_eq!(overlay.view.record(NodeId(7)).cloned(), known);
    assert_eq!(overlay.counters.repeated_records, 10);
    assert!(
        overlay.links.contains_key(&LINK),
        "a record may come over two ways"
    );
    assert_goes_on("old records", &mut overlay);
}

#[test]
fn an_altered_record_of_this_node_is_outdone() {
    for version in [1 << 30, u64::MAX] {
        let mut overlay = linked();
        let mut forged = overlay.view.own().clone();
        (forged.version, forged.capability) = (version, 12_345);
        let age = |record: &NodeRecord| (record.incarnation, record.version);
        overlay.receive(&said(&Message::Record(forged.clone())));
        assert!(age(overlay.view.own()) > age(&forged), "{version}");
        assert_ne!(overlay.view.own().capability, 12_345, "{version}");
        assert_eq!(overlay.counters.altered_records, 1, "{version}");
    }
}

#[test]
fn an_altered_change_of_this_node_is_outdone_and_its_own_is_not() {
    for (capability, altered) in [(0, 0), (12_345, 1)] {
        let mut overlay = linked();
        let before = overlay.view.own().clone();
        overlay.set_resources(0, 0);
        overlay.set_summary(1, 1);
        for millis in [1500, 2000, 2500] {
            overlay.note_received(Instant::from_millis(millis), LINK);
            overlay.end_round(Instant::from_millis(millis));
        }
        let mut after = overlay.view.own().clone();
        assert!(after.version > before.version);
        after.capability += capability;
        let change = RecordChange::between(&before, &after).expect("it is later");
        overlay.receive(&said(&Message::Change(change)));
        assert_eq!(overlay.counters.altered_records, altered, "{capability}");
        let is_superseded = overlay.view.own().version > after.version;
        assert_eq!(is_superseded, altered == 1, "{capability}");
    }
}

#[test]
fn a_change_of_what_is_not_here_has_the_whole_record_asked_for() {
    let mut overlay = linked();
    let version = |version| NodeRecord {
        version,
        ..super::record(77)
    };
    let change = |from, to| {
        let change = RecordChange::between(&version(from), &version(to));
        said(&Message::Change(change.expect("it is later")))
    };
    let pending = |overlay: &Overlay| overlay.links[&LINK].pending().to_vec();
    let before = pending(&overlay);
    overlay.receive(&change(4, 5));
    overlay.end_round(now());
    let asked = pending(&overlay)[before.len()..].to_vec();
    let wanted = said(&Message::Versions(RecordVersions::wanting(
        [(NodeId(77), None)].into_iter(),
    )));
    let ends_with = |bytes: &[u8], end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
    // Its payload; the surrounding packet may contain the topic.
    let payload = &wanted[wanted.len() - 19..];
    assert!(ends_with(&asked, payload), "{asked:?}");
    assert!(overlay.view.record(NodeId(77)).is_none());
    overlay.receive(&said(&Message::Record(version(5))));
    overlay.receive(&change(5, 6));
    let known = overlay.view.record(NodeId(77)).map(|record| record.version);
    assert_eq!(known, Some(6), "what it starts from is here");
    let repeated = overlay.counters.repeated_records;
    overlay.receive(&change(4, 6));
    assert_eq!(overlay.counters.repeated_records, repeated + 1);
}

#[test]
fn a_record_that_two_nodes_have_is_asked_of_one_and_if_its_link_ends_of_the_other() {
    let mut overlay = linked();
    let record = super::record(77);
    let news = said(&Message::Versions(RecordVersions::news(vec![(
        record.node,
        record.age(),
    )])));
    let wanted = [(
        record.node,
        overlay.view.record(record.node).map(NodeRecord::age),
    )];
    let wanted = said(&Message::Versions(RecordVersions::wanting(
        wanted.into_iter(),
    )));
    // Its payload; the surrounding packet may contain the topic.
    let wanted = &wanted[wanted.len() - 19..];
    let asked = |overlay: &Overlay| {
        [LINK, OTHER_LINK].map(|link| {
            let pending = overlay.links.get(&link).map_or(&[][..], Link::pending);
            pending
                .windows(wanted.len())
                .filter(|it| *it == wanted)
                .count()
        })
    };
    overlay.receive(&news);
    overlay.handle_received(now(), OTHER_LINK, &news, |_| {});
    overlay.end_round(now());
    assert_eq!(asked(&overlay), [1, 0]);
    overlay.close_link(now(), LINK);
    overlay.end_round(now());
    assert_eq!(asked(&overlay), [0, 1]);
    let bytes = said(&Message::Record(record));
    overlay.handle_received(now(), OTHER_LINK, &bytes, |_| {});
    overlay.handle_received(now(), OTHER_LINK, &news, |_| {});
    overlay.end_round(now());
    assert_eq!(asked(&overlay), [0, 1], "it is here");
}

#[test]
fn changes_make_no_record_longer_than_one_may_be() {
    let mut overlay = linked();
    let with_links = |version, count: u64| NodeRecord {
        version,
        links: (0..count)
            .map(|node| ListedLink::first(NodeId(node), 1))
            .collect(),
        ..super::record(77)
    };
    overlay.receive(&said(&Message::Record(with_links(1, 5000))));
    let change = RecordChange::between(&with_links(1, 5000), &with_links(2, 7000));
    overlay.receive(&said(&Message::Change(change.expect("it is later"))));
    assert!(!overlay.links.contains_key(&LINK), "the link ends");
    let links = overlay.view.record(NodeId(77)).map(|it| it.links.len());
    assert_eq!(links, Some(5000));
}

#[test]
fn made_up_nodes_trees_and_topics_take_little() {
    let mut overlay = linked();
    for node in 1000..4000 {
        overlay.receive(&record_of(node, |record| {
            record.address = format!("10.9.0.{node}:1883")
        }));
    }
    assert_eq!(overlay.view.records().count(), overlay.config.limits.nodes);
    for number in 0..5000 {
        let members = [LIAR, 100_000 + number, 200_000];
        let mut record = numbered(number + 1, 1000);
        record.extend_from_slice(&[0, 0]);
        overlay.receive(&publish(Channel::Tree, &tree_payload(&members, 1, &record)));
    }
    let held: usize = overlay.held.iter().map(relay::Held::len).sum();
    assert!(
        (900_000..=1_048_576).contains(&held),
        "{held} bytes without a way"
    );
    assert!(
        overlay.counters.relay_misses > 3000,
        "{}",
        overlay.counters.relay_misses
    );
    assert_eq!(
        overlay.trees.len(),
        0,
        "no tree over nodes that are not there"
    );
    for number in 0..70_000 {
        let (origin, topic) = (NodeId(LIAR), format!("made/up/{number}"));
        overlay.receive(&said(&Message::Advertisement {
            origin,
            topic: &topic,
        }));
    }
    let long = "x".repeat(60_000);
    overlay.receive(&said(&Message::Advertisement {
        origin: NodeId(LIAR),
        topic: &long,
    }));
    assert!(overlay.advertisements.len() <= overlay.config.routing.maximum_advertisements);
    assert!(overlay.advertisements.publishers(&long).is_empty());
    assert!(overlay.links.contains_key(&LINK));
    assert_goes_on("made up", &mut overlay);
}

#[test]
fn numbers_without_measure_break_nothing() {
    let mut overlay = Stage::ResumedWaiting.reach();
    let most = u64::MAX - 1;
    overlay.receive(&said(&Message::Resume(Resume {
        given_up: most,
        interests_received: Some(most),
        interests_applied: Some(most),
        control_received: most,
        credit_limit: most,
        credit_window: most,
    })));
    overlay.receive(&said(&Message::Hello {
        sequence: most,
        rtt_us: Some(most),
    }));
    overlay.receive(&said(&Message::HelloReply { sequence: most }));
    overlay.receive(&said(&Message::InterestsApplied { version: most }));
    overlay.receive(&said(&Message::Control {
        sequence: most,
        kind: 1,
        payload: b"",
    }));
    let links = vec![ListedLink {
        node: NodeId(OWN),
        rtt: u32::MAX,
        epoch: u32::MAX,
    }];
    overlay.receive(&record_of(LIAR, |record| {
        (record.version, record.clients, record.roots, record.rate) = (most, most, most, most);
        (record.capability, record.interest_version) = (most, most);
        record.links = links.into();
    }));
    let records = [numbered(most, 5), vec![0]].concat();
    overlay.receive(&publish(
        Channel::Tree,
        &tree_payload(&[LIAR, OWN], most, &records),
    ));
    for millis in [1000, 1001, 1300, 1900] {
        overlay.end_round(Instant::from_millis(millis));
        let _ = overlay.poll_timeout();
        while overlay.poll_output().is_some() {}
    }
    assert_eq!(overlay.overview().nodes.len(), 2);
    assert_eq!(overlay.settled, 0, "nobody has applied what was never said");
}
