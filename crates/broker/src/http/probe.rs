//! The probe port: whether the node is alive and whether it is ready, in one word. It has no users, so it answers nothing else.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::inspect::Inspector;

/// `/live` and `/ready`.
pub(super) fn router() -> Router<Inspector> {
    Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
}

async fn live(State(inspector): State<Inspector>) -> Response {
    answer(inspector.traffic().await.is_ok())
}

async fn ready(State(inspector): State<Inspector>) -> Response {
    answer(matches!(inspector.readiness().await, Ok(Ok(()))))
}

fn answer(is_so: bool) -> Response {
    let (status, word) = match is_so {
        true => (StatusCode::OK, "yes\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no\n"),
    };
    (status, word).into_response()
}
