//! The HTTP API, on a thread of its own: whoever asks slows no client down.
//!
//! | path | answer |
//! | --- | --- |
//! | `/v1/nodes` | [`NodeEntry`] each |
//! | `/v1/sessions` | [`SessionEntry`] each, of this node |
//! | `/v1/subscriptions` | [`SubscriptionEntry`] each, of this node |
//! | `/v1/traffic` | [`TrafficEntry`] |
//! | `/v1/bridges` | [`BridgeEntry`] each, of this node |
//! | `/v1/health/live` | 200 as long as every thread answers |
//! | `/v1/health/ready` | 200 when clients are let in, else 503 |
//! | `/metrics` | Prometheus text |
//! | `/v1/memory` | [`MemoryLedger`](crate::api::MemoryLedger): where the memory is |
//! | POST `/v1/kick` | ends the connection of a client |
//! | POST `/v1/trace`, POST `/v1/trace/lines`, DELETE `/v1/trace` | watches packets of a client or a topic |
//! | `/v1/openapi.json` | all of this for machines |

mod inspect;
mod metrics;
mod openapi;
mod operate;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread::JoinHandle;

use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::oneshot;

use crate::api::{
    BridgeEntry, ErrorEntry, NodeEntry, SessionEntry, SubscriptionEntry, TrafficEntry,
};
pub(crate) use inspect::{Inspector, Silence};

/// The content type of the text format of Prometheus.
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The running API. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on a socket that is bound already.
    pub(crate) fn start(listener: TcpListener, inspector: Inspector) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // Open connections are not waited for: a stop must not hang on a browser's.
            tokio::select! {
                result = axum::serve(listener, router(inspector)) => result,
                _ = stopped => Ok(()),
            }
        };
        let thread = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve) {
                    tracing::error!(%error, "the HTTP API ended");
                }
            })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(inspector: Inspector) -> Router {
    Router::new()
        .route("/v1/nodes", get(nodes))
        .route("/v1/sessions", get(sessions))
        .route("/v1/subscriptions", get(subscriptions))
        .route("/v1/traffic", get(traffic))
        .route("/v1/bridges", get(bridges))
        .route("/v1/health/live", get(live))
        .route("/v1/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .merge(operate::router())
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .layer(middleware::from_fn(local_names_only))
        .with_state(inspector)
}

/// A page in a browser of this host could otherwise read the API under a name of its own that resolves to loopback.
async fn local_names_only(request: Request, next: Next) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let origin = request.headers().get(header::ORIGIN);
    let from_page = origin.is_some() && request.method() != axum::http::Method::GET;
    if host.is_none_or(is_local) && !from_page {
        next.run(request).await
    } else {
        failure(
            StatusCode::FORBIDDEN,
            "the API answers to localhost and loopback addresses only",
        )
    }
}

/// Whether the value of a Host header names this host as seen from itself.
fn is_local(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.parse::<u16>().is_ok() {
            name
        } else {
            host
        }
    });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

type Answer<T> = Result<Json<T>, Response>;

async fn nodes(State(inspector): State<Inspector>) -> Answer<Vec<NodeEntry>> {
    inspector.nodes().await.map(Json).map_err(silent)
}

async fn sessions(State(inspector): State<Inspector>) -> Answer<Vec<SessionEntry>> {
    inspector.sessions().await.map(Json).map_err(silent)
}

async fn subscriptions(State(inspector): State<Inspector>) -> Answer<Vec<SubscriptionEntry>> {
    inspector.subscriptions().await.map(Json).map_err(silent)
}

async fn traffic(State(inspector): State<Inspector>) -> Answer<TrafficEntry> {
    inspector.traffic().await.map(Json).map_err(silent)
}

async fn bridges(State(inspector): State<Inspector>) -> Json<Vec<BridgeEntry>> {
    Json(inspector.bridges.iter().map(BridgeEntry::from).collect())
}

async fn live(State(inspector): State<Inspector>) -> Result<&'static str, Response> {
    inspector.traffic().await.map(|_| "live\n").map_err(silent)
}

async fn ready(State(inspector): State<Inspector>) -> Result<&'static str, Response> {
    match inspector.is_ready().await.map_err(silent)? {
        true => Ok("ready\n"),
        false => Err(failure(
            StatusCode::SERVICE_UNAVAILABLE,
            "this node has not heard all it must know from the other nodes yet",
        )),
    }
}

async fn metrics(State(inspector): State<Inspector>) -> Result<Response, Response> {
    let text = metrics::text(&inspector).await.map_err(silent)?;
    Ok(([(header::CONTENT_TYPE, METRICS_TEXT)], text).into_response())
}

fn silent(silence: inspect::Silence) -> Response {
    failure(StatusCode::SERVICE_UNAVAILABLE, &silence.to_string())
}

fn failure(status: StatusCode, words: &str) -> Response {
    (
        status,
        Json(ErrorEntry {
            error: words.to_owned(),
        }),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_host_are_answered_to() {
        let cases = [
            ("localhost", true),
            ("LocalHost:18830", true),
            ("127.0.0.1", true),
            ("127.0.0.1:18830", true),
            ("[::1]", true),
            ("[::1]:18830", true),
            ("rebound.example", false),
            ("rebound.example:18830", false),
            ("localhost.rebound.example", false),
            ("10.0.0.1:18830", false),
            ("", false),
        ];
        for (host, expected) in cases {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }
}
