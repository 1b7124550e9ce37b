//! Answers of any node for the whole cluster: clients and subscribers, a page at a time, and the nodes that did not answer.

use serde::{Deserialize, Serialize};

use super::{SessionEntry, SubscriptionEntry};
use utoipa::ToSchema;

/// Sessions of the cluster: `GET /v1/clients`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClientPage {
    /// The sessions that match, in the order that was asked for.
    pub clients: Vec<ClientEntry>,
    /// For `?after=` of the next page; none: this is the last, or the order has no pages.
    #[schema(required)]
    pub next: Option<String>,
    /// Nodes whose sessions are missing here.
    pub unanswered: Vec<UnansweredEntry>,
}

/// A session, and what its client does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Client)]
pub struct ClientEntry {
    /// Name of the node that the session is on.
    pub node: String,
    /// Identity of the node that the session is on.
    pub node_id: String,
    /// As `/v1/sessions` of that node.
    #[serde(flatten)]
    pub session: SessionEntry,
    /// The name under which the cluster knows the session: pages are in its order.
    pub session_name: String,
    /// The topic prefix of its listener, where sessions belong to users and there is one: a tenant.
    #[schema(required)]
    #[serde(default)]
    pub topic_prefix: Option<String>,
    /// Bytes that its connection has not taken yet.
    pub unsent_bytes: u64,
    /// How long the first message of its queue has waited at this node, as primary or as backup; none: none waits. What was queued before the node
    /// started, or before it had the session, has waited longer.
    #[schema(required)]
    pub oldest_queued_ms: Option<u64>,
    /// Messages a second from the client and to it: a mean of half a minute and more.
    pub messages_per_s: f64,
}

/// Subscriptions of the cluster: `GET /v1/subscribers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SubscriberPage {
    /// The subscriptions that match, by session, with filters ascending.
    pub subscribers: Vec<SubscriberEntry>,
    /// For `?after=` of the next page; none: this is the last.
    #[schema(required)]
    pub next: Option<String>,
    /// Nodes whose subscriptions are missing here.
    pub unanswered: Vec<UnansweredEntry>,
}

/// A subscription, and where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Subscriber)]
pub struct SubscriberEntry {
    /// Name of the node that its session is on.
    pub node: String,
    /// Identity of the node that its session is on.
    pub node_id: String,
    /// The name under which the cluster knows the session.
    pub session_name: String,
    /// As `/v1/subscriptions` of that node.
    #[serde(flatten)]
    pub subscription: SubscriptionEntry,
}

/// A node that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Unanswered)]
pub struct UnansweredEntry {
    /// Name of the node.
    pub node: String,
    /// Identity of the node.
    pub id: String,
    /// Why it did not answer, in words.
    pub why: String,
}
