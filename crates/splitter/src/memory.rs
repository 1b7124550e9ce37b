//! The memories of clients whose sessions live, with or without a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::split::Memory;

/// Clients remembered; beyond that those without a connection are forgotten, in no order.
const CLIENTS: usize = 10_000;

/// User name, as a client identifier is a session of its user, and client identifier.
pub(crate) type Key = (Option<String>, String);

/// The place of one client here: one of its connections serves it.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Held by the connection that serves the client.
    pub(crate) remembered: Arc<tokio::sync::Mutex<Remembered>>,
    /// Connections of this client that nodes have let in, so far: all but the newest end.
    admitted: watch::Sender<u64>,
    /// How often session 1 was opened anew by a connection that had it.
    reopened: AtomicU64,
}

/// A connection among those of its client.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    number: u64,
    admitted: watch::Receiver<u64>,
}

impl Place {
    /// A node has let a connection of the client in: earlier ones end.
    pub(crate) fn take_turn(&self) -> Turn {
        self.admitted.send_modify(|count| *count += 1);
        let admitted = self.admitted.subscribe();
        let number = *admitted.borrow();
        Turn { number, admitted }
    }

    /// The connection that serves the client has opened session 1 anew: who opened it meanwhile may have it no more.
    pub(crate) fn note_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::AcqRel);
    }

    /// How often session 1 was opened anew.
    pub(crate) fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Acquire)
    }
}

impl Turn {
    /// Whether a node has let a newer connection of the client in.
    pub(crate) fn has_passed(&self) -> bool {
        *self.admitted.borrow() > self.number
    }

    /// Waits until a node has let a newer connection of the client in.
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

/// What is known of one client.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) memory: Memory,
    /// Whether the memory is that of a session, and not of a splitter that began after it.
    pub(crate) is_known: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Memories {
    places: Mutex<HashMap<Key, Arc<Place>>>,
}

impl Memories {
    /// That of a client; an empty one if it is not known.
    pub(crate) fn place(&self, key: &Key) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if !places.contains_key(key) && places.len() >= CLIENTS {
            // A place that a connection holds, or waits for, is known outside of this table.
            let idle = places
                .iter()
                .find(|(_, place)| Arc::strong_count(place) == 1);
            if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                places.remove(&idle);
            }
        }
        Arc::clone(places.entry(key.clone()).or_default())
    }

    /// See [`Place::reopened`]; of a client that is not known it is 0.
    pub(crate) fn reopened(&self, key: &Key) -> u64 {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(key).map_or(0, |place| place.reopened())
    }

    /// The session ended; the caller holds `place`.
    pub(crate) fn forget(&self, key: &Key, place: &Arc<Place>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Held by the table and by the caller. Whoever else waits for the place finds it empty.
        let is_unused =
            |known: &Arc<Place>| Arc::ptr_eq(known, place) && Arc::strong_count(known) == 2;
        if places.get(key).is_some_and(is_unused) {
            places.remove(key);
        }
    }
}
