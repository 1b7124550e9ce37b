//! The HTTP API, on a thread of its own: whoever asks slows no client down.
//!
//! | path | answer |
//! | --- | --- |
//! | `/v1/nodes` | [`NodeEntry`] each |
//! | `/v1/membership` | [`MembershipEntry`](crate::api::MembershipEntry): how many nodes there are, and whether this side serves |
//! | `/v1/clients` | [`ClientPage`](crate::api::cluster::ClientPage): sessions of all nodes, found by who they are, or those with most of something |
//! | `/v1/subscribers` | [`SubscriberPage`](crate::api::cluster::SubscriberPage): subscriptions of all nodes |
//! | `/v1/retained` | [`RetainedPage`](crate::api::messages::RetainedPage): retained messages, with payloads for an admin |
//! | GET, DELETE `/v1/retained/message?topic=T` | [`MessageBody`](crate::api::transfer::MessageBody): the retained message of a topic |
//! | POST `/v1/publish` | [`PublishedEntry`](crate::api::messages::PublishedEntry): publishes a message |
//! | GET, POST, DELETE `/v1/bans` | [`BanEntry`](crate::api::bans::BanEntry) each: who may not connect to any node |
//! | `/v1/sessions` | [`SessionEntry`] each, of this node |
//! | `/v1/subscriptions` | [`SubscriptionEntry`] each, of this node |
//! | POST, GET `/v1/placements`, GET, DELETE `/v1/placements/{client_id}` | [`PlacementEntry`](thicket_node::PlacementEntry): where the sessions of a client should be |
//! | GET, POST `/v1/rebalance` | [`RebalanceReport`](thicket_node::RebalanceReport): what should move and what that gains, as planned last or anew |
//! | `/v1/recording` | [`RecordingPage`](crate::api::recording::RecordingPage): sessions of this node with their filters, a page |
//! | `/v1/topics` | [`TopicEntry`] each, of all nodes: the heaviest of each |
//! | `/v1/traffic` | [`TrafficEntry`] |
//! | `/v1/overlay` | [`OverlayEntry`]: view, links, trees |
//! | `/v1/explain?topic=T` | [`ExplanationEntry`](crate::api::overlay::ExplanationEntry): where a publication goes from each node, and why |
//! | `/v1/explain?client_id=C` | [`ClientExplanationEntry`](crate::api::redirection::ClientExplanationEntry): why a client is where it is |
//! | `/v1/bridges` | [`BridgeEntry`] each, of this node |
//! | `/v1/health/live` | 200 as long as every thread answers |
//! | `/v1/health/ready` | 200 when clients are served well here, else 503 with the reason |
//! | `/metrics` | Prometheus text |
//! | POST `/v1/reload` | [`ReloadEntry`]; 422 if something could not be read and stays as it was |
//! | `/v1/memory` | [`MemoryLedger`](crate::api::MemoryLedger): where the memory is |
//! | DELETE `/v1/sessions/{client_id}` | ends a session, and the connection of its client |
//! | POST `/v1/kick` | ends the connection of a client, and its session if so asked |
//! | POST `/v1/drain` | lets nobody in any more and hands sessions to the nodes with their backups |
//! | POST `/v1/forget` | removes a node that is out from the cluster |
//! | POST `/v1/trace`, POST `/v1/trace/lines`, DELETE `/v1/trace` | watches packets of a client or a topic |
//! | POST `/v1/export`, POST `/v1/import` | sessions and retained messages as [lines](crate::api::transfer) |
//! | `/v1/watch` | [`WatchEntry`](crate::api::watch::WatchEntry), about one a second, as server-sent events |
//! | `/v1/whoami` | [`WhoAmIEntry`](crate::api::watch::WhoAmIEntry): the role of who asks |
//! | `/`, `/page.css`, `/page.js` | a page that shows all of this and does what an admin may |
//! | `/v1/audit` | [`AuditEntry`](crate::api::audit::AuditEntry) each: what was changed over the API of this node |
//! | `/v1/openapi.json` | all of this for machines |
//!
//! `?node=NAME`, with any path, asks [that node](relay).
//!
//! Placements have a [listener of their own](clients) for clients elsewhere.

