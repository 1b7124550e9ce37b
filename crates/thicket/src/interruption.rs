//! Signals that end a measurement: Ctrl-C, SIGTERM, and SIGHUP, which comes when the terminal is closed.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The mask of ignored signals in `/proc/self/status`, hexadecimal.
const IGNORED: &str = "SigIgn:";

/// A flag that they set.
pub fn watch() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

/// They end the program at once, after `last`.
pub fn end_after(last: impl FnOnce() + Send + 'static) -> io::Result<Interruption> {
    let mut signals = Signals::new(signals())?;
    let ending = Arc::new(Mutex::new(()));
    let interruption = Interruption(Arc::clone(&ending));
    std::thread::spawn(move || {
        let signal = signals.forever().next().unwrap_or_default();
        let _ending = ending.lock();
        last();
        // As a shell reports the end by a signal.
        std::process::exit(128 + signal)
    });
    Ok(interruption)
}

/// The program ends by a signal, if one comes.
#[must_use]
pub struct Interruption(Arc<Mutex<()>>);

impl Interruption {
    /// Before the program ends otherwise: does not return if a signal has come. What failed since is its work.
    pub fn end(self) {
        drop(self.0.lock());
    }
}

/// Under `nohup` SIGHUP stays ignored.
fn signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_ignored = ignored(&status) & (1 << (SIGHUP - 1)) != 0;
    let hangup = (!is_ignored).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// The signals that the process ignores, bit 0 for signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(IGNORED));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000440\n";
        for (status, expected) in [(status, 0x1001), ("SigIgn:\tnone\n", 0), ("", 0)] {
            assert_eq!(ignored(status), expected, "{status}");
        }
    }
}
