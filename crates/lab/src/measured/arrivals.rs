//! Publishers that arrive one after the other, and the brokers that get their load (Dispatcher IV).

use std::collections::BTreeMap;
use std::time::Duration;

use thicket_bench::arrivals::{self, Arrivals, ArrivalsOutcome, Attach as By, Receipt, Redirect};
use thicket_bench::generator::{Node, Scenario as Clients, Watch};
use thicket_bench::namespace;
use thicket_bench::report::chart::Pane;
use thicket_bench::report::{Plot, Scale, Series};

use super::Measured;
use crate::cluster::Entrance;
use crate::error::LabError;
use crate::results::delay_metrics;
use crate::scenario::{Attach, Measure, Scenario};

/// Publishers arrive at the first site.
pub(super) fn measure(
    scenario: &Scenario,
    clients: &Clients,
    entrance: Entrance,
) -> Result<Measured, LabError> {
    let Measure::Arrivals {
        every_s,
        hold_s,
        subscribers,
        ..
    } = &scenario.measure
    else {
        return Err(LabError::Machine("no arrivals are asked for".to_owned()));
    };
    let payload_len = scenario.workload.payload_bytes;
    let publishers = scenario.measure.arriving(payload_len, clients.seed);
    let publishers = publishers.map_err(LabError::Machine)?;
    let settings = Arrivals {
        nodes: entrance.nodes,
        publishers,
        subscribers: *subscribers,
        ramp: Duration::from_secs_f64(every_s.value()),
        hold: Duration::from_secs_f64(hold_s.value()),
        attach: match entrance.attach {
            Attach::Dispatcher => By::Dispatch,
            Attach::Redirect => By::Redirect,
            // The scenario's check permits no other way.
            Attach::RoundRobin
            | Attach::Random
            | Attach::Local
            | Attach::Placed
            | Attach::Learned => By::RoundRobin,
        },
        redirect: Redirect::Follow,
        // A dispatcher relays for a client that it has redirected before and that returns: so every run has its own names.
        prefix: clients.prefix.clone(),
    };
    let watch = Watch {
        pids: entrance.pids,
    };
    if let Some(place) = clients
        .nodes
        .first()
        .and_then(|node| node.namespace.as_ref())
    {
        namespace::move_into(place).map_err(LabError::io(place.display()))?;
    }
    let outcome = arrivals::run(&settings, &watch, &mut |_, _| {})?;
    Ok(Measured {
        metrics: metrics(&outcome, &entrance.brokers),
        behind_ms: outcome.behind_schedule_ms,
        samples: Some(csv(&outcome, &entrance.brokers)),
        cpu: Some(plot(&outcome, &entrance.brokers)),
        over_time: std::iter::once(publications(&outcome, &entrance.brokers))
            .chain(outcome.received.iter().map(deliveries))
            .collect(),
        ..Measured::default()
    })
}

/// Messages a second of each broker after the last arrival, in the order of the brokers; 0 if no publisher is there. Clients may still be redirected,
/// so the last two seconds count.
fn ends(outcome: &ArrivalsOutcome, brokers: &[Node]) -> Vec<f64> {
    let end = |node: &Node| {
        let address = node.address.to_string();
        let of = |it: &&arrivals::BrokerSeries| it.broker == address || it.broker == node.name;
        let rates = outcome
            .brokers
            .iter()
            .find(of)
            .map(|it| it.rates.as_slice());
        let late = rates.map_or(&[][..], |all| &all[all.len().saturating_sub(2)..]);
        late.iter().map(|(_, rate)| rate).sum::<f64>() / late.len().max(1) as f64
    };
    brokers.iter().map(end).collect()
}

fn metrics(outcome: &ArrivalsOutcome, brokers: &[Node]) -> BTreeMap<String, f64> {
    let ends = ends(outcome, brokers);
    let most = ends.iter().copied().fold(0.0, f64::max);
    let least = ends.iter().copied().fold(most, f64::min);
    let mut metrics = BTreeMap::from([
        ("busiest_msgs_per_s".to_owned(), most),
        ("idlest_msgs_per_s".to_owned(), least),
        ("difference_msgs_per_s".to_owned(), most - least),
        ("difference_cpu_percent".to_owned(), cpu_difference(outcome)),
        ("redirects".to_owned(), outcome.redirects as f64),
    ]);
    if let Some(received) = &outcome.received {
        metrics.extend([
            ("delivered_msgs_per_s".to_owned(), received.at_end_per_s),
            ("delivered_messages".to_owned(), received.messages as f64),
            ("lost_messages".to_owned(), received.lost as f64),
        ]);
        metrics.extend(received.latency.iter().flat_map(delay_metrics));
    }
    metrics
}

