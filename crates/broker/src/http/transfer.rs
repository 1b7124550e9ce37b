//! Export and import of sessions and retained messages, as lines of JSON ([`crate::api::transfer`]), page by page: neither side holds more than a few
//! pages.

mod export;
mod import;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(export::answer))
        .routes(routes!(import::answer))
}
