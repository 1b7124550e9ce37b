//! A subscription as a session holds it.

use thicket_mqtt::SubscriptionOptions;

/// One subscription of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscription {
    /// Options as the client gave them; the QoS is the granted one.
    pub options: SubscriptionOptions,
    /// Subscription Identifier, 1 to 268,435,455.
    pub identifier: Option<u32>,
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
