//! How clients ask where their sessions should be, and how they are answered, over HTTP and in CONNECT and CONNACK alike: JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use thicket_access::{Grant, Reach, Rights};
use thicket_session::topic::TopicFilter;
use utoipa::ToSchema;

use crate::{
    ClientTransport, PlacementError, PlacementReport, PlacementRequest, PlacementSession,
    SessionScope, scope::session_name, source::Payer,
};

/// Sessions that a client may ask for.
const MOST_SESSIONS: u8 = 16;
/// Topics and filters of one request.
const MOST_TOPICS: usize = 10_000;
/// Longest client identifier (5.0, 1.5.4).
const LONGEST_CLIENT_ID: usize = 65_535;
/// Messages a second of one topic: more than any network carries, and far from where sums lose precision.
const HIGHEST_RATE: f64 = 1e9;
/// Sessions that a client has if it does not specify a number.
const DEFAULT_SESSIONS: u8 = 4;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlacementRequest)]
#[serde(deny_unknown_fields)]
pub struct PlacementAsked {
    /// As in its CONNECT.
    pub client_id: String,
    /// Topics that it publishes to.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Topics and filters that it subscribes to.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// Sessions that it may have, 1 to 16.
    #[serde(default = "default_sessions")]
    #[schema(minimum = 1, maximum = 16)]
    pub max_sessions: u8,
    /// Messages a second of topics and filters above, as far as it knows.
    #[serde(default)]
    pub rates: BTreeMap<String, f64>,
}

const fn default_sessions() -> u8 {
    DEFAULT_SESSIONS
}

impl PlacementAsked {
    /// The request for a node, if every field makes sense.
    ///
    /// # Errors
    /// The first field that does not.
    pub fn check(self) -> Result<PlacementRequest, PlacementError> {
        let bad = |field: String, problem: &str| {
            Err(PlacementError::BadField {
                field,
                problem: problem.to_owned(),
            })
        };
        if self.client_id.is_empty() || self.client_id.len() > LONGEST_CLIENT_ID {
            return bad("client_id".into(), "must have 1 to 65535 bytes");
        }
        check_client_id(&self.client_id)?;
        if self.client_id.starts_with("$thicket/") {
            return bad("client_id".into(), "those of nodes start with $thicket/");
        }
        if !(1..=MOST_SESSIONS).contains(&self.max_sessions) {
            return bad("max_sessions".into(), "must be 1 to 16");
        }
        if self.publish.len() + self.subscribe.len() > MOST_TOPICS {
            let longest = if self.publish.len() > self.subscribe.len() {
                "publish"
            } else {
                "subscribe"
            };
            return bad(longest.into(), "at most 10000 topics and filters in all");
        }
        for (name, all) in [("publish", &self.publish), ("subscribe", &self.subscribe)] {
            for (at, topic) in all.iter().enumerate() {
                let field = format!("{name}[{at}]");
                if let Err(error) = TopicFilter::new(topic) {
                    return bad(field, &error.to_string());
                }
                if topic.starts_with("$share/") {
                    return bad(
                        field,
                        "a shared subscription is in one session of its own choice",
                    );
                }
            }
        }
        let named: BTreeSet<&String> = self.publish.iter().chain(&self.subscribe).collect();
        for (topic, rate) in &self.rates {
            let field = format!("rates.{topic}");
            if !named.contains(topic) {
                return bad(field, "stands neither in publish nor in subscribe");
            }
            if !(0.0..=HIGHEST_RATE).contains(rate) {
                return bad(field, "must be 0 to 1000000000 messages a second");
            }
        }
        Ok(PlacementRequest {
            client_id: self.client_id,
            publish: self.publish,
            subscribe: self.subscribe,
            max_sessions: self.max_sessions,
            rates: self.rates,
            payer: None,
        })
    }
}

