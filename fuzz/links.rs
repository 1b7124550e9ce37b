//! What must hold for whatever another node says on a link that is up: it may be of another version, broken or hostile.

use std::collections::VecDeque;

use thicket_mqtt::{ProtocolVersion, Publish};
use thicket_overlay::record::{BatchHeader, Record, Records};
use thicket_overlay::routing::RoutingMode;
use thicket_overlay::{FarEnd, Incarnation, Input, LinkId, NodeId, Output, Overlay, OverlayConfig};
use thicket_session::Instant;

const LINK: LinkId = LinkId(0);
const DIALLER: usize = 0;
const ACCEPTOR: usize = 1;

/// The topics that messages between nodes are sent on, in the order of their aliases.
const CHANNELS: [&str; 8] = [
    "$thicket/data",
    "$thicket/control/link",
    "$thicket/control/view",
    "$thicket/control/interests",
    "$thicket/control/acknowledgements",
    "$thicket/control/hub",
    "$thicket/tree",
    "$thicket/tunnel",
];
const TREE: usize = 6;

/// Two nodes with a link between them, in memory.
struct Pair {
    nodes: [Overlay; 2],
    is_accepted: bool,
    is_closed: bool,
    now: u64,
}

impl Pair {
    /// Two nodes that are up for each other.
    fn linked() -> Self {
        let config = |node| {
            let address = format!("{node}");
            let mut config = OverlayConfig::new(NodeId(node), Incarnation(1), "fuzz", &address);
            config.routing.mode = RoutingMode::Topic;
            config
        };
        let start = Instant::from_millis(1000);
        let mut pair = Self {
            nodes: [
                Overlay::new(config(1), start, 1),
                Overlay::new(config(2), start, 2),
            ],
            is_accepted: false,
            is_closed: false,
            now: 1000,
        };
        let address = "2";
        pair.nodes[DIALLER].handle_input(pair.instant(), Input::Discovered { address });
        pair.run();
        assert!(
            pair.nodes.iter().all(|node| node.reachable().len() == 2),
            "the two nodes see each other"
        );
        pair
    }

