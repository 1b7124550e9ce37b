//! The results of runs.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::generator::{Counts, Load};
use crate::process::Memory;

/// The result of one run. Rates, latency and CPU are those of the measured interval; counts are of the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Nodes as given.
    pub nodes: Vec<String>,
    /// The workload, for people.
    pub workload: String,
    /// Load of the run.
    pub load: Load,
    /// Quality of service, 0 to 2.
    pub qos: u8,
    /// Protocol level: 4 is 3.1.1, 5 is 5.0.
    pub protocol_level: u8,
    /// Payload in bytes.
    pub payload_len: usize,
    /// Length of the measured interval in seconds.
    pub seconds: f64,
    /// Messages published in it.
    pub published: u64,
    /// Deliveries in it.
    pub delivered: u64,
    /// Publications a second.
    pub published_per_s: f64,
    /// Deliveries a second.
    pub delivered_per_s: f64,
    /// Exact counts over the whole run.
    pub counts: Counts,
    /// From the intended send time to the arrival; `None` if payloads are too short to contain a time.
    pub latency: Option<Latency>,
    /// From the intended send time to the last acknowledgement at the publisher, PUBACK or PUBCOMP; `None` at QoS 0.
    pub acknowledgement: Option<Latency>,
    /// CPU of the generator itself.
    pub own: CpuUse,
    /// CPU and memory of all watched processes; `None` if there are none.
    pub broker: Option<BrokerUse>,
    /// Throughput over time, by seconds from the first message on, including warm-up.
    pub series: Vec<Second>,
    /// Largest lag of an open loop behind its schedule, in milliseconds: the generator was late, not the broker.
    pub behind_schedule_ms: f64,
    /// Mean of how far each message of an open loop was behind it: the part of the mean latency
    /// that is the generator's own.
    pub behind_schedule_mean_ms: f64,
    /// Facts that a reader needs to judge the figures.
    pub warnings: Vec<String>,
}

/// Latency in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the percentiles")]
pub struct Latency {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// CPU time of one side in the measured interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuUse {
    /// User and system seconds.
    pub cpu_s: f64,
    /// CPU microseconds for each delivery; 0 if nothing was delivered.
    pub us_per_delivered: f64,
    /// CPU seconds a second: 1 is one core.
    pub cores: f64,
}

/// CPU and memory of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BrokerUse {
    /// CPU over the measured interval.
    pub cpu: CpuUse,
    /// Memory at its end, all processes together.
    pub memory: Memory,
}

/// One second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Second {
    /// End of the second, from the first message on.
    pub at_s: f64,
    /// Messages published in it, a second.
    pub published_per_s: f64,
    /// Deliveries in it, a second.
    pub delivered_per_s: f64,
}

impl CpuUse {
    /// `cpu_s` spent in `seconds` for `delivered` deliveries.
    #[must_use]
    pub fn new(cpu_s: f64, seconds: f64, delivered: u64) -> Self {
        let us_per_delivered = if delivered == 0 {
            0.0
        } else {
            cpu_s * 1e6 / delivered as f64
        };
        Self {
            cpu_s,
            us_per_delivered,
            cores: if seconds > 0.0 { cpu_s / seconds } else { 0.0 },
        }
    }
}

impl Latency {
    /// The figures of a histogram of nanoseconds; `None` if it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        (!histogram.is_empty()).then(|| Self {
            mean_us: histogram.mean() / 1000.0,
            p50_us: us(histogram.value_at_quantile(0.5)),
            p90_us: us(histogram.value_at_quantile(0.9)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            p999_us: us(histogram.value_at_quantile(0.999)),
            max_us: us(histogram.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_a_known_distribution() {
        let mut histogram = Histogram::new_with_bounds(100, 600_000_000_000, 3).unwrap();
        assert_eq!(Latency::of(&histogram), None);
        // 1 to 10,000 microseconds, each once.
        for value in 1..=10_000u64 {
            histogram.record(value * 1000).unwrap();
        }
        let latency = Latency::of(&histogram).unwrap();
        for (name, seen, expected) in [
            ("mean", latency.mean_us, 5000.5),
            ("p50", latency.p50_us, 5000.0),
            ("p90", latency.p90_us, 9000.0),
            ("p99", latency.p99_us, 9900.0),
            ("p99.9", latency.p999_us, 9990.0),
            ("max", latency.max_us, 10_000.0),
        ] {
            assert!(
                (seen - expected).abs() <= expected * 0.002,
                "{name}: {seen}"
            );
        }
    }

    #[test]
    fn cpu_is_shared_out_over_the_deliveries() {
        let cpu = CpuUse::new(0.5, 2.0, 1_000_000);
        assert_eq!((cpu.us_per_delivered, cpu.cores), (0.5, 0.25));
        assert_eq!(CpuUse::new(0.5, 2.0, 0).us_per_delivered, 0.0);
    }
}
