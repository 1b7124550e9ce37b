//! The numbers of brokers, topics and clients.

/// A broker of the cluster, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub u16);

/// A topic, counted from 0 in the order of [`crate::Cluster::add_topic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u32);

/// A client, numbered by the caller; small numbers, since tables are as long as the highest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

impl BrokerId {
    /// Position in a table with one entry a broker.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl TopicId {
    /// Position in a table with one entry a topic.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ClientId {
    /// Position in a table with one entry a client.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
