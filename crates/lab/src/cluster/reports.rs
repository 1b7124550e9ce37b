//! What running brokers report of themselves: what they sent on their links, when they agreed on trees, and their repairs.

use thicket_bench::namespace::inside;

use super::{Cluster, agent};
use crate::driver::Counter;
use crate::net;
use crate::testbed::Testbed;

/// What a broker reports on its repairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repair {
    /// Lost brokers for which it repaired its trees.
    pub count: u64,
    /// Seconds from the last sign of the last one to the trees without it.
    pub last_s: f64,
}

/// The longest repair between two readings, in seconds; `None` without one. A broker that restarted counts from 0.
#[must_use]
pub fn repaired_max_s(before: &[Option<Repair>], after: &[Option<Repair>]) -> Option<f64> {
    let repaired = after.iter().enumerate().filter_map(|(broker, after)| {
        let before = before.get(broker).copied().flatten();
        let before = before.map_or(0, |before| before.count);
        let after = after.as_ref()?;
        (after.count != before && after.count > 0).then_some(after.last_s)
    });
    repaired.reduce(f64::max)
}

impl Cluster {
    /// Bytes, publications and bytes of publications that the brokers report as sent on their
    /// links, all together; `None` for what they do not report.
    #[must_use]
    pub fn sent_on_links(&self, testbed: &Testbed) -> [Option<u64>; 3] {
        let driver = &self.driver;
        [
            &driver.link_bytes,
            &driver.link_messages,
            &driver.link_data_bytes,
        ]
        .map(|counter| self.count(counter.as_ref()?, testbed))
    }

    fn count(&self, counter: &Counter, testbed: &Testbed) -> Option<u64> {
        let values = self.values(Some(counter), testbed).into_iter();
        values.map(|value| value.map(|value| value as u64)).sum()
    }

    /// What each broker that was started reports; `None` where it does not.
    fn values(&self, counter: Option<&Counter>, testbed: &Testbed) -> Vec<Option<f64>> {
        let one = |site: usize| {
            let counter = counter?;
            let broker = net::path(&testbed.sites[site].broker);
            let page = inside(&broker, || {
                let mut answer = agent().get(&counter.url).call().ok()?;
                answer.body_mut().read_to_string().ok()
            });
            Some(sum_of(
                &page.ok().flatten()?,
                &counter.metric,
                &counter.label,
            ))
        };
        (0..self.peers.len())
            .filter(|&site| self.children[site].is_some())
            .map(one)
            .collect()
    }

    /// The longest time from a broker's start until it and the others agreed on their trees, in seconds; `None` if one does not report it, or has not
    /// agreed yet.
    #[must_use]
    pub fn converged_max_s(&self, testbed: &Testbed) -> Option<f64> {
        let all = self.values(self.driver.convergence_s.as_ref(), testbed);
        let all: Option<Vec<f64>> = all
            .into_iter()
            .map(|it| it.filter(|it| *it > 0.0))
            .collect();
        all?.into_iter().reduce(f64::max)
    }

    /// For each broker that reports them: how many lost brokers it repaired its trees for, and the seconds that the last repair took.
    #[must_use]
    pub fn repairs(&self, testbed: &Testbed) -> Vec<Option<Repair>> {
        if self.driver.repairs.is_none() {
            return Vec::new();
        }
        let counts = self.values(self.driver.repairs.as_ref(), testbed);
        let last = self.values(self.driver.last_repair_s.as_ref(), testbed);
        let both = counts.into_iter().zip(last);
        both.map(|(count, last_s)| {
            Some(Repair {
                count: count? as u64,
                last_s: last_s?,
            })
        })
        .collect()
    }
}

/// The sum of those samples of a metric that have a label.
fn sum_of(page: &str, metric: &str, label: &str) -> f64 {
    let samples = page.lines().filter(|line| {
        line.strip_prefix(metric)
            .is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
    });
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    samples.filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_repair_is_that_of_brokers_that_repaired_since() {
        let repair = |count, last_s| Some(Repair { count, last_s });
        let before = [repair(1, 9.0), repair(0, 0.0), None];
        let cases: [(&[Option<Repair>], Option<f64>); 4] = [
            (&before, None),
            (&[repair(1, 9.0), repair(1, 2.0), repair(1, 1.0)], Some(2.0)),
            (&[repair(2, 3.0), repair(1, 2.0), None], Some(3.0)),
            (&[repair(0, 0.0), None], None),
        ];
        for (after, longest) in cases {
            assert_eq!(repaired_max_s(&before, after), longest, "{after:?}");
        }
    }

    #[test]
    fn a_metric_is_summed_over_the_samples_with_the_label() {
        let page = "# HELP m x\nm{node=\"a\",direction=\"out\"} 4\nm{node=\"b\",direction=\"out\"} 5\nm{direction=\"in\"} 7\nmm{direction=\"out\"} 9\n";
        assert_eq!(sum_of(page, "m", "direction=\"out\""), 9.0);
    }
}
