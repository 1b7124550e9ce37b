//! Clients that have sent no CONNECT yet: they yield when there are as many connections as there may be.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use thicket_placement::{Held, JUST_CONNECTED, LOOKED_AT, Source, heaviest};
use tokio::sync::Notify;

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    source: Source,
    since: Instant,
    yields: Arc<Notify>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Newcomer {
    all: Arc<Newcomers>,
    number: u64,
    yields: Arc<Notify>,
}

impl Newcomers {
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Newcomer {
        let yields = Arc::new(Notify::new());
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.last += 1;
        let number = table.last;
        let waiting = Waiting {
            source: peer.into(),
            since: Instant::now(),
            yields: Arc::clone(&yields),
        };
        table.waiting.insert(number, waiting);
        Newcomer {
            all: Arc::clone(self),
            number,
            yields,
        }
    }

    /// Of the oldest, one of the address with most of them is to yield, if it had time for its CONNECT.
    pub(crate) fn make_way(&self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let some = table.waiting.iter().take(LOOKED_AT);
        let some = some.map(|(number, waiting)| Held {
            id: *number,
            source: waiting.source,
            serial: *number,
            amount: usize::from(waiting.since.elapsed() >= JUST_CONNECTED),
        });
        if let Some((number, _)) = heaviest(some, 1).pop()
            && let Some(waiting) = table.waiting.remove(&number)
        {
            waiting.yields.notify_one();
        }
    }
}

impl Newcomer {
    /// Returns when another client needs its place.
    pub(crate) async fn must_yield(&self) {
        self.yields.notified().await;
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let table = self.all.table.lock();
        let mut table = table.unwrap_or_else(PoisonError::into_inner);
        table.waiting.remove(&self.number);
    }
}
