//! What operators publish: messages without a session, answered when all destinations have them.

use std::collections::BTreeMap;

use thicket_mqtt::{Publish, Qos};

use super::{
    Worker, WorkerOperator,
    capacity::{Audience, exceeds_limits},
    context::Context,
    publish::may_publish,
    state::{
        debts::{Debt, Publisher},
        publication::{Outcome, Source},
    },
};
use crate::{Now, Published, WorkerOutput};

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

impl Worker {
    /// The same for a message of the nodes themselves, on a topic that clients cannot publish to.
    pub(super) fn publish_as_node(&mut self, now: Now, number: u64, publish: &Publish<'_>) {
        if let Some(answer) = self.begin_publication(now, number, publish) {
            report_published(&mut self.cx, number, answer);
        }
    }

    /// `None`: the result follows later.
    fn begin_publication(
        &mut self,
        now: Now,
        number: u64,
        publish: &Publish<'_>,
    ) -> Option<Published> {
        let route = self.cx.route(publish.topic);
        let is_acknowledged = publish.qos > Qos::AtMostOnce;
        if is_acknowledged {
            if self.cx.cluster.is_minority {
                return Some(Published::NoQuorum);
            }
            let audience = Audience::Everybody { publisher: None };
            if self.publications.open.len() >= OPEN
                || exceeds_limits(&mut self.cx, publish, &route, audience)
            {
                return Some(Published::NoCapacity);
            }
        }
        let publisher = Debt::Publisher(Publisher::Operator(number));
        let source = Source {
            debt: is_acknowledged.then_some(publisher),
            ..Source::default()
        };
        match self.publish(now, publish, &route, source) {
            Outcome::NoRecipients if !publish.retain => Some(Published::NoSubscribers),
            Outcome::Open(left) if is_acknowledged => {
                let is_refused = false;
                self.publications
                    .open
                    .insert(number, Open { left, is_refused });
                None
            }
            Outcome::NoRecipients | Outcome::Met | Outcome::Open(_) => Some(Published::Done),
        }
    }
}

impl Publications {
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

fn report_published(cx: &mut Context, number: u64, answer: Published) {
    cx.outputs
        .push_back(WorkerOutput::Published { number, answer });
}

impl WorkerOperator<'_> {
    /// Publishes a message as a client would that may publish everything; `WorkerOutput::Published` reports the result under the same number.
    /// `number` is the caller's, new for each.
    pub fn publish_unowned(&mut self, number: u64, publish: &Publish<'_>) {
        let now = self.now;
        let is_reserved = !may_publish(publish.topic.len(), publish.topic)
            || self.worker.cx.route(publish.topic).refusal.is_some();
        if is_reserved {
            report_published(&mut self.worker.cx, number, Published::Reserved);
        } else {
            self.worker.publish_as_node(now, number, publish);
        }
    }
}
