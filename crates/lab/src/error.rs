//! Why the lab could not do something, in words.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Misuse: the scenario is invalid; the reason names line and key.
    #[error("{}: {reason}", file.display())]
    Scenario {
        /// Its file.
        file: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// Misuse: a driver's file, or what a scenario asks of a driver.
    #[error("driver {driver}: {reason}")]
    Driver {
        /// Its name.
        driver: String,
        /// What is wrong.
        reason: String,
    },
    /// This machine does not allow it: no root, no namespaces, a tool is missing.
    #[error("this machine cannot run the lab: {0}")]
    Machine(String),
    /// Misuse: the request does not fit the running network, or the measurement.
    #[error("{0}")]
    Misuse(String),
    /// A command of the system failed.
    #[error("{command}: {answer}")]
    Command {
        /// What was run.
        command: String,
        /// Its error output.
        answer: String,
    },
    /// A broker did not become ready, or the cluster did not pass messages on.
    #[error("{0}")]
    NotReady(String),
    /// The load generator.
    #[error(transparent)]
    Bench(#[from] thicket_bench::BenchError),
    /// Two results that cannot be compared.
    #[error("{0}")]
    Unlike(String),
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// An operation of the system failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl LabError {
    /// Adds what was tried to the system's error.
    pub(crate) fn io(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::System { what, source }
    }
}
