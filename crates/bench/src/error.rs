//! Errors of a measurement, in words.

use std::io;

use thicket_mqtt::ReasonCode;

use crate::workload::PlanError;

/// An error. A run with an error has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Misuse: a node is not given as HOST:PORT or its name is unknown.
    #[error("{node} is no address of a broker: {reason}")]
    Address {
        /// As given.
        node: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Misuse: the workload cannot be built.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Misuse: an invalid setting.
    #[error("{0}")]
    Setting(String),
    /// There is no server, or the connection broke before CONNACK.
    #[error("cannot connect to {node}: {source}")]
    Unreachable {
        /// The node.
        node: String,
        /// The system's error.
        source: io::Error,
    },
    /// Refused: the broker answered CONNECT with an error.
    #[error("{node} refused the connection of {client_id}: {reason_code:?} (0x{:02X})", *reason_code as u8)]
    Refused {
        /// The node.
        node: String,
        /// Whose connection.
        client_id: String,
        /// Its reason.
        reason_code: ReasonCode,
    },
    /// Refused: the broker answered SUBSCRIBE with an error.
    #[error("{node} refused the subscription of {client_id}: {reason_code:?} (0x{:02X})", *reason_code as u8)]
    SubscriptionRefused {
        /// The node.
        node: String,
        /// Whose subscription.
        client_id: String,
        /// Its reason.
        reason_code: ReasonCode,
    },
    /// The broker closed a connection in the middle of a run.
    #[error("{node} closed the connection of {client_id}{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Closed {
        /// The node.
        node: String,
        /// Whose connection.
        client_id: String,
        /// The reason of its DISCONNECT, if it sent one.
        reason: Option<String>,
    },
    /// The broker sent something that MQTT does not allow at that point.
    #[error("{node} sent {client_id} something unexpected: {what}")]
    Protocol {
        /// The node.
        node: String,
        /// The recipient.
        client_id: String,
        /// What it was.
        what: String,
    },
    /// Nothing happened for too long.
    #[error("{what} took longer than {seconds} s")]
    Timeout {
        /// The event that was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// It was stopped before its end.
    #[error("stopped before its end")]
    Stopped,
    /// The system refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl BenchError {
    /// Adds the operation to the system's error.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
