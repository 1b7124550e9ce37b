//! Topics under `$SYS/`, on which a node reports about itself. Each worker delivers them to its own subscribers.

use std::collections::BTreeMap;

use thicket_mqtt::Publish;
use thicket_session::{
    server::{MatchedIdentifiers, Subscription},
    topic::{SubscriptionFilter, TopicFilter},
};

use super::{
    context::Context,
    state::{interests::is_reserved, outgoing::Outgoing, sessions::SessionKey},
};
use crate::Now;

const SYSTEM: &str = "$SYS/";

/// The last values, and who is to get them.
#[derive(Debug, Default)]
pub(super) struct System {
    /// The last value of each topic of this node.
    values: BTreeMap<Box<str>, Box<[u8]>>,
    /// New subscriptions, and the serial of their session.
    replays: Vec<(SessionKey, u64, TopicFilter, Subscription)>,
}

impl System {
    /// Publishes to the subscribers of this worker, and keeps the value for later ones.
    pub fn publish(&mut self, cx: &mut Context, now: Now, topic: &str, payload: &[u8]) {
        debug_assert!(is_reserved(topic), "a client could publish to {topic}");
        let publish = Publish::new(topic, payload);
        let (route, mut outgoing) = (cx.route(topic), Outgoing::new(&publish, None));
        cx.deliver(now, &route.recipients, &mut outgoing, None);
        self.values.insert(topic.into(), payload.into());
    }

    /// A subscription was acknowledged that may match `$SYS`: it gets the last values when this input is done.
    pub fn start_replay(
        &mut self,
        key: SessionKey,
        serial: u64,
        filter: &SubscriptionFilter,
        subscription: Subscription,
    ) {
        let filter = &filter.filter;
        if filter.as_str().starts_with(SYSTEM) {
            self.replays
                .push((key, serial, filter.clone(), subscription));
        }
    }

    pub const fn has_replays(&self) -> bool {
        !self.replays.is_empty()
    }

    /// Delivers the last values to new subscribers.
    pub fn replay(&mut self, cx: &mut Context, now: Now) {
        for (key, serial, filter, subscription) in self.replays.drain(..) {
            if cx.sessions.get_same(key, serial).is_none() {
                continue;
            }
            let identifiers = subscription
                .identifier
                .map_or(MatchedIdentifiers::None, |id| MatchedIdentifiers::One([id]));
            for (topic, payload) in &self.values {
                if !filter.matches(topic) {
                    continue;
                }
                let publish = Publish {
                    retain: true,
                    ..Publish::new(topic, payload)
                };
                let mut outgoing = Outgoing::new(&publish, None);
                cx.deliver_replayed(now, key, &mut outgoing, subscription, &identifiers);
            }
        }
    }
}
