//! Who may use the HTTP API: if users or tokens are configured, those who authenticate; else only this host.
//!
//! The API answers only under names of this node, and no page from elsewhere can change anything: a browser may store the password and send it along.
//! This node's own page can change something only if there are users: without them nothing says who may.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{AppendHeaders, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use thicket_access::{ApiUser, ApiUsers, HashMemory, Role, TokenCheck};
use thicket_node::Source;
use thicket_session::time::WallClock;
use tokio::sync::mpsc;

use super::answer::failure;
use crate::api::overlay::text_of_query;
use crate::api::watch::WhoAmIEntry;
use crate::authenticator::HASHERS;
use crate::clock::wall_ms;
use crate::log::{self, Subject};
use crate::pool::{Places, Pool};
use crate::tokens::{TokenDays, days_of};

/// Number of correct passwords that are remembered, so that they are not hashed again.
const REMEMBERED: usize = 64;
/// Passwords that may wait to be hashed, in all and from one address.
const WAITING: Places = Places {
    all: 64,
    of_one_source: 8,
};

/// The users, shared with the code that reloads them.
#[derive(Debug, Clone)]
pub(crate) struct Guard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    users: RwLock<Option<Arc<ApiUsers>>>,
    /// How often the users were replaced.
    generation: AtomicU64,
    /// By the hash of the header that contained the password.
    good: Mutex<HashMap<[u8; 32], ApiUser>>,
    hosts: Hosts,
    hashers: Pool<Attempt>,
}

/// A user name and a password to check. The request that waits for it has it.
struct Attempt {
    users: Arc<ApiUsers>,
    /// `NAME:PASSWORD` in base64.
    credentials: String,
    answer: mpsc::Sender<Result<Option<ApiUser>, Busy>>,
}

impl Attempt {
    fn judge(&self, memory: &mut HashMemory) {
        let user = |memory| {
            let plain = String::from_utf8(STANDARD.decode(&self.credentials).ok()?).ok()?;
            let (name, password) = plain.split_once(':')?;
            self.users.with_password(name, password.as_bytes(), memory)
        };
        self.answer(Ok(user(memory)));
    }

    fn answer(&self, answer: Result<Option<ApiUser>, Busy>) {
        // Fails only if the request was cancelled.
        let _ = self.answer.try_send(answer);
    }
}

/// Names that the API answers to beside those of loopback.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// In lower case.
    names: Vec<String>,
    /// Any address is allowed: only names can be made to resolve elsewhere.
    addresses: bool,
}

/// Who a request comes from.
enum Identity {
    Known(ApiUser),
    /// A token that has expired; its name.
    Expired(Box<str>),
    Unknown,
}

/// Too many passwords wait to be hashed.
struct Busy;

impl Guard {
    /// Starts without users.
    pub(crate) fn start(hosts: Hosts) -> std::io::Result<Self> {
        let mut memory = HashMemory::default();
        let serve = move |attempt: Arc<Attempt>| attempt.judge(&mut memory);
        Ok(Self(Arc::new(Shared {
            users: RwLock::default(),
            generation: AtomicU64::new(0),
            good: Mutex::default(),
            hosts,
            hashers: Pool::start("http-users", HASHERS, WAITING, serve)?,
        })))
    }

    /// Replaces the users.
    pub(crate) fn set(&self, users: Option<ApiUsers>) {
        *self.0.users.write().unwrap_or_else(PoisonError::into_inner) = users.map(Arc::new);
        self.0.generation.fetch_add(1, Ordering::AcqRel);
        self.good().clear();
    }

    /// How long expiring tokens are still valid.
    pub(super) fn token_days(&self) -> Vec<TokenDays> {
        self.users().as_deref().map(days_of).unwrap_or_default()
    }

    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn users(&self) -> Option<Arc<ApiUsers>> {
        let users = self.0.users.read().unwrap_or_else(PoisonError::into_inner);
        users.clone()
    }

