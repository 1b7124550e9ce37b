//! `/v1/placements`: where the sessions of clients should be.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use thicket_node::{PlacementAsked, PlacementEntry, ProblemEntry};

use super::{Inspector, failure, silent};
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
    let asked = match body {
        Ok(Json(asked)) => asked,
        Err(rejection) => {
            return problem(ProblemEntry {
                title: "the request cannot be read".into(),
                status: rejection.status().as_u16(),
                detail: rejection.body_text(),
                field: None,
            });
        }
    };
    let request = match asked.check() {
        Ok(request) => request,
        Err(error) => return problem((&error).into()),
    };
    match inspector.place(request).await {
        Ok(Ok(report)) => Json(PlacementEntry::new(&report, "")).into_response(),
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
    let asked = inspector.order_hub(move |hub, now| hub.placement(now, &client_id));
    match asked.await {
        Ok(Some(report)) => Json(PlacementEntry::new(&report, "")).into_response(),
        Ok(None) => failure(StatusCode::NOT_FOUND, "this client is not placed"),
        Err(silence) => silent(silence),
    }
}

async fn remove(State(inspector): State<Inspector>, Path(client_id): Path<String>) -> Response {
    match inspector.unplace(client_id).await {
        Ok(Ok(_)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error)) => problem((&error).into()),
        Err(silence) => silent(silence),
    }
}

fn problem(entry: ProblemEntry) -> Response {
    let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, kind, Json(entry)).into_response()
}
