//! Who may connect and what they may do: the files and keys that say so, read at the start and again at a reload.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Uri;
use clap::ValueEnum;
use serde::Deserialize;
use thicket_access::{Acl, Algorithm, ApiUsers, ListenerPolicy, Policy, Tokens, UserClaim};

use super::check::{in_range, invalid};
use super::{ConfigError, Listen, Settings, Users};

const DEFAULT_HOOK_TIMEOUT_MS: u64 = 1000;
const DEFAULT_HOOK_CACHE_S: u64 = 60;
const DEFAULT_JWT_REFRESH_S: u64 = 300;

/// Who may connect and what they may do.
#[derive(Debug, Clone)]
pub struct Access {
    sources: Sources,
    /// What the files said when they were read first.
    pub(crate) loaded: Loaded,
    /// Somebody else to ask about those the files do not know.
    pub hook: Option<Hook>,
    /// Who publishes the keys of tokens, if they are in no file.
    pub provider: Option<KeyProvider>,
}

/// Which files and keys there are.
#[derive(Debug, Clone, Default)]
struct Sources {
    users: Option<PathBuf>,
    acl: Option<PathBuf>,
    tokens: Option<TokenSource>,
    trusts_certificates: bool,
    allows_anonymous: bool,
    http_users: Option<PathBuf>,
    http_tokens: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct TokenSource {
    /// With the algorithm of the key in it; `None`: a provider has the keys.
    file: Option<(PathBuf, Algorithm)>,
    issuer: Option<String>,
    audience: Option<String>,
    allows_no_expiry: bool,
    user_claim: UserClaim,
}

/// What the files say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    pub(crate) policy: Policy,
    /// Users and tokens of the HTTP API; `None`: it asks nobody, and is for this host only.
    pub(crate) http_users: Option<ApiUsers>,
}

/// An HTTP hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `http://HOST:PORT/PATH`, or with `https`.
    pub url: String,
    /// PEM file of the authorities it is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// Longest wait for its answer, the wait in our queue included.
    pub timeout: Duration,
    /// How long an answer holds.
    pub cache: Duration,
    /// What becomes of a client it says nothing about in time.
    pub on_failure: OnFailure,
}

/// Who publishes the keys of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProvider {
    /// Where the keys are.
    pub source: KeySource,
    /// PEM file of the authorities it is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// How often they are fetched.
    pub refresh: Duration,
}

/// Where the keys of a provider are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The URL of a JWK set.
    Jwks(String),
    /// An OpenID Connect issuer, whose discovery document says where they are.
    Oidc(String),
}

/// What becomes of a client when the hook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Not let in: 0x88, so that it tries again.
    #[default]
    Unavailable,
    /// Not let in: 0x87.
    Deny,
    /// Let in under the name it gives, with what the ACL says of it.
    Allow,
}

