//! The transition table of [`crate::link`], pair by pair.

use thicket_mqtt::{
    Auth, Connack, Connect, Disconnect, Packet, ProtocolVersion, Publish, ReasonCode,
    UserProperties,
};
use thicket_session::time::Instant;

use super::*;
use crate::channel::Channel;
use crate::hello::{METHOD, Role, prove};
use crate::message::{AcknowledgeView, InterestBatch, InterestBatchKind, Message, Resume};

mod lies;

const SECRET: &[u8] = b"low tide";
const OWN: u64 = 5;
const LINK: LinkId = LinkId(1);

fn now() -> Instant {
    Instant::from_millis(1000)
}

fn overlay(secret: Option<&[u8]>) -> Overlay {
    let mut config = OverlayConfig::new(NodeId(OWN), Incarnation(1), "reef", "own:1883");
    config.secret = secret.map(<[u8]>::to_vec);
    Overlay::new(config, now(), 7)
}

fn hello(node: u64) -> Hello {
    Hello {
        wire: WireRange::up_to(WireVersion::NEWEST),
        cluster: "reef".into(),
        node: NodeId(node),
        incarnation: Incarnation(1),
        process: node,
        name: "other".into(),
        address: String::new(),
        nonce: [1, 2],
    }
}

/// Every state, as this node gets there; whether it decides is in the name where it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dialled,
    Proved,
    Accepted,
    Challenged,
    /// Another link is in use.
    CandidateDeciding,
    CandidateWaiting,
    SelectedDeciding,
    SelectedWaiting,
    Up,
}

const ALL: [Stage; 9] = [
    Stage::Dialled,
    Stage::Proved,
    Stage::Accepted,
    Stage::Challenged,
    Stage::CandidateDeciding,
    Stage::CandidateWaiting,
    Stage::SelectedDeciding,
    Stage::SelectedWaiting,
    Stage::Up,
];

impl Stage {
    /// The other node: ours is 5, and the lower one decides.
    const fn peer(self) -> u64 {
        match self {
            Self::CandidateDeciding | Self::SelectedDeciding => 9,
            _ => 3,
        }
    }

    fn reach(self) -> Overlay {
        let needs_secret = matches!(self, Self::Proved | Self::Challenged);
        let mut overlay = overlay(needs_secret.then_some(SECRET));
        let (own, peer) = (Box::new(hello(OWN)), Box::new(hello(self.peer())));
        let state = match self {
            Self::Dialled => LinkState::Dialled { own },
            Self::Proved => LinkState::Proved { own, peer },
            Self::Challenged => LinkState::Challenged { own, peer },
            _ => LinkState::Accepted,
        };
        if self == Self::CandidateDeciding {
            overlay.add_link(now(), LinkId(0), LinkState::Accepted, None);
            overlay.on_candidate(now(), LinkId(0), hello(9));
        }
        overlay.add_link(now(), LINK, state, None);
        if !matches!(
            self,
            Self::Dialled | Self::Proved | Self::Accepted | Self::Challenged
        ) {
            overlay.on_candidate(now(), LINK, hello(self.peer()));
        }
        if matches!(self, Self::SelectedWaiting | Self::Up) {
            overlay.receive(&packet("Select", self));
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
    "AUTH, wrong proof",
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
    let role = if state == Stage::Challenged {
        Role::Dialler
    } else {
        Role::Acceptor
    };
    let mut proof = prove(SECRET, role, &peer, &hello(OWN));
    proof[0] ^= u8::from(name == "AUTH, wrong proof");
    let client_id = peer.client_id();
    let packet = match name {
        "CONNECT" => Packet::Connect(Box::new(Connect {
            user_properties,
            ..Connect::new(ProtocolVersion::V5, &client_id)
        })),
        "AUTH" | "AUTH, wrong proof" => Packet::Auth(Auth {
            reason_code: ReasonCode::ContinueAuthentication,
            authentication_method: Some(METHOD),
            authentication_data: Some(&proof),
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
        "Record" => Message::Record(NodeRecord {
            node: NodeId(peer),
            incarnation: Incarnation(1),
            version: 1,
            process: peer,
            name: String::new(),
            address: String::new(),
            clients: 0,
            subscriptions: 0,
            interest_version: 0,
            capability: 0,
            roots: 0,
            rate: 0,
            routing: 0,
            links: Vec::new(),
            epochs: Vec::new(),
        }),
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

/// What the table says: the next state, or `None` for closed.
fn expected(state: Stage, packet: &str) -> Option<&'static str> {
    use Stage::*;
    match (state, packet) {
        (Accepted, "CONNECT") => Some("candidate"),
        (Challenged, "AUTH") => Some("candidate"),
        (Dialled, "CONNACK") => Some("candidate"),
        (Proved, "CONNACK") => Some("candidate"),
        (CandidateDeciding, "Candidate, lost") => Some("selected"),
        (CandidateWaiting, "Select") => Some("selected"),
        (SelectedDeciding, "Candidate, lost" | "Candidate, linked") => Some("selected"),
        (SelectedDeciding | SelectedWaiting, "Resume") => Some("up"),
        (SelectedDeciding | SelectedWaiting, "Hello" | "HelloReply" | "Record") => Some("selected"),
        (
            Up,
            "Hello" | "HelloReply" | "Record" | "Interests" | "InterestsApplied" | "Acknowledge"
            | "Control" | "batch",
        ) => Some("up"),
        _ => None,
    }
}

/// Links that end without a complaint of ours.
fn is_orderly(state: Stage, packet: &str) -> bool {
    let is_known = !matches!(
        state,
        Stage::Dialled | Stage::Proved | Stage::Accepted | Stage::Challenged
    );
    packet == "DISCONNECT"
        || (packet == "CONNACK, refused" && matches!(state, Stage::Dialled | Stage::Proved))
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

#[test]
fn with_a_secret_a_challenge_is_answered_with_a_proof() {
    let mut overlay = overlay(Some(SECRET));
    overlay.on_dialled(now(), "other:1", LINK);
    let Some(LinkState::Dialled { own }) = overlay.links.get(&LINK).map(|link| link.state.clone())
    else {
        panic!("dialled")
    };
    let (peer, link) = (hello(3), LINK);
    for (name, proof, state) in [
        (
            "wrong",
            prove(b"high tide", Role::Acceptor, &own, &peer),
            None,
        ),
        (
            "of our own role",
            prove(SECRET, Role::Dialler, &own, &peer),
            None,
        ),
        (
            "right",
            prove(SECRET, Role::Acceptor, &own, &peer),
            Some("proved"),
        ),
    ] {
        overlay.links.get_mut(&link).expect("open").state = LinkState::Dialled { own: own.clone() };
        let properties = peer.to_properties();
        let auth = Auth {
            reason_code: ReasonCode::ContinueAuthentication,
            authentication_method: Some(METHOD),
            authentication_data: Some(&proof),
            user_properties: properties
                .iter()
                .map(|(name, value)| (*name, &**value))
                .collect(),
            ..Auth::default()
        };
        overlay.on_handshake(now(), link, &Packet::Auth(auth));
        let next = overlay.links.get(&link).map(|link| link.state.name());
        assert_eq!(next, state, "{name}");
        if next.is_none() {
            overlay.add_link(now(), link, LinkState::Accepted, None);
        }
    }
}

#[test]
fn a_late_or_repeated_timeout_is_harmless() {
    let mut overlay = overlay(None);
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
