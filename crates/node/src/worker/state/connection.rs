//! One client's connection: what ends with it.

use std::{collections::VecDeque, net::SocketAddr, rc::Rc, time::Duration};

use thicket_access::scram::ServerExchange;
use thicket_mqtt::{PacketId, PacketKind, ProtocolVersion, Publish};
use thicket_session::time::Instant;

use super::{
    budget::Budget,
    counts::MessageCount,
    following::Following,
    places::BetterNodes,
    reauthentication::Reauthentication,
    replica::stream::{Level, Progress},
    session_key::SessionKey,
};
use crate::{
    Admission, ConnectionId, ListenerId,
    messages::{Placed, Terms},
    visits::DisconnectCause,
};

/// A connection and its state.
#[derive(Debug)]
pub(in crate::worker) struct Connection {
    /// Never repeated in a worker: a late timer or answer with another serial is for an earlier connection.
    pub serial: u64,
    pub listener: ListenerId,
    pub peer: SocketAddr,
    pub phase: Phase,
    pub out: OutBuffer,
    /// Bytes of a packet that is not whole yet; before the session is attached, everything since the CONNECT.
    pub partial: Vec<u8>,
    /// There are whole packets among them, which wait for the next round (`effort`).
    pub is_unfinished: bool,
    /// Of them, those counted as held by connections without a session.
    pub half_open: usize,
    /// When the last whole packet arrived: half a packet does not keep a connection alive.
    pub last_packet: Instant,
    /// Named in this round's flush list.
    pub is_dirty: bool,
    /// Bytes in `partial` behind the CONNECT that have been dealt with: AUTH packets.
    pub answered: usize,
    /// How the client was admitted, until its session is attached.
    pub admission: Admission,
    /// Which side ends it, and why; `None`: it has not ended.
    pub disconnect_cause: Option<DisconnectCause>,
    /// What the client may publish before it has to wait.
    pub budget: Budget,
}

/// The phase of a connection.
#[derive(Debug)]
pub(in crate::worker) enum Phase {
    /// No whole CONNECT yet.
    AwaitConnect,
    /// Users are being asked.
    AwaitVerdict,
    /// The client is to answer (AUTH), then users are asked again.
    AwaitAuth(Box<ServerExchange>),
    /// The hub is being asked which worker has the client identifier's session.
    AwaitClaim {
        assigned: Option<Rc<str>>,
        /// The terms of a claim that was granted.
        terms: Terms,
        /// Where its sessions should be, if it asked.
        placed: Option<Placed>,
    },
    /// In service.
    Attached(Box<Attached>),
    /// The last packet is written or being written; all that is received is dropped.
    Closing,
}

/// What a connection in service has.
#[derive(Debug)]
pub(in crate::worker) struct Attached {
    pub session: SessionKey,
    pub version: ProtocolVersion,
    /// The client is a bridge of another broker ([`thicket_mqtt::Connect::bridge`]).
    pub is_bridge: bool,
    /// One and a half times the keep alive; `None`: off.
    pub silence_allowed: Option<Duration>,
    /// Messages that may be in flight to the client.
    pub window: u16,
    /// Largest packet the client accepts, bytes.
    pub maximum_packet_size: u32,
    /// Reason strings and user properties are welcome in answers [MQTT-3.1.2-29].
    pub problem_information: bool,
    pub aliases_in: Vec<Option<Rc<str>>>,
    pub aliases_out: AliasesOut,
    /// The listener's topic prefix, to be removed from what is sent.
    pub prefix: Rc<str>,
    /// `None`: there was no authentication method in CONNECT.
    pub reauthentication: Option<Box<Reauthentication>>,
    /// Where the recipients of its messages are.
    pub following: Following,
    /// How many messages it has.
    pub count: MessageCount,
    /// `None`: it is not moved to better nodes by topic.
    pub better_nodes: Option<Box<BetterNodes>>,
}

/// Topic aliases from us to a client: the first topics get them and keep them.
#[derive(Debug, Default)]
pub(in crate::worker) struct AliasesOut {
    maximum: u16,
    known: hashbrown::HashMap<Box<str>, u16, foldhash::fast::FixedState>,
}

impl AliasesOut {
    pub fn new(maximum: u16) -> Self {
        Self {
            maximum,
            known: hashbrown::HashMap::default(),
        }
    }

    pub const fn is_enabled(&self) -> bool {
        self.maximum > 0
    }

    /// The alias of a topic, and whether the client has it already; `None`: all aliases have other topics.
    pub fn find(&self, topic: &str) -> Option<(u16, bool)> {
        if let Some(&alias) = self.known.get(topic) {
            return Some((alias, true));
        }
        let is_free = self.known.len() < usize::from(self.maximum);
        is_free.then(|| (self.known.len() as u16 + 1, false))
    }

