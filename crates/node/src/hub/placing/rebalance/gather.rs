//! Each node is asked for its clients, one page at a time, all nodes at once.

use std::collections::BTreeSet;

use thicket_overlay::NodeId;

use super::{Phase, TIMEOUT, inventory::Inventory};
use crate::{
    Now, RebalanceMode, WorkerId,
    hub::{
        context::Context,
        control::{END, LEARNING, Message},
        placing::{Placing, state::gather::Gathering},
    },
    messages::{ClientActivity, ToWorker},
};

impl Placing {
    pub(super) fn begin_gathering(
        &mut self,
        cx: &mut Context,
        now: Now,
        trigger: &'static str,
        carries_out: bool,
    ) {
        let known = self.known_nodes(cx).into_iter();
        // Clients of a node that drains are moved by that.
        let asked = known.filter(|it| !it.load.is_draining);
        let waiting: BTreeSet<NodeId> = asked.map(|it| it.node).collect();
        self.rebalance.last_round += 1;
        let round = self.rebalance.last_round;
        self.rebalance.phase = Phase::Gathering(Box::new(Gathering {
            round,
            deadline: now.instant + TIMEOUT,
            waiting: waiting.clone(),
            inventory: Inventory::default(),
            trigger,
            carries_out,
        }));
        for node in waiting {
            self.ask_activity(cx, node, round, 0);
        }
    }

    pub(super) fn give_gathering_up(&mut self, cx: &mut Context, now: Now) {
        self.rebalance.phase = Phase::Idle;
        self.rebalance.not_before = now.instant + cx.config.redirection.rebalance.interval;
        self.refuse_rebalance_askers(cx);
    }

    fn ask_activity(&mut self, cx: &mut Context, node: NodeId, round: u64, cursor: u64) {
        if node == cx.own() {
            self.handle_activity_requested(cx, node, round, cursor);
        } else {
            cx.send(node, &Message::ActivityRequested { round, cursor });
        }
    }

    /// The rebalancer asks for clients of this node. A cursor is a worker and one of its connections.
    pub(in crate::hub) fn handle_activity_requested(
        &mut self,
        cx: &mut Context,
        asker: NodeId,
        round: u64,
        cursor: u64,
    ) {
        let worker = cursor >> 32;
        if worker >= u64::from(cx.config.workers) {
            return self.answer_activity(cx, asker, round, END, Vec::new());
        }
        let content = ToWorker::ActivityRequested {
            asker,
            round,
            from: cursor as u32,
        };
        cx.send_to_worker(WorkerId(worker as u8), content);
    }

    /// A worker has listed some of its clients.
    pub(in crate::hub) fn handle_worker_activity(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: WorkerId,
        (asker, round): (NodeId, u64),
        next: Option<u32>,
        mut clients: Vec<ClientActivity>,
    ) {
        let worker = u64::from(from.0);
        let cursor = match next {
            Some(next) => worker << 32 | u64::from(next),
            None if worker + 1 < u64::from(cx.config.workers) => (worker + 1) << 32,
            None => END,
        };
        if asker == cx.own() && round == LEARNING {
            return self.learn_activity(cx, now, cursor, &clients);
        }
        let is_off = self.rebalance_mode(cx) == RebalanceMode::Off;
        for client in &mut clients {
            client.can_move &= !is_off && !self.stays(now, &client.client_id);
        }
        if asker == cx.own() {
            self.handle_activity(cx, now, asker, round, cursor, clients);
        } else {
            self.answer_activity(cx, asker, round, cursor, clients);
        }
    }

    fn answer_activity(
        &mut self,
        cx: &mut Context,
        asker: NodeId,
        round: u64,
        next: u64,
        clients: Vec<ClientActivity>,
    ) {
        cx.send(
            asker,
            &Message::Activity {
                round,
                next,
                clients,
            },
        );
    }

    /// A node has listed some of its clients.
    pub(in crate::hub) fn handle_activity(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        round: u64,
        next: u64,
        clients: Vec<ClientActivity>,
    ) {
        let Phase::Gathering(gathering) = &mut self.rebalance.phase else {
            return;
        };
        if gathering.round != round || !gathering.waiting.contains(&from) {
            return;
        }
        gathering.inventory.add(from, clients);
        if next != END && !gathering.inventory.is_full() {
            return self.ask_activity(cx, from, round, next);
        }
        if next != END {
            gathering.inventory.cut_short(from);
        }
        gathering.waiting.remove(&from);
        self.plan_if_gathered(cx, now);
    }

    fn plan_if_gathered(&mut self, cx: &mut Context, now: Now) {
        match std::mem::replace(&mut self.rebalance.phase, Phase::Idle) {
            Phase::Gathering(gathering) if gathering.waiting.is_empty() => {
                self.begin_plan(cx, now, *gathering);
            }
            phase => self.rebalance.phase = phase,
        }
    }

    /// A node is down: it is not waited for.
    pub(in crate::hub::placing) fn rebalance_loses_node(
        &mut self,
        cx: &mut Context,
        now: Now,
        node: NodeId,
    ) {
        if let Phase::Gathering(gathering) = &mut self.rebalance.phase {
            gathering.waiting.remove(&node);
            self.plan_if_gathered(cx, now);
        }
        match &mut self.rebalance.phase {
            Phase::Planning(planning) => {
                planning.lost.insert(node);
            }
            Phase::Moving(left) => {
                left.retain(|ordered| ordered.from != node && ordered.to != node);
            }
            Phase::Idle | Phase::Gathering(_) => {}
        }
        self.ask_rebalancer_again(cx, now);
    }
}
