//! Whether a client may connect, which the shell asks of its users.

use std::sync::Arc;

use thicket_access::{Grant, scram::ServerExchange};

/// A step of enhanced authentication (5.0, 4.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enhanced {
    /// Authentication Method.
    pub method: String,
    /// Authentication Data of this step.
    pub data: Vec<u8>,
    /// What `Continue` returned at the step before; `None`: this is the first.
    pub exchange: Option<Box<ServerExchange>>,
}

/// Whether a client may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allowed(Admission),
    /// Not yet: the client is to answer this (AUTH 0x18).
    Continue {
        /// Authentication Data.
        data: Vec<u8>,
        /// Comes back with the client's answer.
        exchange: Box<ServerExchange>,
    },
    /// No: 0x8C.
    BadAuthenticationMethod,
    /// No: 0x86 (3.1.1: 4).
    BadUserNameOrPassword,
    /// No: 0x87 (3.1.1: 5).
    NotAuthorized,
    /// The users cannot be asked now: 0x88 (3.1.1: 3).
    Unavailable,
}

/// How a client was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// Who it is and what it may do; `None`: anybody, everything.
    pub grant: Option<Arc<Grant>>,
    /// Authentication Data to go with the acceptance.
    pub authentication_data: Option<Vec<u8>>,
}
