//! Messages that the shell observes or traces, on their way through a worker: see `observe` and `trace`.

use thicket_mqtt::{ApplicationProperties, Publish};
use thicket_overlay::record::Record;

use super::{
    Worker,
    forward::Taken,
    observe::note_message,
    state::{
        debts::{Debt, Publisher},
        interests::{Recipient, Route},
        publication::{Outcome, Source},
        records::publish_of,
    },
    trace::{
        Belonging, belonging, client_id, is_drawn, line, marked_properties, new_span, note_traced,
        trace_delivery,
    },
};
use crate::{
    Now, Peer, Traced,
    messages::{Origin, Way},
};

impl Worker {
    /// A message that the shell observes, or may want to trace. Not cold: where messages are traced, all take this path.
    #[inline(never)]
    pub(super) fn publish_observed(
        &mut self,
        now: Now,
        publish: &Publish<'_>,
        route: &Route,
        source: Source<'_>,
    ) -> Outcome {
        if self.cx.interests.is_observed(publish.topic) {
            note_message(&mut self.cx, publish, source.session);
        }
        let Some(tracing) = self.cx.observed.traces else {
            return self.publish_unobserved(now, publish, route, source);
        };
        let (own, parent) = match belonging(&publish.properties) {
            Belonging::To(parent) => (new_span(&mut self.cx, parent.trace_id), Some(parent)),
            Belonging::None if is_drawn(&mut self.cx, tracing) => {
                let trace_id = self.cx.random.next_u128().max(1);
                (new_span(&mut self.cx, trace_id), None)
            }
            Belonging::None | Belonging::Unsampled => {
                return self.publish_unobserved(now, publish, route, source);
            }
        };
        let properties;
        let marked;
        let publish = if parent.is_some() {
            publish
        } else {
            properties = marked_properties(&publish.properties, own);
            marked = Publish {
                // What was written here can be read.
                properties: ApplicationProperties::from_encoded(&properties).unwrap_or_default(),
                ..*publish
            };
            &marked
        };
        let client_id = source.session.and_then(|key| client_id(&self.cx, key));
        note_traced(
            &mut self.cx,
            Traced::Published {
                span: own,
                parent,
                client_id,
                topic: publish.topic.to_owned(),
                qos: publish.qos as u8,
            },
        );
        let before = self.cx.traffic.external_out_messages;
        let outcome = self.publish_unobserved(now, publish, route, source);
        let sender = source.session;
        trace_delivery(
            &mut self.cx,
            &route.recipients,
            publish,
            sender,
            parent.unwrap_or(own),
            before,
        );
        match (outcome, source.debt) {
            (Outcome::Open(open), Some(Debt::Publisher(Publisher::Client(owed)))) => {
                self.traces
                    .begin(now.instant, line(&owed), own.span_id, open);
            }
            (Outcome::NoRecipients | Outcome::Met | Outcome::Open(_), _) => {
                note_traced(
                    &mut self.cx,
                    Traced::Acknowledged {
                        span_id: own.span_id,
                    },
                );
            }
        }
        outcome
    }

    /// Uses the one function that publishes: with a second copy of it, the compiler makes each message slower, traced or not.
    fn publish_unobserved(
        &mut self,
        now: Now,
        publish: &Publish<'_>,
        route: &Route,
        source: Source<'_>,
    ) -> Outcome {
        route.is_observed.set(false);
        let outcome = self.publish(now, publish, route, source);
        route.is_observed.set(true);
        outcome
    }

    /// A message that arrived from another worker or node.
    #[inline(never)]
    pub(super) fn deliver_traced(
        &mut self,
        now: Now,
        from: Peer,
        origin: Origin,
        record: &Record<'_>,
        way: Way,
    ) -> Taken {
        let before = self.cx.traffic.external_out_messages;
        let taken = self.deliver_record(now, from, origin, record, way);
        if let Belonging::To(parent) = belonging(&record.properties) {
            let (publish, _) = publish_of(record, now);
            let route = self.cx.route(record.topic);
            let recipients: &[Recipient] = if record.shared.is_empty() {
                &route.recipients
            } else {
                &[]
            };
            trace_delivery(&mut self.cx, recipients, &publish, None, parent, before);
        }
        taken
    }
}
