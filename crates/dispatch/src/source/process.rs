//! CPU of a process of this host, from `/proc`.

use std::fs;

use super::Sample;

/// Ticks of `/proc/PID/stat` in a second (USER_HZ, proc(5)).
const TICKS: f64 = 100.0;

/// CPU seconds so far. A process with fewer threads than it has processors cannot use them all, so its share is of those it can.
pub(super) fn cpu(pid: u32) -> Result<Sample, String> {
    let read = |file: &str| {
        fs::read_to_string(format!("/proc/{pid}/{file}"))
            .map_err(|error| format!("cannot read /proc/{pid}/{file}: {error}"))
    };
    let stat = read("stat")?;
    let (ticks, threads) = parse_stat(&stat).ok_or(format!("cannot read /proc/{pid}/stat"))?;
    let allowed = parse_allowed(&read("status")?).unwrap_or(1.0);
    Ok(Sample::Counter {
        value: ticks / TICKS,
        per: threads.min(allowed).max(1.0),
    })
}

/// User and system time, and threads: fields 14, 15 and 20.
fn parse_stat(stat: &str) -> Option<(f64, f64)> {
    // The name of the program stands in brackets and may hold spaces and brackets itself.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11);
    let mut next = |skipped: usize| fields.nth(skipped)?.trim().parse::<f64>().ok();
    let (user, system) = (next(0)?, next(0)?);
    Some((user + system, next(4)?))
}

/// How many processors a process may run on.
fn parse_allowed(status: &str) -> Option<f64> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let of_range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(to.trim().parse::<f64>().ok()? - from.trim().parse::<f64>().ok()? + 1.0)
    };
    list.trim().split(',').map(of_range).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 125 0 0 20 0 3 0 100 1000 500";
        assert_eq!(parse_stat(stat), Some((375.0, 3.0)));
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn processors_are_counted_from_their_list() {
        for (list, expected) in [("0", 1.0), ("0-3", 4.0), ("0,2-3,7", 4.0)] {
            let status = format!("Name:\tx\nCpus_allowed_list:\t{list}\n");
            assert_eq!(parse_allowed(&status), Some(expected), "{list}");
        }
        assert_eq!(parse_allowed("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_can_be_read_and_one_that_is_not_there_cannot() {
        assert!(matches!(cpu(std::process::id()), Ok(Sample::Counter { per, .. }) if per >= 1.0));
        let error = cpu(u32::MAX).unwrap_err();
        assert!(error.contains("/proc/4294967295/stat"), "{error}");
    }
}