/// How tokens are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
pub enum AlgorithmChoice {
    /// HMAC with SHA-256 and a shared secret.
    #[value(name = "HS256")]
    #[serde(rename = "HS256")]
    Hs256,
    /// RSA with SHA-256.
    #[value(name = "RS256")]
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    #[value(name = "ES256")]
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[value(name = "EdDSA")]
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Access {
    /// Reads all that `settings` names.
    /// `is_guarded`: every listener has said for itself who may connect.
    pub(super) fn check(settings: &Settings, is_guarded: bool) -> Result<Self, ConfigError> {
        let hook = hook(settings)?;
        let knows_somebody = names_users(settings);
        if settings.allow_anonymous == Some(false) && !knows_somebody && !is_guarded {
            return Err(ConfigError::Conflict(
                "allow_anonymous = false needs a file of users, or nobody could connect",
            ));
        }
        let sources = Sources {
            users: settings.users.clone(),
            acl: settings.acl.clone(),
            tokens: tokens(settings)?,
            trusts_certificates: settings.certificate_users == Some(true),
            allows_anonymous: settings.allow_anonymous.unwrap_or(!knows_somebody),
            http_users: settings.http_users.clone(),
            http_tokens: settings.http_tokens.clone(),
        };
        Ok(Self {
            loaded: sources.load()?,
            sources,
            hook,
            provider: provider(settings)?,
        })
    }

    /// Whether a client without a user name is let in without asking anybody.
    #[must_use]
    pub fn allows_anonymous(&self) -> bool {
        self.loaded.policy.is_open_at(0) && self.hook.is_none()
    }

    /// Whether that is so at a listener.
    pub(crate) fn is_open_at(&self, listen: &Listen) -> bool {
        let policy = &self.loaded.policy;
        listen.allow_anonymous
            && listen.users.is_none()
            && self.hook.is_none()
            && policy.acl.is_none()
            && !policy.knows_users_at(0)
    }

    /// Reads the files again. `listeners`: what is otherwise at listeners; their own files are read again too.
    ///
    /// # Errors
    /// The first file that is no good. Nothing was changed.
    pub(crate) fn load(&self, listeners: &[ListenerAccess]) -> Result<Loaded, ConfigError> {
        let mut loaded = self.sources.load()?;
        loaded.policy.listeners = listeners
            .iter()
            .map(|listener| {
                let again = |path: &PathBuf| Users::from_file(path).map(|read| read.users);
                Ok(ListenerPolicy {
                    users: listener.users.as_ref().map(again).transpose()?,
                    allows_anonymous: listener.allows_anonymous,
                })
            })
            .collect::<Result<_, ConfigError>>()?;
        Ok(loaded)
    }
}

/// Who may connect through a listener, where that is not what the node says.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenerAccess {
    /// Its own file of users.
    pub(crate) users: Option<PathBuf>,
    /// Whether clients without a user name are let in; `None`: as everywhere.
    pub(crate) allows_anonymous: Option<bool>,
}

impl Listen {
    /// What is otherwise here than for the node.
    pub(crate) fn policy(&self) -> ListenerPolicy {
        ListenerPolicy {
            users: self.users.as_ref().map(|read| read.users.clone()),
            allows_anonymous: Some(self.allow_anonymous),
        }
    }

    /// The same as it is read again.
    pub(crate) fn access(&self) -> ListenerAccess {
        ListenerAccess {
            users: self.users.as_ref().map(|read| read.path.clone()),
            allows_anonymous: Some(self.allow_anonymous),
        }
    }
}

/// Whether anything is set that knows users.
pub(super) const fn names_users(settings: &Settings) -> bool {
    settings.users.is_some()
        || settings.jwt_key.is_some()
        || settings.jwt_jwks.is_some()
        || settings.jwt_oidc_issuer.is_some()
        || settings.auth_hook.is_some()
        || matches!(settings.certificate_users, Some(true))
}

impl Sources {
    fn load(&self) -> Result<Loaded, ConfigError> {
        let users = self.users.as_deref().map(Users::from_file).transpose()?;
        let acl = self.acl.as_deref().map(|path| {
            let text = read("acl", path)?;
            Acl::parse(&text).map_err(|problem| bad_line("acl", path, &problem))
        });
        let policy = Policy {
            users: users.map(|read| read.users),
            acl: acl.transpose()?,
            tokens: self.tokens.as_ref().map(TokenSource::load).transpose()?,
            trusts_certificates: self.trusts_certificates,
            allows_anonymous: self.allows_anonymous,
            listeners: Vec::new(),
        };
        Ok(Loaded {
            policy,
            http_users: self.api_users()?,
        })
    }
}

impl Sources {
    /// Those of both files, if there is one.
    fn api_users(&self) -> Result<Option<ApiUsers>, ConfigError> {
        let mut all = None;
        if let Some(path) = &self.http_users {
            let text = read("http_users", path)?;
            let users = ApiUsers::parse(&text);
            all = Some(users.map_err(|problem| bad_line("http_users", path, &problem))?);
        }
        if let Some(path) = &self.http_tokens {
            let text = read("http_tokens", path)?;
            all.get_or_insert_default()
                .add_tokens(&text)
                .map_err(|problem| bad_line("http_tokens", path, &problem))?;
        }
        Ok(all)
    }
}