    /// A packet that gives `topic` the next alias was sent.
    pub fn learn(&mut self, topic: &str) {
        self.known.insert(topic.into(), self.known.len() as u16 + 1);
    }
}

/// Bytes that wait for a backup.
#[derive(Debug, Clone, Copy)]
struct Hold {
    /// Counted from the first byte that was ever appended.
    from: u64,
    /// The stream of backups, and its position.
    stream: u8,
    position: u64,
    level: Level,
}

/// Bytes on their way to a socket.
#[derive(Debug, Default)]
pub(in crate::worker) struct OutBuffer {
    pub bytes: Vec<u8>,
    start: usize,
    /// Bytes that the socket accepted.
    taken: u64,
    /// From where on bytes wait, and for which positions of streams of backups.
    holds: VecDeque<Hold>,
}

impl OutBuffer {
    /// An idle connection keeps no more than this.
    const KEPT_CAPACITY: usize = 16 * 1024;

    /// What may be sent now.
    pub fn pending(&self) -> &[u8] {
        let end = match self.holds.front() {
            None => self.bytes.len(),
            Some(hold) => self.start + (hold.from - self.taken) as usize,
        };
        &self.bytes[self.start..end]
    }

    /// What is appended from now on is not sent before `release_held` allows it. False: it waits for that already.
    pub fn hold(&mut self, stream: u8, position: u64, level: Level) -> bool {
        let from = self.taken + self.len() as u64;
        let mut latest = self.holds.iter().rev();
        let of_stream = latest.find(|hold| hold.stream == stream);
        let is_new = of_stream.is_none_or(|hold| hold.position != position || hold.level != level);
        if is_new {
            self.holds.push_back(Hold {
                from,
                stream,
                position,
                level,
            });
        }
        is_new
    }

    /// The node of a stream has reached these positions: what waited for it, and for nothing else, may be sent.
    pub fn release_held(&mut self, stream: u8, progress: Progress) {
        let is_done =
            |hold: &Hold| hold.stream == stream && progress.has(hold.position, hold.level);
        while self.holds.pop_front_if(|hold| is_done(hold)).is_some() {}
        if self.holds.front().is_some_and(|hold| hold.stream != stream) {
            self.holds.retain(|hold| !is_done(hold));
        }
    }

    /// Makes what waits for one stream wait for a position of another one. False: nothing does.
    pub fn move_holds(&mut self, from: u8, to: u8, position: u64) -> bool {
        let first = self.holds.iter().position(|hold| hold.stream == from);
        if let Some(hold) = first.and_then(|at| self.holds.get_mut(at)) {
            (hold.stream, hold.position, hold.level) = (to, position, Level::Applied);
        }
        self.holds.retain(|hold| hold.stream != from);
        first.is_some()
    }

    /// Whether something waits.
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Whether the CONNACK waits.
    pub fn holds_connack(&self) -> bool {
        let is_connack = |byte: &u8| byte >> 4 == PacketKind::Connack as u8;
        self.holds.front().is_some_and(|hold| {
            let at = self.start + (hold.from - self.taken) as usize;
            self.bytes.get(at).is_some_and(is_connack)
        })
    }

    /// Drops what waits: the connection ends. Returns whether the CONNACK was sent before.
    pub fn drop_held(&mut self) -> bool {
        let Some(hold) = self.holds.front() else {
            return true;
        };
        let at = self.start + (hold.from - self.taken) as usize;
        let is_acknowledged = !self.holds_connack();
        self.bytes.truncate(at);
        self.holds.clear();
        is_acknowledged
    }

    pub const fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub fn consume(&mut self, count: usize) {
        self.start += count;
        self.taken += count as u64;
        if self.start >= self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > Self::KEPT_CAPACITY {
                self.bytes.shrink_to(Self::KEPT_CAPACITY);
            }
        } else if self.start >= self.bytes.len() / 2 {
            // Keeps a connection that never quite drains from growing for ever.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Frees all memory; only while nothing is pending.
    pub fn release(&mut self) {
        if self.len() == 0 {
            self.bytes = Vec::new();
            self.start = 0;
        }
    }

    /// Overwrites the packet identifier at `offset` of `bytes`.
    pub fn patch_packet_id(&mut self, offset: usize, id: PacketId) {
        self.bytes[offset..offset + 2].copy_from_slice(&id.value().to_be_bytes());
    }
}

impl Connection {
    pub fn new(serial: u64, listener: ListenerId, peer: SocketAddr, now: Instant) -> Self {
        Self {
            serial,
            listener,
            peer,
            phase: Phase::AwaitConnect,
            out: OutBuffer::default(),
            partial: Vec::new(),
            is_unfinished: false,
            half_open: 0,
            last_packet: now,
            is_dirty: false,
            answered: 0,
            admission: Admission::default(),
            disconnect_cause: None,
            budget: Budget::default(),
        }
    }

