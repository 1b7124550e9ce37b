//! CONNECTs of this node on their way to a session: one at a time for each client identifier.
//!
//! | stage | begins | ends |
//! | --- | --- | --- |
//! | waiting | a CONNECT, a deferral, a change of the view | the registrar is asked |
//! | asking | the registrar is asked | granted without source: answered; with one: moving; deferred: waiting |
//! | moving | another node is asked for the session | it is here: answered, opening; it stays there: waiting |
//! | opening | the worker is informed | the worker reports the result: the registrar is informed, and the next is waiting |
//!
//! From granted to opened the claim is ours: the registrar makes all other nodes wait.

use std::{sync::Arc, time::Duration};

use thicket_mqtt::ReasonCode;
use thicket_overlay::NodeId;
use thicket_session::{server::Epoch, time::Instant};

use super::{
    Ownership,
    state::{
        claims::{Granted, Stage, Waiting},
        relocations::Postponed,
    },
};
use crate::{
    EventLevel, Now, WorkerId,
    hub::{
        context::Context,
        control::{Grant, Message, Released},
        directory::Entry,
    },
    messages::{Claim, ClaimGrant, Merge, Purpose, Terms, ToWorker},
};

/// A CONNECT that cannot be answered in this time gets Server unavailable.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After a deferral the registrar is asked again, at the latest after this.
const RETRY: Duration = Duration::from_millis(50);

impl Ownership {
    /// The epoch of a client identifier that was granted to us and is not open yet; 0: there is none.
    pub(super) fn granted_epoch(&self, client_id: &str) -> Epoch {
        let line = self.claims.lines.get(client_id);
        let granted = line.and_then(|line| line.stage.granted());
        granted.map_or(Epoch::NONE, |granted| granted.epoch)
    }

    /// Whether a connection is on its way to the session's worker.
    pub(super) fn is_opening(&self, client_id: &str) -> bool {
        let stage = self.claims.lines.get(client_id).map(|line| line.stage);
        matches!(stage, Some(Stage::Opening(_)))
    }

    /// Whether a client waits for the session, or it is being merged.
    pub(super) fn has_claims(&self, client_id: &str) -> bool {
        self.claims.lines.contains_key(client_id)
    }

    /// A client wants its session: it waits in the line for it.
    pub(in crate::hub) fn queue_claim(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        claim: Claim,
    ) {
        let client_id = Arc::clone(&claim.client_id);
        let waiting = Waiting {
            worker,
            claim,
            deadline: now.instant + TIMEOUT,
        };
        self.claims
            .lines
            .entry(Arc::clone(&client_id))
            .or_default()
            .waiting
            .push_back(waiting);
        self.advance_claim(cx, now, &client_id);
    }

    /// Asks the registrar for the first of a line, if that has not been done.
    pub(super) fn advance_claim(&mut self, cx: &mut Context, now: Now, client_id: &Arc<str>) {
        if !cx.is_ready || cx.overlay.is_in_doubt() {
            return;
        }
        if cx.quorum.is_minority() {
            return self.refuse_claim(cx, client_id);
        }
        if self.relocations.has(client_id) {
            // It continues when the session has arrived.
            return;
        }
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        if !matches!(line.stage, Stage::Waiting { .. }) {
            return;
        }
        if line.waiting.is_empty() {
            // All who waited were given up while the session was on its way.
            return self.end_claim(cx, now, client_id, None);
        }
        self.claims.next_request += 1;
        let request = self.claims.next_request;
        line.stage = Stage::Asking { request };
        let view = cx.directory.view;
        self.send_to_registrar(
            cx,
            now,
            client_id,
            &Message::Claim {
                request,
                view,
                client_id,
            },
        );
    }

    pub(in crate::hub) fn advance_claims(&mut self, cx: &mut Context, now: Now) {
        for client_id in self.claims.lines.keys().cloned().collect::<Vec<_>>() {
            self.advance_claim(cx, now, &client_id);
        }
    }

    /// The registrar may be another one now: open requests are void.
    pub(super) fn restart_claims(&mut self) {
        for line in self.claims.lines.values_mut() {
            if let Stage::Asking { .. } = line.stage {
                line.stage = Stage::Waiting { retry_at: None };
            }
        }
    }

