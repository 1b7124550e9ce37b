//! The state of the brokers: written by the watching threads, read by the rounds and the HTTP API.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thicket_placement::{Candidate, Load, State};

use crate::options::Broker;
use crate::source::{Figure, Source};

/// A broker and its state.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its number in choices, never reused for another broker.
    pub key: u64,
    pub broker: Broker,
    /// It was removed from the list: its watching threads end.
    pub is_removed: AtomicBool,
    pub counts: BrokerCounts,
    known: Mutex<Known>,
}

/// Counts for one broker.
#[derive(Debug, Default)]
pub(crate) struct BrokerCounts {
    /// Clients redirected there.
    pub redirected: AtomicU64,
    /// Clients relayed there.
    pub relayed: AtomicU64,
    /// Relayed clients that are still connected.
    pub relaying: AtomicU64,
    /// Connections for relayed clients that failed.
    pub failed: AtomicU64,
}

#[derive(Debug)]
struct Known {
    /// The address its name resolved to last.
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
    state: State,
    /// Why it does not serve.
    reason: String,
    /// It is a draining node, according to one of its sources.
    is_draining: bool,
    /// Figures and their expiry, in the order of [`Figure`].
    figures: [Option<(f64, Instant)>; 3],
    /// Why a source gives no figures, in the order of the sources.
    problems: Vec<Option<String>>,
}

impl Known {
    /// A draining node may answer as if it were full: draining takes precedence.
    const fn state(&self) -> State {
        match self.state {
            State::Serving | State::Full if self.is_draining => State::Draining,
            state => state,
        }
    }
}

