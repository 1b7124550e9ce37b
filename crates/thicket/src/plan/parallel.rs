//! Independent jobs on all cores, with a progress bar.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `job` for `0..count` on as many threads as there are cores; the results are in the order of the jobs, whatever
/// the order they end in. The first error in that order wins.
pub(super) fn run_all<T: Send>(
    count: usize,
    job: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<anyhow::Result<T>>>> =
        Mutex::new((0..count).map(|_| None).collect());
    let progress = Progress::new(count);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = job(index);
                    results.lock().expect("no job panics with the lock held")[index] = Some(result);
                    progress.advance();
                }
            });
        }
    });
    progress.finish();
    results
        .into_inner()
        .expect("no job panics with the lock held")
        .into_iter()
        .map(|result| result.expect("every job ran"))
        .collect()
}

/// A bar on standard error, where that is a terminal.
struct Progress {
    total: usize,
    done: Mutex<usize>,
    shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self {
            total,
            done: Mutex::new(0),
            shown: total > 1 && std::io::stderr().is_terminal(),
        }
    }

    fn advance(&self) {
        const WIDTH: usize = 40;
        let mut done = self.done.lock().expect("counting does not panic");
        *done += 1;
        if self.shown {
            let filled = *done * WIDTH / self.total;
            // A terminal that went away is no reason to lose the results.
            let _ = write!(
                std::io::stderr(),
                "\r[{}{}] {}/{}",
                "#".repeat(filled),
                ".".repeat(WIDTH - filled),
                *done,
                self.total
            );
        }
    }

    fn finish(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs() {
        let squares = run_all(100, |index| Ok(index * index)).unwrap();
        assert_eq!(
            squares,
            (0..100).map(|index| index * index).collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_first_error_in_order_is_the_one_reported() {
        let error = run_all(10, |index| -> anyhow::Result<()> {
            anyhow::ensure!(index < 4, "job {index}");
            Ok(())
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "job 4");
    }
}
