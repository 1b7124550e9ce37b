//! Which topics cross, in which direction, and under which name they arrive.

use thicket_mqtt::Qos;
use thicket_session::topic::{TopicFilter, TopicFilterError, TopicName, TopicNameError};

/// One of the two brokers of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The node that has the bridge.
    Local,
    /// The broker of another kind.
    Remote,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// The one across the bridge.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Local => Self::Remote,
            Self::Remote => Self::Local,
        }
    }

    /// `local` or `remote`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Which way a rule carries messages, seen from the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other broker to the node.
    In,
    /// From the node to the other broker.
    Out,
    /// Both ways.
    Both,
}

impl Direction {
    const fn takes_from(self, side: Side) -> bool {
        match (self, side) {
            (Self::Both, _) | (Self::In, Side::Remote) | (Self::Out, Side::Local) => true,
            (Self::In, Side::Local) | (Self::Out, Side::Remote) => false,
        }
    }
}

/// What becomes of the RETAIN flag on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retain {
    /// It is kept, as far as the broker says it: before 5.0 only what it had retained already is marked.
    #[default]
    Keep,
    /// It is taken off.
    Clear,
}

/// A rule as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConfig {
    /// The part of the filter that both sides share, with wildcards; may be empty if there are prefixes.
    pub topic: String,
    /// Which way.
    pub direction: Direction,
    /// Stands before `topic` at the node; without wildcards.
    pub local_prefix: String,
    /// Stands before `topic` at the other broker; without wildcards.
    pub remote_prefix: String,
    /// The most a message has on its way; what was published with less keeps less.
    pub qos: Qos,
    /// The RETAIN flag.
    pub retain: Retain,
}

impl RuleConfig {
    /// A rule without prefixes, with up to QoS 1, that keeps RETAIN.
    #[must_use]
    pub fn new(topic: impl Into<String>, direction: Direction) -> Self {
        Self {
            topic: topic.into(),
            direction,
            local_prefix: String::new(),
            remote_prefix: String::new(),
            qos: Qos::AtLeastOnce,
            retain: Retain::Keep,
        }
    }
}

/// A rule that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Prefix and topic do not make a filter.
    #[error("{side} filter {filter:?}: {source}")]
    Filter {
        /// At which broker.
        side: &'static str,
        /// Prefix and topic.
        filter: String,
        /// Why.
        source: TopicFilterError,
    },
    /// A prefix that no topic name can begin with.
    #[error("{side}_prefix {prefix:?}: {source}")]
    Prefix {
        /// At which broker.
        side: &'static str,
        /// The prefix.
        prefix: String,
        /// Why.
        source: TopicNameError,
    },
    /// A subscription that is shared would give a bridge a part of the messages only.
    #[error("{side} filter {filter:?}: shared subscriptions cannot be bridged")]
    Shared {
        /// At which broker.
        side: &'static str,
        /// Prefix and topic.
        filter: String,
    },
}

/// A checked rule. See [`RuleConfig`].
#[derive(Debug, Clone)]
pub struct Rule {
    direction: Direction,
    /// By side.
    filters: [TopicFilter; 2],
    /// By side.
    prefixes: [String; 2],
    qos: Qos,
    retain: Retain,
}

impl Rule {
    /// Checks a rule.
    ///
    /// # Errors
    /// A prefix holds wildcards or control characters, or the filter of a side is none.
    pub fn new(config: &RuleConfig) -> Result<Self, RuleError> {
        let filter = |side: Side, prefix: &str| {
            let (side, filter) = (side.name(), format!("{prefix}{}", config.topic));
            if !prefix.is_empty() {
                TopicName::check(prefix).map_err(|source| RuleError::Prefix {
                    side,
                    prefix: prefix.to_owned(),
                    source,
                })?;
            }
            if filter.starts_with("$share/") {
                return Err(RuleError::Shared { side, filter });
            }
            TopicFilter::new(&filter).map_err(|source| RuleError::Filter {
                side,
                filter,
                source,
            })
        };
        Ok(Self {
            direction: config.direction,
            filters: [
                filter(Side::Local, &config.local_prefix)?,
                filter(Side::Remote, &config.remote_prefix)?,
            ],
            prefixes: [config.local_prefix.clone(), config.remote_prefix.clone()],
            qos: config.qos,
            retain: config.retain,
        })
    }