    /// The registrar's answer. One to a claim that was made again meanwhile is ignored.
    pub(in crate::hub) fn handle_claim_answered(
        &mut self,
        cx: &mut Context,
        now: Now,
        request: u64,
        grant: Option<Grant>,
        client_id: &str,
    ) {
        let Some((client_id, line)) = self.claims.lines.get_key_value(client_id) else {
            // All who wanted it have gone.
            if grant.is_some() {
                let client_id: Arc<str> = client_id.into();
                self.end_claim(cx, now, &client_id, None);
            }
            return;
        };
        if line.stage != (Stage::Asking { request }) {
            return;
        }
        let client_id = Arc::clone(client_id);
        match grant {
            Some(grant) => self.claim_granted(cx, now, &client_id, grant),
            None => self.retry_claim(now, &client_id),
        }
    }

    fn set_stage(&mut self, client_id: &str, stage: Stage) {
        if let Some(line) = self.claims.lines.get_mut(client_id) {
            line.stage = stage;
        }
    }

    fn claim_granted(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &Arc<str>,
        Grant { epoch, source }: Grant,
    ) {
        let granted = Granted {
            epoch,
            from: None,
            sole_in: Some(cx.directory.view),
        };
        self.set_stage(client_id, Stage::Moving(granted));
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        let Some(first) = line.waiting.front() else {
            return self.end_claim(cx, now, client_id, Some(epoch));
        };
        let discard = first.claim.clean_start;
        match source.filter(|source| cx.is_up(*source)) {
            Some(source) => {
                let granted = Granted {
                    from: Some(source),
                    ..granted
                };
                self.set_stage(client_id, Stage::Moving(granted));
                let purpose = if discard {
                    Purpose::Discard
                } else {
                    Purpose::Move
                };
                self.begin_move(cx, client_id, source, purpose);
            }
            None if source.is_some() => {
                thicket_session::reach!("hub/claims: the session's node is not in sight");
                // Its node is not linked; if that is down, its backup, if it has one, is about to register it.
                self.retry_claim(now, client_id);
            }
            None => self.grant(cx, now, client_id),
        }
    }

    /// The registrar has the session here merge a branch of another node: a claim that no client waits for.
    pub(in crate::hub) fn handle_merge(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &str,
        epoch: Epoch,
        source: NodeId,
        source_epoch: Epoch,
    ) {
        let client_id: Arc<str> = client_id.into();
        let merge = Postponed::Merge {
            epoch,
            source,
            source_epoch,
        };
        if self.relocations.postpone(&client_id, merge) {
            return;
        }
        let line = self.claims.lines.entry(Arc::clone(&client_id));
        let line = line.or_default();
        if line.stage.granted().is_some() {
            // Granted by an earlier registrar: when that has ended, this one is informed of what is here, and orders again.
            return;
        }
        line.stage = Stage::Moving(Granted {
            epoch,
            from: None,
            sole_in: None,
        });
        let home = cx.directory.entries.get(&client_id).map(|it| it.home);
        let is_up = cx.is_up(source);
        match home.filter(|_| is_up) {
            Some(home) => {
                let merge = Merge {
                    node: source,
                    epoch,
                    source_epoch,
                };
                self.begin_merge(cx, &client_id, home, merge);
            }
            None => self.end_claim(cx, now, &client_id, None),
        }
    }

    /// The request to the registrar is void, as the registrar is about to be sent more: it is to be asked again.
    pub(super) fn ask_again(&mut self, client_id: &str) {
        let line = self.claims.lines.get(client_id);
        if line.is_some_and(|line| matches!(line.stage, Stage::Asking { .. })) {
            self.claim_later(client_id, None);
        }
    }

    /// The registrar is asked again a little later: what is under way elsewhere goes first.
    pub(super) fn retry_claim(&mut self, now: Now, client_id: &str) {
        self.claim_later(client_id, Some(now.instant + RETRY));
    }

    /// The registrar is asked again then, or when the view has changed.
    pub(super) fn claim_later(&mut self, client_id: &str, retry_at: Option<Instant>) {
        self.set_stage(client_id, Stage::Waiting { retry_at });
    }

    /// The move failed: the registrar is asked again.
    pub(super) fn claim_again(&mut self, cx: &mut Context, now: Now, client_id: &Arc<str>) {
        self.set_stage(client_id, Stage::Waiting { retry_at: None });
        self.advance_claim(cx, now, client_id);
    }

