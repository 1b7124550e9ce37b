//! Limits on connections at a time and connections a second, for each listener and for the node.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thicket_node::{Allowance, TokenBucket};
use thicket_session::time::Instant;

use crate::counters::Counter;

/// Where there are as many connections as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// At all listeners together.
    Node,
    /// At one.
    Listener,
}

/// The limit of the whole node, shared by the gates of its listeners.
#[derive(Debug)]
pub(crate) struct NodeGate {
    open: AtomicU32,
    maximum: u32,
    /// The process exceeds its memory limit: no new sessions.
    pub(crate) is_short_of_memory: AtomicBool,
    /// It has also used up the reserve for clients that return: no new connections.
    pub(crate) is_out_of_memory: AtomicBool,
    /// Bytes that connections held which were closed to free them, since the housekeeper took the number.
    pub(crate) given_up: AtomicU64,
    /// Connections refused because the node was full.
    pub(crate) node_full: Counter,
    pub(crate) short_of_memory: Counter,
}

impl NodeGate {
    pub(crate) fn new(maximum: u32) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicU32::new(0),
            maximum,
            is_short_of_memory: AtomicBool::new(false),
            is_out_of_memory: AtomicBool::new(false),
            given_up: AtomicU64::new(0),
            node_full: Counter::default(),
            short_of_memory: Counter::default(),
        })
    }

    /// Whether new clients are refused, for lack of memory or connections.
    pub(crate) fn is_full(&self) -> bool {
        self.is_short_of_memory.load(Ordering::Relaxed)
            || self.open.load(Ordering::Relaxed) >= self.maximum
    }
}

/// The limits of one listener, shared by its sockets on all threads.
#[derive(Debug)]
pub(crate) struct Gate {
    node: Arc<NodeGate>,
    /// Where connections go that have no place and may be links; `None`: this is such a gate, whose connections do not count.
    for_links: Option<Arc<Gate>>,
    open: AtomicU32,
    maximum: Option<u32>,
    rate: Option<Mutex<Bucket>>,
    /// Connections refused because the listener was full.
    pub(crate) full: Counter,
    /// Times connections had to wait because of the limit a second.
    pub(crate) delayed: Counter,
    /// Connections admitted.
    pub(crate) admitted: Counter,
    /// Bytes of MQTT that its clients sent.
    pub(crate) bytes_in: Counter,
    /// Bytes of MQTT that were written to its clients.
    pub(crate) bytes_out: Counter,
    /// What its clients may publish; `None`: as much as they want.
    pub(crate) publishing: Option<Publishing>,
    /// Messages that its clients published.
    pub(crate) messages_in: Counter,
    /// Messages that were delivered to its clients.
    pub(crate) messages_out: Counter,
    /// Messages refused or dropped because its clients published too many.
    pub(crate) messages_refused: Counter,
}

/// What all clients of a listener may publish in a second, on all threads.
#[derive(Debug)]
pub(crate) struct Publishing {
    rates: PublishRates,
    buckets: Mutex<Buckets>,
}

/// Messages, and bytes of topics and payloads, in a second; 0: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PublishRates {
    pub(crate) messages_per_s: u32,
    pub(crate) bytes_per_s: u32,
}

#[derive(Debug, Default)]
struct Buckets {
    messages: TokenBucket,
    bytes: TokenBucket,
}

impl Publishing {
    fn new(rates: PublishRates) -> Option<Self> {
        (rates != PublishRates::default()).then(|| Self {
            rates,
            buckets: Mutex::default(),
        })
    }

    /// What is left for the round of a thread. Other threads may use it too: then less is left later.
    pub(crate) fn left(&self, now: Instant) -> Allowance {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |bucket: &TokenBucket, per_s: u32| match per_s {
            0 => i64::MAX,
            // Thousandths: any part of one allows one.
            per_s => bucket.left(now, per_s).saturating_add(999).div_euclid(1000),
        };
        Allowance {
            messages: left(&buckets.messages, self.rates.messages_per_s),
            bytes: left(&buckets.bytes, self.rates.bytes_per_s),
        }
    }

    /// A thread has used so much.
    pub(crate) fn spend(&self, now: Instant, messages: u64, bytes: u64) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let rates = self.rates;
        buckets.messages.spend(now, rates.messages_per_s, messages);
        buckets.bytes.spend(now, rates.bytes_per_s, bytes);
    }
}