mod audit;
mod bans;
mod clients;
mod cluster;
mod guard;
mod inspect;
mod messages;
mod metrics;
mod openapi;
mod operate;
mod overlay_metrics;
mod page;
mod placement;
mod probe;
mod rebalance;
mod recording;
mod relay;
mod serve;
mod transfer;
mod watch;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use tokio::sync::oneshot;

use crate::api::overlay::{OverlayEntry, text_of_query, topic_of_query};
use crate::api::{
    BridgeEntry, ErrorEntry, NodeEntry, ReloadEntry, SessionEntry, SubscriptionEntry, TopicEntry,
    TrafficEntry,
};
use crate::reload::Reload;
use audit::Audit;
pub(crate) use clients::Clients;
pub(crate) use guard::{Guard, Hosts};
pub(crate) use inspect::{Inspector, Silence};
pub(crate) use metrics::table as metrics_table;
pub(crate) use relay::Own;
pub(crate) use serve::Seats;
use serve::Service;
pub(crate) use watch::Watchers;

/// Connections to the port for probes at a time.
const PROBES: usize = 16;
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
    /// Serves the API on a socket that is bound already. `head`: time for the head of a request.
    pub(crate) fn start(
        listener: TcpListener,
        inspector: Inspector,
        guard: Guard,
        reload: Reload,
        head: Duration,
    ) -> io::Result<Self> {
        let service = Service {
            seats: Arc::clone(&inspector.seats),
            router: router(inspector, guard, reload),
            head,
            tls: Arc::new(|| None),
        };
        Self::serve(listener, service)
    }

    /// Places clients, by the rules of an MQTT listener, and over TLS where that has TLS.
    pub(crate) fn start_placement(
        listener: TcpListener,
        clients: Clients,
        seats: Arc<Seats>,
        head: Duration,
    ) -> io::Result<Self> {
        let entrance = Arc::clone(&clients.entrance);
        let service = Service {
            router: clients::router(clients),
            seats,
            head,
            tls: Arc::new(move || entrance.tls()),
        };
        Self::serve(listener, service)
    }

    /// Tells whether the node lives and is ready, and nothing else.
    pub(crate) fn start_probe(
        listener: TcpListener,
        inspector: Inspector,
        head: Duration,
    ) -> io::Result<Self> {
        let service = Service {
            router: probe::router().with_state(inspector),
            seats: Seats::new(PROBES),
            head,
            tls: Arc::new(|| None),
        };
        Self::serve(listener, service)
    }

    fn serve(listener: TcpListener, service: Service) -> io::Result<Self> {
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
                () = serve::serve(listener, service) => {}
                _ = stopped => {}
            }
            io::Result::Ok(())
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

