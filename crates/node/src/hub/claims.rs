//! CONNECTs of this node on their way to a session: one at a time for each client identifier.
//!
//! | stage | begins | ends |
//! | --- | --- | --- |
//! | waiting | a CONNECT, a deferral, a change of the view | the registrar is asked |
//! | asking | the registrar is asked | granted without source: answered; with one: moving; deferred: waiting |
//! | moving | the session is fetched from another node | it is here: answered |

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use thicket_mqtt::ReasonCode;
use thicket_session::time::Instant;

use super::{Hub, Message, directory::Entry};
use crate::{
    EventLevel, Now, WorkerId,
    mail::{Claim, Content},
};

/// A CONNECT that cannot be answered in this time gets Server unavailable.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a deferral the registrar is asked again, at the latest after this.
const RETRY: Duration = Duration::from_millis(50);

/// A CONNECT that waits.
#[derive(Debug)]
struct Waiting {
    worker: WorkerId,
    claim: Claim,
    deadline: Instant,
}

/// How far the first CONNECT of a line has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting { retry_at: Option<Instant> },
    Asking { request: u64 },
    Moving { epoch: u64 },
}

/// The CONNECTs of one client identifier, in order.
#[derive(Debug)]
struct Line {
    stage: Stage,
    waiting: VecDeque<Waiting>,
}

/// All CONNECTs that wait.
#[derive(Debug, Default)]
pub(super) struct Claims {
    lines: BTreeMap<Arc<str>, Line>,
    requests: BTreeMap<u64, Arc<str>>,
    next_request: u64,
}

impl Claims {
    /// When something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let of_line = |line: &Line| {
            let deadline = line.waiting.front().map(|waiting| waiting.deadline);
            let retry = match line.stage {
                Stage::Waiting { retry_at } => retry_at,
                Stage::Asking { .. } | Stage::Moving { .. } => None,
            };
            [deadline, retry].into_iter().flatten().min()
        };
        self.lines.values().filter_map(of_line).min()
    }
}

impl Hub {
    pub(super) fn handle_claim(&mut self, now: Now, worker: WorkerId, claim: Claim) {
        let client_id = Arc::clone(&claim.client_id);
        let waiting = Waiting {
            worker,
            claim,
            deadline: now.instant + PATIENCE,
        };
        let new = || Line {
            stage: Stage::Waiting { retry_at: None },
            waiting: VecDeque::new(),
        };
        self.claims
            .lines
            .entry(Arc::clone(&client_id))
            .or_insert_with(new)
            .waiting
            .push_back(waiting);
        self.advance_claim(now, &client_id);
    }

    /// Asks the registrar for the first of a line, if that has not been done.
    fn advance_claim(&mut self, now: Now, client_id: &Arc<str>) {
        if !self.is_ready {
            return;
        }
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        if !matches!(line.stage, Stage::Waiting { .. }) {
            return;
        }
        self.claims.next_request += 1;
        let request = self.claims.next_request;
        line.stage = Stage::Asking { request };
        self.claims.requests.insert(request, Arc::clone(client_id));
        let view = self.directory.view;
        self.tell_registrar(
            now,
            client_id,
            &Message::Claim {
                request,
                view,
                client_id,
            },
        );
    }

    pub(super) fn advance_claims(&mut self, now: Now) {
        for client_id in self.claims.lines.keys().cloned().collect::<Vec<_>>() {
            self.advance_claim(now, &client_id);
        }
    }

    /// The registrar may be another one now: whoever was asked is asked no more.
    pub(super) fn restart_claims(&mut self) {
        self.claims.requests.clear();
        for line in self.claims.lines.values_mut() {
            if let Stage::Asking { .. } = line.stage {
                line.stage = Stage::Waiting { retry_at: None };
            }
        }
    }

    /// The registrar's answer.
    pub(super) fn handle_claim_answer(&mut self, now: Now, answer: &Message<'_>) {
        match *answer {
            Message::ClaimGranted {
                request,
                epoch,
                source,
            } => {
                let Some(client_id) = self.claims.requests.remove(&request) else {
                    return;
                };
                let Some(line) = self.claims.lines.get_mut(&client_id) else {
                    return;
                };
                line.stage = Stage::Moving { epoch };
                let Some(first) = line.waiting.front() else {
                    return;
                };
                let (home, discard) = (first.worker, first.claim.clean_start);
                match source.filter(|source| self.up.values().any(|node| node == source)) {
                    Some(source) => self.begin_move(&client_id, source, home, discard),
                    None => self.grant(now, &client_id),
                }
            }
            Message::ClaimDeferred { request } => {
                let Some(client_id) = self.claims.requests.remove(&request) else {
                    return;
                };
                if let Some(line) = self.claims.lines.get_mut(&client_id) {
                    line.stage = Stage::Waiting {
                        retry_at: Some(now.instant + RETRY),
                    };
                }
            }
            _ => debug_assert!(false, "no answer of the registrar"),
        }
    }

    /// The session is here, or there is none yet: the first of the line goes to its worker.
    pub(super) fn grant(&mut self, now: Now, client_id: &Arc<str>) {
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        let Stage::Moving { epoch } = line.stage else {
            return;
        };
        let first = line.waiting.pop_front();
        line.stage = Stage::Waiting { retry_at: None };
        if line.waiting.is_empty() {
            self.claims.lines.remove(client_id);
        }
        let Some(Waiting { worker, claim, .. }) = first else {
            return;
        };
        let entry = self
            .directory
            .entries
            .entry(Arc::clone(client_id))
            .or_insert(Entry {
                home: worker,
                epoch,
            });
        entry.epoch = epoch;
        let home = entry.home;
        let client_id = Arc::clone(client_id);
        let (connection, serial) = (claim.connection, claim.serial);
        self.mail_after_records(
            worker,
            Content::Granted {
                connection,
                serial,
                client_id: Arc::clone(&client_id),
                home,
            },
        );
        self.tell_registrar(
            now,
            &client_id,
            &Message::Owned {
                client_id: &client_id,
                epoch,
            },
        );
        self.advance_claim(now, &client_id);
    }

    /// Asks again what was deferred, gives up what took too long.
    pub(super) fn expire_claims(&mut self, now: Now) {
        let due = self
            .claims
            .next_deadline()
            .is_some_and(|at| at <= now.instant);
        if !due {
            return;
        }
        for client_id in self.claims.lines.keys().cloned().collect::<Vec<_>>() {
            let Some(line) = self.claims.lines.get_mut(&client_id) else {
                continue;
            };
            if line
                .waiting
                .front()
                .is_some_and(|first| first.deadline <= now.instant)
            {
                self.give_up(&client_id);
                continue;
            }
            if matches!(line.stage, Stage::Waiting { retry_at: Some(at) } if at <= now.instant) {
                self.advance_claim(now, &client_id);
            }
        }
    }

    fn give_up(&mut self, client_id: &Arc<str>) {
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        let Some(Waiting { worker, claim, .. }) = line.waiting.pop_front() else {
            return;
        };
        if line.waiting.is_empty() {
            self.claims.lines.remove(client_id);
        }
        self.event(
            EventLevel::Warn,
            "a client identifier could not be claimed in time",
            vec![("client_id", client_id.to_string())],
        );
        let (connection, serial) = (claim.connection, claim.serial);
        self.mail(
            worker,
            Content::ClaimRefused {
                connection,
                serial,
                reason_code: ReasonCode::ServerUnavailable,
            },
        );
    }
}
