//! Threads without which a node must not go on: the node learns of their end.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// A thread ended unexpectedly; the node is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The problem, for people: which thread, and why.
    pub problem: String,
}

/// Starts a thread. If it panics or ends with an error, that is logged and `failed` receives it.
pub(crate) fn spawn(
    name: String,
    failed: Sender<Failure>,
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let problem = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => format!("{name} ended: {error}"),
                Err(_) => format!("{name} panicked"),
            };
            tracing::error!(problem, "a thread of the node failed");
            // Without a receiver, the log has the error.
            let _ = failed.send(Failure { problem });
        })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_panics_or_fails_is_reported_and_one_that_ends_is_not() {
        let (failed, failures) = channel();
        let of = |name: &str, run: fn() -> io::Result<()>| {
            let thread = spawn(name.to_owned(), failed.clone(), run).expect("a thread");
            thread.join().expect("panics are caught");
        };
        of("one", || Ok(()));
        of("two", || Err(io::Error::other("no file")));
        of("three", || panic!("by intent"));
        drop(failed);
        let all: Vec<String> = failures.iter().map(|failure| failure.problem).collect();
        assert_eq!(all, ["two ended: no file", "three panicked"]);
    }
}
