//! Tests every pair of the transition table of [`crate::link`].

use thicket_mqtt::{
    Auth, Connack, Connect, Disconnect, Packet, ProtocolVersion, Publish, ReasonCode,
    UserProperties,
};
use thicket_session::time::Instant;

use super::*;
use crate::channel::Channel;
use crate::identity::KeyId;
use crate::interface::FarEnd;
use crate::message::{AcknowledgeView, InterestBatch, InterestBatchKind, Message, Resume};
use crate::record_change::RecordChange;
use crate::record_versions::RecordVersions;

mod lies;

const KEY: KeyId = KeyId([1, 2, 3, 4]);
const OWN: u64 = 5;
const LINK: LinkId = LinkId(1);

fn now() -> Instant {
    Instant::from_millis(1000)
}

fn overlay() -> Overlay {
    let config = OverlayConfig::new(NodeId(OWN), Incarnation(1), "reef", "own:1883");
    Overlay::new(config, now(), 7)
}

/// A node that uses only what it receives on proved links.
fn guarded() -> Overlay {
    let mut config = OverlayConfig::new(NodeId(OWN), Incarnation(1), "reef", "own:1883");
    config.links_are_proved = true;
    Overlay::new(config, now(), 7)
}

fn hello(node: u64) -> Hello {
    Hello {
        wire: WireRange::OWN,
        cluster: "reef".into(),
        node: NodeId(node),
        incarnation: Incarnation(1),
        process: node,
        name: "other".into(),
        address: String::new(),
        nonce: [1, 2],
    }
}

/// Every state, as this node reaches it; the name says whether it decides, where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dialled,
    Accepted,
    /// Another link is in use.
    CandidateDeciding,
    CandidateWaiting,
    SelectedDeciding,
    SelectedWaiting,
    ResumedDeciding,
    ResumedWaiting,
    Up,
}

const ALL: [Stage; 9] = [
    Stage::Dialled,
    Stage::Accepted,
    Stage::CandidateDeciding,
    Stage::CandidateWaiting,
    Stage::SelectedDeciding,
    Stage::SelectedWaiting,
    Stage::ResumedDeciding,
    Stage::ResumedWaiting,
    Stage::Up,
];

impl Stage {
    /// The other node: ours is 5, and the lower one decides.
    const fn peer(self) -> u64 {
        match self {
            Self::CandidateDeciding | Self::SelectedDeciding | Self::ResumedDeciding => 9,
            _ => 3,
        }
    }

    fn reach(self) -> Overlay {
        let mut overlay = overlay();
        let state = match self {
            Self::Dialled => LinkState::Dialled,
            _ => LinkState::Accepted,
        };
        if self == Self::CandidateDeciding {
            overlay.add_link(now(), LinkId(0), LinkState::Accepted, None);
            overlay.on_candidate(now(), LinkId(0), hello(9));
        }
        overlay.add_link(now(), LINK, state, None);
        if !matches!(self, Self::Dialled | Self::Accepted) {
            overlay.on_candidate(now(), LINK, hello(self.peer()));
        }
        if matches!(
            self,
            Self::SelectedWaiting | Self::ResumedWaiting | Self::Up
        ) {
            overlay.receive(&packet("Select", self));
        }
        if matches!(
            self,
            Self::ResumedDeciding | Self::ResumedWaiting | Self::Up
        ) {
            overlay.receive(&packet("Versions", self));
        }
        if self == Self::Up {
            overlay.receive(&packet("Resume", self));
        }
        overlay
    }
}

impl Overlay {
    fn receive(&mut self, bytes: &[u8]) {
        self.handle_received(now(), LINK, bytes, |_| {});
    }
}

const PACKETS: &[&str] = &[
    "CONNECT",
    "AUTH",
    "CONNACK",
    "CONNACK, refused",
    "DISCONNECT",
    "PINGREQ",
    "PUBLISH, strange topic",
    "batch",
    "batch, cut",
    "Candidate, lost",
    "Candidate, linked",
    "Select",
    "Resume",
    "Hello",
    "HelloReply",
    "Leaving",
    "Record",
    "Versions",
    "Versions, wanted",
    "Versions, news",
    "Change",
    "Interests",
    "Interests, gap",
    "InterestsApplied",
    "Acknowledge",
    "Control",
];

