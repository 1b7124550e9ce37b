//! Connections that the node has closed and whose clients still send.
//!
//! Closing a socket with unread bytes resets it, and a reset destroys what the client has not read yet: the DISCONNECT or CONNACK with the reason. So
//! what still arrives is read and discarded, until the client closes too, for a bounded time and number of bytes.

use std::time::Duration;

use thicket_node::ConnectionId;
use thicket_session::time::Instant;

use super::deadlines::Deadlines;

/// How long a client may take to close its direction.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes it may still send.
const BYTES: usize = 16 * 1024 * 1024;
/// Connections of a thread. When there are more, the oldest one is closed.
const MOST: usize = 256;

/// All connections of one thread, with the bytes that each may still send.
#[derive(Debug)]
pub(super) struct Lingering(Deadlines<usize>);

impl Lingering {
    pub(super) fn new() -> Self {
        Self(Deadlines::new(LINGER))
    }

    pub(super) fn begin(&mut self, now: Instant, connection: ConnectionId) {
        self.0.start(now, connection, BYTES);
    }

    /// Its client has sent `count` more bytes. `false`: the limit is reached.
    pub(super) fn note_read(&mut self, connection: ConnectionId, count: usize) -> bool {
        let Some(left) = self.0.get_mut(connection) else {
            return false;
        };
        *left = left.saturating_sub(count);
        *left > 0
    }

    /// The connection is closed.
    pub(super) fn end(&mut self, connection: ConnectionId) {
        self.0.finish(connection);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }

    /// A connection to close: it took too long, or there are too many.
    pub(super) fn next_due(&self, now: Instant) -> Option<ConnectionId> {
        if self.0.len() > MOST {
            return self.0.first();
        }
        self.0.next_late(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_client_has_some_time_and_some_bytes_to_end() {
        let mut lingering = Lingering::new();
        let [one, two] = [1, 2].map(ConnectionId);
        lingering.begin(at(0), one);
        lingering.begin(at(10), two);
        assert!(lingering.note_read(one, BYTES - 1));
        assert!(!lingering.note_read(one, 1));
        lingering.end(one);
        assert!(!lingering.note_read(one, 0), "closed");
        // The number belongs to another connection now.
        lingering.begin(at(20), one);
        assert_eq!(lingering.next_deadline(), Some(at(2010)));
        assert_eq!(lingering.next_due(at(2009)), None);
        assert_eq!(lingering.next_due(at(2010)), Some(two));
        lingering.end(two);
        assert_eq!(lingering.next_due(at(2019)), None);
        assert_eq!(lingering.next_due(at(2020)), Some(one));
    }

    #[test]
    fn when_there_are_too_many_the_oldest_one_is_closed() {
        let mut lingering = Lingering::new();
        for number in 0..=MOST as u32 {
            assert_eq!(lingering.next_due(at(0)), None);
            lingering.begin(at(0), ConnectionId(number));
        }
        assert_eq!(lingering.next_due(at(0)), Some(ConnectionId(0)));
        lingering.end(ConnectionId(0));
        assert_eq!(lingering.next_due(at(0)), None);
    }
}
