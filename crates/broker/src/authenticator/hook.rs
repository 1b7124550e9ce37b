//! Asks an HTTP hook about clients, on threads of its own. A client waits no longer than the deadline, including its time in the queue; whatever
//! happens to the hook, the workers continue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use thicket_access::Policy;
use thicket_access::hook::{Answer, Question};
use thicket_node::Verdict;

use super::desk::{Desk, Request, WAITING, allowed, settle_unknown};
use crate::config::{Hook, OnFailure};
use crate::log::{self, Subject};
use crate::pool::Pool;

/// Requests under way at a time.
const THREADS: usize = 4;
/// Answers cached.
pub(super) const CACHED: usize = 10_000;
/// Longest answer.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Where requests wait for the hook.
#[derive(Debug, Clone)]
pub(super) struct HookQueue {
    asked: Pool<Request>,
    on_failure: OnFailure,
}

impl HookQueue {
    /// Puts a request into the queue. If that is full, returns the verdict, and whom it is about.
    pub(super) fn pass_on(
        &self,
        request: &Arc<Request>,
        policy: &Policy,
    ) -> Option<(Arc<Request>, Verdict)> {
        let turned_away = self.asked.submit(request.source(), request)?;
        NoAnswer::Full.log(&turned_away, self.on_failure);
        let verdict = without_answer(self.on_failure, &turned_away, policy);
        Some((turned_away, verdict))
    }
}

/// Why there is no answer for a client.
#[derive(Debug, PartialEq, Eq)]
enum NoAnswer {
    /// The request, including its wait in the queue, took too long.
    TimedOut,
    /// There is no connection to the hook, or it broke.
    Unreachable(String),
    /// Another status, or a body that cannot be decoded.
    Unusable(String),
    /// The queue has no capacity for this client.
    Full,
}

impl From<ureq::Error> for NoAnswer {
    fn from(error: ureq::Error) -> Self {
        use std::io::ErrorKind::TimedOut;
        match error {
            ureq::Error::Timeout(_) => Self::TimedOut,
            ureq::Error::Io(error) if error.kind() == TimedOut => Self::TimedOut,
            error @ (ureq::Error::Io(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Tls(_)
            | ureq::Error::Rustls(_)) => Self::Unreachable(error.to_string()),
            error => Self::Unusable(error.to_string()),
        }
    }
}

impl NoAnswer {
    fn log(&self, request: &Request, on_failure: OnFailure) {
        let (message, error) = match self {
            Self::TimedOut => ("auth_hook: no answer in time", None),
            Self::Unreachable(error) => ("auth_hook: the hook cannot be reached", Some(error)),
            Self::Unusable(error) => ("auth_hook: the answer cannot be used", Some(error)),
            Self::Full => ("auth_hook: too many clients wait for an answer", None),
        };
        if let Some(suppressed) = log::may_say(Subject::Message(message)) {
            tracing::warn!(
                client_id = request.client_id,
                user_name = request.user_name,
                peer = %request.peer,
                error,
                on_failure = on_failure.name(),
                suppressed,
                "{message}"
            );
        }
    }
}

/// The verdict on a client for whom there is no answer.
fn without_answer(on_failure: OnFailure, request: &Request, policy: &Policy) -> Verdict {
    match on_failure {
        OnFailure::Unavailable => Verdict::Unavailable,
        OnFailure::Deny => Verdict::NotAuthorized,
        OnFailure::Allow => {
            let name = request.user_name.as_deref();
            let grant = policy.grant_for_hook(name, request.client_id(), None);
            allowed(Arc::new(grant))
        }
    }
}

/// What the hook's threads share.
pub(super) struct HookDesk {
    settings: Hook,
    desk: Arc<Desk>,
    agent: ureq::Agent,
    cache: Mutex<Cache>,
}

/// Cached answers, by the hash of the request.
#[derive(Default)]
struct Cache {
    /// The policy they were given under: a reload empties the cache.
    policy: Option<Arc<Policy>>,
    answers: HashMap<[u8; 32], (Instant, Answer)>,
}

impl HookDesk {
    /// Starts the threads; they end with the last queue.
    pub(super) fn start(settings: Hook, desk: &Arc<Desk>) -> std::io::Result<HookQueue> {
        let on_failure = settings.on_failure;
        let agent = thicket_hooks::agent(&settings.url, settings.authorities.as_deref())
            .map_err(std::io::Error::other)?;
        let this = Arc::new(Self {
            settings,
            desk: Arc::clone(desk),
            agent,
            cache: Mutex::default(),
        });
        let serve = move |request: Arc<Request>| this.serve(&request);
        let asked = Pool::start("hook", THREADS, WAITING, serve)?;
        Ok(HookQueue { asked, on_failure })
    }

