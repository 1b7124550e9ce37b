//! What an operator may want to read.

/// What an operator may want to read in the log; the shell turns it into a line with fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// How much it matters.
    pub level: EventLevel,
    /// Constant text.
    pub message: &'static str,
    /// Facts: field name (fixed names: client_id, node, peer, packet, reason_code, ...) and value.
    pub fields: Vec<(&'static str, String)>,
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLevel {
    /// Something is wrong here.
    Error,
    /// A peer did something wrong.
    Warn,
    /// An operator wants it at 3 a.m.
    Info,
    /// A packet.
    Debug,
}
