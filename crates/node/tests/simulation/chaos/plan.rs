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
    /// Nodes are partitioned only when every session has its backup and all has been quiet for a while.
    pub splits: bool,
    /// Nodes are partitioned into two sides when every session has its backup and all has been quiet for a while. Meanwhile clients stay as
    /// they are, and publish.
    pub sides: bool,
    /// A node stands still now and then, for times on both sides of every time-out, when every session has its backups and all has been
    /// quiet for a while. Meanwhile clients stay as they are, and publish.
    pub pauses: bool,
    /// Clients go from node to node although nodes are partitioned, or stand still.
    pub roams: bool,
    /// Nodes have a data directory, are killed at once and started again.
    pub kills: bool,
    /// Nodes that keep nothing are killed one at a time and started again: the next one when every session has its backup.
    pub dies: bool,
    /// Backups of each session on other nodes; so many nodes may die at once, if `dies`.
    pub backups: u8,
    /// Nodes differ: each lets its sessions have one backup more than the one before it, until it is this many more; the next has
    /// `backups` again.
    pub more_backups: u8,
    /// Those that are killed, or die, do so right after a point named by `reach!`; if they have two backups, a second one at a point that follows.
    pub at_points: bool,
    /// Nodes have a data directory; all lose their power at once and are started again.
    pub blacks_out: bool,
    /// Nodes have a data directory; all stop when every session has its backups, and boot in any order, for times on both sides of
    /// every time-out apart. Clients connect to whatever is up.
    pub boots_apart: bool,
    /// A node is killed and started again while it is partitioned from others.
    pub restarts_partitioned: bool,
    /// Each node's clock is this much ahead of the one before, ms.
    pub skew: u64,
    /// In half of the runs a node's clock is now and then set back or forward by up to an hour.
    pub sets_clocks: bool,
    pub weather: Weather,
    /// What happens now and then, for times on both sides of every time-out, when every session has its backups and all has been quiet
    /// for a while. Meanwhile clients stay as they are, unless they roam, and publish.
    pub faults: &'static [Fault],
    /// Number of faults at once: the later ones begin in the middle of the first.
    pub overlap: usize,
    /// Also when as many have begun since every session was covered: that is more than is promised.
    pub chains: bool,
    /// Nodes have a data directory, whatever happens to it.
    pub stores: bool,
    /// One node is ten times slower than the others.
    pub is_slow: bool,
    /// Clocks go at different speeds.
    pub drifts: bool,
    /// Nodes send clients to where there is less to do, and what each has to do changes.
    pub redirects: bool,
    /// It is the rebalancer that has them sent, and each may be moved again after a moment.
    pub rebalances: bool,
    /// Clients of 5.0 ask where up to three sessions of theirs should be. They keep one, which goes where the first should be.
    pub places: bool,
    /// Queues, windows and buffers are as small as can be, and what exceeds them is refused.
    pub is_cramped: bool,
    /// The rights of clients end while they are connected.
    pub rights_end: bool,
    /// Clients connect with tokens that expire while they are connected.
    pub tokens: bool,
    /// So many clients, the first ones, do nothing but publish, most of them to one topic.
    pub publishers: usize,
}

/// Something that happens to a node, and is over after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The node stands still.
    Pause,
    /// A thread of the node is busy: one of its rounds takes seconds.
    Busy,
    /// The node stands still, and so do its clocks, as a suspended virtual machine's.
    Freeze,
    /// One-way link: what the node sends to one other node, or to all, is lost.
    OneWay,
    /// What the node and one other send to each other vanishes, or what it and all others send.
    BlackHole,
    /// A link of the node breaks without a word to either end.
    HalfOpen,
    /// The disk of the node takes long to write.
    StalledDisk,
    /// The disk of the node fails in the middle of a round, and the node ends with an error; it is back with what was written before.
    FailedDisk,
    /// The process of the node is gone, and back.
    Kill,
    /// Memory is short: new sessions are refused, and QoS 0 dropped for clients that read too slowly.
    ShortOfMemory,
    /// The node is drained; then that is undone, or it is stopped and started again.
    Drain,
    /// The machine of the node loses its power: its links are half-open at the other nodes. It is back.
    PowerLoss,
}

