//! Decides who may connect. Requests that need a slow hash go to a pool of threads, and requests for the HTTP hook to the hook's threads; all others
//! are answered at once.
//!
//! The order: certificate, token, users' file (see `thicket_access::Policy`), the hook, and last whether anonymous clients are let in. The first
//! source that has the client decides.

mod desk;
mod hook;
mod provider;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use thicket_access::{HashMemory, Judgement, Policy, Verified, scram};
use thicket_node::{Admission, Enhanced, Hub, Remembered, Verdict};

pub(crate) use self::desk::{Asker, Request};
use self::desk::{Desk, WAITING, allowed, settle_unknown};
use self::hook::{HookDesk, HookQueue};
use self::provider::Fetcher;
use crate::clock::wall_ms;
use crate::config::{Hook, KeyProvider};
use crate::counters::Counters;
use crate::mailbox::{Letter, Mailboxes};
use crate::pool::Pool;

/// Threads that hash: more would take the cores from the workers, and each keeps the memory of a hash, 19 MiB.
pub(crate) const HASHERS: usize = 2;

/// What is remembered about clients that were authenticated.
pub(crate) fn remembered(counters: &Counters) -> [Remembered; 2] {
    let answers = "answers of the hook for authentication";
    let passwords = "passwords of clients that were correct";
    [
        Remembered::new(answers, counters.hook_answers.value(), hook::CACHED),
        Remembered::new(passwords, counters.verified.value(), desk::VERIFIED),
    ]
}

/// Decides who may connect. The threads end when the last clone is gone with the last worker.
#[derive(Debug, Clone)]
pub(crate) struct Authenticator {
    judge: Judge,
    hashers: Pool<Request>,
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
        let fetcher = provider.is_some().then_some(fetcher);
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| std::io::Error::other(error.to_string()))?;
        let verified = Verified::new(key, desk::VERIFIED);
        let desk = Arc::new(Desk::new(policy, verified, boxes, counters, fetcher));
        if let Some(provider) = provider {
            let desk = Arc::downgrade(&desk);
            let set_keys = move |keys| {
                if let Some(desk) = desk.upgrade() {
                    desk.set_keys(keys);
                }
            };
            provider::start(provider, wanted, Arc::clone(counters), set_keys)?;
        }
        let hook = hook
            .map(|settings| HookDesk::start(settings, &desk))
            .transpose()?;
        let judge = Judge { desk, hook };
        let serve = {
            let judge = judge.clone();
            let mut memory = HashMemory::default();
            move |request: Arc<Request>| judge.judge_and_answer(&request, &mut memory)
        };
        let hashers = Pool::start("users", HASHERS, WAITING, serve)?;
        Ok(Self { judge, hashers })
    }

    /// The part that is shared with the code that reloads the files.
    pub(crate) const fn desk(&self) -> &Arc<Desk> {
        &self.judge.desk
    }

    /// Decides for the client that was placed with a session of this name, if there is one: its rights apply to all its sessions. Only the hub knows
    /// the placement, so the verdict is sent to the asker later.
    pub(crate) fn ask_as_placed(&self, request: &Arc<Request>, name: String) {
        let authenticator = self.clone();
        let request = Arc::downgrade(request);
        let order = move |hub: &mut Hub, now| {
            let Some(request) = request.upgrade() else {
                return;
            };
            if let Some(placed) = hub.view().placed_name(now, &name) {
                // Each request is asked once.
                let _ = request.placed_as.set(placed.client_id);
            }
            if let Some(verdict) = authenticator.ask(&request) {
                authenticator.judge.desk.send(&request.asker, verdict);
            }
        };
        self.judge.desk.boxes[0].post(Letter::OrderHub(Box::new(order)));
    }

    /// Returns the verdict if it is known at once; else it is sent to the asker, if the caller keeps the request until then.
    pub(crate) fn ask(&self, request: &Arc<Request>) -> Option<Verdict> {
        let desk = &self.judge.desk;
        desk.counters.authentications.add_one();
        let policy = desk.policy();
        if let Some(enhanced) = &request.enhanced {
            let verdict = step(&policy, request, enhanced);
            return Some(desk.count(verdict));
        }
        let applicant = request.applicant();
        if policy.is_slow(&applicant) {
            if let Some(grant) = desk.recall(&policy, &applicant) {
                return Some(allowed(grant));
            }
            if let Some(turned_away) = self.hashers.submit(request.source(), request) {
                desk.answer(&turned_away.asker, Verdict::Unavailable);
            }
            return None;
        }
        // It takes no memory where it is not slow.
        let verdict = self.judge.judge(request, &mut HashMemory::default()).ok()?;
        Some(desk.count(verdict))
    }
}

/// Decides by the files, and asks the hook about a client that is not in them.
#[derive(Debug, Clone)]
struct Judge {
    desk: Arc<Desk>,
    hook: Option<HookQueue>,
}

/// The request was passed on; the recipient answers it.
struct PassedOn;

impl Judge {
    fn judge_and_answer(&self, request: &Arc<Request>, memory: &mut HashMemory) {
        self.desk.counters.authentications_slow.add_one();
        if let Ok(verdict) = self.judge(request, memory) {
            self.desk.answer(&request.asker, verdict);
        }
    }

    /// Decides by the files; passes a client that is not in them on to the hook.
    fn judge(&self, request: &Arc<Request>, memory: &mut HashMemory) -> Result<Verdict, PassedOn> {
        let policy = self.desk.policy();
        let applicant = request.applicant();
        match policy.judge(&applicant, wall_ms() / 1000, memory) {
            Judgement::Granted(grant) => {
                self.desk.remember(&policy, &applicant);
                Ok(allowed(grant))
            }
            Judgement::Refused(reason) => {
                tracing::debug!(
                    client_id = request.client_id,
                    user_name = request.user_name,
                    reason,
                    "refused"
                );
                Ok(Verdict::BadUserNameOrPassword)
            }
            Judgement::UnknownKey => Ok(self.verdict_of_unknown_key(request)),
            Judgement::Unknown => match &self.hook {
                Some(hook) => {
                    if let Some((turned_away, verdict)) = hook.pass_on(request, &policy) {
                        self.desk.answer(&turned_away.asker, verdict);
                    }
                    Err(PassedOn)
                }
                None => Ok(settle_unknown(&policy, request, false)),
            },
        }
    }

    /// The verdict on a client whose token names a key that the provider does not list: try again later, unless the keys were fetched just now.
    fn verdict_of_unknown_key(&self, request: &Request) -> Verdict {
        let may_learn = self.desk.may_learn_a_key();
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
            .finish_scram(listener, *exchange, &enhanced.data, request.client_id())
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
