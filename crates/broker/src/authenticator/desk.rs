//! What the threads that decide share: requests to be let in, the policy, and where verdicts go.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use thicket_access::{Applicant, Grant, Judgement, Keys, Policy, Tokens, Verified};
use thicket_node::{Admission, ConnectionId, Enhanced, ListenerId, Source, Verdict, WorkerId};
use tokio::sync::mpsc;

use super::provider::Fetcher;
use crate::counters::Counters;
use crate::mailbox::{Letter, Mailboxes};
use crate::pool::Places;

/// Clients that may wait for an answer at a time, in all and of one address; one more displaces another, which is refused as unavailable. What they
/// have sent is bounded with the CONNECTs that wait for an answer (`half_open_bytes`).
pub(super) const WAITING: Places = Places {
    all: 16_384,
    of_one_source: 8_192,
};

/// Passwords that were correct and are remembered: those of a large fleet. Each takes about 150 bytes and the name.
pub(super) const VERIFIED: usize = 100_000;

/// Where a verdict goes.
#[derive(Debug, Clone)]
pub(crate) enum Asker {
    /// To the worker that serves a connection.
    Connection {
        worker: WorkerId,
        connection: ConnectionId,
        serial: u32,
    },
    /// To a request over HTTP, which waits for one verdict.
    Http(mpsc::Sender<Verdict>),
}

/// A request to be let in. Whoever waits for the answer has it; queues only refer to it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) asker: Asker,
    pub(crate) since: Instant,
    /// Where the client connected.
    pub(crate) listener: ListenerId,
    pub(crate) peer: SocketAddr,
    pub(crate) client_id: String,
    /// The client identifier of the client that was placed with a session of this name, once that is known.
    pub(crate) placed_as: OnceLock<String>,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    /// The name in the client's certificate, if it has shown a valid one.
    pub(crate) certificate_name: Option<String>,
    pub(crate) enhanced: Option<Box<Enhanced>>,
}

impl Request {
    /// The source whose share of the waiting places the request uses.
    pub(crate) fn source(&self) -> Source {
        self.peer.ip().into()
    }

    /// The client identifier whose rights apply.
    pub(super) fn client_id(&self) -> &str {
        self.placed_as.get().unwrap_or(&self.client_id)
    }

    pub(super) fn applicant(&self) -> Applicant<'_> {
        Applicant {
            listener: self.listener.0,
            client_id: self.client_id(),
            user_name: self.user_name.as_deref(),
            password: self.password.as_deref(),
            certificate_name: self.certificate_name.as_deref(),
        }
    }
}

/// What the threads that decide share.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Read once for each CONNECT, replaced by a reload.
    policy: RwLock<Arc<Policy>>,
    /// Passwords that were correct under it.
    verified: Mutex<Verified>,
    pub(super) boxes: Mailboxes,
    pub(crate) counters: Arc<Counters>,
    /// Fetches the keys of tokens, if they come from a provider.
    fetcher: Option<Fetcher>,
}

impl Desk {
    /// `fetcher`: requests the keys of tokens, if they come from a provider.
    pub(super) fn new(
        policy: Policy,
        verified: Verified,
        boxes: &Mailboxes,
        counters: &Arc<Counters>,
        fetcher: Option<Fetcher>,
    ) -> Self {
        Self {
            policy: RwLock::new(Arc::new(policy)),
            verified: Mutex::new(verified),
            boxes: Arc::clone(boxes),
            counters: Arc::clone(counters),
            fetcher,
        }
    }

