//! How much the clients of a connection and of a listener may publish in a second.

use thicket_mqtt::{Publish, ReasonCode};

use super::{WorkerOperator, WorkerView, context::Context, refusal::Refusal};
use crate::{Allowance, ConnectionId, ListenerId, ListenerTraffic, Now};

/// A client that publishes more than it may is disconnected. `Some`: the clients of its listener publish more than they may, and the message is refused.
#[inline]
pub(super) fn check_rate(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    publish: &Publish<'_>,
) -> Result<Option<ReasonCode>, Refusal> {
    if !cx.has_rates {
        return Ok(None);
    }
    use_budget(cx, now, id, publish)
}

#[inline(never)]
fn use_budget(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    publish: &Publish<'_>,
) -> Result<Option<ReasonCode>, Refusal> {
    let Some(connection) = cx.connections.get_mut(id) else {
        return Ok(None);
    };
    let listener = connection.listener;
    let config = cx.config.listeners.get(usize::from(listener.0));
    let (messages, bytes) = config.map_or((0, 0), |config| {
        (config.client_messages_per_s, config.client_bytes_per_s)
    });
    let (budget, len) = (
        &mut connection.budget,
        publish.topic.len() + publish.payload.len(),
    );
    let too_much = if !budget.messages.try_spend(now.instant, messages, 1) {
        Some(format!("more than {messages} messages a second"))
    } else if !budget.bytes.try_spend(now.instant, bytes, len as u64) {
        Some(format!("more than {bytes} bytes a second"))
    } else {
        None
    };
    if let Some(too_much) = too_much {
        return Err(Refusal::new(ReasonCode::MessageRateTooHigh, too_much));
    }
    let at = cx.connections.at(listener);
    let is_allowed = at.allowance.try_spend(len);
    at.traffic.refused_messages += u64::from(!is_allowed);
    Ok((!is_allowed).then_some(ReasonCode::QuotaExceeded))
}

impl WorkerView<'_> {
    /// What is left of it.
    #[must_use]
    pub fn allowance(&self, listener: ListenerId) -> Allowance {
        let at = self.worker.cx.connections.find_at(listener);
        at.map_or_else(Allowance::default, |at| at.allowance)
    }

    /// Messages of the clients of a listener.
    #[must_use]
    pub fn listener_traffic(&self, listener: ListenerId) -> ListenerTraffic {
        let at = self.worker.cx.connections.find_at(listener);
        at.map_or_else(ListenerTraffic::default, |at| at.traffic)
    }
}

impl WorkerOperator<'_> {
    /// What the clients of a listener may publish from now on; unless this is called, as much as they want.
    pub fn allow(&mut self, listener: ListenerId, allowance: Allowance) {
        self.worker.cx.has_rates = true;
        self.worker.cx.connections.at(listener).allowance = allowance;
    }
}
