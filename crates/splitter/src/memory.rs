//! The memories of clients whose sessions live, with or without a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::split::Memory;

/// Clients remembered; beyond that those without a connection are forgotten, in no order.
const CLIENTS: usize = 10_000;

/// User name, as a client identifier is a session of its user, and client identifier.
pub(crate) type Key = (Option<String>, String);
/// Held by the connection that serves the client.
pub(crate) type Place = Arc<tokio::sync::Mutex<Remembered>>;

/// What is known of one client.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) memory: Memory,
    /// Whether the memory is that of a session, and not of a splitter that began after it.
    pub(crate) is_known: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Memories {
    places: Mutex<HashMap<Key, Place>>,
}

impl Memories {
    /// That of a client; an empty one if it is not known.
    pub(crate) fn place(&self, key: &Key) -> Place {
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

    /// The session ended; the caller holds `place`.
    pub(crate) fn forget(&self, key: &Key, place: &Place) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Held by the table, and by the caller with its lock. Whoever else waits for the place finds it empty.
        let is_unused = |known: &Place| Arc::ptr_eq(known, place) && Arc::strong_count(known) == 3;
        if places.get(key).is_some_and(is_unused) {
            places.remove(key);
        }
    }
}
