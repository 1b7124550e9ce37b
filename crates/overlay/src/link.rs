//! One socket to another node: the state of its handshake, and the bytes in both directions.
//!
//! D dials, A accepts. The node with the lower id *decides*, so that of several links between the two exactly one is used.
//!
//! | state | event | next |
//! |---|---|---|
//! | `Dialled` (D: CONNECT is sent) | CONNACK, success | `Candidate` |
//! | `Dialled` | CONNACK, error | closed; the reason is logged |
//! | `Accepted` (A: waits for CONNECT) | CONNECT | `Candidate`, CONNACK sent |
//! | `Dialled`, `Accepted` | anything on an unproved link, where links must be proved | refused: closed |
//! | `Candidate` (lower id) | nothing else in use | `Selected`: sends `Select` and which versions of records it has |
//! | `Candidate` (lower id) | another link in use | waits for the other's `Candidate` message: closed, or `Selected` in its place |
//! | `Candidate` (higher id) | `Select` | `Selected`: sends which versions of records it has |
//! | `Selected`, `Resumed` (lower id) | the other's `Candidate` message, sent before it saw our choice | the same |
//! | `Selected` | `Versions` of all records | `Resumed`: sends its own record if the other end lacks it, `Resume`; requests those it lacks itself |
//! | `Resumed` | `Resume` | `Up` |
//! | `Up` | anything of `Resume`, `Select`, `Candidate`, `Versions` of all records | refused: closed |
//! | before `Up` | handshake timeout | closed |
//! | `Selected`, `Resumed`, `Up` | silence | closed |
//! | any | malformed bytes, or a message not listed here | refused: closed |

use thicket_mqtt::{Packet, ProtocolVersion, Publish};
use thicket_session::time::Instant;

use crate::channel::Channel;
use crate::hello::Hello;
use crate::identity::NodeId;
use crate::interface::FarEnd;
use crate::message::Message;
use crate::tree_name::{Aliases, OpenBatch};

/// Bytes of a buffer that an idle link keeps.
const KEPT_BYTES: usize = 1024;

/// A buffer that was hardly used this often in a row is freed.
const QUIET: u8 = 4;

/// One socket to another node.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) state: LinkState,
    /// The address, where this node dialled.
    pub(crate) dialled: Option<String>,
    pub(crate) end: FarEnd,
    /// Bytes received that are not a complete packet yet.
    pub(crate) input: Vec<u8>,
    output: Vec<u8>,
    /// How often in a row the output became empty after it had used little of its capacity.
    quiet: u8,
    /// Bytes of `output` that the socket has accepted.
    written: usize,
    /// The end of the output when the shell was last ordered to flush.
    flushed: usize,
    introduced: [bool; Channel::ALL.len()],
    aliases: [Option<Channel>; Channel::ALL.len()],
    /// When the handshake must be done.
    pub(crate) deadline: Instant,
    /// When it was selected.
    pub(crate) selected_at: Instant,
    pub(crate) last_received: Instant,
    /// When to send the next hello; `None`: the other end sends them.
    pub(crate) next_hello: Option<Instant>,
    pub(crate) hello: Option<SentHello>,
    pub(crate) hello_sequence: u64,
    /// Names of trees sent and received on it.
    pub(crate) aliases_sent: Aliases,
    pub(crate) aliases_received: Aliases,
    /// Records for a tree, until the round ends or the batch is full.
    pub(crate) open_batch: Option<OpenBatch>,
    /// Data waits until the out-buffer is below its limit.
    pub(crate) is_throttled: bool,
    scratch: Vec<u8>,
}

/// A hello whose reply is awaited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentHello {
    pub(crate) sequence: u64,
    pub(crate) at: Instant,
}

/// The state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Our CONNECT has been sent.
    Dialled,
    /// Waits for a CONNECT.
    Accepted,
    /// Both ends are identified; the lower id decides.
    Candidate { peer: Box<Hello> },
    /// Selected; waits for the versions of the other end's records.
    Selected { peer: Box<Hello> },
    /// The other end has our records, or they have been sent; waits for its `Resume`.
    Resumed { peer: Box<Hello> },
    /// In use.
    Up { node: NodeId },
}

