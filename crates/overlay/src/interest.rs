//! What a node wants: the words shared by every level of interest.

use std::sync::Arc;

use thicket_mqtt::Qos;
use thicket_session::topic::TopicFilter;

/// What is wanted. A node has at most one interest for each key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterestKey {
    /// Topic filter, without the prefix of a shared subscription.
    pub filter: TopicFilter,
    /// Whether a group shares it.
    pub sharing: Sharing,
}

/// Whether every holder of an interest takes a message, or one of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sharing {
    /// Each takes it.
    Plain,
    /// One of the group with this ShareName takes it (5.0, 4.8.2).
    Group(Arc<str>),
}

/// How it is wanted: the aggregate over all sessions of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterestValue {
    /// Highest QoS granted.
    pub qos: Qos,
    /// Some session outlives its connection: messages are kept for it when the node is out (rule 5).
    pub persistent: bool,
    /// Connected members of the group here; of a plain interest how many subscriptions there are, within a factor of two.
    pub weight: u32,
}

/// A change of one interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterestChange {
    /// Of which.
    pub key: InterestKey,
    /// What it is from now on, `None`: withdrawn.
    pub value: Option<InterestValue>,
}
