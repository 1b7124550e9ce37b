//! Sends requests to the HTTP APIs of other nodes, with the credentials of the original request, so that any node answers for the cluster.
//!
//! `?node=NAME` relays a request to that node, whatever its path. A request from another node is not relayed again.
//!
//! With a cluster secret, such a request carries the address it came from, with an HMAC under the key for announcements: nobody else can claim one.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use thicket_transport::tls::AnnouncementKey;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::{failure, silent};
use super::audit;
use super::inspect::Inspector;
use super::serve::Peer;
use super::silence::{Silence, TIMEOUT};
use crate::api::cluster::UnansweredEntry;
use crate::api::overlay::text_of_query;
use crate::api::{ErrorEntry, NodeEntry};

/// In a request: the node that sends it.
const FROM: HeaderName = HeaderName::from_static("thicket-from");
/// In a request from another node: the address that the node was asked from, and the proof that a node says so.
const FOR: HeaderName = HeaderName::from_static("thicket-for");
const PROOF: HeaderName = HeaderName::from_static("thicket-proof");
/// In an answer to another node: the identity of the node that answers.
const BY: HeaderName = HeaderName::from_static("thicket-by");
/// In an answer to another node: what the change is about, in base64.
const ABOUT: HeaderName = HeaderName::from_static("thicket-about");
/// Longer than the other node waits for its threads.
const DEADLINE: Duration = Duration::from_secs(TIMEOUT.as_secs() + 1);
/// Time between two looks at whether a node that is asked is still up.
const LOOK: Duration = Duration::from_millis(200);
/// Longest answer that is read into memory.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// On whose behalf other nodes are asked.
#[derive(Debug, Clone)]
pub(super) struct OnBehalf {
    /// The credentials of the request to this node.
    authorization: Option<HeaderValue>,
    /// Where that request came from.
    address: Option<IpAddr>,
    is_node: bool,
}

/// Where a relayed request came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) address: IpAddr,
    /// Identity of the node that relayed it.
    pub(super) relayed_by: String,
}

/// What a node proves when it relays a request.
struct Claim<'a> {
    address: &'a str,
    /// Identities of the relaying and of the answering node.
    from: &'a str,
    to: &'a str,
    method: &'a Method,
    /// With the query.
    path: &'a str,
}

/// Another node of the cluster.
#[derive(Debug, Clone)]
struct Other {
    name: String,
    id: String,
    is_up: bool,
    /// HOST:PORT of its API, or why there is none.
    address: Result<String, &'static str>,
}

/// The answer of another node, if there was one.
pub(super) struct Answered {
    name: String,
    id: String,
    /// Status and body, or why there is none.
    pub(super) answer: Result<(StatusCode, Bytes), String>,
}

impl OnBehalf {
    fn of(headers: &HeaderMap, extensions: &Extensions) -> Self {
        let peer = extensions.get::<Peer>();
        Self {
            authorization: headers.get(header::AUTHORIZATION).cloned(),
            address: peer.map(|peer| peer.address.ip()),
            is_node: headers.contains_key(FROM),
        }
    }

    /// Whether another node sent the request; it asks the rest itself.
    pub(super) const fn is_node(&self) -> bool {
        self.is_node
    }
}

impl<S: Sync> FromRequestParts<S> for OnBehalf {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers, &parts.extensions))
    }
}

impl Claim<'_> {
    /// Begins unlike an announcement, which the same key signs.
    fn text(&self) -> Vec<u8> {
        let Self {
            address,
            from,
            to,
            method,
            path,
        } = self;
        format!("relayed\n{address}\n{from}\n{to}\n{method}\n{path}").into_bytes()
    }

    fn sign(&self, key: &AnnouncementKey) -> String {
        STANDARD.encode(key.sign(&self.text()))
    }

    fn is_proved(&self, keys: &[AnnouncementKey], proof: &str) -> bool {
        let (text, proof) = (self.text(), STANDARD.decode(proof));
        proof.is_ok_and(|proof| keys.iter().any(|key| key.verify(&text, &proof)))
    }
}

