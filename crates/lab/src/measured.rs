//! The measurements of a scenario, each by the matching part of `thicket bench`, with clients in the namespaces of the sites.

mod arrivals;
mod connections;
pub(crate) mod placement;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use thicket_bench::crash::{self, CrashLoad, CrashNode, CrashResult, Deaths, NodeControl};
use thicket_bench::generator::{Fleet, Node, Scenario as Clients, Watch};
use thicket_bench::idle;
use thicket_bench::namespace;
use thicket_bench::report::Plot;
use thicket_bench::report::chart::{Chart, Pane};
use thicket_bench::search::{Criterion, SearchSettings, Step, search};
use thicket_mqtt::Qos;

use crate::cluster::{Entrance, each_once};
use crate::error::LabError;
use crate::faults::Wanted;
use crate::results;
use crate::scenario::{
    Action, CRASH_PER_S, Death, Fault, Measure, Scenario, TOLERANCE_PER_S, TOLERANCE_PERCENT,
};
use crate::units::{NonNegative, Percent};

/// Samples kept of a run.
pub const MAX_SAMPLES: usize = 1_000_000;
/// Load before each step of a search, unless the workload says another length.
const WARM_UP: Duration = Duration::from_millis(500);
/// Share of its cores, one a thread, that a generator uses at its limit: the rest goes to the kernel's own work.
const GENERATOR_CORES: f64 = 0.9;
/// How far such a generator is behind its schedule, in ms: at high rates it also uses the whole core while it is on time.
const GENERATOR_BEHIND_MS: f64 = 20.0;
/// Rest before a death if brokers do not report replicas.
const SETTLE: Duration = Duration::from_secs(2);

/// The result of a run.
#[derive(Debug, Default)]
pub struct Measured {
    /// Figures, without those of the phases.
    pub metrics: BTreeMap<String, f64>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// How far clients were behind their schedule.
    pub behind_ms: f64,
    /// Samples as CSV.
    pub samples: Option<String>,
    /// Acknowledgements to publishers as CSV.
    pub acknowledgements: Option<String>,
    /// CPU of brokers over time, where the measurement reads it itself.
    pub cpu: Option<Plot>,
    /// Why the load ended before its end: what was measured until then is no result, but it is kept.
    pub error: Option<LabError>,
    /// Panes of what else happened over time.
    pub over_time: Vec<Pane>,
}

impl Measured {
    /// The drawing of what happened over time; `None` if nothing was drawn.
    #[must_use]
    pub fn time_line(&self) -> Option<Chart> {
        let cpu = self.cpu.iter().map(Plot::titled_pane);
        let panes: Vec<Pane> = cpu.chain(self.over_time.iter().cloned()).collect();
        (!panes.is_empty()).then(|| Chart::side_by_side(String::new(), panes))
    }
}

/// Measures once all clients are connected (`generator`; `None` where the measurement connects its own).
pub fn measure(
    scenario: &Scenario,
    generator: Option<Fleet>,
    clients: Clients,
    entrance: Option<Entrance>,
    orders: Sender<Wanted>,
) -> Result<Measured, LabError> {
    match (&scenario.measure, generator) {
        (Measure::Arrivals { .. }, _) => match entrance {
            Some(entrance) => arrivals::measure(scenario, &clients, entrance),
            None => Err(LabError::Misuse(
                "measure.kind = arrivals: brokers of others are not watched".to_owned(),
            )),
        },
        (Measure::Placement, _) => match entrance {
            Some(entrance) => placement::measure(scenario, &clients, &entrance),
            None => Err(LabError::Misuse(
                "measure.kind = placement: brokers of others are not asked".to_owned(),
            )),
        },
        (Measure::Throughput { .. }, Some(generator)) => {
            let pids = entrance.map_or_else(Vec::new, |entrance| entrance.pids);
            throughput(scenario, generator, Watch { pids })
        }
        (Measure::Connections { count, hold_s }, _) => connections(clients, *count, hold_s.value()),
        (Measure::MostConnections { .. }, _) => {
            let pids = entrance.map_or_else(Vec::new, |entrance| entrance.pids);
            connections::most(scenario, &clients, &Watch { pids })
        }
        (Measure::Crash { .. }, _) => death(scenario, &clients, orders),
        (_, Some(generator)) => load(scenario, generator),
        (Measure::Load | Measure::Throughput { .. }, None) => {
            Err(LabError::Misuse("there are no clients".to_owned()))
        }
    }
}

