//! Sessions and retained messages as lines of JSON: the answer of `POST /v1/export` and the body of `POST /v1/import`.
//!
//! The first line is [`Line::Header`], the last [`Line::End`]; if the last is missing, the export is incomplete. A session comes before its messages,
//! messages in flight before queued ones. Times are remaining times, counted from the export. `convert` makes lines of sessions and messages, and back.

mod convert;

use serde::{Deserialize, Serialize};
pub use thicket_node::{SessionScope, session_name};
use utoipa::ToSchema;

/// The format's name in the first line.
pub const FORMAT: &str = "thicket-export";
/// Version of the format.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Header(HeaderLine),
    /// A persistent session.
    Session(Box<SessionLine>),
    /// A message of the last session: in flight if it has a packet identifier, else in its queue.
    Message(Box<MessageLine>),
    /// A QoS 2 message of the last session whose PUBREC has come.
    Pubrel(PubrelLine),
    /// A retained message.
    Retained(Box<MessageBody>),
    /// The last one.
    End(EndLine),
}

/// What the lines are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderLine {
    /// `thicket-export`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// The node they come from.
    pub node: String,
}

/// How many lines there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndLine {
    /// Sessions.
    pub sessions: u64,
    /// Their messages.
    pub messages: u64,
    /// Retained messages.
    pub retained: u64,
}

/// A persistent session without its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionLine {
    /// Client identifier.
    pub client_id: String,
    /// Identity across nodes, hexadecimal.
    pub uid: String,
    /// 4294967295: never.
    pub session_expiry_interval_s: u32,
    /// How long its client has been away; none: it was connected.
    #[schema(required)]
    pub away_for_ms: Option<u64>,
    /// What it subscribes to.
    pub subscriptions: Vec<SubscriptionLine>,
    /// QoS 2 identifiers of its client that are not released.
    pub inbound: Vec<InboundLine>,
    /// Of the last such identifier.
    pub inbound_generation: u32,
    /// The identifier of the next message to the client.
    pub next_packet_id: u16,
    /// A will that waits for its delay.
    #[schema(required)]
    pub will: Option<WillLine>,
}

/// A subscription of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionLine {
    /// As the client wrote it, `$share/...` included.
    pub filter: String,
    /// Maximum QoS.
    pub qos: u8,
    /// Option.
    pub no_local: bool,
    /// Option.
    pub retain_as_published: bool,
    /// Option: 0 to 2.
    pub retain_handling: u8,
    /// Property.
    #[schema(required)]
    pub subscription_identifier: Option<u32>,
}

/// A QoS 2 identifier of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InboundLine {
    /// Not 0.
    pub packet_id: u16,
    /// How often it was reused.
    pub generation: u32,
    /// PUBREC was due or sent.
    pub is_held: bool,
}

/// A will that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WillLine {
    /// Time until it goes out.
    pub due_in_ms: u64,
    /// Its Message Expiry Interval.
    #[schema(required)]
    pub message_expiry_interval_s: Option<u32>,
    /// What it says.
    pub message: MessageBody,
}

/// A message of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// Whose.
    pub client_id: String,
    /// In flight under this identifier; none: it waits in the queue.
    #[schema(required)]
    pub packet_id: Option<u16>,
    /// As the session is to receive it.
    pub qos: u8,
    /// As the session is to receive it.
    pub retain: bool,
    /// Of the subscriptions that matched.
    pub subscription_identifiers: Vec<u32>,
    /// The shared subscription it was given to a member of.
    #[schema(required)]
    pub group: Option<String>,
    /// As published.
    pub message: MessageBody,
}

/// An identifier that waits for PUBCOMP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PubrelLine {
    /// Whose.
    pub client_id: String,
    /// Which.
    pub packet_id: u16,
}

/// A message as published. Either `payload` or `payload_base64` is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Message)]
#[serde(deny_unknown_fields)]
pub struct MessageBody {
    /// Topic name.
    pub topic: String,
    /// As published.
    #[serde(default)]
    #[schema(maximum = 2)]
    pub qos: u8,
    /// As published.
    #[serde(default)]
    pub retain: bool,
    /// If it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// If it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// None: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry_left_ms: Option<u64>,
    /// Property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_format_indicator: Option<u8>,
    /// Property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_topic: Option<String>,
    /// Property, as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_data_base64: Option<String>,
    /// Properties, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_properties: Vec<(String, String)>,
}

/// The result of an import: the answer of `POST /v1/import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Import)]
pub struct ImportEntry {
    /// Sessions that are at this node now.
    pub sessions: u64,
    /// Sessions that are there already and stayed.
    pub sessions_existing: u64,
    /// Sessions that could not be made; `problems` says why.
    pub sessions_failed: u64,
    /// Messages that were sent or queued, or are in flight.
    pub messages: u64,
    /// Messages dropped because a queue or the disk was full.
    pub messages_dropped: u64,
    /// Messages of sessions that were not imported.
    pub messages_skipped: u64,
    /// Messages that are retained now.
    pub retained: u64,
    /// Messages whose topic has a retained one already, which stayed.
    pub retained_existing: u64,
    /// The first problems, in words.
    pub problems: Vec<String>,
}

/// A line that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct LineError {
    /// The invalid field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}