/// As whom a client asks: according to its listener and its users.
#[derive(Debug, Clone, Copy)]
pub struct PlacementClient<'a> {
    /// Of the listener.
    pub topic_prefix: &'a str,
    /// The identity that the client has proved; none: anonymous, and it may do everything.
    pub grant: Option<&'a Grant>,
    /// Who owns its session.
    pub session_scope: SessionScope,
    /// Where it connects from.
    pub address: IpAddr,
}

impl PlacementClient<'_> {
    /// The name of the session of this client.
    ///
    /// # Errors
    /// It is too long, or contains a control character: it would be the name of another user's session.
    pub fn session_name(&self, client_id: &str) -> Result<String, PlacementError> {
        let user_name = self.grant.and_then(|grant| grant.user_name.as_deref());
        checked_session_name(self.session_scope, self.topic_prefix, user_name, client_id)
    }

    /// The request with names as they are in the cluster.
    ///
    /// # Errors
    /// The first topic or filter that the client may not use.
    pub fn request(&self, request: PlacementRequest) -> Result<PlacementRequest, PlacementError> {
        let named = |topic: String| format!("{}{topic}", self.topic_prefix);
        let all = |topics: Vec<String>| topics.into_iter().map(named).collect();
        let user = self.grant.and_then(|grant| grant.user_name.as_deref());
        let payer = match user {
            Some(user) => Payer::User(user.into()),
            None => Payer::Address(self.address.into()),
        };
        let request = PlacementRequest {
            payer: Some(payer.to_string().into()),
            client_id: self.session_name(&request.client_id)?,
            publish: all(request.publish),
            subscribe: all(request.subscribe),
            max_sessions: request.max_sessions,
            rates: request
                .rates
                .into_iter()
                .map(|(topic, rate)| (named(topic), rate))
                .collect(),
        };
        let publish = request.publish.iter().enumerate();
        let subscribe = request.subscribe.iter().enumerate();
        let refused_topic = publish
            .map(|(at, topic)| ("publish", at, topic))
            .find(|(_, _, topic)| !self.may_publish(topic));
        let refused_filter = || {
            subscribe
                .map(|(at, filter)| ("subscribe", at, filter))
                .find(|(_, _, filter)| !self.may_subscribe(filter))
        };
        match refused_topic.or_else(refused_filter) {
            None => Ok(request),
            Some((list, at, topic)) => {
                let bare = topic.strip_prefix(self.topic_prefix).unwrap_or(topic);
                let problem = format!("the client may not use {bare:?}");
                Err(bad_field(&format!("{list}[{at}]"), &problem))
            }
        }
    }

    /// Whether the client may see a placement: it could have asked for every topic of it.
    #[must_use]
    pub fn may_see(&self, report: &PlacementReport) -> bool {
        let is_own = |topic: &String| topic.starts_with(self.topic_prefix);
        report.sessions.iter().all(|session| {
            let mut publish = session.publish.iter();
            let mut subscribe = session.subscribe.iter();
            publish.all(|topic| is_own(topic) && self.may_publish(topic))
                && subscribe.all(|filter| is_own(filter) && self.may_subscribe(filter))
        })
    }

    fn rights(&self) -> Option<&Rights> {
        self.grant?.rights.as_deref()
    }

    fn may_publish(&self, topic: &str) -> bool {
        self.rights().is_none_or(|rights| rights.may_publish(topic))
    }

    fn may_subscribe(&self, filter: &str) -> bool {
        self.rights()
            .is_none_or(|rights| rights.may_subscribe(filter) != Reach::Nothing)
    }
}

/// The name of a client's session.
///
/// # Errors
/// The client identifier is too long together with the name of the user, or contains a control character.
pub fn checked_session_name(
    scope: SessionScope,
    topic_prefix: &str,
    user_name: Option<&str>,
    client_id: &str,
) -> Result<String, PlacementError> {
    check_client_id(client_id)?;
    let name = session_name(scope, topic_prefix, user_name, client_id);
    let problem = "is too long together with the name of the user";
    name.ok_or_else(|| bad_field("client_id", problem))
}

