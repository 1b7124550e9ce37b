//! Runs workloads through strategies and measures what comes out.

mod figures;
mod setting;
mod sizing;
mod workload;

pub use figures::{FIGURE_ORDER, Figure, Panel, Sweep};
pub use setting::{Application, Axis, Setting};
pub use sizing::{CpuWeights, Criterion, Size, SizeQuestion};
pub use workload::{ArrivalOrder, Rates, Workload, WorkloadOptions};

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Dimension, Traffic};
use crate::error::ParameterError;
use crate::ids::ClientId;
use crate::model::decision_space;
use crate::placer::{Placed, Placer};
use crate::strategy::{Limits, MatchingOptions, StrategyKind};

/// One simulation: a cluster size and a strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Number of brokers (M).
    pub broker_count: usize,
    /// The strategy.
    pub strategy: StrategyKind,
    /// Sessions a client and fairness.
    pub limits: Limits,
    /// The choices Algorithm 1 leaves open.
    pub matching: MatchingOptions,
}

/// What one run measures, traffic in messages per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// Ai.
    pub internal: f64,
    /// Aei.
    pub external_in: f64,
    /// Aeo.
    pub external_out: f64,
    /// h_rt.
    pub routing_overhead: f64,
    /// h_fw.
    pub forwarding_overhead: f64,
    /// Jain's index over the sum of the four traffics.
    pub jain: f64,
    /// External input of the busiest broker over the mean.
    pub peak_in: f64,
    /// External output of the busiest broker over the mean.
    pub peak_out: f64,
    /// Brokers above gamma at the end, in either dimension.
    pub above_gamma: f64,
    /// Clients whose placement left a broker above gamma.
    pub flagged: f64,
    /// Publishers moved while they had no subscribers.
    pub redirected: f64,
    /// Mean sessions of a subscriber with at least one topic.
    pub sessions: f64,
    /// Mean number of choices for a subscriber under the fairness test of Eq. 11 (Detti Fig. 11).
    pub choices: f64,
}

impl Measures {
    /// The names of the measures, in the order they are printed.
    pub const NAMES: [&'static str; 13] = [
        "internal",
        "external_in",
        "external_out",
        "routing_overhead",
        "forwarding_overhead",
        "jain",
        "peak_in",
        "peak_out",
        "above_gamma",
        "flagged",
        "redirected",
        "sessions",
        "choices",
    ];

    /// The value of the measure `name`; `None` when there is no such measure.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<f64> {
        let values = [
            self.internal,
            self.external_in,
            self.external_out,
            self.routing_overhead,
            self.forwarding_overhead,
            self.jain,
            self.peak_in,
            self.peak_out,
            self.above_gamma,
            self.flagged,
            self.redirected,
            self.sessions,
            self.choices,
        ];
        Self::NAMES
            .iter()
            .position(|known| *known == name)
            .map(|index| values[index])
    }
}

/// Mean and spread of one measure over the seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistic {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); 0 for a single value.
    pub sd: f64,
    /// Number of values.
    pub n: usize,
}

impl Statistic {
    /// The statistic of `values`, taken in their order; all zero without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        if n == 0 {
            return Self {
                mean: 0.0,
                sd: 0.0,
                n,
            };
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values
            .iter()
            .map(|value| (value - mean) * (value - mean))
            .sum();
        let sd = if n > 1 {
            (squares / (n - 1) as f64).sqrt()
        } else {
            0.0
        };
        Self { mean, sd, n }
    }
}

/// Runs `workload`, drawn from `seed`, through the strategy of `run`.
///
/// # Errors
/// The number of brokers is out of range.
pub fn simulate(run: &Run, workload: &Workload, seed: u64) -> Result<Measures, ParameterError> {
    let mut tally = Tally::default();
    let placer = place_all(run, workload, seed, |placer, client, placed| {
        tally.count(run, workload, placer, client, placed);
    })?;
    Ok(tally.measure(run, placer.cluster()))
}

