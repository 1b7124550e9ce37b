//! Events for receivers: selects the events that each hook wants, and hands them to the hook's queue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use thicket_hooks::{Hook, HookError, Statistics, Value};
use thicket_node::{
    CLIENT_CONNECTED, CLIENT_DISCONNECTED, CONNECT_REFUSED, Event, NO_QUORUM, NODE_DOWN,
    NODE_REMOVED, NODE_UP, Observed, ObservedMessage, PARTITIONED, QUORUM, READY, SESSION_CREATED,
    SESSION_ENDED, SESSION_MOVED, SESSIONS_FAILED_OVER, SUBSCRIBED, UNSUBSCRIBED,
};
use thicket_session::topic::TopicFilter;

use crate::config::{HookKind, HookPlan};
use crate::event::{self, SessionName};

/// All hooks of a node.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    receivers: Vec<Receiver>,
    /// Number of the last event.
    number: AtomicU64,
    is_draining: AtomicBool,
}

#[derive(Debug)]
struct Receiver {
    hook: Hook,
    kinds: Vec<HookKind>,
    filters: Vec<TopicFilter>,
}

impl Hooks {
    /// Starts the hooks of the node with this name. `run` identifies this run of the node.
    pub(crate) fn start(plans: &[HookPlan], node: &str, run: &str) -> Result<Self, HookError> {
        let start = |plan: &HookPlan| {
            Ok(Receiver {
                hook: Hook::start(plan.config.clone(), node, run)?,
                kinds: plan.kinds.clone(),
                filters: plan.filters.clone(),
            })
        };
        Ok(Self {
            receivers: plans.iter().map(start).collect::<Result<_, HookError>>()?,
            ..Self::default()
        })
    }

    /// What the workers must report for hooks; `None`: nothing beyond their usual events.
    pub(crate) fn observed(&self) -> Option<Observed> {
        let wanted = |kind| self.receivers.iter().any(|it| it.kinds.contains(&kind));
        let filters = self.receivers.iter().flat_map(|it| it.filters.clone());
        let observed = Observed {
            subscriptions: wanted(HookKind::Subscribe) || wanted(HookKind::Unsubscribe),
            sessions: wanted(HookKind::Session),
            filters: filters.collect(),
            traces: None,
        };
        let is_some = observed.subscriptions || observed.sessions || !observed.filters.is_empty();
        is_some.then_some(observed)
    }

    /// Notes an event of a worker or hub.
    pub(crate) fn note(&self, event: &Event) {
        if self.receivers.is_empty() {
            return;
        }
        let Some((kind, name)) = kind_of(event.message) else {
            return;
        };
        if self.receivers.iter().any(|it| it.kinds.contains(&kind)) {
            let mut fields: Vec<_> = event.fields.iter().filter_map(field).collect();
            let reason = match event.message {
                NO_QUORUM => Some("no quorum"),
                PARTITIONED => Some("partial partition"),
                _ => None,
            };
            fields.extend(reason.map(|reason| ("reason", Value::Text(reason.into()))));
            self.submit(name, fields, |it| it.kinds.contains(&kind));
        }
    }

    /// This node drains: it refuses clients and hands its sessions over.
    pub(crate) fn note_draining(&self) {
        if !self.is_draining.swap(true, Ordering::Relaxed) {
            let wants = |it: &Receiver| it.kinds.contains(&HookKind::Cluster);
            self.submit("node.draining", Vec::new(), wants);
        }
    }

    /// It does so no longer.
    pub(crate) fn note_drain_ended(&self) {
        self.is_draining.store(false, Ordering::Relaxed);
    }

    /// A message was published at this node.
    pub(crate) fn note_message(&self, message: ObservedMessage) {
        let topic = message.topic.clone();
        let wants = |it: &Receiver| it.filters.iter().any(|filter| filter.matches(&topic));
        self.submit("message.published", fields_of(message), wants);
    }