/// Control characters are malformed in a CONNECT (1.5.4), and stand between the parts of a session's name.
fn check_client_id(client_id: &str) -> Result<(), PlacementError> {
    if client_id.chars().any(char::is_control) {
        return Err(bad_field(
            "client_id",
            "must not contain control characters",
        ));
    }
    Ok(())
}

/// A field of a request that makes no sense.
pub(crate) fn bad_field(field: &str, problem: &str) -> PlacementError {
    PlacementError::BadField {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

/// Where a client's sessions should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Placement)]
pub struct PlacementEntry {
    /// Whose.
    pub client_id: String,
    /// The user that owns its sessions, for operators; none: they belong to no user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// At least one; the first is the client's own.
    pub sessions: Vec<PlacedSessionEntry>,
    /// It holds so long if nobody asks again.
    pub expires_in_s: u64,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlacedSession)]
pub struct PlacedSessionEntry {
    /// Identity of the node.
    pub node: String,
    /// HOST:PORT for plain TCP; none: it has no such listener.
    #[schema(required)]
    pub address: Option<String>,
    /// HOST:PORT for TLS.
    #[schema(required)]
    pub tls: Option<String>,
    /// HOST:PORT for WebSocket.
    #[schema(required)]
    pub ws: Option<String>,
    /// HOST:PORT for WebSocket over TLS.
    #[schema(required)]
    pub wss: Option<String>,
    /// To connect with: the client's own, or `C~2` and so on.
    pub client_id: String,
    /// What the client publishes there.
    pub publish: Vec<String>,
    /// What it subscribes to there.
    pub subscribe: Vec<String>,
}

impl PlacementEntry {
    /// For clients of listeners with a topic prefix: its nodes are reached at such listeners, and topics are named without it.
    #[must_use]
    pub fn new(report: &PlacementReport, topic_prefix: &str) -> Self {
        let sessions = report.sessions.iter();
        Self {
            client_id: report.client_id.clone(),
            user_name: None,
            sessions: sessions
                .map(|session| PlacedSessionEntry::new(session, topic_prefix))
                .collect(),
            expires_in_s: report.expires_in.as_secs(),
        }
    }
}

impl PlacementEntry {
    /// The same for operators.
    #[must_use]
    pub fn with_user(report: &PlacementReport) -> Self {
        Self {
            user_name: report.user_name.clone(),
            ..Self::new(report, "")
        }
    }
}

impl PlacedSessionEntry {
    fn new(session: &PlacementSession, topic_prefix: &str) -> Self {
        let of = |transport: ClientTransport| {
            let mut addresses = session.addresses.iter();
            let found = addresses.find(|address| {
                let likeness = &address.likeness;
                likeness.transport == transport && &*likeness.topic_prefix == topic_prefix
            });
            found.map(|address| address.address.to_string())
        };
        let named = |topics: &[String]| {
            let topics = topics.iter();
            let bare = topics.map(|topic| topic.strip_prefix(topic_prefix).unwrap_or(topic));
            bare.map(str::to_owned).collect()
        };
        Self {
            address: of(ClientTransport::Tcp),
            tls: of(ClientTransport::Tls),
            ws: of(ClientTransport::Ws),
            wss: of(ClientTransport::Wss),
            node: session.node.clone(),
            client_id: session.client_id.clone(),
            publish: named(&session.publish),
            subscribe: named(&session.subscribe),
        }
    }
}

/// What is wrong, as RFC 9457 wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemEntry {
    /// In a few words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// In words.
    pub detail: String,
    /// The field that is no good, if one is.
    pub field: Option<String>,
}

