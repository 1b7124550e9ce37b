//! Clients that are sent elsewhere while they are connected: a node whose load has been higher than another one's for some seconds gives away as much
//! of it as makes the two even.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | idle | the load is too high | watching: the workers begin to count each client's messages |
//! | watching | no longer too high | idle |
//! | watching | still too high after 2 s | asked: the workers list clients with their rates |
//! | asked | all have | settling: those that fit best are sent away |
//! | settling | after 5 s, when loads show what the moves did | idle |

use std::{sync::Arc, time::Duration};

use thicket_overlay::NodeId;
use thicket_placement::{Excess, Policy};

use crate::{
    EventLevel, Now, RedirectionReason, WorkerId,
    hub::{
        context::Context,
        placing::{Placing, state::moving::Moving},
    },
    messages::{Movable, ToWorker},
};

/// A node gives away only if its load is higher than another one's by this part of the mean.
const MARGIN: f64 = 0.1;
/// How long it must have been higher.
const WATCHED: Duration = Duration::from_secs(2);
/// How long loads take to show the effect of moves.
const SETTLED: Duration = Duration::from_secs(5);
/// Clients sent away at once at most.
const AT_ONCE: u64 = 256;
/// With fewer messages a second than this, clients are counted instead.
const FEW_MESSAGES: u64 = 100;
/// A client with some more messages than should go goes too: rates are measured, and the two are more even after it.
const TOLERANCE: f64 = 1.25;

impl Placing {
    /// Loads were measured again.
    pub(in crate::hub::placing) fn review_load(&mut self, cx: &mut Context, now: Now) {
        self.update_balancer(cx, now);
        let excess = self.own_excess(cx, now);
        match (&self.redirection.moving, excess) {
            (Moving::Settling { until }, _) if *until > now.instant => {}
            (Moving::Asked { .. }, _) => {}
            (_, None) => self.redirection.moving = Moving::Idle,
            (Moving::Idle | Moving::Settling { .. }, Some(_)) => {
                if let Moving::Settling { .. } = self.redirection.moving {
                    thicket_session::reach!("time hub/placing/redirection/moves SETTLED");
                }
                // The answers to this arrive too early, but counting begins.
                self.ask_movable(cx);
                let since = now.instant;
                self.redirection.moving = Moving::Watching { since };
            }
            (Moving::Watching { since }, Some(_)) if now.instant.since(*since) >= WATCHED => {
                thicket_session::reach!("time WATCHED");
                self.ask_movable(cx);
                self.redirection.moving = Moving::Asked {
                    answers: Vec::new(),
                    waiting: usize::from(cx.config.workers),
                };
            }
            (Moving::Watching { .. }, Some(_)) => {}
        }
    }

    fn own_excess(&mut self, cx: &Context, now: Now) -> Option<Excess> {
        let own = &self.loads.own().load;
        let may_move = cx.config.redirection.policy.is_some()
            && !own.is_draining
            && cx.is_ready
            && !cx.overlay.is_in_doubt()
            && !cx.quorum.is_minority();
        if !may_move {
            return None;
        }
        let (now_ms, own) = (now.instant.as_millis(), cx.own().0);
        let elsewhere = Arc::clone(&cx.cluster.elsewhere);
        let suits = |key| elsewhere.has(NodeId(key));
        let balancer = &mut self.redirection.balancer;
        balancer.excess(now_ms, own, MARGIN, suits)
    }

    fn ask_movable(&mut self, cx: &mut Context) {
        cx.send_to_workers(|| ToWorker::MovableAsked);
    }

    /// A worker lists clients that may be sent away.
    pub(in crate::hub) fn handle_movable(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: WorkerId,
        movable: Vec<Movable>,
    ) {
        let Moving::Asked { answers, waiting } = &mut self.redirection.moving else {
            return;
        };
        answers.extend(movable.into_iter().map(|client| (from, client)));
        *waiting -= 1;
        if *waiting > 0 {
            return;
        }
        let answers = std::mem::take(answers);
        if let Some(excess) = self.own_excess(cx, now) {
            self.send_away(cx, now, excess, answers);
        }
        let until = now.instant + SETTLED;
        self.redirection.moving = Moving::Settling { until };
    }

