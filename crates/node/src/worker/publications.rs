//! What operators publish: messages without a session, answered when all destinations have them.

use std::collections::BTreeMap;

use super::context::Context;
use crate::{Published, WorkerOutput};

/// Publications that wait for acknowledgements; more are refused.
const OPEN: usize = 1024;

/// Publications that are not acknowledged by all yet.
#[derive(Debug, Default)]
pub(super) struct Publications {
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    /// Conditions that are not met.
    left: u16,
    is_refused: bool,
}

impl Publications {
    /// Whether more are refused until some are acknowledged.
    pub(super) fn are_at_limit(&self) -> bool {
        self.open.len() >= OPEN
    }

    /// A publication waits for so many conditions.
    pub(super) fn begin(&mut self, number: u64, left: u16) {
        let is_refused = false;
        self.open.insert(number, Open { left, is_refused });
    }

    /// The message is over the limit of a destination; that one acknowledges it all the same.
    pub(super) fn refuse(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.is_refused = true;
        }
    }

    /// A condition is met that a publication waits for.
    pub(super) fn settle(&mut self, cx: &mut Context, number: u64) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.left = open.left.saturating_sub(1);
        if open.left > 0 {
            return;
        }
        let answer = if open.is_refused {
            Published::NoCapacity
        } else {
            Published::Done
        };
        self.open.remove(&number);
        report_published(cx, number, answer);
    }
}

pub(super) fn report_published(cx: &mut Context, number: u64, answer: Published) {
    cx.outputs
        .push_back(WorkerOutput::Published { number, answer });
}
