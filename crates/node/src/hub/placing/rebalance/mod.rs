//! The rebalancer: one node at a time that examines all clients and has them moved to where there is capacity, and where their topics are.
//!
//! It is chosen by rendezvous hash over the nodes that are up, so it is chosen again when they change; each side of a partitioned cluster has its
//! own. It only orders moves: a client and its session then move as after any redirection while connected (`redirection`); how a session changes
//! hands is not handled here.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | idle | the nodes, their loads or their traffic have changed enough (`trend`), clients were moved, or an operator asks | gathering: each node is asked for its clients, page by page |
//! | gathering | all have answered | planning (`task`): by `several`, else `placement::plan_moves` |
//! | planning | the plan is made | moving if moves are to be carried out, else idle |
//! | gathering | one has not within [`TIMEOUT`] | idle; asked again after an interval |
//! | moving | each second | some more moves are ordered of the nodes where the clients are |
//! | moving | all are ordered | idle; for two intervals loads show what they did, then it checks whether that is enough |
//! | idle | a node is drained | idle until all its clients have rested |
//! | any | this node is not the rebalancer any more, or lacks the state of the others | idle, all state forgotten |
//!
//! What keeps it from doing too much: a client that was sent anywhere stays for the configured rest, one that came back is left alone for an hour,
//! both noted by its node and sent to all; a plan that gains too little is empty; nothing is gathered while nothing changes.

mod ask;
mod gather;
pub(super) mod inventory;
mod orders;
mod several;
mod task;
pub(super) mod trend;

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use thicket_overlay::{NodeId, rendezvous};
use thicket_placement::{Distances, Plan, Sizing, SizingReading};

pub use self::task::{RebalanceDone, RebalanceTask};
use self::{inventory::KnownNode, trend::Trend};
use super::Placing;
use crate::{
    BalanceEntry, EventLevel, HubOutput, MoveEntry, Now, RebalanceCounts, RebalanceMode,
    RebalancePlan, RebalanceReport,
    hub::{
        context::Context,
        placing::state::{
            gather::Gathering,
            rebalance::{Ordered, Orders, Phase, Planning},
        },
    },
    scope::client_id_of,
};

/// The key of the rendezvous hash that chooses the rebalancer.
const RENDEZVOUS_KEY: &str = "thicket-rebalancer";
/// A node that has not answered by then is not waited for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Moves that a report lists, and bytes of their clients: it fits into a message between nodes.
const REPORTED: (usize, usize) = (1_000, 64 * 1024);
/// Clients of one order to a node.
const BATCH: usize = 100;

impl Placing {
    /// Once a second, when loads were measured.
    pub(super) fn review_rebalance(&mut self, cx: &mut Context, now: Now) {
        self.expire_rebalance_asks(now);
        if !self.is_rebalancer(cx) {
            if self.rebalance.counts.is_rebalancer {
                self.end_term(cx);
            }
            return;
        }
        self.rebalance.counts.is_rebalancer = true;
        let nodes = self.known_nodes(cx);
        self.rebalance.trend.follow(&nodes);
        self.size_up(now, &nodes);
        if nodes.iter().any(KnownNode::is_being_emptied) {
            // Its clients are moved by that, and rest as others do.
            let rest = cx.config.redirection.rebalance.rest;
            let rested = now.instant + rest;
            self.rebalance.not_before = self.rebalance.not_before.max(rested);
        }
        match &self.rebalance.phase {
            Phase::Idle if self.rebalance.not_before <= now.instant => {
                let noise = f64::from(cx.config.redirection.rebalance.noise);
                let rebalance = &self.rebalance;
                let trigger = if rebalance.has_moved {
                    Some("moved")
                } else {
                    let planned_at = rebalance.planned_at.as_ref();
                    rebalance.trend.differs(planned_at, noise)
                };
                if let Some(trigger) = trigger {
                    let carries_out = self.rebalance_mode(cx) == RebalanceMode::On;
                    self.begin_gathering(cx, now, trigger, carries_out);
                }
            }
            Phase::Idle => {}
            Phase::Gathering(gathering) if gathering.deadline <= now.instant => {
                thicket_session::reach!("time hub/placing/rebalance/mod TIMEOUT");
                self.give_gathering_up(cx, now);
            }
            Phase::Gathering(_) | Phase::Planning(_) => {}
            Phase::Moving(_) => self.order_some(cx, now),
        }
    }

    fn rebalance_mode(&self, cx: &Context) -> RebalanceMode {
        cx.config.redirection.rebalance.mode
    }

