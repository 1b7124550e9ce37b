//! The most connections under load (Comparison M3).

use std::fmt::Write as _;
use std::time::Duration;

use thicket_bench::BenchError;
use thicket_bench::generator::{Arrivals, Fleet, Load, Scenario as Clients, Span, Until, Watch};
use thicket_bench::search::{Criterion, bisect};
use thicket_bench::workload::Workload;

use super::{Measured, WARM_UP};
use crate::error::LabError;
use crate::results;
use crate::scenario::{Measure, Scenario, TOLERANCE_PER_S, TOLERANCE_PERCENT};
use crate::units::NonNegative;

/// The figure of the search.
const MOST: &str = "sustainable_connections";
/// Longest wait for messages under way.
const DRAIN: Duration = Duration::from_secs(3);

/// Searches for the most connections.
pub(super) fn most(
    scenario: &Scenario,
    clients: &Clients,
    watch: &Watch,
) -> Result<Measured, LabError> {
    let Measure::MostConnections {
        count,
        each_per_s,
        precision,
        step_s,
    } = &scenario.measure
    else {
        return Err(LabError::Misuse("no connections are asked for".to_owned()));
    };
    let warm_up = scenario.workload.warm_up_s.map(NonNegative::value);
    let span = Span {
        warm_up: warm_up.map_or(WARM_UP, Duration::from_secs_f64),
        until: Until::Elapsed(Duration::from_secs_f64(step_s.value())),
        drain: DRAIN,
    };
    let mut trial = Trial {
        clients,
        each_per_s: each_per_s.value(),
        arrivals: scenario.workload.spacing(),
        span,
        watch,
        csv: "connections,sustainable,connect_s,delivered_per_s,delay_mean_ms,lost,refused\n"
            .to_owned(),
        best: Measured::default(),
        number: 0,
    };
    let pairs = bisect(count.div_ceil(2) as f64, precision.value(), |pairs| {
        trial.holds(pairs as usize)
    })?;
    let mut measured = trial.best;
    let most = 2.0 * pairs.floor();
    measured.metrics.insert(MOST.to_owned(), most);
    measured.samples = Some(trial.csv);
    Ok(measured)
}

/// What all numbers that are tried have in common.
struct Trial<'a> {
    clients: &'a Clients,
    each_per_s: f64,
    arrivals: Arrivals,
    span: Span,
    watch: &'a Watch,
    csv: String,
    /// Of the most pairs that were sustainable.
    best: Measured,
    number: usize,
}

impl Trial<'_> {
    /// Whether this many pairs are sustainable. Brokers that refuse clients, or close connections,
    /// do not sustain them.
    fn holds(&mut self, pairs: usize) -> Result<bool, BenchError> {
        self.number += 1;
        let mut clients = self.clients.clone();
        clients.workload = Workload::Pair { pairs };
        // A client of the number tried before may not be gone yet.
        clients.prefix = format!("{}-{:02}", self.clients.prefix, self.number);
        let rate_per_s = pairs as f64 * self.each_per_s;
        let load = Load::Open {
            rate_per_s,
            arrivals: self.arrivals,
        };
        let outcome = Fleet::connect(clients, 1).and_then(|mut fleet| {
            let outcome = fleet.run(load, self.span, self.watch, &mut |_| {})?;
            Ok((fleet.generators()[0].connecting(), outcome))
        });
        let (connecting, outcome) = match outcome {
            Ok(outcome) => outcome,
            Err(
                error @ (BenchError::Refused { .. }
                | BenchError::Closed { .. }
                | BenchError::Unreachable { .. }
                | BenchError::Timeout { .. }),
            ) => {
                let reason = error.to_string().replace(['"', ','], " ");
                let _ = writeln!(self.csv, "{},false,,,,,{reason}", 2 * pairs);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let criterion = Criterion::Stable {
            tolerance_per_s: TOLERANCE_PER_S,
            tolerance_share: TOLERANCE_PERCENT / 100.0,
        };
        let is_met = criterion.is_met(rate_per_s, &outcome);
        let delay = outcome.latency.as_ref();
        let delay = delay.map_or(String::new(), |it| format!("{:.3}", it.mean_us / 1000.0));
        let _ = writeln!(
            self.csv,
            "{},{is_met},{:.3},{:.1},{delay},{},",
            2 * pairs,
            connecting.as_secs_f64(),
            outcome.delivered_per_s,
            outcome.counts.lost
        );
        if is_met {
            self.best = Measured {
                metrics: results::load_metrics(&outcome),
                behind_ms: outcome.behind_schedule_ms,
                ..Measured::default()
            };
        }
        Ok(is_met)
    }
}