    /// Sends away clients until this node and the other one are even.
    fn send_away(
        &mut self,
        cx: &mut Context,
        now: Now,
        excess: Excess,
        mut clients: Vec<(WorkerId, Movable)>,
    ) {
        let to = NodeId(excess.to);
        let elsewhere = Arc::clone(&cx.cluster.elsewhere);
        clients.retain(|(_, client)| {
            let redirection = &self.redirection;
            redirection
                .recent
                .get(now.instant, &client.client_id)
                .is_none()
                && redirection
                    .staying
                    .get(now.instant, &client.client_id)
                    .is_none()
                && elsewhere.address(to, client.listener).is_some()
                && self.node_of_topics(cx, now, &client.client_id) != Some(cx.own())
        });
        let most = self.redirection.budget.left(now.instant).min(AT_ONCE);
        let own = self.loads.own().load;
        let policy = cx.config.redirection.policy;
        let messages = own.external.messages();
        let is_by_messages = policy != Some(Policy::Connections) && messages >= FEW_MESSAGES;
        let there = self
            .loads
            .of(to)
            .map_or(0, |it| it.load.external.messages());
        let goal = match (is_by_messages, policy) {
            (false, _) => excess.share * own.connections as f64,
            (true, Some(Policy::Cpu)) => excess.share * messages as f64,
            // More exact than the share, in which noise of the CPU counts too.
            (true, _) => messages.saturating_sub(there) as f64 / 2.0,
        };
        let chosen = choose(clients, goal, is_by_messages, most as usize);
        if chosen.is_empty() {
            return;
        }
        let messages: u64 = chosen.iter().map(|(_, client)| client.messages_per_s).sum();
        cx.event(
            EventLevel::Info,
            "clients are sent to a node with less to do",
            vec![
                ("node", to.to_string()),
                ("clients", chosen.len().to_string()),
                ("messages_per_s", messages.to_string()),
            ],
        );
        let references = self.references(cx, now, to);
        for (worker, client) in chosen {
            let name = &*client.client_id;
            self.note_redirected(cx, now, name, name, to, RedirectionReason::Moved);
            let balancer = &mut self.redirection.balancer;
            balancer.sent(now.instant.as_millis(), to.0);
            let send = ToWorker::SendClient {
                client_id: client.client_id,
                to: Arc::clone(&references),
            };
            cx.send_to_worker(worker, send);
        }
    }
}

/// Clients that have about `goal` messages a second together, those with most first; or `goal` clients, those with fewest first.
fn choose(
    mut clients: Vec<(WorkerId, Movable)>,
    goal: f64,
    is_by_messages: bool,
    most: usize,
) -> Vec<(WorkerId, Movable)> {
    clients.sort_by_key(|(_, client)| client.messages_per_s);
    if !is_by_messages {
        clients.truncate(most.min(goal as usize));
        return clients;
    }
    let (mut left, mut chosen) = (goal, Vec::new());
    for client in clients.into_iter().rev() {
        let rate = client.1.messages_per_s as f64;
        if chosen.len() < most && rate > 0.0 && rate <= left * TOLERANCE {
            left -= rate;
            chosen.push(client);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ListenerId;

    fn clients(rates: &[u64]) -> Vec<(WorkerId, Movable)> {
        let client = |(index, rate): (usize, &u64)| {
            let movable = Movable {
                client_id: index.to_string().into(),
                listener: ListenerId(0),
                messages_per_s: *rate,
            };
            (WorkerId(0), movable)
        };
        rates.iter().enumerate().map(client).collect()
    }

    fn chosen(rates: &[u64], goal: f64, is_by_messages: bool) -> Vec<u64> {
        let chosen = choose(clients(rates), goal, is_by_messages, 3);
        chosen
            .iter()
            .map(|(_, client)| client.messages_per_s)
            .collect()
    }

    #[test]
    fn those_that_fit_best_into_what_is_to_go_are_chosen() {
        let rates = [2_000, 10_000, 2_050, 0, 1_990];
        assert_eq!(chosen(&rates, 4_000.0, true), [2_050, 2_000]);
        assert_eq!(chosen(&rates, 1_900.0, true), [2_050]);
        assert_eq!(chosen(&rates, 1_000.0, true), [0; 0], "each is too much");
        assert_eq!(
            chosen(&rates, 100_000.0, true),
            [10_000, 2_050, 2_000],
            "three at once"
        );
        assert_eq!(chosen(&rates, 2.9, false), [0, 1_990]);
    }
}
