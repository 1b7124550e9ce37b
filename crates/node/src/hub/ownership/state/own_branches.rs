//! Sessions that two workers of this node have.

use std::{collections::BTreeMap, sync::Arc};

use thicket_session::server::Epoch;

use crate::WorkerId;

/// A session that another worker has as well.
#[derive(Debug)]
pub(in crate::hub) struct OwnBranch {
    pub worker: WorkerId,
    pub epoch: Epoch,
    /// It is being merged: the epoch of the session then.
    pub merged: Option<Epoch>,
}

/// By client identifier those that the directory does not have.
#[derive(Debug, Default)]
pub(in crate::hub) struct OwnBranches {
    pub by_client: BTreeMap<Arc<str>, Vec<OwnBranch>>,
}

impl OwnBranches {
    pub fn position(&self, client_id: &str, worker: WorkerId) -> Option<usize> {
        let branches = self.by_client.get(client_id)?;
        branches.iter().position(|branch| branch.worker == worker)
    }

    pub fn take(&mut self, client_id: &str, position: usize) -> Option<OwnBranch> {
        let branches = self.by_client.get_mut(client_id)?;
        let branch = branches.remove(position);
        if branches.is_empty() {
            self.by_client.remove(client_id);
        }
        Some(branch)
    }

    pub fn is_merging(&self, client_id: &str) -> bool {
        let branches = self.by_client.get(client_id);
        branches.is_some_and(|branches| branches.iter().any(|branch| branch.merged.is_some()))
    }

    /// The one that is being merged.
    pub fn take_merging(&mut self, client_id: &str) -> Option<OwnBranch> {
        let branches = self.by_client.get(client_id)?;
        let merging = branches.iter().position(|branch| branch.merged.is_some())?;
        self.take(client_id, merging)
    }
}
