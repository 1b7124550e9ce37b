//! The reserved topics of a link and their aliases.

/// One reserved topic. The order is that of the aliases, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Batches of forwarded messages.
    Data,
    /// The link itself: selection, hellos, continuing where an earlier link ended.
    Link,
    /// Records of nodes.
    View,
    /// Interests, and which version of them was applied.
    Interests,
    /// Acknowledgements and credit.
    Acknowledgements,
    /// Control messages between hubs.
    Hub,
    /// Batches sent over a tree, with their remaining destinations.
    Tree,
    /// Bytes of tunnels between two other nodes.
    Tunnel,
}

impl Channel {
    pub(crate) const ALL: [Self; 8] = [
        Self::Data,
        Self::Link,
        Self::View,
        Self::Interests,
        Self::Acknowledgements,
        Self::Hub,
        Self::Tree,
        Self::Tunnel,
    ];

    pub(crate) const fn topic(self) -> &'static str {
        match self {
            Self::Data => "$thicket/data",
            Self::Link => "$thicket/control/link",
            Self::View => "$thicket/control/view",
            Self::Interests => "$thicket/control/interests",
            Self::Acknowledgements => "$thicket/control/acknowledgements",
            Self::Hub => "$thicket/control/hub",
            Self::Tree => "$thicket/tree",
            Self::Tunnel => "$thicket/tunnel",
        }
    }

    pub(crate) const fn alias(self) -> u16 {
        self as u16 + 1
    }

    pub(crate) fn from_topic(topic: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|channel| channel.topic() == topic)
    }
}
