//! The HTTP API, on a thread of its own, so that requests do not slow clients down.
//!
//! `/v1/openapi.json` lists the paths: the [document](openapi) is made from the handlers, each of which is registered with its description.
//!
//! `?node=NAME`, with any path, [relays](relay) the request to that node.
//!
//! Placements have a [listener of their own](clients) for remote clients.

mod answer;
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
mod page;
mod placement;
mod probe;
mod rebalance;
mod recording;
mod relay;
mod serve;
mod silence;
mod traced;
mod transfer;
mod watch;
mod watchers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::{FromRef, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use serde::Serialize;
use tokio::sync::oneshot;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::overlay::{ExplanationEntry, OverlayEntry, text_of_query, topic_of_query};
use crate::api::redirection::ClientExplanationEntry;
use crate::api::{
    BridgeEntry, NodeEntry, ReloadEntry, SessionEntry, SubscriptionEntry, TopicEntry, TrafficEntry,
};
use crate::reload::Reload;
use answer::{Answer, WRONG_METHOD, bad_field, failure, silent};
use audit::Audit;
pub(crate) use clients::Clients;
pub(crate) use guard::{Guard, Hosts};
pub(crate) use inspect::{Inspector, Own};
pub(crate) use metrics::table as metrics_table;
use openapi::{Document, Layers};
pub(crate) use serve::Seats;
use serve::{KeepsSeat, Service};
pub(crate) use silence::Silence;
pub(crate) use watchers::Watchers;

/// Connections to the probe port at a time.
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
    /// Serves the API on a bound socket. `head`: the time allowed for the head of a request.
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
            keeps_seat: KeepsSeat::WithHead,
            head,
            tls: Arc::new(|| None),
        };
        Self::serve(listener, service)
    }

    /// Serves placements to clients, by the rules of an MQTT listener, and over TLS if that has TLS.
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
            keeps_seat: KeepsSeat::WithBody,
            head,
            tls: Arc::new(move || entrance.tls()),
        };
        Self::serve(listener, service)
    }

    /// Answers whether the node is alive and ready, and nothing else.
    pub(crate) fn start_probe(
        listener: TcpListener,
        inspector: Inspector,
        head: Duration,
    ) -> io::Result<Self> {
        let service = Service {
            router: probe::router().with_state(inspector),
            seats: Seats::new(PROBES),
            keeps_seat: KeepsSeat::WithHead,
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
            // Open connections are not waited for: a stop must not depend on a browser.
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
    let audit = Audit::default();
    let state = ApiState {
        inspector: inspector.clone(),
        reload,
        audit,
    };
    let (routes, registered) = described().with_state(state.clone()).split_for_parts();
    routes
        .layer(Extension(Document::new(&registered, Layers::OfNode)))
        .method_not_allowed_fallback(|| async {
            failure(StatusCode::METHOD_NOT_ALLOWED, WRONG_METHOD)
        })
        .route_layer(middleware::from_fn_with_state(inspector, relay::relay))
        // For routes only: a request to an unknown path changes nothing.
        .route_layer(middleware::from_fn_with_state(state, audit::record))
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

/// The state that handlers share.
#[derive(Debug, Clone)]
struct ApiState {
    inspector: Inspector,
    reload: Reload,
    audit: Audit,
}

impl FromRef<ApiState> for Inspector {
    fn from_ref(state: &ApiState) -> Self {
        state.inspector.clone()
    }
}

impl FromRef<ApiState> for Reload {
    fn from_ref(state: &ApiState) -> Self {
        state.reload.clone()
    }
}

impl FromRef<ApiState> for Audit {
    fn from_ref(state: &ApiState) -> Self {
        state.audit.clone()
    }
}

/// All routes with their descriptions.
fn described() -> OpenApiRouter<ApiState> {
    let words = "The HTTP API of one node. Names are those of the MQTT specification, units are in the names.";
    OpenApiRouter::with_openapi(openapi::empty(words))
        .routes(routes!(nodes))
        .routes(routes!(sessions))
        .routes(routes!(operate::end_session))
        .routes(routes!(subscriptions))
        .routes(routes!(topics))
        .routes(routes!(traffic))
        .routes(routes!(overlay))
        .routes(routes!(explain))
        .routes(routes!(bridges))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(read_again))
        .routes(routes!(watch::watch))
        .routes(routes!(guard::who_am_i))
        .routes(routes!(openapi::answer))
        .merge(audit::router())
        .merge(bans::router())
        .merge(cluster::router())
        .merge(messages::router())
        .merge(operate::router())
        .merge(page::router())
        .merge(placement::router())
        .merge(rebalance::router())
        .merge(recording::router())
        .merge(transfer::router())
}

/// The nodes of the cluster, as this node sees them.
#[utoipa::path(get, path = "/v1/nodes", tag = "cluster", responses((status = 200, description = "All of them", body = Vec<NodeEntry>)))]
async fn nodes(State(inspector): State<Inspector>) -> Answer<Vec<NodeEntry>> {
    inspector.nodes().await.map(Json).map_err(silent)
}

/// The sessions on this node, by client identifier.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "clients",
    params(
        ("search" = Option<String>, Query, description = "Only sessions that have this in client identifier, user name or address."),
        ("limit" = Option<usize>, Query, description = "At most this many."),
    ),
    responses(
        (status = 200, description = "The sessions", body = Vec<SessionEntry>),
        (status = 400, description = "A parameter is not valid"),
    ),
)]
async fn sessions(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
) -> Answer<Vec<SessionEntry>> {
    let query = query.unwrap_or_default();
    let limit = match text_of_query(&query, "limit").map(|text| text.parse()) {
        None => usize::MAX,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            return Err(bad_field("limit", "`limit` must be a number of sessions"));
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

/// The subscriptions of the sessions on this node.
#[utoipa::path(get, path = "/v1/subscriptions", tag = "clients", responses((status = 200, description = "By client identifier and filter", body = Vec<SubscriptionEntry>)))]
async fn subscriptions(State(inspector): State<Inspector>) -> Answer<Vec<SubscriptionEntry>> {
    inspector.subscriptions().await.map(Json).map_err(silent)
}

/// The topics that clients of each node publish to most, with their rates.
#[utoipa::path(get, path = "/v1/topics", tag = "messages", responses((status = 200, description = "The heaviest first", body = Vec<TopicEntry>)))]
async fn topics(State(inspector): State<Inspector>) -> Answer<Vec<TopicEntry>> {
    inspector.topics().await.map(Json).map_err(silent)
}

/// Messages and bytes of this node since its start.
#[utoipa::path(get, path = "/v1/traffic", tag = "monitoring", responses((status = 200, description = "Counts", body = TrafficEntry)))]
async fn traffic(State(inspector): State<Inspector>) -> Answer<TrafficEntry> {
    inspector.traffic().await.map(Json).map_err(silent)
}

/// Reads users, rights, tokens and certificates again.
#[utoipa::path(
    post, path = "/v1/reload", tag = "administration", operation_id = "reload",
    responses(
        (status = 200, description = "All were read", body = ReloadEntry),
        (status = 422, description = "Something could not be read and stays as it was", body = ReloadEntry),
    ),
)]
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