fn router(inspector: Inspector, guard: Guard, reload: Reload) -> Router {
    let changes = Router::new()
        .route("/v1/reload", post(read_again))
        .with_state(reload);
    let audit = Audit::default();
    Router::new()
        .route("/v1/nodes", get(nodes))
        .route("/v1/sessions", get(sessions))
        .route("/v1/sessions/{client_id}", delete(operate::end_session))
        .route("/v1/subscriptions", get(subscriptions))
        .route("/v1/topics", get(topics))
        .route("/v1/traffic", get(traffic))
        .route("/v1/overlay", get(overlay))
        .route("/v1/explain", get(explain))
        .route("/v1/bridges", get(bridges))
        .route("/v1/health/live", get(live))
        .route("/v1/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/whoami", get(guard::who_am_i))
        .merge(page::router())
        .merge(bans::router())
        .merge(cluster::router())
        .merge(messages::router())
        .merge(operate::router())
        .merge(placement::router())
        .merge(rebalance::router())
        .merge(recording::router())
        .merge(transfer::router())
        .with_state(inspector.clone())
        .merge(changes)
        .merge(audit::router(audit.clone()))
        .route_layer(middleware::from_fn_with_state(inspector, relay::relay))
        // Of routes only: what is at no path changes nothing.
        .route_layer(middleware::from_fn_with_state(audit, audit::record))
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

type Answer<T> = Result<Json<T>, Response>;

async fn nodes(State(inspector): State<Inspector>) -> Answer<Vec<NodeEntry>> {
    inspector.nodes().await.map(Json).map_err(silent)
}

/// `?search=`: those with this in client identifier, user or address. `?limit=`: so many.
async fn sessions(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
) -> Answer<Vec<SessionEntry>> {
    let query = query.unwrap_or_default();
    let limit = match text_of_query(&query, "limit").map(|text| text.parse()) {
        None => usize::MAX,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            return Err(failure(
                StatusCode::BAD_REQUEST,
                "`limit` must be a number of sessions",
            ));
        }
    };
    let search = text_of_query(&query, "search").unwrap_or_default();
    let mut all = inspector.sessions().await.map_err(silent)?;
    all.retain(|it| {
        let parts = [Some(&it.client_id), it.user_name.as_ref(), it.peer.as_ref()];
        parts
            .into_iter()
            .flatten()
            .any(|part| part.contains(&search))
    });
    all.truncate(limit);
    Ok(Json(all))
}

async fn subscriptions(State(inspector): State<Inspector>) -> Answer<Vec<SubscriptionEntry>> {
    inspector.subscriptions().await.map(Json).map_err(silent)
}

async fn topics(State(inspector): State<Inspector>) -> Answer<Vec<TopicEntry>> {
    inspector.topics().await.map(Json).map_err(silent)
}

async fn traffic(State(inspector): State<Inspector>) -> Answer<TrafficEntry> {
    inspector.traffic().await.map(Json).map_err(silent)
}

async fn read_again(State(reload): State<Reload>) -> Response {
    let problems = match tokio::task::spawn_blocking(move || reload.run()).await {
        Ok(problems) => problems,
        Err(error) => vec![error.to_string()],
    };
    let status = if problems.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    (status, Json(ReloadEntry { problems })).into_response()
}

async fn overlay(State(inspector): State<Inspector>) -> Answer<OverlayEntry> {
    inspector.overlay().await.map(Json).map_err(silent)
}

async fn explain(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    let client_id = query
        .as_deref()
        .and_then(|query| text_of_query(query, "client_id"));
    if let Some(client_id) = client_id {
        let explained = inspector.explain_client(client_id).await.map_err(silent)?;
        return Ok(Json(explained).into_response());
    }
    let topic = query.as_deref().and_then(topic_of_query).ok_or_else(|| {
        let words = "`topic` must be a topic name without wildcards: /v1/explain?topic=site/1/temp; or `client_id` a client identifier";
        failure(StatusCode::BAD_REQUEST, words)
    })?;
    let explained = inspector.explain(topic).await.map_err(silent)?;
    Ok(Json(explained).into_response())
}

async fn bridges(State(inspector): State<Inspector>) -> Json<Vec<BridgeEntry>> {
    Json(inspector.bridges.iter().map(BridgeEntry::from).collect())
}

async fn live(State(inspector): State<Inspector>) -> Result<&'static str, Response> {
    inspector.traffic().await.map(|_| "live\n").map_err(silent)
}

async fn ready(State(inspector): State<Inspector>) -> Result<&'static str, Response> {
    match inspector.readiness().await.map_err(silent)? {
        Ok(()) => Ok("ready\n"),
        Err(unready) => Err(failure(
            StatusCode::SERVICE_UNAVAILABLE,
            &unready.to_string(),
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
