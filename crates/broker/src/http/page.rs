//! The page of a node: three files, compiled in, that ask nobody but this node. What they show comes from `/v1/watch` and the API.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::inspect::Inspector;

/// Scripts and styles are the files of this node only, nothing is loaded from elsewhere, and no page of elsewhere shows this one in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `/` and what it loads.
pub(super) fn router() -> Router<Inspector> {
    let html = include_str!("page/index.html");
    let style = include_str!("page/page.css");
    let script = include_str!("page/page.js");
    Router::new()
        .route(
            "/",
            get(|| async { file("text/html; charset=utf-8", html) }),
        )
        .route(
            "/page.css",
            get(|| async { file("text/css; charset=utf-8", style) }),
        )
        .route(
            "/page.js",
            get(|| async { file("text/javascript; charset=utf-8", script) }),
        )
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
