//! CPU of a process on this host.

use thicket_process::Process;

use super::Sample;

/// CPU seconds so far. A process with fewer threads than permitted processors cannot use them all, so its share is relative to those it can use.
pub(super) fn cpu(pid: u32) -> Result<Sample, String> {
    let process = Process::of(pid);
    let value = process.cpu_seconds().map_err(|error| error.to_string())?;
    let threads = process.threads().map_err(|error| error.to_string())?;
    Ok(Sample::Counter {
        value,
        per: process.cpus().min(f64::from(threads.max(1))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read_and_one_that_is_not_there_cannot() {
        assert!(matches!(cpu(std::process::id()), Ok(Sample::Counter { per, .. }) if per > 0.0));
        let error = cpu(u32::MAX).unwrap_err();
        assert!(error.contains("/proc/4294967295/stat"), "{error}");
    }
}
