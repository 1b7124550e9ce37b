//! The experiment of the dispatcher's paper (Dispatcher IV): publishers of Table II arrive at two brokers, sent by a dispatcher or in turn, as with
//! DNS round robin. The brokers are two Mosquittos, or two nodes of a cluster, the first of which redirects them.
//!
//! Nine publishers are alike, so the order is determined by the place of the tenth; there are ten orders.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::BenchError;
use crate::arrivals::{self, Arrivals, ArrivalsOutcome, Attach, PublisherType, Redirect};
use crate::generator::Watch;
use crate::random::Random;
use crate::report::{Part, Plot, Report, Scale, Series, Table, amount};
use crate::target::{Running, Target};

/// Table II.
const USUAL: PublisherType = PublisherType {
    count: 9,
    rate_per_s: 2_000.0,
    payload_len: 600,
};
const HEAVY: PublisherType = PublisherType {
    count: 1,
    rate_per_s: 10_000.0,
    payload_len: 600,
};
/// Time until a dispatcher has figures of idle brokers.
const SETTLE: Duration = Duration::from_secs(3);

/// The brokers at which publishers arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brokers {
    /// Two Mosquittos, behind a dispatcher with these options for each; `{pid}` is filled in.
    Mosquitto {
        /// The program.
        program: PathBuf,
        /// The text after the address in a `--broker`.
        sources: String,
    },
    /// Two nodes that redirect clients themselves.
    Nodes,
}

/// The settings of the experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The program `thicket`, for the dispatcher or the nodes.
    pub thicket: PathBuf,
    /// The brokers at which publishers arrive.
    pub brokers: Brokers,
    /// The orders, by the place of the heavy publisher, 1 to 10.
    pub places: Vec<usize>,
    /// Time between two arrivals.
    pub ramp: Duration,
    /// Time after the last arrival.
    pub hold: Duration,
    /// Policy of the dispatcher or the nodes.
    pub policy: String,
}

/// How publishers find their broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// They follow a dispatcher (proposed by the paper).
    Dispatcher,
    /// They connect to one node and follow its redirections, also while they are connected.
    Redirect,
    /// In turn (the existing method).
    RoundRobin,
}

/// One order with one method.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Played {
    /// Place of the heavy publisher.
    pub place: usize,
    /// How publishers found their brokers.
    pub method: Method,
    /// The result; processes are the brokers, in their order.
    pub outcome: ArrivalsOutcome,
}

impl Brokers {
    /// The proposed method, and the existing one.
    const fn methods(&self) -> [Method; 2] {
        match self {
            Self::Mosquitto { .. } => [Method::Dispatcher, Method::RoundRobin],
            Self::Nodes => [Method::Redirect, Method::RoundRobin],
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Mosquitto { .. } => "two Mosquittos",
            Self::Nodes => "two nodes",
        }
    }
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher",
            Self::Redirect => "redirect",
            Self::RoundRobin => "round robin",
        }
    }
}

/// The first `count` orders of a random draw; the two in the paper, second and fourth, come first.
#[must_use]
pub fn places(count: usize, seed: u64) -> Vec<usize> {
    let mut rest: Vec<usize> = (1..=10).filter(|place| ![2, 4].contains(place)).collect();
    let mut random = Random::new(seed);
    for last in (1..rest.len()).rev() {
        rest.swap(last, random.below(last + 1));
    }
    [2, 4].into_iter().chain(rest).take(count).collect()
}

/// Runs every order with both methods, in turn. `progress` receives lines.
pub fn play(
    experiment: &Experiment,
    progress: &mut dyn FnMut(String),
) -> Result<Vec<Played>, BenchError> {
    let mut played = Vec::new();
    for &place in &experiment.places {
        for method in experiment.brokers.methods() {
            let outcome = play_one(experiment, place, method, progress)?;
            progress(format!(
                "heavy publisher {place} of 10, {}: difference {} msg/s",
                method.name(),
                amount(outcome.difference_per_s)
            ));
            played.push(Played {
                place,
                method,
                outcome,
            });
        }
    }
    Ok(played)
}

