//! A session as bytes: what moves to another node, later what is kept on disk.
//!
//! Little-endian, lengths before what they count, a version first. Times travel as time left, never as instants: clocks differ.

use std::{rc::Rc, time::Duration};

use thicket_mqtt::{
    ApplicationProperties, PacketId, Publish, Qos, RetainHandling, SubscriptionOptions,
};

use super::{
    Delivery, FinishedMessages, FinishedRange, InboundId, MatchedIdentifiers, Message, MessageId,
    Redelivery, Replay, Subscribed, Subscription,
};
use crate::{time::Instant, topic::SubscriptionFilter};

/// Version of the format.
const VERSION: u8 = 3;

/// A session without its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Client identifier.
    pub client_id: String,
    /// Identity across nodes.
    pub uid: u128,
    /// Session Expiry Interval in seconds, never 0.
    pub expiry_interval: u32,
    /// How long its client has been away; `None`: it was connected until now.
    pub away_for: Option<Duration>,
    /// Subscriptions, ascending, each once.
    pub subscriptions: Vec<(SubscriptionFilter, Subscribed)>,
    /// QoS 2 identifiers of the client that are not released.
    pub inbound: Vec<InboundId>,
    /// See `Inbound::generation`.
    pub inbound_generation: u32,
    /// The identifier the next message gets.
    pub next_packet_id: PacketId,
    /// Sent and not acknowledged, oldest first.
    pub in_flight: Vec<Redelivery>,
    /// A will that waits for its delay.
    pub will: Option<WillSnapshot>,
    /// Another node may have the session too.
    pub branch: Option<Branch>,
}

/// What one worker held of a session under one number of its streams: a node that has the session again later gives it another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    /// Node.
    pub node: u64,
    /// Worker.
    pub worker: u8,
    /// In that worker's streams; 0: unknown, from a node of an older version.
    pub number: u64,
}

/// Distinguishes what two nodes did to a session that both had for a while (rule 15 between nodes).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Branch {
    /// The primary of which it was a backup, before the partition; `None`: it was no backup.
    pub from: Option<Ancestor>,
    /// Messages that it held then and that the other node held too: one that either side lacks later is finished.
    pub known: Vec<MessageId>,
    /// Messages that had arrived for it then and that the other node may not have received.
    pub pending: Vec<MessageId>,
    /// Filters whose SUBSCRIBE or UNSUBSCRIBE was received since.
    pub touched: Vec<SubscriptionFilter>,
    /// Not everything that the other node held then had arrived here.
    pub is_partial: bool,
    /// The node was started again since: nothing follows from what it lacks.
    pub is_interrupted: bool,
    /// It was a backup, and no client has connected to it since: its state of packets under way is from before.
    pub is_unserved: bool,
    /// Time since its client connected last; `None`: unknown, from a node of an older version.
    pub since_connect: Option<Duration>,
    /// Sessions that it has merged completely, itself included; `None`: unknown, from a node of an older version.
    pub ancestors: Option<Vec<Ancestor>>,
    /// Messages that branches which it merged held when they were split off.
    pub shared: Vec<MessageId>,
    /// What it has finished while another replica may have held it.
    pub finished: FinishedMessages,
}

/// A delayed will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WillSnapshot {
    /// When it is due.
    pub due_in: Duration,
    /// Will topic, prefix of the listener included.
    pub topic: String,
    /// Will payload.
    pub payload: Vec<u8>,
    /// Encoded application properties.
    pub properties: Vec<u8>,
    /// Will QoS.
    pub qos: Qos,
    /// Will retain.
    pub retain: bool,
    /// Message Expiry Interval in seconds.
    pub message_expiry_interval: Option<u32>,
}

/// The bytes are no snapshot of ours. Nothing changed; the sender must send them again or give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Malformed: of another version.
    #[error("snapshot version {0} is not known")]
    Version(u8),
    /// Malformed: ends early, or a field has a value it cannot have.
    #[error("snapshot is malformed at {0}")]
    Malformed(&'static str),
}

