//! PUBACK and PUBREC to publishers: each when all destinations have the message, in the order in which the messages arrived.

use thicket_mqtt::{AcknowledgementKind, ProtocolVersion, Qos, ReasonCode};

use super::{
    Worker,
    capacity::refuse_record,
    context::Context,
    minority::refusal_by_close,
    replication::Primaries,
    state::{
        debts::{Debt, Owed, Publisher},
        sessions::{OwedAcknowledgement, SessionKey},
    },
};
use crate::{
    ConnectionId, Now,
    messages::{NumberRuns, RefusedBy, ToHub},
};

/// PUBACK or PUBREC.
pub(super) fn acknowledge(
    cx: &mut Context,
    id: ConnectionId,
    key: SessionKey,
    owed: OwedAcknowledgement,
) {
    let is_v5 = cx
        .sessions
        .get(key)
        .is_some_and(|session| session.protocol_version == ProtocolVersion::V5 as u8);
    if owed.reason_code == ReasonCode::QuotaExceeded && !is_v5 {
        // Older versions have no refusal: without an acknowledgement their clients send it again (rule 18).
        if let Some(session) = cx.sessions.get_mut(key)
            && owed.qos == Qos::ExactlyOnce
        {
            session.inbound.handle_undelivered_refusal(owed.packet_id);
            cx.journal
                .inbound(session.stored, &session.inbound, owed.packet_id);
        }
        cx.debts.to_close.push(id);
        return;
    }
    if owed.qos == Qos::ExactlyOnce {
        if let Some(session) = cx.sessions.get_mut(key) {
            if owed.reason_code.is_error() {
                session.inbound.handle_refused(owed.packet_id);
                cx.journal.released(session.stored, owed.packet_id);
            } else {
                session.inbound.handle_met(owed.packet_id);
                cx.journal
                    .inbound(session.stored, &session.inbound, owed.packet_id);
            }
        }
        cx.hold_output(id, key);
        cx.acknowledge_to(
            id,
            AcknowledgementKind::Pubrec,
            owed.packet_id,
            owed.reason_code,
        );
    } else {
        cx.acknowledge_to(
            id,
            AcknowledgementKind::Puback,
            owed.packet_id,
            owed.reason_code,
        );
    }
}

impl Worker {
    /// Messages of ours are over limits elsewhere.
    pub(super) fn handle_refused(&mut self, now: Now, by: RefusedBy, numbers: &NumberRuns) {
        let Self { cx, groups, .. } = self;
        match by {
            RefusedBy::Place => cx.debts.refuse(numbers),
            RefusedBy::Members => groups.choose_after_refusal(cx, now, numbers),
        }
    }

    /// Others have admitted these of our numbers.
    pub(super) fn handle_acknowledged(&mut self, runs: &NumberRuns) {
        self.groups.chosen_are_done(runs);
        let refused = self.cx.debts.acknowledge(runs);
        self.refuse_debts(refused);
    }

    fn refuse_debts(&mut self, refused: Vec<(Debt, RefusedBy)>) {
        let Self {
            cx, publications, ..
        } = self;
        for (debt, by) in refused {
            // Who sent it on counts it.
            let is_dropped = !matches!(debt, Debt::Sender { .. } | Debt::Portion(_));
            cx.traffic.dropped_messages += u64::from(is_dropped);
            let owed = match debt {
                Debt::Publisher(Publisher::Client(owed)) => owed,
                Debt::Publisher(Publisher::Operator(number)) => {
                    publications.refuse(number);
                    cx.debts.met.push(debt);
                    continue;
                }
                // It was sent on from here to a member of a group.
                Debt::Sender {
                    from,
                    origin,
                    number,
                } => {
                    thicket_session::reach!(
                        "worker/groups: a message that was sent on was refused"
                    );
                    refuse_record(cx, from, origin, by, number);
                    continue;
                }
                Debt::Will(_) | Debt::Merge(_) | Debt::TakenOver(..) => {
                    cx.debts.met.push(debt);
                    continue;
                }
                Debt::Portion(number) => {
                    cx.debts.refuse_portion(number, by);
                    cx.debts.met.push(debt);
                    continue;
                }
            };
            let Some(session) = cx.sessions.get_same(owed.session, owed.session_serial) else {
                continue;
            };
            match session.acknowledgement_mut(owed.sequence) {
                Some(slot) => {
                    slot.reason_code = ReasonCode::QuotaExceeded;
                    cx.debts.met.push(debt);
                }
                // The connection is gone: the message is accepted when it is sent again. If it was sent again already, its client waits.
                None => {
                    session.orphaned_publications.remove(&owed.sequence);
                    let is_awaited = session.inbound.handle_undelivered_refusal(owed.packet_id);
                    cx.journal
                        .inbound(session.stored, &session.inbound, owed.packet_id);
                    cx.debts.met.push(debt);
                    if is_awaited && let Some(id) = session.connection {
                        thicket_session::reach!("worker/publish: a refused publication came again");
                        let refused = OwedAcknowledgement {
                            packet_id: owed.packet_id,
                            qos: Qos::ExactlyOnce,
                            reason_code: ReasonCode::QuotaExceeded,
                            open: 0,
                        };
                        acknowledge(cx, id, owed.session, refused);
                    }
                }
            }
        }
    }

