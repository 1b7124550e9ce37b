//! Sessions that move from one worker of this node to another with their connections, or that two workers have (`own_branches`). While that is under
//! way no client claims them, and requests of other nodes for them wait.

use std::{sync::Arc, time::Duration};

use super::{
    Ownership,
    state::relocations::{Postponed, Relocation},
};
use crate::{
    Now, WorkerId,
    hub::context::Context,
    messages::{self, ToWorker},
};

/// A worker that has not reported the result by then never will (the connection was lost on the way).
const TIMEOUT: Duration = Duration::from_secs(10);

impl Ownership {
    /// The worker `to` wants a session of `home`. Granted, if nothing else is under way with it.
    pub(in crate::hub) fn handle_relocate(
        &mut self,
        cx: &mut Context,
        now: Now,
        (home, to): (WorkerId, WorkerId),
        relocation: messages::Relocation,
    ) {
        let client_id = &relocation.client_id;
        let entry = cx.directory.entries.get(client_id);
        let is_there = entry.is_some_and(|entry| entry.is_open && entry.home == home);
        if is_there
            && cx.is_ready
            && !self.has_claims(client_id)
            && !self.is_leaving(client_id)
            && !self.relocations.has(client_id)
        {
            let deadline = now.instant + TIMEOUT;
            self.relocations.begin(client_id, Some(deadline));
            cx.send_to_worker(home, ToWorker::Relocate { to, relocation });
        }
    }

    /// A worker has the session: another one than before, or the same.
    pub(super) fn end_relocation(
        &mut self,
        cx: &mut Context,
        now: Now,
        home: WorkerId,
        client_id: &Arc<str>,
    ) {
        let relocation = self.relocations.under_way.get(client_id);
        if relocation.is_none_or(|it| it.deadline.is_none()) {
            return;
        }
        if let Some(entry) = cx.directory.entries.get_mut(client_id) {
            entry.home = home;
        }
        self.settle_relocation(cx, now, client_id);
    }

    /// Continues with what waited.
    pub(super) fn settle_relocation(&mut self, cx: &mut Context, now: Now, client_id: &Arc<str>) {
        let Some(relocation) = self.relocations.under_way.remove(client_id) else {
            return;
        };
        self.settle_own_branch(cx, now, client_id);
        for what in relocation.postponed {
            match what {
                Postponed::Fetch {
                    to,
                    request,
                    purpose,
                } => self.handle_fetch(cx, to, request, client_id, purpose),
                Postponed::Evict {
                    registrar,
                    epoch,
                    has_ended,
                } => self.handle_evict(cx, now, registrar, client_id, (epoch, has_ended)),
                Postponed::Merge {
                    epoch,
                    source,
                    source_epoch,
                } => self.handle_merge(cx, now, client_id, epoch, source, source_epoch),
            }
        }
        self.advance_claim(cx, now, client_id);
        self.merge_own_branch(cx, client_id);
    }

    /// Continues with what waits for sessions that ended with their connections.
    pub(super) fn expire_relocations(&mut self, cx: &mut Context, now: Now) {
        let is_due =
            |relocation: &Relocation| relocation.deadline.is_some_and(|at| at <= now.instant);
        let under_way = self.relocations.under_way.iter();
        let due: Vec<_> = under_way
            .filter(|(_, relocation)| is_due(relocation))
            .map(|(client_id, _)| Arc::clone(client_id))
            .collect();
        for client_id in due {
            thicket_session::reach!("time hub/ownership/relocations TIMEOUT");
            self.settle_relocation(cx, now, &client_id);
        }
    }
}
