//! Messages that operators and the node itself publish.

use thicket_mqtt::{Publish, Qos};

use super::{
    Worker, WorkerOperator,
    capacity::{Audience, exceeds_limits},
    publications::report_published,
    publish::may_publish,
    state::{
        debts::{Debt, Publisher},
        publication::{Outcome, Source},
    },
};
use crate::{Now, Published};

impl Worker {
    /// Publishes a message of the nodes themselves, on a topic that clients cannot publish to. `WorkerOutput::Published` reports the result.
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
            if self.publications.are_at_limit()
                || exceeds_limits(&mut self.cx, now, publish, &route, audience)
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
                self.publications.begin(number, left);
                None
            }
            Outcome::NoRecipients | Outcome::Met | Outcome::Open(_) => Some(Published::Done),
        }
    }
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
