//! The four ways to route.

use std::str::FromStr;

/// How a node routes what its clients publish. All nodes of a cluster should have the same mode; delivery is correct without that, as every copy
/// names its remaining destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoutingMode {
    /// Directly to each interested node; round a missing link over the shortest path.
    #[default]
    Mesh,
    /// Over the tree of the topic's own nodes, those with a matching interest and the origin (t-ORT, Overlays 5.2).
    Topic,
    /// Over the one tree of all nodes, only along branches with an interested node (SRT and PRT, Overlays 5.1).
    Tree,
    /// Over the one tree to all nodes (Overlays 5.1).
    Flood,
}

impl RoutingMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mesh, Self::Topic, Self::Tree, Self::Flood];

    /// The name in the configuration and for display.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mesh => "mesh",
            Self::Topic => "topic",
            Self::Tree => "tree",
            Self::Flood => "flood",
        }
    }

    /// The code in a record.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The mode for the code in a record; `None` for a mode of a later version.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.code() == code)
    }
}

/// Not the name of a routing mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is none of mesh, topic, tree, flood")]
pub struct UnknownMode {
    given: String,
}

impl FromStr for RoutingMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let named = Self::ALL.into_iter().find(|mode| mode.name() == text);
        named.ok_or_else(|| UnknownMode { given: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_read_as_written_and_others_refused() {
        for mode in RoutingMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(RoutingMode::from_code(mode.code()), Some(mode));
        }
        assert_eq!(RoutingMode::from_code(4), None);
        let error = "star".parse::<RoutingMode>().expect_err("no mode");
        assert_eq!(
            error.to_string(),
            "\"star\" is none of mesh, topic, tree, flood"
        );
    }
}
