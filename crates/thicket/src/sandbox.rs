//! What servers give up before they serve, in words for the log and `--check`.

use anyhow::Context;
use thicket_broker::Config;
use thicket_process::sandbox::{Sandbox, Writable, enter};

/// The sandbox that a process is in, and where it may write.
pub struct Entered {
    sandbox: Option<Sandbox>,
    directories: String,
}

impl Entered {
    /// Of a node. `None`: it is in none.
    pub fn of_node(config: &Config, sandbox: Option<Sandbox>) -> Self {
        Self {
            sandbox,
            directories: directories(&config.writable()),
        }
    }

    /// Writes a line of the log.
    pub fn log(&self) {
        let message = self.message();
        let directories = Some(&self.directories).filter(|_| self.sandbox.is_some());
        tracing::info!(directories, "sandbox: {message}");
    }

    /// For `--check`.
    pub fn in_words(&self) -> String {
        let message = self.message();
        match self.sandbox {
            Some(Sandbox::Full | Sandbox::Partial) => {
                format!("{message}: {}", self.directories)
            }
            Some(Sandbox::NoLandlock) | None => message.to_owned(),
        }
    }

    const fn message(&self) -> &'static str {
        match self.sandbox {
            None => "off, the process may do what its user may",
            Some(Sandbox::NoLandlock) => {
                "off, as the kernel has no Landlock or it is disabled; privileges cannot be gained"
            }
            Some(Sandbox::Partial) => {
                "the process executes nothing and creates files only below its directories, as the kernel has an early Landlock"
            }
            Some(Sandbox::Full) => {
                "the process executes nothing and writes only below its directories"
            }
        }
    }
}

/// Takes all rights to write and to execute from this process, which has no threads yet.
pub fn write_nothing() -> anyhow::Result<()> {
    let sandbox = Some(enter(&[]).context("sandbox")?);
    let directories = directories(&[]);
    Entered {
        sandbox,
        directories,
    }
    .log();
    Ok(())
}

fn directories(writable: &[Writable]) -> String {
    let mut all: Vec<_> = writable
        .iter()
        .map(|place| match place {
            Writable::Tree(directory) | Writable::Files(directory) => {
                directory.display().to_string()
            }
            Writable::Sockets(directory) => format!("{} (sockets)", directory.display()),
        })
        .collect();
    all.sort();
    all.dedup();
    match &all[..] {
        [] => "none".to_owned(),
        all => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_once_and_no_directory_as_well() {
        let writable = [
            Writable::Tree("/data".into()),
            Writable::Sockets("/run".into()),
            Writable::Files("/data".into()),
        ];
        assert_eq!(directories(&writable), "/data, /run (sockets)");
        assert_eq!(directories(&[]), "none");
    }
}
