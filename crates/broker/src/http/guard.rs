//! Who may ask the HTTP API: with users, whoever proves to be one; without, this host only.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use thicket_access::{ApiUsers, Role};

use super::failure;

/// Passwords that were good lately are not hashed again, as many at a time.
const REMEMBERED: usize = 64;

/// The users, shared with whoever reads them again.
#[derive(Debug, Clone)]
pub(crate) struct Guard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    users: RwLock<Option<Arc<ApiUsers>>>,
    /// By the hash of the header that carried them.
    good: Mutex<HashMap<[u8; 32], Role>>,
}

impl Guard {
    pub(crate) fn new(users: Option<ApiUsers>) -> Self {
        Self(Arc::new(Shared {
            users: RwLock::new(users.map(Arc::new)),
            good: Mutex::default(),
        }))
    }

    /// Other users from now on.
    pub(crate) fn set(&self, users: Option<ApiUsers>) {
        *self.0.users.write().unwrap_or_else(PoisonError::into_inner) = users.map(Arc::new);
        self.good().clear();
    }

    fn users(&self) -> Option<Arc<ApiUsers>> {
        let users = self.0.users.read().unwrap_or_else(PoisonError::into_inner);
        users.clone()
    }

    fn good(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Role>> {
        self.0.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who a request comes from. A password is hashed on a thread that may take its time.
    async fn role_of(&self, users: Arc<ApiUsers>, headers: &HeaderMap) -> Option<Role> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, credentials) = value.split_once(' ')?;
        let credentials = credentials.trim().to_owned();
        if scheme.eq_ignore_ascii_case("bearer") {
            return users.with_token(credentials.as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(&credentials).into();
        if let Some(role) = self.good().get(&digest) {
            return Some(*role);
        }
        let verify = move || {
            let plain = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
            let (name, password) = plain.split_once(':')?;
            users.with_password(name, password.as_bytes())
        };
        let role = tokio::task::spawn_blocking(verify).await.ok()??;
        let mut good = self.good();
        if good.len() >= REMEMBERED {
            good.clear();
        }
        good.insert(digest, role);
        Some(role)
    }
}

/// Lets a request through, or says why not.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Some(users) = guard.users() else {
        return if is_from_here(request.method(), request.headers()) {
            next.run(request).await
        } else {
            failure(
                StatusCode::FORBIDDEN,
                "the API answers to localhost and loopback addresses only",
            )
        };
    };
    // Probes have no passwords, and the answer is a word.
    if request.uri().path().starts_with("/v1/health/") {
        return next.run(request).await;
    }
    let needed = match *request.method() {
        Method::GET | Method::HEAD => Role::Viewer,
        _ => Role::Admin,
    };
    match guard.role_of(users, request.headers()).await {
        Some(role) if role >= needed => next.run(request).await,
        Some(_) => failure(StatusCode::FORBIDDEN, "this takes the role `admin`"),
        None => {
            let realm = [(header::WWW_AUTHENTICATE, "Basic realm=\"thicket\", Bearer")];
            let words =
                "expected the name and password (Basic) or the token (Bearer) of a user of the API";
            (realm, failure(StatusCode::UNAUTHORIZED, words)).into_response()
        }
    }
}

/// A page in a browser of this host could otherwise read the API under a name of its own that resolves to loopback, or make it do something.
fn is_from_here(method: &Method, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    let host = host.map(|value| value.to_str().unwrap_or("?"));
    let from_page = headers.contains_key(header::ORIGIN) && *method != Method::GET;
    host.is_none_or(is_local) && !from_page
}

/// Whether the value of a Host header names this host as seen from itself.
fn is_local(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.parse::<u16>().is_ok() {
            name
        } else {
            host
        }
    });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_host_are_answered_to() {
        let cases = [
            ("localhost", true),
            ("LocalHost:18830", true),
            ("127.0.0.1", true),
            ("127.0.0.1:18830", true),
            ("[::1]", true),
            ("[::1]:18830", true),
            ("rebound.example", false),
            ("rebound.example:18830", false),
            ("localhost.rebound.example", false),
            ("10.0.0.1:18830", false),
            ("", false),
        ];
        for (host, expected) in cases {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }

    #[test]
    fn a_page_changes_nothing() {
        let cases = [
            (Method::GET, None, true),
            (Method::POST, None, true),
            // The browser keeps the answer from a page of elsewhere.
            (Method::GET, Some("https://page.example"), true),
            (Method::POST, Some("https://page.example"), false),
            (Method::DELETE, Some("null"), false),
        ];
        for (method, origin, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "localhost:18830".parse().expect("a value"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().expect("a value"));
            }
            assert_eq!(
                is_from_here(&method, &headers),
                expected,
                "{method} {origin:?}"
            );
        }
    }
}