    /// Sends the acknowledgements whose conditions are met.
    #[inline]
    pub(super) fn settle_met(&mut self, now: Now) {
        let is_settled = self.cx.debts.met.is_empty()
            && self.cx.debts.refused.is_empty()
            && self.cx.debts.to_close.is_empty()
            && !self.system.has_replays()
            && self.primaries.has_settled_forgotten();
        if !is_settled {
            self.settle_all_met(now);
        }
    }

    #[inline(never)]
    fn settle_all_met(&mut self, now: Now) {
        self.system.replay(&mut self.cx, now);
        let refused = std::mem::take(&mut self.cx.debts.refused);
        self.refuse_debts(refused);
        let refused = self.cx.debts.settle_portions();
        self.refuse_debts(refused);
        self.traces.trace_met(&mut self.cx);
        for debt in std::mem::take(&mut self.cx.debts.met) {
            match debt {
                Debt::Publisher(Publisher::Client(owed)) => {
                    self.primaries.settle(&mut self.cx, now, owed)
                }
                Debt::Publisher(Publisher::Operator(number)) => {
                    self.publications.settle(&mut self.cx, number)
                }
                Debt::Sender {
                    from,
                    origin,
                    number,
                } => self.cx.batches.admit(from, origin, number),
                Debt::Will(number) => self.primaries.settle_will(&mut self.cx, number),
                Debt::Merge(request) => self.cx.send_to_hub(ToHub::Imported { request }),
                Debt::TakenOver(key, serial) => {
                    if self.cx.sessions.get_same(key, serial).is_some() {
                        self.report_taken_over_when_known(key);
                    }
                }
                // It was settled above.
                Debt::Portion(_) => {}
            }
        }
        self.primaries.settle_forgotten(&mut self.cx, now);
        let mut to_close = std::mem::take(&mut self.cx.debts.to_close);
        to_close.sort_unstable();
        to_close.dedup();
        for id in to_close {
            self.refuse(now, id, &refusal_by_close(&self.cx));
        }
    }
}

impl Primaries {
    fn settle(&mut self, cx: &mut Context, now: Now, owed: Owed) {
        let Some(session) = cx.sessions.get_same(owed.session, owed.session_serial) else {
            return;
        };
        let Some(slot) = session.acknowledgement_mut(owed.sequence) else {
            self.settle_orphaned(cx, now, owed);
            return;
        };
        slot.open = slot.open.saturating_sub(1);
        while let Some(session) = cx.sessions.get_mut(owed.session) {
            let Some(id) = session.connection else { return };
            let Some(front) = session
                .acknowledgements
                .front()
                .copied()
                .filter(|front| front.open == 0)
            else {
                return;
            };
            session.acknowledgements.pop_front();
            session.first_acknowledgement += 1;
            acknowledge(cx, id, owed.session, front);
        }
    }

    /// The connection that published is gone. A QoS 1 message is sent again by its client; a QoS 2 one is ours now, and a client that is back already
    /// and has asked again gets its PUBREC.
    fn settle_orphaned(&mut self, cx: &mut Context, now: Now, owed: Owed) {
        let Some(session) = cx.sessions.get_mut(owed.session) else {
            return;
        };
        let Some(open) = session.orphaned_publications.get_mut(&owed.sequence) else {
            self.continue_switchover(cx, now, owed.session);
            return;
        };
        *open = open.saturating_sub(1);
        if *open > 0 {
            return;
        }
        session.orphaned_publications.remove(&owed.sequence);
        let is_awaited = session.inbound.handle_met(owed.packet_id);
        cx.journal
            .inbound(session.stored, &session.inbound, owed.packet_id);
        if is_awaited && let Some(id) = session.connection {
            thicket_session::reach!("worker/publish: an orphaned publication came again");
            cx.hold_output(id, owed.session);
            cx.acknowledge_to(
                id,
                AcknowledgementKind::Pubrec,
                owed.packet_id,
                ReasonCode::Success,
            );
        }
        self.continue_switchover(cx, now, owed.session);
    }
}
