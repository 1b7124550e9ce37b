//! The placement API for remote clients, on a listener of its own: with the credentials, rights and topic prefix of an MQTT listener.
//!
//! The paths are those of placements at the node's API, for the client that the credentials allow, and `/v1/openapi.json`.
//!
//! A client authenticates as in CONNECT: with name and password (Basic), a token (Bearer), or the certificate of its connection. It is placed under
//! the name that its session has over MQTT, so no client sees or changes what belongs to another user.

use std::sync::{Arc, OnceLock};

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thicket_access::Grant;
use thicket_node::{
    ListenerId, PlacementAsked, PlacementClient, PlacementEntry, PlacementError, SessionScope,
    Verdict,
};
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{WRONG_METHOD, bad_path, problem, silent};
use super::guard::credentials_of;
use super::openapi::{Document, Layers};
use super::placement::{AskedObject, place_checked, read, remove_checked, values};
use super::serve::Peer;
use super::silence::TIMEOUT;
use super::{Inspector, openapi};
use crate::api::ErrorEntry;
use crate::authenticator::{Asker, Authenticator, Request};
use crate::entrance::Entrance;

/// State of the listener for clients.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) inspector: Inspector,
    pub(crate) authenticator: Authenticator,
    /// The MQTT listener whose clients use this API.
    pub(crate) listener: ListenerId,
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) topic_prefix: Arc<str>,
    pub(crate) session_scope: SessionScope,
    /// Longest client identifier.
    pub(crate) client_id_bytes: u16,
}

/// Credentials, as a CONNECT carries them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Login {
    user_name: Option<String>,
    password: Option<Vec<u8>>,
}

pub(super) fn router(clients: Clients) -> Router {
    let (routes, registered) = described().with_state(clients).split_for_parts();
    routes
        .layer(Extension(Document::new(&registered, Layers::OfClients)))
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, WRONG_METHOD)
        })
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "there is nothing at this path") })
}

/// All routes with their descriptions.
pub(super) fn described() -> OpenApiRouter<Clients> {
    let words = "Where the sessions of a client should be, for clients of an MQTT listener, with their credentials there.";
    OpenApiRouter::with_openapi(openapi::empty(words))
        .routes(routes!(place))
        .routes(routes!(one, remove))
        .routes(routes!(openapi::answer))
}

/// Places a client: where its sessions should be, by its topics. Asking again keeps what stays and renews it.
#[utoipa::path(
    post, path = "/v1/placements", tag = "placement", request_body = PlacementAsked,
    responses((status = 200, description = "Its placement", body = PlacementEntry)),
)]
async fn place(
    State(clients): State<Clients>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Result<Json<AskedObject>, JsonRejection>,
) -> Response {
    // The credentials alone say who is placed.
    if let Err(refusal) = values(query.as_deref(), []) {
        return problem(refusal);
    }
    let asked = match read(body) {
        Ok(asked) => asked,
        Err(refusal) => return problem(refusal),
    };
    let checked = asked.check();
    let request = match checked.and_then(|request| clients.check(request.client_id.len(), request))
    {
        Ok(request) => request,
        Err(error) => return problem((&error).into()),
    };
    let grant = match clients.grant(&peer, &headers, &request.client_id).await {
        Ok(grant) => grant,
        Err(response) => return response,
    };
    match clients.client(&peer, grant.as_deref()).request(request) {
        Ok(request) => place_checked(&clients.inspector, request, &clients.topic_prefix).await,
        Err(error) => problem((&error).into()),
    }
}

/// Where a client is placed.
#[utoipa::path(
    get, path = "/v1/placements/{client_id}", tag = "placement", operation_id = "placement",
    params(("client_id" = String, Path, description = "Client identifier.")),
    responses(
        (status = 200, description = "Its placement", body = PlacementEntry),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "The client has no placement"),
        (status = 422, description = "The client identifier is too long"),
    ),
)]
async fn one(
    State(clients): State<Clients>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    client_id: Result<Path<String>, PathRejection>,
) -> Response {
    if let Err(refusal) = values(query.as_deref(), []) {
        return problem(refusal);
    }
    let client_id = match client_id {
        Ok(Path(client_id)) => client_id,
        Err(rejection) => return bad_path(&rejection),
    };
    match clients.find(&peer, &headers, client_id).await {
        Ok((_, entry)) => Json(entry).into_response(),
        Err(response) => response,
    }
}

/// Ends the placement of a client.
#[utoipa::path(
    delete, path = "/v1/placements/{client_id}", tag = "placement", operation_id = "remove_placement",
    params(("client_id" = String, Path, description = "Client identifier.")),
    responses(
        (status = 204, description = "It is not placed any more"),
        (status = 400, description = "The client identifier is not valid"),
        (status = 404, description = "The client has no placement"),
        (status = 422, description = "The client identifier is too long"),
    ),
)]
async fn remove(
    State(clients): State<Clients>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    client_id: Result<Path<String>, PathRejection>,
) -> Response {
    if let Err(refusal) = values(query.as_deref(), []) {
        return problem(refusal);
    }
    let client_id = match client_id {
        Ok(Path(client_id)) => client_id,
        Err(rejection) => return bad_path(&rejection),
    };
    match clients.find(&peer, &headers, client_id).await {
        Ok((name, _)) => remove_checked(&clients.inspector, name).await,
        Err(response) => response,
    }
}

impl Clients {
    fn client<'a>(&'a self, peer: &Peer, grant: Option<&'a Grant>) -> PlacementClient<'a> {
        PlacementClient {
            address: peer.address.ip(),
            topic_prefix: &self.topic_prefix,
            grant,
            session_scope: self.session_scope,
        }
    }