impl Answered {
    /// The body, or the reason why there is none.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let (status, body) = self.answer.as_ref().map_err(Clone::clone)?;
        if !status.is_success() {
            let entry = serde_json::from_slice::<ErrorEntry>(body);
            let words = entry.map_or_else(|_| String::new(), |entry| format!(": {}", entry.error));
            return Err(format!("it answers {}{words}", status.as_u16()));
        }
        serde_json::from_slice(body).map_err(|error| format!("it answers something else: {error}"))
    }

    pub(super) fn unanswered(&self, why: impl Into<String>) -> UnansweredEntry {
        UnansweredEntry {
            node: self.name.clone(),
            id: self.id.clone(),
            why: why.into(),
        }
    }
}

/// Relays a request to the node that it names, if that is another one.
pub(super) async fn relay(
    State(inspector): State<Inspector>,
    request: Request,
    next: Next,
) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let node = text_of_query(query, "node");
    let asks = OnBehalf::of(request.headers(), request.extensions());
    if asks.is_node {
        let mut answer = next.run(request).await;
        if let Ok(id) = HeaderValue::from_str(&inspector.own.id) {
            answer.headers_mut().insert(BY, id);
        }
        let subject = audit::subject(&answer).map(|subject| STANDARD.encode(subject));
        if let Some(Ok(subject)) = subject.map(HeaderValue::try_from) {
            answer.headers_mut().insert(ABOUT, subject);
        }
        return answer;
    }
    match node {
        Some(node) if node != inspector.own.id && node != inspector.own.name => {
            let handed = inspector.hand_on(&node, &asks, request).await;
            handed.unwrap_or_else(|answer| answer)
        }
        Some(_) | None => next.run(request).await,
    }
}

impl Inspector {
    /// Where a request came from that another node relayed; `None`: it was not relayed, or there is no proof of it.
    pub(super) fn origin(&self, request: &Request) -> Option<Origin> {
        let text = |name: &HeaderName| request.headers().get(name)?.to_str().ok();
        let (from, address, proof) = (text(&FROM)?, text(&FOR)?, text(&PROOF)?);
        let path = request.uri().path_and_query();
        let claim = Claim {
            address,
            from,
            to: &self.own.id,
            method: request.method(),
            path: path.map_or("/", |path| path.as_str()),
        };
        let trust = self.links.as_ref()?.trust();
        if !claim.is_proved(&trust.announcements, proof) {
            return None;
        }
        Some(Origin {
            address: address.parse().ok()?,
            relayed_by: from.to_owned(),
        })
    }

    /// The name of another node; its identity, if it is not up.
    pub(super) async fn name_of(&self, id: String) -> String {
        let others = self.others().await.unwrap_or_default();
        let other = others.into_iter().find(|it| it.is_up && it.id == id);
        other.map_or(id, |other| other.name)
    }

    async fn hand_on(
        &self,
        node: &str,
        asks: &OnBehalf,
        request: Request,
    ) -> Result<Response, Response> {
        let others = self.others().await.map_err(silent)?;
        let up = others.iter().filter(|it| it.is_up);
        let mut named = up.filter(|it| it.id == node || it.name == node);
        let (other, further) = (named.next(), named.next());
        let other = other.ok_or_else(|| {
            let words = format!("no node that is up has the name or identity {node:?}");
            failure(StatusCode::NOT_FOUND, &words)
        })?;
        if further.is_some() {
            let words = format!("several nodes have the name {node:?}: use the identity");
            return Err(failure(StatusCode::CONFLICT, &words));
        }
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        let kind = parts.headers.get(header::CONTENT_TYPE).cloned();
        let sent = self.send(other, asks, parts.method, path, kind, body).await;
        let mut answer = sent.map_err(|why| {
            let words = format!("{} gives no answer: {why}", other.name);
            failure(StatusCode::BAD_GATEWAY, &words)
        })?;
        answer.headers_mut().remove(header::CONNECTION);
        let subject = answer.headers_mut().remove(ABOUT);
        let subject = subject.and_then(|text| STANDARD.decode(text).ok());
        let subject = subject.and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(match subject {
            Some(subject) => audit::about(&subject, answer),
            None => answer,
        })
    }

