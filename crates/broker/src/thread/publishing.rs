//! What the clients of each listener publish and receive at this thread, and what they may.

use std::sync::Arc;

use thicket_node::{Allowance, ListenerId, ListenerTraffic, Now, Worker};
use thicket_session::time::Instant;

use crate::gate::Gate;
use crate::listener::Listener;

/// The listeners of a thread, also after they are closed: their clients stay.
pub(super) struct Publishers(Vec<AtListener>);

struct AtListener {
    listener: ListenerId,
    gate: Arc<Gate>,
    /// Of the round, where there is a limit.
    allowed: Allowance,
    /// What is in the counters of the gate.
    counted: ListenerTraffic,
}

impl Publishers {
    pub(super) fn new(listeners: &[Listener]) -> Self {
        let at = |listener: &Listener| AtListener {
            listener: listener.id,
            gate: Arc::clone(&listener.entrance.gate),
            allowed: Allowance::default(),
            counted: ListenerTraffic::default(),
        };
        Self(listeners.iter().map(at).collect())
    }

    /// Before the inputs of a round: what all threads together have left.
    pub(super) fn allow(&mut self, worker: &mut Worker, now: Now) {
        for at in &mut self.0 {
            if let Some(publishing) = &at.gate.publishing {
                at.allowed = publishing.left(now.instant);
                worker.operate(now).allow(at.listener, at.allowed);
            }
        }
    }

    /// After the outputs of a round: what was used of it, and all messages.
    pub(super) fn count(&mut self, worker: &Worker, now: Instant) {
        for at in &mut self.0 {
            let traffic = worker.view().listener_traffic(at.listener);
            let before = std::mem::replace(&mut at.counted, traffic);
            if traffic == before {
                continue;
            }
            let gate = &at.gate;
            for (counter, now, before) in [
                (&gate.messages_in, traffic.in_messages, before.in_messages),
                (
                    &gate.messages_out,
                    traffic.out_messages,
                    before.out_messages,
                ),
                (
                    &gate.messages_refused,
                    traffic.refused_messages,
                    before.refused_messages,
                ),
            ] {
                counter.add(usize::try_from(now - before).unwrap_or(usize::MAX));
            }
            if let Some(publishing) = &gate.publishing {
                let left = worker.view().allowance(at.listener);
                let used = |before: i64, left: i64| u64::try_from(before - left).unwrap_or(0);
                publishing.spend(
                    now,
                    used(at.allowed.messages, left.messages),
                    used(at.allowed.bytes, left.bytes),
                );
            }
        }
    }
}
