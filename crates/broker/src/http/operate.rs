//! The operator's commands: show memory, disconnect a client, trace packets.

use std::time::Instant;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{OriginalUri, Path, Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use thicket_node::{Direction, ForgetError, SessionEnd, TraceSubject};
use thicket_session::topic::TopicFilter;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, bad_body, bad_path, bad_query, bad_value, failure, silent};
use super::relay::OnBehalf;
use super::{ApiState, Inspector, Silence, audit};
use crate::api::overlay::text_of_query;
use crate::api::{
    DrainEntry, ForgetEntry, ForgottenEntry, KickEntry, MembershipEntry, MemoryLedger, NodeEntry,
    TraceEntry, TraceLines, TraceRequest,
};

const BUSY: &str =
    "the session is on its way to another node, or this side has no majority: ask again later";

impl Inspector {
    /// Ends a trace whose lines are no longer fetched.
    pub(crate) fn end_abandoned_trace(&self, now: Instant) {
        if self.traced.end_if_abandoned(now) {
            self.order_all(|worker, now| worker.operate(now).stop_trace());
        }
    }
}

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(memory))
        .routes(routes!(kick))
        .routes(routes!(drain, end_drain))
        .routes(routes!(membership))
        .routes(routes!(forget))
        .routes(routes!(start_trace, stop_trace))
        .routes(routes!(trace_lines))
}

/// The memory of this node, by use.
#[utoipa::path(get, path = "/v1/memory", tag = "monitoring", responses((status = 200, description = "By use", body = MemoryLedger)))]
async fn memory(State(inspector): State<Inspector>) -> Answer<MemoryLedger> {
    inspector.memory().await.map(Json).map_err(silent)
}

type Body<T> = Result<Json<T>, JsonRejection>;

/// Ends the connection of a client (0x98), on any node.
///
/// The further sessions that a client was placed with belong to it. With `end_session` the sessions end too.
#[utoipa::path(
    post, path = "/v1/kick", tag = "clients", request_body = KickEntry,
    responses(
        (status = 200, description = "It is done", body = KickEntry),
        (status = 404, description = "No node has such a client or session, or `node` names no node that is up"),
        (status = 409, description = "The session is moving to another node, or this side has no quorum"),
    ),
)]
async fn kick(
    State(inspector): State<Inspector>,
    OriginalUri(uri): OriginalUri,
    asks: OnBehalf,
    body: Body<KickEntry>,
) -> Response {
    let Json(entry) = match body {
        Ok(entry) => entry,
        Err(rejection) => return bad_body(&rejection),
    };
    let subject = kicked(&entry);
    let elsewhere = Elsewhere::new(&uri, asks);
    let answer = kick_anywhere(&inspector, entry, elsewhere).await;
    audit::about(&subject, answer)
}

/// What is ended, for the audit log.
fn kicked(entry: &KickEntry) -> String {
    let mut text = entry.client_id.clone();
    for (part, none, some) in [
        (&entry.user_name, " of no user", " of user "),
        (
            &entry.topic_prefix,
            " without topic prefix",
            " with topic prefix ",
        ),
    ] {
        match part.as_deref() {
            None => {}
            Some("") => text += none,
            Some(part) => text.extend([some, part]),
        }
    }
    if entry.end_session {
        text += ", with its session";
    }
    text
}

/// Whether the other nodes must do the same.
enum Elsewhere {
    /// No: the request comes from one of them, or names one.
    No,
    All(OnBehalf),
}

impl Elsewhere {
    fn new(uri: &Uri, asks: OnBehalf) -> Self {
        let query = uri.query().unwrap_or_default();
        if asks.is_node() || text_of_query(query, "node").is_some() {
            return Self::No;
        }
        Self::All(asks)
    }
}

