//! What waits until all that was on its way to this worker has arrived: from other nodes, which the hub asks, and from the other workers, which
//! report it themselves.
//!
//! A node that begins to receive a session's messages announces its interests to all nodes. What was sent before all had applied them went only to
//! where the session was; a barrier that begins after that is passed when it has arrived.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Worker,
    branches::let_go,
    context::Context,
    replication::{Learned, SourceKey},
};
use crate::{Now, messages::ToHub};

/// What continues when a barrier has been passed.
#[derive(Debug)]
pub(super) enum Behind {
    /// As a primary: sessions that a backup has received are covered.
    Learned(Learned),
    /// As a backup: the full syncs in the stream of this primary, by its identifier, are held up to a position.
    Synced {
        source: SourceKey,
        stream: u64,
        until: u64,
    },
    /// The queue of a branch is sent, as the answer to this request.
    Queue { request: u64, client_id: Arc<str> },
}

/// A barrier that has not been passed.
#[derive(Debug)]
struct Open {
    behind: Behind,
    /// Of how many nothing is on its way any more: of the other workers and of the hub, which has what other nodes sent.
    passed: u8,
}

/// Barriers of a worker, by number.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    last: u64,
    open: BTreeMap<u64, Open>,
}

impl Barriers {
    /// A branch whose queue was to be sent stays.
    pub fn forget_queue(&mut self, leaving: &str) {
        self.open.retain(|_, open| {
            !matches!(&open.behind, Behind::Queue { client_id, .. } if **client_id == *leaving)
        });
    }
}

impl Context {
    /// Begins a barrier: what was sent before is waited for.
    pub(super) fn begin_barrier(&mut self, behind: Behind) {
        let barriers = &mut self.barriers;
        barriers.last += 1;
        let barrier = barriers.last;
        let open = Open { behind, passed: 0 };
        barriers.open.insert(barrier, open);
        self.send_to_hub_after_records(ToHub::Barrier { barrier });
    }
}

impl Worker {
    /// All that another worker, or the hub, had for this worker when the barrier began has arrived.
    pub(super) fn handle_barrier_passed(&mut self, now: Now, barrier: u64) {
        let Self {
            cx,
            primaries,
            sources,
            ..
        } = self;
        let Some(open) = cx.barriers.open.get_mut(&barrier) else {
            return;
        };
        open.passed += 1;
        // The hub, and the workers but this one.
        if open.passed < cx.config.workers {
            return;
        }
        let passed = cx.barriers.open.remove(&barrier);
        match passed.map(|open| open.behind) {
            Some(Behind::Learned(learned)) => primaries.cover_learned(cx, now, learned),
            Some(Behind::Synced {
                source,
                stream,
                until,
            }) => sources.hold_synced(cx, source, stream, until),
            Some(Behind::Queue { request, client_id }) => let_go(cx, now, request, &client_id),
            None => {}
        }
    }
}