    /// Sends a request to all other nodes that are up, in parallel. Those that are down, or go down meanwhile, are not waited for.
    pub(super) async fn ask_others(
        &self,
        asks: &OnBehalf,
        method: &Method,
        path: &str,
        json: Option<Vec<u8>>,
    ) -> Result<Vec<Answered>, Silence> {
        let mut asked = JoinSet::new();
        for other in self.others().await? {
            let (inspector, asks) = (self.clone(), asks.clone());
            let (method, path) = (method.clone(), path.to_owned());
            let kind = json
                .is_some()
                .then(|| HeaderValue::from_static("application/json"));
            let body = json.clone().map_or_else(Body::empty, Body::from);
            asked.spawn(async move {
                let asked = async {
                    if !other.is_up {
                        return Err(DOWN.to_owned());
                    }
                    let sent = inspector.send(&other, &asks, method, &path, kind, body);
                    let (head, body) = sent.await?.into_parts();
                    let bytes = to_bytes(body, ANSWER_BYTES).await;
                    Ok((head.status, bytes.map_err(|error| error.to_string())?))
                };
                let answer = timeout(DEADLINE, asked).await;
                Answered {
                    answer: answer.unwrap_or_else(|_| Err(late())),
                    name: other.name,
                    id: other.id,
                }
            });
        }
        let mut answers = Vec::new();
        while let Some(answered) = asked.join_next().await {
            answers.extend(answered.ok());
        }
        answers.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Ok(answers)
    }

    async fn others(&self) -> Result<Vec<Other>, Silence> {
        let nodes = self.nodes().await?.into_iter();
        let others = nodes.filter(|node| !node.is_self);
        Ok(others
            .map(|node| Other {
                address: api_address(&node),
                is_up: node.reachable,
                name: node.name,
                id: node.id,
            })
            .collect())
    }

    /// Waits for a step of an exchange with another node, until the deadline or until that node is down.
    async fn wait_for<T>(
        &self,
        other: &Other,
        step: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let until_down = async {
            loop {
                sleep(LOOK).await;
                let others = self.others().await;
                let is_up = |others: Vec<Other>| {
                    let mut others = others.iter();
                    others.any(|it| it.is_up && it.id == other.id)
                };
                // Where a thread of this node does not answer, nothing is known.
                if !others.map_or(true, is_up) {
                    return;
                }
            }
        };
        tokio::select! {
            done = timeout(DEADLINE, step) => done.unwrap_or_else(|_| Err(late())),
            () = until_down => Err(DOWN.to_owned()),
        }
    }

