//! One side of a bridge: its session, its connection, and when to reconnect.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | waiting | the wait is over: the shell is ordered to connect | opening |
//! | opening | the transport is connected: CONNECT | open |
//! | opening | the transport failed | waiting, longer |
//! | open | the broker or the bridge ends it: the shell is ordered to close | closing |
//! | open, closing | the transport is closed | waiting |

use std::collections::BTreeMap;
use std::time::Duration;

use thicket_mqtt::{
    ApplicationProperties, Disconnect, PacketId, Publish, Qos, ReasonCode, RetainHandling,
    SubscribeFilter, SubscriptionOptions,
};
use thicket_session::Instant;
use thicket_session::client::{
    AcknowledgementMode, CleanStart, Client, ClientConfig, ClientError, ConnectionState,
};

use super::config::{Bounds, FIRST_RETRY, SideConfig};
use super::lane::{Message, Origin};
use super::memory::Digest;
use crate::{Retain, Rule, Side};

/// Most unacknowledged messages in each direction, if the queue is not smaller.
const MAXIMUM_INFLIGHT: usize = 1000;
/// The same for a broker that cannot announce a Receive Maximum: Mosquitto's default.
const INFLIGHT_WITHOUT_RECEIVE_MAXIMUM: u16 = 20;
/// A connection that lasted this long resets the waits.
const STEADY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Half {
    pub(super) side: Side,
    pub(super) client: Client,
    pub(super) link: Link,
    pub(super) epochs: Epochs,
    /// Messages of QoS 1 that crossed but could not be acknowledged to their broker: it will send them again.
    pub(super) answered: BTreeMap<PacketId, Digest>,
    /// Whether the session has the subscriptions of this process.
    pub(super) is_subscribed: bool,
    /// So many messages of the other side are sent before this side subscribes; `None`: it does not, or has done so.
    subscribes_after: Option<usize>,
    /// The bridge itself ended the last connection, to connect again at once.
    is_reopened: bool,
    pub(super) connects: u64,
    /// Waits in a row without a steady connection.
    failures: u32,
    connected_at: Option<Instant>,
}

/// The state of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Waiting { until: Instant },
    Opening,
    Open,
    Closing { next: Next },
    Stopped,
}

/// What follows when a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Reconnect after a wait.
    Retry,
    /// Reconnect at once: the bridge ended it.
    Reopen,
    /// Nothing.
    Stop,
}

/// Numbers of the session and the connection, so that a message is acknowledged only where it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Epochs {
    pub(super) session: u64,
    pub(super) connection: u64,
}

/// What happened to the first message of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The window is full, or there is no connection, at the moment.
    Later,
    /// It was sent, at QoS 1 or 2 under this identifier.
    Sent(Option<PacketId>),
    /// It has expired.
    Expired,
    /// The broker does not accept such a message.
    NotTaken,
    /// It was sent there recently.
    CameRound,
}

