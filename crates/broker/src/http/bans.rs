//! `/v1/bans`: clients that may not connect to any node. Every node has the whole list.

use std::net::IpAddr;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use thicket_node::{Ban, BanSubject, Published};
use thicket_session::time::WallClock;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, bad_body, bad_field, bad_query, bad_value, failure, silent};
use super::guard::Asker;
use super::messages::not_published;
use super::{ApiState, Inspector, audit};
use crate::api::bans::{BanEntry, BanRequest, Whom};
use crate::clock::wall_ms;

/// Whose ban is to be lifted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Whose {
    /// A client identifier.
    client_id: Option<String>,
    /// A user name.
    user_name: Option<String>,
    /// Clients that prove no user name.
    #[serde(default)]
    anonymous: bool,
    /// The topic prefix of a listener; empty: of those without one.
    topic_prefix: Option<String>,
    /// An address.
    #[param(value_type = Option<String>)]
    address: Option<IpAddr>,
    /// Name or identity of the node that is to answer; without it the node that is asked.
    // Read by `relay`.
    #[serde(rename = "node")]
    _node: Option<String>,
}

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, ban, unban))
}

/// All bans.
#[utoipa::path(get, path = "/v1/bans", tag = "clients", operation_id = "bans", responses((status = 200, description = "All bans", body = Vec<BanEntry>)))]
async fn list(State(inspector): State<Inspector>) -> Answer<Vec<BanEntry>> {
    let bans = inspector.bans().await?;
    Ok(Json(bans.into_iter().map(BanEntry::from).collect()))
}

/// Bans clients at all nodes.
///
/// By address, or by one or several of identifier, user and topic prefix of the listener. CONNECT is refused with 0x8A, clients that are connected are
/// disconnected with 0x98.
#[utoipa::path(
    post, path = "/v1/bans", tag = "clients", request_body = BanRequest,
    responses(
        (status = 200, description = "The ban", body = BanEntry),
        (status = 504, description = "Not all nodes have acknowledged it yet"),
        (status = 507, description = "The limit of bans is reached, or a node has no capacity for another one"),
    ),
)]
async fn ban(
    State(inspector): State<Inspector>,
    asker: Option<Extension<Asker>>,
    body: Result<Json<BanRequest>, JsonRejection>,
) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(rejection) => return bad_body(&rejection),
    };
    let by = asker.map(|asker| asker.0.0.name.to_string());
    let ban = match request.ban(WallClock::from_unix_millis(wall_ms()), by) {
        Ok(ban) => ban,
        Err(error) => return bad_value(error.field(), &error.to_string()),
    };
    let subject = ban.subject.to_string();
    let done = inspector.ban(ban).await;
    audit::about(&subject, done.unwrap_or_else(|answer| answer))
}

/// Lifts a ban: the one that was made with the same fields, or else the only one to which all that is given applies.
#[utoipa::path(
    delete, path = "/v1/bans", tag = "clients", params(Whose),
    responses(
        (status = 200, description = "The ban that was lifted", body = BanEntry),
        (status = 400, description = "A parameter is not valid"),
        (status = 404, description = "There is no such ban, or `node` names no node that is up"),
        (status = 409, description = "There are several such bans: more fields are needed"),
        (status = 504, description = "Not all nodes have acknowledged it yet"),
        (status = 507, description = "A node has no capacity for it"),
    ),
)]
async fn unban(
    State(inspector): State<Inspector>,
    query: Result<Query<Whose>, QueryRejection>,
) -> Response {
    let whose = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return bad_query(&rejection),
    };
    let whom = Whom {
        client_id: whose.client_id,
        user_name: whose.user_name,
        anonymous: whose.anonymous,
        topic_prefix: whose.topic_prefix,
        address: whose.address,
    };
    match whom.subject() {
        Ok(subject) => {
            let lifted = inspector.lift(&subject).await;
            audit::about(&subject.to_string(), lifted.unwrap_or_else(|answer| answer))
        }
        Err(error) => match error.field() {
            Some(field) => bad_field(field, &error.to_string()),
            None => failure(StatusCode::BAD_REQUEST, &error.to_string()),
        },
    }
}

fn answer(published: Option<Published>, entry: BanEntry) -> Response {
    match not_published(published) {
        Some(answer) => answer,
        None => Json(entry).into_response(),
    }
}

impl Inspector {
    async fn bans(&self) -> Result<Vec<Ban>, Response> {
        self.order_hub(|hub, now| hub.view().bans(now))
            .await
            .map_err(silent)
    }

    async fn ban(&self, ban: Ban) -> Result<Response, Response> {
        let bans = self.bans().await?;
        let is_new = bans.iter().all(|it| it.subject != ban.subject);
        if is_new && bans.len() >= Ban::MAXIMUM {
            let words = format!(
                "there are {} bans, which is as many as there may be",
                bans.len()
            );
            return Err(failure(StatusCode::INSUFFICIENT_STORAGE, &words));
        }
        let entry = BanEntry::from(ban.clone());
        let done = self.publish(move |worker, now, number| worker.operate(now).ban(number, &ban));
        Ok(answer(done.await, entry))
    }

    async fn lift(&self, subject: &BanSubject) -> Result<Response, Response> {
        let bans = self.bans().await?;
        let mut meant: Vec<Ban> = (bans.into_iter())
            .filter(|ban| ban.subject.is_among(subject))
            .collect();
        meant.sort_by_key(|ban| ban.subject != *subject);
        let is_one = meant.len() == 1 || meant.first().is_some_and(|it| it.subject == *subject);
        if !meant.is_empty() && !is_one {
            let all: Vec<String> = meant.iter().map(|it| it.subject.to_string()).collect();
            let words = format!("there are several such bans: {}", all.join("; "));
            return Err(failure(StatusCode::CONFLICT, &words));
        }
        let ban = meant.into_iter().next().ok_or_else(|| {
            let words = format!("{subject} is not banned");
            failure(StatusCode::NOT_FOUND, &words)
        })?;
        let subject = ban.subject.clone();
        let done =
            self.publish(move |worker, now, number| worker.operate(now).unban(number, &subject));
        Ok(answer(done.await, BanEntry::from(ban)))
    }
}
