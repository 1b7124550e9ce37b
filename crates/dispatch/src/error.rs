//! What a dispatcher cannot start or reload with.

use std::io;
use std::net::SocketAddr;

/// A dispatcher did not start, or kept the brokers it had.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// Misuse: an option that cannot be read. The text names the option and what was given.
    #[error("{option} {value}: {problem}")]
    Option {
        /// `--listen` or `--broker`.
        option: &'static str,
        /// As given.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// Misuse: two options stand for the same broker.
    #[error("--broker {value}: the broker {address} is given twice")]
    Twice {
        /// The second.
        value: String,
        /// Where both lead.
        address: SocketAddr,
    },
    /// Misuse: clients would be sent back to this dispatcher for ever.
    #[error("--broker {broker}: this dispatcher listens there itself (--listen {listen})")]
    Oneself {
        /// The broker.
        broker: String,
        /// The listener.
        listen: String,
    },
    /// Misuse: there is nobody to send clients to.
    #[error("--broker: there is none")]
    NoBroker,
    /// Refused: the broker answers, and a source of its load does not.
    #[error("--broker {broker}: {load_source}: {problem}")]
    Source {
        /// The broker.
        broker: String,
        /// The source as given.
        load_source: String,
        /// Why.
        problem: String,
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

impl DispatchError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