/// A token bucket: one token a connection, refilled evenly, at most one second's worth.
#[derive(Debug)]
struct Bucket {
    per_s: u32,
    /// In thousandths.
    tokens: u64,
    filled_at: Instant,
}

/// A connection's place; freed when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Gate>);

impl Gate {
    /// `maximum`: connections at a time; `per_s`: connections a second, 0: no limit; `rates`: what all its clients may publish.
    pub(crate) fn new(
        node: &Arc<NodeGate>,
        maximum: Option<u32>,
        per_s: u32,
        rates: PublishRates,
    ) -> Arc<Self> {
        let for_links = Self::with(node, None, 0, PublishRates::default(), None);
        Self::with(node, maximum, per_s, rates, Some(for_links))
    }

    fn with(
        node: &Arc<NodeGate>,
        maximum: Option<u32>,
        per_s: u32,
        rates: PublishRates,
        for_links: Option<Arc<Self>>,
    ) -> Arc<Self> {
        let bucket = Bucket {
            per_s,
            tokens: u64::from(per_s) * 1000,
            filled_at: Instant::from_millis(0),
        };
        Arc::new(Self {
            node: Arc::clone(node),
            for_links,
            open: AtomicU32::new(0),
            maximum,
            rate: (per_s > 0).then(|| Mutex::new(bucket)),
            full: Counter::default(),
            delayed: Counter::default(),
            admitted: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            publishing: Publishing::new(rates),
            messages_in: Counter::default(),
            messages_out: Counter::default(),
            messages_refused: Counter::default(),
        })
    }

    /// When the next connection may be accepted, if not now.
    pub(crate) fn wait_until(&self, now: Instant) -> Option<Instant> {
        let mut bucket = self
            .rate
            .as_ref()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let until = bucket.wait_until(now);
        if until.is_some() {
            self.delayed.add_one();
        }
        until
    }

    /// A place for an accepted connection; `None`: close it. `may_be_link`: if there is none, it gets one that is only for links. `make_way` closes
    /// another connection that has a place there, if it can.
    pub(crate) fn admit(
        self: &Arc<Self>,
        may_be_link: bool,
        make_way: impl FnOnce(Full) -> bool,
    ) -> Option<Seat> {
        if let Some(rate) = &self.rate {
            rate.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        if self.node.is_out_of_memory.load(Ordering::Relaxed) {
            self.node.short_of_memory.add_one();
            return None;
        }
        // Counted first, so that two threads do not both take the last place.
        let seat = Seat::take(self);
        if let Some(full) = self.is_over()
            && !make_way(full)
        {
            if !may_be_link {
                match full {
                    Full::Node => self.node.node_full.add_one(),
                    Full::Listener => self.full.add_one(),
                }
                return None;
            }
            return self.for_links.clone().map(Seat);
        }
        self.admitted.add_one();
        Some(seat)
    }

    /// Whether there are more connections than there may be, here or at all listeners.
    fn is_over(&self) -> Option<Full> {
        if self.node.open.load(Ordering::Relaxed) > self.node.maximum {
            return Some(Full::Node);
        }
        let open = self.open.load(Ordering::Relaxed);
        let is_over = self.maximum.is_some_and(|maximum| open > maximum);
        is_over.then_some(Full::Listener)
    }

    /// A connection that got a place for a link is none.
    pub(crate) fn refuse_client(&self) {
        self.node.node_full.add_one();
    }

    /// Current number of connections.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }
}

impl Seat {
    fn take(gate: &Arc<Gate>) -> Self {
        gate.open.fetch_add(1, Ordering::Relaxed);
        gate.node.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(gate))
    }