/// Runs on this node and the others: sessions of several users may have the identifier. The result is the best answer of any node.
async fn kick_anywhere(inspector: &Inspector, entry: KickEntry, elsewhere: Elsewhere) -> Response {
    let own = if entry.end_session {
        let ended = end(inspector, entry.clone()).await;
        ended.unwrap_or_else(|answer| answer)
    } else {
        disconnect(inspector, entry.clone()).await
    };
    let Elsewhere::All(asks) = elsewhere else {
        return own;
    };
    let json = serde_json::to_vec(&entry).unwrap_or_default();
    let asked = inspector.ask_others(&asks, &Method::POST, "/v1/kick", Some(json));
    let answers = match asked.await {
        Ok(answers) => answers,
        Err(silence) => return silent(silence),
    };
    let (mut best, mut missing) = (own.status(), Vec::new());
    for answered in &answers {
        match &answered.answer {
            Ok((status, _)) if status.is_success() => best = *status,
            Ok((StatusCode::CONFLICT, _)) if !best.is_success() => best = StatusCode::CONFLICT,
            Ok((StatusCode::NOT_FOUND | StatusCode::CONFLICT, _)) => {}
            Ok(_) | Err(_) => {
                let why = answered.read::<KickEntry>().err();
                missing.extend(why.map(|why| answered.unanswered(why)));
            }
        }
    }
    if best.is_success() {
        return Json(entry).into_response();
    }
    if best == StatusCode::CONFLICT {
        return failure(best, BUSY);
    }
    if best != StatusCode::NOT_FOUND {
        return own;
    }
    let mut words = if entry.end_session {
        "no such session on any node".to_owned()
    } else {
        "no such client is connected to any node".to_owned()
    };
    for it in &missing {
        words.push_str(&format!("; {} gave no answer: {}", it.node, it.why));
    }
    failure(best, &words)
}

async fn disconnect(inspector: &Inspector, entry: KickEntry) -> Response {
    let ids = match client_ids(inspector, &entry.client_id).await {
        Ok(ids) => ids,
        Err(silence) => return silent(silence),
    };
    let whose = entry.clone();
    let kicked = inspector.ask_all(move |worker, now| {
        let kick = |id: &String| worker.operate(now).kick(id, whose.whose());
        ids.iter().map(kick).collect::<Vec<_>>()
    });
    match kicked.await {
        Ok(kicked) if kicked.concat().contains(&true) => Json(entry).into_response(),
        Ok(_) => failure(
            StatusCode::NOT_FOUND,
            "no such client is connected to this node",
        ),
        Err(silence) => silent(silence),
    }
}

/// Ends a session, on any node, and the connection of its client (0x98).
///
/// The further sessions of a placed client end too. Identifiers that do not fit into a path: `POST /v1/kick` with `end_session`.
#[utoipa::path(
    delete, path = "/v1/sessions/{client_id}", tag = "clients",
    params(("client_id" = String, Path, description = "Client identifier; the sessions of all users that have it.")),
    responses(
        (status = 200, description = "It is done", body = KickEntry),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "No node has such a session, or `node` names no node that is up"),
        (status = 409, description = "The session is moving to another node, or this side has no quorum"),
    ),
)]
pub(super) async fn end_session(
    State(inspector): State<Inspector>,
    OriginalUri(uri): OriginalUri,
    asks: OnBehalf,
    client_id: Result<Path<String>, PathRejection>,
) -> Response {
    let client_id = match client_id {
        Ok(Path(client_id)) => client_id,
        Err(rejection) => return bad_path(&rejection),
    };
    let entry = KickEntry {
        client_id,
        user_name: None,
        topic_prefix: None,
        end_session: true,
    };
    kick_anywhere(&inspector, entry, Elsewhere::new(&uri, asks)).await
}

/// The identifier of a client, and those of the further sessions that it was placed with: together they are one client. A client that merely has a
/// name like `C~2` is not included.
async fn client_ids(inspector: &Inspector, client_id: &str) -> Result<Vec<String>, Silence> {
    let asked = client_id.to_owned();
    let further = inspector.order_hub(move |hub, now| hub.view().further_sessions(now, &asked));
    let mut ids = further.await?;
    ids.insert(0, client_id.to_owned());
    Ok(ids)
}

