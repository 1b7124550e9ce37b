//! `/v1/placements`: where the sessions of clients should be.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use thicket_node::{
    PlacementAsked, PlacementEntry, PlacementError, PlacementRequest, ProblemEntry,
};

use super::{Inspector, silent};
use crate::api::overlay::text_of_query;

/// Placements on one page.
const PAGE: usize = 1000;

pub(super) fn router() -> Router<Inspector> {
    Router::new()
        .route("/v1/placements", get(all).post(place))
        .route("/v1/placements/{client_id}", get(one).delete(remove))
}

async fn place(
    State(inspector): State<Inspector>,
    body: Result<Json<PlacementAsked>, JsonRejection>,
) -> Response {
    let asked = match read(body) {
        Ok(asked) => asked,
        Err(refusal) => return problem(refusal),
    };
    let request = match asked.check() {
        Ok(request) => request,
        Err(error) => return problem((&error).into()),
    };
    place_checked(&inspector, request, "").await
}

/// The request in a body.
pub(super) fn read(
    body: Result<Json<PlacementAsked>, JsonRejection>,
) -> Result<PlacementAsked, ProblemEntry> {
    body.map(|Json(asked)| asked)
        .map_err(|rejection| ProblemEntry {
            title: "the request cannot be read".into(),
            status: rejection.status().as_u16(),
            detail: rejection.body_text(),
            field: None,
        })
}

/// Has a client placed, and answers as clients of listeners with this topic prefix understand it.
pub(super) async fn place_checked(
    inspector: &Inspector,
    request: PlacementRequest,
    topic_prefix: &str,
) -> Response {
    match inspector.place(request).await {
        Ok(Ok(report)) => Json(PlacementEntry::new(&report, topic_prefix)).into_response(),
        Ok(Err(error)) => problem((&error).into()),
        Err(silence) => silent(silence),
    }
}

/// By client; `?after=C` is the next page.
async fn all(State(inspector): State<Inspector>, RawQuery(query): RawQuery) -> Response {
    let after = query
        .as_deref()
        .and_then(|query| text_of_query(query, "after"));
    let asked = inspector.order_hub(move |hub, now| hub.placements(now, after.as_deref(), PAGE));
    match asked.await {
        Ok(reports) => {
            let entries: Vec<PlacementEntry> = reports
                .iter()
                .map(|report| PlacementEntry::new(report, ""))
                .collect();
            Json(entries).into_response()
        }
        Err(silence) => silent(silence),
    }
}

async fn one(State(inspector): State<Inspector>, Path(client_id): Path<String>) -> Response {
    match inspector.placement(client_id).await {
        Ok(Some(report)) => Json(PlacementEntry::new(&report, "")).into_response(),
        Ok(None) => problem((&PlacementError::Unknown).into()),
        Err(silence) => silent(silence),
    }
}

async fn remove(State(inspector): State<Inspector>, Path(client_id): Path<String>) -> Response {
    remove_checked(&inspector, client_id).await
}

/// Has a client placed no more. `name`: of its session.
pub(super) async fn remove_checked(inspector: &Inspector, name: String) -> Response {
    match inspector.unplace(name).await {
        Ok(Ok(_)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error)) => problem((&error).into()),
        Err(silence) => silent(silence),
    }
}

pub(super) fn problem(entry: ProblemEntry) -> Response {
    let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, kind, Json(entry)).into_response()
}
