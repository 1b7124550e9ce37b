//! Changes that were made over the HTTP API of a node.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A change, or an attempt at one: `GET /v1/audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Audit)]
pub struct AuditEntry {
    /// Counts the changes since the start of the node, from 1.
    pub number: u64,
    /// When it was asked for first, Unix time in milliseconds.
    pub time_ms: u64,
    /// The user of the API who asked, or the name of the token; none: the API has no users.
    #[schema(required)]
    pub user: Option<String>,
    /// Whether the request carried a token, whose name `user` is.
    #[serde(default)]
    #[schema(required)]
    pub by_token: bool,
    /// Address that the request came from: at a node that another one relayed it to, the address that the other one was asked from.
    pub peer: String,
    /// The node that relayed the request, if that is proved under the cluster secret; without a secret `peer` is the address of that node.
    #[serde(default)]
    #[schema(required)]
    pub relayed_by: Option<String>,
    /// Method of the request: `POST` or `DELETE`.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// The node that the request names (`?node=`), if it names one.
    #[serde(default)]
    #[schema(required)]
    pub node: Option<String>,
    /// The client, node or topic that the body names, if it names one.
    #[schema(required)]
    pub subject: Option<String>,
    /// Status of the answer: 200 if it was done.
    pub status: u16,
    /// How often the same was asked in a row, with the same answer: a drain is asked for until nothing is left.
    pub times: u64,
    /// When it was asked last, Unix time in milliseconds.
    pub last_time_ms: u64,
}