    /// The session is here, or there is none yet: the first of the line goes to its worker.
    pub(super) fn grant(&mut self, cx: &mut Context, now: Now, client_id: &Arc<str>) {
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        let Stage::Moving(granted) = line.stage else {
            return;
        };
        let epoch = granted.epoch;
        let Some(Waiting { worker, claim, .. }) = line.waiting.pop_front() else {
            self.end_claim(cx, now, client_id, Some(epoch));
            return;
        };
        line.stage = Stage::Opening(granted);
        let terms = Terms {
            epoch,
            is_sole: granted.sole_in == Some(cx.directory.view),
        };
        let entry = cx
            .directory
            .entries
            .entry(Arc::clone(client_id))
            .or_insert(Entry {
                home: worker,
                epoch,
                is_open: false,
                is_connected: false,
            });
        entry.epoch = epoch;
        let answer = ToWorker::ClaimAnswered {
            connection: claim.connection,
            serial: claim.serial,
            client_id: Arc::clone(client_id),
            answer: Ok(ClaimGrant {
                home: entry.home,
                terms,
                placed: claim.placed,
            }),
        };
        cx.send_to_worker_after_records(worker, answer);
    }

    /// A worker reports that a connection whose claim was granted is in service, or has gone; or that it has a session that was to be relocated.
    pub(in crate::hub) fn handle_grant_done(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: WorkerId,
        client_id: &Arc<str>,
    ) {
        let line = self.claims.lines.get(client_id);
        if let Some(Stage::Opening(granted)) = line.map(|line| line.stage) {
            self.end_claim(cx, now, client_id, Some(granted.epoch));
        } else {
            self.end_relocation(cx, now, from, client_id);
        }
    }

    /// Informs the registrar of the result of a claim; the next of the line has its turn. `epoch`: of the claim that was granted.
    pub(super) fn end_claim(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &Arc<str>,
        epoch: Option<Epoch>,
    ) {
        let line = self.claims.lines.get(client_id);
        let from = line.and_then(|line| line.stage.granted()?.from);
        if let Some(line) = self.claims.lines.get_mut(client_id) {
            line.stage = Stage::Waiting { retry_at: None };
            if line.waiting.is_empty() {
                self.claims.lines.remove(client_id);
            }
        }
        let entry = cx.directory.entries.get_mut(client_id);
        match entry.filter(|entry| entry.is_open) {
            Some(entry) => {
                entry.epoch = epoch.unwrap_or(entry.epoch);
                let epoch = entry.epoch;
                self.send_to_registrar(cx, now, client_id, &Message::Owned { client_id, epoch });
                // The registrar sends this only when all have registered. If this node dies meanwhile, what it has finished would be taken for what
                // was not handed to it.
                if let Some(from) = from {
                    let evict = Message::Evict {
                        client_id,
                        epoch,
                        has_ended: false,
                    };
                    cx.send(from, &evict);
                }
            }
            None => {
                cx.directory.entries.remove(client_id);
                self.report_release(cx, now, client_id, Released::Unclaimed);
            }
        }
        self.advance_claim(cx, now, client_id);
        self.merge_own_branch(cx, client_id);
    }

    /// Asks again what was deferred, gives up what took too long.
    pub(super) fn expire_claims(&mut self, cx: &mut Context, now: Now) {
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
                thicket_session::reach!("time hub/ownership/claims TIMEOUT");
                self.give_up(cx, &client_id);
                continue;
            }
            if matches!(line.stage, Stage::Waiting { retry_at: Some(at) } if at <= now.instant) {
                thicket_session::reach!("time RETRY");
                self.advance_claim(cx, now, &client_id);
            }
        }
    }

    /// This side has no quorum: clients that wait are refused.
    pub(in crate::hub) fn refuse_claims(&mut self, cx: &mut Context) {
        for client_id in self.claims.lines.keys().cloned().collect::<Vec<_>>() {
            self.refuse_claim(cx, &client_id);
        }
    }

    fn refuse_claim(&mut self, cx: &mut Context, client_id: &Arc<str>) {
        let waiting = |hub: &Self| {
            let line = hub.claims.lines.get(client_id);
            line.is_some_and(|line| !line.waiting.is_empty())
        };
        while waiting(self) {
            self.give_up(cx, client_id);
        }
    }

    fn give_up(&mut self, cx: &mut Context, client_id: &Arc<str>) {
        let Some(line) = self.claims.lines.get_mut(client_id) else {
            return;
        };
        let Some(Waiting { worker, claim, .. }) = line.waiting.pop_front() else {
            return;
        };
        // What was granted to us continues, so that the registrar is informed how it ended.
        let is_ours = line.stage.granted().is_some();
        if line.waiting.is_empty() && !is_ours {
            self.claims.lines.remove(client_id);
        }
        cx.event(
            EventLevel::Warn,
            if cx.quorum.is_minority() {
                "a client is refused, as this side has no quorum"
            } else {
                "a client identifier could not be claimed in time"
            },
            vec![("client_id", client_id.to_string())],
        );
        cx.refuse_claim(
            worker,
            &claim,
            ReasonCode::ServerUnavailable,
            Arc::default(),
        );
    }
}