    /// The gate of its listener.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0
    }

    /// Whether it is only for a link.
    pub(crate) fn is_for_link(&self) -> bool {
        self.0.for_links.is_none()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_for_link() {
            self.0.open.fetch_sub(1, Ordering::Relaxed);
            self.0.node.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Bucket {
    const fn wait_until(&mut self, now: Instant) -> Option<Instant> {
        let (per_s, now_ms) = (self.per_s as u64, now.as_millis());
        let elapsed_ms = now_ms.saturating_sub(self.filled_at.as_millis());
        let full = per_s * 1000;
        let tokens = self.tokens.saturating_add(elapsed_ms.saturating_mul(per_s));
        self.tokens = if tokens < full { tokens } else { full };
        self.filled_at = now;
        if self.tokens >= 1000 {
            return None;
        }
        let missing_ms = (1000 - self.tokens).div_ceil(per_s);
        Some(Instant::from_millis(now_ms + missing_ms))
    }

    const fn take(&mut self) {
        self.tokens = self.tokens.saturating_sub(1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn gate(node: &Arc<NodeGate>, maximum: Option<u32>, per_s: u32) -> Arc<Gate> {
        Gate::new(node, maximum, per_s, PublishRates::default())
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_is_gone() {
        let gate = gate(&NodeGate::new(10), Some(2), 0);
        let (first, second) = (gate.admit(false, |_| false), gate.admit(false, |_| false));
        assert!(first.is_some() && second.is_some());
        assert!(gate.admit(false, |_| false).is_none());
        assert_eq!((gate.full.value(), gate.open()), (1, 2));
        drop(first);
        assert!(gate.admit(false, |_| false).is_some());
    }

    #[test]
    fn listeners_share_the_places_of_the_node() {
        let node = NodeGate::new(2);
        let (one, other) = (gate(&node, None, 0), gate(&node, None, 0));
        let _seats = (one.admit(false, |_| false), other.admit(false, |_| false));
        assert!(one.admit(false, |_| false).is_none() && other.admit(false, |_| false).is_none());
        assert_eq!(node.node_full.value(), 2);
    }

    #[test]
    fn what_may_be_a_link_has_a_place_above_all_others() {
        let node = NodeGate::new(2);
        let gate = gate(&node, Some(1), 0);
        let client = gate.admit(true, |_| false).expect("there is a place");
        assert!(!client.is_for_link());
        let links: Vec<_> = (0..3).filter_map(|_| gate.admit(true, |_| false)).collect();
        assert!(links.len() == 3 && links.iter().all(Seat::is_for_link));
        assert_eq!((gate.open(), gate.full.value()), (1, 0));
        assert!(gate.admit(false, |_| false).is_none());
        drop((client, links));
        assert_eq!(gate.open(), 0);
        assert!(gate.admit(false, |_| false).is_some());
    }

    #[test]
    fn nobody_new_comes_in_when_memory_is_short() {
        let node = NodeGate::new(2);
        let gate = gate(&node, None, 0);
        node.is_out_of_memory.store(true, Ordering::Relaxed);
        assert!(gate.admit(false, |_| false).is_none());
        assert_eq!(node.short_of_memory.value(), 1);
    }

    #[test]
    fn a_second_brings_so_many_and_an_idle_hour_no_more() {
        let gate = gate(&NodeGate::new(1000), None, 4);
        let mut seats = Vec::new();
        let mut admitted = |now| {
            let before = seats.len();
            while gate.wait_until(at(now)).is_none() {
                seats.push(gate.admit(false, |_| false));
            }
            seats.len() - before
        };
        assert_eq!(admitted(3_600_000), 4);
        assert_eq!(admitted(3_600_100), 0);
        assert_eq!(admitted(3_600_250), 1);
        assert_eq!(admitted(3_601_250), 4);
        assert_eq!(gate.wait_until(at(3_601_251)), Some(at(3_601_500)));
    }

    #[test]
    fn threads_share_what_the_clients_of_a_listener_may_publish() {
        let rates = PublishRates {
            messages_per_s: 10,
            bytes_per_s: 0,
        };
        let publishing = Publishing::new(rates).expect("a limit");
        let left = |now| publishing.left(at(now)).messages;
        assert_eq!(left(1000), 20, "two seconds are saved up");
        assert_eq!(publishing.left(at(1000)).bytes, i64::MAX);
        // Two threads, each with all that was left.
        publishing.spend(at(1000), 20, 1 << 40);
        publishing.spend(at(1000), 20, 1 << 40);
        assert_eq!(left(1000), -20);
        assert_eq!(left(3000), 0, "what was used too much is paid back first");
        assert_eq!(left(3050), 1);
        assert!(Publishing::new(PublishRates::default()).is_none());
    }
}
