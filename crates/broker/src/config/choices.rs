//! What a setting may be where it is one of a few words.

use clap::ValueEnum;
use serde::Deserialize;

/// A way to find other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscoverChoice {
    /// Announcements by UDP multicast.
    Multicast,
    /// Every address of the names of `dns_name`.
    Dns,
    /// Seeds only.
    Off,
}

/// What becomes of a message when the queue of a session is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFullChoice {
    /// That session does not get it, all others do; it is counted.
    Drop,
    /// Nobody gets it, and its publisher is told: 0x97, before 5.0 no acknowledgement and a closed connection.
    Refuse,
}

/// Whose a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionScopeChoice {
    /// Its user's: another user with the same client identifier has one of its own.
    User,
    /// Of whoever connects with the client identifier.
    Client,
}

impl From<SessionScopeChoice> for thicket_node::SessionScope {
    fn from(choice: SessionScopeChoice) -> Self {
        match choice {
            SessionScopeChoice::User => Self::User,
            SessionScopeChoice::Client => Self::Client,
        }
    }
}

impl From<OnFullChoice> for thicket_node::OnFull {
    fn from(choice: OnFullChoice) -> Self {
        match choice {
            OnFullChoice::Drop => Self::Drop,
            OnFullChoice::Refuse => Self::Refuse,
        }
    }
}

/// Whether clients are sent to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectChoice {
    /// They are served where they come.
    Off,
    /// To nodes with less to do.
    Load,
    /// Those that are placed to the nodes where their topics are, the others by load.
    Topics,
}

/// Whether connected clients are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebalanceChoice {
    /// No.
    Off,
    /// What should move is told; nobody is moved unless an operator says so.
    Suggest,
    /// Yes.
    On,
}

impl From<RebalanceChoice> for thicket_node::RebalanceMode {
    fn from(choice: RebalanceChoice) -> Self {
        match choice {
            RebalanceChoice::Off => Self::Off,
            RebalanceChoice::Suggest => Self::Suggest,
            RebalanceChoice::On => Self::On,
        }
    }
}

/// What of a node's load counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectPolicyChoice {
    /// CPU of its process.
    Cpu,
    /// Messages from and to clients.
    Messages,
    /// Clients connected.
    Connections,
    /// All of them, messages most.
    Combined,
}

impl From<RedirectPolicyChoice> for thicket_placement::Policy {
    fn from(choice: RedirectPolicyChoice) -> Self {
        match choice {
            RedirectPolicyChoice::Cpu => Self::Cpu,
            RedirectPolicyChoice::Messages => Self::Messages,
            RedirectPolicyChoice::Connections => Self::Connections,
            RedirectPolicyChoice::Combined => Self::Combined,
        }
    }
}

/// Least important lines in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something is wrong here.
    Error,
    /// And what peers did wrong.
    Warn,
    /// And what an operator wants to know.
    Info,
    /// And packets.
    Debug,
    /// And what the system did.
    Trace,
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// What a side of the cluster does that does not see all of it (rule 19 between nodes). The same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PartitionChoice {
    /// It serves.
    Serve,
    /// It serves if it sees more than half of all nodes that ever joined and were not removed by `thicket ctl forget`.
    Majority,
}

impl From<PartitionChoice> for thicket_node::Partition {
    fn from(choice: PartitionChoice) -> Self {
        match choice {
            PartitionChoice::Serve => Self::Serve,
            PartitionChoice::Majority => Self::Majority,
        }
    }
}

/// What answers to clients wait for (rule 8 between nodes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledgement {
    /// The backups of the client's session have it too.
    #[default]
    Replicated,
    /// This node has it, and so have the nodes that want the message.
    Local,
}
