//! The report about arrivals of publishers.

use super::{Part, Plot, Report, Scale, Series, Table, amount, milliseconds};
use crate::arrivals::{Arrivals, ArrivalsOutcome};

/// The report of one run or of repeats of it; plots are those of the last.
#[must_use]
pub fn arrivals_report(arrivals: &Arrivals, outcomes: &[ArrivalsOutcome]) -> Report {
    let rate: f64 = arrivals.publishers.iter().map(|one| one.rate_per_s).sum();
    let mut report = Report::new(format!(
        "{} publishers, {} msg/s in all, one each {} s",
        arrivals.publishers.len(),
        amount(rate),
        arrivals.ramp.as_secs_f64()
    ));
    let mut table = Table::new(["repeat", "broker", "publishers", "msg/s at the end"]);
    for (repeat, outcome) in (1..).zip(outcomes) {
        for broker in &outcome.brokers {
            table.row([
                format!("{repeat}"),
                broker.broker.clone(),
                broker.publishers.to_string(),
                amount(broker.at_end_per_s),
            ]);
        }
        table.row([
            format!("{repeat}"),
            "difference".to_owned(),
            String::new(),
            amount(outcome.difference_per_s),
        ]);
    }
    report.push(Part::Table(table));
    let Some(last) = outcomes.last() else {
        return report;
    };
    report.push(Part::Text(format!(
        "{} references were followed. The generator took {:.2} cores and was up to {:.1} ms behind its schedule.",
        last.redirects, last.own_cores, last.behind_schedule_ms
    )));
    if let Some(received) = &last.received {
        let delays = received.latency.map_or(String::new(), |it| {
            format!(
                ", after {} in the mean and at most {} for 99 %",
                milliseconds(it.mean_us),
                milliseconds(it.p99_us)
            )
        });
        report.push(Part::Text(format!(
            "{} subscribers received {} msg/s together at the end{delays}; {} of {} messages did not come.",
            arrivals.subscribers,
            amount(received.at_end_per_s),
            received.lost,
            received.messages + received.lost
        )));
    }
    let rates = last.brokers.iter().map(|broker| Series {
        name: broker.broker.clone(),
        points: broker.rates.clone(),
    });
    report.push(Part::Plot(over_time(
        "Messages of each broker",
        "msg/s",
        rates.collect(),
    )));
    if let Some(received) = &last.received {
        let series = Series {
            name: "all subscribers".to_owned(),
            points: received.rates.clone(),
        };
        report.push(Part::Plot(over_time(
            "Messages to subscribers",
            "msg/s",
            vec![series],
        )));
    }
    let of_processes = |of: fn(&crate::arrivals::Use) -> f64| -> Vec<Series> {
        let series = last.processes.iter().map(|process| Series {
            name: format!("process {}", process.pid),
            points: process
                .points
                .iter()
                .map(|point| (point.at_s, of(point)))
                .collect(),
        });
        series.collect()
    };
    if !last.processes.is_empty() {
        let cpu = of_processes(|point| point.cores * 100.0);
        report.push(Part::Plot(over_time("CPU", "% of a core", cpu)));
        let memory = of_processes(|point| point.pss_kib as f64 / 1024.0);
        report.push(Part::Plot(over_time("Memory", "MiB", memory)));
    }
    report
}

fn over_time(title: &str, y_label: &str, series: Vec<Series>) -> Plot {
    Plot {
        title: title.to_owned(),
        x_label: "seconds".to_owned(),
        y_label: y_label.to_owned(),
        scale: Scale::Linear,
        series,
    }
}