impl SessionSnapshot {
    /// As bytes; expiry of messages counts from `now`.
    #[must_use]
    pub fn encode(&self, now: Instant) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(self.client_id.as_bytes());
        out.0.extend_from_slice(&self.uid.to_le_bytes());
        out.u32(self.expiry_interval);
        out.optional_u64(self.away_for.map(|away| away.as_millis() as u64));
        out.u32(self.subscriptions.len() as u32);
        for (filter, subscribed) in &self.subscriptions {
            out.subscription(filter, subscribed);
        }
        out.u32(self.inbound.len() as u32);
        for id in &self.inbound {
            out.u16(id.packet_id.value());
            out.u32(id.generation);
            out.u8(id.state_bits());
        }
        out.u32(self.inbound_generation);
        out.u16(self.next_packet_id.value());
        out.u32(self.in_flight.len() as u32);
        for redelivery in &self.in_flight {
            match redelivery {
                Redelivery::Publish(id, delivery) => {
                    out.u16(id.value());
                    out.u8(1);
                    out.delivery(delivery, now);
                }
                Redelivery::Pubrel(id) => {
                    out.u16(id.value());
                    out.u8(0);
                }
            }
        }
        out.u8(u8::from(self.will.is_some()));
        if let Some(will) = &self.will {
            out.will(will);
        }
        if let Some(branch) = &self.branch {
            out.branch(branch);
        }
        out.0
    }

    /// From bytes that `encode` made.
    ///
    /// # Errors
    /// [`SnapshotError`]; sizes are never trusted.
    pub fn decode(bytes: &[u8], now: Instant) -> Result<Self, SnapshotError> {
        let mut reader = Reader::new(bytes)?;
        let client_id = reader.string("client identifier")?;
        let uid = u128::from_le_bytes(reader.array("uid")?);
        let expiry_interval = reader.u32("expiry interval")?;
        let away_for = reader.optional_u64("time away")?.map(Duration::from_millis);
        let subscriptions = reader.list("subscriptions", Reader::subscription)?;
        let inbound = reader.list("inbound", Reader::inbound)?;
        let inbound_generation = reader.u32("inbound generation")?;
        let next_packet_id = reader.packet_id()?;
        let in_flight = reader.list("in flight", |reader| {
            let id = reader.packet_id()?;
            match reader.u8("kind in flight")? {
                0 => Ok(Redelivery::Pubrel(id)),
                1 => Ok(Redelivery::Publish(id, reader.delivery(now)?)),
                _ => Err(SnapshotError::Malformed("kind in flight")),
            }
        })?;
        let will = match reader.u8("will")? {
            0 => None,
            _ => Some(reader.will()?),
        };
        let branch = if reader.0.is_empty() {
            None
        } else {
            Some(reader.branch()?)
        };
        Ok(Self {
            client_id,
            uid,
            expiry_interval,
            away_for,
            subscriptions,
            inbound,
            inbound_generation,
            next_packet_id,
            in_flight,
            will,
            branch,
        })
    }
}

impl Branch {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.branch(self);
        out.0
    }

    /// From bytes that `encode` made.
    ///
    /// # Errors
    /// [`SnapshotError`]; sizes are never trusted.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        Reader::new(bytes)?.branch()
    }
}

/// A queue as bytes; expiry of messages counts from `now`.
#[must_use]
pub fn encode_queue<'a>(queue: impl IntoIterator<Item = &'a Delivery>, now: Instant) -> Vec<u8> {
    let mut out = Writer::new();
    let queue: Vec<_> = queue.into_iter().collect();
    out.u32(queue.len() as u32);
    for delivery in queue {
        out.delivery(delivery, now);
    }
    out.0
}

/// A queue from bytes that [`encode_queue`] made.
///
/// # Errors
/// [`SnapshotError`]; sizes are never trusted.
pub fn decode_queue(bytes: &[u8], now: Instant) -> Result<Vec<Delivery>, SnapshotError> {
    Reader::new(bytes)?.list("queue", |reader| reader.delivery(now))
}

