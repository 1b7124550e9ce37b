//! Keys of tokens that a provider publishes. A thread of its own fetches them: at the start, at an interval, at a reload, and when a token names an
//! unknown key. No CONNECT waits for it. While the provider does not answer, the last keys stay in use.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use thicket_access::Keys;

use crate::config::{KeyProvider, KeySource, checked_provider_url};
use crate::counters::Counters;
use crate::log::{self, Subject};

/// Shortest time between two fetches, whatever requests them.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
/// Time until the next fetch after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer.
const ANSWER_BYTES: u64 = 256 * 1024;

/// Requests fetches from the thread.
#[derive(Debug)]
pub(super) struct Fetcher {
    wanted: SyncSender<()>,
}

/// The thread's end of the channel.
pub(super) struct Wanted(Receiver<()>);

impl Fetcher {
    pub(super) fn new() -> (Self, Wanted) {
        let (wanted, receiver) = sync_channel(1);
        (Self { wanted }, Wanted(receiver))
    }

    /// Fetches the keys again as soon as is allowed.
    pub(super) fn fetch_soon(&self) {
        // Fails if a fetch is requested already.
        let _ = self.wanted.try_send(());
    }

    /// Whether another fetch may find an unknown key; if so, it is requested.
    pub(super) fn may_learn_a_key(&self, counters: &Counters) -> bool {
        let is_fresh = |age| age < SHORTEST_PAUSE;
        if counters.jwt_keys_fetched.age().is_some_and(is_fresh) {
            return false;
        }
        self.fetch_soon();
        true
    }
}

/// Starts the thread, which passes keys on to `set_keys`. It ends when the fetcher is dropped.
pub(super) fn start(
    provider: KeyProvider,
    Wanted(wanted): Wanted,
    counters: Arc<Counters>,
    set_keys: impl Fn(Keys) + Send + 'static,
) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("jwt-keys".into())
        .spawn(move || run(&provider, &wanted, &counters, set_keys))?;
    Ok(())
}

fn run(
    provider: &KeyProvider,
    wanted: &Receiver<()>,
    counters: &Counters,
    set_keys: impl Fn(Keys),
) {
    loop {
        let began = Instant::now();
        let fetched = fetch(provider);
        counters.jwt_key_fetches.add_one();
        let pause = match fetched {
            Ok(keys) => {
                set_keys(keys);
                // Set last: until then an unknown key may be among the new ones.
                counters.jwt_keys_fetched.set_now();
                provider.refresh
            }
            Err(error) => {
                counters.jwt_key_fetch_failures.add_one();
                let age_s = counters.jwt_keys_fetched.age().map(|age| age.as_secs());
                let message = match age_s {
                    Some(_) => "the provider's keys cannot be fetched, the last ones stay",
                    None => {
                        "the provider's keys cannot be fetched, and there are none yet: no token is accepted"
                    }
                };
                if let Some(suppressed) = log::may_say(Subject::Message(message)) {
                    tracing::warn!(error, age_s, suppressed, "{message}");
                }
                RETRY.min(provider.refresh)
            }
        };
        if !rest(wanted, began, pause) {
            return;
        }
    }
}

/// Waits for the next fetch: for `pause`, or if one is requested only for the shortest pause. Returns whether the fetcher still exists.
fn rest(wanted: &Receiver<()>, began: Instant, pause: Duration) -> bool {
    let mut pause = pause;
    loop {
        match wanted.recv_timeout(pause.saturating_sub(began.elapsed())) {
            Ok(()) => pause = SHORTEST_PAUSE,
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

fn fetch(provider: &KeyProvider) -> Result<Keys, String> {
    let authorities = provider.authorities.as_deref();
    let get = |url: &str| {
        let answer = get(url, authorities);
        answer.map_err(|error| format!("{url}: {error}"))
    };
    let url = match &provider.source {
        KeySource::Jwks(url) => url.clone(),
        KeySource::Oidc(issuer) => {
            let url = format!(
                "{}/.well-known/openid-configuration",
                issuer.trim_end_matches('/')
            );
            let document = get(&url)?;
            jwks_uri(&document, issuer).map_err(|error| format!("{url}: {error}"))?
        }
    };
    Keys::of_provider(&get(&url)?).map_err(|error| format!("{url}: {error}"))
}

/// The URL of an issuer's keys, from its discovery document.
fn jwks_uri(document: &[u8], issuer: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Document {
        issuer: String,
        jwks_uri: String,
    }
    let document: Document = serde_json::from_slice(document)
        .map_err(|error| format!("expected `issuer` and `jwks_uri` in JSON: {error}"))?;
    if document.issuer != issuer {
        let found = document.issuer;
        return Err(format!("expected the issuer `{issuer}`, found `{found}`"));
    }
    checked_provider_url("jwks_uri", document.jwks_uri).map_err(|error| error.to_string())
}

/// Certificate files are read at each request, so a new one needs no restart.
fn get(url: &str, authorities: Option<&std::path::Path>) -> Result<Vec<u8>, String> {
    let agent = thicket_hooks::agent(url, authorities).map_err(|error| error.to_string())?;
    let mut response = agent
        .get(url)
        .config()
        .timeout_global(Some(TIMEOUT))
        .build()
        .header("accept", "application/json")
        .call()
        .map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(format!("status {status}, expected 200"));
    }
    let body = response.body_mut().with_config().limit(ANSWER_BYTES);
    body.read_to_vec().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovery_document_names_where_the_keys_are() {
        let issuer = "https://id.example/realms/things";
        let of = |document: &str| jwks_uri(document.as_bytes(), issuer);
        let good = r#"{"issuer":"https://id.example/realms/things","jwks_uri":"https://id.example/keys","more":1}"#;
        assert_eq!(of(good).as_deref(), Ok("https://id.example/keys"));
        let cases = [
            (
                good.replace("/things", "/others"),
                "found `https://id.example/realms/others`",
            ),
            (good.replace("jwks_uri", "keys"), "jwks_uri"),
            (
                good.replace("https://id.example/keys", "http://id.example/keys"),
                "expected https://",
            ),
            ("<html>".into(), "JSON"),
        ];
        for (document, expected) in cases {
            let error = of(&document).expect_err(expected);
            assert!(error.contains(expected), "`{expected}` in {error}");
        }
    }

    #[test]
    fn a_key_is_fetched_for_unless_the_keys_are_fresh() {
        let (fetcher, Wanted(wanted)) = Fetcher::new();
        let counters = Counters::default();
        for _ in 0..3 {
            assert!(fetcher.may_learn_a_key(&counters));
        }
        assert_eq!(
            (wanted.try_recv(), wanted.try_recv().is_err()),
            (Ok(()), true)
        );
        counters.jwt_keys_fetched.set_now();
        assert!(!fetcher.may_learn_a_key(&counters));
        assert!(wanted.try_recv().is_err());
    }
}
