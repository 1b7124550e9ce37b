//! Errors at the start or reload of a dispatcher.

use std::io;
use std::net::SocketAddr;

/// A dispatcher did not start, or kept its old brokers.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// Misuse: an option that cannot be parsed. The text names the option and its value.
    #[error("{option} {value}: {problem}")]
    Option {
        /// `--listen` or `--broker`.
        option: &'static str,
        /// As given.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// Misuse: two options name the same broker.
    #[error("--broker {value}: the broker {address} is given twice")]
    Twice {
        /// The second.
        value: String,
        /// The address of both.
        address: SocketAddr,
    },
    /// Misuse: clients would be sent back to this dispatcher forever.
    #[error("--broker {broker}: this dispatcher listens there itself (--listen {listen})")]
    Oneself {
        /// The broker.
        broker: String,
        /// The listener.
        listen: String,
    },
    /// Misuse: there are no brokers.
    #[error("--broker: there is none")]
    NoBroker,
    /// Refused: the broker answers, but a source of its load does not.
    #[error("--broker {broker}: {load_source}: {problem}")]
    Source {
        /// The broker.
        broker: String,
        /// The source as given.
        load_source: String,
        /// Why.
        problem: String,
    },
    /// The system refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl DispatchError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
