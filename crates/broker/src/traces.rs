//! Spans of messages: the workers' events with the times that the shell adds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use thicket_node::{SpanContext, Traced, Tracing, WorkerId};
use thicket_telemetry::{Attribute, Exporter, Role, Span, unix_nanos};

/// Publications of a thread whose acknowledgements are pending; beyond it the oldest one's span is dropped.
const OPEN: usize = 1024;

/// How a node traces. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TracePlan {
    pub(crate) tracing: Tracing,
    pub(crate) exporter: Arc<Exporter>,
    /// The node's name, for people.
    pub(crate) node: Arc<str>,
}

/// The spans of one thread.
#[derive(Debug)]
pub(crate) struct Traces {
    plan: TracePlan,
    worker: WorkerId,
    /// Spans that have begun, by identifier.
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    began: Instant,
    span: Span,
}

impl Traces {
    pub(crate) fn new(plan: TracePlan, worker: WorkerId) -> Self {
        Self {
            plan,
            worker,
            open: HashMap::new(),
        }
    }

    /// Notes an event of the round that began at `began`.
    pub(crate) fn note(&mut self, began: Instant, traced: Traced) {
        match traced {
            Traced::Published {
                span,
                parent,
                client_id,
                topic,
                qos,
            } => {
                let mut span = self.span(began, span, parent, "publish", Role::Server);
                self.describe(&mut span, &topic, qos);
                let client_id = client_id.map(|it| ("client_id", Attribute::text(&it)));
                span.attributes.extend(client_id);
                self.keep(Open { began, span });
            }
            Traced::Acknowledged { span_id } => {
                if let Some(Open { began, mut span }) = self.open.remove(&span_id) {
                    span.end_unix_nanos = span.start_unix_nanos + nanos_since(began);
                    self.plan.exporter.submit(span);
                }
            }
            Traced::Delivered {
                span,
                parent,
                topic,
                qos,
                recipients,
            } => {
                let mut span = self.span(began, span, Some(parent), "deliver", Role::Producer);
                self.describe(&mut span, &topic, qos);
                let recipients = i64::try_from(recipients).unwrap_or(i64::MAX);
                span.attributes
                    .push(("recipients", Attribute::Integer(recipients)));
                self.plan.exporter.submit(span);
            }
            Traced::Sent {
                span,
                parent,
                client_id,
                topic,
                qos,
            } => {
                let mut span = self.span(began, span, Some(parent), "send", Role::Producer);
                self.describe(&mut span, &topic, qos);
                span.attributes
                    .push(("client_id", Attribute::text(&client_id)));
                self.plan.exporter.submit(span);
            }
        }
    }

    /// A span from the beginning of the round until now.
    fn span(
        &self,
        began: Instant,
        context: SpanContext,
        parent: Option<SpanContext>,
        name: &'static str,
        role: Role,
    ) -> Span {
        let end = unix_nanos(SystemTime::now());
        Span {
            trace_id: context.trace_id.to_be_bytes(),
            span_id: context.span_id.to_be_bytes(),
            parent: parent.map(|it| it.span_id.to_be_bytes()),
            name,
            role,
            start_unix_nanos: end.saturating_sub(nanos_since(began)),
            end_unix_nanos: end,
            attributes: Vec::new(),
        }
    }

    fn describe(&self, span: &mut Span, topic: &str, qos: u8) {
        span.attributes.extend([
            ("messaging.system", Attribute::text("mqtt")),
            ("messaging.operation.name", Attribute::text(span.name)),
            ("messaging.destination.name", Attribute::text(topic)),
            ("qos", Attribute::Integer(qos.into())),
            ("node", Attribute::text(&self.plan.node)),
            ("worker", Attribute::Integer(self.worker.0.into())),
        ]);
    }

    fn keep(&mut self, open: Open) {
        if self.open.len() >= OPEN
            && let Some((oldest, _)) = self.open.iter().min_by_key(|(_, it)| it.began)
        {
            let oldest = *oldest;
            self.open.remove(&oldest);
            self.plan.exporter.note_dropped();
        }
        let span_id = u64::from_be_bytes(open.span.span_id);
        self.open.insert(span_id, open);
    }
}

fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