    fn good(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], ApiUser>> {
        self.0.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a user whose password was right, unless the users were replaced since: it may not be among them any more.
    fn remember(&self, generation: u64, digest: [u8; 32], user: &ApiUser) {
        let mut good = self.good();
        // `set` counts before it forgets all.
        if self.generation() != generation {
            return;
        }
        if good.len() >= REMEMBERED {
            good.clear();
        }
        good.insert(digest, user.clone());
    }

    /// The identity behind a request. A password is hashed on a thread of the pool.
    async fn user_of(
        &self,
        users: Arc<ApiUsers>,
        generation: u64,
        headers: &HeaderMap,
        source: Source,
    ) -> Result<Identity, Busy> {
        let Some((scheme, credentials)) = credentials_of(headers) else {
            return Ok(Identity::Unknown);
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            let now = WallClock::from_unix_millis(wall_ms());
            return Ok(match users.with_token(credentials.as_bytes(), now) {
                TokenCheck::Valid(user) => Identity::Known(user),
                TokenCheck::Expired(name) => Identity::Expired(name),
                TokenCheck::Unknown => Identity::Unknown,
            });
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Ok(Identity::Unknown);
        }
        let digest: [u8; 32] = Sha256::digest(credentials).into();
        if let Some(user) = self.good().get(&digest) {
            return Ok(Identity::Known(user.clone()));
        }
        let (answer, mut judged) = mpsc::channel(1);
        let attempt = Arc::new(Attempt {
            users,
            credentials: credentials.to_owned(),
            answer,
        });
        if let Some(displaced) = self.0.hashers.submit(source, &attempt) {
            displaced.answer(Err(Busy));
        }
        let user = judged.recv().await.unwrap_or(Err(Busy))?;
        drop(attempt);
        if let Some(user) = &user {
            self.remember(generation, digest, user);
        }
        Ok(user.map_or(Identity::Unknown, Identity::Known))
    }
}

/// Scheme and credentials of an Authorization header.
pub(super) fn credentials_of(headers: &HeaderMap) -> Option<(&str, &str)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    Some((scheme, credentials.trim()))
}

/// The user of an admitted request: an extension of it. Absent if the API has no users.
#[derive(Debug, Clone)]
pub(super) struct Asker(pub(super) ApiUser);

/// How long a request is allowed: an extension of it, for answers that do not end by themselves. Absent if the API has no users.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    guard: Guard,
    generation: u64,
    expires: Option<WallClock>,
}

impl Lease {
    /// Users and tokens were not reloaded since, and the token has not expired. Otherwise the client must ask again.
    pub(super) fn holds(&self) -> bool {
        let now = WallClock::from_unix_millis(wall_ms());
        self.generation == self.guard.generation() && self.expires.is_none_or(|end| now < end)
    }
}

/// The role of the user or the token that the request is authenticated by.
#[utoipa::path(get, path = "/v1/whoami", tag = "administration", responses((status = 200, description = "The role", body = WhoAmIEntry)))]
pub(super) async fn who_am_i(request: Request) -> Json<WhoAmIEntry> {
    let asker = request.extensions().get::<Asker>();
    let role = asker.map(|asker| asker.0.role.name().to_owned());
    Json(WhoAmIEntry { role })
}

