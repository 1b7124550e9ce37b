//! Interests: the terms that every level shares.

use std::sync::Arc;

use thicket_mqtt::Qos;
use thicket_session::topic::TopicFilter;

/// Filter and sharing of an interest. A node has at most one interest for each key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterestKey {
    /// Topic filter, without the prefix of a shared subscription.
    pub filter: TopicFilter,
    /// Whether a group shares the interest.
    pub sharing: Sharing,
}

/// Whether every holder of an interest receives a message, or one of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sharing {
    /// Each receives it.
    Plain,
    /// One of the group with this ShareName receives it (5.0, 4.8.2).
    Group(Arc<str>),
}

/// The value of an interest: the aggregate over all sessions of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterestValue {
    /// Highest QoS granted.
    pub qos: Qos,
    /// Some session outlives its connection: messages are kept for it while the node is down (rule 5).
    pub persistent: bool,
    /// Connected members of the group here; for a plain interest the number of subscriptions, within a factor of two.
    pub weight: u32,
}

/// A change of one interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterestChange {
    /// The interest.
    pub key: InterestKey,
    /// Its new value; `None`: withdrawn.
    pub value: Option<InterestValue>,
}