/// The traffic after all clients of `workload` came, without the measures on the way.
///
/// # Errors
/// As [`simulate`].
pub fn final_traffic(run: &Run, workload: &Workload, seed: u64) -> Result<Traffic, ParameterError> {
    let placer = place_all(run, workload, seed, |_, _, _| ())?;
    Ok(placer.cluster().traffic())
}

/// Places all clients; `observe` sees each before (without) and after (with) its placement.
fn place_all(
    run: &Run,
    workload: &Workload,
    seed: u64,
    mut observe: impl FnMut(&Placer, ClientId, Option<&Placed>),
) -> Result<Placer, ParameterError> {
    let mut cluster = Cluster::new(run.broker_count)?;
    for rate in workload.rates() {
        cluster.add_topic(*rate)?;
    }
    let strategy = run.strategy.build(run.limits, run.matching, seed);
    let mut placer = Placer::new(cluster, strategy);
    for client in workload.clients() {
        observe(&placer, client, None);
        let placed = placer.arrive(client, &workload.interests(client))?;
        observe(&placer, client, Some(&placed));
    }
    Ok(placer)
}

#[derive(Debug, Default)]
struct Tally {
    /// Eq. 12 by passing brokers and topics: few pairs, each expensive to count.
    spaces: BTreeMap<(usize, usize), f64>,
    subscribers: f64,
    choices: f64,
    flagged: f64,
    redirected: f64,
    sessions: f64,
}

impl Tally {
    fn count(
        &mut self,
        run: &Run,
        workload: &Workload,
        placer: &Placer,
        client: ClientId,
        placed: Option<&Placed>,
    ) {
        let topic_count = workload.topic_count_of(client);
        let subscriber = workload.is_subscriber(client) && topic_count > 0;
        match placed {
            None if subscriber => {
                self.choices += self.choices_now(run, placer.cluster(), topic_count);
                self.subscribers += 1.0;
            }
            None => {}
            Some(placed) => {
                self.flagged += f64::from(u8::from(placed.flagged));
                self.redirected += placed.redirected.len() as f64;
                if subscriber {
                    self.sessions += placer.sessions(client).len() as f64;
                }
            }
        }
    }

    /// Choices for a subscriber of `topic_count` topics: Eq. 12 with the brokers that pass Eq. 11 now in place of M.
    fn choices_now(&mut self, run: &Run, cluster: &Cluster, topic_count: usize) -> f64 {
        let passing = cluster
            .brokers()
            .filter(|broker| !run.limits.exceeded(cluster, *broker, Dimension::Output))
            .count();
        let max_sessions = match run.strategy {
            StrategyKind::Random
            | StrategyKind::RoundRobin
            | StrategyKind::LeastLoaded
            | StrategyKind::BestMatch => 1,
            StrategyKind::MultiSession | StrategyKind::Thicket | StrategyKind::Optimum => {
                run.limits.max_sessions()
            }
        };
        *self
            .spaces
            .entry((passing, topic_count))
            .or_insert_with(|| {
                decision_space(passing as u32, topic_count as u32, max_sessions as u32).to_f64()
            })
    }

    fn measure(&self, run: &Run, cluster: &Cluster) -> Measures {
        let traffic = cluster.traffic();
        let above_gamma = cluster.brokers().filter(|broker| {
            [Dimension::Input, Dimension::Output]
                .into_iter()
                .any(|dimension| run.limits.exceeded(cluster, *broker, dimension))
        });
        let subscribers = self.subscribers.max(1.0);
        Measures {
            internal: traffic.internal(),
            external_in: traffic.external_in(),
            external_out: traffic.external_out(),
            routing_overhead: traffic.routing_overhead(),
            forwarding_overhead: traffic.forwarding_overhead(),
            jain: traffic.jain(),
            peak_in: traffic.peak(Dimension::Input),
            peak_out: traffic.peak(Dimension::Output),
            above_gamma: above_gamma.count() as f64,
            flagged: self.flagged,
            redirected: self.redirected,
            sessions: self.sessions / subscribers,
            choices: self.choices / subscribers,
        }
    }
}
