//! Who may connect and what they may do: the files and keys for this, read at the start and again at a reload.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Uri;
use thicket_access::{Acl, Algorithm, ApiUsers, ListenerPolicy, Policy, Tokens, UserClaim};
use thicket_transport::tls::ServerTls;

use super::choices::{AlgorithmChoice, OnFailure};
use super::faults::Faults;
use super::file_warnings::FileWarning;
use super::values::invalid;
use super::{ConfigError, ConfigErrors, Listen, Settings, Users};

const DEFAULT_HOOK_TIMEOUT_MS: u64 = 1000;
const DEFAULT_HOOK_CACHE_S: u64 = 60;
const DEFAULT_JWT_REFRESH_S: u64 = 300;

/// Who may connect and what they may do.
#[derive(Debug, Clone)]
pub struct Access {
    sources: Sources,
    /// The content of the files at the first reading.
    pub(crate) loaded: Loaded,
    /// The HTTP hook for clients that are not in the files.
    pub hook: Option<Hook>,
    /// The provider of the keys of tokens, if they are in no file.
    pub provider: Option<KeyProvider>,
}

/// The files and keys that are configured.
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
    /// With the algorithm of its key; `None`: a provider has the keys.
    file: Option<(PathBuf, Algorithm)>,
    issuer: Option<String>,
    audience: Option<String>,
    allows_no_expiry: bool,
    user_claim: UserClaim,
}

/// The content of the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    pub(crate) policy: Policy,
    /// Users and tokens of the HTTP API; `None`: it needs no credentials, and serves this host only.
    pub(crate) http_users: Option<ApiUsers>,
}

/// An HTTP hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `http://HOST:PORT/PATH`, or with `https`.
    pub url: String,
    /// PEM file of the authorities that its certificate is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// Longest wait for its answer, including the wait in our queue.
    pub timeout: Duration,
    /// How long an answer is cached.
    pub cache: Duration,
    /// The verdict on a client if the hook does not answer in time.
    pub on_failure: OnFailure,
}

/// The provider of the keys of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProvider {
    /// Where the keys are.
    pub source: KeySource,
    /// PEM file of the authorities that its certificate is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// How often they are fetched.
    pub refresh: Duration,
}

/// Where the keys of a provider are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The URL of a JWK set.
    Jwks(String),
    /// An OpenID Connect issuer, whose discovery document names the URL of the keys.
    Oidc(String),
}

impl Access {
    /// Reads everything that `settings` names. `is_guarded`: every listener has its own rule of who may connect.
    pub(super) fn check(settings: &Settings, is_guarded: bool, faults: &mut Faults) -> Self {
        let hook = hook(settings, faults);
        let knows_somebody = names_users(settings);
        if settings.allow_anonymous == Some(false) && !knows_somebody && !is_guarded {
            faults.add(ConfigError::Conflict(
                "allow_anonymous = false needs a file of users, or nobody could connect",
            ));
        }
        let sources = Sources {
            users: settings.users.clone(),
            acl: settings.acl.clone(),
            tokens: faults.or_default(tokens(settings)),
            trusts_certificates: settings.certificate_users == Some(true),
            allows_anonymous: settings.allow_anonymous.unwrap_or(!knows_somebody),
            http_users: settings.http_users.clone(),
            http_tokens: settings.http_tokens.clone(),
        };
        Self {
            loaded: sources.load(faults),
            sources,
            hook,
            provider: provider(settings, faults),
        }
    }

    /// Whether a client without a user name is let in without any check.
    #[must_use]
    pub fn allows_anonymous(&self) -> bool {
        self.loaded.policy.is_open_at(0) && self.hook.is_none()
    }

    /// The same at a listener. Where clients show certificates they are checked, as these expire.
    pub(crate) fn is_open_at(&self, listen: &Listen) -> bool {
        let policy = &self.loaded.policy;
        listen.allow_anonymous
            && !listen
                .tls
                .as_ref()
                .is_some_and(ServerTls::asks_for_certificates)
            && listen.users.is_none()
            && self.hook.is_none()
            && policy.acl.is_none()
            && policy.users.is_none()
            && policy.tokens.is_none()
            && !listen.certificate_users
    }