    /// What the bridge subscribes to at `side`, `None` if nothing is taken from there.
    #[must_use]
    pub fn filter(&self, side: Side) -> Option<&TopicFilter> {
        self.direction
            .takes_from(side)
            .then(|| &self.filters[side.index()])
    }

    /// The name under which what `side` publishes as `topic` arrives across the bridge, `None` if the rule does not take it.
    #[must_use]
    pub fn map(&self, side: Side, topic: &str) -> Option<String> {
        if !self.filter(side)?.matches(topic) {
            return None;
        }
        // `a/#` matches `a` too, which has nothing behind the prefix `a/`.
        let rest = topic.strip_prefix(&*self.prefixes[side.index()])?;
        let mapped = format!("{}{rest}", self.prefixes[side.other().index()]);
        TopicName::check(&mapped).is_ok().then_some(mapped)
    }

    /// The most a message has on its way.
    #[must_use]
    pub const fn qos(&self) -> Qos {
        self.qos
    }

    /// The RETAIN flag.
    #[must_use]
    pub const fn retain(&self) -> Retain {
        self.retain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(topic: &str, direction: Direction, local: &str, remote: &str) -> Rule {
        Rule::new(&RuleConfig {
            local_prefix: local.into(),
            remote_prefix: remote.into(),
            ..RuleConfig::new(topic, direction)
        })
        .unwrap()
    }

    #[test]
    fn a_topic_crosses_in_the_direction_of_its_rule_and_changes_its_prefix() {
        use Direction::{Both, In, Out};
        use Side::{Local, Remote};
        type Case = (&'static str, Rule, Side, &'static str, Option<&'static str>);
        let cases: [Case; 13] = [
            ("out", rule("a/#", Out, "", ""), Local, "a/b", Some("a/b")),
            (
                "out, from the wrong side",
                rule("a/#", Out, "", ""),
                Remote,
                "a/b",
                None,
            ),
            ("in", rule("a/#", In, "", ""), Remote, "a/b", Some("a/b")),
            (
                "in, from the wrong side",
                rule("a/#", In, "", ""),
                Local,
                "a/b",
                None,
            ),
            (
                "both, out",
                rule("#", Both, "here/", "there/"),
                Local,
                "here/x",
                Some("there/x"),
            ),
            (
                "both, in",
                rule("#", Both, "here/", "there/"),
                Remote,
                "there/x",
                Some("here/x"),
            ),
            ("no match", rule("a/+", Both, "", ""), Local, "a/b/c", None),
            (
                "a prefix is added",
                rule("+/t", Out, "", "p/"),
                Local,
                "x/t",
                Some("p/x/t"),
            ),
            (
                "a prefix is taken off",
                rule("+/t", Out, "p/", ""),
                Local,
                "p/x/t",
                Some("x/t"),
            ),
            (
                "one topic to another",
                rule("", Out, "a", "b"),
                Local,
                "a",
                Some("b"),
            ),
            (
                "the parent has no prefix",
                rule("#", Out, "p/", "q/"),
                Local,
                "p",
                None,
            ),
            (
                "nothing would be left",
                rule("#", Out, "p/", ""),
                Local,
                "p/",
                None,
            ),
            (
                "$SYS is not under #",
                rule("#", In, "", "m/"),
                Remote,
                "$SYS/x",
                None,
            ),
        ];
        for (name, rule, side, topic, expected) in cases {
            assert_eq!(rule.map(side, topic).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn rules_that_cannot_be_are_refused_with_the_side_and_the_text() {
        let cases = [
            ("hash inside", "a/#/b", "", "", "local filter \"a/#/b\""),
            ("nothing", "", "a", "", "remote filter \"\""),
            (
                "a wildcard in a prefix",
                "b",
                "+/",
                "",
                "local_prefix \"+/\"",
            ),
            ("shared", "a", "", "$share/g/", "shared subscriptions"),
        ];
        for (name, topic, local, remote, expected) in cases {
            let error = Rule::new(&RuleConfig {
                local_prefix: local.into(),
                remote_prefix: remote.into(),
                ..RuleConfig::new(topic, Direction::Both)
            })
            .expect_err(name)
            .to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
