//! A subscription as a session holds it.

use thicket_mqtt::SubscriptionOptions;

use crate::retained::compare_topics;

/// One subscription of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscription {
    /// Options as the client gave them; the QoS is the granted one.
    pub options: SubscriptionOptions,
    /// Subscription Identifier, 1 to 268,435,455.
    pub identifier: Option<u32>,
}

/// A subscription with what its session still owes it: both are part of the session, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscribed {
    /// What the client asked for.
    pub subscription: Subscription,
    /// Retained messages that are still to be sent because of its SUBSCRIBE [MQTT-3.3.1-9]; `None`: none.
    pub replay: Option<Box<Replay>>,
}

/// How far the retained messages for a subscription have been sent. Every node has all retained messages, so any node can continue from here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    /// All topics up to this one, in the order of [`crate::retained::RetainedTree`], are done; `None`: nothing is done.
    pub behind: Option<Box<str>>,
    /// Later than every write that did not reach the subscription as a message: milliseconds since 1970 and a counter within the millisecond.
    /// `None`: unknown.
    pub since: Option<(u64, u16)>,
}

impl Subscribed {
    /// Of two branches of a session, with the same subscription: what one of them has sent is sent, so the one that has come further.
    pub fn keep_further(&mut self, other: &Self) {
        let Some(ours) = &self.replay else { return };
        let is_further =
            other
                .replay
                .as_ref()
                .is_none_or(|theirs| match (&theirs.behind, &ours.behind) {
                    (Some(theirs), Some(ours)) => compare_topics(theirs, ours).is_gt(),
                    (Some(_), None) => true,
                    (None, _) => false,
                });
        if is_further {
            self.replay.clone_from(&other.replay);
        }
    }
}

impl From<Subscription> for Subscribed {
    fn from(subscription: Subscription) -> Self {
        Self {
            subscription,
            replay: None,
        }
    }
}

/// The identifiers of all subscriptions of one session that match a message, ascending; mostly none or one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MatchedIdentifiers {
    /// None.
    #[default]
    None,
    /// One.
    One([u32; 1]),
    /// Two or more.
    Many(std::rc::Rc<[u32]>),
}

impl MatchedIdentifiers {
    /// Adds one, keeping the order and dropping repetitions.
    pub fn add(&mut self, identifier: u32) {
        let mut all = self.as_slice().to_vec();
        if let Err(at) = all.binary_search(&identifier) {
            all.insert(at, identifier);
        }
        *self = Self::from_slice(&all);
    }

    /// From a list, ascending.
    #[must_use]
    pub fn from_slice(identifiers: &[u32]) -> Self {
        match identifiers {
            [] => Self::None,
            [one] => Self::One([*one]),
            many => Self::Many(many.into()),
        }
    }

    /// As a list, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_replays_the_one_that_has_come_further_is_kept() {
        let at = |behind: &str| {
            Some(Box::new(Replay {
                behind: Some(behind.into()),
                since: None,
            }))
        };
        let start = || Some(Box::default());
        let cases = [
            (None, None, None),
            (start(), None, None),
            (None, start(), None),
            (start(), at("a"), at("a")),
            (at("a"), start(), at("a")),
            // Level by level: all below a topic comes before its next sibling.
            (at("a/z"), at("a!"), at("a!")),
            (at("a!"), at("a/z"), at("a!")),
        ];
        for (ours, theirs, expected) in cases {
            let subscribed = |replay| Subscribed {
                replay,
                ..Subscribed::default()
            };
            let mut merged = subscribed(ours.clone());
            merged.keep_further(&subscribed(theirs.clone()));
            assert_eq!(merged.replay, expected, "{ours:?} and {theirs:?}");
        }
    }
}