impl TokenSource {
    fn load(&self) -> Result<Tokens, ConfigError> {
        let (issuer, audience) = (self.issuer.clone(), self.audience.clone());
        let tokens = match &self.file {
            None => Tokens::of_provider(issuer, audience),
            Some((path, algorithm)) => {
                let key =
                    std::fs::read(path).map_err(|source| unreadable("jwt_key", path, source))?;
                Tokens::new(*algorithm, &key, issuer, audience).map_err(|error| {
                    ConfigError::BadFile {
                        key: "jwt_key",
                        path: path.clone(),
                        problem: error.to_string(),
                    }
                })?
            }
        };
        let tokens = tokens.with_user_claim(self.user_claim.clone());
        Ok(tokens.allowing_no_expiry(self.allows_no_expiry))
    }
}

fn read(key: &'static str, path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| unreadable(key, path, source))
}

fn unreadable(key: &'static str, path: &Path, source: std::io::Error) -> ConfigError {
    ConfigError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    }
}

fn bad_line(key: &'static str, path: &Path, problem: &thicket_access::Problem) -> ConfigError {
    ConfigError::BadFile {
        key,
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

fn tokens(settings: &Settings) -> Result<Option<TokenSource>, ConfigError> {
    let sources = [
        settings.jwt_key.is_some(),
        settings.jwt_jwks.is_some(),
        settings.jwt_oidc_issuer.is_some(),
    ];
    match sources.into_iter().filter(|is_set| *is_set).count() {
        0 => {
            let others = settings.jwt_algorithm.is_some()
                || settings.jwt_issuer.is_some()
                || settings.jwt_audience.is_some()
                || settings.jwt_user_claim.is_some()
                || settings.jwt_allow_no_expiry.is_some();
            return if others {
                Err(ConfigError::Conflict(
                    "jwt_algorithm, jwt_issuer, jwt_audience, jwt_user_claim and jwt_allow_no_expiry have no effect without jwt_key, jwt_jwks or jwt_oidc_issuer",
                ))
            } else {
                Ok(None)
            };
        }
        1 => {}
        _ => {
            return Err(ConfigError::Conflict(
                "jwt_key, jwt_jwks and jwt_oidc_issuer exclude each other: give one of them",
            ));
        }
    }
    if settings.jwt_oidc_issuer.is_some() && settings.jwt_issuer.is_some() {
        return Err(ConfigError::Conflict(
            "jwt_oidc_issuer is the issuer of all tokens, so jwt_issuer has no place beside it",
        ));
    }
    let issuer = settings.jwt_issuer.clone();
    Ok(Some(TokenSource {
        file: token_file(settings)?,
        issuer: issuer.or_else(|| settings.jwt_oidc_issuer.clone()),
        audience: settings.jwt_audience.clone(),
        allows_no_expiry: settings.jwt_allow_no_expiry == Some(true),
        user_claim: user_claim(settings.jwt_user_claim.as_deref())?,
    }))
}

fn user_claim(name: Option<&str>) -> Result<UserClaim, ConfigError> {
    let Some(name) = name else {
        return Ok(UserClaim::default());
    };
    UserClaim::new(name).ok_or_else(|| {
        let expected = "a claim that holds a name, such as preferred_username";
        invalid("jwt_user_claim", name, expected)
    })
}

fn token_file(settings: &Settings) -> Result<Option<(PathBuf, Algorithm)>, ConfigError> {
    // Never guessed from the key: what a file looks like must not decide how it is used.
    match (settings.jwt_key.clone(), settings.jwt_algorithm) {
        (None, None) => Ok(None),
        (Some(key), Some(choice)) => {
            let algorithm = match choice {
                AlgorithmChoice::Hs256 => Algorithm::Hs256,
                AlgorithmChoice::Rs256 => Algorithm::Rs256,
                AlgorithmChoice::Es256 => Algorithm::Es256,
                AlgorithmChoice::EdDsa => Algorithm::EdDsa,
            };
            Ok(Some((key, algorithm)))
        }
        (Some(_), None) => Err(ConfigError::Conflict(
            "jwt_key needs a jwt_algorithm: HS256 for a secret, RS256, ES256 or EdDSA for a public key",
        )),
        (None, Some(_)) => Err(ConfigError::Conflict(
            "jwt_algorithm is for a jwt_key: the keys of a provider say themselves what they are for",
        )),
    }
}

fn provider(settings: &Settings) -> Result<Option<KeyProvider>, ConfigError> {
    let (source, url) = match (&settings.jwt_jwks, &settings.jwt_oidc_issuer) {
        (Some(url), _) => {
            let url = checked_provider_url("jwt_jwks", url.clone())?;
            (KeySource::Jwks(url.clone()), url)
        }
        (None, Some(url)) => {
            let url = checked_provider_url("jwt_oidc_issuer", url.clone())?;
            if url.contains(['?', '#']) {
                return Err(invalid(
                    "jwt_oidc_issuer",
                    url,
                    "an issuer, without `?` and `#`",
                ));
            }
            (KeySource::Oidc(url.clone()), url)
        }
        (None, None) => {
            return if settings.jwt_ca.is_some() || settings.jwt_refresh_s.is_some() {
                Err(ConfigError::Conflict(
                    "jwt_ca and jwt_refresh_s have no effect without jwt_jwks or jwt_oidc_issuer",
                ))
            } else {
                Ok(None)
            };
        }
    };
    if settings.jwt_ca.is_some() && !url.starts_with("https://") {
        return Err(ConfigError::Conflict(
            "jwt_ca is for a jwt_jwks or jwt_oidc_issuer that begins with https://",
        ));
    }
    thicket_hooks::agent(&url, settings.jwt_ca.as_deref())?;
    let refresh_s = in_range(
        "jwt_refresh_s",
        settings.jwt_refresh_s,
        DEFAULT_JWT_REFRESH_S,
        10..=86_400,
    )?;
    Ok(Some(KeyProvider {
        source,
        authorities: settings.jwt_ca.clone(),
        refresh: Duration::from_secs(refresh_s),
    }))
}

/// Who can change the keys on their way can sign tokens: without TLS they come from this host only.
pub(crate) fn checked_provider_url(key: &'static str, url: String) -> Result<String, ConfigError> {
    let expected = "https://HOST/PATH, or http:// to loopback";
    let Ok(uri) = url.parse::<Uri>() else {
        return Err(invalid(key, url, expected));
    };
    let is_loopback = |host: &str| {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || address
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    };
    let is_good = match (uri.scheme_str(), uri.authority()) {
        (_, Some(authority)) if authority.as_str().contains('@') => false,
        (Some("https"), Some(authority)) => !authority.host().is_empty(),
        (Some("http"), Some(authority)) => is_loopback(authority.host()),
        _ => false,
    };
    if is_good {
        Ok(url)
    } else {
        Err(invalid(key, url, expected))
    }
}

fn hook(settings: &Settings) -> Result<Option<Hook>, ConfigError> {
    let Some(url) = settings.auth_hook.clone() else {
        let others = settings.auth_hook_ca.is_some()
            || settings.auth_hook_timeout_ms.is_some()
            || settings.auth_hook_cache_s.is_some()
            || settings.auth_hook_on_failure.is_some();
        if others {
            return Err(ConfigError::Conflict(
                "auth_hook_ca, auth_hook_timeout_ms, auth_hook_cache_s and auth_hook_on_failure have no effect without auth_hook",
            ));
        }
        return Ok(None);
    };
    let url = super::hook::checked_url("auth_hook", url)?;
    if settings.auth_hook_ca.is_some() && !url.starts_with("https://") {
        return Err(ConfigError::Conflict(
            "auth_hook_ca is for an auth_hook that begins with https://",
        ));
    }
    thicket_hooks::agent(&url, settings.auth_hook_ca.as_deref())?;
    let timeout_ms = settings
        .auth_hook_timeout_ms
        .unwrap_or(DEFAULT_HOOK_TIMEOUT_MS);
    if !(10..=60_000).contains(&timeout_ms) {
        return Err(ConfigError::Invalid {
            key: "auth_hook_timeout_ms",
            value: timeout_ms.to_string(),
            expected: "10 to 60000".into(),
        });
    }
    let cache_s = settings.auth_hook_cache_s.unwrap_or(DEFAULT_HOOK_CACHE_S);
    if cache_s > 86_400 {
        return Err(ConfigError::Invalid {
            key: "auth_hook_cache_s",
            value: cache_s.to_string(),
            expected: "0 to 86400".into(),
        });
    }
    Ok(Some(Hook {
        url,
        authorities: settings.auth_hook_ca.clone(),
        timeout: Duration::from_millis(timeout_ms),
        cache: Duration::from_secs(cache_s),
        on_failure: settings.auth_hook_on_failure.unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests;