/// Writes fields one after the other, the version first.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(vec![VERSION])
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn subscription(&mut self, filter: &SubscriptionFilter, subscribed: &Subscribed) {
        let Subscribed {
            subscription,
            replay,
        } = subscribed;
        self.bytes(filter.to_string().as_bytes());
        let options = subscription.options;
        self.u8(options.qos as u8
            | u8::from(options.no_local) << 2
            | u8::from(options.retain_as_published) << 3
            | (options.retain_handling as u8) << 4);
        self.u32(subscription.identifier.unwrap_or(0));
        self.u8(u8::from(replay.is_some()));
        if let Some(replay) = replay {
            // No topic is empty.
            self.bytes(replay.behind.as_deref().unwrap_or_default().as_bytes());
            self.u8(u8::from(replay.since.is_some()));
            let (millis, counter) = replay.since.unwrap_or_default();
            self.u64(millis);
            self.u16(counter);
        }
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn optional_u64(&mut self, value: Option<u64>) {
        self.u8(u8::from(value.is_some()));
        self.u64(value.unwrap_or(0));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    fn delivery(&mut self, delivery: &Delivery, now: Instant) {
        let message = &delivery.message;
        self.message_id(message.id());
        self.u8(message.qos() as u8
            | u8::from(message.retain()) << 2
            | (delivery.qos as u8) << 3
            | u8::from(delivery.retain) << 5);
        self.optional_u64(
            message
                .expires_at()
                .map(|at| at.since(now).as_millis() as u64),
        );
        let identifiers = delivery.identifiers.as_slice();
        self.u32(identifiers.len() as u32);
        for identifier in identifiers {
            self.u32(*identifier);
        }
        self.bytes(delivery.group.as_deref().unwrap_or_default().as_bytes());
        self.bytes(message.topic().as_bytes());
        let mut properties = Vec::new();
        message.properties().write_to(&mut properties);
        self.bytes(&properties);
        self.bytes(message.payload());
    }

    fn message_id(&mut self, id: MessageId) {
        self.u64(id.node);
        self.u64(id.incarnation);
        self.u8(id.stream);
        self.u64(id.number);
    }

    fn message_ids(&mut self, ids: &[MessageId]) {
        self.u32(ids.len() as u32);
        ids.iter().for_each(|id| self.message_id(*id));
    }

    fn branch(&mut self, branch: &Branch) {
        self.optional_u64(branch.from.map(|from| from.node));
        self.message_ids(&branch.known);
        self.message_ids(&branch.pending);
        self.u32(branch.touched.len() as u32);
        for filter in &branch.touched {
            self.bytes(filter.to_string().as_bytes());
        }
        let bits = [
            branch.is_partial,
            branch.is_interrupted,
            branch.is_unserved,
            branch.since_connect.is_some(),
            branch.ancestors.is_some(),
        ];
        let bits = bits.into_iter().zip(0..);
        self.u8(bits.fold(0, |all, (bit, place)| all | u8::from(bit) << place));
        // Last, where the version before does not look.
        if let Some(time) = branch.since_connect {
            self.u64(time.as_millis() as u64);
        }
        if let Some(ancestors) = &branch.ancestors {
            if let Some(from) = branch.from {
                self.u8(from.worker);
                self.u64(from.number);
            }
            self.u32(ancestors.len() as u32);
            for ancestor in ancestors {
                self.u64(ancestor.node);
                self.u8(ancestor.worker);
                self.u64(ancestor.number);
            }
            self.message_ids(&branch.shared);
        }
        self.u32(branch.finished.ranges() as u32);
        for range in branch.finished.iter() {
            self.message_id(range.first);
            self.u64(range.count);
            self.bytes(range.group.as_deref().unwrap_or_default().as_bytes());
        }
    }

    fn will(&mut self, will: &WillSnapshot) {
        self.u64(will.due_in.as_millis() as u64);
        self.bytes(will.topic.as_bytes());
        self.bytes(&will.payload);
        self.bytes(&will.properties);
        self.u8(will.qos as u8 | u8::from(will.retain) << 2);
        self.optional_u64(will.message_expiry_interval.map(u64::from));
    }
}

/// Reads what [`Writer`] wrote; sizes are never trusted.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            Some((&version, _)) => Err(SnapshotError::Version(version)),
            None => Err(SnapshotError::Malformed("version")),
        }
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], SnapshotError> {
        let (array, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(SnapshotError::Malformed(field))?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, SnapshotError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, SnapshotError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, SnapshotError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, SnapshotError> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(super) fn optional_u64(
        &mut self,
        field: &'static str,
    ) -> Result<Option<u64>, SnapshotError> {
        let is_there = self.u8(field)? != 0;
        let value = self.u64(field)?;
        Ok(is_there.then_some(value))
    }

    pub(super) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], SnapshotError> {
        let len = self.u32(field)? as usize;
        let (bytes, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(SnapshotError::Malformed(field))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a str, SnapshotError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| SnapshotError::Malformed(field))
    }

    pub(super) fn string(&mut self, field: &'static str) -> Result<String, SnapshotError> {
        self.text(field).map(str::to_owned)
    }

    fn packet_id(&mut self) -> Result<PacketId, SnapshotError> {
        PacketId::new(self.u16("packet identifier")?)
            .ok_or(SnapshotError::Malformed("packet identifier"))
    }

    /// Grows with what is really there, never by the claimed count.
    fn list<T>(
        &mut self,
        field: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<T, SnapshotError>,
    ) -> Result<Vec<T>, SnapshotError> {
        let count = self.u32(field)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn inbound(&mut self) -> Result<InboundId, SnapshotError> {
        Ok(InboundId::new(
            self.packet_id()?,
            self.u32("inbound generation")?,
            self.u8("inbound state")?,
        ))
    }

    pub(super) fn qos(bits: u8) -> Result<Qos, SnapshotError> {
        Qos::from_bits(bits & 0b11).ok_or(SnapshotError::Malformed("QoS"))
    }

    pub(super) fn subscription(
        &mut self,
    ) -> Result<(SubscriptionFilter, Subscribed), SnapshotError> {
        let filter = self.filter()?;
        let bits = self.u8("options")?;
        let retain_handling = match bits >> 4 {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(SnapshotError::Malformed("retain handling")),
        };
        let options = SubscriptionOptions {
            qos: Self::qos(bits)?,
            no_local: bits & 4 != 0,
            retain_as_published: bits & 8 != 0,
            retain_handling,
        };
        let identifier = self.u32("subscription identifier")?;
        let replay = match self.u8("replay")? {
            0 => None,
            _ => Some(Box::new(self.replay()?)),
        };
        let subscription = Subscription {
            options,
            identifier: (identifier > 0).then_some(identifier),
        };
        let subscribed = Subscribed {
            subscription,
            replay,
        };
        Ok((filter, subscribed))
    }

    fn replay(&mut self) -> Result<Replay, SnapshotError> {
        let behind = self.text("topic of a replay")?;
        let is_known = self.u8("time of a replay")? != 0;
        let since = (self.u64("time of a replay")?, self.u16("time of a replay")?);
        Ok(Replay {
            behind: (!behind.is_empty()).then(|| behind.into()),
            since: is_known.then_some(since),
        })
    }

    fn message_id(&mut self) -> Result<MessageId, SnapshotError> {
        Ok(MessageId {
            node: self.u64("message node")?,
            incarnation: self.u64("message incarnation")?,
            stream: self.u8("message stream")?,
            number: self.u64("message number")?,
        })
    }

    fn branch(&mut self) -> Result<Branch, SnapshotError> {
        let mut branch = Branch {
            from: self.optional_u64("node of a branch")?.map(|node| Ancestor {
                node,
                worker: 0,
                number: 0,
            }),
            known: self.list("messages of a branch", Self::message_id)?,
            pending: self.list("messages of a branch", Self::message_id)?,
            touched: self.list("filters of a branch", Self::filter)?,
            ..Branch::default()
        };
        let bits = self.u8("state of a branch")?;
        branch.is_partial = bits & 1 != 0;
        branch.is_interrupted = bits & 2 != 0;
        branch.is_unserved = bits & 4 != 0;
        if bits & 8 != 0 {
            let time = self.u64("connection of a branch")?;
            branch.since_connect = Some(Duration::from_millis(time));
        }
        if bits & 16 != 0 {
            if let Some(from) = &mut branch.from {
                *from = self.ancestor(from.node)?;
            }
            branch.ancestors = Some(self.list("ancestors of a branch", |reader| {
                let node = reader.u64("node of a branch")?;
                reader.ancestor(node)
            })?);
            branch.shared = self.list("messages of a branch", Self::message_id)?;
        }
        let finished = self.list("finished messages", |reader| {
            let (first, count) = (reader.message_id()?, reader.u64("finished messages")?);
            let group = reader.text("finished messages")?;
            Ok(FinishedRange {
                first,
                count,
                group: (!group.is_empty()).then(|| group.into()),
            })
        })?;
        branch.finished = finished.into_iter().collect();
        Ok(branch)
    }

    fn ancestor(&mut self, node: u64) -> Result<Ancestor, SnapshotError> {
        Ok(Ancestor {
            node,
            worker: self.u8("worker of a branch")?,
            number: self.u64("number of a branch")?,
        })
    }

    fn filter(&mut self) -> Result<SubscriptionFilter, SnapshotError> {
        let levels = usize::from(u16::MAX);
        SubscriptionFilter::parse_with_maximum_levels(self.text("filter")?, levels)
            .map_err(|_| SnapshotError::Malformed("filter"))
    }

    fn delivery(&mut self, now: Instant) -> Result<Delivery, SnapshotError> {
        let id = self.message_id()?;
        let bits = self.u8("message flags")?;
        let expires_at = self
            .optional_u64("message expiry")?
            .map(|left| now + Duration::from_millis(left));
        let identifiers = self.list("identifiers", |reader| reader.u32("identifiers"))?;
        let group = self.text("group")?;
        let topic = self.text("topic")?;
        let properties = ApplicationProperties::from_encoded(self.bytes("properties")?)
            .map_err(|_| SnapshotError::Malformed("properties"))?;
        let publish = Publish {
            qos: Self::qos(bits)?,
            retain: bits & 4 != 0,
            properties,
            ..Publish::new(topic, self.bytes("payload")?)
        };
        Ok(Delivery {
            message: Rc::new(Message::new(id, &publish, expires_at)),
            qos: Self::qos(bits >> 3)?,
            retain: bits & 0x20 != 0,
            identifiers: MatchedIdentifiers::from_slice(&identifiers),
            group: (!group.is_empty()).then(|| group.into()),
        })
    }

    fn will(&mut self) -> Result<WillSnapshot, SnapshotError> {
        let due_in = Duration::from_millis(self.u64("will due")?);
        let topic = self.string("will topic")?;
        let payload = self.bytes("will payload")?.to_vec();
        let properties = self.bytes("will properties")?.to_vec();
        ApplicationProperties::from_encoded(&properties)
            .map_err(|_| SnapshotError::Malformed("will properties"))?;
        let bits = self.u8("will flags")?;
        let expiry = self.optional_u64("will expiry")?;
        Ok(WillSnapshot {
            due_in,
            topic,
            payload,
            properties,
            qos: Self::qos(bits)?,
            retain: bits & 4 != 0,
            message_expiry_interval: expiry
                .map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(number: u64, qos: Qos) -> Delivery {
        let id = MessageId {
            node: 7,
            incarnation: 2,
            stream: 1,
            number,
        };
        let publish = Publish {
            qos,
            retain: true,
            ..Publish::new("a/b", b"payload")
        };
        let expires_at = Some(Instant::from_millis(5000));
        Delivery {
            message: Rc::new(Message::new(id, &publish, expires_at)),
            qos,
            retain: false,
            identifiers: MatchedIdentifiers::from_slice(&[3, 9]),
            group: Some("$share/g/a/b".into()),
        }
    }

    fn snapshot() -> SessionSnapshot {
        let id = |value| PacketId::new(value).expect("not zero");
        let options = SubscriptionOptions {
            qos: Qos::ExactlyOnce,
            no_local: true,
            ..SubscriptionOptions::default()
        };
        SessionSnapshot {
            client_id: "c".into(),
            uid: u128::MAX - 1,
            expiry_interval: 60,
            away_for: Some(Duration::from_millis(1500)),
            subscriptions: vec![
                (
                    SubscriptionFilter::parse("$share/g/a/+").expect("valid"),
                    Subscribed::default(),
                ),
                (
                    SubscriptionFilter::parse("a/#").expect("valid"),
                    Subscribed {
                        subscription: Subscription {
                            options,
                            identifier: Some(4),
                        },
                        replay: Some(Box::new(Replay {
                            behind: Some("a/é".into()),
                            since: Some((u64::MAX, 7)),
                        })),
                    },
                ),
                (
                    SubscriptionFilter::parse("b").expect("valid"),
                    Subscribed {
                        replay: Some(Box::default()),
                        ..Subscribed::default()
                    },
                ),
            ],
            inbound: [1, 9]
                .map(|value| InboundId::new(id(value), u32::from(value) + 2, value as u8 / 3))
                .to_vec(),
            inbound_generation: 12,
            next_packet_id: id(33),
            in_flight: vec![
                Redelivery::Publish(id(30), delivery(5, Qos::ExactlyOnce)),
                Redelivery::Pubrel(id(31)),
            ],
            will: Some(WillSnapshot {
                due_in: Duration::from_secs(3),
                topic: "w".into(),
                payload: vec![1, 2],
                properties: Vec::new(),
                qos: Qos::AtLeastOnce,
                retain: true,
                message_expiry_interval: Some(9),
            }),
            branch: Some(Branch {
                from: Some(Ancestor {
                    node: 4,
                    worker: 1,
                    number: 9,
                }),
                known: vec![delivery(1, Qos::AtLeastOnce).message.id()],
                pending: vec![delivery(2, Qos::AtLeastOnce).message.id()],
                touched: vec![SubscriptionFilter::parse("a/#").expect("valid")],
                is_partial: false,
                is_interrupted: true,
                is_unserved: true,
                since_connect: Some(Duration::from_millis(700)),
                ancestors: Some(vec![Ancestor {
                    node: u64::MAX,
                    worker: 2,
                    number: 8,
                }]),
                shared: vec![MessageId {
                    node: 1,
                    incarnation: 2,
                    stream: 3,
                    number: 4,
                }],
                finished: [(5, 3, None), (9, 1, Some("$share/g/a"))]
                    .into_iter()
                    .map(|(number, count, group)| FinishedRange {
                        first: MessageId {
                            node: 1,
                            incarnation: 2,
                            stream: 3,
                            number,
                        },
                        count,
                        group: group.map(Into::into),
                    })
                    .collect(),
            }),
        }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let now = Instant::from_millis(1000);
        let bytes = snapshot().encode(now);
        assert_eq!(SessionSnapshot::decode(&bytes, now), Ok(snapshot()));
    }

    #[test]
    fn expiry_counts_on_the_clock_of_the_reader() {
        let queue = [delivery(1, Qos::AtLeastOnce)];
        let bytes = encode_queue(&queue, Instant::from_millis(1000));
        let read = decode_queue(&bytes, Instant::from_millis(50)).expect("just written");
        assert_eq!(
            read[0].message.expires_at(),
            Some(Instant::from_millis(4050))
        );
    }

    #[test]
    fn every_shorter_prefix_and_another_version_are_refused() {
        let now = Instant::from_millis(0);
        let unbranched = SessionSnapshot {
            branch: None,
            ..snapshot()
        };
        let end = unbranched.encode(now).len();
        let mut bytes = snapshot().encode(now);
        let read = SessionSnapshot::decode(&bytes[..end], now);
        assert_eq!(read, Ok(unbranched), "no other node has it");
        for len in (0..bytes.len()).filter(|len| *len != end) {
            assert!(
                SessionSnapshot::decode(&bytes[..len], now).is_err(),
                "{len} bytes"
            );
        }
        bytes[0] = 9;
        assert_eq!(
            SessionSnapshot::decode(&bytes, now),
            Err(SnapshotError::Version(9))
        );
    }

    #[test]
    fn a_count_that_is_merely_claimed_sets_no_memory_aside() {
        assert!(decode_queue(&[VERSION, 0xFF, 0xFF, 0xFF, 0xFF], Instant::from_millis(0)).is_err());
    }
}
