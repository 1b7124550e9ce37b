//! Dispatches messages of other hubs to their handlers.

use thicket_overlay::NodeSlot;

use super::{Hub, Message, hints::HintMessage};
use crate::{
    EventLevel, Now,
    messages::{Purpose, RefusedBy},
};

impl Hub {
    /// A message of another hub.
    pub(super) fn handle_control(&mut self, now: Now, from: NodeSlot, kind: u8, payload: &[u8]) {
        let Some(node) = self.cx.overlay.node_of(from) else {
            return;
        };
        if let Some(message) = HintMessage::decode(kind, payload) {
            return self.handle_hint_message(now, node, message);
        }
        let Some(message) = Message::decode(kind, payload) else {
            let fields = vec![("node", node.to_string()), ("kind", kind.to_string())];
            self.cx.event(
                EventLevel::Warn,
                "unreadable message of another hub",
                fields,
            );
            return;
        };
        match message {
            Message::Claim { .. }
            | Message::Register { .. }
            | Message::RegisterEnd { .. }
            | Message::Release { .. }
            | Message::Contested { .. }
            | Message::Owned { .. } => {
                self.ownership
                    .handle_registrar_message(&mut self.cx, now, node, &message)
            }
            Message::RegisterAsked { round, unix_ms } => {
                self.ownership
                    .handle_register_asked(&mut self.cx, now, node, round, unix_ms)
            }
            Message::ClaimAnswered {
                request,
                grant,
                client_id,
            } => self
                .ownership
                .handle_claim_answered(&mut self.cx, now, request, grant, client_id),
            Message::Evict {
                client_id,
                epoch,
                has_ended,
            } => {
                self.ownership
                    .handle_evict(&mut self.cx, now, node, client_id, (epoch, has_ended))
            }
            Message::Merge {
                epoch,
                source,
                source_epoch,
                client_id,
            } => self.ownership.handle_merge(
                &mut self.cx,
                now,
                client_id,
                epoch,
                source,
                source_epoch,
            ),
            Message::Fetch {
                request,
                client_id,
                purpose,
            } => {
                let follows = self.placing.is_redirected_or_placed(now, client_id);
                let purpose = match purpose {
                    Purpose::Move if follows => Purpose::Follow,
                    purpose => purpose,
                };
                self.ownership
                    .handle_fetch(&mut self.cx, node, request, client_id, purpose);
            }
            Message::Fetched { request, answer } => {
                self.ownership
                    .handle_fetched(&mut self.cx, now, request, answer)
            }
            Message::FetchQueue { request } => {
                self.ownership
                    .handle_fetch_queue(&mut self.cx, now, node, request)
            }
            Message::Barrier { request } => {
                let hints = self.hints.mark(node);
                self.ownership
                    .handle_barrier(&self.cx, node, from, request, hints);
                self.answer_barriers();
            }
            Message::BarrierDone { request } => {
                self.ownership
                    .handle_barrier_done(&mut self.cx, node, request)
            }
            Message::CancelSwitchover { client_id } => {
                self.ownership
                    .handle_cancel_switchover(&mut self.cx, node, client_id)
            }
            Message::RetainedDigest { digest, is_answer } => {
                self.handle_retained_digest(now, node, digest, is_answer);
            }
            Message::Retained { messages } => self.handle_retained(now, &messages),
            Message::Refused(numbers) => self.handle_refused(node, RefusedBy::Place, numbers),
            Message::MembersRefused(numbers) => {
                self.handle_refused(node, RefusedBy::Members, numbers)
            }
            Message::RefusalNoted(numbers) => self.handle_refusal_noted(node, &numbers),
            Message::Topics { is_first, topics } => {
                self.placing.handle_topics(node, is_first, &topics)
            }
            Message::Place { request, order } => {
                self.placing
                    .handle_place(&mut self.cx, now, node, request, order)
            }
            Message::PlaceDone { request, problem } => {
                self.placing
                    .handle_place_done(&mut self.cx, now, request, problem);
            }
            Message::Placement {
                placement,
                follows,
                payer,
            } => {
                self.placing
                    .handle_placement(&mut self.cx, now, placement, follows, payer);
            }
            Message::Unplaced { client_id } => {
                self.placing.forget_placement(client_id);
            }
            Message::State(state) => self.placing.handle_state(&mut self.cx, now, node, state),
            Message::Moved {
                to,
                reason,
                client_id,
            } => self
                .placing
                .handle_moved(now, node, to, (client_id, reason)),
            Message::ActivityRequested { round, cursor } => {
                self.placing
                    .handle_activity_requested(&mut self.cx, node, round, cursor)
            }
            Message::Activity {
                round,
                next,
                clients,
            } => self
                .placing
                .handle_activity(&mut self.cx, now, node, round, next, clients),
            Message::MovesOrdered {
                to,
                reason,
                clients,
            } => self
                .placing
                .handle_moves_ordered(&mut self.cx, now, to, reason, &clients),
            Message::RebalanceAsked { request, wish } => {
                self.placing
                    .handle_rebalance_asked(&mut self.cx, now, node, request, wish);
            }
            Message::RebalanceAnswered { request, answer } => {
                self.placing.handle_rebalance_answered(request, answer);
            }
            Message::Replicate {
                stream,
                position,
                part,
            } => self
                .ownership
                .handle_replicate(&mut self.cx, node, stream, position, part),
            Message::BackupReport { stream, report } => {
                self.ownership
                    .handle_backup_report(&mut self.cx, node, stream, report)
            }
            Message::Members(members) => self.handle_members(&members),
            Message::Clock { unix_ms } => self.handle_clock(now, node, unix_ms),
            Message::Settings(settings) => self.handle_settings(node, &settings),
        }
    }
}
