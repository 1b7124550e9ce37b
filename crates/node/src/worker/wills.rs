//! Wills: published when a connection ends without DISCONNECT, after their delay or with the session, whichever comes first.

use std::time::Duration;

use thicket_mqtt::{ApplicationProperties, Publish};

use super::{SessionKey, Worker, publish::Source, timers::Timer};
use crate::Now;

impl Worker {
    /// The connection of a session that goes on has ended.
    pub(super) fn schedule_will(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(will) = &session.will else { return };
        // [MQTT-3.1.3-9]: a client that is back in time finds its will not sent.
        let delay = u64::from(will.delay_interval);
        if delay == 0 {
            self.publish_will(now, key);
            return;
        }
        let due = now.instant + Duration::from_secs(delay);
        session.will_due = Some(due);
        let serial = session.serial;
        self.timers.set(
            due,
            Timer::WillDelay {
                session: key,
                serial,
            },
        );
    }

    pub(super) fn handle_will_due(&mut self, now: Now, key: SessionKey, serial: u64) {
        let Some(session) = self.sessions.get_same(key, serial) else {
            return;
        };
        let is_due = session.will_due.is_some_and(|due| due <= now.instant);
        if is_due && session.connection.is_none() && !session.is_frozen {
            session.will_due = None;
            self.publish_will(now, key);
            self.store_session(now, key);
        }
    }

    /// A will without delay that waits, as it does for a moment after the node has started, is not called off by its client's return.
    pub(super) fn publish_overdue_will(&mut self, now: Now, key: SessionKey) {
        let is_overdue = self.sessions.get(key).is_some_and(|session| {
            let delay = session.will.as_ref().map(|will| will.delay_interval);
            session.will_due.is_some() && delay == Some(0)
        });
        if is_overdue {
            self.publish_will(now, key);
        }
    }

    /// Publishes the will, if there still is one, and forgets it [MQTT-3.1.2-10].
    pub(super) fn publish_will(&mut self, now: Now, key: SessionKey) {
        let Some(will) = self
            .sessions
            .get_mut(key)
            .and_then(|session| session.will.take())
        else {
            return;
        };
        let Ok(properties) = ApplicationProperties::from_encoded(&will.properties) else {
            debug_assert!(false, "properties of a will are written by write_to");
            return;
        };
        let publish = Publish {
            qos: will.qos,
            retain: will.retain,
            message_expiry_interval: will.message_expiry_interval,
            properties,
            ..Publish::new(&will.topic, &will.payload)
        };
        let route = self.route(publish.topic);
        if route.refusal.is_none() && self.refuse_publish(key, publish.topic).is_none() {
            let source = Source {
                session: Some(key),
                ..Source::default()
            };
            self.publish(now, &publish, &route, source);
        }
    }
}