    /// The lists of users that have none. They are valid: an operator may take the last user away, and a reload must not fail for that. `listeners`:
    /// the files of listeners, and what was in them.
    pub(crate) fn empty_lists<'a>(
        &'a self,
        loaded: &Loaded,
        listeners: impl Iterator<Item = (&'a Path, &'a thicket_access::Users)>,
    ) -> Vec<FileWarning> {
        let mut found = Vec::new();
        let nobody = "the file lists no users";
        let users = loaded.policy.users.as_ref();
        if let Some(path) = &self.sources.users
            && users.is_some_and(thicket_access::Users::is_empty)
        {
            found.push(FileWarning::new(("users", path), nobody));
        }
        for (path, _) in listeners.filter(|(_, users)| users.is_empty()) {
            found.push(FileWarning::new(("listener.users", path), nobody));
        }
        if loaded.http_users.as_ref().is_some_and(ApiUsers::is_empty) {
            let files = [
                ("http_users", &self.sources.http_users),
                ("http_tokens", &self.sources.http_tokens),
            ];
            let given = files
                .into_iter()
                .filter_map(|(key, path)| Some((key, path.as_deref()?)));
            let problem = "the file lists nobody: the HTTP API refuses all requests";
            found.extend(given.map(|file| FileWarning::new(file, problem)));
        }
        found
    }

    /// Whether tokens whose keys a provider has are the only way to log in, at all listeners.
    pub(crate) fn needs_keys(&self, listeners: &[Listen]) -> bool {
        let is_else =
            |it: &Listen| it.allow_anonymous || it.users.is_some() || it.certificate_users;
        self.provider.is_some()
            && self.hook.is_none()
            && self.loaded.policy.users.is_none()
            && !listeners.iter().any(is_else)
    }

    /// Reads the files again. `listeners`: what differs at listeners; their own files are read again too.
    ///
    /// # Errors
    /// The files that are not valid. Nothing was changed.
    pub(crate) fn load(&self, listeners: &[ListenerAccess]) -> Result<Loaded, ConfigErrors> {
        let mut faults = Faults::default();
        let mut loaded = self.sources.load(&mut faults);
        let again = |path: &PathBuf| Users::from_file(path).map(|read| read.users);
        let policies = listeners.iter().map(|listener| ListenerPolicy {
            users: faults.or_default(listener.users.as_ref().map(again).transpose()),
            allows_anonymous: listener.allows_anonymous,
            trusts_certificates: listener.trusts_certificates,
        });
        loaded.policy.listeners = policies.collect();
        faults.end(loaded)
    }
}

/// Who may connect through a listener, where that differs from the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenerAccess {
    /// Its own file of users.
    pub(crate) users: Option<PathBuf>,
    /// Whether clients without a user name are let in; `None`: as at the node.
    pub(crate) allows_anonymous: Option<bool>,
    /// Whether names in certificates are user names; `None`: as at the node.
    pub(crate) trusts_certificates: Option<bool>,
}

impl Listen {
    /// What differs here from the node.
    pub(crate) fn policy(&self) -> ListenerPolicy {
        ListenerPolicy {
            users: self.users.as_ref().map(|read| read.users.clone()),
            allows_anonymous: Some(self.allow_anonymous),
            trusts_certificates: Some(self.certificate_users),
        }
    }

    /// The same, with the path of the file, for reloads.
    pub(crate) fn access(&self) -> ListenerAccess {
        ListenerAccess {
            users: self.users.as_ref().map(|read| read.path.clone()),
            allows_anonymous: Some(self.allow_anonymous),
            trusts_certificates: Some(self.certificate_users),
        }
    }
}

/// Whether any source of users is configured for the node.
pub(super) fn names_users(settings: &Settings) -> bool {
    names_users_at(settings, None)
}

/// The same for a listener without a file of its own; `certificate_users`: its key.
pub(super) fn names_users_at(settings: &Settings, certificate_users: Option<bool>) -> bool {
    settings.users.is_some()
        || settings.jwt_key.is_some()
        || settings.jwt_jwks.is_some()
        || settings.jwt_oidc_issuer.is_some()
        || settings.auth_hook.is_some()
        || certificate_users.or(settings.certificate_users) == Some(true)
}

impl Sources {
    fn load(&self, faults: &mut Faults) -> Loaded {
        let users = self.users.as_deref().map(Users::from_file).transpose();
        let acl = self.acl.as_deref().map(|path| {
            let text = read("acl", path)?;
            Acl::parse(&text).map_err(|problem| bad_line("acl", path, &problem))
        });
        let tokens = self.tokens.as_ref().map(TokenSource::load).transpose();
        let policy = Policy {
            users: faults.or_default(users).map(|read| read.users),
            acl: faults.or_default(acl.transpose()),
            tokens: faults.or_default(tokens),
            trusts_certificates: self.trusts_certificates,
            allows_anonymous: self.allows_anonymous,
            listeners: Vec::new(),
        };
        Loaded {
            policy,
            http_users: self.api_users(faults),
        }
    }

