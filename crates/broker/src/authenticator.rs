//! Decides who may connect. Requests that need a slow hash go to a pool of threads, and requests for the HTTP hook to the hook's threads; all others
//! are answered at once.
//!
//! The order: certificate, token, users' file (see `thicket_access::Policy`), the hook, and last whether anonymous clients are let in. The first
//! source that has the client decides.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use thicket_access::{Applicant, Grant, HashMemory, Judgement, Keys, Policy, Tokens, scram};
use thicket_node::{Admission, ConnectionId, Enhanced, Hub, ListenerId, Source, Verdict, WorkerId};
use tokio::sync::mpsc;

use crate::clock::wall_ms;
use crate::config::{Hook, KeyProvider};
use crate::counters::Counters;
use crate::hook::{HookDesk, HookQueue};
use crate::mailbox::{Letter, Mailboxes};
use crate::pool::{Places, Pool};
use crate::provider::{self, Fetcher};

/// Clients that may wait for an answer at a time, in all and of one address; the next one is refused as unavailable.
pub(crate) const WAITING: Places = Places {
    all: 1024,
    of_one_source: 512,
};
/// Threads that hash: more would take the cores from the workers, and each keeps the memory of a hash, 19 MiB.
pub(crate) const HASHERS: usize = 2;

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

/// A request to be let in.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) asker: Asker,
    /// Where the client connected.
    pub(crate) listener: ListenerId,
    pub(crate) peer: SocketAddr,
    pub(crate) client_id: String,
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

    fn applicant(&self) -> Applicant<'_> {
        Applicant {
            listener: self.listener.0,
            client_id: &self.client_id,
            user_name: self.user_name.as_deref(),
            password: self.password.as_deref(),
            certificate_name: self.certificate_name.as_deref(),
        }
    }
}

/// Decides who may connect. The threads end when the last clone is gone with the last worker.
#[derive(Debug, Clone)]
pub(crate) struct Authenticator {
    desk: Arc<Desk>,
    hashers: Pool<Request>,
    hook: Option<HookQueue>,
}

/// What the threads that decide share.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Read once for each CONNECT, replaced by a reload.
    policy: RwLock<Arc<Policy>>,
    boxes: Mailboxes,
    pub(crate) counters: Arc<Counters>,
    /// Fetches the keys of tokens, if they come from a provider.
    fetcher: Option<Fetcher>,
}

impl Authenticator {
    /// Starts the threads.
    pub(crate) fn start(
        policy: Policy,
        hook: Option<Hook>,
        provider: Option<KeyProvider>,
        boxes: &Mailboxes,
        counters: &Arc<Counters>,
    ) -> std::io::Result<Self> {
        let (fetcher, wanted) = Fetcher::new();
        let desk = Arc::new(Desk {
            policy: RwLock::new(Arc::new(policy)),
            boxes: Arc::clone(boxes),
            counters: Arc::clone(counters),
            fetcher: provider.is_some().then_some(fetcher),
        });
        if let Some(provider) = provider {
            provider::start(provider, &desk, wanted)?;
        }
        let hook = hook
            .map(|settings| HookDesk::start(settings, &desk))
            .transpose()?;
        let serve = {
            let (desk, hook) = (Arc::clone(&desk), hook.clone());
            let mut memory = HashMemory::default();
            move |request| desk.judge_and_answer(request, hook.as_ref(), &mut memory)
        };
        let hashers = Pool::start("users", HASHERS, WAITING, serve)?;
        Ok(Self {
            desk,
            hashers,
            hook,
        })
    }

    /// The part that is shared with the code that reloads the files.
    pub(crate) const fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Decides for the client that was placed with a session of this name, if there is one: its rights apply to all its sessions. Only the hub knows
    /// the placement, so the verdict is sent to the asker later.
    pub(crate) fn ask_as_placed(&self, mut request: Request, name: String) {
        let authenticator = self.clone();
        let order = move |hub: &mut Hub, now| {
            if let Some(placed) = hub.placed_name(now, &name) {
                request.client_id = placed.client_id;
            }
            let asker = request.asker.clone();
            if let Some(verdict) = authenticator.ask(request) {
                authenticator.desk.send(asker, verdict);
            }
        };
        self.desk.boxes[0].post(Letter::OrderHub(Box::new(order)));
    }

    /// Returns the verdict if it is known at once; else it is sent to the asker.
    pub(crate) fn ask(&self, request: Request) -> Option<Verdict> {
        self.desk.counters.authentications.add_one();
        let policy = self.desk.policy();
        if let Some(enhanced) = &request.enhanced {
            let verdict = step(&policy, &request, enhanced);
            return Some(self.desk.count(verdict));
        }
        if policy.is_slow(&request.applicant()) {
            if let Some(turned_away) = self.hashers.submit(request.source(), request) {
                self.desk.answer(turned_away.asker, Verdict::Unavailable);
            }
            return None;
        }
        // It takes no memory where it is not slow.
        let mut memory = HashMemory::default();
        let judged = self.desk.judge(request, self.hook.as_ref(), &mut memory);
        let verdict = judged.ok()?;
        Some(self.desk.count(verdict))
    }
}