    /// Returns the head of an answer; its body is streamed.
    async fn send(
        &self,
        other: &Other,
        asks: &OnBehalf,
        method: Method,
        path: &str,
        kind: Option<HeaderValue>,
        body: Body,
    ) -> Result<Response, String> {
        let address = other.address.as_ref().map_err(|why| (*why).to_owned())?;
        if asks.authorization.is_some() && self.links.is_none() && !is_loopback(address) {
            // Without a secret, whoever reaches a node can claim to be another one, with any address for its API.
            return Err("credentials are passed on only where links are authenticated: set a cluster secret".to_owned());
        }
        let claimed = asks.address.zip(self.links.as_ref());
        let claimed = claimed.and_then(|(address, links)| {
            let address = address.to_string();
            let claim = Claim {
                address: &address,
                from: &self.own.id,
                to: &other.id,
                method: &method,
                path,
            };
            let proof = claim.sign(links.trust().announcements.first()?);
            Some((address, proof))
        });
        // Every node answers to this name.
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(FROM, &self.own.id);
        if let Some(authorization) = &asks.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some((address, proof)) = claimed {
            request = request.header(FOR, address).header(PROOF, proof);
        }
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let request = request.body(body).map_err(|error| error.to_string())?;
        let exchange = async {
            let connected = TcpStream::connect(address).await;
            let stream = connected.map_err(|error| format!("{address}: {error}"))?;
            let in_words = |error: hyper::Error| format!("{address}: {error}");
            let opened = http1::handshake(TokioIo::new(stream)).await;
            let (sender, connection) = opened.map_err(in_words)?;
            tokio::spawn(connection);
            Ok(sender)
        };
        let mut sender = self.wait_for(other, exchange).await?;
        // Processing a body, for example an import, may take as long as the other node permits.
        let has_body = !request.body().is_end_stream();
        let sent = sender.send_request(request);
        let sent = async { sent.await.map_err(|error| format!("{address}: {error}")) };
        let answer = if has_body {
            sent.await?
        } else {
            self.wait_for(other, sent).await?
        };
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err(format!(
                "at {address} the credentials are not valid (401): http_users and http_tokens must be the same on all nodes"
            ));
        }
        if answer.headers().get(BY).is_none_or(|by| *by != other.id) {
            return Err(format!("at {address} answers something else"));
        }
        Ok(answer.map(Body::new).into_response())
    }
}

/// Why a node that is down gives no answer.
const DOWN: &str = "it is down";

fn late() -> String {
    format!("no answer within {} seconds", DEADLINE.as_secs())
}

/// HOST:PORT of a node's API, if it can be reached from here.
fn api_address(node: &NodeEntry) -> Result<String, &'static str> {
    let state = node.state.as_ref();
    let address = state.and_then(|state| state.http_address.clone());
    let address = address.ok_or("it has no HTTP API, or has not announced it yet")?;
    if is_loopback(&address) && !is_loopback(&node.address) {
        return Err("its HTTP API is on loopback of its host: give the API users and an address");
    }
    Ok(address)
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use thicket_transport::tls::ClusterKey;

    use super::*;

    #[test]
    fn addresses_of_loopback_are_told_from_others() {
        for (address, expected) in [
            ("127.0.0.1:18830", true),
            ("[::1]:18830", true),
            ("localhost:18830", true),
            ("10.0.0.1:18830", false),
            ("node-1:18830", false),
            ("localhost.example:18830", false),
        ] {
            assert_eq!(is_loopback(address), expected, "{address}");
        }
    }

    #[test]
    fn an_origin_is_proved_only_under_a_key_of_the_cluster_and_for_one_request() {
        let key = |secret: &[u8]| {
            let key = ClusterKey::derive(secret).expect("a key");
            key.announcements().clone()
        };
        let (ours, theirs) = (key(b"ours"), key(b"theirs"));
        let claim = |address| Claim {
            address,
            from: "1",
            to: "2",
            method: &Method::POST,
            path: "/v1/kick?node=b",
        };
        let good = claim("192.0.2.1");
        let proof = good.sign(&ours);
        assert!(good.is_proved(&[theirs.clone(), ours.clone()], &proof));
        for (name, keys, proof) in [
            ("no key", &[][..], &*proof),
            ("another key", &[theirs], &proof),
            ("no proof", std::slice::from_ref(&ours), ""),
            ("not base64", std::slice::from_ref(&ours), "?"),
        ] {
            assert!(!good.is_proved(keys, proof), "{name}");
        }
        let others = [
            claim("192.0.2.2"),
            Claim {
                from: "3",
                ..claim("192.0.2.1")
            },
            Claim {
                to: "3",
                ..claim("192.0.2.1")
            },
            Claim {
                method: &Method::DELETE,
                ..claim("192.0.2.1")
            },
            Claim {
                path: "/v1/drain",
                ..claim("192.0.2.1")
            },
        ];
        for other in others {
            assert!(
                !other.is_proved(std::slice::from_ref(&ours), &proof),
                "{:?}",
                String::from_utf8(other.text())
            );
        }
    }
}