    /// The current policy.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policy)
    }

    /// Replaces the policy by the one from the files, also for connected clients. Keys of a provider stay, and are fetched again.
    pub(crate) fn set_policy(&self, mut policy: Policy) {
        self.change_policy(|old| {
            if let Some(tokens) = policy.tokens.as_mut().filter(|it| it.keys().are_provided())
                && let Some(keys) = old.tokens.as_ref().map(Tokens::keys)
            {
                tokens.set_keys(keys.clone());
            }
            Some(policy)
        });
        // After the change: until then passwords of the old files may be added.
        let mut verified = self.verified();
        self.policy().forget_changed(&mut verified);
        self.counters.verified.set(verified.count());
        drop(verified);
        if let Some(fetcher) = &self.fetcher {
            fetcher.fetch_soon();
        }
    }

    /// Replaces the provider's keys, also for connected clients.
    pub(crate) fn set_keys(&self, keys: Keys) {
        self.change_policy(|old| {
            let mut tokens = old.tokens.clone()?;
            if tokens.keys().are_same(&keys) {
                return None;
            }
            tracing::info!(keys = keys.count(), "the provider lists other keys");
            tokens.set_keys(keys);
            Some(Policy {
                tokens: Some(tokens),
                ..old.clone()
            })
        });
    }

    /// `change`: returns the new policy, or `None` to keep the old one.
    fn change_policy(&self, change: impl FnOnce(&Policy) -> Option<Policy>) {
        let mut held = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        let Some(policy) = change(&held).map(Arc::new) else {
            return;
        };
        *held = Arc::clone(&policy);
        // Under the lock, so that the workers receive policies in the order of the changes.
        for mailbox in self.boxes.iter() {
            mailbox.post(Letter::Reloaded(Arc::clone(&policy)));
        }
    }

    fn verified(&self) -> MutexGuard<'_, Verified> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The grant of a client whose password was correct before. Quick; a wrong password takes the slow hash as ever.
    pub(super) fn recall(&self, policy: &Policy, applicant: &Applicant<'_>) -> Option<Arc<Grant>> {
        policy.recall(applicant, &mut self.verified())
    }

    /// Remembers the password of a client that was granted under `policy`, unless that was replaced meanwhile.
    pub(super) fn remember(&self, policy: &Arc<Policy>, applicant: &Applicant<'_>) {
        let mut verified = self.verified();
        if Arc::ptr_eq(policy, &self.policy()) {
            policy.remember(applicant, &mut verified);
            self.counters.verified.set(verified.count());
        }
    }

    /// Whether another fetch may find a key that the provider did not list; if so, it is requested.
    pub(super) fn may_learn_a_key(&self) -> bool {
        let fetcher = self.fetcher.as_ref();
        fetcher.is_some_and(|it| it.may_learn_a_key(&self.counters))
    }

    /// Sends a verdict to the asker.
    pub(crate) fn answer(&self, asker: &Asker, verdict: Verdict) {
        let verdict = self.count(verdict);
        self.send(asker, verdict);
    }

    pub(super) fn send(&self, asker: &Asker, verdict: Verdict) {
        match *asker {
            Asker::Connection {
                worker,
                connection,
                serial,
            } => self.boxes[usize::from(worker.0)].post(Letter::Authenticated {
                connection,
                serial,
                verdict,
            }),
            Asker::Http(ref sender) => {
                // Fails only if the request has ended.
                let _ = sender.try_send(verdict);
            }
        }
    }

    pub(super) fn count(&self, verdict: Verdict) -> Verdict {
        match &verdict {
            Verdict::Allowed(_) | Verdict::Continue { .. } => {}
            Verdict::BadAuthenticationMethod
            | Verdict::BadUserNameOrPassword
            | Verdict::NotAuthorized
            | Verdict::Unavailable => self.counters.authentications_refused.add_one(),
        }
        verdict
    }
}

/// The verdict on a client that is in no source. Where no source of users is configured, the user name is ignored.
pub(super) fn settle_unknown(policy: &Policy, request: &Request, has_hook: bool) -> Verdict {
    let listener = request.listener.0;
    let is_anonymous =
        request.user_name.is_none() || !(has_hook || policy.knows_users_at(listener));
    if !is_anonymous {
        return Verdict::BadUserNameOrPassword;
    }
    match policy.grant_anonymous(listener, request.client_id()) {
        Judgement::Granted(grant) => allowed(grant),
        Judgement::Refused(_) | Judgement::UnknownKey | Judgement::Unknown => {
            Verdict::NotAuthorized
        }
    }
}

pub(super) fn allowed(grant: Arc<Grant>) -> Verdict {
    Verdict::Allowed(Admission {
        grant: Some(grant),
        authentication_data: None,
    })
}