impl Half {
    pub(super) fn new(side: Side, config: &SideConfig, bounds: Bounds, now: Instant) -> Self {
        let window = bounds.messages.clamp(1, MAXIMUM_INFLIGHT) as u16;
        let client = Client::new(ClientConfig {
            keep_alive: config.keep_alive,
            user_name: config.user_name.clone(),
            password: config.password.clone(),
            session_expiry_interval: config.session_expiry_interval,
            receive_maximum: window,
            maximum_inflight: if config.version.has_properties() {
                window
            } else {
                window.min(INFLIGHT_WITHOUT_RECEIVE_MAXIMUM)
            },
            acknowledgement: AcknowledgementMode::Manual,
            ..ClientConfig::new(config.version, &config.client_id)
        });
        Self {
            side,
            client,
            link: Link::Waiting { until: now },
            epochs: Epochs::default(),
            answered: BTreeMap::new(),
            is_subscribed: false,
            subscribes_after: None,
            is_reopened: false,
            connects: 0,
            failures: 0,
            connected_at: None,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.state() == ConnectionState::Connected
    }

    /// Whether this broker can show where a message has been, by No Local and by user properties.
    pub(super) fn has_properties(&self) -> bool {
        self.client.config().version.has_properties()
    }

    /// The transport is connected.
    pub(super) fn open(&mut self, now: Instant) -> Result<(), ClientError> {
        self.link = Link::Open;
        self.client.connect(now, CleanStart::No)
    }

    /// The broker has accepted the connection; `waiting` messages of the other side wait for it.
    ///
    /// A session that has its subscriptions subscribes again after an outage: it did not keep what was published at QoS 0 meanwhile, and so gets the
    /// retained messages of all topics. What waits for this side is sent first. Otherwise an older retained message of the same topic would come back
    /// and replace, on the other side, what is about to be sent.
    pub(super) fn on_connected(&mut self, now: Instant, session_present: bool, waiting: usize) {
        self.connects += 1;
        self.connected_at = Some(now);
        self.is_subscribed &= session_present;
        self.subscribes_after = match (self.is_subscribed, self.is_reopened) {
            (false, _) => Some(0),
            (true, false) => Some(waiting),
            // The queue was full. Retained messages would fill it again, for ever if they are more than it holds.
            (true, true) => None,
        };
    }

    /// A message of the other side was sent, or never will be.
    pub(super) fn on_forwarded(&mut self) {
        if let Some(left) = &mut self.subscribes_after {
            *left = left.saturating_sub(1);
        }
    }

    /// Subscribes if that is due; returns the error if that is not possible.
    pub(super) fn subscribe(&mut self, now: Instant, rules: &[Rule]) -> Result<(), ClientError> {
        if self.subscribes_after != Some(0) || !self.is_connected() {
            return Ok(());
        }
        self.subscribes_after = None;
        let filters = filters(self.side, self.has_properties(), rules);
        if filters.is_empty() {
            self.is_subscribed = true;
        } else {
            self.client.subscribe(now, &filters, None)?;
        }
        Ok(())
    }

    /// Sends DISCONNECT, if the connection is open.
    pub(super) fn disconnect(&mut self, next: Next) {
        // Fails only if nothing is open.
        let _ = self
            .client
            .disconnect(&Disconnect::new(ReasonCode::Success));
        self.link = Link::Closing { next };
    }

    /// The transport is closed or failed to connect; `jitter` is from 0 to 1.
    pub(super) fn on_closed(&mut self, now: Instant, longest: Duration, jitter: f64) {
        self.client.handle_closed();
        let next = match self.link {
            Link::Closing { next } => next,
            Link::Waiting { .. } | Link::Opening | Link::Open => Next::Retry,
            Link::Stopped => Next::Stop,
        };
        self.is_reopened = next == Next::Reopen;
        let was_steady = self
            .connected_at
            .take()
            .is_some_and(|at| now.since(at) >= STEADY);
        if was_steady {
            self.failures = 0;
        }
        self.link = match next {
            Next::Reopen => Link::Waiting { until: now },
            Next::Stop => Link::Stopped,
            Next::Retry => {
                let doubled = FIRST_RETRY.saturating_mul(1 << self.failures.min(20));
                self.failures = self.failures.saturating_add(1);
                // At least half of it, so that many bridges do not reconnect at once.
                let wait = doubled.min(longest).mul_f64(0.5 + jitter / 2.0);
                Link::Waiting { until: now + wait }
            }
        };
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.link {
            Link::Waiting { until } => Some(until),
            Link::Opening | Link::Stopped => None,
            Link::Open | Link::Closing { .. } => self.client.poll_timeout(),
        }
    }

    /// Publishes a message, with the QoS and properties that this broker supports.
    pub(super) fn publish(&mut self, now: Instant, message: &Message) -> Fate {
        let Some(limits) = self.client.server_limits() else {
            return Fate::Later;
        };
        let (maximum_qos, retain) = (limits.maximum_qos, limits.retain_available);
        let properties = if self.has_properties() {
            &*message.properties
        } else {
            &[]
        };
        // The bridge encoded them itself.
        let properties = ApplicationProperties::from_encoded(properties).unwrap_or_default();
        let Some(publish) = message.to_publish(now, maximum_qos, properties) else {
            return Fate::Expired;
        };
        let publish = Publish {
            retain: publish.retain && retain,
            ..publish
        };
        match self.client.publish(now, &publish) {
            Ok(packet_id) => Fate::Sent(packet_id),
            Err(error) if error.is_would_block() => Fate::Later,
            Err(ClientError::WrongState { .. }) => Fate::Later,
            // Too large, or never accepted by this broker: it must not block the others.
            Err(_) => Fate::NotTaken,
        }
    }

    /// A message from this side has crossed the bridge, or never will.
    pub(super) fn settle(&mut self, now: Instant, origin: Origin) {
        if origin.session != self.epochs.session {
            return;
        }
        let is_here = origin.qos == Qos::ExactlyOnce || origin.connection == self.epochs.connection;
        let answered = is_here
            && self
                .client
                .acknowledge(now, origin.packet_id, ReasonCode::Success)
                .is_ok();
        if !answered && origin.qos == Qos::AtLeastOnce {
            self.answered.insert(origin.packet_id, origin.digest);
        }
    }
}

/// The subscriptions at `side`.
fn filters(side: Side, has_properties: bool, rules: &[Rule]) -> Vec<SubscribeFilter<'_>> {
    let ask = |rule| {
        let rule: &Rule = rule;
        let options = SubscriptionOptions {
            qos: rule.qos(),
            no_local: has_properties,
            retain_as_published: has_properties && rule.retain() == Retain::Keep,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        Some((rule.filter(side)?, options))
    };
    let asked = rules.iter().filter_map(ask);
    asked
        .map(|(filter, options)| SubscribeFilter {
            filter: filter.as_str(),
            options,
        })
        .collect()
}
