//! Connections with a deadline, the same for all of a kind, and a value for each.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use thicket_node::ConnectionId;
use thicket_session::time::Instant;

/// All connections of one thread, in the order they began.
#[derive(Debug)]
pub(super) struct Deadlines<T> {
    patience: Duration,
    waiting: HashMap<ConnectionId, (Instant, T)>,
    /// May contain connections that no longer wait, or numbers that another connection reuses.
    queue: VecDeque<(Instant, ConnectionId)>,
}

impl<T> Deadlines<T> {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            waiting: HashMap::new(),
            queue: VecDeque::new(),
        }
    }

    pub(super) fn start(&mut self, now: Instant, connection: ConnectionId, known: T) {
        let deadline = now + self.patience;
        self.waiting.insert(connection, (deadline, known));
        self.queue.push_back((deadline, connection));
    }

    pub(super) fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut T> {
        self.waiting.get_mut(&connection).map(|(_, known)| known)
    }

    /// The connection waits no longer; returns its value.
    pub(super) fn finish(&mut self, connection: ConnectionId) -> Option<T> {
        let (_, known) = self.waiting.remove(&connection)?;
        self.forget_finished();
        Some(known)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.queue.front().map(|(deadline, _)| *deadline)
    }

    /// The one that has waited longest.
    pub(super) fn first(&self) -> Option<ConnectionId> {
        self.queue.front().map(|(_, connection)| *connection)
    }

    /// A connection that has exceeded its time.
    pub(super) fn next_late(&self, now: Instant) -> Option<ConnectionId> {
        self.next_deadline().filter(|deadline| *deadline <= now)?;
        self.first()
    }

    fn forget_finished(&mut self) {
        while let Some((deadline, connection)) = self.queue.front() {
            let known = self.waiting.get(connection);
            if known.is_some_and(|(its, _)| its == deadline) {
                return;
            }
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_still_wait_are_late() {
        let mut deadlines = Deadlines::new(Duration::from_millis(100));
        let at = Instant::from_millis;
        let id = ConnectionId;
        deadlines.start(at(0), id(1), 'a');
        deadlines.start(at(10), id(2), 'b');
        assert_eq!(deadlines.finish(id(1)), Some('a'));
        // The number belongs to another connection now.
        deadlines.start(at(20), id(1), 'c');
        assert_eq!(deadlines.next_late(at(100)), None);
        assert_eq!(deadlines.next_late(at(110)), Some(id(2)));
        assert_eq!(deadlines.finish(id(2)), Some('b'));
        assert_eq!(deadlines.next_deadline(), Some(at(120)));
        assert_eq!(deadlines.finish(id(2)), None);
    }
}