fn load(scenario: &Scenario, mut generator: Fleet) -> Result<Measured, LabError> {
    generator.keep_samples(MAX_SAMPLES);
    let (load, span) = (
        scenario.workload.load(),
        scenario.workload.span(&scenario.phases),
    );
    let outcome = generator.run(load, span, &Watch::default(), &mut |_| {});
    let arrived = generator.samples();
    let acknowledged = generator.acknowledgements();
    let measured = Measured {
        samples: Some(results::samples_csv(&arrived)),
        acknowledgements: (!acknowledged.is_empty())
            .then(|| results::acknowledgements_csv(&acknowledged)),
        ..Measured::default()
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            return Ok(Measured {
                error: Some(error.into()),
                ..measured
            });
        }
    };
    let mut metrics = results::load_metrics(&outcome);
    if !scenario.faults.is_empty()
        && let Some(silence_s) = results::longest_silence_s(&arrived)
    {
        metrics.insert("longest_silence_s".to_owned(), silence_s);
    }
    let mut warnings = outcome.warnings;
    warnings.extend(connections_lost(&metrics));
    Ok(Measured {
        metrics,
        behind_ms: outcome.behind_schedule_ms,
        warnings,
        ..measured
    })
}

/// What brokers did to clients in the middle of a run, in words; `None`: nothing.
fn connections_lost(metrics: &BTreeMap<String, f64>) -> Option<String> {
    let words = [
        "connections closed",
        "connections refused",
        "publications refused",
        "publications without an outcome",
    ];
    let counts = results::CONNECTION_COUNTS.iter().zip(words);
    let told: Vec<String> = counts
        .filter_map(|(name, words)| Some(format!("{} {words}", metrics.get(*name)?)))
        .collect();
    let again = match metrics.contains_key("closed_connections") {
        true => "; clients connected again",
        false => "",
    };
    (!told.is_empty()).then(|| {
        let told = told.join(", ");
        format!("brokers did not serve all clients all the time: {told}{again}; what was not accepted is not counted as lost")
    })
}

