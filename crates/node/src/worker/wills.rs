//! Wills: published when a connection ends without DISCONNECT, after their delay or with the session, whichever comes first.

use std::time::Duration;

use thicket_mqtt::{ApplicationProperties, Publish};
use thicket_session::server::StoredWill;

use super::{
    Worker,
    state::{
        debts::Debt,
        publication::{Outcome, Source},
        sessions::SessionKey,
        timers::Timer,
    },
};
use crate::Now;

impl Worker {
    /// The connection of a session that outlives it has ended.
    pub(super) fn schedule_will(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return;
        };
        let Some(will) = &session.will else { return };
        // [MQTT-3.1.3-9]: the will of a client that is back in time is not sent.
        let delay = u64::from(will.delay_interval);
        if delay == 0 {
            self.publish_will(now, key);
            return;
        }
        let due = now.instant + Duration::from_secs(delay);
        session.will_due = Some(due);
        let serial = session.serial;
        self.cx.timers.set(
            due,
            Timer::WillDelay {
                session: key,
                serial,
            },
        );
    }

    pub(super) fn handle_will_due(&mut self, now: Now, key: SessionKey, serial: u64) {
        let Some(session) = self.cx.sessions.get_same(key, serial) else {
            return;
        };
        let is_due = session.will_due.is_some_and(|due| due <= now.instant);
        if is_due && session.connection.is_none() && !session.role.is_frozen() {
            session.will_due = None;
            self.publish_will(now, key);
            self.primaries.store_session(&mut self.cx, now, key);
        }
    }

    /// A will without delay that waits, as it does for a moment after the node has started, is not cancelled by its client's return.
    pub(super) fn publish_overdue_will(&mut self, now: Now, key: SessionKey) {
        let is_overdue = self.cx.sessions.get(key).is_some_and(|session| {
            let delay = session.will.as_ref().map(|will| will.delay_interval);
            session.will_due.is_some() && delay == Some(0)
        });
        if is_overdue {
            if let Some(session) = self.cx.sessions.get_mut(key) {
                session.will_due = None;
            }
            self.publish_will(now, key);
            self.primaries.store_session(&mut self.cx, now, key);
        }
    }

    /// Publishes a will, of the client of a session if that is here. `debt`: what waits until all recipients have it.
    pub(super) fn publish_stored_will(
        &mut self,
        now: Now,
        will: &StoredWill,
        session: Option<SessionKey>,
        debt: Option<Debt>,
    ) -> Outcome {
        let Ok(properties) = ApplicationProperties::from_encoded(&will.properties) else {
            debug_assert!(false, "properties of a will are written by write_to");
            return Outcome::NoRecipients;
        };
        let publish = Publish {
            qos: will.qos,
            retain: will.retain,
            message_expiry_interval: will.message_expiry_interval,
            properties,
            ..Publish::new(&will.topic, &will.payload)
        };
        let route = self.cx.route(publish.topic);
        if route.refusal.is_some() {
            return Outcome::NoRecipients;
        }
        let source = Source {
            session,
            debt,
            ..Source::default()
        };
        self.publish(now, &publish, &route, source)
    }
}
