//! A client that authenticates itself again (5.0, 4.12.1).

use thicket_access::scram::ServerExchange;

/// Enhanced authentication of a connection in service.
#[derive(Debug)]
pub(in crate::worker) struct Reauthentication {
    pub method: Box<str>,
    pub phase: ReauthenticationPhase,
}

#[derive(Debug)]
pub(in crate::worker) enum ReauthenticationPhase {
    /// Done, at CONNECT or since.
    Idle,
    /// The users are being asked.
    Asked,
    /// The client is to answer.
    AwaitAnswer(Box<ServerExchange>),
}

impl Reauthentication {
    /// For the method of a CONNECT.
    pub fn new(method: &str) -> Box<Self> {
        Box::new(Self {
            method: method.into(),
            phase: ReauthenticationPhase::Idle,
        })
    }

    /// Whether nothing is being asked or answered.
    pub const fn is_idle(&self) -> bool {
        matches!(self.phase, ReauthenticationPhase::Idle)
    }
}
