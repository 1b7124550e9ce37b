//! How late frames are, and how long the process was kept from running. Pure: its caller has the clock.

use hdrhistogram::Histogram;

use super::control::Report;

/// From this delay on, a frame counts as late.
const LATE_NS: u64 = 1_000_000;

/// The lateness of frames since the last report.
pub struct Punctuality {
    lateness: Histogram<u64>,
    late: u64,
    longest_stall_ns: u64,
    /// When the timer ends the sleep.
    wake_ns: u64,
}

impl Punctuality {
    pub fn new() -> Self {
        Self {
            lateness: Histogram::new_with_bounds(1, 10_000_000_000, 3)
                .expect("bounds of the histogram are valid"),
            late: 0,
            longest_stall_ns: 0,
            wake_ns: 0,
        }
    }

    /// Notes that the process must run at `at_ns`. False if it already wakes between now and then, so the timer stays as it is.
    pub const fn sleeps_until(&mut self, at_ns: u64, now_ns: u64) -> bool {
        if self.wake_ns > now_ns && self.wake_ns <= at_ns {
            return false;
        }
        self.wake_ns = at_ns;
        true
    }

    /// Notes that the process runs again.
    pub fn woke(&mut self, now_ns: u64) {
        self.longest_stall_ns = self.longest_stall_ns.max(self.overslept_ns(now_ns));
    }

    /// How long ago the process should have run. A frame that is read now may have waited as long: nothing says when it came.
    pub const fn overslept_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.wake_ns)
    }

    /// Counts a frame that was written so long after it was due.
    pub fn wrote(&mut self, late_ns: u64) {
        self.late += u64::from(late_ns >= LATE_NS);
        self.lateness.saturating_record(late_ns);
    }

    /// The punctuality since the last report. `dropped` and `cpu_s` are parts of the report.
    pub fn report(&mut self, dropped: u64, cpu_s: f64) -> Report {
        let report = Report {
            frames: self.lateness.len(),
            dropped,
            late: self.late,
            late_p99_us: self.lateness.value_at_quantile(0.99) as f64 / 1000.0,
            longest_stall_ms: self.longest_stall_ns as f64 / 1e6,
            cpu_s,
        };
        self.lateness.reset();
        self.late = 0;
        self.longest_stall_ns = 0;
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_frame_that_waited_for_the_process_is_late_though_it_left_when_it_was_due() {
        let mut punctuality = Punctuality::new();
        assert!(punctuality.sleeps_until(5 * MS, 0));
        // In time: before the timer, and a little after it.
        for now_ns in [3 * MS, 5 * MS + 50_000] {
            punctuality.woke(now_ns);
            punctuality.wrote(punctuality.overslept_ns(now_ns));
        }
        // The process stood still for 900 ms, with a frame waiting to be read.
        punctuality.woke(905 * MS);
        punctuality.wrote(punctuality.overslept_ns(905 * MS));
        let report = punctuality.report(0, 0.0);
        assert_eq!((report.frames, report.late), (3, 1));
        assert!(report.late_p99_us > 890_000.0, "{report:?}");
        assert_eq!(report.longest_stall_ms, 900.0);
        assert_eq!(punctuality.report(0, 0.0), Report::default());
    }

    #[test]
    fn the_timer_is_set_only_for_an_earlier_time_or_after_it_ended() {
        let mut punctuality = Punctuality::new();
        assert!(punctuality.sleeps_until(5 * MS, 0));
        // A frame due later, one due earlier, and the next sleep.
        assert!(!punctuality.sleeps_until(6 * MS, MS));
        assert!(punctuality.sleeps_until(3 * MS, MS));
        assert!(punctuality.sleeps_until(9 * MS, 4 * MS));
    }
}