    /// The users and tokens of both files, if either is configured.
    fn api_users(&self, faults: &mut Faults) -> Option<ApiUsers> {
        let users = self.http_users.as_deref().map(|path| {
            let text = read("http_users", path)?;
            ApiUsers::parse(&text).map_err(|problem| bad_line("http_users", path, &problem))
        });
        let mut all = faults.or_default(users.transpose());
        if let Some(path) = self.http_tokens.as_deref() {
            let all = all.get_or_insert_default();
            let added = read("http_tokens", path).and_then(|text| {
                let added = all.add_tokens(&text);
                added.map_err(|problem| bad_line("http_tokens", path, &problem))
            });
            faults.or_default(added);
        }
        all
    }
}

impl TokenSource {
    fn load(&self) -> Result<Tokens, ConfigError> {
        let (issuer, audience) = (self.issuer.clone(), self.audience.clone());
        let tokens = match &self.file {
            None => Tokens::of_provider(issuer, audience),
            Some((path, algorithm)) => {
                let key = super::text::read_bytes(path)
                    .map_err(|source| unreadable("jwt_key", path, source))?;
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
    super::text::read_text(path).map_err(|source| unreadable(key, path, source))
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
    // Never guessed from the key: the content of a file must not decide how it is used.
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

fn provider(settings: &Settings, faults: &mut Faults) -> Option<KeyProvider> {
    let is_set = settings.jwt_jwks.is_some() || settings.jwt_oidc_issuer.is_some();
    if !is_set {
        if settings.jwt_ca.is_some() || settings.jwt_refresh_s.is_some() {
            faults.add(ConfigError::Conflict(
                "jwt_ca and jwt_refresh_s have no effect without jwt_jwks or jwt_oidc_issuer",
            ));
        }
        return None;
    }
    let refresh_s = faults.in_range(
        "jwt_refresh_s",
        settings.jwt_refresh_s,
        DEFAULT_JWT_REFRESH_S,
        10..=86_400,
    );
    let source = faults.keep(key_source(settings))?;
    let (KeySource::Jwks(url) | KeySource::Oidc(url)) = &source;
    if settings.jwt_ca.is_some() && !url.starts_with("https://") {
        faults.add(ConfigError::Conflict(
            "jwt_ca is for a jwt_jwks or jwt_oidc_issuer that begins with https://",
        ));
    }
    faults.keep(thicket_hooks::agent(url, settings.jwt_ca.as_deref()));
    Some(KeyProvider {
        source,
        authorities: settings.jwt_ca.clone(),
        refresh: Duration::from_secs(refresh_s),
    })
}

fn key_source(settings: &Settings) -> Result<KeySource, ConfigError> {
    if let Some(url) = &settings.jwt_jwks {
        return checked_provider_url("jwt_jwks", url.clone()).map(KeySource::Jwks);
    }
    let key = "jwt_oidc_issuer";
    let issuer = settings.jwt_oidc_issuer.clone().unwrap_or_default();
    let issuer = checked_provider_url(key, issuer)?;
    if issuer.contains(['?', '#']) {
        return Err(invalid(key, issuer, "an issuer, without `?` and `#`"));
    }
    Ok(KeySource::Oidc(issuer))
}

/// Whoever can change the keys in transit can sign tokens: without TLS they may come only from this host.
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

fn hook(settings: &Settings, faults: &mut Faults) -> Option<Hook> {
    let Some(url) = settings.auth_hook.clone() else {
        let others = settings.auth_hook_ca.is_some()
            || settings.auth_hook_timeout_ms.is_some()
            || settings.auth_hook_cache_s.is_some()
            || settings.auth_hook_on_failure.is_some();
        if others {
            faults.add(ConfigError::Conflict(
                "auth_hook_ca, auth_hook_timeout_ms, auth_hook_cache_s and auth_hook_on_failure have no effect without auth_hook",
            ));
        }
        return None;
    };
    let url = faults.or_default(super::values::checked_url("auth_hook", url));
    if settings.auth_hook_ca.is_some() && !url.is_empty() && !url.starts_with("https://") {
        faults.add(ConfigError::Conflict(
            "auth_hook_ca is for an auth_hook that begins with https://",
        ));
    }
    faults.keep(thicket_hooks::agent(&url, settings.auth_hook_ca.as_deref()));
    let timeout_ms = faults.in_range(
        "auth_hook_timeout_ms",
        settings.auth_hook_timeout_ms,
        DEFAULT_HOOK_TIMEOUT_MS,
        10..=60_000,
    );
    let cache_s = faults.in_range(
        "auth_hook_cache_s",
        settings.auth_hook_cache_s,
        DEFAULT_HOOK_CACHE_S,
        0..=86_400,
    );
    Some(Hook {
        url,
        authorities: settings.auth_hook_ca.clone(),
        timeout: Duration::from_millis(timeout_ms),
        cache: Duration::from_secs(cache_s),
        on_failure: settings.auth_hook_on_failure.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
