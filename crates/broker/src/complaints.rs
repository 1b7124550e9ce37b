//! Lines of the log that strangers can cause as often as they like: some are written, the others counted.

use std::time::{Duration, Instant};

const LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// How many lines were written lately.
#[derive(Debug)]
pub(crate) struct Complaints {
    since: Instant,
    lines: u32,
}

impl Default for Complaints {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            lines: 0,
        }
    }
}

impl Complaints {
    /// Whether one more line may be written now. How many were not comes with the first one that may again.
    pub(crate) fn may_be_said(&mut self) -> bool {
        self.may_be_said_at(Instant::now())
    }

    fn may_be_said_at(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= SPAN {
            let left_out = self.lines.saturating_sub(LINES);
            if left_out > 0 {
                tracing::warn!(left_out, "lines like the next one were left out");
            }
            (self.since, self.lines) = (now, 0);
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= LINES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lines_are_written_in_a_span_and_again_in_the_next() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        let mut written = |at: Instant| (0..1000).filter(|_| complaints.may_be_said_at(at)).count();
        assert_eq!(written(start), 20);
        assert_eq!(written(start + SPAN / 2), 0);
        assert_eq!(written(start + SPAN * 2), 20);
    }
}