/// Messages a second that publishers sent to each broker.
fn publications(outcome: &ArrivalsOutcome, brokers: &[Node]) -> Pane {
    let name = |series: &arrivals::BrokerSeries| {
        let is_it =
            |node: &&Node| node.address.to_string() == series.broker || node.name == series.broker;
        let node = brokers.iter().find(is_it);
        node.map_or_else(|| series.broker.clone(), |node| node.name.clone())
    };
    let series = outcome.brokers.iter().map(|it| Series {
        name: name(it),
        points: it.rates.clone(),
    });
    let plot = Plot {
        title: "What publishers sent to each broker".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "messages/s".to_owned(),
        scale: Scale::Linear,
        series: series.collect(),
    };
    plot.titled_pane()
}

/// Messages a second that came to all subscribers.
fn deliveries(received: &Receipt) -> Pane {
    let series = Series {
        name: "all subscribers".to_owned(),
        points: received.rates.clone(),
    };
    let plot = Plot {
        title: "What came to subscribers".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "messages/s".to_owned(),
        scale: Scale::Linear,
        series: vec![series],
    };
    plot.titled_pane()
}

/// Mean over all seconds of the difference in CPU between the busiest and the idlest broker, in percent of a core.
fn cpu_difference(outcome: &ArrivalsOutcome) -> f64 {
    let seconds = outcome.processes.iter().map(|it| it.points.len()).min();
    let seconds = seconds.unwrap_or(0);
    let spread = |second: usize| {
        let cores = outcome.processes.iter().map(|it| it.points[second].cores);
        let most = cores.clone().fold(0.0, f64::max);
        100.0 * (most - cores.fold(most, f64::min))
    };
    (0..seconds).map(spread).sum::<f64>() / seconds.max(1) as f64
}

fn csv(outcome: &ArrivalsOutcome, brokers: &[Node]) -> String {
    let mut csv = String::from("broker,at_s,cpu_percent\n");
    for (process, node) in outcome.processes.iter().zip(brokers) {
        for point in &process.points {
            let line = format!(
                "{},{:.1},{:.1}\n",
                node.name,
                point.at_s,
                100.0 * point.cores
            );
            csv.push_str(&line);
        }
    }
    csv
}

/// Fig. 8 to 11: CPU of each broker over time.
fn plot(outcome: &ArrivalsOutcome, brokers: &[Node]) -> Plot {
    let series = outcome
        .processes
        .iter()
        .zip(brokers)
        .map(|(process, node)| Series {
            name: node.name.clone(),
            points: (process.points.iter())
                .map(|point| (point.at_s, 100.0 * point.cores))
                .collect(),
        });
    Plot {
        title: "CPU of each broker while publishers arrive".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "% of a core".to_owned(),
        scale: Scale::Linear,
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_bench::arrivals::{BrokerSeries, ProcessSeries, Use};

    #[test]
    fn differences_are_between_the_busiest_and_the_idlest_broker() {
        let node = |name: &str, port| Node {
            name: name.to_owned(),
            address: ([10, 0, 0, 1], port).into(),
            namespace: None,
        };
        let process = |cores: [f64; 2]| ProcessSeries {
            pid: 1,
            points: (cores.iter().zip([1.0, 2.0]))
                .map(|(cores, at_s)| Use {
                    at_s,
                    cores: *cores,
                    pss_kib: 0,
                })
                .collect(),
        };
        let outcome = ArrivalsOutcome {
            brokers: vec![BrokerSeries {
                broker: "10.0.0.1:1".to_owned(),
                publishers: 2,
                at_end_per_s: 0.0,
                rates: vec![(1.0, 900.0), (2.0, 200.0), (3.0, 400.0)],
            }],
            processes: vec![process([0.5, 0.5]), process([0.1, 0.3])],
            redirects: 3,
            difference_per_s: 0.0,
            own_cores: 0.0,
            behind_schedule_ms: 0.0,
            received: Some(Receipt {
                messages: 40,
                lost: 2,
                latency: None,
                at_end_per_s: 20.0,
                rates: vec![(1.0, 20.0)],
            }),
        };
        let metrics = metrics(&outcome, &[node("s1", 1), node("s2", 2)]);
        assert_eq!(metrics["delivered_msgs_per_s"], 20.0);
        assert_eq!(metrics["lost_messages"], 2.0);
        assert_eq!(metrics["difference_msgs_per_s"], 300.0, "nobody went to s2");
        assert!((metrics["difference_cpu_percent"] - 30.0).abs() < 1e-9);
    }
}
