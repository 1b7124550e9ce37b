//! PUBLISH and the Subscription Identifiers in it.

use crate::property::{Properties, Property};
use crate::{ApplicationProperties, PacketId, Qos};

/// An application message on its way in or out. Borrowed: decoding one allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Publish<'a> {
    /// DUP.
    pub dup: bool,
    /// QoS.
    pub qos: Qos,
    /// RETAIN.
    pub retain: bool,
    /// Topic name without wildcards; empty only when `topic_alias` names it (5.0).
    pub topic: &'a str,
    /// Packet identifier: there exactly for QoS 1 and 2.
    pub packet_id: Option<PacketId>,
    /// Topic Alias (5.0), never 0.
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval in seconds (5.0).
    pub message_expiry_interval: Option<u32>,
    /// Subscription Identifiers (5.0): only a server may send them [MQTT-3.3.4-6]; the session refuses a client's.
    pub subscription_identifiers: SubscriptionIdentifiers<'a>,
    /// The properties that are passed on as they are (5.0).
    pub properties: ApplicationProperties<'a>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// A message of QoS 0 without flags and properties.
    #[must_use]
    pub fn new(topic: &'a str, payload: &'a [u8]) -> Self {
        Self {
            topic,
            payload,
            ..Self::default()
        }
    }
}

/// The Subscription Identifiers of a PUBLISH, in order: a list to be sent, or a view of the bytes received.
///
/// Each is 1 to 268,435,455; when several subscriptions have the same one it may come more than once (5.0, 3.3.4).
#[derive(Clone, Copy)]
pub struct SubscriptionIdentifiers<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    List(&'a [u32]),
    /// A checked property section that holds at least one.
    Encoded(&'a [u8]),
}

impl<'a> SubscriptionIdentifiers<'a> {
    /// The view of a checked property section with identifiers among others.
    pub(crate) const fn from_section(section: &'a [u8]) -> Self {
        Self(Source::Encoded(section))
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, Source::List([]))
    }

    /// The identifiers in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        let (list, section): (&[u32], &[u8]) = match self.0 {
            Source::List(list) => (list, &[]),
            Source::Encoded(section) => (&[], section),
        };
        let mut properties = Properties::of_publish(section);
        let encoded = std::iter::from_fn(move || {
            // The section was checked when it was decoded, so there is no error to see here.
            while let Ok(Some(property)) = properties.next() {
                if let Property::SubscriptionIdentifier(value) = property {
                    return Some(value);
                }
            }
            None
        });
        list.iter().copied().chain(encoded)
    }
}

impl Default for SubscriptionIdentifiers<'_> {
    fn default() -> Self {
        Self(Source::List(&[]))
    }
}

impl<'a> From<&'a [u32]> for SubscriptionIdentifiers<'a> {
    fn from(list: &'a [u32]) -> Self {
        Self(Source::List(list))
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for SubscriptionIdentifiers<'a> {
    fn from(list: &'a [u32; N]) -> Self {
        Self(Source::List(list))
    }
}

impl PartialEq for SubscriptionIdentifiers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for SubscriptionIdentifiers<'_> {}

impl std::fmt::Debug for SubscriptionIdentifiers<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
