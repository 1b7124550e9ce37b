//! Directories for tests.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The path of a directory that is not there yet, removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// `name` tells it from those of the other tests.
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("thicket-storage-{}-{name}", std::process::id()));
        // An earlier process with this number may have been killed.
        let _ = fs::remove_dir_all(&path);
        Self(path)
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