impl Plan {
    /// Nodes are partitioned now and then, in the middle of what they do.
    pub const fn is_disturbed(&self) -> bool {
        self.splits || self.boots_apart || self.majority || self.pauses || !self.faults.is_empty()
    }

    /// Clients move to nodes that do not reach the primary of their session, nor a backup: they begin another session there.
    pub fn is_partitioned_while_clients_move(&self) -> bool {
        let mut faults = self.faults.iter();
        self.roams && faults.any(|fault| matches!(fault, Fault::OneWay | Fault::BlackHole))
    }

    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 55] = [
        ("ALONE", Self::ALONE),
        ("KILLED", Self::KILLED),
        ("LINKED", Self::LINKED),
        ("DYING", Self::DYING),
        ("DYING_IN_TWOS", Self::DYING_IN_TWOS),
        ("DYING_IN_THREES", Self::DYING_IN_THREES),
        ("DYING_MIXED", Self::DYING_MIXED),
        ("KILLED_AT_POINTS", Self::KILLED_AT_POINTS),
        ("DYING_AT_POINTS", Self::DYING_AT_POINTS),
        ("DYING_AT_POINTS_IN_TWOS", Self::DYING_AT_POINTS_IN_TWOS),
        ("POWER_LOSS", Self::POWER_LOSS),
        ("BOOTED_APART", Self::BOOTED_APART),
        ("BOOTED_APART_MAJORITY", Self::BOOTED_APART_MAJORITY),
        (
            "BOOTED_APART_WITH_TWO_BACKUPS",
            Self::BOOTED_APART_WITH_TWO_BACKUPS,
        ),
        ("LINK_LOSS", Self::LINK_LOSS),
        ("SPLIT", Self::SPLIT),
        ("PARTIAL_PARTITION", Self::PARTIAL_PARTITION),
        ("TWO_WAY_PARTITION", Self::TWO_WAY_PARTITION),
        ("RESTARTED_PARTITIONED", Self::RESTARTED_PARTITIONED),
        ("SPLIT_AND_RESTARTED", Self::SPLIT_AND_RESTARTED),
        ("MAJORITY", Self::MAJORITY),
        ("PAUSED", Self::PAUSED),
        ("PAUSED_ROAMING", Self::PAUSED_ROAMING),
        ("PAUSED_PAIR", Self::PAUSED_PAIR),
        ("PAUSED_WITH_TWO_BACKUPS", Self::PAUSED_WITH_TWO_BACKUPS),
        ("PAUSED_MAJORITY", Self::PAUSED_MAJORITY),
        ("PAUSED_MAJORITY_ROAMING", Self::PAUSED_MAJORITY_ROAMING),
        ("ONE_WAY", Self::ONE_WAY),
        ("ONE_WAY_ROAMING", Self::ONE_WAY_ROAMING),
        ("UNNOTICED_FAILURE", Self::UNNOTICED_FAILURE),
        ("UNNOTICED_FAILURE_ROAMING", Self::UNNOTICED_FAILURE_ROAMING),
        ("FROZEN", Self::FROZEN),
        ("STALLED", Self::STALLED),
        ("SLOW", Self::SLOW),
        ("SHORT_OF_MEMORY", Self::SHORT_OF_MEMORY),
        ("RIGHTS_END", Self::RIGHTS_END),
        ("TOKENS_EXPIRE", Self::TOKENS_EXPIRE),
        ("TOKENS_EXPIRE_AND_MOVING", Self::TOKENS_EXPIRE_AND_MOVING),
        ("TOKENS_EXPIRE_ROAMING", Self::TOKENS_EXPIRE_ROAMING),
        ("PUBLISHING_AND_DYING", Self::PUBLISHING_AND_DYING),
        ("PUBLISHING_MAJORITY", Self::PUBLISHING_MAJORITY),
        ("PUBLISHING_AND_PAUSED", Self::PUBLISHING_AND_PAUSED),
        ("FULL_QUEUES", Self::FULL_QUEUES),
        ("REDIRECTED", Self::REDIRECTED),
        ("REDIRECTED_AND_DYING", Self::REDIRECTED_AND_DYING),
        ("MOVING", Self::MOVING),
        ("MOVING_AND_DYING", Self::MOVING_AND_DYING),
        ("PLACED_AND_DYING", Self::PLACED_AND_DYING),
        ("MOVING_AND_PARTITIONED", Self::MOVING_AND_PARTITIONED),
        ("OVERLAPPING", Self::OVERLAPPING),
        ("PAUSED_AND_PARTITIONED", Self::PAUSED_AND_PARTITIONED),
        ("OVERLAPPING_MAJORITY", Self::OVERLAPPING_MAJORITY),
        ("DRAINED", Self::DRAINED),
        ("DRAINED_MAJORITY", Self::DRAINED_MAJORITY),
        ("DRAINED_AND_DYING", Self::DRAINED_AND_DYING),
    ];

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
        at_points: false,
        blacks_out: false,
        boots_apart: false,
        restarts_partitioned: false,
        skew: 0,
        sets_clocks: true,
        weather: Weather::ROUGH,
        faults: &[],
        overlap: 1,
        chains: false,
        stores: false,
        is_slow: false,
        drifts: false,
        redirects: false,
        rebalances: false,
        places: false,
        is_cramped: false,
        rights_end: false,
        tokens: false,
        publishers: 0,
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
    /// A node dies, and its sessions fail over to another one.
    pub const DYING: Self = Self {
        dies: true,
        resets: 0,
        ..Self::LINKED
    };
    /// Two nodes may die at once, or one after the other, and their sessions fail over to a third one.
    pub const DYING_IN_TWOS: Self = Self {
        nodes: 4,
        backups: 2,
        ..Self::DYING
    };
    /// The same with three nodes at once and three backups.
    pub const DYING_IN_THREES: Self = Self {
        nodes: 5,
        backups: 3,
        ..Self::DYING
    };
    /// A node dies, and the others do not agree on how many backups a session is to have.
    pub const DYING_MIXED: Self = Self {
        nodes: 4,
        more_backups: 2,
        ..Self::DYING
    };
    /// Nodes that keep their data are killed right after a rare branch, or the end of a time-out, whatever else goes on.
    pub const KILLED_AT_POINTS: Self = Self {
        kills: true,
        at_points: true,
        resets: 0,
        ..Self::LINKED
    };
    /// Nodes that keep nothing die there, while clients are moved.
    pub const DYING_AT_POINTS: Self = Self {
        at_points: true,
        ..Self::MOVING_AND_DYING
    };
    /// The same with two nodes, the second one in the middle of the failover from the first.
    pub const DYING_AT_POINTS_IN_TWOS: Self = Self {
        at_points: true,
        ..Self::DYING_IN_TWOS
    };
    /// All nodes lose their power at once.
    pub const POWER_LOSS: Self = Self {
        blacks_out: true,
        ..Self::LINKED
    };
    /// All nodes stop, and boot one after the other while clients come back.
    pub const BOOTED_APART: Self = Self {
        boots_apart: true,
        stores: true,
        resets: 0,
        pause: 60,
        actions: 600,
        ..Self::LINKED
    };
    /// The same, and only a majority serves.
    pub const BOOTED_APART_MAJORITY: Self = Self {
        majority: true,
        sets_clocks: false,
        ..Self::BOOTED_APART
    };
    /// The same with two backups of each session.
    pub const BOOTED_APART_WITH_TWO_BACKUPS: Self = Self {
        backups: 2,
        nodes: 4,
        ..Self::BOOTED_APART
    };
    /// Links break and come back.
    pub const LINK_LOSS: Self = Self {
        cuts_links: true,
        ..Self::LINKED
    };
    /// Two nodes are partitioned while each has every session, and their clients go from the one to the other.
    pub const SPLIT: Self = Self {
        nodes: 2,
        parts: true,
        splits: true,
        resets: 0,
        ..Self::LINKED
    };
    /// Nodes are partitioned, some of them for long.
    pub const PARTIAL_PARTITION: Self = Self {
        parts: true,
        nodes: 4,
        workers: 2,
        pause: 60,
        ..Self::LINK_LOSS
    };
    /// Nodes are partitioned into two sides of any size: sessions and their backups may all be on one of them.
    pub const TWO_WAY_PARTITION: Self = Self {
        sides: true,
        roams: false,
        cuts_links: false,
        parts: false,
        resets: 0,
        ..Self::PARTIAL_PARTITION
    };
    /// The same, and nodes are killed and started again meanwhile. Every node has every session: messages that are kept for nodes
    /// that are down are in memory.
    pub const RESTARTED_PARTITIONED: Self = Self {
        restarts_partitioned: true,
        stores: true,
        backups: 3,
        ..Self::TWO_WAY_PARTITION
    };
    /// The same with two nodes, whose clients go from the one to the other.
    pub const SPLIT_AND_RESTARTED: Self = Self {
        restarts_partitioned: true,
        stores: true,
        ..Self::SPLIT
    };
    /// A node is cut off from all others, again and again, and the smaller side refuses: nothing that was acknowledged is to be lost,
    /// whenever that was.
    pub const MAJORITY: Self = Self {
        majority: true,
        sets_clocks: false,
        cuts_links: false,
        nodes: 3,
        ..Self::PARTIAL_PARTITION
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
    /// Bytes arrive one way only.
    pub const ONE_WAY: Self = Self {
        pauses: false,
        faults: &[Fault::OneWay],
        ..Self::PAUSED
    };
    /// The same with clients that do not wait.
    pub const ONE_WAY_ROAMING: Self = Self {
        roams: true,
        ..Self::ONE_WAY
    };
    /// Failures that no other node notices: packets vanish, connections are half-open, machines lose their power.
    pub const UNNOTICED_FAILURE: Self = Self {
        faults: &[Fault::BlackHole, Fault::HalfOpen, Fault::PowerLoss],
        stores: true,
        ..Self::ONE_WAY
    };
    /// The same with clients that do not wait.
    pub const UNNOTICED_FAILURE_ROAMING: Self = Self {
        roams: true,
        ..Self::UNNOTICED_FAILURE
    };
    /// Nodes are suspended with their clocks, and clocks go at different speeds.
    pub const FROZEN: Self = Self {
        faults: &[Fault::Freeze],
        drifts: true,
        ..Self::ONE_WAY
    };
    /// Disks take long, or fail.
    pub const STALLED: Self = Self {
        faults: &[Fault::StalledDisk, Fault::StalledDisk, Fault::FailedDisk],
        stores: true,
        ..Self::ONE_WAY
    };
    /// A node is ten times slower than the others, and others stand still, or have rounds that take seconds.
    pub const SLOW: Self = Self {
        faults: &[Fault::Pause, Fault::OneWay, Fault::Busy, Fault::Busy],
        is_slow: true,
        ..Self::ONE_WAY
    };
    /// Nodes are short of memory, and die.
    pub const SHORT_OF_MEMORY: Self = Self {
        faults: &[Fault::ShortOfMemory, Fault::ShortOfMemory, Fault::Kill],
        stores: true,
        overlap: 2,
        backups: 2,
        nodes: 4,
        ..Self::ONE_WAY
    };
    /// The rights of clients end, as by tokens that expire, while clocks go at different speeds and nodes stand still.
    pub const RIGHTS_END: Self = Self {
        faults: &[Fault::Pause, Fault::Freeze],
        rights_end: true,
        drifts: true,
        ..Self::ONE_WAY
    };
    /// Tokens of clients expire, while nodes stand still, are suspended or killed, and clocks drift and are set.
    pub const TOKENS_EXPIRE: Self = Self {
        faults: &[Fault::Pause, Fault::Freeze, Fault::Kill],
        tokens: true,
        rights_end: false,
        stores: true,
        ..Self::RIGHTS_END
    };
    /// The same while clients move, and nodes die one at a time.
    pub const TOKENS_EXPIRE_AND_MOVING: Self = Self {
        tokens: true,
        drifts: true,
        ..Self::MOVING_AND_DYING
    };
    /// The same while nodes stand still, and clients do not wait.
    pub const TOKENS_EXPIRE_ROAMING: Self = Self {
        tokens: true,
        drifts: true,
        ..Self::PAUSED_ROAMING
    };
    /// Clients that only publish follow their messages from worker to worker, while nodes die one at a time.
    pub const PUBLISHING_AND_DYING: Self = Self {
        publishers: 5,
        members: 0,
        workers: 3,
        actions: 1_200,
        pause: 40,
        ..Self::DYING
    };
    /// The same while nodes are partitioned, and only a side with more than half of them serves.
    pub const PUBLISHING_MAJORITY: Self = Self {
        publishers: 5,
        members: 0,
        workers: 3,
        actions: 800,
        ..Self::MAJORITY
    };
    /// The same while nodes stand still, are not heard, or are killed.
    pub const PUBLISHING_AND_PAUSED: Self = Self {
        publishers: 5,
        members: 0,
        workers: 3,
        faults: &[Fault::Pause, Fault::OneWay, Fault::Kill],
        stores: true,
        ..Self::ONE_WAY
    };
    /// Queues, windows and buffers are as small as possible, and links break.
    pub const FULL_QUEUES: Self = Self {
        is_cramped: true,
        ..Self::LINK_LOSS
    };
    /// Clients are redirected, at their CONNECT and while they are connected.
    pub const REDIRECTED: Self = Self {
        redirects: true,
        actions: 800,
        pause: 60,
        ..Self::LINKED
    };
    /// The same while nodes die one at a time.
    pub const REDIRECTED_AND_DYING: Self = Self {
        redirects: true,
        actions: 800,
        pause: 60,
        ..Self::DYING
    };
    /// The rebalancer has clients moved all the time.
    pub const MOVING: Self = Self {
        rebalances: true,
        ..Self::REDIRECTED
    };
    /// The same while nodes die one at a time, the rebalancer too.
    pub const MOVING_AND_DYING: Self = Self {
        rebalances: true,
        ..Self::REDIRECTED_AND_DYING
    };
    /// The same, with clients that may have several sessions.
    pub const PLACED_AND_DYING: Self = Self {
        // Clients are placed at nodes of one site.
        weather: Weather {
            link_delay: (0, 2),
            ..Weather::ROUGH
        },
        places: true,
        ..Self::MOVING_AND_DYING
    };
    /// The rebalancer moves clients with one session while nodes are partitioned.
    pub const MOVING_AND_PARTITIONED: Self = Self {
        redirects: true,
        rebalances: true,
        ..Self::PARTIAL_PARTITION
    };
    /// Two nodes stand still, stall or die at once, with two backups of each session.
    pub const OVERLAPPING: Self = Self {
        nodes: 4,
        backups: 2,
        faults: &[Fault::Pause, Fault::StalledDisk, Fault::Kill],
        overlap: 2,
        stores: true,
        drifts: true,
        ..Self::ONE_WAY
    };
    /// A node stands still while another one is partitioned from some, with two backups of each session.
    pub const PAUSED_AND_PARTITIONED: Self = Self {
        faults: &[Fault::Pause, Fault::OneWay, Fault::BlackHole],
        ..Self::OVERLAPPING
    };
    /// The same where only a side with more than half of the nodes serves.
    pub const OVERLAPPING_MAJORITY: Self = Self {
        majority: true,
        nodes: 5,
        ..Self::OVERLAPPING
    };
    /// The same plan with faults that begin although not every session is covered again.
    pub const fn chained(self) -> Self {
        Self {
            chains: true,
            ..self
        }
    }

    /// A node is drained while another one stands still or is not heard.
    pub const DRAINED: Self = Self {
        nodes: 3,
        backups: 1,
        faults: &[Fault::Drain, Fault::Pause, Fault::OneWay],
        ..Self::OVERLAPPING
    };
    /// The same where only a side with more than half of the nodes serves.
    pub const DRAINED_MAJORITY: Self = Self {
        majority: true,
        ..Self::DRAINED
    };
    /// A node is drained while another one dies or stands still, with two backups of each session.
    pub const DRAINED_AND_DYING: Self = Self {
        faults: &[Fault::Drain, Fault::Kill, Fault::Pause],
        ..Self::OVERLAPPING
    };
}
