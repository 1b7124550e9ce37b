//! What can go wrong, by whose fault.

use thicket_mqtt::{EncodeError, ReasonCode};
use thicket_session::client::ClientError;
use thicket_session::topic::{SubscriptionFilterError, TopicNameError};

/// What can go wrong.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Misuse: an option is wrong. Nothing was done.
    #[error("{option}: {problem}")]
    Option {
        /// Which of [`crate::Options`].
        option: &'static str,
        /// What is wrong with it, and what was expected.
        problem: String,
    },
    /// Misuse: no topic name.
    #[error("topic {topic:?}: {source}")]
    Topic {
        /// As given.
        topic: String,
        /// Why.
        source: TopicNameError,
    },
    /// Misuse: no topic filter.
    #[error("filter {filter:?}: {source}")]
    Filter {
        /// As given.
        filter: String,
        /// Why.
        source: SubscriptionFilterError,
    },
    /// Misuse: a property is longer than MQTT allows.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Refused: what was asked for, by the broker, with its reason. The client serves on.
    #[error("refused by the broker: {0:?}")]
    Refused(ReasonCode),
    /// Refused: this broker does not take such a message or subscription. The client serves on.
    #[error(transparent)]
    NotTaken(std::sync::Arc<ClientError>),
    /// No broker of those named took the first connection, or answered its subscriptions, in time; what was the last problem.
    #[error("{0}")]
    Connect(String),
    /// A message of QoS 2 was under way when the broker lost the session: it may have arrived, once, or not. It is not sent again.
    #[error("the broker lost the session while this message of QoS 2 was under way")]
    OutcomeUnknown,
    /// Another client uses the same client identifier. This one has ended.
    #[error("another client took over the session")]
    TakenOver,
    /// The client was closed, or the runtime it lived in has ended; or the message waited for a further session that the broker then refused.
    #[error("the client is closed")]
    Closed,
}

impl Error {
    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option {
            option,
            problem: problem.into(),
        }
    }

    /// A call that the client machine refused.
    pub(crate) fn misuse(error: ClientError) -> Self {
        Self::NotTaken(std::sync::Arc::new(error))
    }
}