fn play_one(
    experiment: &Experiment,
    place: usize,
    method: Method,
    progress: &mut dyn FnMut(String),
) -> Result<ArrivalsOutcome, BenchError> {
    let brokers = start_brokers(experiment, method)?;
    let dispatcher = match (&experiment.brokers, method) {
        (Brokers::Mosquitto { sources, .. }, Method::Dispatcher) => {
            Some(start_dispatcher(experiment, sources, &brokers)?)
        }
        _ => None,
    };
    let nodes = match &dispatcher {
        Some(dispatcher) => vec![dispatcher.node()],
        None => brokers.iter().map(Running::node).collect(),
    };
    let mut publishers = vec![PublisherType { count: 1, ..USUAL }; 9];
    publishers.insert(place - 1, HEAVY);
    let arrivals = Arrivals {
        nodes,
        publishers,
        subscribers: 0,
        ramp: experiment.ramp,
        hold: experiment.hold,
        attach: match method {
            Method::Dispatcher => Attach::Dispatch,
            Method::Redirect => Attach::Redirect,
            Method::RoundRobin => Attach::RoundRobin,
        },
        redirect: Redirect::Follow,
        prefix: "bench".to_owned(),
    };
    let watch = Watch {
        pids: brokers.iter().map(Running::pid).collect(),
    };
    let mut outcome = arrivals::run(&arrivals, &watch, &mut |at_s, rates| {
        let rates: Vec<String> = rates
            .iter()
            .map(|(broker, rate)| format!("{broker} {}/s", amount(*rate)))
            .collect();
        progress(format!("{at_s:>6.1} s  {}", rates.join("  ")));
    })?;
    // A broker without publishers is included in the figures too.
    for broker in &brokers {
        let name = broker.address.to_string();
        if !outcome.brokers.iter().any(|one| one.broker == name) {
            outcome.brokers.push(arrivals::BrokerSeries {
                broker: name,
                publishers: 0,
                at_end_per_s: 0.0,
                rates: Vec::new(),
            });
        }
    }
    let order = |name: &str| {
        brokers
            .iter()
            .position(|one| one.address.to_string() == name)
    };
    outcome.brokers.sort_by_key(|one| order(&one.broker));
    if method == Method::Redirect {
        // The result after moves counts, not the state before them.
        for broker in &mut outcome.brokers {
            broker.at_end_per_s = late_mean(&broker.rates);
        }
    }
    let ends: Vec<f64> = outcome.brokers.iter().map(|one| one.at_end_per_s).collect();
    outcome.difference_per_s = (ends[0] - ends[1]).abs();
    if let Some(dispatcher) = dispatcher {
        dispatcher.stop()?;
    }
    let [one, other] = brokers;
    one.stop()?;
    other.stop()?;
    Ok(outcome)
}

/// Mean of the last two seconds.
fn late_mean(rates: &[(f64, f64)]) -> f64 {
    let late = &rates[rates.len().saturating_sub(2)..];
    late.iter().map(|(_, rate)| rate).sum::<f64>() / late.len().max(1) as f64
}

fn start_brokers(experiment: &Experiment, method: Method) -> Result<[Running; 2], BenchError> {
    match &experiment.brokers {
        Brokers::Mosquitto { program, .. } => {
            let mut target = Target::mosquitto(program.clone());
            // Publish counters every second; the default is ten seconds.
            target.config = target.config.map(|config| config + "sys_interval 1\n");
            Ok([target.start()?, target.start()?])
        }
        Brokers::Nodes => {
            let first = node_target(experiment, method, None).start()?;
            let second = node_target(experiment, method, Some(&first)).start()?;
            std::thread::sleep(SETTLE);
            Ok([first, second])
        }
    }
}

