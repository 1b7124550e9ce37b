//! `/v1/placements`: where the sessions of clients should be.

use std::fmt::Formatter;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::LINK;
use axum::response::{AppendHeaders, IntoResponse, Response};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thicket_node::{
    PlacementAsked, PlacementEntry, PlacementError, PlacementRequest, checked_session_name,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{
    bad_entry, bad_path, field_of, problem, silent, status_of_body, words_of_body,
};
use super::{ApiState, Inspector};
use crate::api::ErrorEntry;
use crate::api::overlay::{query_of_text, text_of_query};

/// Of a request that names a node: it is relayed by it, or arrived.
const NODE: &str = "node";
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
    body: Result<Json<AskedObject>, JsonRejection>,
) -> Response {
    let [user_name] = match values(query.as_deref(), ["user_name"]) {
        Ok(values) => values,
        Err(refusal) => return problem(refusal),
    };
    let asked = match read(body) {
        Ok(asked) => asked,
        Err(refusal) => return problem(refusal),
    };
    let mut request = match asked.check() {
        Ok(request) => request,
        Err(error) => return problem((&error).into()),
    };
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

/// The values of `names` in a query. Anything else in it is refused, or it could be about another client than was meant: another name, a name that is
/// given twice, a value that is not text.
pub(super) fn values<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
) -> Result<[Option<String>; N], ErrorEntry> {
    let query = query.unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let given = pairs.map(|pair| pair.split('=').next().unwrap_or(pair));
    let given: Vec<&str> = given.collect();
    for (at, name) in given.iter().enumerate() {
        if *name != NODE && !names.contains(name) {
            return Err(bad_entry(name, "the query has an unknown name"));
        }
        if given[..at].contains(name) {
            return Err(bad_entry(name, "the query has it twice"));
        }
        if text_of_query(query, name).is_none() {
            return Err(bad_entry(name, "the query has no text for it"));
        }
    }
    Ok(names.map(|name| text_of_query(query, name)))
}

/// A request in a body: an object, although serde would read a list of its values as well.
#[derive(Debug)]
pub(super) struct AskedObject(PlacementAsked);

impl<'de> Deserialize<'de> for AskedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfObject)
    }
}

struct OfObject;

impl<'de> Visitor<'de> for OfObject {
    type Value = AskedObject;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with client_id, publish and subscribe")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AskedObject, A::Error> {
        PlacementAsked::deserialize(MapAccessDeserializer::new(map)).map(AskedObject)
    }
}

/// Decodes the request in a body.
pub(super) fn read(
    body: Result<Json<AskedObject>, JsonRejection>,
) -> Result<PlacementAsked, ErrorEntry> {
    body.map(|Json(AskedObject(asked))| asked)
        .map_err(|rejection| ErrorEntry {
            title: "the request cannot be read".into(),
            field: field_of(&rejection),
            ..ErrorEntry::new(status_of_body(&rejection), words_of_body(&rejection))
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
    responses(
        (
            status = 200, description = "A page", body = Vec<PlacementEntry>,
            headers(("link" = String, description = "The next page, `rel=\"next\"` (RFC 8288).")),
        ),
        (status = 400, description = "The query has a name that is not known, a name twice, or no text for one"),
    ),
)]
async fn all(State(inspector): State<Inspector>, RawQuery(query): RawQuery) -> Response {
    let [after] = match values(query.as_deref(), ["after"]) {
        Ok(values) => values,
        Err(refusal) => return problem(refusal),
    };
    let asked =
        inspector.order_hub(move |hub, now| hub.view().placements(now, after.as_deref(), PAGE));
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
        (status = 400, description = "The client identifier or the query is not valid"),
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
        (status = 400, description = "The client identifier or the query is not valid"),
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
    let [user_name] = values(query.as_deref(), ["user_name"]).map_err(problem)?;
    let found = inspector
        .order_hub(move |hub, now| {
            hub.view()
                .placed_names(now, &client_id, user_name.as_deref())
        })
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
