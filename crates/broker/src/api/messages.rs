//! Messages over the HTTP API: retained ones and ones to publish. A message is a [`MessageBody`], as in an export.

use serde::{Deserialize, Serialize};

use super::transfer::MessageBody;
use utoipa::ToSchema;

/// Retained messages: `GET /v1/retained`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RetainedPage {
    /// By topic, level by level.
    pub messages: Vec<RetainedEntry>,
    /// For `?after=` of the next page; none: this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// A retained message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Retained)]
pub struct RetainedEntry {
    /// Its topic.
    pub topic: String,
    /// As published.
    pub qos: u8,
    /// Length of its payload.
    pub payload_bytes: u64,
    /// None: it does not expire.
    #[schema(required)]
    pub expiry_left_ms: Option<u64>,
    /// All of it, if payloads were asked for.
    #[schema(required)]
    pub message: Option<MessageBody>,
}

/// What came of a publication: the answer of `POST /v1/publish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Published)]
pub struct PublishedEntry {
    /// Its topic.
    pub topic: String,
    /// Whether a session subscribes to the topic, or the message is retained.
    pub has_recipients: bool,
}
