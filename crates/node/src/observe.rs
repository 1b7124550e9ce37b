//! What a worker says beyond its log, when the shell wants to hear it.

use thicket_session::topic::TopicFilter;

/// What a shell wants to hear of. Nothing by default, and what nobody wants costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// [`SUBSCRIBED`] and [`UNSUBSCRIBED`].
    pub subscriptions: bool,
    /// [`SESSION_CREATED`], [`SESSION_ENDED`] and [`SESSION_MOVED`].
    pub sessions: bool,
    /// Messages that clients of this node publish to matching topics.
    pub filters: Vec<TopicFilter>,
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
