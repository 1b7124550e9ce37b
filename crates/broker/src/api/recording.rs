//! Who receives what on a node: for recordings that the planner reads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sessions of a node, a page: `GET /v1/recording`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingPage {
    /// Identity of the node that answers.
    pub node: String,
    /// Prices of a GB (10^9 bytes) between sites as the node is configured, each `FROM:TO=PRICE`.
    #[serde(default)]
    pub site_price: Vec<String>,
    /// Of this node, each once.
    pub sessions: Vec<RecordedSession>,
    /// For `?after=` of the next page; none: this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordedSession {
    /// Of its client; for a session that a placement asked for that of the client that was placed.
    pub client_id: String,
    /// Its user; none: it belongs to no user.
    #[schema(required)]
    pub user_name: Option<String>,
    /// 1 for the client's own, or the number that its placement gave it.
    pub session: u16,
    /// Its client asked for a placement, and that holds.
    #[serde(default)]
    pub placed: bool,
    /// Sessions that it asked for at most; none: not known.
    #[serde(default)]
    #[schema(required)]
    pub max_sessions: Option<u8>,
    /// What its placement says that the client publishes here; topics of other clients are known by their rates only.
    pub publish: Vec<String>,
    /// Filters, `$share/...` included.
    pub subscribe: Vec<String>,
}