fn packet(name: &str, state: Stage) -> Vec<u8> {
    let peer = hello(state.peer());
    let properties = peer.to_properties();
    let user_properties: UserProperties<'_> = properties
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let client_id = peer.client_id();
    let packet = match name {
        "CONNECT" => Packet::Connect(Box::new(Connect {
            user_properties,
            ..Connect::new(ProtocolVersion::V5, &client_id)
        })),
        "AUTH" => Packet::Auth(Auth {
            reason_code: ReasonCode::ContinueAuthentication,
            authentication_method: Some("thicket-1"),
            user_properties,
            ..Auth::default()
        }),
        "CONNACK" => Packet::Connack(Box::new(Connack {
            user_properties,
            ..Connack::new(ReasonCode::Success)
        })),
        "CONNACK, refused" => Packet::Connack(Box::new(Connack::new(ReasonCode::NotAuthorized))),
        "DISCONNECT" => Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
        "PINGREQ" => Packet::Pingreq,
        "PUBLISH, strange topic" => Packet::Publish(Publish {
            topic_alias: Some(1),
            ..Publish::new("$thicket/strange", b"")
        }),
        message => return publish(message, state.peer()),
    };
    let mut bytes = Vec::new();
    packet
        .encode(ProtocolVersion::V5, &mut bytes)
        .expect("encodable");
    bytes
}

fn publish(name: &str, peer: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut channel = Channel::Data;
    if name.starts_with("batch") {
        let header = crate::record::BatchHeader {
            origin: NodeId(peer),
            incarnation: Incarnation(1),
            stream: crate::StreamId(0),
            low: 1,
        };
        header.encode(&mut payload);
        crate::record::Record {
            number: 1,
            topic: "a",
            ..Default::default()
        }
        .encode(&mut payload);
        payload.truncate(payload.len() - usize::from(name == "batch, cut"));
    } else {
        let message = message(name, peer);
        channel = message.channel();
        message.encode(&mut payload);
    }
    let (mut bytes, alias) = (Vec::new(), Some(channel.alias()));
    let publish = Publish {
        topic_alias: alias,
        ..Publish::new(channel.topic(), &payload)
    };
    publish
        .encode(ProtocolVersion::V5, &mut bytes)
        .expect("encodable");
    bytes
}

fn message(name: &str, peer: u64) -> Message<'static> {
    let interests = |from| {
        Message::Interests(InterestBatch {
            kind: InterestBatchKind::SnapshotEnd,
            from,
            to: 1,
            entries: &[],
        })
    };
    match name {
        "Candidate, lost" => Message::Candidate {
            has_link: false,
            selects_seen: 1,
        },
        "Candidate, linked" => Message::Candidate {
            has_link: true,
            selects_seen: 1,
        },
        "Select" => Message::Select,
        "Resume" => Message::Resume(Resume {
            given_up: 0,
            interests_received: None,
            interests_applied: None,
            control_received: 0,
            credit_limit: 10,
            credit_window: 10,
        }),
        "Hello" => Message::Hello {
            sequence: 1,
            rtt_us: Some(400),
        },
        "HelloReply" => Message::HelloReply { sequence: 1 },
        "Leaving" => Message::Leaving,
        "Record" => Message::Record(record(peer)),
        "Versions" => Message::Versions(RecordVersions::of(std::iter::empty())),
        "Versions, news" => Message::Versions(RecordVersions::news(Vec::new())),
        "Versions, wanted" => {
            Message::Versions(RecordVersions::wanting([(NodeId(OWN), None)].into_iter()))
        }
        "Change" => Message::Change(change(peer)),
        "Interests" => interests(0),
        "Interests, gap" => interests(3),
        "InterestsApplied" => Message::InterestsApplied { version: 0 },
        "Acknowledge" => Message::Acknowledge(AcknowledgeView {
            credit_limit: 1,
            control_received: 0,
            streams: &[],
        }),
        "Control" => Message::Control {
            sequence: 1,
            kind: 1,
            payload: b"",
        },
        other => panic!("no packet {other}"),
    }
}

fn record(node: u64) -> NodeRecord {
    NodeRecord {
        process: node,
        ..crate::view::tests::record(node, 1, 1, &[])
    }
}

/// A change of the record from version 2, which no node has, to version 3.
fn change(node: u64) -> RecordChange {
    let version = |version| NodeRecord {
        version,
        ..record(node)
    };
    RecordChange::between(&version(2), &version(3)).expect("it is later")
}

/// The next state according to the table; `None`: closed.
fn expected(state: Stage, packet: &str) -> Option<&'static str> {
    use Stage::*;
    match (state, packet) {
        (Accepted, "CONNECT") => Some("candidate"),
        (Dialled, "CONNACK") => Some("candidate"),
        (CandidateDeciding, "Candidate, lost") => Some("selected"),
        (CandidateWaiting, "Select") => Some("selected"),
        (SelectedDeciding, "Candidate, lost" | "Candidate, linked") => Some("selected"),
        (SelectedDeciding | SelectedWaiting, "Versions") => Some("resumed"),
        (SelectedDeciding | SelectedWaiting, "Hello" | "HelloReply") => Some("selected"),
        (ResumedDeciding, "Candidate, lost" | "Candidate, linked") => Some("resumed"),
        (ResumedDeciding | ResumedWaiting, "Resume") => Some("up"),
        (
            ResumedDeciding | ResumedWaiting,
            "Hello" | "HelloReply" | "Record" | "Versions, wanted" | "Versions, news" | "Change",
        ) => Some("resumed"),
        (
            Up,
            "Hello" | "HelloReply" | "Record" | "Versions, wanted" | "Versions, news" | "Change"
            | "Interests" | "InterestsApplied" | "Acknowledge" | "Control" | "batch",
        ) => Some("up"),
        _ => None,
    }
}

