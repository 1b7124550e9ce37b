use super::*;
use thicket_mqtt::{SubscribeFilter, SubscriptionOptions};

const V311: ProtocolVersion = ProtocolVersion::V311;
const V5: ProtocolVersion = ProtocolVersion::V5;

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not 0")
}

fn bytes(version: ProtocolVersion, packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes).expect("a good packet");
    bytes
}

fn publish(version: ProtocolVersion, topic: &str, qos: Qos, number: u16) -> Vec<u8> {
    let mut publish = Publish::new(topic, b"x");
    publish.qos = qos;
    publish.packet_id = PacketId::new(number).filter(|_| qos != Qos::AtMostOnce);
    bytes(version, &Packet::Publish(publish))
}

fn ack(number: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(number), ReasonCode::Success)
}

fn names(publish: &[&str], subscribe: &[&str]) -> Names {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Names {
        publish: set(publish),
        subscribe: set(subscribe),
    }
}

fn split(version: ProtocolVersion) -> Split {
    let mut split = Split::new(version, 1 << 20, Memory::default());
    split.assign(1, &names(&["one"], &["f/one"]));
    split.assign(2, &names(&["two"], &["f/two"]));
    split
}

fn client(split: &mut Split, packet: &[u8]) -> Vec<Output> {
    split.handle_client(packet).expect("well formed");
    std::iter::from_fn(|| split.poll_output()).collect()
}

fn node(split: &mut Split, session: usize, packet: &[u8]) -> Vec<Output> {
    split.handle_node(session, packet).expect("well formed");
    std::iter::from_fn(|| split.poll_output()).collect()
}

#[test]
fn a_publication_goes_to_the_session_of_its_topic_and_its_acknowledgement_comes_back() {
    let mut split = split(V311);
    for (topic, session) in [("one", 1), ("two", 2), ("other", 1)] {
        let packet = publish(V311, topic, Qos::AtLeastOnce, 9);
        let out = client(&mut split, &packet);
        assert_eq!(out, [Output::ToNode(session, packet)], "{topic}");
        let puback = bytes(V311, &Packet::Puback(ack(9)));
        assert_eq!(
            node(&mut split, session, &puback),
            [Output::ToClient(puback)]
        );
    }
}

#[test]
fn an_exchange_of_qos_2_stays_in_its_session_over_connections() {
    let mut split = split(V311);
    client(&mut split, &publish(V311, "two", Qos::ExactlyOnce, 3));
    node(&mut split, 2, &bytes(V311, &Packet::Pubrec(ack(3))));
    let mut split = Split::new(V311, 1 << 20, split.into_memory());
    let pubrel = bytes(V311, &Packet::Pubrel(ack(3)));
    assert_eq!(
        client(&mut split, &pubrel),
        [Output::ToNode(2, pubrel.clone())]
    );
    let pubcomp = bytes(V311, &Packet::Pubcomp(ack(3)));
    assert_eq!(node(&mut split, 2, &pubcomp), [Output::ToClient(pubcomp)]);
    // The exchange is complete: session 1 answers as a broker does to an unknown PUBREL.
    assert_eq!(client(&mut split, &pubrel), [Output::ToNode(1, pubrel)]);
}

#[test]
fn messages_of_two_sessions_with_one_number_get_two_and_each_acknowledgement_its_own() {
    for version in [V311, V5] {
        let mut split = split(version);
        let message = |topic, number| publish(version, topic, Qos::ExactlyOnce, number);
        let out = node(&mut split, 1, &message("f/one", 5));
        assert_eq!(out, [Output::ToClient(message("f/one", 5))]);
        let out = node(&mut split, 2, &message("f/two", 5));
        assert_eq!(out, [Output::ToClient(message("f/two", 6))]);
        let packet = |packet| bytes(version, &packet);
        let out = client(&mut split, &packet(Packet::Pubrec(ack(6))));
        assert_eq!(out, [Output::ToNode(2, packet(Packet::Pubrec(ack(5))))]);
        let out = node(&mut split, 2, &packet(Packet::Pubrel(ack(5))));
        assert_eq!(out, [Output::ToClient(packet(Packet::Pubrel(ack(6))))]);
        let out = client(&mut split, &packet(Packet::Pubcomp(ack(6))));
        assert_eq!(out, [Output::ToNode(2, packet(Packet::Pubcomp(ack(5))))]);
        // Free again, and unknown.
        assert_eq!(client(&mut split, &packet(Packet::Pubcomp(ack(6)))), []);
    }
}

