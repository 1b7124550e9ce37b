//! The page of a node: three files, compiled in, that ask nobody but this node. What they show comes from `/v1/watch` and the API.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;

/// Scripts and styles are the files of this node only, nothing is loaded from elsewhere, and no page of elsewhere shows this one in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `/` and what it loads.
pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(html))
        .routes(routes!(style))
        .routes(routes!(script))
}

/// The page of this node.
#[utoipa::path(get, path = "/", operation_id = "page", responses((status = 200, description = "Its text", body = String, content_type = "text/html")))]
async fn html() -> Response {
    file("text/html; charset=utf-8", include_str!("page/index.html"))
}

/// The style of the page.
#[utoipa::path(get, path = "/page.css", operation_id = "page_style", responses((status = 200, description = "Its text", body = String, content_type = "text/css")))]
async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// The script of the page.
#[utoipa::path(get, path = "/page.js", operation_id = "page_script", responses((status = 200, description = "Its text", body = String, content_type = "text/javascript")))]
async fn script() -> Response {
    let text = include_str!("page/page.js");
    file("text/javascript; charset=utf-8", text)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A node that was replaced by a newer one has another page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