/// A node, and the address of the other one.
fn node_target(experiment: &Experiment, method: Method, seed: Option<&Running>) -> Target {
    let mut words = vec![
        "broker".to_owned(),
        "--listen=127.0.0.1:{port}".to_owned(),
        "--http=off".to_owned(),
        "--discover=off".to_owned(),
        "--discovery-grace-ms=0".to_owned(),
    ];
    words.extend(seed.map(|seed| format!("--seed={}", seed.address)));
    if method == Method::Redirect {
        words.push("--redirect=load".to_owned());
        words.push(format!("--redirect-policy={}", experiment.policy));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Target::plain("thicket", experiment.thicket.clone(), &words)
}

fn start_dispatcher(
    experiment: &Experiment,
    sources: &str,
    brokers: &[Running],
) -> Result<Running, BenchError> {
    let mut words = vec![
        "dispatch".to_owned(),
        "--listen=127.0.0.1:{port}".to_owned(),
        "--http=127.0.0.1:{other-port}".to_owned(),
        format!("--policy={}", experiment.policy),
    ];
    for broker in brokers {
        let sources = sources.replace("{pid}", &broker.pid().to_string());
        words.push(format!("--broker={},{sources}", broker.address));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let target = Target::plain("dispatcher", experiment.thicket.clone(), &words);
    let running = target.start_until(|address| std::net::TcpStream::connect(address).map(drop))?;
    std::thread::sleep(SETTLE);
    Ok(running)
}

/// Figures, and the paper's plots: Fig. 7 (throughput), 8 to 11 (CPU where the heavy publisher was second and fourth).
#[must_use]
pub fn dispatcher_report(experiment: &Experiment, played: &[Played]) -> Report {
    let mut report = Report::new(format!(
        "Table II at {}: policy {}, {} orders, {} s between arrivals",
        experiment.brokers.name(),
        experiment.policy,
        experiment.places.len(),
        experiment.ramp.as_secs_f64()
    ));
    report.push(Part::Table(differences(experiment, played)));
    for plot in plots(played) {
        report.push(Part::Plot(plot.1));
    }
    report
}

fn differences(experiment: &Experiment, played: &[Played]) -> Table {
    let [proposed, existing] = experiment.brokers.methods();
    let mut table = Table::new([
        "heavy publisher is".to_owned(),
        format!("{}, msg/s", proposed.name()),
        format!("{}, msg/s", existing.name()),
    ]);
    let of = |place: usize, method: Method| {
        let found = played
            .iter()
            .find(|one| one.place == place && one.method == method);
        found.map(|one| one.outcome.difference_per_s)
    };
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), amount);
    let mut sorted = experiment.places.clone();
    sorted.sort_unstable();
    for &place in &sorted {
        table.row([
            format!("{place} of 10"),
            cell(of(place, proposed)),
            cell(of(place, existing)),
        ]);
    }
    let mean = |method| {
        let all: Vec<f64> = sorted
            .iter()
            .filter_map(|&place| of(place, method))
            .collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    table.row([
        "mean difference".to_owned(),
        cell(mean(proposed)),
        cell(mean(existing)),
    ]);
    table
}

/// The paper's figures by name, as far as their orders were run; rates and differences beside them.
#[must_use]
pub fn plots(played: &[Played]) -> Vec<(String, Plot)> {
    let mut plots = vec![("fig7".to_owned(), throughput(played))];
    let figures = [
        (2, true, "fig8"),
        (2, false, "fig9"),
        (4, true, "fig10"),
        (4, false, "fig11"),
    ];
    for (place, is_proposed, name) in figures {
        let found = played
            .iter()
            .find(|one| one.place == place && (one.method != Method::RoundRobin) == is_proposed);
        if let Some(one) = found {
            plots.push((name.to_owned(), cpu_over_time(one)));
            plots.push((format!("{name}-rates"), rates_over_time(one)));
        }
    }
    plots
}

/// Fig. 7: mean throughput of each broker after the last arrival, by order.
fn throughput(played: &[Played]) -> Plot {
    let mut series = Vec::new();
    for method in [Method::Dispatcher, Method::Redirect, Method::RoundRobin] {
        if !played.iter().any(|one| one.method == method) {
            continue;
        }
        for broker in 0..2 {
            let mut points: Vec<(f64, f64)> = played
                .iter()
                .filter(|one| one.method == method)
                .map(|one| (one.place as f64, one.outcome.brokers[broker].at_end_per_s))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            series.push(Series {
                name: format!("{}, broker {}", method.name(), broker + 1),
                points,
            });
        }
    }
    Plot {
        title: "Throughput of each broker at the end (Fig. 7)".to_owned(),
        x_label: "place of the heavy publisher".to_owned(),
        y_label: "msg/s".to_owned(),
        scale: Scale::Linear,
        series,
    }
}

fn cpu_over_time(one: &Played) -> Plot {
    let brokers = one.outcome.processes.iter().enumerate();
    let series = brokers.map(|(at, process)| Series {
        name: format!("broker {}", at + 1),
        points: process
            .points
            .iter()
            .map(|point| (point.at_s, point.cores * 100.0))
            .collect(),
    });
    Plot {
        title: format!(
            "CPU, {}, heavy publisher {} of 10",
            one.method.name(),
            one.place
        ),
        x_label: "seconds".to_owned(),
        y_label: "% of a core".to_owned(),
        scale: Scale::Linear,
        series: series.collect(),
    }
}

fn rates_over_time(one: &Played) -> Plot {
    let rates = |at: usize| &one.outcome.brokers[at].rates;
    let mut series: Vec<Series> = (0..2)
        .map(|at| Series {
            name: format!("broker {}", at + 1),
            points: rates(at).clone(),
        })
        .collect();
    let both = rates(0).iter().zip(rates(1));
    series.push(Series {
        name: "difference".to_owned(),
        points: both
            .map(|(one, other)| (one.0, (one.1 - other.1).abs()))
            .collect(),
    });
    Plot {
        title: format!(
            "Messages, {}, heavy publisher {} of 10",
            one.method.name(),
            one.place
        ),
        x_label: "seconds".to_owned(),
        y_label: "msg/s".to_owned(),
        scale: Scale::Linear,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::BrokerSeries;

    #[test]
    fn orders_are_distinct_and_those_of_the_paper_come_first() {
        assert_eq!(places(2, 1), [2, 4]);
        let mut all = places(10, 7);
        assert_eq!(&all[..2], [2, 4]);
        all.sort_unstable();
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn the_report_tells_differences_by_order_and_their_means() {
        let experiment = Experiment {
            thicket: PathBuf::new(),
            brokers: Brokers::Mosquitto {
                program: PathBuf::new(),
                sources: "sys".to_owned(),
            },
            places: places(2, 1),
            ramp: Duration::from_secs(5),
            hold: Duration::from_secs(5),
            policy: "combined".to_owned(),
        };
        let series = |at_end_per_s| BrokerSeries {
            broker: "b".to_owned(),
            publishers: 5,
            at_end_per_s,
            rates: vec![(1.0, at_end_per_s)],
        };
        let one = |place, method, difference: f64| Played {
            place,
            method,
            outcome: ArrivalsOutcome {
                brokers: vec![series(14_000.0 + difference), series(14_000.0)],
                processes: Vec::new(),
                redirects: 10,
                difference_per_s: difference,
                own_cores: 0.1,
                behind_schedule_ms: 0.0,
                received: None,
            },
        };
        let played = [
            one(2, Method::Dispatcher, 1_000.0),
            one(2, Method::RoundRobin, 8_000.0),
            one(4, Method::Dispatcher, 3_000.0),
            one(4, Method::RoundRobin, 8_000.0),
        ];
        let text = dispatcher_report(&experiment, &played).to_text();
        let mean = text.lines().find(|line| line.starts_with("mean")).unwrap();
        assert!(mean.contains("2,000") && mean.contains("8,000"), "{text}");
        let names: Vec<String> = plots(&played).into_iter().map(|(name, _)| name).collect();
        for name in ["fig7", "fig8", "fig9", "fig10", "fig11", "fig10-rates"] {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
    }
}
