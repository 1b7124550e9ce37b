//! The measurements of a scenario, each by what `thicket bench` has for it, with clients in the namespaces of the sites.

mod arrivals;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use thicket_bench::crash::{self, CrashLoad, CrashNode, CrashResult, Deaths, NodeControl};
use thicket_bench::generator::{Arrivals, Generator, Node, Scenario as Clients, Watch};
use thicket_bench::idle;
use thicket_bench::namespace;
use thicket_bench::search::{Criterion, SearchSettings, Step, search};
use thicket_mqtt::Qos;

use crate::cluster::{Entrance, each_once};
use crate::error::LabError;
use crate::faults::Wanted;
use crate::results;
use crate::scenario::{Action, Death, Fault, Measure, Scenario};

/// Samples kept of a run.
pub const MAX_SAMPLES: usize = 1_000_000;
/// Messages a second that consumption may differ from publication by (Comparison 5.2), and the share.
const STABLE: Criterion = Criterion::Stable {
    tolerance_per_s: 100.0,
    tolerance_share: 0.02,
};
/// Rest before a death where brokers do not tell of replicas.
const SETTLE: Duration = Duration::from_secs(2);

/// What came of a run.
#[derive(Debug, Default)]
pub struct Measured {
    /// Figures, without those of the phases.
    pub metrics: BTreeMap<String, f64>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// How far clients were behind their schedule.
    pub behind_ms: f64,
    /// Samples as CSV.
    pub samples: Option<String>,
    /// A drawing of what came over time.
    pub time_line: Option<String>,
}

/// Measures once all clients are connected (`generator`; `None` where the measurement connects its own).
pub fn measure(
    scenario: &Scenario,
    generator: Option<Generator>,
    clients: Clients,
    entrance: Option<Entrance>,
    orders: Sender<Wanted>,
) -> Result<Measured, LabError> {
    match (&scenario.measure, generator) {
        (Measure::Arrivals { .. }, _) => match entrance {
            Some(entrance) => arrivals::measure(scenario, &clients, entrance),
            None => Err(LabError::Machine(
                "measure.kind = arrivals: brokers of others are not watched".to_owned(),
            )),
        },
        (Measure::Throughput { .. }, Some(generator)) => throughput(scenario, generator),
        (Measure::Connections { count, hold_s }, _) => connections(clients, *count, hold_s.value()),
        (Measure::Crash { .. }, _) => death(scenario, &clients.nodes, orders),
        (_, Some(generator)) => load(scenario, generator),
        (Measure::Load | Measure::Throughput { .. }, None) => {
            Err(LabError::Machine("there are no clients".to_owned()))
        }
    }
}

fn load(scenario: &Scenario, mut generator: Generator) -> Result<Measured, LabError> {
    generator.keep_samples(MAX_SAMPLES);
    let (load, span) = (
        scenario.workload.load(),
        scenario.workload.span(&scenario.phases),
    );
    let outcome = generator.run(load, span, &Watch::default(), &mut |_| {})?;
    let mut metrics = results::load_metrics(&outcome);
    if !scenario.faults.is_empty()
        && let Some(silence_s) = results::longest_silence_s(generator.samples())
    {
        metrics.insert("longest_silence_s".to_owned(), silence_s);
    }
    Ok(Measured {
        metrics,
        behind_ms: outcome.behind_schedule_ms,
        warnings: outcome.warnings,
        samples: Some(results::samples_csv(generator.samples())),
        time_line: None,
    })
}