    fn instant(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    /// Runs rounds until nothing happens any more.
    fn run(&mut self) {
        for round in 0.. {
            assert!(round < 500, "two nodes have always something to say");
            let mut is_quiet = true;
            for side in [DIALLER, ACCEPTOR] {
                self.nodes[side].end_round(self.instant());
                let outputs: VecDeque<_> =
                    std::iter::from_fn(|| self.nodes[side].poll_output()).collect();
                is_quiet &= outputs.is_empty();
                for output in outputs {
                    self.perform(side, output);
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn perform(&mut self, side: usize, output: Output) {
        match output {
            Output::Dial { address } if !self.is_accepted && !self.is_closed => {
                let (address, link) = (&*address, LINK);
                self.nodes[side].handle_input(self.instant(), Input::Dialled { address, link });
            }
            Output::Dial { address } => {
                let (address, error) = (&*address, "nobody there");
                self.nodes[side].handle_input(self.instant(), Input::DialFailed { address, error });
            }
            Output::Flush(link) => self.flush(side, link),
            Output::Close(link) => {
                self.flush(side, link);
                self.is_closed = true;
                self.nodes[1 - side].handle_input(self.instant(), Input::Closed { link });
            }
            _ => {}
        }
    }

    fn flush(&mut self, side: usize, link: LinkId) {
        let bytes = self.nodes[side].pending_output(link).to_vec();
        self.nodes[side].handle_written(self.instant(), link, bytes.len());
        if !bytes.is_empty() && !self.is_closed {
            self.deliver(1 - side, &bytes);
        }
    }

    fn deliver(&mut self, side: usize, bytes: &[u8]) {
        let (now, link) = (self.instant(), LINK);
        if side == ACCEPTOR && !std::mem::replace(&mut self.is_accepted, true) {
            self.nodes[side].handle_input(
                now,
                Input::LinkAccepted {
                    link,
                    end: FarEnd::default(),
                    bytes,
                },
            );
        } else {
            self.nodes[side].handle_received(now, link, bytes, |delivery| {
                assert!(delivery.record.payload.len() <= bytes.len());
            });
        }
    }
}

/// Hands a node the first bytes of a link, in pieces as the first byte says, as if another node had
/// dialled it; and a node that dials, the same bytes as the answer.
///
/// # Panics
/// If a node panics, does not come to rest, or regards the other one as up.
pub fn greet_on_a_link(script: &[u8]) {
    let Some((&step, bytes)) = script.split_first() else {
        return;
    };
    let start = Instant::from_millis(1000);
    for side in [DIALLER, ACCEPTOR] {
        let config = OverlayConfig::new(NodeId(1), Incarnation(1), "fuzz", "1");
        let mut node = Overlay::new(config, start, 1);
        if side == DIALLER {
            let address = "2";
            node.handle_input(start, Input::Discovered { address });
            rest(&mut node, start);
            node.handle_input(start, Input::Dialled { address, link: LINK });
            rest(&mut node, start);
        }
        let mut is_accepted = side == DIALLER;
        for piece in bytes.chunks(usize::from(step).max(1)) {
            if std::mem::replace(&mut is_accepted, true) {
                node.handle_received(start, LINK, piece, |_| {});
            } else {
                let end = FarEnd::default();
                let (link, bytes) = (LINK, piece);
                node.handle_input(start, Input::LinkAccepted { link, end, bytes });
            }
            if rest(&mut node, start) {
                break;
            }
        }
    }
}

/// Runs rounds until a node has nothing to say. Whether it has closed the link.
fn rest(node: &mut Overlay, now: Instant) -> bool {
    let mut is_closed = false;
    for round in 0.. {
        assert!(round < 500, "the node has always something to say");
        node.end_round(now);
        let outputs: Vec<_> = std::iter::from_fn(|| node.poll_output()).collect();
        if outputs.is_empty() {
            return is_closed;
        }
        for output in outputs {
            match output {
                Output::Flush(link) => {
                    let len = node.pending_output(link).len();
                    node.handle_written(now, link, len);
                }
                Output::Close(_) => is_closed = true,
                Output::Dial { address } if &*address != "2" => {
                    let (address, error) = (&*address, "nobody there");
                    node.handle_input(now, Input::DialFailed { address, error });
                }
                _ => {}
            }
        }
    }
    is_closed
}

/// Hands a node what `script` says, as if the node at the other end of a link had sent it: a byte that chooses the channel (or
/// bytes as they are), a byte of length, that many bytes, and so on. In between both nodes go on as they would.
///
/// # Panics
/// If the node panics, delivers more than it got, or does not come to rest.
pub fn receive_on_a_link(script: &[u8]) {
    let mut pair = Pair::linked();
    let mut rest = script;
    while let [selector, len, after @ ..] = rest {
        let (body, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        let packet = match usize::from(selector % 16) {
            channel if channel < CHANNELS.len() => said(channel, body),
            _ => body.to_vec(),
        };
        if pair.is_closed {
            return;
        }
        pair.deliver(ACCEPTOR, &packet);
        pair.run();
        pair.now += u64::from(selector >> 4) * 100;
        let now = pair.instant();
        pair.nodes[ACCEPTOR].handle_input(now, Input::Timeout);
        pair.run();
    }
}

fn said(channel: usize, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let publish = Publish {
        topic_alias: Some(channel as u16 + 1),
        ..Publish::new(CHANNELS[channel], body)
    };
    publish
        .encode(ProtocolVersion::V5, &mut packet)
        .expect("short");
    packet
}

/// Hands a node batches on trees, as if its neighbour had sent them: two bytes of length, that many bytes, and so on. Names of trees
/// that one says the next ones may use.
///
/// # Panics
/// As [`receive_on_a_link`].
pub fn receive_tree_batches(script: &[u8]) {
    let mut pair = Pair::linked();
    let mut rest = script;
    while let [low, high, after @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high]) % 512);
        let (body, after) = after.split_at(len.min(after.len()));
        rest = after;
        if pair.is_closed {
            return;
        }
        pair.deliver(ACCEPTOR, &said(TREE, body));
        pair.run();
    }
}

/// Reads bytes as the batch of records that one node forwards to another.
///
/// # Panics
/// If an accepted record does not survive being encoded and decoded again.
pub fn read_records(bytes: &[u8]) {
    let Ok((header, records)) = BatchHeader::decode(bytes) else {
        return;
    };
    let mut written = Vec::new();
    header.encode(&mut written);
    assert!(written.len() <= BatchHeader::MAXIMUM_BYTES);
    for (record, _) in records.flatten() {
        let mut written = Vec::new();
        record.encode(&mut written);
        assert_eq!(written.len(), record.encoded_len());
        assert_eq!(Record::decode(&written), Ok((record, written.len())));
        assert_eq!(Records::new(&written).count(), 1);
    }
}
