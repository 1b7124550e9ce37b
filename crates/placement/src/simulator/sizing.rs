//! How many brokers a load needs.

use super::{Run, Workload, final_traffic};
use crate::cluster::BrokerTraffic;
use crate::error::{ParameterError, check_rate};

/// What a message costs a broker, in units of work.
///
/// The knees of Detti Fig. 3 (6000 received and 2000 sent per second) and Fig. 4 (2000 received and 14000 sent) lie on one line
/// when receiving weighs 3 and sending 1: 20000 units per second for the paper's broker with two CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuWeights {
    /// Units for a message received, from a client or a broker.
    pub received: f64,
    /// Units for a message sent, to a client or a broker.
    pub sent: f64,
}

impl Default for CpuWeights {
    fn default() -> Self {
        Self {
            received: 3.0,
            sent: 1.0,
        }
    }
}

impl CpuWeights {
    /// Work per second of the paper's broker at its knee.
    pub const PAPER_CAPACITY: f64 = 20_000.0;

    /// Work per second of a broker with `traffic`.
    #[must_use]
    pub fn work(&self, traffic: &BrokerTraffic) -> f64 {
        self.received * (traffic.external_in + traffic.internal_in)
            + self.sent * (traffic.external_out + traffic.internal_out)
    }
}

/// A load, and what one broker can do.
#[derive(Debug, Clone, Copy)]
pub struct SizeQuestion<'a> {
    /// Workloads to average over, each with the seed for its strategy.
    pub workloads: &'a [(u64, Workload)],
    /// What messages cost.
    pub weights: CpuWeights,
    /// Work per second one broker can do.
    pub capacity: f64,
}

/// The answer for one strategy, means over the workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// The least number of brokers whose busiest one stays within the capacity.
    pub brokers: usize,
    /// Work per second of the busiest broker.
    pub busiest: f64,
    /// Work per second of a broker on average.
    pub mean: f64,
    /// Internal traffic of the cluster, in messages per second.
    pub internal: f64,
}

/// No search goes beyond this many brokers.
const MOST_BROKERS: usize = 2048;

