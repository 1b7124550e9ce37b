//! Outcomes in words and figures.

use super::{Part, Plot, Report, Scale, Series, Table};
use crate::generator::{Arrivals, Load};
use crate::outcome::{Latency, Outcome};
use crate::statistics::{Estimate, estimate};

/// A number with separated thousands: 1,234,567.
#[must_use]
pub fn amount(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 {
        format!("-{text}")
    } else {
        text
    }
}

/// Microseconds as milliseconds with three significant digits.
#[must_use]
pub fn milliseconds(us: f64) -> String {
    let ms = us / 1000.0;
    let places = if ms >= 100.0 {
        0
    } else if ms >= 10.0 {
        1
    } else if ms >= 1.0 {
        2
    } else {
        3
    };
    format!("{ms:.places$}")
}

/// Mean, p50, p90, p99, p99.9 and maximum in milliseconds; dashes where nothing was measured.
#[must_use]
pub fn latency_cells(latency: Option<&Latency>) -> [String; 6] {
    match latency {
        None => std::array::from_fn(|_| "-".to_owned()),
        Some(l) => [l.mean_us, l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us].map(milliseconds),
    }
}

/// The settings of a run, in one line.
fn title(outcome: &Outcome) -> String {
    let load = match outcome.load {
        Load::Closed { window } => format!("window {window}"),
        Load::Volleys { window } => format!("volleys of {window}"),
        Load::Open {
            rate_per_s,
            arrivals,
        } => {
            let arrivals = match arrivals {
                Arrivals::Constant => "constant".to_owned(),
                Arrivals::Poisson => "Poisson".to_owned(),
                Arrivals::LogNormal {
                    coefficient_of_variation,
                } => format!("log-normal, cv {coefficient_of_variation}"),
            };
            format!("{} msg/s ({arrivals})", amount(rate_per_s))
        }
    };
    let version = if outcome.protocol_level == 5 {
        "5.0"
    } else {
        "3.1.1"
    };
    format!(
        "{} at {}: QoS {}, MQTT {version}, {} B, {load}",
        outcome.workload,
        outcome.nodes.join(", "),
        outcome.qos,
        outcome.payload_len
    )
}

/// The report of one run or of its repeats; an empty one if there are none.
#[must_use]
pub fn outcome_report(outcomes: &[Outcome]) -> Report {
    let Some(last) = outcomes.last() else {
        return Report::default();
    };
    let mut report = Report::new(title(last));
    if outcomes.len() > 1 {
        report.push(Part::Table(repeats_table(outcomes)));
    } else {
        report.push(Part::Table(throughput_table(last)));
        report.push(Part::Table(latency_table(last)));
    }
    report.push(Part::Table(counts_table(outcomes)));
    report.push(Part::Text(cpu_sentence(last)));
    for outcome in outcomes {
        report
            .parts
            .extend(outcome.warnings.iter().cloned().map(Part::Warning));
        if !outcome.counts.is_clean() {
            report.push(Part::Warning(
                "messages did not all come once and in order".to_owned(),
            ));
        }
    }
    report.parts.dedup();
    report.push(Part::Plot(throughput_plot(outcomes)));
    report
}

fn throughput_table(outcome: &Outcome) -> Table {
    let mut table = Table::new(["measured", "messages", "a second"]);
    for (name, count, rate) in [
        ("published", outcome.published, outcome.published_per_s),
        ("delivered", outcome.delivered, outcome.delivered_per_s),
    ] {
        table.row([
            format!("{name} in {:.2} s", outcome.seconds),
            amount(count as f64),
            amount(rate),
        ]);
    }
    table
}

fn latency_table(outcome: &Outcome) -> Table {
    let mut table = Table::new(["latency", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    table.row(std::iter::once("ms".to_owned()).chain(latency_cells(outcome.latency.as_ref())));
    if let Some(acknowledgement) = &outcome.acknowledgement {
        let cells = latency_cells(Some(acknowledgement));
        table.row(std::iter::once("to the acknowledgement".to_owned()).chain(cells));
    }
    table
}

/// Exact counts of whole runs, warm-up included.
fn counts_table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new([
        "whole run",
        "published",
        "expected",
        "delivered",
        "lost",
        "duplicated",
        "reordered",
        "refused",
        "foreign",
    ]);
    for (index, outcome) in outcomes.iter().enumerate() {
        let c = &outcome.counts;
        let counts = [
            c.published,
            c.expected,
            c.delivered,
            c.lost,
            c.duplicated,
            c.reordered,
            c.refused,
            c.foreign,
        ];
        let name = if outcomes.len() == 1 {
            "messages".to_owned()
        } else {
            format!("repeat {}", index + 1)
        };
        table.row(std::iter::once(name).chain(counts.map(|count| amount(count as f64))));
    }
    table
}

/// A column for each figure of interest, a row for each repeat, and the mean with its confidence interval.
#[must_use]
pub fn repeats_table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new([
        "",
        "delivered/s",
        "mean ms",
        "p50 ms",
        "p99 ms",
        "own us/msg",
        "broker us/msg",
    ]);
    let figures = |o: &Outcome| {
        let latency = |pick: fn(&Latency) -> f64| o.latency.as_ref().map(|l| pick(l) / 1000.0);
        [
            Some(o.delivered_per_s),
            latency(|l| l.mean_us),
            latency(|l| l.p50_us),
            latency(|l| l.p99_us),
            Some(o.own.us_per_delivered),
            o.broker.map(|broker| broker.cpu.us_per_delivered),
        ]
    };
    let cell = |column: usize, value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if column == 0 => amount(value),
        Some(value) => format!("{value:.3}"),
    };
    for (index, outcome) in outcomes.iter().enumerate() {
        let cells = figures(outcome)
            .into_iter()
            .enumerate()
            .map(|(column, value)| cell(column, value));
        table.row(std::iter::once(format!("repeat {}", index + 1)).chain(cells));
    }
    let estimates: Vec<Option<Estimate>> = (0..6)
        .map(|column| {
            let values: Option<Vec<f64>> = outcomes
                .iter()
                .map(|outcome| figures(outcome)[column])
                .collect();
            values.and_then(|values| estimate(&values))
        })
        .collect();
    let row = |name: &str, pick: fn(Estimate) -> Option<f64>| {
        let cells = estimates
            .iter()
            .enumerate()
            .map(|(column, e)| cell(column, e.and_then(pick)));
        std::iter::once(name.to_owned())
            .chain(cells)
            .collect::<Vec<_>>()
    };
    table.row(row("mean", |e| Some(e.mean)));
    table.row(row("95 % confidence, +-", |e| e.half_width_95));
    table
}

