//! The session on which a topic is published. Shared by all publishers; the lock is held for a look-up only.
//!
//! A topic changes its session only when none of its messages is in flight on the old one: so the messages of one topic stay in order.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thicket_mqtt::ReasonCode;
use thicket_session::topic::matches;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::Error;
use crate::message::Message;

/// Most undeclared topics that are remembered for the next placement, and most of their bytes: some brokers refuse a CONNECT above 100,000 bytes.
const LEARNED: usize = 1000;
const LEARNED_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Routes {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    topics: HashMap<String, usize>,
    filters: Vec<(String, usize)>,
    doors: HashMap<usize, mpsc::Sender<Outgoing>>,
    /// Topics with messages in flight: their session, and how many.
    busy: HashMap<String, (usize, usize)>,
    learned: HashSet<String>,
    /// Topics that the control plane denies: they are not named.
    denied: HashSet<String>,
    /// Of the learned topics, those that are denied included: otherwise each could be learned again.
    learned_count: usize,
    learned_bytes: usize,
}

/// A message on its way to the broker.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) pending: Pending,
}

/// The publisher that waits for it.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) reply: oneshot::Sender<Result<ReasonCode, Error>>,
    pub(crate) ticket: Ticket,
}

/// Permission to publish one message of a topic on one session, returned when the message is settled.
#[derive(Debug)]
pub(crate) struct Ticket {
    routes: Arc<Routes>,
    topic: String,
}

impl Ticket {
    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// The broker refused the message.
    pub(crate) fn on_refused(&self) {
        self.routes.unlearn(&self.topic);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.routes.leave(&self.topic);
    }
}

impl Routes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the session of `topic` while its messages are in flight on another. `None`: the client is closed.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        topic: &str,
    ) -> Option<(mpsc::Sender<Outgoing>, Ticket)> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enabled before the check, so that no change in between is missed.
            changed.as_mut().enable();
            let found = self.table().enter(topic)?;
            match found {
                Some(door) => {
                    let ticket = Ticket {
                        routes: Arc::clone(self),
                        topic: topic.to_owned(),
                    };
                    return Some((door, ticket));
                }
                None => changed.await,
            }
        }
    }

    fn leave(&self, topic: &str) {
        let mut table = self.table();
        if let Some((_, count)) = table.busy.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                table.busy.remove(topic);
                drop(table);
                self.changed.notify_waiters();
            }
        }
    }

    /// From now on these topics and filters are published on these sessions, and all others on the first.
    pub(crate) fn replace(&self, placed: impl IntoIterator<Item = (String, usize)>) {
        let mut table = self.table();
        table.topics.clear();
        table.filters.clear();
        for (topic, session) in placed {
            if topic.contains(['+', '#']) {
                table.filters.push((topic, session));
            } else {
                table.topics.insert(topic, session);
            }
        }
        drop(table);
        self.changed.notify_waiters();
    }

    /// From now on one topic is published on `session`.
    pub(crate) fn place(&self, topic: &str, session: usize) {
        self.table().topics.insert(topic.to_owned(), session);
        self.changed.notify_waiters();
    }

    pub(crate) fn open(&self, session: usize, door: mpsc::Sender<Outgoing>) {
        self.table().doors.insert(session, door);
        self.changed.notify_waiters();
    }

    /// Closes `session` for publications; they go to the first from now on.
    pub(crate) fn close(&self, session: usize) {
        self.table().doors.remove(&session);
        self.changed.notify_waiters();
    }

    /// No topic is placed on `session` any more.
    pub(crate) fn forget(&self, session: usize) {
        let mut table = self.table();
        table.doors.remove(&session);
        table.topics.retain(|_, place| *place != session);
        table.filters.retain(|(_, place)| *place != session);
        drop(table);
        self.changed.notify_waiters();
    }

    /// Closes all sessions for publications.
    pub(crate) fn close_all(&self) {
        self.table().doors.clear();
        self.changed.notify_waiters();
    }

    /// Whether `session` has topics, or messages in flight.
    pub(crate) fn uses(&self, session: usize) -> bool {
        let table = self.table();
        table.topics.values().any(|place| *place == session)
            || table.filters.iter().any(|(_, place)| *place == session)
            || table.busy.values().any(|(place, _)| *place == session)
    }

    /// Topics that were published to without having been declared.
    pub(crate) fn learned(&self) -> Vec<String> {
        self.table().learned.iter().cloned().collect()
    }

    /// The broker refused a message on `topic`: a request that names it could be refused as a whole.
    fn unlearn(&self, topic: &str) {
        let mut table = self.table();
        if table.learned.remove(topic) {
            table.learned_count -= 1;
            table.learned_bytes -= topic.len();
        }
    }

    /// The control plane refuses a request that names `topic`. Returns whether it did so for the first time.
    pub(crate) fn deny(&self, topic: &str) -> bool {
        let mut table = self.table();
        table.learned.remove(topic);
        table.denied.insert(topic.to_owned())
    }

    pub(crate) fn is_denied(&self, topic: &str) -> bool {
        self.table().denied.contains(topic)
    }

    pub(crate) fn learned_count(&self) -> usize {
        self.table().learned_count
    }
}