    /// Whether this node was drawn, and has the state of the others.
    fn is_rebalancer(&self, cx: &Context) -> bool {
        self.rebalance_mode(cx) != RebalanceMode::Off
            && cx.is_ready
            && !cx.overlay.is_in_doubt()
            && !cx.quorum.is_minority()
            && self.rebalancer(cx) == cx.own()
    }

    fn end_term(&mut self, cx: &mut Context) {
        let rebalance = &mut self.rebalance;
        rebalance.phase = Phase::Idle;
        (rebalance.trend, rebalance.planned_at) = (Trend::default(), None);
        rebalance.has_moved = false;
        (rebalance.sizing, rebalance.plan) = (Sizing::default(), None);
        rebalance.counts.is_rebalancer = false;
        rebalance.counts.desired_nodes = None;
        self.refuse_rebalance_askers(cx);
    }

    /// Of the nodes that support rebalancing.
    fn rebalancer(&self, cx: &Context) -> NodeId {
        rendezvous(RENDEZVOUS_KEY, &cx.overlay.reachable()).unwrap_or(cx.own())
    }

    /// The nodes that report their state, this one included.
    fn known_nodes(&self, cx: &Context) -> Vec<KnownNode> {
        let own = (cx.own(), self.loads.own());
        let known = self
            .loads
            .others()
            .chain([own])
            .map(|(node, state)| KnownNode {
                node,
                load: state.load,
                takes_clients: state.serves(),
            });
        known.collect()
    }

    /// How many nodes the load needs.
    fn size_up(&mut self, now: Now, nodes: &[KnownNode]) {
        let serving = nodes.iter().filter(|known| known.takes_clients);
        let cpu: Option<Vec<f64>> = serving
            .clone()
            .map(|known| known.load.cpu_permille.map(|cpu| f64::from(cpu) / 1000.0))
            .collect();
        let sum = |of: fn(&KnownNode) -> u64| serving.clone().map(of).sum::<u64>() as f64;
        let internal = sum(|it| it.load.internal.messages());
        let external = sum(|it| it.load.external.messages());
        self.rebalance.counts.desired_nodes = cpu.filter(|all| !all.is_empty()).map(|all| {
            self.rebalance.sizing.desired(SizingReading {
                at_ms: now.instant.as_millis(),
                nodes: all.len(),
                cpu: all.iter().sum(),
                internal_share: internal / (internal + external).max(1.0),
            })
        });
    }

    /// All have answered: the plan is made, on a thread of its own.
    fn begin_plan(&mut self, cx: &mut Context, now: Now, gathering: Gathering) {
        let Gathering {
            round,
            inventory,
            trigger,
            carries_out,
            ..
        } = gathering;
        let nodes = self.known_nodes(cx);
        let rest = cx.config.redirection.rebalance.rest;
        let at = now.instant;
        let has_rested = |name: &str| {
            let last = self.rebalance.moved.get(at, name);
            last.is_none_or(|last| last.at + rest <= at)
        };
        let several = self.clients_with_several(now, &inventory, has_rested);
        let by_topics = cx.config.redirection.by_topics;
        // Where it is placed it belongs, if it is moved by topics.
        let belongs = |name: &str| by_topics && self.placed_at(now, name).is_some();
        let may_move = |name: &str| has_rested(name) && !several.has(name) && !belongs(name);
        let clients = inventory.all();
        let may_move = clients.map(|(_, client)| may_move(&client.client_id));
        let may_move = may_move.collect();
        let between = |from: usize, to: usize| {
            let sites = &self.sites;
            sites.message_cost(cx, nodes[from].node, nodes[to].node)
        };
        // No cost is below 1.
        let distances = Distances::new(nodes.len(), between).unwrap_or_default();
        let rates = self.rates_by_node(cx);
        let rates = rates.map(|(node, rates)| (node, rates.clone())).collect();
        let task = RebalanceTask {
            round,
            inventory,
            nodes,
            rates,
            may_move,
            several,
            distances,
        };
        self.rebalance.phase = Phase::Planning(Planning {
            round,
            trigger,
            carries_out,
            lost: BTreeSet::new(),
        });
        cx.outputs.push_back(HubOutput::Plan(Box::new(task)));
    }

