//! Sends requests to the HTTP APIs of other nodes, with the credentials of the original request, so that any node answers for the cluster.
//!
//! `?node=NAME` relays a request to that node, whatever its path. A request from another node is not relayed again.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::inspect::{Inspector, PATIENCE, Silence};
use super::{failure, silent};
use crate::api::NodeEntry;
use crate::api::cluster::UnansweredEntry;
use crate::api::overlay::text_of_query;

/// In a request: the node that sends it.
const FROM: HeaderName = HeaderName::from_static("thicket-from");
/// In an answer to another node: the identity of the node that answers.
const BY: HeaderName = HeaderName::from_static("thicket-by");
/// Longer than the other node waits for its threads.
const DEADLINE: Duration = Duration::from_secs(PATIENCE.as_secs() + 1);
/// Longest answer that is read into memory.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The node that answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    pub(crate) name: String,
    /// Hexadecimal.
    pub(crate) id: String,
}

/// On whose behalf other nodes are asked.
#[derive(Debug, Clone)]
pub(super) struct OnBehalf {
    /// The credentials of the request to this node.
    authorization: Option<HeaderValue>,
    is_node: bool,
}

/// Another node that is up.
#[derive(Debug, Clone)]
struct Other {
    name: String,
    id: String,
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
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            authorization: headers.get(header::AUTHORIZATION).cloned(),
            is_node: headers.contains_key(FROM),
        }
    }

    /// Whether another node sent the request; it asks the rest itself.
    pub(super) const fn is_node(&self) -> bool {
        self.is_node
    }
}

impl Answered {
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
    let asks = OnBehalf::of(request.headers());
    if asks.is_node {
        let mut answer = next.run(request).await;
        if let Ok(id) = HeaderValue::from_str(&inspector.own.id) {
            answer.headers_mut().insert(BY, id);
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
    async fn hand_on(
        &self,
        node: &str,
        asks: &OnBehalf,
        request: Request,
    ) -> Result<Response, Response> {
        let others = self.others().await.map_err(silent)?;
        let mut named = others.iter().filter(|it| it.id == node || it.name == node);
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
        Ok(answer)
    }

    /// Sends a request to all other nodes that are up, in parallel.
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
        let up = nodes.filter(|node| !node.is_self && node.reachable);
        Ok(up
            .map(|node| Other {
                address: api_address(&node),
                name: node.name,
                id: node.id,
            })
            .collect())
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
        // Every node answers to this name.
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(FROM, &self.own.id);
        if let Some(authorization) = &asks.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
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
        let connected = timeout(DEADLINE, exchange).await;
        let mut sender = connected.unwrap_or_else(|_| Err(late()))?;
        // Processing a body, for example an import, may take as long as the other node permits.
        let has_body = !request.body().is_end_stream();
        let sent = sender.send_request(request);
        let answer = if has_body {
            sent.await
        } else {
            timeout(DEADLINE, sent).await.map_err(|_| late())?
        };
        let answer = answer.map_err(|error| format!("{address}: {error}"))?;
        if answer.headers().get(BY).is_none_or(|by| *by != other.id) {
            return Err(format!("at {address} answers something else"));
        }
        Ok(answer.map(Body::new).into_response())
    }
}

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
}