/// Lets a request through, or refuses it with a reason.
pub(super) async fn check(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    // Read before the users: an outdated lease ends too early, never too late.
    let generation = guard.generation();
    let users = guard.users();
    // Probes have no passwords and use any name, and the answer is one word. It is of this node: names of others are not for everybody.
    let names_node = text_of_query(request.uri().query().unwrap_or_default(), "node").is_some();
    let is_probe = request.uri().path().starts_with("/v1/health/") && !names_node;
    if users.is_some() && is_probe {
        return next.run(request).await;
    }
    let (method, headers) = (request.method(), request.headers());
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        // RFC 9112, 3.2: what is checked must be what others before this server have read.
        return failure(
            StatusCode::BAD_REQUEST,
            "the request has more than one Host header",
        );
    }
    if !guard.0.hosts.answer_to(headers) {
        let words = "the API answers to localhost and loopback addresses, with users also to any other address, to the name of this host and to those of `http_hosts`";
        return failure(StatusCode::FORBIDDEN, words);
    }
    let is_own = users.is_some() && is_own_page(headers);
    if is_change_by_page(method, headers) && !is_own {
        let words = "no page in a browser changes anything, except this node's own where the API has users (`http_users`, `http_tokens`)";
        return failure(StatusCode::FORBIDDEN, words);
    }
    let Some(users) = users else {
        return next.run(request).await;
    };
    let needed = needed_for(method, request.uri().path());
    let nowhere = IpAddr::from([0, 0, 0, 0]);
    let source = request.extensions().get::<Source>().copied();
    let source = source.unwrap_or_else(|| nowhere.into());
    let identity = guard.user_of(users, generation, headers, source).await;
    // The users were replaced while the password was hashed: the next attempt is checked by the present ones.
    let identity = identity.and_then(|identity| match guard.generation() == generation {
        true => Ok(identity),
        false => Err(Busy),
    });
    match identity {
        Ok(Identity::Known(user)) if user.role >= needed => {
            request.extensions_mut().insert(Lease {
                guard: guard.clone(),
                generation,
                expires: user.expires,
            });
            request.extensions_mut().insert(Asker(user));
            next.run(request).await
        }
        Ok(Identity::Known(_)) => {
            let words = format!("this takes the role or scope `{}`", needed.name());
            failure(StatusCode::FORBIDDEN, &words)
        }
        Ok(Identity::Expired(token)) => {
            if let Some(suppressed) = log::may_say(Subject::Peer(source)) {
                tracing::warn!(peer = %source, token_name = &*token, suppressed, "HTTP API: an expired token was refused");
            }
            let realm = [(
                header::WWW_AUTHENTICATE,
                "Bearer error=\"invalid_token\", error_description=\"the token has expired\"",
            )];
            let words = "the token has expired: `thicket token` makes a new one";
            (realm, failure(StatusCode::UNAUTHORIZED, words)).into_response()
        }
        Ok(Identity::Unknown) => {
            if headers.contains_key(header::AUTHORIZATION)
                && let Some(suppressed) = log::may_say(Subject::Peer(source))
            {
                tracing::warn!(peer = %source, suppressed, "HTTP API: wrong user, password or token");
            }
            // A line each: browsers do not look for a second challenge in one line.
            let realm = AppendHeaders([
                (header::WWW_AUTHENTICATE, "Basic realm=\"thicket\""),
                (header::WWW_AUTHENTICATE, "Bearer"),
            ]);
            let words =
                "expected the name and password (Basic) or the token (Bearer) of a user of the API";
            (realm, failure(StatusCode::UNAUTHORIZED, words)).into_response()
        }
        Err(Busy) => {
            let words = "too many passwords wait to be checked: try again";
            let later = [(header::RETRY_AFTER, "1")];
            (later, failure(StatusCode::TOO_MANY_REQUESTS, words)).into_response()
        }
    }
}

/// The least role that a request needs.
fn needed_for(method: &Method, path: &str) -> Role {
    match *method {
        Method::GET | Method::HEAD if path == "/metrics" => Role::Metrics,
        Method::GET | Method::HEAD => Role::Viewer,
        _ => Role::Admin,
    }
}

/// Whether the request comes from a page of this very address: browsers send a page's origin, and a page cannot forge it. The name was checked before
/// to be this node's.
fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name)?.to_str().ok();
    let site = headers.get("sec-fetch-site");
    let is_same_site = site.is_none_or(|site| site == "same-origin");
    let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
    // A balancer that ends TLS leaves the origin of the page and the Host name unchanged, so the scheme may differ.
    let is_same_host = origin.is_some_and(|(_, host)| Some(host) == text(header::HOST));
    is_same_site && is_same_host
}

/// Whether a page requests a change. A plain read is harmless: the browser keeps the answer from a page from elsewhere.
fn is_change_by_page(method: &Method, headers: &HeaderMap) -> bool {
    // Browsers name the origin of a request in either header; `none` is an address that the user typed.
    let site = headers.get("sec-fetch-site");
    let from_page = headers.contains_key(header::ORIGIN) || site.is_some_and(|site| site != "none");
    from_page && *method != Method::GET && *method != Method::HEAD
}