impl Entry {
    pub fn new(key: u64, broker: Broker) -> Self {
        let problems = vec![None; broker.sources.len()];
        Self {
            key,
            broker,
            is_removed: AtomicBool::new(false),
            counts: BrokerCounts::default(),
            known: Mutex::new(Known {
                address: None,
                tls_address: None,
                state: State::Down,
                reason: "not asked yet".to_owned(),
                is_draining: false,
                figures: [None; 3],
                problems,
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the resolved addresses.
    pub fn set_addresses(&self, address: SocketAddr, tls_address: Option<SocketAddr>) {
        let mut known = self.known();
        (known.address, known.tls_address) = (Some(address), tls_address);
    }

    /// The address to connect to for plain MQTT, or for TLS.
    pub fn address(&self, tls: bool) -> Option<SocketAddr> {
        let known = self.known();
        if tls {
            known.tls_address
        } else {
            known.address
        }
    }

    /// Logs a change.
    pub fn set_state(&self, state: State, reason: &str) {
        let mut known = self.known();
        let before = std::mem::replace(&mut known.state, state);
        reason.clone_into(&mut known.reason);
        drop(known);
        if before == state {
            return;
        }
        let broker = self.broker.name.as_str();
        match state {
            State::Serving => tracing::info!(broker, "takes clients"),
            State::Full | State::Draining | State::Down => {
                tracing::warn!(broker, state = state_name(state), reason, "gets no clients");
            }
        }
    }

    /// Logs a change.
    pub fn set_draining(&self, is_draining: bool) {
        let before = std::mem::replace(&mut self.known().is_draining, is_draining);
        let broker = self.broker.name.as_str();
        match (before, is_draining) {
            (false, true) => tracing::warn!(broker, "is drained: it gets no clients"),
            (true, false) => tracing::info!(broker, "is not drained any more"),
            _ => {}
        }
    }

    pub fn state(&self) -> State {
        self.known().state()
    }

    pub fn reason(&self) -> String {
        let known = self.known();
        if known.state() == State::Draining {
            return "it is drained".to_owned();
        }
        known.reason.clone()
    }

    /// Sets figures from the source of this index, which are valid for `hold`.
    pub fn set_figures(&self, source: usize, figures: &[(Figure, f64)], hold: Duration) {
        let mut known = self.known();
        let until = Instant::now() + hold;
        for &(figure, value) in figures {
            known.figures[figure as usize] = Some((value, until));
        }
        let before = known.problems.get_mut(source).and_then(Option::take);
        drop(known);
        if before.is_some() {
            let source = self.broker.sources[source].to_string();
            tracing::info!(
                broker = self.broker.name,
                source,
                "the load of the broker can be read again"
            );
        }
    }

    /// Sets why the source of this index gives no figures. Its earlier figures stay valid until they expire.
    pub fn set_problem(&self, source: usize, problem: String) {
        let mut known = self.known();
        let Some(place) = known.problems.get_mut(source) else {
            return;
        };
        let before = place.replace(problem.clone());
        drop(known);
        if before.is_none() {
            let source = self.broker.sources[source].to_string();
            let broker = self.broker.name.as_str();
            tracing::warn!(
                broker,
                source,
                problem,
                "cannot read the load of the broker"
            );
        }
    }

    /// Each source, and why it gives no figures.
    pub fn problems(&self) -> Vec<(&Source, Option<String>)> {
        let problems = self.known().problems.clone();
        self.broker.sources.iter().zip(problems).collect()
    }

    /// The current load; what is stale is unknown. Without a source of connections, the relayed ones count.
    pub fn load(&self) -> Load {
        let known = self.known();
        let now = Instant::now();
        let of = |figure: Figure| {
            let kept = known.figures[figure as usize];
            kept.filter(|&(_, until)| until > now)
                .map(|(value, _)| value)
        };
        Load {
            cpu: of(Figure::Cpu),
            messages_per_s: of(Figure::Messages),
            connections: of(Figure::Connections),
        }
    }

    pub fn candidate(&self) -> Candidate {
        Candidate {
            key: self.key,
            state: self.state(),
            load: self.load(),
        }
    }
}

/// For logs and metrics.
pub(crate) const fn state_name(state: State) -> &'static str {
    match state {
        State::Serving => "serving",
        State::Draining => "draining",
        State::Full => "full",
        State::Down => "down",
    }
}

/// All brokers, and counts of clients.
#[derive(Debug, Default)]
pub(crate) struct Board {
    entries: Mutex<Vec<Arc<Entry>>>,
    next_key: AtomicU64,
    pub counts: Counts,
}

/// Counts of clients, independent of brokers.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub accepted: AtomicU64,
    /// Refused because there were too many connections.
    pub refused: AtomicU64,
    /// Relayed because they came back without following the redirection.
    pub unfollowed: AtomicU64,
    /// Refused because no broker was available.
    pub without_broker: AtomicU64,
    /// Ended because they sent nothing, or no MQTT, or the connection broke early.
    pub failed: AtomicU64,
    /// Bytes relayed, both ways.
    pub bytes: AtomicU64,
    /// Current connections.
    pub connections: AtomicU64,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Board {
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the brokers; those that stay keep their state. Returns the new ones.
    pub fn set(&self, brokers: Vec<Broker>) -> Vec<Arc<Entry>> {
        let mut entries = self.lock();
        let mut before = std::mem::take(&mut *entries);
        let mut added = Vec::new();
        for broker in brokers {
            match before.iter().position(|entry| entry.broker == broker) {
                Some(at) => entries.push(before.swap_remove(at)),
                None => {
                    let key = self.next_key.fetch_add(1, Ordering::Relaxed);
                    let entry = Arc::new(Entry::new(key, broker));
                    added.push(Arc::clone(&entry));
                    entries.push(entry);
                }
            }
        }
        for entry in before {
            entry.is_removed.store(true, Ordering::Relaxed);
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(text: &str) -> Broker {
        Broker::parse(text).unwrap()
    }

    #[test]
    fn a_reload_keeps_what_is_known_of_brokers_that_stay() {
        let board = Board::default();
        assert_eq!(board.set(vec![broker("a:1"), broker("b:1,sys")]).len(), 2);
        let before = board.entries();
        before[1].set_state(State::Serving, "");
        let added = board.set(vec![broker("b:1,sys"), broker("c:1")]);
        let after = board.entries();
        assert_eq!(added.len(), 1);
        assert_eq!((after[0].key, after[0].state()), (1, State::Serving));
        assert_eq!(after[1].key, 2, "no broker has the name of one before");
        assert!(before[0].is_removed.load(Ordering::Relaxed));
        assert!(!before[1].is_removed.load(Ordering::Relaxed));
    }

    #[test]
    fn a_stale_figure_is_unknown_and_a_problem_is_kept_until_it_is_over() {
        let entry = Entry::new(0, broker("a:1,sys"));
        entry.set_figures(0, &[(Figure::Messages, 7.0)], Duration::from_secs(60));
        entry.set_figures(0, &[(Figure::Connections, 7.0)], Duration::ZERO);
        let load = entry.load();
        assert_eq!(
            (load.messages_per_s, load.connections, load.cpu),
            (Some(7.0), None, None)
        );
        entry.set_problem(0, "gone".into());
        assert_eq!(entry.problems()[0].1.as_deref(), Some("gone"));
        assert_eq!(
            entry.load().messages_per_s,
            Some(7.0),
            "it holds for its time"
        );
        entry.set_figures(0, &[], Duration::ZERO);
        assert_eq!(entry.problems()[0].1, None);
    }
}
