//! Operators ask any node; it asks the rebalancer.

use std::time::Duration;

use thicket_overlay::NodeId;

use super::Phase;
use crate::{
    Now, RebalanceError, RebalanceMode, RebalanceWish,
    hub::{
        Message,
        context::Context,
        placing::{
            Placing,
            state::ask::{Answer, Own},
        },
    },
};

/// Questions under way at a time, and answers that were not fetched.
const PENDING: usize = 64;
/// How long a question, or its answer, waits.
const KEPT: Duration = Duration::from_secs(10);

impl Placing {
    /// See [`crate::HubOperator::ask_rebalance`].
    pub(in crate::hub) fn ask_rebalance(
        &mut self,
        cx: &mut Context,
        now: Now,
        wish: RebalanceWish,
    ) -> u64 {
        let asks = &mut self.rebalance.asks;
        asks.last += 1;
        let number = asks.last;
        while asks.own.len() >= PENDING {
            asks.own.pop_first();
        }
        let own = Own {
            until: now.instant + KEPT,
            wish,
            answer: None,
        };
        asks.own.insert(number, own);
        self.ask_rebalancer(cx, now, number);
        number
    }

    /// See [`crate::HubOperator::rebalance_answer`].
    pub(in crate::hub) fn rebalance_answer(&mut self, number: u64) -> Option<Answer> {
        let asks = &mut self.rebalance.asks;
        let Some(own) = asks.own.get_mut(&number) else {
            return Some(Err(RebalanceError::Unsure));
        };
        let answer = own.answer.take()?;
        asks.own.remove(&number);
        Some(answer)
    }

    fn ask_rebalancer(&mut self, cx: &mut Context, now: Now, number: u64) {
        let Some(own) = self.rebalance.asks.own.get(&number) else {
            return;
        };
        let wish = own.wish;
        let rebalancer = self.rebalancer(cx);
        if self.rebalance_mode(cx) == RebalanceMode::Off {
            self.take_answer(number, Err(RebalanceError::Off));
        } else if rebalancer == cx.own() {
            self.handle_rebalance_asked(cx, now, rebalancer, number, wish);
        } else {
            let request = number;
            cx.send(rebalancer, &Message::RebalanceAsked { request, wish });
        }
    }

    /// The former rebalancer may not have answered.
    pub(super) fn ask_rebalancer_again(&mut self, cx: &mut Context, now: Now) {
        let open = self.rebalance.asks.own.iter();
        let open = open.filter(|(_, own)| own.answer.is_none());
        for number in open.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.ask_rebalancer(cx, now, number);
        }
    }

    /// A node asks this one as the rebalancer.
    pub(in crate::hub) fn handle_rebalance_asked(
        &mut self,
        cx: &mut Context,
        now: Now,
        asker: NodeId,
        number: u64,
        wish: RebalanceWish,
    ) {
        if !self.is_rebalancer(cx) {
            let error = match self.rebalance_mode(cx) {
                RebalanceMode::Off => RebalanceError::Off,
                RebalanceMode::Suggest | RebalanceMode::On => RebalanceError::Unsure,
            };
            return self.answer_rebalance(cx, asker, number, Err(error));
        }
        let carries_out = wish == RebalanceWish::Move;
        match &mut self.rebalance.phase {
            _ if wish == RebalanceWish::Show => {
                let report = self.rebalance_report(cx);
                self.answer_rebalance(cx, asker, number, Ok(report));
            }
            Phase::Moving(_) => {
                self.answer_rebalance(cx, asker, number, Err(RebalanceError::Moving));
            }
            Phase::Gathering(gathering) => {
                gathering.carries_out |= carries_out;
                self.rebalance.asks.waiting.push((asker, number));
            }
            Phase::Planning(planning) => {
                planning.carries_out |= carries_out;
                self.rebalance.asks.waiting.push((asker, number));
            }
            Phase::Idle => {
                self.rebalance.asks.waiting.push((asker, number));
                self.begin_gathering(cx, now, "asked", carries_out);
            }
        }
    }

    /// The plan is made.
    pub(super) fn answer_rebalance_askers(&mut self, cx: &mut Context) {
        let report = self.rebalance_report(cx);
        for (asker, number) in std::mem::take(&mut self.rebalance.asks.waiting) {
            self.answer_rebalance(cx, asker, number, Ok(report.clone()));
        }
    }

    /// There will be no plan.
    pub(super) fn refuse_rebalance_askers(&mut self, cx: &mut Context) {
        for (asker, number) in std::mem::take(&mut self.rebalance.asks.waiting) {
            self.answer_rebalance(cx, asker, number, Err(RebalanceError::Unsure));
        }
    }

    fn answer_rebalance(&mut self, cx: &mut Context, asker: NodeId, request: u64, answer: Answer) {
        if asker == cx.own() {
            return self.take_answer(request, answer);
        }
        let answer = answer.map(|report| serde_json::to_string(&report).unwrap_or_default());
        cx.send(asker, &Message::RebalanceAnswered { request, answer });
    }

    /// The rebalancer has answered: a report as JSON, or why there is none.
    pub(in crate::hub) fn handle_rebalance_answered(
        &mut self,
        number: u64,
        answer: Result<String, RebalanceError>,
    ) {
        let read =
            |report: String| serde_json::from_str(&report).map_err(|_| RebalanceError::Unsure);
        self.take_answer(number, answer.and_then(read));
    }

    fn take_answer(&mut self, number: u64, answer: Answer) {
        if let Some(own) = self.rebalance.asks.own.get_mut(&number) {
            own.answer = Some(answer);
        }
    }

    pub(super) fn expire_rebalance_asks(&mut self, now: Now) {
        let own = &mut self.rebalance.asks.own;
        own.retain(|_, own| own.until > now.instant);
    }
}
