//! What a session's client may do.

use std::sync::Arc;

use thicket_access::{CachedRights, Reach, Rights};
use thicket_session::topic::SubscriptionFilter;

use super::sessions::Session;

/// The rights of a session, until it ends or its client connects again.
#[derive(Debug)]
pub(in crate::worker) struct SessionRights {
    pub cached: CachedRights,
    /// A subscription reaches beyond what may be read: messages are checked one by one.
    is_checked: bool,
}

impl SessionRights {
    /// Whether they allow to publish to `topic`: for a single check that is not to be cached.
    pub fn may_publish(&self, topic: &str) -> bool {
        self.cached.rights().may_publish(topic)
    }
}

impl Session {
    /// Whether its client may publish to `topic`.
    pub fn may_publish(&mut self, topic: &str) -> bool {
        match &mut self.rights {
            None => true,
            Some(rights) => rights.cached.may_publish(topic),
        }
    }

    /// Whether a message of `topic` that one of its subscriptions matches may go to its client.
    pub fn may_receive(&self, topic: &str) -> bool {
        match &self.rights {
            Some(rights) if rights.is_checked => rights.cached.rights().may_receive(topic),
            Some(_) | None => true,
        }
    }

    /// The same for a message that was queued, perhaps under other rights.
    pub fn may_still_receive(&mut self, topic: &str) -> bool {
        match &mut self.rights {
            None => true,
            Some(rights) => rights.cached.may_receive(topic),
        }
    }

    /// Whether it may have a subscription. A member of a shared subscription must be able to read all of it: a message that it gets and may not read
    /// would be lost to the others.
    pub fn may_subscribe(&mut self, filter: &SubscriptionFilter) -> bool {
        let Some(rights) = &mut self.rights else {
            return true;
        };
        match rights.cached.rights().may_subscribe(filter.filter.as_str()) {
            Reach::All => true,
            Reach::Part if !filter.is_shared() => {
                rights.is_checked = true;
                true
            }
            Reach::Part | Reach::Nothing => false,
        }
    }

    /// Whether it keeps a subscription under new rights. A plain one that reaches nothing now may reach something tomorrow.
    pub fn keeps(&mut self, filter: &SubscriptionFilter) -> bool {
        self.may_subscribe(filter) || {
            if let Some(rights) = &mut self.rights {
                rights.is_checked = true;
            }
            !filter.is_shared()
        }
    }

    pub fn set_rights(&mut self, rights: Option<Arc<Rights>>) {
        self.rights = rights.map(|rights| {
            Box::new(SessionRights {
                cached: CachedRights::new(rights),
                is_checked: false,
            })
        });
    }
}
