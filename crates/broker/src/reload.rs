//! What can be reloaded while the node runs: at SIGHUP, or by a request to the HTTP API.

use std::sync::{Arc, Mutex, PoisonError};

/// Everything that can be reloaded. Cheap to clone; all clones share the same parts.
#[derive(Clone, Default)]
pub struct Reload {
    parts: Arc<Mutex<Vec<Part>>>,
}

struct Part {
    name: &'static str,
    read: Box<dyn FnMut() -> Result<(), String> + Send>,
}

impl Reload {
    /// Adds a part. If `read` fails, it must leave everything unchanged, and return the reason in one line.
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

    /// Reloads every part and logs the result. Returns the failures, a line each; those parts are unchanged. Reads files: not for a worker's thread.
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
