//! Why the lab could not do something, in words.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Misuse: the scenario says something that cannot be; the reason names line and key.
    #[error("{}: {reason}", file.display())]
    Scenario {
        /// Its file.
        file: PathBuf,
        /// What is wrong, where.
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
    /// Misuse: what was asked does not fit the network that runs, or the measurement.
    #[error("{0}")]
    Misuse(String),
    /// A command of the system refused.
    #[error("{command}: {answer}")]
    Command {
        /// What was run.
        command: String,
        /// What it said.
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
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl LabError {
    /// Names what was tried beside the system's answer.
    pub(crate) fn io(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::System { what, source }
    }
}
