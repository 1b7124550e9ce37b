//! Errors, grouped by whose fault they are.

use thicket_mqtt::{EncodeError, ReasonCode};
use thicket_session::client::ClientError;
use thicket_session::topic::{SubscriptionFilterError, TopicNameError};

/// An error of the client.
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
    /// Misuse: not a topic name.
    #[error("topic {topic:?}: {source}")]
    Topic {
        /// As given.
        topic: String,
        /// Why.
        source: TopicNameError,
    },
    /// Misuse: not a topic filter.
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
    /// Refused: the broker refused the request, with its reason. The client continues.
    #[error("refused by the broker: {0:?}")]
    Refused(ReasonCode),
    /// Refused: this broker does not support such a message or subscription. The client continues.
    #[error(transparent)]
    NotTaken(std::sync::Arc<ClientError>),
    /// None of the brokers accepted the first connection, or answered its subscriptions, in time; the last problem.
    #[error("{0}")]
    Connect(String),
    /// A message of QoS 2 was in flight when the broker lost the session: it may have been delivered once, or not at all. It is not sent again.
    #[error("the broker lost the session while this message of QoS 2 was in flight")]
    OutcomeUnknown,
    /// Another client uses the same client identifier. This client has ended.
    #[error("another client took over the session")]
    TakenOver,
    /// The client was closed, or its runtime has ended; or the message waited for a further session that the broker then refused.
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

    /// Converts a refusal of the client state machine.
    pub(crate) fn misuse(error: ClientError) -> Self {
        Self::NotTaken(std::sync::Arc::new(error))
    }
}
