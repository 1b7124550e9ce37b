//! Wire versions: which ones a node supports, and which one two nodes use with each other.
//!
//! A release supports its own version and that of the release before, so that a cluster is upgraded node by node. In the hello, `wire` is the oldest
//! version a node supports; the newest, if it differs, has its own property.

use std::fmt;

/// A version of everything that links carry. Raised when an older node could misread something, or would not understand a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireVersion(u16);

impl WireVersion {
    /// The oldest version that this program supports. No release had a lower one.
    pub const OLDEST: Self = Self(14);
    /// The newest version that this program supports.
    pub const NEWEST: Self = Self(14);

    /// The number in a hello.
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

/// The versions that a node supports, both ends included; `oldest <= newest`. Those of another node may be any numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireRange {
    pub(crate) oldest: u16,
    pub(crate) newest: u16,
}

impl WireRange {
    /// The range of this program.
    pub(crate) const OWN: Self = Self {
        oldest: WireVersion::OLDEST.0,
        newest: WireVersion::NEWEST.0,
    };

    /// The version that two nodes use with each other: the newest that both support. `None`: there is none.
    pub(crate) fn common(self, other: Self) -> Option<WireVersion> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(WireVersion(newest))
    }

    /// Whether it is sent as two numbers.
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