    /// It has something to send: it enters the list of such connections once.
    #[inline]
    pub fn mark_dirty(&mut self, id: ConnectionId, dirty: &mut Vec<ConnectionId>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(id);
        }
    }

    pub fn attached(&self) -> Option<&Attached> {
        match &self.phase {
            Phase::Attached(attached) => Some(attached),
            Phase::AwaitConnect
            | Phase::AwaitVerdict
            | Phase::AwaitAuth(_)
            | Phase::AwaitClaim { .. }
            | Phase::Closing => None,
        }
    }

    pub fn attached_mut(&mut self) -> Option<&mut Attached> {
        match &mut self.phase {
            Phase::Attached(attached) => Some(attached),
            Phase::AwaitConnect
            | Phase::AwaitVerdict
            | Phase::AwaitAuth(_)
            | Phase::AwaitClaim { .. }
            | Phase::Closing => None,
        }
    }
}

impl Attached {
    /// `published` PUBLISH packets arrived.
    pub const fn count_published(&mut self, published: u64) {
        self.count.messages += published;
        self.count.activity.published += published;
    }

    /// Messages to the client since the last call.
    pub const fn take_delivered(&mut self) -> u64 {
        let all = self.count.messages - self.count.activity.published;
        all - std::mem::replace(&mut self.count.delivered, all)
    }

    /// Thousandths of a message a second, from the client and to it.
    pub fn rate(&mut self, now: Instant) -> u64 {
        let messages = self.count.messages;
        self.count.activity.rates(now, messages).0
    }

    pub fn note_published(&mut self, publish: &Publish<'_>) {
        let activity = &mut self.count.activity;
        match publish.topic_alias {
            Some(alias) if publish.topic.is_empty() => {
                let index = usize::from(alias).checked_sub(1);
                let known = index.and_then(|index| self.aliases_in.get(index)?.as_deref());
                activity.note("", known.unwrap_or_default());
            }
            Some(_) | None => activity.note(&self.prefix, publish.topic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn to(position: u64) -> Progress {
        Progress {
            applied: position,
            held: position,
        }
    }

    #[test]
    fn bytes_leave_when_every_stream_they_wait_for_has_come_so_far_in_whatever_order() {
        // "a" waits for nothing, "b" for 5 of stream 0 and 7 of stream 1, "c" for 6 of stream 0 too.
        for (name, releases, expected) in [
            ("nothing", &[][..], "a"),
            ("one of two", &[(0, 5)], "a"),
            ("the other of two", &[(1, 7)], "a"),
            ("not far enough", &[(1, 6), (0, 6)], "a"),
            ("both", &[(0, 5), (1, 7)], "ab"),
            ("both, the other way round", &[(1, 7), (0, 5)], "ab"),
            ("all", &[(0, 6), (1, 7)], "abc"),
            ("a stream that is over", &[(1, u64::MAX), (0, 6)], "abc"),
            ("another stream", &[(2, 9), (0, 6)], "a"),
        ] {
            let mut out = OutBuffer::default();
            out.bytes.extend(b"a");
            assert!(out.hold(0, 5, Level::Applied) && out.hold(1, 7, Level::Applied));
            out.bytes.extend(b"b");
            assert!(out.hold(0, 6, Level::Applied) && !out.hold(1, 7, Level::Applied));
            out.bytes.extend(b"c");
            for (stream, position) in releases {
                out.release_held(*stream, to(*position));
            }
            assert_eq!(out.pending(), expected.as_bytes(), "{name}");
            assert_eq!(out.is_held(), expected != "abc", "{name}");
        }
    }

    #[test]
    fn what_waited_for_one_stream_waits_for_another_one() {
        let mut out = OutBuffer::default();
        assert!(out.hold(0, 5, Level::Held) && out.hold(1, 7, Level::Applied));
        out.bytes.extend(b"a");
        assert!(!out.move_holds(3, 2, 1), "nothing waits for that");
        assert!(out.move_holds(0, 2, 1));
        out.release_held(0, to(u64::MAX));
        out.release_held(1, to(7));
        assert_eq!(out.pending(), b"");
        out.release_held(2, to(1));
        assert_eq!(out.pending(), b"a");
    }
}
