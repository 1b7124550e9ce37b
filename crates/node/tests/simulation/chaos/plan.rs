//! What a run is like; its seed decides the rest.

use thicket_simulation::net::Weather;

/// How many of what, and what may happen.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub nodes: usize,
    pub workers: u8,
    pub clients: usize,
    /// Clients that are members of groups and do nothing else that ends a session.
    pub members: usize,
    pub actions: usize,
    /// Longest pause between two actions, ms.
    pub pause: u64,
    /// CONNECTs with Clean Start out of 100, of persistent 5.0 clients.
    pub resets: u64,
    pub cuts_links: bool,
    pub parts: bool,
    /// Only a side with more than half of the nodes serves.
    pub majority: bool,
    /// Nodes are parted only when every session has its copy and all has been quiet for a while.
    pub splits: bool,
    /// Nodes are parted into two sides when every session has its copy and all has been quiet for a while. Meanwhile clients stay as
    /// they are, and publish.
    pub sides: bool,
    /// A node stands still now and then, for times on both sides of every time-out, when every session has its backups and all has been
    /// quiet for a while. Meanwhile clients stay as they are, and publish.
    pub pauses: bool,
    /// Clients go from node to node although nodes are partitioned, or stand still.
    pub roams: bool,
    /// Nodes have a data directory, are killed at once and started again.
    pub kills: bool,
    /// Nodes that keep nothing are killed one at a time and started again: the next one when every session has its copy.
    pub dies: bool,
    /// Copies of each session on other nodes; so many nodes may die at once, if `dies`.
    pub backups: u8,
    /// Nodes differ: each lets its sessions have one copy more than the one before it, until it is this many more; the next has
    /// `backups` again.
    pub more_backups: u8,
    /// Nodes have a data directory; all lose their power at once and are started again.
    pub blacks_out: bool,
    /// Each node's clock is this much ahead of the one before, ms.
    pub skew: u64,
    /// In half of the runs a node's clock is now and then set back or forward by up to an hour.
    pub sets_clocks: bool,
    pub weather: Weather,
}

impl Plan {
    /// One node.
    pub const ALONE: Self = Self {
        nodes: 1,
        workers: 3,
        clients: 10,
        members: 4,
        actions: 400,
        pause: 30,
        resets: 10,
        cuts_links: false,
        parts: false,
        majority: false,
        splits: false,
        sides: false,
        pauses: false,
        roams: true,
        kills: false,
        dies: false,
        backups: 1,
        more_backups: 0,
        blacks_out: false,
        skew: 0,
        sets_clocks: true,
        weather: Weather::ROUGH,
    };
    /// One node that is killed and started again.
    pub const KILLED: Self = Self {
        kills: true,
        ..Self::ALONE
    };
    /// Nodes whose links stay.
    pub const LINKED: Self = Self {
        nodes: 3,
        workers: 2,
        skew: 700,
        ..Self::ALONE
    };
    /// A node dies, and another one goes on with its sessions.
    pub const DYING: Self = Self {
        dies: true,
        resets: 0,
        ..Self::LINKED
    };
    /// Two nodes may die at once, or one after the other, and a third one that has the session goes on with it.
    pub const DYING_IN_TWOS: Self = Self {
        nodes: 4,
        backups: 2,
        ..Self::DYING
    };
    /// The same with one more of each.
    pub const DYING_IN_THREES: Self = Self {
        nodes: 5,
        backups: 3,
        ..Self::DYING
    };
    /// A node dies, and the others do not agree on how many copies a session is to have.
    pub const DYING_MIXED: Self = Self {
        nodes: 4,
        more_backups: 2,
        ..Self::DYING
    };
    /// All nodes lose their power at once.
    pub const DARK: Self = Self {
        blacks_out: true,
        ..Self::LINKED
    };
    /// Links break and come back.
    pub const CUT: Self = Self {
        cuts_links: true,
        ..Self::LINKED
    };
    /// Two nodes are parted while each has every session, and their clients go from the one to the other.
    pub const SPLIT: Self = Self {
        nodes: 2,
        parts: true,
        splits: true,
        resets: 0,
        ..Self::LINKED
    };
    /// Nodes are parted, some of them for long.
    pub const PARTED: Self = Self {
        parts: true,
        nodes: 4,
        workers: 1,
        pause: 60,
        ..Self::CUT
    };
    /// Nodes are parted into two sides of any size: sessions and their copies may all be on one of them.
    pub const SIDES: Self = Self {
        sides: true,
        roams: false,
        cuts_links: false,
        parts: false,
        resets: 0,
        ..Self::PARTED
    };
    /// A node is cut off from all others, again and again, and the smaller side refuses: nothing that was acknowledged is to be lost,
    /// whenever that was.
    pub const MAJORITY: Self = Self {
        majority: true,
        sets_clocks: false,
        cuts_links: false,
        nodes: 3,
        ..Self::PARTED
    };
    /// A node stands still for a while, and goes on where it was: a paused virtual machine, SIGSTOP, a disk that blocks.
    pub const PAUSED: Self = Self {
        pauses: true,
        roams: false,
        resets: 0,
        actions: 1_200,
        pause: 60,
        ..Self::LINKED
    };
    /// The same with clients that do not wait.
    pub const PAUSED_ROAMING: Self = Self {
        roams: true,
        ..Self::PAUSED
    };
    /// The same with two nodes.
    pub const PAUSED_PAIR: Self = Self {
        nodes: 2,
        ..Self::PAUSED
    };
    /// The same with two backups of each session.
    pub const PAUSED_WITH_TWO_BACKUPS: Self = Self {
        nodes: 4,
        backups: 2,
        ..Self::PAUSED
    };
    /// The same where only a side with more than half of the nodes serves.
    pub const PAUSED_MAJORITY: Self = Self {
        majority: true,
        ..Self::PAUSED
    };
    /// The same with clients that do not wait.
    pub const PAUSED_MAJORITY_ROAMING: Self = Self {
        roams: true,
        ..Self::PAUSED_MAJORITY
    };
}
