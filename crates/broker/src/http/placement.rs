//! `/v1/placements`: where the sessions of clients should be.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::LINK;
use axum::response::{AppendHeaders, IntoResponse, Response};
use thicket_node::{
    PlacementAsked, PlacementEntry, PlacementError, PlacementRequest, checked_session_name,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{bad_path, field_of, problem, silent};
use super::{ApiState, Inspector};
use crate::api::ErrorEntry;
use crate::api::overlay::{query_of_text, text_of_query};

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
    params(("user_name" = Option<String>, Query, description = "The user that the client logs in as, if sessions belong to users.")),
    responses((status = 200, description = "Its placement", body = PlacementEntry)),
)]
async fn place(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
    body: Result<Json<PlacementAsked>, JsonRejection>,
) -> Response {
    let asked = match read(body) {
        Ok(asked) => asked,
        Err(refusal) => return problem(refusal),
    };
    let mut request = match asked.check() {
        Ok(request) => request,
        Err(error) => return problem((&error).into()),
    };
    let user_name = user_of(query.as_deref());
    let scope = inspector.session_scope;
    request.client_id =
        match checked_session_name(scope, "", user_name.as_deref(), &request.client_id) {
            Ok(name) => name,
            Err(error) => return problem((&error).into()),
        };
    match inspector.place(request).await {
        Ok(Ok(report)) => Json(PlacementEntry::with_user(&report)).into_response(),
        Ok(Err(error)) => problem((&error).into()),
        Err(silence) => silent(silence),
    }
}

/// The user in a query.
fn user_of(query: Option<&str>) -> Option<String> {
    query.and_then(|query| text_of_query(query, "user_name"))
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

/// The clients that are placed, by user and client identifier, a page of 1000. `Link` names the next page, if there is one.
#[utoipa::path(
    get, path = "/v1/placements", tag = "placement", operation_id = "placements",
    params(("after" = Option<String>, Query, description = "From the `Link` of the page before.")),
    responses((
        status = 200, description = "A page", body = Vec<PlacementEntry>,
        headers(("link" = String, description = "The next page, `rel=\"next\"` (RFC 8288).")),
    )),
)]
async fn all(State(inspector): State<Inspector>, RawQuery(query): RawQuery) -> Response {
    let after = query
        .as_deref()
        .and_then(|query| text_of_query(query, "after"));
    let asked = inspector.order_hub(move |hub, now| hub.placements(now, after.as_deref(), PAGE));
    match asked.await {
        Ok(reports) => {
            let last = reports.last().filter(|_| reports.len() == PAGE);
            let next = last.map(|report| {
                let after = query_of_text("after", &report.name);
                [(LINK, format!("</v1/placements?{after}>; rel=\"next\""))]
            });
            let entries: Vec<_> = reports.iter().map(PlacementEntry::with_user).collect();
            (next.map(AppendHeaders), Json(entries)).into_response()
        }
        Err(silence) => silent(silence),
    }
}

/// Where a client is placed.
#[utoipa::path(
    get, path = "/v1/placements/{client_id}", tag = "placement", operation_id = "placement",
    params(
        ("client_id" = String, Path, description = "Client identifier."),
        ("user_name" = Option<String>, Query, description = "Of several users' clients with this identifier, the one of this user."),
    ),
    responses(
        (status = 200, description = "Its placement", body = PlacementEntry),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "The client is not placed, or `node` names no node that is up"),
        (status = 409, description = "Clients of several users have this identifier"),
    ),
)]
async fn one(
    State(inspector): State<Inspector>,
    client_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Response {
    let name = match name_of(&inspector, client_id, query).await {
        Ok(name) => name,
        Err(response) => return response,
    };
    match inspector.placement(name).await {
        Ok(Some(report)) => Json(PlacementEntry::with_user(&report)).into_response(),
        Ok(None) => problem((&PlacementError::Unknown).into()),
        Err(silence) => silent(silence),
    }
}

/// Ends the placement of a client.
#[utoipa::path(
    delete, path = "/v1/placements/{client_id}", tag = "placement", operation_id = "remove_placement",
    params(
        ("client_id" = String, Path, description = "Client identifier."),
        ("user_name" = Option<String>, Query, description = "Of several users' clients with this identifier, the one of this user."),
    ),
    responses(
        (status = 204, description = "It is not placed any more"),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "The client is not placed, or `node` names no node that is up"),
        (status = 409, description = "Clients of several users have this identifier"),
    ),
)]
async fn remove(
    State(inspector): State<Inspector>,
    client_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Response {
    match name_of(&inspector, client_id, query).await {
        Ok(name) => remove_checked(&inspector, name).await,
        Err(response) => response,
    }
}

/// The name of the session of a placed client.
async fn name_of(
    inspector: &Inspector,
    client_id: Result<Path<String>, PathRejection>,
    query: Option<String>,
) -> Result<String, Response> {
    let Path(client_id) = client_id.map_err(|rejection| bad_path(&rejection))?;
    let user_name = user_of(query.as_deref());
    let found = inspector
        .order_hub(move |hub, now| hub.placed_names(now, &client_id, user_name.as_deref()))
        .await;
    let mut names = found.map_err(silent)?;
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        (None, _) => Err(problem((&PlacementError::Unknown).into())),
        (Some(_), false) => {
            let words = "clients of several users have this identifier: add ?user_name=";
            let field = Some("user_name".to_owned());
            let entry = ErrorEntry::new(StatusCode::CONFLICT, words.to_owned());
            Err(problem(ErrorEntry { field, ..entry }))
        }
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
