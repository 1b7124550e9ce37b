//! Since when the messages of a queue have waited, to about an eighth: a few marks instead of a time in every message.

use std::time::Duration;

use crate::time::Instant;

/// Marks kept; of more, every second one is removed.
const MARKS: usize = 32;
/// Time between two marks at least.
const BETWEEN_MARKS: Duration = Duration::from_secs(1);

/// When messages began to wait.
#[derive(Debug, Default)]
pub(in crate::server) struct Ages {
    /// A message that was the next one, and the time. Both rise.
    marks: Vec<(u64, Instant)>,
}

impl Ages {
    pub const fn new() -> Self {
        Self { marks: Vec::new() }
    }

    /// A message is about to wait, with this sequence. `front`: the first that waits.
    pub fn note(&mut self, now: Instant, front: u64, sequence: u64) {
        if front == sequence {
            self.marks.clear();
        }
        let last = self.marks.last();
        if last.is_some_and(|(_, at)| now.since(*at) < BETWEEN_MARKS) {
            return;
        }
        if self.marks.len() >= MARKS {
            let before = self.marks.iter().take_while(|mark| mark.0 <= front).count();
            // What is before the front is no longer needed, but for the last of it.
            self.marks.drain(..before.saturating_sub(1));
        }
        if self.marks.len() >= MARKS {
            let mut is_kept = false;
            self.marks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.marks.push((sequence, now));
    }

    /// Since when the message with this sequence has waited: not later than that, and seldom much earlier.
    pub fn since(&self, sequence: u64) -> Option<Instant> {
        let before = self.marks.iter().take_while(|mark| mark.0 <= sequence);
        before.last().or(self.marks.first()).map(|mark| mark.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn the_front_has_waited_since_the_last_mark_before_it() {
        let mut ages = Ages::new();
        for second in 0..10 {
            ages.note(at(second), 1, 1 + second);
        }
        assert_eq!(ages.since(1), Some(at(0)));
        assert_eq!(ages.since(4), Some(at(3)));
        assert_eq!(ages.since(40), Some(at(9)));
    }

    #[test]
    fn an_empty_queue_begins_anew() {
        let mut ages = Ages::new();
        ages.note(at(1), 1, 1);
        ages.note(at(9), 2, 2);
        assert_eq!(ages.since(2), Some(at(9)));
    }

    #[test]
    fn marks_are_bounded_and_the_oldest_message_keeps_its_own() {
        let mut ages = Ages::new();
        for second in 0..10_000 {
            ages.note(at(second), 1, 1 + second);
            assert!(ages.marks.len() <= MARKS);
        }
        assert_eq!(ages.since(1), Some(at(0)));
        // A client that receives what it gets: only the last of the marks before the front counts.
        for second in 10_000..20_000 {
            ages.note(at(second), second, 1 + second);
        }
        let since = ages.since(20_000).expect("it waits");
        assert!(since >= at(19_990), "{since:?}");
    }
}
