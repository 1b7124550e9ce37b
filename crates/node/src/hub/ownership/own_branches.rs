//! Sessions that two workers of this node have: both have promoted a backup, of different primaries.
//!
//! The directory has one of them, that with the higher epoch. It merges what the other one has, as it would merge a branch of another node (`moves`);
//! meanwhile no client claims the session, and requests of other nodes wait (`relocations`). Then the other one ends.
//!
//! | event | then |
//! | --- | --- |
//! | a second worker reports the session | merged at once, or when claims, moves and relocations of it have ended |
//! | all of the branch is merged | the branch ends |
//! | the session ends, or leaves for another node, before that | the branch is the session |
//! | the branch ends before that | nothing |

use std::sync::Arc;

use thicket_session::server::Epoch;

use super::{Ownership, state::own_branches::OwnBranch};
use crate::{
    Now, WorkerId,
    hub::{context::Context, control::Message, directory::Entry},
    messages::{Merge, ToWorker},
};

impl Ownership {
    /// A worker reports a session that the directory has at another one.
    pub(super) fn note_own_branch(
        &mut self,
        cx: &mut Context,
        worker: WorkerId,
        client_id: &Arc<str>,
        epoch: Epoch,
    ) {
        let branches = self.own_branches.by_client.entry(Arc::clone(client_id));
        let branches = branches.or_default();
        match branches.iter_mut().find(|branch| branch.worker == worker) {
            Some(branch) => branch.epoch = epoch,
            None => branches.push(OwnBranch {
                worker,
                epoch,
                merged: None,
            }),
        }
        self.merge_own_branch(cx, client_id);
    }

    /// A session has ended that the directory does not have.
    pub(super) fn own_branch_ended(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        client_id: &Arc<str>,
    ) {
        let Some(position) = self.own_branches.position(client_id, worker) else {
            return;
        };
        let branch = self.own_branches.take(client_id, position);
        if branch.is_some_and(|branch| branch.merged.is_some()) {
            self.end_merge_between_workers(cx.own(), client_id);
            self.settle_relocation(cx, now, client_id);
        }
    }

    /// Begins to merge a branch, unless something else is under way with the session: that calls this when it has ended.
    pub(super) fn merge_own_branch(&mut self, cx: &mut Context, client_id: &Arc<str>) {
        if !self.own_branches.by_client.contains_key(client_id)
            || self.has_claims(client_id)
            || self.is_leaving(client_id)
            || self.relocations.has(client_id)
        {
            return;
        }
        let own = cx.own();
        let entry = cx.directory.entries.get_mut(client_id);
        let Some(entry) = entry.filter(|entry| entry.is_open) else {
            return;
        };
        let branches = self.own_branches.by_client.get_mut(client_id);
        let Some(branch) = branches.and_then(|branches| branches.last_mut()) else {
            return;
        };
        thicket_session::reach!("hub/ownership/own_branches: a branch of another worker is merged");
        let epoch = branch.epoch.max(entry.epoch).next_merge();
        if branch.epoch.precedence(false) > entry.epoch.precedence(entry.is_connected) {
            std::mem::swap(&mut branch.epoch, &mut entry.epoch);
            std::mem::swap(&mut branch.worker, &mut entry.home);
            // A client of the branch is disconnected.
            entry.is_connected = false;
        }
        // Backups of either are out of date.
        branch.merged = Some(epoch);
        let merge = Merge {
            node: own,
            epoch,
            source_epoch: branch.epoch,
        };
        let (home, worker) = (entry.home, branch.worker);
        self.relocations.begin(client_id, None);
        self.merge_between_workers(cx, client_id, (home, worker), merge);
    }

    /// The directory's session has ended: a branch of it, if there is one, is the session now. False: there is none, or a client opens another one,
    /// which is merged with it then.
    pub(super) fn adopt_own_branch(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &Arc<str>,
        is_opening: bool,
    ) -> bool {
        if is_opening || !self.own_branches.by_client.contains_key(client_id) {
            return false;
        }
        if self.own_branches.is_merging(client_id) {
            // Adopted with that.
            self.settle_relocation(cx, now, client_id);
            return true;
        }
        let Some(branch) = self.own_branches.take(client_id, 0) else {
            return false;
        };
        let epoch = branch.epoch;
        let entry = Entry {
            home: branch.worker,
            epoch,
            is_open: true,
            is_connected: false,
        };
        cx.directory.entries.insert(Arc::clone(client_id), entry);
        self.ask_again(client_id);
        self.send_to_registrar(cx, now, client_id, &Message::Owned { client_id, epoch });
        self.merge_own_branch(cx, client_id);
        true
    }

    /// A merge has ended: the branch ends, or is the session if that has ended.
    pub(super) fn settle_own_branch(&mut self, cx: &mut Context, now: Now, client_id: &Arc<str>) {
        let Some(mut branch) = self.own_branches.take_merging(client_id) else {
            return;
        };
        let own = cx.own();
        self.end_merge_between_workers(own, client_id);
        let entry = cx.directory.entries.get_mut(client_id);
        if let Some(entry) = entry.filter(|entry| entry.is_open) {
            let epoch = entry.epoch.max(branch.merged.unwrap_or_default());
            entry.epoch = epoch;
            self.send_to_registrar(cx, now, client_id, &Message::Owned { client_id, epoch });
            let evict = ToWorker::Evict {
                client_id: Arc::clone(client_id),
                may_contest: false,
            };
            cx.send_to_worker(branch.worker, evict);
            return;
        }
        let take_back = ToWorker::CancelSwitchover {
            client_id: Arc::clone(client_id),
            to: own,
        };
        cx.send_to_worker(branch.worker, take_back);
        branch.merged = None;
        let branches = self.own_branches.by_client.entry(Arc::clone(client_id));
        branches.or_default().push(branch);
        self.adopt_own_branch(cx, now, client_id, false);
    }
}