    /// Returns the request unless its client identifier is longer than a CONNECT permits.
    fn check<T>(&self, client_id_bytes: usize, request: T) -> Result<T, PlacementError> {
        let most = self.client_id_bytes;
        if client_id_bytes <= usize::from(most) {
            return Ok(request);
        }
        Err(PlacementError::BadField {
            field: "client_id".into(),
            problem: format!("must have at most {most} bytes"),
        })
    }

    /// A placement that the client may see, and the name of its session.
    async fn find(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        client_id: String,
    ) -> Result<(String, PlacementEntry), Response> {
        let refused = |error: &PlacementError| problem(error.into());
        let client_id = self
            .check(client_id.len(), client_id)
            .map_err(|error| refused(&error))?;
        let grant = self.grant(peer, headers, &client_id).await?;
        let client = self.client(peer, grant.as_deref());
        let name = client
            .session_name(&client_id)
            .map_err(|error| refused(&error))?;
        let known = self.inspector.placement(name.clone()).await;
        let report = known
            .map_err(silent)?
            .filter(|report| client.may_see(report))
            .ok_or_else(|| refused(&PlacementError::Unknown))?;
        Ok((name, PlacementEntry::new(&report, &self.topic_prefix)))
    }

    /// The rights of a client, if the MQTT listener would accept it.
    async fn grant(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        client_id: &str,
    ) -> Result<Option<Arc<Grant>>, Response> {
        let login = Login::of(headers).ok_or_else(unauthorized)?;
        let (sender, mut answer) = mpsc::channel(1);
        // Kept until the answer is there: if this request ends before, nothing is hashed for it.
        let request = Arc::new(Request {
            asker: Asker::Http(sender),
            since: std::time::Instant::now(),
            listener: self.listener,
            peer: peer.address,
            client_id: client_id.to_owned(),
            placed_as: OnceLock::new(),
            user_name: login.user_name,
            password: login.password,
            certificate_name: peer.certificate_name.clone(),
            enhanced: None,
        });
        let verdict = match self.authenticator.ask(&request) {
            Some(verdict) => Some(verdict),
            None => {
                let answered = tokio::time::timeout(TIMEOUT, answer.recv()).await;
                answered.ok().flatten()
            }
        };
        match verdict {
            Some(Verdict::Allowed(admission)) => Ok(admission.grant),
            Some(Verdict::NotAuthorized | Verdict::BadUserNameOrPassword) => Err(unauthorized()),
            Some(
                Verdict::Unavailable | Verdict::Continue { .. } | Verdict::BadAuthenticationMethod,
            )
            | None => {
                let later = [(header::RETRY_AFTER, "1")];
                let words = "authentication is unavailable: try again";
                Err((later, refusal(StatusCode::SERVICE_UNAVAILABLE, words)).into_response())
            }
        }
    }
}

impl Login {
    /// `None`: there is an invalid Authorization header.
    fn of(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(header::AUTHORIZATION) {
            return Some(Self::default());
        }
        let (scheme, credentials) = credentials_of(headers)?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self {
                user_name: None,
                password: Some(credentials.as_bytes().to_vec()),
            });
        }
        let is_basic = scheme.eq_ignore_ascii_case("basic");
        let plain = is_basic.then(|| STANDARD.decode(credentials).ok())??;
        let at = plain.iter().position(|byte| *byte == b':')?;
        Some(Self {
            user_name: Some(String::from_utf8(plain[..at].to_vec()).ok()?),
            password: Some(plain[at + 1..].to_vec()),
        })
    }
}

fn unauthorized() -> Response {
    let words = "expected the name and password (Basic), the token (Bearer) or the certificate of a client of this listener";
    // A line each, as RFC 9110 allows: some clients do not look for a second challenge in one line.
    let challenges: AppendHeaders<[(HeaderName, &str); 2]> = AppendHeaders([
        (header::WWW_AUTHENTICATE, "Basic realm=\"thicket\""),
        (header::WWW_AUTHENTICATE, "Bearer"),
    ]);
    (challenges, refusal(StatusCode::UNAUTHORIZED, words)).into_response()
}

fn refusal(status: StatusCode, words: &str) -> Response {
    problem(ErrorEntry {
        title: "refused".into(),
        ..ErrorEntry::new(status, words.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(value: Option<&str>) -> Option<Login> {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
        }
        Login::of(&headers)
    }

    #[test]
    fn credentials_are_those_of_a_connect() {
        let of = |user: Option<&str>, password: Option<&[u8]>| {
            Some(Login {
                user_name: user.map(str::to_owned),
                password: password.map(<[u8]>::to_vec),
            })
        };
        let basic = |plain: &[u8]| format!("Basic {}", STANDARD.encode(plain));
        assert_eq!(login(None), of(None, None));
        assert_eq!(
            login(Some(&basic(b"ann:p:w"))),
            of(Some("ann"), Some(b"p:w"))
        );
        assert_eq!(
            login(Some(&basic(b"ann:\xff"))),
            of(Some("ann"), Some(b"\xff"))
        );
        assert_eq!(login(Some("bearer a.b.c")), of(None, Some(b"a.b.c")));
    }

    #[test]
    fn an_authorization_that_makes_no_sense_is_nobodys() {
        let no_colon = format!("Basic {}", STANDARD.encode("ann"));
        let no_text = format!("Basic {}", STANDARD.encode(b"\xff:x"));
        for value in ["Basic", "Basic %%%", "Digest x", &no_colon, &no_text] {
            assert_eq!(login(Some(value)), None, "{value}");
        }
    }
}