#[test]
fn a_pubrec_for_nothing_is_answered() {
    let mut split = split(V5);
    let out = client(&mut split, &bytes(V5, &Packet::Pubrec(ack(4))));
    let mut expected = ack(4);
    expected.reason_code = ReasonCode::PacketIdentifierNotFound;
    assert_eq!(
        out,
        [Output::ToClient(bytes(V5, &Packet::Pubrel(expected)))]
    );
}

#[test]
fn a_subscribe_is_parted_and_answered_once_in_the_order_of_its_filters() {
    let mut split = split(V311);
    let filters = ["f/two", "f/one", "f/two"];
    let mut subscribe = Subscribe::new(id(7), filters[0], Qos::AtLeastOnce);
    for filter in &filters[1..] {
        let options = SubscriptionOptions::default();
        subscribe.filters.push(SubscribeFilter { filter, options });
    }
    let out = client(
        &mut split,
        &bytes(V311, &Packet::Subscribe(subscribe.clone())),
    );
    let [Output::ToNode(2, of_two), Output::ToNode(1, of_one)] = &out[..] else {
        panic!("{out:?}");
    };
    let Ok(Some((Packet::Subscribe(of_two), _))) = decode(of_two, V311, 1 << 20) else {
        panic!("{of_two:?}");
    };
    assert_eq!(of_two.filters, [subscribe.filters[0], subscribe.filters[2]]);
    let Ok(Some((Packet::Subscribe(of_one), _))) = decode(of_one, V311, 1 << 20) else {
        panic!("{of_one:?}");
    };
    assert_eq!(of_one.filters, [subscribe.filters[1]]);
    let suback =
        |codes: &[ReasonCode]| bytes(V311, &Packet::Suback(Suback::new(id(7), codes.to_vec())));
    let (zero, one) = (ReasonCode::Success, ReasonCode::GrantedQos1);
    assert_eq!(node(&mut split, 1, &suback(&[zero])), []);
    let out = node(&mut split, 2, &suback(&[one, zero]));
    assert_eq!(out, [Output::ToClient(suback(&[one, zero, zero]))]);
}

#[test]
fn an_unsubscribe_goes_where_its_filters_are() {
    for (version, codes) in [(V311, vec![]), (V5, vec![ReasonCode::Success])] {
        let mut split = split(version);
        let packet = Packet::Unsubscribe(Unsubscribe::new(id(8), vec!["f/two", "f/one"]));
        let out = client(&mut split, &bytes(version, &packet));
        assert!(
            matches!(out[..], [Output::ToNode(2, _), Output::ToNode(1, _)]),
            "{out:?}"
        );
        let part = bytes(
            version,
            &Packet::Unsuback(Unsuback::new(id(8), codes.clone())),
        );
        assert_eq!(node(&mut split, 2, &part), []);
        let whole = Unsuback::new(id(8), codes.repeat(2));
        let whole = bytes(version, &Packet::Unsuback(whole));
        assert_eq!(node(&mut split, 1, &part), [Output::ToClient(whole)]);
        assert!(split.memory().names().subscribe.is_empty());
    }
}

#[test]
fn filters_that_overlap_share_a_session() {
    let mut split = split(V5);
    split.assign(1, &names(&[], &["f/two/#"]));
    let filters = &split.memory().filters;
    assert_eq!(filters.get("f/two/#"), Some(&2));
}

