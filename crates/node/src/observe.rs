//! What a worker reports beyond its log, when the shell observes it.

use thicket_session::topic::TopicFilter;

/// What a shell observes. Nothing by default, and what is not observed costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// [`SUBSCRIBED`] and [`UNSUBSCRIBED`].
    pub subscriptions: bool,
    /// [`SESSION_CREATED`], [`SESSION_ENDED`] and [`SESSION_MOVED`].
    pub sessions: bool,
    /// Messages that clients of this node publish to matching topics.
    pub filters: Vec<TopicFilter>,
    /// [`Traced`]; `None`: nothing is traced.
    pub traces: Option<Tracing>,
}

/// Which messages are traced: those whose publisher's trace is sampled, and some of those that belong to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tracing {
    /// How many of those begin a trace, of 2^64; 0: none.
    pub drawn: u64,
}

/// Identifies a span globally (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// Of the trace, not 0.
    pub trace_id: u128,
    /// Of the span, not 0.
    pub span_id: u64,
}

/// What happened to a message that is traced. It has no time: it happened in the round in which the shell receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Traced {
    /// It arrived here from its publisher. `Acknowledged` ends the span, in this round or in a later one.
    Published {
        /// The span that begins.
        span: SpanContext,
        /// The publisher's, of the same trace; `None`: the trace begins here.
        parent: Option<SpanContext>,
        /// `None`: a will whose session is elsewhere, or an operator's message.
        client_id: Option<String>,
        /// With the listener's prefix.
        topic: String,
        /// Of the PUBLISH.
        qos: u8,
    },
    /// All destinations have it: its acknowledgement, if it has one, is due. A span that is no longer known may get none.
    Acknowledged {
        /// Of `Published`.
        span_id: u64,
    },
    /// Sessions of this worker have got it: it was written to their connections, or queued.
    Delivered {
        /// A span of this round.
        span: SpanContext,
        /// The span in `traceparent` of the message.
        parent: SpanContext,
        /// With the listener's prefix.
        topic: String,
        /// Of the message.
        qos: u8,
        /// How many sessions, at least 1.
        recipients: u64,
    },
    /// It left the queue of a session here: it was written to its connection.
    Sent {
        /// A span of this round.
        span: SpanContext,
        /// The span in `traceparent` of the message.
        parent: SpanContext,
        /// Of the subscriber.
        client_id: String,
        /// With the listener's prefix.
        topic: String,
        /// Of the message.
        qos: u8,
    },
}

/// Fields `client_id`, `user_name`, `peer`, `filter`, `qos`.
pub const SUBSCRIBED: &str = "subscribed";
/// Fields `client_id`, `user_name`, `peer`, `filter`.
pub const UNSUBSCRIBED: &str = "unsubscribed";
/// Fields `client_id`, `user_name`, `peer`.
pub const SESSION_CREATED: &str = "session created";
/// It expired, or was ended. Fields `client_id`, `user_name`.
pub const SESSION_ENDED: &str = "session ended";
/// Another node is its primary from now on. Fields `client_id`, `user_name`, `node`.
pub const SESSION_MOVED: &str = "session moved";

/// A message that was published at this node, by a client or for one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ObservedMessage {
    /// `None`: a will whose session is elsewhere, or an operator's message.
    pub client_id: Option<String>,
    pub user_name: Option<String>,
    pub peer: Option<String>,
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub message_expiry_interval: Option<u32>,
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation_data: Option<Vec<u8>>,
    pub user_properties: Vec<(String, String)>,
}
