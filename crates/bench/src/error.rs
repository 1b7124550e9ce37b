//! Why a measurement could not be made, in words.

use std::io;

use thicket_mqtt::ReasonCode;

use crate::workload::PlanError;

/// What went wrong. A run that met any of these has no result.
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
    /// Misuse: a setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// Nobody answers there, or the connection broke before CONNACK.
    #[error("cannot connect to {node}: {source}")]
    Unreachable {
        /// The node.
        node: String,
        /// What the system says.
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
    /// The broker sent something that MQTT does not allow there.
    #[error("{node} sent {client_id} something unexpected: {what}")]
    Protocol {
        /// The node.
        node: String,
        /// To whom.
        client_id: String,
        /// What it was.
        what: String,
    },
    /// Nothing happened for too long.
    #[error("{what} took longer than {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl BenchError {
    /// Names what was tried beside the system's answer.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