    fn serve(&self, request: &Request) {
        let policy = self.desk.policy();
        let verdict = match self.answer(request, &policy) {
            Ok(Answer::Allow(rules)) => {
                let name = request.user_name.as_deref();
                let grant = policy.grant_for_hook(name, request.client_id(), rules.as_deref());
                allowed(Arc::new(grant))
            }
            Ok(Answer::Deny) => {
                if let Some(suppressed) = log::may_say(Subject::Visits(request.source())) {
                    tracing::info!(
                        client_id = request.client_id,
                        user_name = request.user_name,
                        peer = %request.peer,
                        suppressed,
                        "auth_hook: the hook denied the client"
                    );
                }
                Verdict::NotAuthorized
            }
            Ok(Answer::Ignore) => settle_unknown(&policy, request, true),
            Err(failure) => {
                self.desk.counters.hook_failures.add_one();
                failure.log(request, self.settings.on_failure);
                without_answer(self.settings.on_failure, request, &policy)
            }
        };
        self.desk.answer(&request.asker, verdict);
    }

    fn answer(&self, request: &Request, policy: &Arc<Policy>) -> Result<Answer, NoAnswer> {
        let password = request.password.as_deref().map(String::from_utf8_lossy);
        let peer = request.peer.to_string();
        let question = Question {
            client_id: request.client_id(),
            user_name: request.user_name.as_deref(),
            password: password.as_deref(),
            peer: &peer,
            listener: request.listener.0,
            certificate_name: request.certificate_name.as_deref(),
        };
        let key = key_of(&question, request);
        if let Some(answer) = self.remembered(&key, policy) {
            return Ok(answer);
        }
        let left = self
            .settings
            .timeout
            .saturating_sub(request.since.elapsed());
        if left.is_zero() {
            return Err(NoAnswer::TimedOut);
        }
        let answer = self.ask(&question, left)?;
        self.remember(key, answer.clone());
        Ok(answer)
    }

    fn ask(&self, question: &Question<'_>, timeout: Duration) -> Result<Answer, NoAnswer> {
        self.desk.counters.hook_requests.add_one();
        let unusable = |error: String| NoAnswer::Unusable(error);
        let body = serde_json::to_string(question).map_err(|error| unusable(error.to_string()))?;
        let mut response = self
            .agent
            .post(&self.settings.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/json")
            .send(body)?;
        let status = response.status().as_u16();
        if !(200..300).contains(&status) {
            return Err(unusable(format!("status {status}, expected 200")));
        }
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES)
            .read_to_vec()?;
        Answer::parse(&body).map_err(|error| unusable(error.to_string()))
    }

    fn remembered(&self, key: &[u8; 32], policy: &Arc<Policy>) -> Option<Answer> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = cache
            .policy
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, policy));
        if !is_same {
            cache.answers.clear();
            self.desk.counters.hook_answers.set(0);
            cache.policy = Some(Arc::clone(policy));
        }
        let (since, answer) = cache.answers.get(key)?;
        (since.elapsed() < self.settings.cache).then(|| answer.clone())
    }

    fn remember(&self, key: [u8; 32], answer: Answer) {
        if self.settings.cache.is_zero() {
            return;
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.answers.len() >= CACHED {
            let holds = self.settings.cache;
            cache
                .answers
                .retain(|_, (since, _)| since.elapsed() < holds);
        }
        if cache.answers.len() >= CACHED {
            cache.answers.clear();
        }
        cache.answers.insert(key, (Instant::now(), answer));
        let counters = &self.desk.counters;
        counters.hook_answers.set(cache.answers.len());
    }
}

/// A hash of what is asked, so that the cache holds no passwords; without the client's port, which does not matter.
fn key_of(question: &Question<'_>, request: &Request) -> [u8; 32] {
    let address = request.peer.ip().to_string();
    let question = Question {
        peer: &address,
        ..question.clone()
    };
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(&question).unwrap_or_default());
    // The bytes themselves: in the question, different invalid UTF-8 looks the same.
    hash.update(request.password.as_deref().unwrap_or_default());
    hash.finalize().into()
}
