//! Moves as they are ordered, carried out, and followed or not.

use thicket_overlay::NodeId;
use thicket_placement::MoveReason;

use super::{BATCH, Orders, Phase};
use crate::{
    ClientMove, Now, RebalanceMode, RedirectionReason,
    hub::{
        Message,
        context::Context,
        placing::{
            Placing,
            recent::FOLLOWED,
            state::orders::{LastMove, Outcome},
        },
    },
    messages::Claim,
    scope::client_id_of,
};

impl Placing {
    /// Orders as many moves as are allowed in one second.
    pub(super) fn order_some(&mut self, cx: &mut Context, now: Now) {
        let per_s = cx.config.redirection.per_s as usize;
        let Phase::Moving(left) = &mut self.rebalance.phase else {
            return;
        };
        let batch: Vec<_> = left.drain(..per_s.min(left.len())).collect();
        let is_done = left.is_empty();
        if let Some(plan) = &mut self.rebalance.plan {
            plan.ordered += batch.len();
        }
        let mut orders = Orders::new();
        for ordered in batch {
            // Before the client is informed, or it would be given what it had.
            if let Some(placed) = &ordered.placement {
                self.place_again(cx, now, &placed.0, placed.1);
            }
            let key = (ordered.from, ordered.to, ordered.reason as usize);
            orders.entry(key).or_default().push(ordered.client_id);
        }
        for ((from, to, reason), clients) in orders {
            let reason = MoveReason::ALL[reason];
            if from == cx.own() {
                let clients: Vec<&str> = clients.iter().map(|it| &**it).collect();
                self.handle_moves_ordered(cx, now, to, reason, &clients);
            } else {
                for clients in clients.chunks(BATCH) {
                    let clients = clients.iter().map(|it| &**it).collect();
                    let message = Message::MovesOrdered {
                        to,
                        reason,
                        clients,
                    };
                    cx.send(from, &message);
                }
            }
        }
        if is_done {
            self.rebalance.phase = Phase::Idle;
            self.rebalance.has_moved = self.rebalance_mode(cx) == RebalanceMode::On;
            let interval = cx.config.redirection.rebalance.interval;
            self.rebalance.not_before = now.instant + interval * 2;
        }
    }

    /// The rebalancer orders which clients of this node should be at another one.
    pub(in crate::hub) fn handle_moves_ordered(
        &mut self,
        cx: &mut Context,
        now: Now,
        to: NodeId,
        reason: MoveReason,
        clients: &[&str],
    ) {
        let rest = cx.config.redirection.rebalance.rest;
        let is_off = self.rebalance_mode(cx) == RebalanceMode::Off;
        for client in clients {
            let last = self.rebalance.moved.get(now.instant, client);
            let rests = last.is_some_and(|last| last.at + rest > now.instant);
            let goes = !is_off
                && !rests
                && self.send_client(cx, now, client, to, RedirectionReason::Rebalanced);
            if goes {
                thicket_session::reach!("hub/rebalance: a client is moved");
                self.rebalance.counts.moves[reason as usize] += 1;
            } else {
                self.rebalance.counts.refused += 1;
            }
        }
    }

    /// A client was sent to a node, by this one or another.
    pub(in crate::hub::placing) fn note_move(
        &mut self,
        now: Now,
        client: &str,
        from: NodeId,
        to: NodeId,
        reason: RedirectionReason,
    ) {
        let last = LastMove {
            at: now.instant,
            at_ms: now.wall.as_unix_millis(),
            from,
            to,
            reason,
            outcome: Outcome::Sent,
        };
        self.rebalance
            .moved
            .insert(now.instant, client.into(), last);
    }

    /// A client connects here: it may have been sent here, or come back instead of going.
    pub(in crate::hub) fn note_arrival(&mut self, cx: &Context, now: Now, claim: &Claim) {
        let name = claim.remembered_as();
        let Some(mut last) = self.rebalance.moved.get(now.instant, name) else {
            return;
        };
        let is_open = last.outcome == Outcome::Sent && last.at + FOLLOWED > now.instant;
        if !is_open {
            return;
        }
        let is_rebalanced = last.reason == RedirectionReason::Rebalanced;
        if last.to == cx.own() {
            last.outcome = Outcome::Followed;
            self.rebalance.counts.followed += u64::from(is_rebalanced);
        } else if last.from == cx.own() {
            last.outcome = Outcome::Ignored;
            if is_rebalanced {
                thicket_session::reach!("hub/rebalance: a client came back");
                self.rebalance.counts.ignored += 1;
                self.leave_alone(now, name);
            }
        } else {
            return;
        }
        self.rebalance.moved.insert(now.instant, name.into(), last);
    }

    /// When a client was last sent anywhere.
    pub(in crate::hub::placing) fn last_move(
        &self,
        now: Now,
        client_id: &str,
    ) -> Option<ClientMove> {
        let is_it = |name: &str| client_id_of(name) == client_id;
        let last = self.rebalance.moved.find(now.instant, is_it)?;
        Some(ClientMove {
            at_ms: last.at_ms,
            from: last.from.to_string(),
            to: last.to.to_string(),
            reason: last.reason.name().to_owned(),
            outcome: last.outcome.name().to_owned(),
        })
    }
}