impl LinkState {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Dialled => "dialled",
            Self::Accepted => "accepted",
            Self::Candidate { .. } => "candidate",
            Self::Selected { .. } => "selected",
            Self::Resumed { .. } => "resumed",
            Self::Up { .. } => "up",
        }
    }

    /// The node at the other end, once it is identified.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Candidate { peer } | Self::Selected { peer } | Self::Resumed { peer } => {
                Some(peer.node)
            }
            Self::Up { node } => Some(*node),
            Self::Dialled | Self::Accepted => None,
        }
    }

    /// Whether hellos are sent over it and silence ends it.
    pub(crate) const fn is_selected(&self) -> bool {
        matches!(
            self,
            Self::Selected { .. } | Self::Resumed { .. } | Self::Up { .. }
        )
    }
}

impl Link {
    pub(crate) fn new(
        state: LinkState,
        dialled: Option<String>,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            state,
            dialled,
            end: FarEnd::default(),
            input: Vec::new(),
            output: Vec::new(),
            quiet: 0,
            written: 0,
            flushed: 0,
            introduced: [false; Channel::ALL.len()],
            aliases: [None; Channel::ALL.len()],
            deadline,
            selected_at: now,
            last_received: now,
            next_hello: None,
            hello: None,
            hello_sequence: 0,
            aliases_sent: Aliases::default(),
            aliases_received: Aliases::default(),
            open_batch: None,
            is_throttled: false,
            scratch: Vec::new(),
        }
    }

    /// When to send a hello, or to check for silence.
    pub(crate) fn next_check(&self, down_after: std::time::Duration) -> Instant {
        let silent = self.last_received + down_after;
        self.next_hello.map_or(silent, |hello| hello.min(silent))
    }

    /// Bytes for the socket, oldest first.
    pub(crate) fn pending(&self) -> &[u8] {
        self.output.get(self.written..).unwrap_or_default()
    }

    /// Whether there is more output than the shell was ordered to flush.
    pub(crate) const fn take_flush(&mut self) -> bool {
        let needs = self.output.len() > self.flushed;
        self.flushed = self.output.len();
        needs
    }

    /// The socket has accepted `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.written = self.output.len().min(self.written.saturating_add(count));
        if self.written == self.output.len() {
            self.give_memory_back();
        }
        // Moving the rest costs time proportional to its length: only when at least as much was written.
        if self.written >= self.output.len() - self.written {
            self.output.drain(..self.written);
            self.flushed = self.flushed.saturating_sub(self.written);
            self.written = 0;
        }
    }

    /// All output is written. With many nodes, most links had much to send once: memory that is no longer used is freed.
    fn give_memory_back(&mut self) {
        let is_small = self.output.capacity() <= KEPT_BYTES;
        if is_small || self.output.len() > self.output.capacity() / 4 {
            self.quiet = 0;
            return;
        }
        self.quiet += 1;
        if self.quiet >= QUIET {
            self.quiet = 0;
            self.output.shrink_to(KEPT_BYTES);
        }
    }

    /// Appends a packet of the handshake, or a DISCONNECT.
    pub(crate) fn write_packet(&mut self, packet: &Packet<'_>) -> bool {
        packet.encode(ProtocolVersion::V5, &mut self.output).is_ok()
    }

    /// Appends a control message; returns its length.
    pub(crate) fn write_message(&mut self, message: &Message<'_>) -> usize {
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        message.encode(&mut payload);
        let written = self.write_publish(message.channel(), &payload);
        if payload.capacity() <= KEPT_BYTES {
            self.scratch = payload;
        }
        written
    }

    /// Appends a PUBLISH of QoS 0: the first one of a channel contains the topic, the others only its alias.
    pub(crate) fn write_publish(&mut self, channel: Channel, payload: &[u8]) -> usize {
        let before = self.output.len();
        let is_introduced = std::mem::replace(&mut self.introduced[channel as usize], true);
        let topic = if is_introduced { "" } else { channel.topic() };
        let publish = Publish {
            topic_alias: Some(channel.alias()),
            ..Publish::new(topic, payload)
        };
        // Only a payload over 256 MiB fails; records, control and batches are bounded far below.
        let encoded = publish.encode(ProtocolVersion::V5, &mut self.output);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        self.output.len() - before
    }

    /// The channel of a received PUBLISH; `None` if its topic or alias is not one of ours.
    pub(crate) fn channel(&mut self, publish: &Publish<'_>) -> Option<Channel> {
        let slot = usize::from(publish.topic_alias?).checked_sub(1)?;
        if publish.topic.is_empty() {
            return *self.aliases.get(slot)?;
        }
        let channel = Channel::from_topic(publish.topic)?;
        *self.aliases.get_mut(slot)? = Some(channel);
        Some(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link::new(
            LinkState::Accepted,
            None,
            Instant::default(),
            Instant::default(),
        )
    }

    #[test]
    fn the_topic_of_a_channel_travels_once() {
        let mut link = link();
        let lengths = [1, 2, 3].map(|_| link.write_publish(Channel::Data, b"x"));
        assert!(
            lengths[0] > lengths[1] && lengths[1] == lengths[2],
            "{lengths:?}"
        );
        let (mut receiver, mut rest) = (self::link(), link.pending());
        for _ in 0..3 {
            let (packet, len) = thicket_mqtt::decode(rest, ProtocolVersion::V5, 100)
                .expect("ours")
                .expect("whole");
            let Packet::Publish(publish) = packet else {
                panic!("{packet:?}")
            };
            assert_eq!(
                (receiver.channel(&publish), publish.payload),
                (Some(Channel::Data), b"x".as_slice())
            );
            rest = rest.get(len..).expect("within");
        }
        let cases = [
            (
                "alias never introduced",
                Publish {
                    topic_alias: Some(2),
                    ..Publish::new("", b"")
                },
            ),
            (
                "alias too high",
                Publish {
                    topic_alias: Some(99),
                    ..Publish::new(Channel::Hub.topic(), b"")
                },
            ),
            (
                "unknown topic",
                Publish {
                    topic_alias: Some(1),
                    ..Publish::new("$thicket/other", b"")
                },
            ),
            ("no alias", Publish::new(Channel::Hub.topic(), b"")),
        ];
        for (name, publish) in cases {
            assert_eq!(receiver.channel(&publish), None, "{name}");
        }
    }

    #[test]
    fn a_link_that_had_much_to_send_once_keeps_no_memory_for_it() {
        let mut link = link();
        let mut send = |len: usize| {
            link.write_publish(Channel::Hub, &vec![1; len]);
            link.consume(usize::MAX);
            link.output.capacity()
        };
        for _ in 0..9 {
            assert!(send(100_000) >= 100_000, "it is used again and again");
            assert!(send(9) >= 100_000, "as now and then there is less");
        }
        let kept: Vec<usize> = (0..QUIET).map(|_| send(9)).collect();
        assert_eq!(kept.last(), Some(&KEPT_BYTES), "{kept:?}");
        assert_eq!(send(9), KEPT_BYTES);
    }

    #[test]
    fn output_leaves_in_order_however_much_the_socket_takes() {
        let mut link = link();
        let mut sent = Vec::new();
        for step in 0..50_usize {
            link.write_publish(Channel::Hub, &[step as u8; 9]);
            assert!(link.take_flush() && !link.take_flush());
            let take = (step * 7 % 23).min(link.pending().len());
            sent.extend_from_slice(&link.pending()[..take]);
            link.consume(take);
        }
        sent.extend_from_slice(link.pending());
        let mut whole = self::link();
        for step in 0..50 {
            whole.write_publish(Channel::Hub, &[step; 9]);
        }
        assert_eq!(sent, whole.pending());
    }
}
