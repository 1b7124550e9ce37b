//! CPU of all brokers over time, while faults are injected: for faults that wait for a threshold, and for a drawing (Comparison Fig. 4).

use std::time::{Duration, Instant};

use thicket_bench::report::{Plot, Scale, Series};

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(1);
/// Readings over which a threshold must be reached: two seconds.
const READINGS: usize = 2;

/// The CPU usage of brokers since a start.
#[derive(Debug, Clone)]
pub struct Usage {
    start: Instant,
    last: Instant,
    used_s: Vec<f64>,
    over_time: Vec<Reading>,
}

/// The usage of each broker in the time before.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    at_s: f64,
    /// In percent of a core.
    percent: Vec<f64>,
}

impl Usage {
    /// Begins now, when brokers have used so many seconds of CPU.
    #[must_use]
    pub fn begin(used_s: Vec<f64>) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            last: now,
            used_s,
            over_time: Vec::new(),
        }
    }

    /// Reads what brokers have used if it is time to; a broker without a control group is read as nothing.
    pub fn look(&mut self, used_s: impl FnOnce() -> Vec<f64>) {
        let elapsed = self.last.elapsed();
        if elapsed < EVERY {
            return;
        }
        self.last = Instant::now();
        let at_s = self.start.elapsed().as_secs_f64();
        self.note(at_s, elapsed.as_secs_f64(), used_s());
    }

    fn note(&mut self, at_s: f64, seconds: f64, used_s: Vec<f64>) {
        let each = used_s.iter().zip(&self.used_s);
        let percent = each.map(|(now, before)| 100.0 * (now - before) / seconds);
        let percent = percent.collect();
        self.over_time.push(Reading { at_s, percent });
        self.used_s = used_s;
    }

    /// The highest usage that a broker had in all of the last two seconds, in percent of a core; 0 before that.
    #[must_use]
    pub fn busiest_percent(&self) -> f64 {
        let Some(from) = self.over_time.len().checked_sub(READINGS) else {
            return 0.0;
        };
        let last = &self.over_time[from..];
        let brokers = last.iter().map(|it| it.percent.len()).min().unwrap_or(0);
        let least = |broker: usize| {
            let each = last.iter().map(|it| it.percent[broker]);
            each.reduce(f64::min).unwrap_or(0.0)
        };
        (0..brokers).map(least).fold(0.0, f64::max)
    }

    /// A line for each broker, by the names of sites (`None`: no broker there), with a spike at each event; `None` if nothing was read.
    #[must_use]
    pub fn plot(&self, sites: &[Option<String>], events: &[(f64, String)]) -> Option<Plot> {
        let percents = self.over_time.iter().flat_map(|it| &it.percent);
        let top = percents.copied().reduce(f64::max)?;
        let line = |(site, name): (usize, &Option<String>)| {
            let at = |it: &Reading| Some((it.at_s, *it.percent.get(site)?));
            Some(Series {
                name: name.clone()?,
                points: self.over_time.iter().filter_map(at).collect(),
            })
        };
        let mut series: Vec<Series> = sites.iter().enumerate().filter_map(line).collect();
        let spike = |(at_s, _): &(f64, String)| [(*at_s, 0.0), (*at_s, top), (*at_s, 0.0)];
        series.push(Series {
            name: "event".to_owned(),
            points: events.iter().flat_map(spike).collect(),
        });
        Some(Plot {
            title: "CPU of each broker over time".to_owned(),
            x_label: "seconds".to_owned(),
            y_label: "% of a core".to_owned(),
            scale: Scale::Linear,
            series,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three seconds of two brokers.
    fn usage() -> Usage {
        let mut usage = Usage::begin(vec![1.0, 5.0]);
        usage.note(1.0, 1.0, vec![1.5, 5.1]);
        usage.note(2.0, 1.0, vec![1.6, 5.4]);
        usage
    }

    #[test]
    fn a_threshold_is_reached_by_one_broker_for_two_seconds() {
        let mut usage = Usage::begin(vec![1.0, 5.0]);
        assert_eq!(usage.busiest_percent(), 0.0);
        usage.note(1.0, 1.0, vec![1.9, 5.0]);
        assert_eq!(usage.busiest_percent(), 0.0, "one second");
        // The first used 50 and 10 %, the second 10 and 30 %.
        assert!((super::tests::usage().busiest_percent() - 10.0).abs() < 1e-9);
        let mut usage = super::tests::usage();
        usage.note(3.0, 0.5, vec![1.6, 5.6]);
        assert!((usage.busiest_percent() - 30.0).abs() < 1e-9);
    }

    #[test]
    fn each_broker_has_a_line_and_each_event_a_spike() {
        let sites = [None, Some("s2".to_owned())];
        let events = [(1.5, "start the broker of s2".to_owned())];
        let plot = usage().plot(&sites, &events).unwrap();
        let names: Vec<&str> = plot.series.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["s2", "event"]);
        let (at_s, percent) = plot.series[0].points[1];
        assert!(at_s == 2.0 && (percent - 30.0).abs() < 1e-9, "{percent}");
        let (at_s, top) = plot.series[1].points[1];
        assert!(at_s == 1.5 && (top - 50.0).abs() < 1e-9, "{top}");
        assert_eq!(Usage::begin(vec![0.0]).plot(&sites, &events), None);
    }
}
