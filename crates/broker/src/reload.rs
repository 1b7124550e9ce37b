//! What can be read again while the node runs: at SIGHUP, or when the HTTP API is told to.

use std::sync::{Arc, Mutex, PoisonError};

/// Everything that can be read again. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct Reload {
    parts: Arc<Mutex<Vec<Part>>>,
}

struct Part {
    name: &'static str,
    read: Box<dyn FnMut() -> Result<(), String> + Send>,
}

impl Reload {
    /// Adds a part. `read` is to leave everything as it was if it fails, and say why in one line.
    pub(crate) fn add(
        &self,
        name: &'static str,
        read: impl FnMut() -> Result<(), String> + Send + 'static,
    ) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(Part {
            name,
            read: Box::new(read),
        });
    }

    /// Reads every part again and logs what came of it. What could not be read is told, a line each, and stays as it was. Reads files: not
    /// for a worker's thread.
    #[must_use]
    pub fn run(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        for Part { name, read } in parts.iter_mut() {
            match read() {
                Ok(()) => tracing::info!(part = name, "read again"),
                Err(error) => {
                    tracing::error!(
                        part = name,
                        error,
                        "cannot be read again and stays as it was"
                    );
                    problems.push(error);
                }
            }
        }
        problems
    }
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reload")
    }
}