fn throughput(
    scenario: &Scenario,
    mut generator: Fleet,
    watch: Watch,
) -> Result<Measured, LabError> {
    let Measure::Throughput {
        below_mean_ms,
        tolerance_per_s,
        tolerance_percent,
        from_per_s,
        precision,
        step_s,
    } = &scenario.measure
    else {
        return Err(LabError::Misuse("no throughput is asked for".to_owned()));
    };
    let settings = SearchSettings {
        criterion: match below_mean_ms {
            Some(ms) => Criterion::MeanLatency {
                below_ms: ms.value(),
            },
            None => Criterion::Stable {
                tolerance_per_s: tolerance_per_s.map_or(TOLERANCE_PER_S, NonNegative::value),
                tolerance_share: tolerance_percent.map_or(TOLERANCE_PERCENT, Percent::value)
                    / 100.0,
            },
        },
        from_per_s: from_per_s.value(),
        precision: precision.value(),
        arrivals: scenario.workload.spacing(),
        warm_up: scenario
            .workload
            .warm_up_s
            .map_or(WARM_UP, |seconds| Duration::from_secs_f64(seconds.value())),
        step: Duration::from_secs_f64(step_s.value()),
    };
    let found = search(&mut generator, &settings, &watch, &mut |_| {})?;
    let best = found.steps.iter().filter(|step| step.sustainable);
    let best = best.max_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let mut metrics = best.map_or_else(BTreeMap::new, |step| results::load_metrics(&step.outcome));
    metrics.insert("sustainable_msgs_per_s".to_owned(), found.mst_per_s);
    let threads = generator.threads() as f64;
    let tried = |step: &Step| Tried::of(step, threads);
    let tried: Vec<Tried> = found.steps.iter().map(tried).collect();
    let mut warnings = Vec::new();
    if let Some(above) = lowest_not_sustained(&tried) {
        metrics.extend(above.metrics());
        if above.is_limit_of_generator() {
            warnings.push(format!(
                "the load generator was the limit, not the broker: at {:.0} messages/s it used {:.2} of the cores that it can use, \
                 {threads}, and was {:.0} ms behind its schedule; the broker's highest rate is at least {:.0} messages/s",
                above.rate_per_s, above.generator_cores, above.behind_ms, found.mst_per_s
            ));
        }
    }
    let mut csv = String::from(
        "rate_per_s,sustainable,delivered_per_s,delay_mean_ms,lost,generator_cpu_cores,generator_behind_ms,broker_cpu_cores\n",
    );
    for (step, tried) in found.steps.iter().zip(&tried) {
        let latency = step.outcome.latency.as_ref();
        let delay = latency.map_or(String::new(), |it| format!("{:.3}", it.mean_us / 1000.0));
        let broker = (tried.broker_cores).map_or(String::new(), |cores| format!("{cores:.3}"));
        let _ = writeln!(
            csv,
            "{:.1},{},{:.1},{delay},{},{:.3},{:.1},{broker}",
            step.rate_per_s,
            step.sustainable,
            step.outcome.delivered_per_s,
            step.outcome.counts.lost,
            tried.generator_cores,
            tried.behind_ms
        );
    }
    Ok(Measured {
        metrics,
        behind_ms: behind_ms(&tried),
        warnings,
        samples: Some(csv),
        ..Measured::default()
    })
}

/// A rate that a search tried, with the usage of each side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tried {
    rate_per_s: f64,
    is_sustainable: bool,
    /// How far the clients were behind their schedule.
    behind_ms: f64,
    generator_cores: f64,
    /// Cores that the generator can use.
    threads: f64,
    /// All brokers together; `None` if their processes are not known.
    broker_cores: Option<f64>,
}

impl Tried {
    fn of(step: &Step, threads: f64) -> Self {
        Self {
            threads,
            rate_per_s: step.rate_per_s,
            is_sustainable: step.sustainable,
            behind_ms: step.outcome.behind_schedule_ms,
            generator_cores: step.outcome.own.cores,
            broker_cores: step.outcome.broker.map(|broker| broker.cpu.cores),
        }
    }

    /// Each thread of the generator can use one core: it had no time left for a higher rate.
    fn is_limit_of_generator(&self) -> bool {
        self.generator_cores >= GENERATOR_CORES * self.threads
            && self.behind_ms >= GENERATOR_BEHIND_MS
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let is_limit = f64::from(u8::from(self.is_limit_of_generator()));
        let mut metrics = BTreeMap::from([
            (results::GENERATOR_WAS_LIMIT.to_owned(), is_limit),
            ("limit_generator_cpu_cores".to_owned(), self.generator_cores),
            ("limit_generator_threads".to_owned(), self.threads),
            ("limit_generator_behind_ms".to_owned(), self.behind_ms),
        ]);
        if let Some(cores) = self.broker_cores {
            metrics.insert("limit_broker_cpu_cores".to_owned(), cores);
        }
        metrics
    }
}

/// The upper bound of the result: the lowest rate that was not sustainable.
fn lowest_not_sustained(tried: &[Tried]) -> Option<&Tried> {
    let failed = tried.iter().filter(|it| !it.is_sustainable);
    failed.min_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s))
}