    fn submit(
        &self,
        name: &'static str,
        fields: Vec<(&'static str, Value)>,
        wants: impl Fn(&Receiver) -> bool,
    ) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let event = thicket_hooks::Event {
            number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
            time_ms: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            name,
            fields,
        };
        for receiver in self.receivers.iter().filter(|it| wants(it)) {
            receiver.hook.submit(event.clone());
        }
    }

    /// Name and counters of each hook.
    pub(crate) fn statistics(&self) -> Vec<(&str, Statistics)> {
        let each = self.receivers.iter().map(|it| &it.hook);
        each.map(|hook| (hook.name(), hook.statistics())).collect()
    }

    /// Accepts no more events and delivers the queued ones, as far as the receivers accept them within a request's timeout.
    pub(crate) fn close(&self) {
        for receiver in &self.receivers {
            receiver.hook.close();
        }
    }
}

/// The kind of an event, and its name for receivers.
fn kind_of(message: &str) -> Option<(HookKind, &'static str)> {
    Some(match message {
        CLIENT_CONNECTED => (HookKind::Connect, "client.connected"),
        CONNECT_REFUSED => (HookKind::Connect, "client.refused"),
        CLIENT_DISCONNECTED => (HookKind::Disconnect, "client.disconnected"),
        SUBSCRIBED => (HookKind::Subscribe, "client.subscribed"),
        UNSUBSCRIBED => (HookKind::Unsubscribe, "client.unsubscribed"),
        SESSION_CREATED => (HookKind::Session, "session.created"),
        SESSION_ENDED => (HookKind::Session, "session.ended"),
        SESSION_MOVED => (HookKind::Session, "session.moved"),
        SESSIONS_FAILED_OVER => (HookKind::Session, "session.failed_over"),
        READY => (HookKind::Cluster, "node.ready"),
        NODE_UP => (HookKind::Cluster, "node.up"),
        NODE_DOWN => (HookKind::Cluster, "node.down"),
        NODE_REMOVED => (HookKind::Cluster, "node.removed"),
        NO_QUORUM | PARTITIONED => (HookKind::Cluster, "cluster.partitioned"),
        QUORUM => (HookKind::Cluster, "cluster.healed"),
        _ => return None,
    })
}

fn field((key, value): &(&'static str, String)) -> Option<(&'static str, Value)> {
    let text = |text: &str| Value::Text(text.to_owned());
    Some(match (*key, value.as_str()) {
        (_, "") => return None,
        ("client_id", name) => ("client_id", text(SessionName::of(name).client_id)),
        ("user_name", name) => ("user", text(name)),
        ("peer", peer) => ("address", text(peer)),
        ("session_present", flag) => ("session_present", Value::Flag(flag == "true")),
        (key @ ("qos" | "nodes" | "members" | "reachable" | "sessions"), value) => {
            let number = value.parse().map(Value::Number);
            (key, number.unwrap_or_else(|_| text(value)))
        }
        (key, value) => (key, text(event::shown(key, value))),
    })
}

fn fields_of(message: ObservedMessage) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("topic", Value::Text(message.topic)),
        ("payload", Value::Bytes(message.payload)),
        ("qos", Value::Number(message.qos.into())),
        ("retain", Value::Flag(message.retain)),
    ];
    let texts = [
        ("client_id", message.client_id),
        ("user", message.user_name),
        ("address", message.peer),
        ("content_type", message.content_type),
        ("response_topic", message.response_topic),
    ];
    let texts = texts.into_iter();
    fields.extend(texts.filter_map(|(key, text)| Some((key, Value::Text(text?)))));
    let data = message.correlation_data.map(Value::Bytes);
    fields.extend(data.map(|data| ("correlation_data", data)));
    let expiry = message.message_expiry_interval.map(u64::from);
    fields.extend(expiry.map(|expiry| ("message_expiry_interval", Value::Number(expiry))));
    if !message.user_properties.is_empty() {
        fields.push(("user_properties", Value::Pairs(message.user_properties)));
    }
    fields
}
