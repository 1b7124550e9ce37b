//! Means of the last 5 s (Dispatcher III).

use std::collections::VecDeque;

const WINDOW_S: f64 = 5.0;

/// Growth of a counter.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Ascending by time; all but the first are within the window.
    points: VecDeque<(f64, f64)>,
}

impl Rate {
    /// Adds a point. A counter that fell has restarted.
    pub fn push(&mut self, at_s: f64, value: f64) {
        if self.points.back().is_some_and(|&(_, last)| value < last) {
            self.points.clear();
        }
        self.points.push_back((at_s, value));
        while self.points.len() > 2 && self.points[1].0 <= at_s - WINDOW_S {
            self.points.pop_front();
        }
    }

    /// Growth a second over the window; `None` before the second point.
    pub fn a_second(&self) -> Option<f64> {
        let (&(from, before), &(to, now)) = (self.points.front()?, self.points.back()?);
        (to > from).then(|| (now - before) / (to - from))
    }
}

/// Mean of readings.
#[derive(Debug, Default)]
pub(crate) struct Mean {
    points: VecDeque<(f64, f64)>,
}

impl Mean {
    pub fn push(&mut self, at_s: f64, value: f64) {
        self.points.push_back((at_s, value));
        while self.points[0].0 <= at_s - WINDOW_S {
            self.points.pop_front();
        }
    }

    pub fn value(&self) -> Option<f64> {
        let sum: f64 = self.points.iter().map(|&(_, value)| value).sum();
        (!self.points.is_empty()).then(|| sum / self.points.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_five_seconds() {
        let mut rate = Rate::default();
        rate.push(0.0, 100.0);
        assert_eq!(rate.a_second(), None);
        for second in 1..=20 {
            let value = if second <= 10 {
                100.0
            } else {
                100.0 + 50.0 * f64::from(second - 10)
            };
            rate.push(f64::from(second), value);
            let expected = match second {
                ..=10 => 0.0,
                11..=14 => 50.0 * f64::from(second - 10) / 5.0,
                _ => 50.0,
            };
            assert_eq!(rate.a_second(), Some(expected), "second {second}");
        }
    }

    #[test]
    fn a_counter_that_begins_anew_is_not_negative() {
        let mut rate = Rate::default();
        rate.push(0.0, 1e6);
        rate.push(1.0, 0.0);
        assert_eq!(rate.a_second(), None);
        rate.push(2.0, 10.0);
        assert_eq!(rate.a_second(), Some(10.0));
    }

    #[test]
    fn a_rate_told_less_often_is_that_of_the_last_interval() {
        let mut rate = Rate::default();
        for (at, value) in [(0.0, 0.0), (10.0, 100.0), (20.0, 400.0)] {
            rate.push(at, value);
        }
        assert_eq!(rate.a_second(), Some(30.0));
    }

    #[test]
    fn a_mean_forgets_what_is_older() {
        let mut mean = Mean::default();
        assert_eq!(mean.value(), None);
        for (at, value) in [(0.0, 100.0), (1.0, 4.0), (5.5, 8.0)] {
            mean.push(at, value);
        }
        assert_eq!(mean.value(), Some(6.0));
    }
}
