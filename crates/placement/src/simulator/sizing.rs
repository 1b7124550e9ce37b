//! How many brokers a load needs.

use super::{Run, Workload, final_traffic};
use crate::cluster::BrokerTraffic;
use crate::error::{ParameterError, check_rate};
use crate::model::{Prediction, TrafficModel};

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

    /// Work per second of all brokers together, as the model predicts it.
    #[must_use]
    pub fn total_work(&self, prediction: &Prediction) -> f64 {
        self.received * (prediction.external_in + prediction.internal)
            + self.sent * (prediction.external_out + prediction.internal)
    }
}

/// Which broker must stay within the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Criterion {
    /// The average one, as the model takes it: all brokers are equally loaded.
    #[default]
    Mean,
    /// The busiest one. Under random attachment it may get busier with more brokers, since a publisher's broker sends
    /// a copy to each of them, so that no cluster is large enough.
    Busiest,
}

/// A load, and what one broker can do.
#[derive(Debug, Clone, Copy)]
pub struct SizeQuestion<'a> {
    /// The load, on average.
    pub model: &'a TrafficModel,
    /// Workloads drawn from it to average over, each with the seed for its strategy.
    pub workloads: &'a [(u64, Workload)],
    /// What messages cost.
    pub weights: CpuWeights,
    /// Work per second one broker can do.
    pub capacity: f64,
    /// Which broker must stay within it.
    pub criterion: Criterion,
}

/// The answer for one strategy, means over the workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// The least number of brokers found within the capacity.
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
        let total = self.weights.total_work(&self.model.predict(1)?);
        Ok(((total / self.capacity).ceil() as usize).max(1))
    }

    /// Brokers for the load under random attachment by the model, each with an equal share; `None` when 2048 are too few.
    ///
    /// # Errors
    /// As [`SizeQuestion::linear`].
    pub fn predicted(&self) -> Result<Option<usize>, ParameterError> {
        for brokers in self.linear()?..=MOST_BROKERS {
            let work = self.weights.total_work(&self.model.predict(brokers)?);
            if work / brokers as f64 <= self.capacity {
                return Ok(Some(brokers));
            }
        }
        Ok(None)
    }

    /// Brokers for the load under the strategy of `run` by simulation; `None` when 2048 are too few. The number of brokers of `run` is ignored.
    ///
    /// # Errors
    /// As [`SizeQuestion::linear`].
    pub fn simulated(&self, run: &Run) -> Result<Option<Size>, ParameterError> {
        let start = self.linear()?;
        let mut too_few = start - 1;
        let mut enough = start;
        let mut found = loop {
            if enough > MOST_BROKERS {
                return Ok(None);
            }
            let size = self.at(run, enough)?;
            if self.fits(&size) {
                break size;
            }
            too_few = enough;
            enough = 2 * enough - start + 1;
        };
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            let size = self.at(run, middle)?;
            if self.fits(&size) {
                (enough, found) = (middle, size);
            } else {
                too_few = middle;
            }
        }
        Ok(Some(found))
    }

    fn fits(&self, size: &Size) -> bool {
        match self.criterion {
            Criterion::Mean => size.mean <= self.capacity,
            Criterion::Busiest => size.busiest <= self.capacity,
        }
    }

    /// The work of a cluster of `brokers` under the strategy of `run`.
    ///
    /// # Errors
    /// The number of brokers is out of range.
    pub fn at(&self, run: &Run, brokers: usize) -> Result<Size, ParameterError> {
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

    fn model() -> TrafficModel {
        TrafficModel::with_equal_rates(&small().scenario().unwrap(), 200, 1.0).unwrap()
    }

    #[test]
    fn the_answer_is_enough_and_one_broker_less_is_not() {
        let model = model();
        let workloads = [(3, small().workload(ArrivalOrder::Random, 3).unwrap())];
        for criterion in [Criterion::Mean, Criterion::Busiest] {
            let question = SizeQuestion {
                model: &model,
                workloads: &workloads,
                weights: CpuWeights::default(),
                capacity: 500.0,
                criterion,
            };
            // 200 received and 2000 sent per second: 2600 units.
            assert_eq!(question.linear().unwrap(), 6);
            let sizes = [StrategyKind::Random, StrategyKind::Thicket].map(|strategy| {
                let size = question.simulated(&run(strategy)).unwrap().unwrap();
                assert!(question.fits(&size));
                let fewer = question.at(&run(strategy), size.brokers - 1).unwrap();
                assert!(!question.fits(&fewer), "{size:?} {fewer:?}");
                let again = Run {
                    broker_count: size.brokers,
                    ..run(strategy)
                };
                let measures = simulate(&again, &workloads[0].1, 3).unwrap();
                assert_eq!(measures.internal, size.internal);
                size
            });
            assert!(sizes[1].brokers < sizes[0].brokers);
        }
    }

    #[test]
    fn model_and_simulation_of_random_attachment_need_as_many_brokers() {
        let model = model();
        let workloads: Vec<_> = (1..=10)
            .map(|seed| (seed, small().workload(ArrivalOrder::Random, seed).unwrap()))
            .collect();
        let question = SizeQuestion {
            model: &model,
            workloads: &workloads,
            weights: CpuWeights::default(),
            capacity: 500.0,
            criterion: Criterion::Mean,
        };
        let predicted = question.predicted().unwrap().unwrap();
        let simulated = question.simulated(&run(StrategyKind::Random)).unwrap();
        assert!(predicted.abs_diff(simulated.unwrap().brokers) <= 1);
    }

    #[test]
    fn a_load_no_cluster_carries_has_no_answer_and_a_bad_capacity_is_refused() {
        let model = model();
        let workloads = [(3, small().workload(ArrivalOrder::Random, 3).unwrap())];
        let question = |capacity| SizeQuestion {
            model: &model,
            workloads: &workloads,
            weights: CpuWeights::default(),
            capacity,
            criterion: Criterion::Busiest,
        };
        // One message received is 3 units already.
        let answer = question(2.0).simulated(&run(StrategyKind::Random));
        assert_eq!(answer, Ok(None));
        assert_eq!(
            question(0.0).linear().unwrap_err().to_string(),
            "capacity: must be above 0, in units of work per second, not 0"
        );
    }
}