#[test]
fn what_has_no_session_is_named_and_what_has_one_or_needs_none_is_not() {
    let split = split(V5);
    let mut packets = publish(V5, "new", Qos::AtMostOnce, 0);
    packets.extend(publish(V5, "one", Qos::AtMostOnce, 0));
    for filter in ["f/one", "new/+", "$share/g/x", "$SYS/#", "bad/#/x"] {
        let subscribe = Subscribe::new(id(1), filter, Qos::AtMostOnce);
        packets.extend(bytes(V5, &Packet::Subscribe(subscribe)));
    }
    // An incomplete packet is examined later.
    packets.extend(&publish(V5, "later", Qos::AtMostOnce, 0)[..5]);
    assert_eq!(split.unassigned(&packets), names(&["new"], &["new/+"]));
}

#[test]
fn a_client_does_not_get_its_own_messages_if_it_says_so() {
    let mut split = split(V5);
    let mut subscribe = Subscribe::new(id(1), "two", Qos::AtMostOnce);
    subscribe.filters[0].options.no_local = true;
    let subscribe = bytes(V5, &Packet::Subscribe(subscribe));
    assert_eq!(split.unassigned(&subscribe), Names::default());
    assert_eq!(
        client(&mut split, &subscribe),
        [Output::ToNode(1, subscribe)]
    );
    let packet = publish(V5, "two", Qos::AtMostOnce, 0);
    assert_eq!(client(&mut split, &packet), [Output::ToNode(1, packet)]);
}

#[test]
fn a_refused_filter_draws_no_other_to_its_session() {
    for (version, code) in [
        (V311, ReasonCode::UnspecifiedError),
        (V5, ReasonCode::NotAuthorized),
    ] {
        let mut split = split(version);
        split.assign(1, &names(&[], &["#"]));
        let subscribe = bytes(
            version,
            &Packet::Subscribe(Subscribe::new(id(1), "#", Qos::AtLeastOnce)),
        );
        let one = bytes(
            version,
            &Packet::Subscribe(Subscribe::new(id(2), "f/two", Qos::AtLeastOnce)),
        );
        client(&mut split, &subscribe);
        client(&mut split, &one);
        let other = bytes(
            version,
            &Packet::Subscribe(Subscribe::new(id(3), "other", Qos::AtLeastOnce)),
        );
        assert_eq!(split.unassigned(&other), Names::default(), "it overlaps #");
        for (number, session, code) in [(1, 1, code), (2, 2, ReasonCode::GrantedQos1)] {
            let suback = Packet::Suback(Suback::new(id(number), vec![code]));
            node(&mut split, session, &bytes(version, &suback));
        }
        assert_eq!(split.unassigned(&other), names(&[], &["other"]));
        // A granted filter is not forgotten if it is refused later.
        client(&mut split, &one);
        let suback = Packet::Suback(Suback::new(id(2), vec![code]));
        node(&mut split, 2, &bytes(version, &suback));
        assert_eq!(split.unassigned(&one), Names::default());
    }
}

#[test]
fn a_topic_alias_goes_where_its_topic_went() {
    let mut split = split(V5);
    let mut named = Publish::new("two", b"x");
    named.topic_alias = Some(4);
    client(&mut split, &bytes(V5, &Packet::Publish(named)));
    let mut short = Publish::new("", b"y");
    short.topic_alias = Some(4);
    let short = bytes(V5, &Packet::Publish(short));
    assert_eq!(client(&mut split, &short), [Output::ToNode(2, short)]);
}

#[test]
fn a_disconnect_goes_to_all_sessions_and_what_no_client_sends_ends_the_connection() {
    let mut split = split(V5);
    let disconnect = bytes(V5, &Packet::Disconnect(Disconnect::default()));
    let expected = [
        Output::ToNode(1, disconnect.clone()),
        Output::ToNode(2, disconnect.clone()),
        Output::End,
    ];
    assert_eq!(client(&mut split, &disconnect), expected);
    let out = client(&mut split, &bytes(V5, &Packet::Pingresp));
    assert!(
        matches!(out[..], [Output::ToClient(_), Output::End]),
        "{out:?}"
    );
    assert!(split.handle_client(&[0xFF, 0]).is_err());
}
