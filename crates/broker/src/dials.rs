//! Connections to other nodes that are not established yet.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use thicket_node::ConnectionId;
use thicket_session::time::Instant;

/// Time for one attempt.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A node that is being connected to.
#[derive(Debug)]
pub(crate) struct Dial {
    /// As ordered by the hub.
    pub(crate) address: String,
    /// The addresses left to try if this one fails.
    pub(crate) rest: VecDeque<SocketAddr>,
}

/// All attempts under way on this thread.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    attempts: HashMap<ConnectionId, (Dial, Instant)>,
}

impl Dials {
    pub(crate) fn start(&mut self, now: Instant, connection: ConnectionId, dial: Dial) {
        let deadline = now + TIMEOUT;
        self.attempts.insert(connection, (dial, deadline));
    }

    pub(crate) fn finish(&mut self, connection: ConnectionId) -> Option<Dial> {
        self.attempts.remove(&connection).map(|(dial, _)| dial)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.attempts.values().map(|(_, deadline)| *deadline).min()
    }

    /// An attempt that exceeded its timeout.
    pub(crate) fn next_late(&self, now: Instant) -> Option<ConnectionId> {
        let late = self
            .attempts
            .iter()
            .find(|(_, (_, deadline))| *deadline <= now);
        late.map(|(connection, _)| *connection)
    }
}
