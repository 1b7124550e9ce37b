//! Messages of QoS 2 that may arrive over two sessions while a filter moves from one to the other.
//!
//! The new session subscribes before the old one unsubscribes, so nothing is missed, and messages published in between arrive twice. The second is
//! dropped. Messages are compared by the identity that their publisher gave them, as Thicket clients do, and otherwise by content; each is dropped as
//! often as it arrived over the other session.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thicket_mqtt::Qos;
use thicket_session::topic::matches;

use crate::message::Message;

/// Most messages remembered; the oldest are dropped first.
const REMEMBERED: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Number of moving filters, to check without a lock.
    moving: AtomicUsize,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    filters: HashMap<String, usize>,
    hasher: RandomState,
    /// By message: counts of each session's deliveries that the other has not matched yet.
    open: HashMap<u64, Vec<usize>>,
    order: VecDeque<u64>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `filter` starts to move.
    pub(crate) fn begin(&self, filter: &str) {
        let mut book = self.book();
        *book.filters.entry(filter.to_owned()).or_insert(0) += 1;
        self.moving.store(book.filters.len(), Ordering::Release);
    }

    /// A move of `filter` is complete, on both sessions.
    pub(crate) fn end(&self, filter: &str) {
        let mut book = self.book();
        if let Some(count) = book.filters.get_mut(filter) {
            *count -= 1;
            if *count == 0 {
                book.filters.remove(filter);
            }
        }
        if book.filters.is_empty() {
            book.open = HashMap::new();
            book.order = VecDeque::new();
        }
        self.moving.store(book.filters.len(), Ordering::Release);
    }

    /// Whether to deliver `message`, which arrived over `session`.
    pub(crate) fn admits(&self, session: usize, message: &Message, id: Option<&str>) -> bool {
        if message.qos != Qos::ExactlyOnce || self.moving.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.book().admits(session, message, id)
    }
}

impl Book {
    fn admits(&mut self, session: usize, message: &Message, id: Option<&str>) -> bool {
        if !self
            .filters
            .keys()
            .any(|filter| matches(filter, &message.topic))
        {
            return true;
        }
        let properties = &message.properties;
        let key = match id {
            Some(id) => self.hasher.hash_one((&message.topic, id)),
            None => self.hasher.hash_one((
                (&message.topic, &message.payload, &properties.content_type),
                (
                    &properties.response_topic,
                    &properties.correlation_data,
                    &properties.user,
                ),
            )),
        };
        let sessions = self.open.entry(key).or_default();
        if let Some(at) = sessions.iter().position(|other| *other != session) {
            sessions.swap_remove(at);
            return false;
        }
        sessions.push(session);
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &str) -> Message {
        Message::new("a/b", payload).qos(Qos::ExactlyOnce)
    }

    #[test]
    fn what_comes_over_both_sessions_is_delivered_once_while_its_filter_moves() {
        let ledger = Ledger::default();
        assert!(ledger.admits(1, &message("0"), None) && ledger.admits(2, &message("0"), None));
        ledger.begin("a/+");
        for (session, payload, id, expected) in [
            (1, "1", None, true),
            (2, "1", None, false),
            (2, "2", None, true),
            (1, "2", None, false),
            (1, "on", None, true),
            (1, "on", None, true),
            (2, "on", None, false),
            (2, "on", None, false),
            (2, "on", None, true),
            (1, "same", Some("x-1"), true),
            (2, "same", Some("x-2"), true),
            (2, "same", Some("x-1"), false),
        ] {
            let admitted = ledger.admits(session, &message(payload), id);
            assert_eq!(admitted, expected, "{session} {payload} {id:?}");
        }
        let elsewhere = Message::new("c", "1").qos(Qos::ExactlyOnce);
        assert!(ledger.admits(1, &elsewhere, None) && ledger.admits(2, &elsewhere, None));
        let once = Message::new("a/b", "9").qos(Qos::AtLeastOnce);
        assert!(ledger.admits(1, &once, None) && ledger.admits(2, &once, None));
        ledger.end("a/+");
        assert!(ledger.book().open.is_empty());
        assert!(ledger.admits(1, &message("7"), None) && ledger.admits(2, &message("7"), None));
    }
}