/// How far clients were behind their schedule at the two rates that decide a search: the highest sustainable one, and the lowest that was not. A
/// generator at its limit is behind at the latter, and the result is then a lower bound; one that is behind although it has time left was kept from
/// running.
fn behind_ms(tried: &[Tried]) -> f64 {
    let sustained = tried.iter().filter(|it| it.is_sustainable);
    let highest = sustained.max_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let above = lowest_not_sustained(tried).filter(|it| !it.is_limit_of_generator());
    let decisive = highest.into_iter().chain(above);
    decisive.map(|it| it.behind_ms).fold(0.0, f64::max)
}

fn connections(clients: Clients, count: usize, hold_s: f64) -> Result<Measured, LabError> {
    let hold = Duration::from_secs_f64(hold_s);
    let cost = idle::measure(clients, count, hold, &Watch::default())?;
    Ok(Measured {
        metrics: BTreeMap::from([
            ("connections".to_owned(), cost.connections as f64),
            ("connects_per_s".to_owned(), cost.connects_per_s),
        ]),
        ..Measured::default()
    })
}

/// A broker of the lab, killed and started by the thread that may do so.
#[derive(Debug)]
struct Remote {
    site: String,
    how: Death,
    orders: Sender<Wanted>,
}

impl Remote {
    fn order(&self, action: Action) -> io::Result<()> {
        let (sender, answer) = channel();
        let fault = Fault::of_site(action, &self.site);
        let gone = || io::Error::other("the lab has ended");
        self.orders.send((fault, sender)).map_err(|_error| gone())?;
        answer
            .recv()
            .map_err(|_error| gone())?
            .map_err(io::Error::other)
    }
}

impl NodeControl for Remote {
    fn kill(&mut self) -> io::Result<()> {
        match self.how {
            Death::Kill => self.order(Action::Kill),
            Death::PowerOff => self.order(Action::PowerOff),
            Death::Drain => {
                self.order(Action::Drain)?;
                self.order(Action::Kill)
            }
        }
    }

    fn start(&mut self) -> io::Result<()> {
        self.order(Action::Restart)
    }
}

fn death(
    scenario: &Scenario,
    clients: &Clients,
    orders: Sender<Wanted>,
) -> Result<Measured, LabError> {
    let Measure::Crash {
        site,
        how,
        before_s,
        after_s,
    } = &scenario.measure
    else {
        return Err(LabError::Misuse("no death is asked for".to_owned()));
    };
    let brokers = each_once(&clients.nodes);
    let dies = brokers
        .iter()
        .position(|node| node.name == *site)
        .unwrap_or(0);
    let control = |node: &Node| {
        let remote = Remote {
            site: node.name.clone(),
            how: *how,
            orders: orders.clone(),
        };
        CrashNode::controlled(node.address, Box::new(remote))
    };
    // The rest is a part of the load before the death.
    let before = Duration::from_secs_f64(before_s.value());
    let settle = before.min(SETTLE);
    let nodes = brokers.iter().map(control).collect();
    let mut cluster = crash::Cluster::of(nodes, settle, clients.stop.clone());
    let workload = &scenario.workload;
    let qos = match workload.qos {
        2 => Qos::ExactlyOnce,
        _ => Qos::AtLeastOnce,
    };
    let load = CrashLoad {
        rate: workload.rate_per_s.map_or(CRASH_PER_S, |rate| rate.value()),
        payload_len: workload.payload_bytes,
        publishers: vec![(qos, 0)],
        subscribers: vec![0, dies],
    };
    let deaths = Deaths::Once {
        node: dies,
        fault: crash::Fault::Kill,
        down: Duration::ZERO,
        before: before - settle,
        after: Duration::from_secs_f64(after_s.value()),
    };
    // Threads of the clients start in the namespace of this one: at the first site.
    let place: Option<PathBuf> = (clients.nodes.first()).and_then(|node| node.namespace.clone());
    if let Some(place) = &place {
        namespace::move_into(place).map_err(LabError::io(place.display()))?;
    }
    let result = crash::crash(&mut cluster, &load, deaths, &mut |_| {})?;
    Ok(Measured {
        metrics: death_metrics(&result),
        samples: Some(tenths_csv(&result)),
        over_time: crash::time_line("", &result).panes,
        error: clients.stop.is_set().then_some(LabError::Interrupted),
        ..Measured::default()
    })
}

