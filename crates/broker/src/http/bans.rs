//! `/v1/bans`: clients that may not connect to any node. Every node has the whole list.

use std::net::IpAddr;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use thicket_node::{Ban, BanSubject, Published};
use thicket_session::time::WallClock;

use super::cluster::{bad_query, bad_request};
use super::guard::Asker;
use super::messages::not_published;
use super::{Answer, Inspector, audit, failure, silent};
use crate::api::bans::{BanEntry, BanRequest, subject_of};
use crate::clock::wall_ms;

/// Whose ban is to be lifted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    client_id: Option<String>,
    user_name: Option<String>,
    address: Option<IpAddr>,
    /// Read by `relay`.
    #[serde(rename = "node")]
    _node: Option<String>,
}

pub(super) fn router() -> Router<Inspector> {
    Router::new().route("/v1/bans", get(list).post(ban).delete(unban))
}

async fn list(State(inspector): State<Inspector>) -> Answer<Vec<BanEntry>> {
    let bans = inspector.bans().await?;
    Ok(Json(bans.into_iter().map(BanEntry::from).collect()))
}

async fn ban(
    State(inspector): State<Inspector>,
    asker: Option<Extension<Asker>>,
    body: Result<Json<BanRequest>, JsonRejection>,
) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(rejection) => return failure(rejection.status(), &rejection.body_text()),
    };
    let by = asker.map(|asker| asker.0.0.name.to_string());
    let ban = match request.ban(WallClock::from_unix_millis(wall_ms()), by) {
        Ok(ban) => ban,
        Err(words) => return bad_request(words),
    };
    let subject = ban.subject.to_string();
    let done = inspector.ban(ban).await;
    audit::about(&subject, done.unwrap_or_else(|answer| answer))
}

async fn unban(
    State(inspector): State<Inspector>,
    query: Result<Query<Whose>, QueryRejection>,
) -> Response {
    let Whose {
        client_id,
        user_name,
        address,
        ..
    } = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return bad_query(&rejection),
    };
    match subject_of(client_id, user_name, address) {
        Ok(subject) => {
            let lifted = inspector.lift(&subject).await;
            audit::about(&subject.to_string(), lifted.unwrap_or_else(|answer| answer))
        }
        Err(words) => bad_request(words),
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
        self.order_hub(|hub, now| hub.bans(now))
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
        let done = self.publish(move |worker, now, number| worker.ban(now, number, &ban));
        Ok(answer(done.await, entry))
    }

    async fn lift(&self, subject: &BanSubject) -> Result<Response, Response> {
        let bans = self.bans().await?;
        let found = bans.into_iter().find(|ban| ban.subject == *subject);
        let ban = found.ok_or_else(|| {
            let words = format!("{subject} is not banned");
            failure(StatusCode::NOT_FOUND, &words)
        })?;
        let subject = subject.clone();
        let done = self.publish(move |worker, now, number| worker.unban(now, number, &subject));
        Ok(answer(done.await, BanEntry::from(ban)))
    }
}
