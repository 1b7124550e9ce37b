//! Which back end delays the frames, as a flag.

use clap::ValueEnum;
use thicket_lab::links::Backend;

/// Back ends by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// netem if the kernel has it, else wire
    Auto,
    /// The kernel delays frames
    Netem,
    /// A process of the lab delays frames
    Wire,
}

impl BackendChoice {
    /// The back end to use.
    pub fn resolve(self) -> Backend {
        match self {
            Self::Auto => Backend::choose(),
            Self::Netem => Backend::Netem,
            Self::Wire => Backend::Wire,
        }
    }
}
