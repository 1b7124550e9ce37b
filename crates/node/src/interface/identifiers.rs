//! The clocks, and what names threads, sockets and listeners.

use thicket_session::time::{Instant, Timeline, WallClock};

/// The two clocks, read once a round by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Never jumps; deadlines are compared with it.
    pub instant: Instant,
    /// The time of day; may jump, and be another one at other nodes.
    pub wall: WallClock,
}

impl Now {
    /// For times in what is stored here.
    pub(crate) const fn times_of_day(self) -> Timeline {
        Timeline::new(self.instant, self.wall.as_unix_millis())
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