/// Links that end without being refused by this node.
fn is_orderly(state: Stage, packet: &str) -> bool {
    let is_known = !matches!(state, Stage::Dialled | Stage::Accepted);
    packet == "DISCONNECT"
        || (packet == "CONNACK, refused" && state == Stage::Dialled)
        || (packet == "Candidate, linked" && state == Stage::CandidateDeciding)
        || (packet == "Leaving"
            && is_known
            && !matches!(state, Stage::CandidateDeciding | Stage::CandidateWaiting))
}

#[test]
fn every_pair_of_state_and_packet_does_what_the_table_says() {
    for state in ALL {
        for name in PACKETS {
            let mut overlay = state.reach();
            let refused = overlay.counters.refused_links;
            overlay.receive(&packet(name, state));
            let next = overlay.links.get(&LINK).map(|link| link.state.name());
            assert_eq!(next, expected(state, name), "{name} in {state:?}");
            let complaints = overlay.counters.refused_links - refused;
            assert_eq!(
                complaints == 1,
                next.is_none() && !is_orderly(state, name),
                "{name} in {state:?}"
            );
            let says_close = overlay.outputs.contains(&Output::Close(LINK));
            assert_eq!(says_close, next.is_none(), "{name} in {state:?}");
        }
    }
}

/// False claims of a stranger: that other nodes have a record of this one with this incarnation, that another process has its identity, and that it
/// has dialled itself.
fn lies(overlay: &Overlay, incarnation: u64) -> Vec<(&'static str, String)> {
    vec![
        ("known-incarnation", incarnation.to_string()),
        ("known-process", "00000000000000ff".to_owned()),
        ("holder", "holder:1".to_owned()),
        ("holder-incarnation", "0".to_owned()),
        ("process", format!("{:016x}", overlay.process)),
    ]
}

