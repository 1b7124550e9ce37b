//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use crate::{PacketId, Qos, ReasonCode, RetainHandling, UserProperties};

/// Subscription options of one filter (5.0, 3.8.3.1); before 5.0 only the QoS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionOptions {
    /// Maximum QoS.
    pub qos: Qos,
    /// No Local.
    pub no_local: bool,
    /// Retain As Published.
    pub retain_as_published: bool,
    /// Retain Handling.
    pub retain_handling: RetainHandling,
}

/// One filter of a SUBSCRIBE: a UTF-8 string; whether it is a valid filter the session says, filter by filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// The filter's text, as sent.
    pub filter: &'a str,
    /// Its options.
    pub options: SubscriptionOptions,
}

/// Subscribes to filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Identifier to answer with.
    pub packet_id: PacketId,
    /// Subscription Identifier (5.0), 1 to 268,435,455.
    pub subscription_identifier: Option<u32>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
    /// At least one filter [MQTT-3.8.3-2].
    pub filters: Vec<SubscribeFilter<'a>>,
}

impl<'a> Subscribe<'a> {
    /// A SUBSCRIBE to one filter, with default options but for the QoS; more can be pushed to `filters`.
    #[must_use]
    pub fn new(packet_id: PacketId, filter: &'a str, qos: Qos) -> Self {
        let options = SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        Self {
            packet_id,
            subscription_identifier: None,
            user_properties: Vec::new(),
            filters: vec![SubscribeFilter { filter, options }],
        }
    }
}

/// Answer to a SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suback<'a> {
    /// The request's identifier.
    pub packet_id: PacketId,
    /// One code a filter, in order; before 5.0 every error becomes 0x80.
    pub reason_codes: Vec<ReasonCode>,
    /// Reason String (5.0).
    pub reason_string: Option<&'a str>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

impl Suback<'_> {
    /// A SUBACK with nothing but codes.
    #[must_use]
    pub const fn new(packet_id: PacketId, reason_codes: Vec<ReasonCode>) -> Self {
        Self {
            packet_id,
            reason_codes,
            reason_string: None,
            user_properties: Vec::new(),
        }
    }
}

/// Ends subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Identifier to answer with.
    pub packet_id: PacketId,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
    /// At least one filter.
    pub filters: Vec<&'a str>,
}

impl<'a> Unsubscribe<'a> {
    /// An UNSUBSCRIBE from `filters`.
    #[must_use]
    pub const fn new(packet_id: PacketId, filters: Vec<&'a str>) -> Self {
        Self {
            packet_id,
            user_properties: Vec::new(),
            filters,
        }
    }
}

/// Answer to an UNSUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsuback<'a> {
    /// The request's identifier.
    pub packet_id: PacketId,
    /// One code a filter, in order; not sent before 5.0 (decoded as empty there).
    pub reason_codes: Vec<ReasonCode>,
    /// Reason String (5.0).
    pub reason_string: Option<&'a str>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

impl Unsuback<'_> {
    /// An UNSUBACK with nothing but codes.
    #[must_use]
    pub const fn new(packet_id: PacketId, reason_codes: Vec<ReasonCode>) -> Self {
        Self {
            packet_id,
            reason_codes,
            reason_string: None,
            user_properties: Vec::new(),
        }
    }
}