/// The request was passed on; the recipient answers it.
struct PassedOn;

impl Desk {
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

    fn judge_and_answer(
        &self,
        request: Request,
        hook: Option<&HookQueue>,
        memory: &mut HashMemory,
    ) {
        let asker = request.asker.clone();
        if let Ok(verdict) = self.judge(request, hook, memory) {
            self.answer(asker, verdict);
        }
    }

    /// Decides by the files; passes a client that is not in them on to the hook.
    fn judge(
        &self,
        request: Request,
        hook: Option<&HookQueue>,
        memory: &mut HashMemory,
    ) -> Result<Verdict, PassedOn> {
        let policy = self.policy();
        match policy.judge(&request.applicant(), wall_ms() / 1000, memory) {
            Judgement::Granted(grant) => Ok(allowed(grant)),
            Judgement::Refused(reason) => {
                tracing::debug!(
                    client_id = request.client_id,
                    user_name = request.user_name,
                    reason,
                    "refused"
                );
                Ok(Verdict::BadUserNameOrPassword)
            }
            Judgement::UnknownKey => Ok(self.verdict_of_unknown_key(&request)),
            Judgement::Unknown => match hook {
                Some(hook) => {
                    if let Some((asker, verdict)) = hook.pass_on(request, &policy) {
                        self.answer(asker, verdict);
                    }
                    Err(PassedOn)
                }
                None => Ok(settle_unknown(&policy, &request, false)),
            },
        }
    }

    /// The verdict on a client whose token names a key that the provider does not list: try again later, unless the keys were fetched just now.
    fn verdict_of_unknown_key(&self, request: &Request) -> Verdict {
        let fetcher = self.fetcher.as_ref();
        let may_learn = fetcher.is_some_and(|it| it.may_learn_a_key(&self.counters));
        tracing::debug!(
            client_id = request.client_id,
            user_name = request.user_name,
            may_learn,
            "the token is signed with a key that the provider does not list"
        );
        if may_learn {
            Verdict::Unavailable
        } else {
            Verdict::BadUserNameOrPassword
        }
    }

    /// Sends a verdict to the asker.
    pub(crate) fn answer(&self, asker: Asker, verdict: Verdict) {
        let verdict = self.count(verdict);
        self.send(asker, verdict);
    }

    fn send(&self, asker: Asker, verdict: Verdict) {
        match asker {
            Asker::Connection {
                worker,
                connection,
                serial,
            } => self.boxes[usize::from(worker.0)].post(Letter::Authenticated {
                connection,
                serial,
                verdict,
            }),
            Asker::Http(sender) => {
                // Fails only if the request has ended.
                let _ = sender.try_send(verdict);
            }
        }
    }

    fn count(&self, verdict: Verdict) -> Verdict {
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
pub(crate) fn settle_unknown(policy: &Policy, request: &Request, has_hook: bool) -> Verdict {
    let listener = request.listener.0;
    let is_anonymous =
        request.user_name.is_none() || !(has_hook || policy.knows_users_at(listener));
    if !is_anonymous {
        return Verdict::BadUserNameOrPassword;
    }
    match policy.grant_anonymous(listener, &request.client_id) {
        Judgement::Granted(grant) => allowed(grant),
        Judgement::Refused(_) | Judgement::UnknownKey | Judgement::Unknown => {
            Verdict::NotAuthorized
        }
    }
}

pub(crate) fn allowed(grant: Arc<Grant>) -> Verdict {
    Verdict::Allowed(Admission {
        grant: Some(grant),
        authentication_data: None,
    })
}

/// A step of SCRAM is cheap: the slow hash is the client's to compute.
fn step(policy: &Policy, request: &Request, enhanced: &Enhanced) -> Verdict {
    let listener = request.listener.0;
    if enhanced.method != scram::METHOD || !policy.knows_scram_at(listener) {
        return Verdict::BadAuthenticationMethod;
    }
    let Ok(nonce) = nonce() else {
        return Verdict::Unavailable;
    };
    let next = match enhanced.exchange.clone() {
        None => policy
            .start_scram(listener, &enhanced.data, &nonce)
            .map(|(exchange, data)| Verdict::Continue {
                data,
                exchange: Box::new(exchange),
            }),
        Some(exchange) => policy
            .finish_scram(listener, *exchange, &enhanced.data, &request.client_id)
            .map(|(grant, data)| {
                Verdict::Allowed(Admission {
                    grant: Some(grant),
                    authentication_data: Some(data),
                })
            }),
    };
    next.unwrap_or_else(|error| {
        tracing::debug!(client_id = request.client_id, %error, "refused");
        Verdict::NotAuthorized
    })
}

fn nonce() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes)?;
    Ok(STANDARD_NO_PAD.encode(bytes))
}
