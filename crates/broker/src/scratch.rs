//! Directories for tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A new directory, removed with its content when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// Writes a file into it.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("the temporary directory is writable");
        path
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}
