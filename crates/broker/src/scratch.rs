//! Directories for tests.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A new directory, removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// `name` tells it from those of the other tests.
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("thicket-broker-{}-{name}", std::process::id()));
        // An earlier process with this number may have been killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// Writes a file into it.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).expect("the temporary directory is writable");
        path
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