async fn end(inspector: &Inspector, entry: KickEntry) -> Result<Response, Response> {
    let ids = client_ids(inspector, &entry.client_id).await;
    let ids = ids.map_err(silent)?;
    let whose = entry.clone();
    let ended = inspector.ask_all(move |worker, now| {
        let end = |id: &String| worker.operate(now).end_sessions(id, whose.whose());
        ids.iter().map(end).collect::<Vec<_>>()
    });
    let ended = ended.await.map_err(silent)?.concat();
    if ended.contains(&SessionEnd::Ended) {
        return Ok(Json(entry).into_response());
    }
    Err(if ended.contains(&SessionEnd::Busy) {
        failure(StatusCode::CONFLICT, BUSY)
    } else {
        failure(StatusCode::NOT_FOUND, "no such session on this node")
    })
}

/// How a node is drained.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct DrainQuery {
    /// Also if no other node serves.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
    /// Name or identity of the node that is drained; without it the node that is asked.
    // Read by `relay`.
    #[serde(rename = "node")]
    _node: Option<String>,
}

/// Why the last node that serves is not drained.
const LAST: &str = "this is the last node that serves: once it is drained, no client is accepted anywhere (`force=true` drains it nevertheless)";

/// Drains this node: it refuses clients from now on and hands its sessions to the nodes with their backups.
///
/// Each request is one step: repeat it until no session is left.
#[utoipa::path(
    post, path = "/v1/drain", tag = "cluster", params(DrainQuery),
    responses(
        (status = 200, description = "What is left", body = DrainEntry),
        (status = 400, description = "A parameter is not valid"),
        (status = 409, description = "No other node serves, and `force` is not given; or several nodes have the name `node`"),
    ),
)]
async fn drain(
    State(inspector): State<Inspector>,
    query: Result<Query<DrainQuery>, QueryRejection>,
) -> Response {
    let Query(query) = match query {
        Ok(query) => query,
        Err(rejection) => return bad_query(&rejection),
    };
    if !query.force {
        match inspector.is_last_to_serve().await {
            Ok(false) => {}
            Ok(true) => return failure(StatusCode::CONFLICT, LAST),
            Err(silence) => return silent(silence),
        }
    }
    // First, so that receivers see it before clients are refused.
    inspector.hooks.note_draining();
    inspector.tell_hub(|hub, now| hub.operate(now).drain());
    match inspector
        .ask_all(|worker, now| worker.operate(now).drain())
        .await
    {
        Ok(left) => Json(DrainEntry {
            connections: left.iter().map(|left| left.connections).sum(),
            sessions: left.iter().map(|left| left.sessions).sum(),
        })
        .into_response(),
        Err(silence) => silent(silence),
    }
}

impl Inspector {
    /// Whether this node is not drained yet, and every other node is drained or down.
    async fn is_last_to_serve(&self) -> Result<bool, Silence> {
        if self.order_hub(|hub, _| hub.view().is_draining()).await? {
            return Ok(false);
        }
        let nodes = self.nodes().await?;
        let is_drained = |node: &NodeEntry| node.state.as_ref().is_some_and(|it| it.draining);
        let mut others = nodes.iter().filter(|it| it.reachable && !it.is_self);
        Ok(others.all(is_drained))
    }
}

/// Ends a drain: this node accepts clients again.
///
/// Sessions that were handed over stay at the nodes that have them, until their clients connect here.
#[utoipa::path(delete, path = "/v1/drain", tag = "cluster", responses((status = 204, description = "It is done, or the node was not drained")))]
async fn end_drain(State(inspector): State<Inspector>) -> Response {
    inspector.hooks.note_drain_ended();
    inspector.tell_hub(|hub, now| hub.operate(now).end_drain());
    inspector.order_all(|worker, now| worker.operate(now).end_drain());
    StatusCode::NO_CONTENT.into_response()
}

/// How many nodes belong to the cluster, and whether this side of it serves clients.
#[utoipa::path(get, path = "/v1/membership", tag = "cluster", responses((status = 200, description = "The numbers", body = MembershipEntry)))]
async fn membership(State(inspector): State<Inspector>) -> Answer<MembershipEntry> {
    inspector.membership().await.map(Json).map_err(silent)
}

