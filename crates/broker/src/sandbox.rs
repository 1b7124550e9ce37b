//! What the process of a node may do once its configuration is read: write below its directories,
//! and execute nothing.

use std::path::Path;

use thicket_process::sandbox::{self, Sandbox, Writable};
use thicket_storage::DataDirectory;

use crate::config::{Config, SandboxChoice};
use crate::identity::IdentityError;
use crate::start_error::StartError;

impl Config {
    /// Where this node writes: its data directory, the directories of dead letters and those of
    /// Unix sockets.
    #[must_use]
    pub fn writable(&self) -> Vec<Writable> {
        let data = self.data.iter().cloned().map(Writable::Tree);
        let dead_letters = self.hooks.iter().filter_map(|plan| {
            let file = plan.config.dead_letters.as_deref()?;
            Some(Writable::Files(parent(file)))
        });
        let sockets = self.listeners.iter().filter_map(|listen| {
            let socket = listen.socket_path.as_deref()?;
            Some(Writable::Sockets(parent(socket)))
        });
        data.chain(dead_letters).chain(sockets).collect()
    }

    /// Takes from this process what a node with this configuration does not need, for good: see
    /// [`thicket_process::sandbox`]. Creates the data directory. Call it before the first thread is
    /// started. `None`: `sandbox` is off.
    ///
    /// # Errors
    /// The data directory cannot be created, or the system refuses the sandbox although it has
    /// Landlock.
    pub fn enter_sandbox(&self) -> Result<Option<Sandbox>, StartError> {
        if self.sandbox == SandboxChoice::Off {
            return Ok(None);
        }
        if let Some(data) = &self.data {
            DataDirectory::create(data).map_err(IdentityError::from)?;
        }
        self.try_sandbox()
    }

    /// As [`Self::enter_sandbox`], for a process that starts no node: the data directory need not
    /// exist.
    ///
    /// # Errors
    /// The system refuses the sandbox although it has Landlock.
    pub fn try_sandbox(&self) -> Result<Option<Sandbox>, StartError> {
        match self.sandbox {
            SandboxChoice::Off => Ok(None),
            SandboxChoice::Auto => Ok(Some(sandbox::enter(&self.writable())?)),
        }
    }
}

fn parent(file: &Path) -> std::path::PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn a_node_writes_to_its_data_its_sockets_and_its_dead_letters() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let text = format!(
            "data = '{}'\nlisten = ['localhost:1883', 'unix:{}']\n[[hook]]\nname = 'h'\nurl = 'http://a/b'\nevents = 'connect'\ndead_letters = 'dead'\n",
            at("data").display(),
            at("socket").display(),
        );
        let (settings, _) = Settings::from_toml(Path::new("thicket.toml"), &text).expect("TOML");
        let config = settings.check().expect("good");
        let expected = [
            Writable::Tree(at("data")),
            Writable::Files(".".into()),
            Writable::Sockets(directory.path().into()),
        ];
        assert_eq!(config.writable(), expected);
        let config = Settings::default().check().expect("defaults are good");
        assert_eq!(config.writable(), [], "a node that stores nothing");
    }
}