fn refuse_with(overlay: &mut Overlay, address: &str, told: &[(&'static str, String)]) {
    overlay.handle_input(now(), Input::Discovered { address });
    overlay.on_dialled(now(), address, LINK);
    overlay.outputs.clear();
    let user_properties = told.iter().map(|(name, value)| (*name, &**value)).collect();
    let refusal = Packet::Connack(Box::new(Connack {
        user_properties,
        ..Connack::new(ReasonCode::ClientIdentifierNotValid)
    }));
    overlay.on_handshake(now(), LINK, &refusal);
}

#[test]
fn nothing_a_link_without_proof_says_changes_anything() {
    for incarnation in [7, Incarnation::MAXIMUM.0, u64::MAX] {
        let mut overlay = guarded();
        let told = lies(&overlay, incarnation);
        refuse_with(&mut overlay, "stranger:1", &told);
        assert_eq!(overlay.incarnation(), Incarnation(1), "{incarnation}");
        let is_known = |output: &Output| matches!(output, Output::Event(_) | Output::Close(LINK));
        let outputs = &overlay.outputs;
        assert!(outputs.iter().all(is_known), "{incarnation}: {outputs:?}");
        assert!(overlay.dialler.is_news("holder:1", "known"), "not dialled");
        // The address is not treated as this node's own: it is dialled again.
        let later = Instant::from_millis(9000);
        assert_eq!(overlay.dialler.take_due(later, |_| false), ["stranger:1"]);
    }
    for name in ["CONNECT", "CONNACK", "DISCONNECT", "Record", "batch"] {
        for state in [LinkState::Accepted, LinkState::Dialled] {
            let mut overlay = guarded();
            overlay.add_link(now(), LINK, state, None);
            overlay.receive(&packet(name, Stage::Accepted));
            assert!(
                overlay.links.is_empty() && overlay.peers.is_empty(),
                "{name}"
            );
            let said = String::from_utf8_lossy(overlay.pending_output(LINK)).into_owned();
            assert!(!said.contains("process"), "{name}: {said}");
        }
    }
}

#[test]
fn what_a_proved_node_says_of_this_one_is_believed_within_reason() {
    for (incarnation, raised) in [
        (7, 8),
        (Incarnation::MAXIMUM.0 - 1, Incarnation::MAXIMUM.0),
        (Incarnation::MAXIMUM.0, 1),
        (u64::MAX, 1),
    ] {
        let mut overlay = guarded();
        let mut told = lies(&overlay, incarnation);
        told.truncate(2);
        overlay.handle_input(now(), Input::Discovered { address: "other:1" });
        overlay.on_dialled(now(), "other:1", LINK);
        overlay.handle_input(
            now(),
            Input::LinkProved {
                link: LINK,
                key: KEY,
            },
        );
        let user_properties = told.iter().map(|(name, value)| (*name, &**value)).collect();
        let refusal = Packet::Connack(Box::new(Connack {
            user_properties,
            ..Connack::new(ReasonCode::ClientIdentifierNotValid)
        }));
        overlay.on_handshake(now(), LINK, &refusal);
        assert_eq!(overlay.incarnation(), Incarnation(raised), "{incarnation}");
    }
}

#[test]
fn a_link_that_is_proved_tells_by_which_key() {
    let mut overlay = guarded();
    let address = "192.0.2.7:4711".parse().ok();
    let end = FarEnd {
        address,
        key: Some(KEY),
    };
    let bytes = &packet("CONNECT", Stage::Accepted);
    overlay.handle_input(
        now(),
        Input::LinkAccepted {
            link: LINK,
            end,
            bytes,
        },
    );
    overlay.receive(&packet("Select", Stage::CandidateWaiting));
    let keys: Vec<_> = overlay.nodes().iter().map(|node| node.key).collect();
    assert_eq!(keys, [None, Some(KEY)]);
    let unproved = FarEnd { address, key: None };
    overlay.on_accepted(now(), LinkId(2), unproved, bytes);
    let text = format!("{:?}", overlay.outputs);
    assert!(
        text.contains("192.0.2.7:4711"),
        "the address is named: {text}"
    );
}

/// A node was killed and started again: what its first process had sent arrives after the second one is linked.
#[test]
fn what_a_former_process_had_sent_does_not_end_the_link_of_the_next_one() {
    let (late, link) = (LinkId(2), LINK);
    let second = |node| Hello {
        incarnation: Incarnation(2),
        process: 77,
        ..hello(node)
    };
    let process_of = |overlay: &Overlay, node| overlay.peer_of(NodeId(node)).map(|it| it.process);
    // The other node decides: a `Select` on a link that was a candidate before.
    let mut overlay = overlay();
    for (id, hello) in [(late, hello(3)), (link, second(3))] {
        overlay.add_link(now(), id, LinkState::Accepted, None);
        overlay.on_candidate(now(), id, hello);
    }
    overlay.receive(&packet("Select", Stage::CandidateWaiting));
    overlay.handle_received(
        now(),
        late,
        &packet("Select", Stage::CandidateWaiting),
        |_| {},
    );
    assert_eq!(process_of(&overlay, 3), Some(77), "a late Select");
    assert!(overlay.links.contains_key(&link) && !overlay.links.contains_key(&late));
    // This node decides: the handshake of the first process ends late. Its record is known, that of the second one is not yet.
    for is_up in [false, true] {
        let mut overlay = self::overlay();
        overlay.view.apply(record(9));
        overlay.add_link(now(), link, LinkState::Accepted, None);
        overlay.on_candidate(now(), link, second(9));
        if is_up {
            overlay.receive(&packet("Versions", Stage::SelectedDeciding));
            overlay.receive(&packet("Resume", Stage::ResumedDeciding));
        }
        overlay.add_link(now(), late, LinkState::Accepted, None);
        let connect = packet("CONNECT", Stage::SelectedDeciding);
        overlay.handle_received(now(), late, &connect, |_| {});
        assert_eq!(process_of(&overlay, 9), Some(77), "a late CONNECT");
        assert!(overlay.links.contains_key(&link) && !overlay.links.contains_key(&late));
    }
}

#[test]
fn a_late_or_repeated_timeout_is_harmless() {
    let mut overlay = overlay();
    overlay.add_link(now(), LINK, LinkState::Accepted, None);
    for millis in [1000, 1000, 5999] {
        overlay.handle_input(Instant::from_millis(millis), Input::Timeout);
        overlay.end_round(Instant::from_millis(millis));
        assert!(overlay.links.contains_key(&LINK), "{millis}");
    }
    assert_eq!(overlay.poll_timeout(), Some(Instant::from_millis(6000)));
    for millis in [9000, 9000] {
        overlay.handle_input(Instant::from_millis(millis), Input::Timeout);
        overlay.end_round(Instant::from_millis(millis));
    }
    assert!(!overlay.links.contains_key(&LINK));
    assert_eq!(overlay.poll_timeout(), None);
}
