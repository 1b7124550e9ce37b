//! The clocks, and what names threads, sockets and listeners.

use thicket_session::time::{Instant, WallClock};

/// The two clocks, read once a round by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Never jumps; deadlines are compared with it.
    pub instant: Instant,
    /// The time of day; may jump.
    pub wall: WallClock,
}

impl Now {
    /// The time of day at an instant, in Unix milliseconds.
    pub(crate) fn wall_ms(self, at: Instant) -> u64 {
        let wall = self.wall.as_unix_millis();
        let (at, now) = (at.as_millis(), self.instant.as_millis());
        (wall + at.saturating_sub(now)).saturating_sub(now.saturating_sub(at))
    }

    /// The instant of a time of day in Unix milliseconds, as the clocks stand now.
    pub(crate) fn instant_of(self, wall_ms: u64) -> Instant {
        let (at, wall) = (self.instant.as_millis(), self.wall.as_unix_millis());
        Instant::from_millis(
            (at + wall_ms.saturating_sub(wall)).saturating_sub(wall.saturating_sub(wall_ms)),
        )
    }
}

/// A worker of this node, 0-based.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u8);

/// A worker or the hub of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A worker.
    Worker(WorkerId),
    /// The hub.
    Hub,
}

/// A socket of one thread: an index the shell chooses (a slab key, small and dense). It ends when the shell has handed in `Closed`, or has performed
/// `Close` or `Handover`. Outputs of the same round may still name it then: the shell passes them over, and gives the index to another socket only when
/// all outputs of the round have been performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// Which configured listener a connection came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u16);