impl SizeQuestion<'_> {
    /// Brokers for the load if none of it had to cross between them: what linear scaling would give.
    ///
    /// # Errors
    /// The capacity or a weight is not a number above 0.
    pub fn linear(&self) -> Result<usize, ParameterError> {
        self.check()?;
        let total: f64 = self
            .workloads
            .iter()
            .map(|(_, workload)| {
                let (external_in, external_out) = workload.external_traffic();
                self.weights.received * external_in + self.weights.sent * external_out
            })
            .sum();
        let needed = (total / self.workloads.len().max(1) as f64 / self.capacity).ceil();
        Ok((needed as usize).max(1))
    }

    /// The answer for the strategy of `run`, whose number of brokers is of no interest.
    ///
    /// # Errors
    /// As [`SizeQuestion::linear`], or no cluster of up to 2048 brokers is large enough.
    pub fn answer(&self, run: &Run) -> Result<Size, ParameterError> {
        let start = self.linear()?;
        let mut too_few = start - 1;
        let mut enough = start;
        let mut found = loop {
            if enough > MOST_BROKERS {
                return Err(ParameterError::new(
                    "capacity",
                    format!("must be enough for the busiest of {MOST_BROKERS} brokers"),
                    self.capacity,
                ));
            }
            let size = self.at(run, enough)?;
            if size.busiest <= self.capacity {
                break size;
            }
            too_few = enough;
            enough = (2 * enough - start).max(enough) + 1;
        };
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            let size = self.at(run, middle)?;
            if size.busiest <= self.capacity {
                (enough, found) = (middle, size);
            } else {
                too_few = middle;
            }
        }
        Ok(found)
    }

    fn at(&self, run: &Run, brokers: usize) -> Result<Size, ParameterError> {
        let run = Run {
            broker_count: brokers,
            ..*run
        };
        let mut size = Size {
            brokers,
            busiest: 0.0,
            mean: 0.0,
            internal: 0.0,
        };
        let share = 1.0 / self.workloads.len().max(1) as f64;
        for (seed, workload) in self.workloads {
            let traffic = final_traffic(&run, workload, *seed)?;
            let works = traffic
                .brokers
                .iter()
                .map(|broker| self.weights.work(broker));
            size.busiest += share * works.clone().fold(0.0, f64::max);
            size.mean += share * works.sum::<f64>() / brokers as f64;
            size.internal += share * traffic.internal();
        }
        Ok(size)
    }

    fn check(&self) -> Result<(), ParameterError> {
        check_rate("weight-received", self.weights.received)?;
        check_rate("weight-sent", self.weights.sent)?;
        if !(self.capacity.is_finite() && self.capacity > 0.0) {
            return Err(ParameterError::new(
                "capacity",
                "must be above 0, in units of work per second",
                self.capacity,
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setting, simulate};
    use super::*;
    use crate::simulator::ArrivalOrder;
    use crate::strategy::{MatchingOptions, StrategyKind};

    fn small() -> Setting {
        Setting {
            topics: 200,
            subscribers: 200,
            ..Setting::figure_13()
        }
    }

    fn run(strategy: StrategyKind) -> Run {
        Run {
            broker_count: 1,
            strategy,
            limits: small().limits().unwrap(),
            matching: MatchingOptions::default(),
        }
    }

    #[test]
    fn both_knees_of_the_paper_are_the_same_work() {
        let knee = |external_in, external_out| {
            CpuWeights::default().work(&BrokerTraffic {
                external_in,
                external_out,
                ..BrokerTraffic::default()
            })
        };
        assert_eq!(knee(6000.0, 2000.0), CpuWeights::PAPER_CAPACITY);
        assert_eq!(knee(2000.0, 14_000.0), CpuWeights::PAPER_CAPACITY);
    }

    #[test]
    fn the_answer_is_enough_and_one_broker_less_is_not() {
        let workload = small().workload(ArrivalOrder::Random, 3).unwrap();
        let workloads = [(3, workload)];
        let question = SizeQuestion {
            workloads: &workloads,
            weights: CpuWeights::default(),
            capacity: 500.0,
        };
        // 200 received and 2000 sent per second: 2600 units.
        assert_eq!(question.linear().unwrap(), 6);
        let sizes = [StrategyKind::Random, StrategyKind::Thicket]
            .map(|strategy| question.answer(&run(strategy)).unwrap());
        for (size, strategy) in sizes
            .iter()
            .zip([StrategyKind::Random, StrategyKind::Thicket])
        {
            assert!(size.busiest <= 500.0);
            let fewer = question.at(&run(strategy), size.brokers - 1).unwrap();
            assert!(fewer.busiest > 500.0, "{size:?} {fewer:?}");
            let again = Run {
                broker_count: size.brokers,
                ..run(strategy)
            };
            let measures = simulate(&again, &workloads[0].1, 3).unwrap();
            assert_eq!(measures.internal, size.internal);
        }
        assert!(sizes[1].brokers < sizes[0].brokers);
    }

    #[test]
    fn a_capacity_no_cluster_meets_is_refused() {
        let workloads = [(3, small().workload(ArrivalOrder::Random, 3).unwrap())];
        let ask = |capacity| {
            SizeQuestion {
                workloads: &workloads,
                weights: CpuWeights::default(),
                capacity,
            }
            .answer(&run(StrategyKind::Random))
            .unwrap_err()
            .to_string()
        };
        assert_eq!(
            ask(1.0),
            "capacity: must be enough for the busiest of 2048 brokers, not 1"
        );
        assert_eq!(
            ask(0.0),
            "capacity: must be above 0, in units of work per second, not 0"
        );
    }
}
