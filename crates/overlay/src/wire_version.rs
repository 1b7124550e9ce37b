//! Which versions of everything links carry a node speaks, and which one two nodes use with each other.
//!
//! At least two adjacent versions run together, so that a cluster is brought to a new release node by node. The first released nodes
//! know one version only, [`WireVersion::V3`], and refuse whoever says another number in the hello's `wire`: so `wire` is the
//! oldest version a node speaks, and the newest stands in a property of its own that those nodes pass over.

use std::fmt;

/// A version of everything links carry. Raised when an older node could misread something, or would not know a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireVersion(u16);

impl WireVersion {
    /// Of the nodes before any range was announced.
    pub const V3: Self = Self(3);
    /// With control messages that nodes of version 3 do not know.
    pub const V4: Self = Self(4);
    /// With sessions that have more than one copy, who has them, and what is kept for nodes that are out.
    pub const V5: Self = Self(5);
    /// With runs in the streams of copies.
    pub const V6: Self = Self(6);
    /// With what each node has to do and where clients reach it, how many subscriptions stand behind an interest, and redirections.
    pub const V7: Self = Self(7);
    /// With the settings that must be the same on all nodes.
    pub const V8: Self = Self(8);
    /// With what the rebalancer asks and orders.
    pub const V9: Self = Self(9);
    /// The oldest one this program speaks.
    pub const OLDEST: Self = Self::V3;
    /// The newest one this program speaks.
    pub const NEWEST: Self = Self::V9;

    /// As it stands in a hello.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for WireVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// The versions a node speaks, both ends included; `oldest <= newest`. Of another node they may be any numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireRange {
    pub(crate) oldest: u16,
    pub(crate) newest: u16,
}

impl WireRange {
    /// Of this program, limited to `newest`.
    pub(crate) const fn up_to(newest: WireVersion) -> Self {
        Self {
            oldest: WireVersion::OLDEST.0,
            newest: newest.0,
        }
    }

    /// The version two nodes use with each other: the newest that both speak. `None`: there is none.
    pub(crate) fn common(self, other: Self) -> Option<WireVersion> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(WireVersion(newest))
    }

    /// Whether it is announced by two numbers.
    pub(crate) const fn is_wide(self) -> bool {
        self.newest > self.oldest
    }
}

impl fmt::Display for WireRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_wide() {
            write!(formatter, "{} to {}", self.oldest, self.newest)
        } else {
            write!(formatter, "{}", self.newest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_use_the_newest_version_that_both_speak() {
        let range = |oldest, newest| WireRange { oldest, newest };
        let cases = [
            ("the same", range(3, 4), range(3, 4), Some(4)),
            ("one is older", range(3, 4), range(3, 3), Some(3)),
            ("one is newer", range(3, 4), range(4, 5), Some(4)),
            ("too old", range(4, 5), range(3, 3), None),
            ("too new", range(3, 4), range(5, 6), None),
        ];
        for (name, one, other, version) in cases {
            let version = version.map(WireVersion);
            assert_eq!(one.common(other), version, "{name}");
            assert_eq!(other.common(one), version, "{name}, seen from there");
        }
        assert_eq!(format!("{}, {}", range(3, 4), range(3, 3)), "3 to 4, 3");
    }
}
