//! Messages for many shared subscriptions, given to members in portions.

use std::{collections::VecDeque, rc::Rc, sync::Arc};

use thicket_overlay::record::PublicationId;
use thicket_session::server::Message;

use super::debts::Debt;
use crate::ConnectionId;

/// Messages without a connection that wait; one more is not divided. Those with one are bounded by it: it has one at a time.
const UNOWNED: usize = 1024;

/// What is left of a message.
#[derive(Debug)]
pub(in crate::worker) struct Divided {
    pub message: Rc<Message>,
    pub publication: Option<PublicationId>,
    /// The key of the last shared subscription that is done.
    pub done: Option<Arc<str>>,
    /// The connection that published it, with its serial; what it sends next waits.
    pub publisher: Option<(ConnectionId, u64)>,
    pub debt: Option<Debt>,
}

/// Messages of which something is left.
#[derive(Debug, Default)]
pub(in crate::worker) struct DividedMessages {
    /// Of connections, one each: in turn.
    owned: VecDeque<Divided>,
    /// Wills, and what operators publish: one after the other.
    unowned: VecDeque<Divided>,
}

impl DividedMessages {
    pub fn is_empty(&self) -> bool {
        self.owned.is_empty() && self.unowned.is_empty()
    }

    /// Whether a message without a connection would overtake another one.
    pub fn have_unowned(&self) -> bool {
        !self.unowned.is_empty()
    }

    /// Adds a message, behind the others of its kind. Returns it if that would be over the limit.
    pub fn add(&mut self, divided: Divided) -> Option<Divided> {
        if divided.publisher.is_some() {
            self.owned.push_back(divided);
        } else if self.unowned.len() < UNOWNED {
            self.unowned.push_back(divided);
        } else {
            return Some(divided);
        }
        None
    }

    /// The message whose turn it is.
    pub fn next(&mut self) -> Option<Divided> {
        self.owned.pop_front()
    }

    /// The same of those without a connection.
    pub fn next_unowned(&mut self) -> Option<Divided> {
        self.unowned.pop_front()
    }

    /// Something is left of the message whose turn it was.
    pub fn put_back(&mut self, divided: Divided) {
        if divided.publisher.is_some() {
            self.owned.push_back(divided);
        } else {
            self.unowned.push_front(divided);
        }
    }
}
