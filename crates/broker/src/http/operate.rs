//! What an operator does: look where memory is, let a client go, watch packets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::rejection::JsonRejection;
use axum::extract::{OriginalUri, Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use thicket_node::{Direction, ForgetError, SessionEnd, TraceSubject};
use thicket_session::topic::TopicFilter;

use super::cluster::read;
use super::relay::OnBehalf;
use super::{Answer, Inspector, Silence, audit, failure, openapi, silent};
use crate::api::overlay::text_of_query;
use crate::api::{
    DrainEntry, ForgetEntry, ForgottenEntry, KickEntry, MembershipEntry, MemoryLedger, TraceEntry,
    TraceLines, TraceRequest,
};

const BUSY: &str =
    "the session is on its way to another node, or this side has no majority: ask again later";
/// A trace whose lines nobody fetches ends by itself.
const ABANDONED: Duration = Duration::from_secs(10);

/// When somebody last asked for the lines of a trace, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traced(Arc<Mutex<Option<Instant>>>);

impl Traced {
    fn set(&self, asked: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = asked;
    }

    fn is_running(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }
}

impl Inspector {
    /// Ends a trace that nobody asks for any more.
    pub(crate) fn end_abandoned_trace(&self, now: Instant) {
        let mut asked = self.traced.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_some_and(|asked| now.saturating_duration_since(asked) > ABANDONED) {
            *asked = None;
            self.order_all(|worker, _| worker.stop_trace());
        }
    }
}

pub(super) fn router() -> Router<Inspector> {
    Router::new()
        .route("/v1/memory", get(memory))
        .route("/v1/kick", post(kick))
        .route("/v1/drain", post(drain))
        .route("/v1/membership", get(membership))
        .route("/v1/forget", post(forget))
        .route("/v1/trace", post(start_trace).delete(stop_trace))
        .route("/v1/trace/lines", post(trace_lines))
        .route("/v1/openapi.json", get(openapi))
}

async fn memory(State(inspector): State<Inspector>) -> Answer<MemoryLedger> {
    inspector.memory().await.map(Json).map_err(silent)
}

async fn openapi() -> Json<serde_json::Value> {
    Json(openapi::document())
}

type Body<T> = Result<Json<T>, JsonRejection>;

fn bad_body(rejection: &JsonRejection) -> Response {
    failure(rejection.status(), &rejection.body_text())
}

async fn kick(
    State(inspector): State<Inspector>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Body<KickEntry>,
) -> Response {
    let Json(entry) = match body {
        Ok(entry) => entry,
        Err(rejection) => return bad_body(&rejection),
    };
    let client_id = entry.client_id.clone();
    let elsewhere = Elsewhere::new(&uri, &headers);
    let answer = kick_anywhere(&inspector, entry, elsewhere).await;
    audit::about(&client_id, answer)
}

/// Which other nodes are asked to do the same.
enum Elsewhere {
    /// None: one of them asks, or one was named.
    No,
    All(OnBehalf),
}

impl Elsewhere {
    fn new(uri: &Uri, headers: &HeaderMap) -> Self {
        let asks = OnBehalf::of(headers);
        let query = uri.query().unwrap_or_default();
        if asks.is_node() || text_of_query(query, "node").is_some() {
            return Self::No;
        }
        Self::All(asks)
    }
}

/// On this node and on the others: sessions of several users may have the identifier. What came of it is the best that any node answers.
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
            other => {
                let why = read::<KickEntry>(other).err();
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
    let user_name = entry.user_name.clone();
    let kicked = inspector.ask_all(move |worker, now| {
        let kick = |id: &String| worker.kick(now, id, user_name.as_deref());
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

/// For identifiers that a path has no room for there is `end_session` of a kick.
pub(super) async fn end_session(
    State(inspector): State<Inspector>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    Path(client_id): Path<String>,
) -> Response {
    let entry = KickEntry {
        client_id,
        user_name: None,
        end_session: true,
    };
    kick_anywhere(&inspector, entry, Elsewhere::new(&uri, &headers)).await
}

/// The identifier of a client, and those of the further sessions that it was placed with: it is one client. Another one that merely calls
/// itself `C~2` is not meant.
async fn client_ids(inspector: &Inspector, client_id: &str) -> Result<Vec<String>, Silence> {
    let asked = client_id.to_owned();
    let further = inspector.order_hub(move |hub, now| hub.further_sessions(now, &asked));
    let mut ids = further.await?;
    ids.insert(0, client_id.to_owned());
    Ok(ids)
}

async fn end(inspector: &Inspector, entry: KickEntry) -> Result<Response, Response> {
    let ids = client_ids(inspector, &entry.client_id).await;
    let ids = ids.map_err(silent)?;
    let user_name = entry.user_name.clone();
    let ended = inspector.ask_all(move |worker, now| {
        let end = |id: &String| worker.end_sessions(now, id, user_name.as_deref());
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

/// One step; to be asked again until nothing is left.
async fn drain(State(inspector): State<Inspector>) -> Response {
    // First: nobody is sent here from now on.
    inspector.hooks.note_draining();
    inspector.tell_hub(|hub, now| hub.drain(now));
    match inspector.ask_all(|worker, now| worker.drain(now)).await {
        Ok(left) => Json(DrainEntry {
            connections: left.iter().map(|left| left.connections).sum(),
            sessions: left.iter().map(|left| left.sessions).sum(),
        })
        .into_response(),
        Err(silence) => silent(silence),
    }
}

async fn membership(State(inspector): State<Inspector>) -> Answer<MembershipEntry> {
    inspector.membership().await.map(Json).map_err(silent)
}

async fn forget(State(inspector): State<Inspector>, body: Body<ForgetEntry>) -> Response {
    let Json(ForgetEntry { node }) = match body {
        Ok(entry) => entry,
        Err(rejection) => return bad_body(&rejection),
    };
    let subject = node.clone();
    let forgotten = inspector.order_hub(move |hub, now| hub.forget(now, &node));
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
            Err(error) => return failure(StatusCode::BAD_REQUEST, &format!("topic: {error}")),
        },
        _ => {
            return failure(
                StatusCode::BAD_REQUEST,
                "expected one of `client_id` and `topic`",
            );
        }
    };
    inspector.traced.set(Some(Instant::now()));
    match inspector
        .ask_all(move |worker, _| worker.start_trace(subject.clone()))
        .await
    {
        Ok(_) => audit::about(&named, Json(TraceLines::default()).into_response()),
        Err(silence) => audit::about(&named, silent(silence)),
    }
}

async fn stop_trace(State(inspector): State<Inspector>) -> Json<TraceLines> {
    inspector.traced.set(None);
    inspector.order_all(|worker, _| worker.stop_trace());
    Json(TraceLines::default())
}

async fn trace_lines(State(inspector): State<Inspector>) -> Response {
    if !inspector.traced.is_running() {
        return failure(StatusCode::NOT_FOUND, "nothing is traced");
    }
    inspector.traced.set(Some(Instant::now()));
    let taken = match inspector.ask_all(|worker, _| worker.take_trace()).await {
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