fn throughput(scenario: &Scenario, mut generator: Generator) -> Result<Measured, LabError> {
    let Measure::Throughput {
        below_mean_ms,
        from_per_s,
        precision,
        step_s,
    } = &scenario.measure
    else {
        return Err(LabError::Machine("no throughput is asked for".to_owned()));
    };
    let settings = SearchSettings {
        criterion: below_mean_ms.map_or(STABLE, |ms| Criterion::MeanLatency {
            below_ms: ms.value(),
        }),
        from_per_s: from_per_s.value(),
        precision: precision.value(),
        arrivals: Arrivals::Constant,
        warm_up: Duration::from_millis(500),
        step: Duration::from_secs_f64(step_s.value()),
    };
    let found = search(&mut generator, &settings, &Watch::default(), &mut |_| {})?;
    let best = found.steps.iter().filter(|step| step.sustainable);
    let best = best.max_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let mut metrics = best.map_or_else(BTreeMap::new, |step| results::load_metrics(&step.outcome));
    metrics.insert("sustainable_msgs_per_s".to_owned(), found.mst_per_s);
    let behind = |step: &Step| step.outcome.behind_schedule_ms;
    let rates = found.steps.iter();
    let behind_ms = behind_ms(rates.map(|it| (it.rate_per_s, it.sustainable, behind(it))));
    let mut csv = String::from("rate_per_s,sustainable,delivered_per_s,delay_mean_ms,lost\n");
    for step in &found.steps {
        let latency = step.outcome.latency.as_ref();
        let delay = latency.map_or(String::new(), |it| format!("{:.3}", it.mean_us / 1000.0));
        let _ = writeln!(
            csv,
            "{:.1},{},{:.1},{delay},{}",
            step.rate_per_s,
            step.sustainable,
            step.outcome.delivered_per_s,
            step.outcome.counts.lost
        );
    }
    Ok(Measured {
        metrics,
        behind_ms,
        samples: Some(csv),
        ..Measured::default()
    })
}

/// How far clients were behind their schedule in the two rates that a search rests on: the highest sustainable one, and the lowest that
/// was not. A limit that is the generator's own is no limit of the broker. Of each rate: the rate, whether it was sustainable, and ms.
fn behind_ms(rates: impl Iterator<Item = (f64, bool, f64)> + Clone) -> f64 {
    let of = |sustainable| rates.clone().filter(move |(_, it, _)| *it == sustainable);
    let by_rate = |a: &(f64, bool, f64), b: &(f64, bool, f64)| a.0.total_cmp(&b.0);
    let decisive = [of(true).max_by(by_rate), of(false).min_by(by_rate)];
    let behind = decisive.into_iter().flatten().map(|(_, _, behind)| behind);
    behind.fold(0.0, f64::max)
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

/// A broker of the lab, killed and started by the thread that may.
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
    nodes: &[Node],
    orders: Sender<Wanted>,
) -> Result<Measured, LabError> {
    let Measure::Crash {
        site,
        how,
        before_s,
        after_s,
    } = &scenario.measure
    else {
        return Err(LabError::Machine("no death is asked for".to_owned()));
    };
    let brokers = each_once(nodes);
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
    let mut cluster = crash::Cluster::of(brokers.iter().map(control).collect(), SETTLE);
    let workload = &scenario.workload;
    let qos = match workload.qos {
        2 => Qos::ExactlyOnce,
        _ => Qos::AtLeastOnce,
    };
    let load = CrashLoad {
        rate: workload.rate_per_s.map_or(100.0, |rate| rate.value()),
        payload_len: workload.payload_bytes,
        publishers: vec![(qos, 0)],
        subscribers: vec![0, dies],
    };
    let deaths = Deaths::Once {
        node: dies,
        fault: crash::Fault::Kill,
        down: Duration::ZERO,
        before: Duration::from_secs_f64(before_s.value()),
        after: Duration::from_secs_f64(after_s.value()),
    };
    // Threads of the clients begin where this one is: at the first site.
    let place: Option<PathBuf> = nodes.first().and_then(|node| node.namespace.clone());
    if let Some(place) = &place {
        namespace::move_into(place).map_err(LabError::io(place.display()))?;
    }
    let result = crash::crash(&mut cluster, &load, deaths, &mut |_| {})?;
    Ok(Measured {
        metrics: death_metrics(&result),
        samples: Some(tenths_csv(&result)),
        time_line: Some(crash::time_line("What came to subscribers over time", &result).to_svg()),
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
    for (name, values) in [
        ("reconnect_max_ms", &result.reconnect_ms),
        ("resume_max_ms", &result.resume_ms),
    ] {
        if let Some(longest) = values.iter().copied().reduce(f64::max) {
            metrics.insert(name.to_owned(), longest);
        }
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
    fn a_search_is_as_late_as_the_two_rates_that_it_rests_on() {
        let rates = |late: f64| {
            [
                (1000.0, true, 900.0),
                (2000.0, true, 3.0),
                (3000.0, false, late),
                (4000.0, false, 700.0),
            ]
        };
        assert_eq!(behind_ms(rates(1.0).into_iter()), 3.0);
        assert_eq!(behind_ms(rates(250.0).into_iter()), 250.0);
        assert_eq!(behind_ms([].into_iter()), 0.0);
    }
}
