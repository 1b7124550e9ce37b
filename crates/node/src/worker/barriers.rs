//! What waits until all that was on its way to this worker has arrived: from other nodes, which the hub asks, and from the other workers, which
//! pass on that the hub has it.
//!
//! A node that begins to receive a session's messages announces its interests to all nodes. What was sent before all had applied them went only to
//! where the session was; a barrier that begins after that is passed when it has arrived.

use super::{
    Worker,
    branches::send_branch_queue,
    context::Context,
    replication::deliver_misrouted,
    state::barriers::{Behind, Open},
};
use crate::{
    Now, WorkerId,
    messages::{ToHub, ToWorker},
};

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
    /// All that another worker, or the hub, had for `home` when the barrier began has arrived.
    pub(super) fn handle_barrier_passed(&mut self, now: Now, home: WorkerId, barrier: u64) {
        if home != self.cx.id {
            let passed = ToWorker::BarrierPassed { home, barrier };
            return self.cx.send_to_worker_after_records(home, passed);
        }
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
            Some(Behind::Misrouted(misrouted)) => deliver_misrouted(cx, now, &misrouted),
            Some(Behind::Queue { request, client_id }) => {
                send_branch_queue(cx, now, request, &client_id)
            }
            None => {}
        }
    }
}
