//! Signals that end a lab, after it has kept what it measured.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The mask of ignored signals in `/proc/self/status`, hexadecimal.
const IGNORED: &str = "SigIgn:";

/// A flag that Ctrl-C, SIGTERM and SIGHUP set. SIGHUP comes when the terminal is closed; under `nohup` it stays ignored.
pub fn watch() -> std::io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
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
