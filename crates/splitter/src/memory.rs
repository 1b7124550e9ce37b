//! The state of clients whose sessions exist, with or without a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::split::Memory;

/// Most clients remembered; beyond it those without a connection are forgotten, in no order.
const CLIENTS: usize = 10_000;

/// User name and client identifier, since a session belongs to its user.
pub(crate) type Key = (Option<String>, String);

/// The state of one client: one of its connections serves it.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Held by the connection that serves the client.
    pub(crate) remembered: Arc<tokio::sync::Mutex<Remembered>>,
    /// Number of connections of this client that nodes have accepted so far: all but the newest end.
    admitted: watch::Sender<u64>,
    /// How often session 1 was reopened by the connection that serves the client.
    reopened: AtomicU64,
}

/// A connection's place among those of its client.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    number: u64,
    admitted: watch::Receiver<u64>,
}

impl Place {
    /// A node has accepted a connection of the client: earlier ones end.
    pub(crate) fn take_turn(&self) -> Turn {
        self.admitted.send_modify(|count| *count += 1);
        let admitted = self.admitted.subscribe();
        let number = *admitted.borrow();
        Turn { number, admitted }
    }

    /// The connection that serves the client has reopened session 1: a connection that opened it meanwhile may have lost it.
    pub(crate) fn note_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::AcqRel);
    }

    /// How often session 1 was reopened.
    pub(crate) fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Acquire)
    }
}

impl Turn {
    /// Whether a node has accepted a newer connection of the client.
    pub(crate) fn has_passed(&self) -> bool {
        *self.admitted.borrow() > self.number
    }

    /// Waits until a node has accepted a newer connection of the client.
    pub(crate) async fn is_over(&mut self) {
        let number = self.number;
        let newer = self.admitted.wait_for(|count| *count > number);
        let has_newer = newer.await.is_ok();
        // Without the place there is no newer connection.
        if !has_newer {
            std::future::pending::<()>().await;
        }
    }
}

/// The remembered state of one client.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) memory: Memory,
    /// Whether the memory is that of the session, and not of a splitter that restarted after it began.
    pub(crate) is_known: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Memories {
    places: Mutex<HashMap<Key, Arc<Place>>>,
}

impl Memories {
    /// The place of a client; an empty one if it is unknown.
    pub(crate) fn place(&self, key: &Key) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if !places.contains_key(key) && places.len() >= CLIENTS {
            // A place that a connection holds, or waits for, is referenced outside of this table.
            let idle = places
                .iter()
                .find(|(_, place)| Arc::strong_count(place) == 1);
            if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                places.remove(&idle);
            }
        }
        Arc::clone(places.entry(key.clone()).or_default())
    }

    /// See [`Place::reopened`]; 0 for an unknown client.
    pub(crate) fn reopened(&self, key: &Key) -> u64 {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(key).map_or(0, |place| place.reopened())
    }

    /// The session has ended; the caller holds `place`.
    pub(crate) fn forget(&self, key: &Key, place: &Arc<Place>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Held by the table and by the caller only. Others that wait for the place keep it, and find it empty.
        let is_unused =
            |known: &Arc<Place>| Arc::ptr_eq(known, place) && Arc::strong_count(known) == 2;
        if places.get(key).is_some_and(is_unused) {
            places.remove(key);
        }
    }
}
