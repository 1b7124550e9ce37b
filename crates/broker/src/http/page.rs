//! The web page of a node: three files, compiled in, that send requests only to this node. Their data comes from `/v1/watch` and the API; messages
//! come from the node's own WebSocket listeners.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ApiState, Inspector};
use crate::api::watch::WebSocketEntry;

/// Serves `/` and the files it loads.
pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(html))
        .routes(routes!(style))
        .routes(routes!(script))
}

/// The page of this node.
#[utoipa::path(get, path = "/", tag = "page", operation_id = "page", responses((status = 200, description = "Its text", body = String, content_type = "text/html")))]
async fn html(State(inspector): State<Inspector>, headers: HeaderMap) -> Response {
    let mut answer = file("text/html; charset=utf-8", include_str!("page/index.html"));
    let policy = policy(&inspector.websockets, own_host(&headers));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        answer
            .headers_mut()
            .insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// The style of the page.
#[utoipa::path(get, path = "/page.css", tag = "page", operation_id = "page_style", responses((status = 200, description = "Its text", body = String, content_type = "text/css")))]
async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// The script of the page.
#[utoipa::path(get, path = "/page.js", tag = "page", operation_id = "page_script", responses((status = 200, description = "Its text", body = String, content_type = "text/javascript")))]
async fn script() -> Response {
    let text = include_str!("page/page.js");
    file("text/javascript; charset=utf-8", text)
}

/// The name under which the page was requested; the guard has checked that it is one of this node's.
fn own_host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => host,
    };
    let is_good = |char: char| char.is_ascii_alphanumeric() || "-._:[]".contains(char);
    Some(host).filter(|host| !host.is_empty() && host.chars().all(is_good))
}

/// The Content-Security-Policy: scripts and styles come only from this node, nothing is loaded from elsewhere, and no other page can show this one in
/// a frame. The page may connect to this address and to the node's WebSocket listeners.
fn policy(websockets: &[WebSocketEntry], own_host: Option<&str>) -> String {
    let mut allowed = String::new();
    for listener in websockets {
        let scheme = if listener.secure { "wss" } else { "ws" };
        if let Some(host) = listener.host.as_deref().or(own_host) {
            let port = listener.port;
            allowed.push_str(&format!(" {scheme}://{host}:{port}"));
        }
    }
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'{allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, kind),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A newer version of the node has another page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_may_connect_to_this_node_only() {
        let listener = |secure, host: Option<&str>, port| WebSocketEntry {
            secure,
            host: host.map(str::to_owned),
            port,
            path: "/mqtt".into(),
            topic_prefix: String::new(),
        };
        let all = [
            listener(false, Some("127.0.0.1"), 8083),
            listener(true, None, 8084),
            listener(false, Some("[::1]"), 8085),
        ];
        for (listeners, host, expected) in [
            (&all[..0], Some("node-1"), "connect-src 'self';"),
            (
                &all[..1],
                Some("node-1"),
                "connect-src 'self' ws://127.0.0.1:8083;",
            ),
            (
                &all[1..2],
                Some("node-1"),
                "connect-src 'self' wss://node-1:8084;",
            ),
            (&all[1..2], None, "connect-src 'self';"),
            (&all[2..], None, "connect-src 'self' ws://[::1]:8085;"),
        ] {
            let policy = policy(listeners, host);
            assert!(policy.contains(expected), "{policy}");
        }
        let mut headers = HeaderMap::new();
        for (value, expected) in [
            ("node-1:18830", Some("node-1")),
            ("[::1]:18830", Some("[::1]")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("a;b", None),
            ("a b:1", None),
        ] {
            headers.insert(header::HOST, value.parse().expect("a value"));
            assert_eq!(own_host(&headers), expected, "{value}");
        }
    }
}
