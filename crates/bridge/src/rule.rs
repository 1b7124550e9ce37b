//! Rules: which topics cross, in which direction, and under which name they arrive.

use thicket_mqtt::Qos;
use thicket_session::topic::{TopicFilter, TopicFilterError, TopicName, TopicNameError};

/// One of the two brokers of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The node that runs the bridge.
    Local,
    /// The broker of another kind.
    Remote,
}

impl Side {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// The side across the bridge.
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

/// The direction of a rule, seen from the node.
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

/// The treatment of the RETAIN flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retain {
    /// It is kept, as far as the broker sends it: before 5.0 it marks only messages that were retained already.
    #[default]
    Keep,
    /// It is removed.
    Clear,
}

/// A rule as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConfig {
    /// The part of the filter that both sides share, with wildcards; may be empty if there are prefixes.
    pub topic: String,
    /// The direction.
    pub direction: Direction,
    /// The prefix of `topic` at the node; without wildcards.
    pub local_prefix: String,
    /// The prefix of `topic` at the other broker; without wildcards.
    pub remote_prefix: String,
    /// The highest QoS for a message that crosses; a lower one is kept.
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

/// A rule that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Prefix and topic do not make a filter.
    #[error("{side} filter {filter:?}: {source}")]
    Filter {
        /// The broker.
        side: &'static str,
        /// Prefix and topic.
        filter: String,
        /// Why.
        source: TopicFilterError,
    },
    /// A prefix with which no topic name can begin.
    #[error("{side}_prefix {prefix:?}: {source}")]
    Prefix {
        /// The broker.
        side: &'static str,
        /// The prefix.
        prefix: String,
        /// Why.
        source: TopicNameError,
    },
    /// A shared subscription would give a bridge only a part of the messages.
    #[error("{side} filter {filter:?}: shared subscriptions cannot be bridged")]
    Shared {
        /// The broker.
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
    /// A prefix contains wildcards or control characters, or the filter of a side is not valid.
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

    /// The subscription of the bridge at `side`, `None` if nothing is received from there.
    #[must_use]
    pub fn filter(&self, side: Side) -> Option<&TopicFilter> {
        self.direction
            .takes_from(side)
            .then(|| &self.filters[side.index()])
    }

    /// The name under which a message that `side` publishes as `topic` arrives at the other side, `None` if the rule does not match it.
    #[must_use]
    pub fn map(&self, side: Side, topic: &str) -> Option<String> {
        if !self.filter(side)?.matches(topic) {
            return None;
        }
        // `a/#` matches `a` too, which has nothing after the prefix `a/`.
        let rest = topic.strip_prefix(&*self.prefixes[side.index()])?;
        let mapped = format!("{}{rest}", self.prefixes[side.other().index()]);
        TopicName::check(&mapped).is_ok().then_some(mapped)
    }

    /// The highest QoS for a message that crosses.
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
