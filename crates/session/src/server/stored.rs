//! What a store keeps of a session beside its messages: one value a session, one a subscription.

use thicket_mqtt::{Qos, Will};

use super::{
    Epoch, SnapshotError, Subscribed,
    snapshot::{Reader, Writer},
};
use crate::{
    time::{Instant, Timeline},
    topic::SubscriptionFilter,
};

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Client identifier.
    pub client_id: String,
    /// Identity across nodes.
    pub uid: u128,
    /// Raised by every CONNECT and by every change of primary.
    pub epoch: Epoch,
    /// Session Expiry Interval in seconds. 0 only in what another node is sent: of a session that ends with its connection, for its will.
    pub expiry_interval: u32,
    /// When its client disconnected; `None`: it is connected.
    pub disconnected_at: Option<Instant>,
    /// The will of the connection, or of the last one if it waits for its delay.
    pub will: Option<StoredWill>,
    /// When the will is due; `None`: its client is connected, or there is none.
    pub will_due: Option<Instant>,
}

/// A will kept for later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWill {
    /// Will Delay Interval in seconds.
    pub delay_interval: u32,
    /// Will topic, prefix of the listener included.
    pub topic: Box<str>,
    /// Will payload.
    pub payload: Box<[u8]>,
    /// Encoded application properties.
    pub properties: Box<[u8]>,
    /// Will QoS.
    pub qos: Qos,
    /// Will retain.
    pub retain: bool,
    /// Message Expiry Interval in seconds.
    pub message_expiry_interval: Option<u32>,
}

impl StoredSession {
    /// As bytes, with times as `times` has them.
    #[must_use]
    pub fn encode(&self, times: Timeline) -> Vec<u8> {
        let written = |at: Option<Instant>| at.map(|at| times.millis_of(at));
        let mut out = Writer::new();
        out.bytes(self.client_id.as_bytes());
        out.u128(self.uid);
        out.u64(self.epoch.bits());
        out.u32(self.expiry_interval);
        out.optional_u64(written(self.disconnected_at));
        out.u8(u8::from(self.will.is_some()));
        if let Some(will) = &self.will {
            out.optional_u64(written(self.will_due));
            out.u32(will.delay_interval);
            out.bytes(will.topic.as_bytes());
            out.bytes(&will.payload);
            out.bytes(&will.properties);
            out.u8(will.qos as u8 | u8::from(will.retain) << 2);
            out.optional_u64(will.message_expiry_interval.map(u64::from));
        }
        out.finish()
    }

    /// From bytes that `encode` made, with times of the clock that `times` relates to ours.
    ///
    /// # Errors
    /// [`SnapshotError`]: of another version, or not ours.
    pub fn decode(bytes: &[u8], times: Timeline) -> Result<Self, SnapshotError> {
        let read = |millis: Option<u64>| millis.map(|millis| times.instant_of(millis));
        let mut reader = Reader::new(bytes)?;
        let mut stored = Self {
            client_id: reader.string("client identifier")?,
            uid: u128::from_le_bytes(reader.array("uid")?),
            epoch: Epoch::from_bits(reader.u64("epoch")?),
            expiry_interval: reader.u32("expiry interval")?,
            disconnected_at: read(reader.optional_u64("disconnected at")?),
            will: None,
            will_due: None,
        };
        if reader.u8("will")? != 0 {
            stored.will_due = read(reader.optional_u64("will due")?);
            stored.will = Some(StoredWill::read(&mut reader)?);
        }
        Ok(stored)
    }
}

impl StoredWill {
    /// From `will`; its topic with the prefix of the listener.
    #[must_use]
    pub fn new(will: &Will<'_>, prefix: &str) -> Self {
        let mut properties = Vec::new();
        will.properties.write_to(&mut properties);
        Self {
            delay_interval: will.delay_interval,
            topic: format!("{prefix}{}", will.topic).into(),
            payload: will.payload.into(),
            properties: properties.into(),
            qos: will.qos,
            retain: will.retain,
            message_expiry_interval: will.message_expiry_interval,
        }
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let text = self.topic.len() + self.payload.len() + self.properties.len();
        (size_of::<Self>() + text) as u64
    }

    /// Bytes that [`Self::new`] will take.
    #[must_use]
    pub fn bytes_of(will: &Will<'_>, prefix: &str) -> u64 {
        let topic = prefix.len() + will.topic.len();
        let text = topic + will.payload.len() + will.properties.encoded_len();
        (size_of::<Self>() + text) as u64
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        let delay_interval = reader.u32("will delay")?;
        let topic = reader.text("will topic")?.into();
        let payload = reader.bytes("will payload")?.into();
        let properties = reader.bytes("will properties")?.into();
        let bits = reader.u8("will flags")?;
        let expiry = reader.optional_u64("will expiry")?;
        Ok(Self {
            delay_interval,
            topic,
            payload,
            properties,
            qos: Reader::qos(bits)?,
            retain: bits & 4 != 0,
            message_expiry_interval: expiry
                .map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
        })
    }
}

/// One subscription as bytes.
#[must_use]
pub fn encode_subscription(filter: &SubscriptionFilter, subscribed: &Subscribed) -> Vec<u8> {
    let mut out = Writer::new();
    out.subscription(filter, subscribed);
    out.finish()
}

/// One subscription from bytes that [`encode_subscription`] made.
///
/// # Errors
/// [`SnapshotError`]: of another version, or not ours.
pub fn decode_subscription(
    bytes: &[u8],
) -> Result<(SubscriptionFilter, Subscribed), SnapshotError> {
    Reader::new(bytes)?.subscription()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Subscription;

    fn session() -> StoredSession {
        StoredSession {
            client_id: "c".into(),
            uid: 5,
            epoch: Epoch::from_bits(6),
            expiry_interval: u32::MAX,
            disconnected_at: Some(Instant::from_millis(5_000)),
            will: Some(StoredWill {
                delay_interval: 9,
                topic: "w/x".into(),
                payload: [1, 2].into(),
                properties: [].into(),
                qos: Qos::AtLeastOnce,
                retain: true,
                message_expiry_interval: Some(3),
            }),
            will_due: Some(Instant::from_millis(9_000)),
        }
    }

    #[test]
    fn a_session_is_read_as_it_was_written_and_cut_bytes_are_refused() {
        let bytes = session().encode(Timeline::OWN);
        assert_eq!(StoredSession::decode(&bytes, Timeline::OWN), Ok(session()));
        for len in 0..bytes.len() {
            let read = StoredSession::decode(&bytes[..len], Timeline::OWN);
            assert!(read.is_err(), "{len}");
        }
    }

    #[test]
    fn times_are_as_long_ago_and_as_far_ahead_on_the_clock_of_the_reader() {
        let at = Instant::from_millis;
        let bytes = session().encode(Timeline::new(at(6_000), 1_700_000_000_000));
        let read = StoredSession::decode(&bytes, Timeline::new(at(2_000), 1_700_000_000_000));
        let read = read.expect("just written");
        assert_eq!(read.disconnected_at, Some(at(1_000)));
        assert_eq!(read.will_due, Some(at(5_000)));
    }

    #[test]
    fn a_subscription_is_read_as_it_was_written() {
        let filter = SubscriptionFilter::parse("$share/g/a/+").expect("valid");
        let subscribed = Subscribed::from(Subscription {
            identifier: Some(7),
            ..Subscription::default()
        });
        let bytes = encode_subscription(&filter, &subscribed);
        assert_eq!(decode_subscription(&bytes), Ok((filter, subscribed)));
    }
}
