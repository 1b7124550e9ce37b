//! Connections whose PROXY header is still to come.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use thicket_node::{ConnectionId, ListenerId};
use thicket_session::time::Instant;

/// All of one thread, in the order they came.
#[derive(Debug)]
pub(super) struct Prefaces {
    patience: Duration,
    waiting: HashMap<ConnectionId, (ListenerId, SocketAddr, Instant)>,
    /// May name some that are no longer waiting, or another that took the number.
    deadlines: VecDeque<(Instant, ConnectionId)>,
}

impl Prefaces {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            waiting: HashMap::new(),
            deadlines: VecDeque::new(),
        }
    }

    pub(super) fn start(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        listener: ListenerId,
        peer: SocketAddr,
    ) {
        let deadline = now + self.patience;
        self.waiting.insert(connection, (listener, peer, deadline));
        self.deadlines.push_back((deadline, connection));
    }

    /// Where it came in, and from whom.
    pub(super) fn finish(&mut self, connection: ConnectionId) -> Option<(ListenerId, SocketAddr)> {
        let (listener, peer, _) = self.waiting.remove(&connection)?;
        self.forget_finished();
        Some((listener, peer))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// One that took too long.
    pub(super) fn next_late(&mut self, now: Instant) -> Option<ConnectionId> {
        self.forget_finished();
        self.deadlines
            .front()
            .filter(|(deadline, _)| *deadline <= now)
            .map(|(_, connection)| *connection)
    }

    fn forget_finished(&mut self) {
        while let Some((deadline, connection)) = self.deadlines.front() {
            if self
                .waiting
                .get(connection)
                .is_some_and(|(_, _, its)| its == deadline)
            {
                return;
            }
            self.deadlines.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_still_wait_are_late() {
        let mut prefaces = Prefaces::new(Duration::from_millis(100));
        let peer = "127.0.0.1:1".parse().expect("an address");
        let at = Instant::from_millis;
        let id = ConnectionId;
        prefaces.start(at(0), id(1), ListenerId(0), peer);
        prefaces.start(at(10), id(2), ListenerId(3), peer);
        assert_eq!(prefaces.finish(id(1)), Some((ListenerId(0), peer)));
        // The number is another connection's now.
        prefaces.start(at(20), id(1), ListenerId(0), peer);
        assert_eq!(prefaces.next_late(at(100)), None);
        assert_eq!(prefaces.next_late(at(110)), Some(id(2)));
        assert_eq!(prefaces.finish(id(2)), Some((ListenerId(3), peer)));
        assert_eq!(prefaces.next_deadline(), Some(at(120)));
        assert_eq!(prefaces.finish(id(2)), None);
    }
}