impl From<&PlacementError> for ProblemEntry {
    fn from(error: &PlacementError) -> Self {
        let (status, field) = match error {
            PlacementError::BadField { field, .. } => (422, Some(field.clone())),
            PlacementError::Unknown => (404, None),
            PlacementError::Share => (429, None),
            PlacementError::Busy | PlacementError::Unsure | PlacementError::NoNodes => (503, None),
        };
        let title = match field {
            Some(_) => "a field is no good",
            None => "not placed",
        };
        Self {
            title: title.into(),
            status,
            detail: error.to_string(),
            field,
        }
    }
}

/// The answer as a CONNACK carries it: what a POST of the same request is answered.
pub(crate) fn placement_text(
    answer: &Result<PlacementReport, PlacementError>,
    topic_prefix: &str,
) -> Option<String> {
    let text = match answer {
        Ok(report) => serde_json::to_string(&PlacementEntry::new(report, topic_prefix)),
        Err(error) => serde_json::to_string(&ProblemEntry::from(error)),
    };
    text.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientAddress, ListenerLikeness};

    fn asked(json: &str) -> Result<PlacementRequest, String> {
        let asked: PlacementAsked =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        asked.check().map_err(|error| match error {
            PlacementError::BadField { field, .. } => field,
            other => other.to_string(),
        })
    }

    #[test]
    fn a_request_with_topics_and_filters_is_taken() {
        let request = asked(
            r#"{"client_id": "c", "publish": ["a/b"], "subscribe": ["a/+", "x"], "rates": {"a/b": 2.5}}"#,
        )
        .unwrap();
        assert_eq!((request.max_sessions, request.subscribe.len()), (4, 2));
        assert_eq!(request.rates["a/b"], 2.5);
    }

    #[test]
    fn clients_of_a_listener_with_a_topic_prefix_are_answered_as_they_asked() {
        let address = |topic_prefix: &str, address: &str| ClientAddress {
            likeness: ListenerLikeness {
                transport: ClientTransport::Tcp,
                topic_prefix: topic_prefix.into(),
            },
            address: address.into(),
        };
        let report = PlacementReport {
            name: "c".into(),
            client_id: "c".into(),
            user_name: None,
            sessions: vec![PlacementSession {
                node: "n1".into(),
                addresses: vec![address("", "host:1883"), address("tenant/", "host:1884")],
                client_id: "c".into(),
                publish: vec!["tenant/a".into()],
                subscribe: vec!["tenant/b/+".into()],
            }],
            expires_in: std::time::Duration::from_secs(600),
        };
        let text = placement_text(&Ok(report), "tenant/").unwrap();
        let entry: PlacementEntry = serde_json::from_str(&text).unwrap();
        let session = &entry.sessions[0];
        assert_eq!(session.address.as_deref(), Some("host:1884"));
        assert_eq!(
            (&session.publish[..], &session.subscribe[..]),
            (&["a".into()][..], &["b/+".into()][..])
        );
    }

    #[test]
    fn what_is_no_good_is_named_by_its_field() {
        for (json, field) in [
            (r#"{"client_id": ""}"#, "client_id"),
            (r#"{"client_id": "$thicket/x"}"#, "client_id"),
            (r#"{"client_id": "c", "max_sessions": 0}"#, "max_sessions"),
            (r#"{"client_id": "c", "max_sessions": 17}"#, "max_sessions"),
            (r#"{"client_id": "c", "publish": ["a", ""]}"#, "publish[1]"),
            (
                r#"{"client_id": "c", "subscribe": ["a/#/b"]}"#,
                "subscribe[0]",
            ),
            (
                r#"{"client_id": "c", "subscribe": ["$share/g/a"]}"#,
                "subscribe[0]",
            ),
            (r#"{"client_id": "c", "rates": {"a": 1}}"#, "rates.a"),
            (
                r#"{"client_id": "c", "publish": ["a"], "rates": {"a": -1}}"#,
                "rates.a",
            ),
        ] {
            assert_eq!(asked(json).unwrap_err(), field, "{json}");
        }
        let error = asked(r#"{"client_id": "c", "topics": []}"#).unwrap_err();
        assert!(error.contains("unknown field `topics`"), "{error}");
    }
}