impl Hosts {
    /// `names`: those under which this host is reached; used only if there are users.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, has_users: bool) -> Self {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase());
        Self {
            names: names.filter(|_| has_users).collect(),
            addresses: has_users,
        }
    }

    /// Otherwise a page could make its own name resolve to this address, and read the answers as its own (DNS rebinding).
    fn answer_to(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST);
        host.is_none_or(|host| host.to_str().is_ok_and(|host| self.hold(host)))
    }

    /// Whether the value of a Host header names this host.
    fn hold(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return address.is_loopback() || self.addresses;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || self.names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its password was being hashed when the users were replaced.
    #[test]
    fn a_user_that_was_removed_while_its_password_was_hashed_is_not_remembered() {
        let guard = Guard::start(Hosts::default()).expect("threads");
        let user = ApiUser {
            name: "ann".into(),
            role: Role::Admin,
            credential: thicket_access::Credential::Password,
            expires: None,
        };
        let before = guard.generation();
        guard.set(None);
        guard.remember(before, [1; 32], &user);
        assert!(guard.good().is_empty());
        guard.remember(guard.generation(), [1; 32], &user);
        assert_eq!(guard.good().len(), 1);
    }

    #[test]
    fn without_users_only_names_of_loopback_are_answered_to() {
        let hosts = Hosts::new(["node-1".to_owned()], false);
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
            ("node-1", false),
            ("", false),
        ];
        for (host, expected) in cases {
            assert_eq!(hosts.hold(host), expected, "{host}");
        }
    }

    #[test]
    fn with_users_every_address_is_answered_to_and_names_that_are_known() {
        let hosts = Hosts::new(["Node-1".to_owned()], true);
        let cases = [
            ("localhost", true),
            ("10.0.0.1:18830", true),
            ("[2001:db8::1]:18830", true),
            ("node-1:18830", true),
            ("NODE-1.", true),
            ("node-2", false),
            ("rebound.example:18830", false),
            ("", false),
        ];
        for (host, expected) in cases {
            assert_eq!(hosts.hold(host), expected, "{host}");
        }
    }

    #[test]
    fn a_page_is_this_nodes_own_if_the_browser_says_so() {
        let cases = [
            (Some("http://node-1:18830"), Some("same-origin"), true),
            (Some("http://node-1:18830"), None, true),
            (Some("https://node-1:18830"), Some("same-origin"), true),
            (Some("http://node-1:80"), Some("same-origin"), false),
            (Some("http://page.example"), Some("cross-site"), false),
            (Some("http://node-1:18830"), Some("cross-site"), false),
            (Some("null"), Some("same-origin"), false),
            (None, Some("same-origin"), false),
        ];
        for (origin, site, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "node-1:18830".parse().expect("a value"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().expect("a value"));
            }
            if let Some(site) = site {
                headers.insert("sec-fetch-site", site.parse().expect("a value"));
            }
            assert_eq!(is_own_page(&headers), expected, "{origin:?} {site:?}");
        }
    }

    #[test]
    fn a_page_changes_nothing() {
        let origin = |value| Some((header::ORIGIN.as_str(), value));
        let site = |value| Some(("sec-fetch-site", value));
        let cases = [
            (Method::GET, None, false),
            (Method::POST, None, false),
            // The browser keeps the answer from a page from elsewhere.
            (Method::GET, origin("https://page.example"), false),
            (Method::POST, origin("https://page.example"), true),
            (Method::DELETE, origin("null"), true),
            (Method::GET, site("cross-site"), false),
            (Method::POST, site("cross-site"), true),
            (Method::POST, site("same-origin"), true),
            (Method::POST, site("none"), false),
        ];
        for (method, more, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some((name, value)) = more {
                headers.insert(name, value.parse().expect("a value"));
            }
            let page = is_change_by_page(&method, &headers);
            assert_eq!(page, expected, "{method} {more:?}");
        }
    }
}
