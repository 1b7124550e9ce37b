//! What handlers answer: a body, or why there is none, as a problem (RFC 9457) that names the field that is not valid.

use std::error::Error;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::openapi::PROBLEM;
use super::silence::Silence;
use crate::api::ErrorEntry;

/// The answer to a method that the path does not support; the header Allow lists those it does.
pub(super) const WRONG_METHOD: &str = "this path does not take that method";

/// A body in JSON, or a problem.
pub(super) type Answer<T> = Result<Json<T>, Response>;

pub(super) fn silent(silence: Silence) -> Response {
    failure(StatusCode::SERVICE_UNAVAILABLE, &silence.to_string())
}

pub(super) fn failure(status: StatusCode, words: &str) -> Response {
    problem(ErrorEntry::new(status, words.to_owned()))
}

/// A parameter or a field that is not valid.
pub(super) fn bad_field(field: &str, words: &str) -> Response {
    problem(bad_entry(field, words))
}

/// The same, not yet as an answer.
pub(super) fn bad_entry(field: &str, words: &str) -> ErrorEntry {
    ErrorEntry {
        field: Some(field.to_owned()),
        ..ErrorEntry::new(StatusCode::BAD_REQUEST, words.to_owned())
    }
}

/// A field of a body whose value is not valid. `None`: several fields do not fit together.
pub(super) fn bad_value(field: Option<&str>, words: &str) -> Response {
    problem(ErrorEntry {
        field: field.map(str::to_owned),
        ..ErrorEntry::new(StatusCode::UNPROCESSABLE_ENTITY, words.to_owned())
    })
}

pub(super) fn problem(entry: ErrorEntry) -> Response {
    let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = [(header::CONTENT_TYPE, PROBLEM)];
    (status, kind, Json(entry)).into_response()
}

pub(super) fn bad_query(rejection: &QueryRejection) -> Response {
    rejected(StatusCode::BAD_REQUEST, rejection.body_text(), rejection)
}

/// A client identifier in a path that is not UTF-8.
pub(super) fn bad_path(rejection: &PathRejection) -> Response {
    bad_field("client_id", &rejection.body_text())
}

pub(super) fn bad_body(rejection: &JsonRejection) -> Response {
    rejected(
        status_of_body(rejection),
        words_of_body(rejection),
        rejection,
    )
}

/// A number that is too large for any type is a value that is not valid, although the parser takes it for a fault of the syntax.
pub(super) fn status_of_body(rejection: &JsonRejection) -> StatusCode {
    match rejection {
        JsonRejection::JsonSyntaxError(error)
            if error.body_text().contains(": number out of range at ") =>
        {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        _ => rejection.status(),
    }
}

/// What is wrong with a body; of one that is too long the limit as well.
pub(super) fn words_of_body(rejection: &JsonRejection) -> String {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            "the body is too long: expected at most 2 MB (2097152 bytes)".to_owned()
        }
        _ => rejection.body_text(),
    }
}

fn rejected(status: StatusCode, words: String, why: &(dyn Error + 'static)) -> Response {
    problem(ErrorEntry {
        field: field_of(why),
        ..ErrorEntry::new(status, words)
    })
}

/// The field that could not be read, if the error is about one.
pub(super) fn field_of(error: &(dyn Error + 'static)) -> Option<String> {
    type InJson = serde_path_to_error::Error<serde_json::Error>;
    type InQuery = serde_path_to_error::Error<serde::de::value::Error>;
    let mut next = Some(error);
    while let Some(error) = next {
        let json = error.downcast_ref::<InJson>();
        let query = error.downcast_ref::<InQuery>();
        let found = json.map(|it| (it.path(), it.inner().to_string()));
        let found = found.or_else(|| query.map(|it| (it.path(), it.inner().to_string())));
        if let Some((path, words)) = found {
            let outer = path.iter().next().map(|_| path.to_string());
            // A body that ends in the middle of a name.
            let outer = outer.filter(|path| path != "?");
            // Such a field is named in the message, inside the field that the path leads to.
            let is_named = ["missing field `", "unknown field `", "duplicate field `"];
            let inner = is_named.iter().find_map(|start| words.strip_prefix(start));
            let inner = inner.and_then(|rest| rest.split('`').next());
            return match (outer, inner) {
                (Some(outer), Some(inner)) if outer != inner => Some(format!("{outer}.{inner}")),
                (outer, inner) => outer.or_else(|| inner.map(str::to_owned)),
            };
        }
        next = error.source();
    }
    None
}
