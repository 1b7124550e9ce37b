//! Export and import of sessions and retained messages, as lines of JSON ([`crate::api::transfer`]), page by page: neither end holds
//! more than a few of them.

mod export;
mod import;

use axum::Router;
use axum::routing::post;

use super::Inspector;

pub(super) fn router() -> Router<Inspector> {
    Router::new()
        .route("/v1/export", post(export::answer))
        .route("/v1/import", post(import::answer))
}
