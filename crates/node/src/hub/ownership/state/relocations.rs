//! Sessions on their way between workers of this node, and the requests that wait for them.

use std::{collections::BTreeMap, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::{server::Epoch, time::Instant};

use crate::messages::Purpose;

/// What another node asked meanwhile.
#[derive(Debug)]
pub(in crate::hub) enum Postponed {
    Fetch {
        to: NodeId,
        request: u64,
        purpose: Purpose,
    },
    Evict {
        registrar: NodeId,
        epoch: Epoch,
        has_ended: bool,
    },
    /// From the registrar.
    Merge {
        epoch: Epoch,
        source: NodeId,
        source_epoch: Epoch,
    },
}

#[derive(Debug)]
pub(in crate::hub) struct Relocation {
    /// `None`: two workers have the session, and both report the result in any case.
    pub deadline: Option<Instant>,
    pub postponed: Vec<Postponed>,
}

/// All that are under way, by client identifier.
#[derive(Debug, Default)]
pub(in crate::hub) struct Relocations {
    pub under_way: BTreeMap<Arc<str>, Relocation>,
}

impl Relocations {
    pub fn has(&self, client_id: &str) -> bool {
        self.under_way.contains_key(client_id)
    }

    /// When one is given up.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.under_way.values().filter_map(|it| it.deadline).min()
    }

    /// Requests for the session wait from now on.
    pub fn begin(&mut self, client_id: &Arc<str>, deadline: Option<Instant>) {
        let relocation = Relocation {
            deadline,
            postponed: Vec::new(),
        };
        self.under_way.insert(Arc::clone(client_id), relocation);
    }

    /// Puts off a request until the session is settled; false: it is now. A node asks at most twice before it is answered.
    pub fn postpone(&mut self, client_id: &str, what: Postponed) -> bool {
        let relocation = self.under_way.get_mut(client_id);
        relocation.map(|it| it.postponed.push(what)).is_some()
    }

    /// Drops the requests of a node for sessions that it no longer wants.
    pub fn withdraw(&mut self, node: NodeId, is_void: impl Fn(&str) -> bool) {
        for (client_id, relocation) in &mut self.under_way {
            relocation.postponed.retain(|what| match what {
                Postponed::Fetch { to, .. } => *to != node || !is_void(client_id),
                Postponed::Evict { .. } | Postponed::Merge { .. } => true,
            });
        }
    }
}