fn death_metrics(result: &CrashResult) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let both = |of: fn(&crash::Tally) -> u64| (of(&result.qos_1) + of(&result.qos_2)) as f64;
    for (name, value) in [
        ("acknowledged_messages", both(|it| it.acknowledged)),
        ("delivered_messages", both(|it| it.delivered)),
        ("lost_messages", both(|it| it.missed)),
        ("duplicated_messages", both(|it| it.doubled)),
        ("sessions_lost", result.sessions_lost as f64),
        ("unacknowledged_messages", result.unacknowledged as f64),
    ] {
        metrics.insert(name.to_owned(), value);
    }
    if let Some(longest) = result.reconnect_ms.iter().copied().reduce(f64::max) {
        metrics.insert("reconnect_max_ms".to_owned(), longest);
    }
    metrics
}

fn tenths_csv(result: &CrashResult) -> String {
    let mut csv = String::from("subscriber,tenth_of_a_second,messages\n");
    for (subscriber, tenths) in result.tenths_by.iter().enumerate() {
        for (tenth, messages) in tenths.iter().enumerate() {
            let _ = writeln!(csv, "{subscriber},{tenth},{messages}");
        }
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_what_brokers_refused_and_whether_clients_connected_again() {
        let told = |counts: &[(&str, f64)]| {
            let counts = counts.iter();
            connections_lost(
                &counts
                    .map(|(name, count)| ((*name).to_owned(), *count))
                    .collect(),
            )
        };
        assert_eq!(told(&[("lost_messages", 3.0)]), None);
        let refused = told(&[("refused_messages", 136.0)]).expect("a warning");
        assert!(
            refused.contains(": 136 publications refused; what"),
            "{refused}"
        );
        let closed = told(&[("closed_connections", 2.0), ("unknown_messages", 17.0)]);
        let closed = closed.expect("a warning");
        let expected =
            ": 2 connections closed, 17 publications without an outcome; clients connected again;";
        assert!(closed.contains(expected), "{closed}");
    }

    #[test]
    fn a_search_is_as_late_as_the_two_rates_that_it_rests_on() {
        let tried = |rate_per_s, is_sustainable, behind_ms, generator_cores| Tried {
            rate_per_s,
            is_sustainable,
            behind_ms,
            generator_cores,
            threads: 1.0,
            broker_cores: Some(0.3),
        };
        let rates = |late, cores| {
            [
                tried(1000.0, true, 900.0, 0.1),
                tried(2000.0, true, 3.0, 0.2),
                tried(3000.0, false, late, cores),
                tried(4000.0, false, 700.0, 1.0),
            ]
        };
        assert_eq!(behind_ms(&rates(1.0, 0.4)), 3.0);
        assert_eq!(behind_ms(&rates(250.0, 0.4)), 250.0, "kept from running");
        assert_eq!(behind_ms(&rates(250.0, 0.95)), 3.0, "at its limit");
        assert_eq!(behind_ms(&[]), 0.0);
        let above = rates(250.0, 0.95);
        let metrics = lowest_not_sustained(&above).unwrap().metrics();
        assert_eq!(metrics[results::GENERATOR_WAS_LIMIT], 1.0);
        assert_eq!(metrics["limit_broker_cpu_cores"], 0.3);
        let slow_broker = rates(1.0, 1.0);
        let metrics = lowest_not_sustained(&slow_broker).unwrap().metrics();
        assert_eq!(metrics[results::GENERATOR_WAS_LIMIT], 0.0);
    }
}