impl Table {
    /// `None`: closed; `Some(None)`: not now.
    #[allow(
        clippy::option_option,
        reason = "closed and busy are distinguished once"
    )]
    fn enter(&mut self, topic: &str) -> Option<Option<mpsc::Sender<Outgoing>>> {
        let placed = self.topics.get(topic).copied().or_else(|| {
            let filter = self
                .filters
                .iter()
                .find(|(filter, _)| matches(filter, topic));
            filter.map(|(_, session)| *session)
        });
        if placed.is_none() && !self.learned.contains(topic) {
            self.learn(topic);
        }
        let session = placed
            .filter(|session| self.doors.contains_key(session))
            .unwrap_or(1);
        let door = self.doors.get(&session)?.clone();
        match self.busy.get_mut(topic) {
            Some((on, count)) if *on == session => *count += 1,
            Some(_) => return Some(None),
            None => {
                self.busy.insert(topic.to_owned(), (session, 1));
            }
        }
        Some(Some(door))
    }

    fn learn(&mut self, topic: &str) {
        let bytes = self.learned_bytes + topic.len();
        let is_within = self.learned_count < LEARNED && bytes <= LEARNED_BYTES;
        if is_within && !self.denied.contains(topic) {
            self.learned.insert(topic.to_owned());
            self.learned_count += 1;
            self.learned_bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_topic_changes_its_session_when_nothing_of_it_may_still_arrive() {
        let routes = Arc::new(Routes::default());
        let (first, _first_end) = mpsc::channel(1);
        let (second, _second_end) = mpsc::channel(1);
        routes.open(1, first.clone());
        routes.open(2, second.clone());
        let (door, ticket) = routes.enter("a").await.expect("open");
        assert!(
            door.same_channel(&first),
            "an unknown topic goes to the first"
        );
        routes.replace([("a".to_owned(), 2), ("b/+".to_owned(), 2)]);
        let waiting = tokio::spawn({
            let routes = Arc::clone(&routes);
            async move { routes.enter("a").await.expect("open") }
        });
        let (other, _other_ticket) = routes.enter("b/1").await.expect("open");
        assert!(other.same_channel(&second), "another topic does not wait");
        assert!(!waiting.is_finished());
        drop(ticket);
        let (door, _ticket) = waiting.await.expect("no panic");
        assert!(door.same_channel(&second));
        assert!(routes.uses(2) && !routes.uses(1));
        routes.close_all();
        assert!(routes.enter("c").await.is_none());
    }

    #[tokio::test]
    async fn topics_are_learned_up_to_a_number_and_a_number_of_bytes() {
        for (length, expected) in [(10, LEARNED), (1000, LEARNED_BYTES / 1000)] {
            let routes = Arc::new(Routes::default());
            let (first, _first_end) = mpsc::channel(1);
            routes.open(1, first);
            for number in 0..2 * LEARNED {
                routes.enter(&format!("{number:0length$}")).await;
            }
            assert_eq!(routes.learned_count(), expected, "{length}");
        }
    }
}