/// The cluster as this node sees it: nodes, links and trees.
#[utoipa::path(get, path = "/v1/overlay", tag = "cluster", responses((status = 200, description = "Its view", body = OverlayEntry)))]
async fn overlay(State(inspector): State<Inspector>) -> Answer<OverlayEntry> {
    inspector.overlay().await.map(Json).map_err(silent)
}

/// An explanation of a topic or of a client.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Explained {
    Topic(ExplanationEntry),
    Client(ClientExplanationEntry),
}

/// Where a publication goes from each node, or where a client is, and why.
#[utoipa::path(
    get, path = "/v1/explain", tag = "cluster",
    params(
        ("topic" = Option<String>, Query, description = "A topic name: where publications to it go. Required without `client_id`."),
        ("client_id" = Option<String>, Query, description = "A client identifier: why this client is where it is. Takes precedence over `topic`."),
    ),
    responses(
        (status = 200, description = "For a topic or for a client", body = Explained),
        (status = 400, description = "`topic` is missing or not valid"),
    ),
)]
async fn explain(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
) -> Answer<Explained> {
    let client_id = query
        .as_deref()
        .and_then(|query| text_of_query(query, "client_id"));
    if let Some(client_id) = client_id {
        let explained = inspector.explain_client(client_id).await.map_err(silent)?;
        return Ok(Json(Explained::Client(explained)));
    }
    let topic = query.as_deref().and_then(topic_of_query).ok_or_else(|| {
        let words = "`topic` must be a topic name without wildcards: /v1/explain?topic=site/1/temp; or `client_id` a client identifier";
        bad_field("topic", words)
    })?;
    let explained = inspector.explain(topic).await.map_err(silent)?;
    Ok(Json(Explained::Topic(explained)))
}

/// The bridges of this node to other brokers.
#[utoipa::path(get, path = "/v1/bridges", tag = "cluster", responses((status = 200, description = "As configured", body = Vec<BridgeEntry>)))]
async fn bridges(State(inspector): State<Inspector>) -> Json<Vec<BridgeEntry>> {
    Json(inspector.bridges.iter().map(BridgeEntry::from).collect())
}

/// Whether every thread of the node answers.
#[utoipa::path(get, path = "/v1/health/live", tag = "monitoring", responses((status = 200, description = "They do", body = String, content_type = "text/plain")))]
async fn live(State(inspector): State<Inspector>) -> Result<&'static str, Response> {
    inspector.traffic().await.map(|_| "live\n").map_err(silent)
}

/// Whether this node is ready for clients; if not, 503 with the reason.
#[utoipa::path(get, path = "/v1/health/ready", tag = "monitoring", responses((status = 200, description = "They are", body = String, content_type = "text/plain")))]
async fn ready(State(inspector): State<Inspector>) -> Result<&'static str, Response> {
    match inspector.readiness().await.map_err(silent)? {
        Ok(()) => Ok("ready\n"),
        Err(unready) => Err(failure(
            StatusCode::SERVICE_UNAVAILABLE,
            &unready.to_string(),
        )),
    }
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "monitoring", responses((status = 200, description = "All families", body = String, content_type = "text/plain")))]
async fn metrics(State(inspector): State<Inspector>) -> Result<Response, Response> {
    let text = metrics::text(&inspector).await.map_err(silent)?;
    Ok(([(header::CONTENT_TYPE, METRICS_TEXT)], text).into_response())
}
