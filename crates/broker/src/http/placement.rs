//! `/v1/placements`: where the sessions of clients should be.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use thicket_node::{PlacementAsked, PlacementEntry, PlacementError, PlacementRequest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::cluster::{bad_path, field_of};
use super::{ApiState, Inspector, problem, silent};
use crate::api::ErrorEntry;
use crate::api::overlay::text_of_query;

/// Placements on one page.
const PAGE: usize = 1000;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(all, place))
        .routes(routes!(one, remove))
}

/// Places a client: where its sessions should be, by its topics. Asking again keeps what stays and renews it.
#[utoipa::path(
    post, path = "/v1/placements", tag = "placement", request_body = PlacementAsked,
    responses((status = 200, description = "Its placement", body = PlacementEntry)),
)]
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

/// Decodes the request in a body.
pub(super) fn read(
    body: Result<Json<PlacementAsked>, JsonRejection>,
) -> Result<PlacementAsked, ErrorEntry> {
    body.map(|Json(asked)| asked)
        .map_err(|rejection| ErrorEntry {
            title: "the request cannot be read".into(),
            field: field_of(&rejection),
            ..ErrorEntry::new(rejection.status(), rejection.body_text())
        })
}

/// Places a client, and answers with names as clients of listeners with this topic prefix use them.
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

/// The clients that are placed, by client identifier, a page of 1000.
#[utoipa::path(
    get, path = "/v1/placements", tag = "placement", operation_id = "placements",
    params(("after" = Option<String>, Query, description = "The last client identifier of the page before.")),
    responses((status = 200, description = "A page", body = Vec<PlacementEntry>)),
)]
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

/// Where a client is placed.
#[utoipa::path(
    get, path = "/v1/placements/{client_id}", tag = "placement", operation_id = "placement",
    params(("client_id" = String, Path, description = "Client identifier.")),
    responses(
        (status = 200, description = "Its placement", body = PlacementEntry),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "The client is not placed, or `node` names no node that is up"),
    ),
)]
async fn one(
    State(inspector): State<Inspector>,
    client_id: Result<Path<String>, PathRejection>,
) -> Response {
    let client_id = match client_id {
        Ok(Path(client_id)) => client_id,
        Err(rejection) => return bad_path(&rejection),
    };
    match inspector.placement(client_id).await {
        Ok(Some(report)) => Json(PlacementEntry::new(&report, "")).into_response(),
        Ok(None) => problem((&PlacementError::Unknown).into()),
        Err(silence) => silent(silence),
    }
}

/// Ends the placement of a client.
#[utoipa::path(
    delete, path = "/v1/placements/{client_id}", tag = "placement", operation_id = "remove_placement",
    params(("client_id" = String, Path, description = "Client identifier.")),
    responses(
        (status = 204, description = "It is not placed any more"),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "The client is not placed, or `node` names no node that is up"),
    ),
)]
async fn remove(
    State(inspector): State<Inspector>,
    client_id: Result<Path<String>, PathRejection>,
) -> Response {
    match client_id {
        Ok(Path(client_id)) => remove_checked(&inspector, client_id).await,
        Err(rejection) => bad_path(&rejection),
    }
}

/// Removes a client's placement. `name`: of its session.
pub(super) async fn remove_checked(inspector: &Inspector, name: String) -> Response {
    match inspector.unplace(name).await {
        Ok(Ok(_)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error)) => problem((&error).into()),
        Err(silence) => silent(silence),
    }
}
