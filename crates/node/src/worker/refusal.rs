//! Why a connection ends, or a packet is refused.

use thicket_mqtt::{DecodeError, ReasonCode};

/// A peer broke a rule: the connection ends with this reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub reason_code: ReasonCode,
    pub reason: String,
}

impl Refusal {
    pub fn new(reason_code: ReasonCode, reason: impl Into<String>) -> Self {
        Self {
            reason_code,
            reason: reason.into(),
        }
    }

    pub fn protocol(reason: impl Into<String>) -> Self {
        Self::new(ReasonCode::ProtocolError, reason)
    }
}

impl From<DecodeError> for Refusal {
    #[cold]
    fn from(error: DecodeError) -> Self {
        Self::new(error.reason_code(), error.to_string())
    }
}