    /// The plan is made; it is void if this node is not the rebalancer any more.
    pub(in crate::hub) fn handle_planned(
        &mut self,
        cx: &mut Context,
        now: Now,
        done: RebalanceDone,
    ) {
        let Planning {
            trigger,
            carries_out,
            lost,
            ..
        } = match std::mem::replace(&mut self.rebalance.phase, Phase::Idle) {
            Phase::Planning(planning) if planning.round == done.round => planning,
            phase => {
                self.rebalance.phase = phase;
                return;
            }
        };
        // A dry run does not perform what is due.
        if carries_out || self.rebalance_mode(cx) != RebalanceMode::On {
            self.rebalance.planned_at = Some(self.rebalance.trend.clone());
            self.rebalance.has_moved = false;
        }
        self.rebalance.not_before = now.instant + cx.config.redirection.rebalance.interval;
        let Some((plan, mut ordered)) = done.planned else {
            return self.refuse_rebalance_askers(cx);
        };
        self.rebalance.counts.plans += 1;
        let report = report_of(now, trigger, done.counts, carries_out, &plan, &ordered);
        self.log_plan(cx, &report);
        self.rebalance.plan = Some(report);
        ordered.retain(|it| !lost.contains(&it.from) && !lost.contains(&it.to));
        if carries_out && !ordered.is_empty() {
            self.rebalance.phase = Phase::Moving(ordered);
            self.order_some(cx, now);
        }
        self.answer_rebalance_askers(cx);
    }

    fn log_plan(&mut self, cx: &mut Context, plan: &RebalancePlan) {
        if plan.move_count == 0 {
            return;
        }
        let message = if plan.carried_out {
            "clients are moved to other nodes"
        } else {
            "clients would be better at other nodes"
        };
        let round = |value: f64| format!("{value:.1}");
        let precise = |value: f64| format!("{value:.3}");
        let (before, after) = (&plan.before, &plan.after);
        let fields = vec![
            ("clients", plan.move_count.to_string()),
            ("trigger", plan.trigger.clone()),
            ("internal_before", round(before.internal_messages_per_s)),
            ("internal_after", round(after.internal_messages_per_s)),
            ("jain_before", precise(before.jain)),
            ("jain_after", precise(after.jain)),
        ];
        cx.event(EventLevel::Info, message, fields);
    }

    /// The report of this node as the rebalancer.
    fn rebalance_report(&self, cx: &Context) -> RebalanceReport {
        let nodes = self.known_nodes(cx);
        let serving = nodes.iter().filter(|known| known.takes_clients);
        let desired_nodes = self.rebalance.counts.desired_nodes;
        let is_large = desired_nodes.is_some_and(|desired| desired < serving.clone().count());
        let cheapest = serving.min_by_key(|known| known.load.connections);
        RebalanceReport {
            rebalancer: cx.own().to_string(),
            mode: self.rebalance_mode(cx).name().to_owned(),
            state: self.rebalance.phase.name().to_owned(),
            plan: self.rebalance.plan.clone(),
            desired_nodes,
            cheapest_to_empty: cheapest
                .filter(|_| is_large)
                .map(|known| known.node.to_string()),
        }
    }

    /// See [`crate::HubView::rebalance_counts`].
    pub(in crate::hub) const fn rebalance_counts(&self) -> &RebalanceCounts {
        &self.rebalance.counts
    }
}

fn report_of(
    now: Now,
    trigger: &str,
    (clients, movable): (usize, usize),
    carried_out: bool,
    plan: &Plan,
    ordered: &VecDeque<Ordered>,
) -> RebalancePlan {
    let balance = |balance: thicket_placement::Balance| BalanceEntry {
        internal_messages_per_s: balance.internal,
        jain: balance.jain,
        peak: balance.peak,
    };
    let mut bytes = 0;
    let moves = plan.moves.iter().zip(ordered).take(REPORTED.0);
    let moves = moves.take_while(|(_, ordered)| {
        bytes += ordered.client_id.len();
        bytes <= REPORTED.1
    });
    let moves = moves.map(|(step, ordered)| MoveEntry {
        client_id: client_id_of(&ordered.client_id).to_owned(),
        from: ordered.from.to_string(),
        to: ordered.to.to_string(),
        reason: step.reason.name().to_owned(),
        saves_messages_per_s: step.saves,
    });
    RebalancePlan {
        at_ms: now.wall.as_unix_millis(),
        trigger: trigger.to_owned(),
        clients,
        movable,
        before: balance(plan.before),
        after: balance(plan.after),
        carried_out,
        move_count: plan.moves.len(),
        ordered: 0,
        moves: moves.collect(),
    }
}