/// Removes a node that is down from the cluster.
#[utoipa::path(
    post, path = "/v1/forget", tag = "cluster", request_body = ForgetEntry,
    responses(
        (status = 200, description = "The node that was removed", body = ForgottenEntry),
        (status = 404, description = "No node has that name or identity, or `node` of the query names no node that is up"),
        (status = 409, description = "The node is up, or several nodes have the name"),
    ),
)]
async fn forget(State(inspector): State<Inspector>, body: Body<ForgetEntry>) -> Response {
    let Json(ForgetEntry { node }) = match body {
        Ok(entry) => entry,
        Err(rejection) => return bad_body(&rejection),
    };
    let subject = node.clone();
    let forgotten = inspector.order_hub(move |hub, now| hub.operate(now).forget(&node));
    let answer = match forgotten.await {
        Ok(Ok((id, name))) => Json(ForgottenEntry { id, name }).into_response(),
        Ok(Err(error)) => {
            let status = match error {
                ForgetError::Unknown { .. } => StatusCode::NOT_FOUND,
                ForgetError::Ambiguous { .. } | ForgetError::Up { .. } => StatusCode::CONFLICT,
            };
            failure(status, &error.to_string())
        }
        Err(silence) => silent(silence),
    };
    audit::about(&subject, answer)
}

/// Starts a trace of the packets of a client, or of the PUBLISH packets that match a topic filter; ends the trace before it.
#[utoipa::path(
    post, path = "/v1/trace", tag = "monitoring", request_body = TraceRequest,
    responses((status = 200, description = "Nothing yet: the lines are asked for", body = TraceLines)),
)]
async fn start_trace(State(inspector): State<Inspector>, body: Body<TraceRequest>) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(rejection) => return bad_body(&rejection),
    };
    let named = request.client_id.as_ref().or(request.topic.as_ref());
    let named = named.cloned().unwrap_or_default();
    let subject = match (request.client_id, request.topic) {
        (Some(client_id), None) => TraceSubject::Client(client_id.into()),
        (None, Some(filter)) => match TopicFilter::new(&filter) {
            Ok(filter) => TraceSubject::Topic(filter),
            Err(error) => return bad_value(Some("topic"), &format!("topic: {error}")),
        },
        _ => {
            return bad_value(None, "expected one of `client_id` and `topic`");
        }
    };
    inspector.traced.set(Some(Instant::now()));
    match inspector
        .ask_all(move |worker, now| worker.operate(now).start_trace(subject.clone()))
        .await
    {
        Ok(_) => audit::about(&named, Json(TraceLines::default()).into_response()),
        Err(silence) => audit::about(&named, silent(silence)),
    }
}

/// Ends the trace.
#[utoipa::path(delete, path = "/v1/trace", tag = "monitoring", responses((status = 200, description = "Nothing is watched any more", body = TraceLines)))]
async fn stop_trace(State(inspector): State<Inspector>) -> Json<TraceLines> {
    inspector.traced.set(None);
    inspector.order_all(|worker, now| worker.operate(now).stop_trace());
    Json(TraceLines::default())
}

/// The packets since the last request. A trace without requests ends after ten seconds.
#[utoipa::path(
    post, path = "/v1/trace/lines", tag = "monitoring",
    responses(
        (status = 200, description = "The lines", body = TraceLines),
        (status = 404, description = "Nothing is watched, or `node` names no node that is up"),
    ),
)]
async fn trace_lines(State(inspector): State<Inspector>) -> Response {
    if !inspector.traced.is_running() {
        return failure(StatusCode::NOT_FOUND, "nothing is traced");
    }
    inspector.traced.set(Some(Instant::now()));
    let taken = match inspector
        .ask_all(|worker, now| worker.operate(now).take_trace())
        .await
    {
        Ok(taken) => taken,
        Err(silence) => return silent(silence),
    };
    let mut answer = TraceLines::default();
    for (lines, lost) in taken {
        answer.lost += lost;
        answer.lines.extend(lines.into_iter().map(|line| {
            TraceEntry {
                client_id: line.client_id,
                direction: match line.direction {
                    Direction::In => "in",
                    Direction::Out => "out",
                }
                .to_owned(),
                packet: line.packet,
            }
        }));
    }
    Json(answer).into_response()
}