fn cpu_sentence(outcome: &Outcome) -> String {
    let own = format!(
        "CPU of the generator: {:.3} us a delivered message, {:.2} cores.",
        outcome.own.us_per_delivered, outcome.own.cores
    );
    match &outcome.broker {
        None => format!("{own} CPU of the broker: unknown (--pid)."),
        Some(broker) => format!(
            "{own} CPU of the broker: {:.3} us a delivered message, {:.2} cores; memory {:.1} MiB resident, {:.1} MiB proportional.",
            broker.cpu.us_per_delivered,
            broker.cpu.cores,
            broker.memory.rss_kib as f64 / 1024.0,
            broker.memory.pss_kib as f64 / 1024.0
        ),
    }
}

fn throughput_plot(outcomes: &[Outcome]) -> Plot {
    let several = outcomes.len() > 1;
    let name = |what: &str, index: usize| {
        if several {
            format!("{what} {}", index + 1)
        } else {
            what.to_owned()
        }
    };
    let mut series = Vec::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        let points = outcome
            .series
            .iter()
            .map(|second| (second.at_s, second.delivered_per_s))
            .collect();
        series.push(Series {
            name: name("delivered", index),
            points,
        });
        if !several {
            let points = outcome
                .series
                .iter()
                .map(|second| (second.at_s, second.published_per_s))
                .collect();
            series.push(Series {
                name: name("published", index),
                points,
            });
        }
    }
    Plot {
        title: "Throughput over time".to_owned(),
        x_label: "seconds from the first message".to_owned(),
        y_label: "messages a second".to_owned(),
        scale: Scale::Linear,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Counts;
    use crate::outcome::{CpuUse, Second};

    fn outcome(delivered_per_s: f64) -> Outcome {
        Outcome {
            nodes: vec!["h:1".to_owned()],
            workload: "pair 1/1".to_owned(),
            load: Load::Closed { window: 5 },
            qos: 1,
            protocol_level: 5,
            payload_len: 64,
            seconds: 2.0,
            published: 2000,
            delivered: 2000,
            published_per_s: delivered_per_s,
            delivered_per_s,
            counts: Counts {
                published: 3000,
                expected: 3000,
                delivered: 2999,
                lost: 1,
                ..Counts::default()
            },
            latency: None,
            acknowledgement: None,
            own: CpuUse::new(0.001, 2.0, 2000),
            behind_schedule_ms: 0.0,
            behind_schedule_mean_ms: 0.0,
            broker: None,
            series: vec![Second {
                at_s: 1.0,
                published_per_s: 1.0,
                delivered_per_s: 2.0,
            }],
            warnings: vec!["w".to_owned()],
        }
    }

    #[test]
    fn amounts_and_milliseconds_are_easy_to_read() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1000.0, "-1,000"),
        ] {
            assert_eq!(amount(value), text);
        }
        for (us, text) in [
            (0.4, "0.000"),
            (123.0, "0.123"),
            (1234.0, "1.23"),
            (56_789.0, "56.8"),
            (1e6, "1000"),
        ] {
            assert_eq!(milliseconds(us), text);
        }
    }

    #[test]
    fn the_report_of_a_run_names_losses_counts_and_cpu() {
        let text = outcome_report(&[outcome(1000.0)]).to_text();
        for words in [
            "pair 1/1 at h:1: QoS 1, MQTT 5.0, 64 B, window 5",
            "2,999",
            "0.500 us",
            "warning: w",
            "not all come once",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
    }

    #[test]
    fn repeats_end_with_mean_and_confidence_interval() {
        let text = repeats_table(&[outcome(900.0), outcome(1100.0)]).to_text();
        // Two values 200 apart: standard error 100, times 12.706.
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(
            last[1].starts_with("mean") && last[1].contains("1,000"),
            "{text}"
        );
        assert!(last[0].contains("1,271"), "{text}");
        assert!(last[0].contains('-'), "no broker was watched:\n{text}");
    }
}
