//! The tables of a comparison.

use super::{Case, CaseKind, Comparison, Sample, SampleResult};
use crate::report::{Part, Report, Table, amount, milliseconds};
use crate::statistics::{Spread, spread};
use crate::target::Target;

/// Tables of the figures, of the ratios, of throughput and latency; failures and unclean counts as warnings.
#[must_use]
pub fn comparison_report(comparison: &Comparison, samples: &[Sample]) -> Report {
    let mut report = Report::new(format!(
        "Comparison of brokers, {} interleaved repeats",
        comparison.repeats
    ));
    report.push(Part::Text(
        "CPU microseconds of the broker for each delivered message (W8: KiB for each idle connection): median (smallest - largest)"
            .to_owned(),
    ));
    report.push(Part::Table(figures(comparison, samples)));
    for Target { name: base, .. } in comparison.targets.iter().skip(comparison.ours) {
        report.push(Part::Text(format!(
            "Ratio to {base} within each repeat: median (smallest - largest)"
        )));
        report.push(Part::Table(ratios(comparison, samples, base)));
    }
    if comparison
        .cases
        .iter()
        .any(|case| case.on_one_node.is_some())
    {
        report.push(Part::Text(
            "Two linked nodes together, ratio to one of them alone within each repeat, and messages in a batch on the link: medians (smallest - largest)"
                .to_owned(),
        ));
        report.push(Part::Table(linked(comparison, samples)));
    }
    report.push(Part::Text(
        "Delivered messages a second, and p99 latency in ms: medians".to_owned(),
    ));
    report.push(Part::Table(rates(comparison, samples)));
    for name in &comparison.missing {
        report.push(Part::Warning(format!(
            "{name} is not installed here and is missing from the tables"
        )));
    }
    report
        .parts
        .extend(warnings(samples).into_iter().map(Part::Warning));
    report
}

fn label(case: &Case) -> String {
    format!("{} {}", case.name, case.words)
}

fn header(comparison: &Comparison) -> Vec<String> {
    let targets = comparison.targets.iter().map(|target| target.name.clone());
    let missing = comparison.missing.iter().cloned();
    std::iter::once("workload".to_owned())
        .chain(targets)
        .chain(missing)
        .collect()
}

/// A row for each case, a cell for each target.
fn by_case(comparison: &Comparison, cell: impl Fn(&Case, &str) -> String) -> Table {
    let mut table = Table::new(header(comparison));
    for case in &comparison.cases {
        let cells = comparison
            .targets
            .iter()
            .map(|target| cell(case, &target.name));
        let missing = comparison.missing.iter().map(|_| "missing".to_owned());
        table.row(std::iter::once(label(case)).chain(cells).chain(missing));
    }
    table
}

fn of<'a>(
    samples: &'a [Sample],
    case: &'a str,
    target: &'a str,
) -> impl Iterator<Item = &'a Sample> {
    samples
        .iter()
        .filter(move |sample| sample.case == case && sample.target == target)
}

fn figures(comparison: &Comparison, samples: &[Sample]) -> Table {
    by_case(comparison, |case, target| {
        let values: Vec<f64> = of(samples, case.name, target)
            .filter_map(Sample::figure)
            .collect();
        tell_spread(spread(&values))
    })
}

/// Ratios of the figures of all targets to those of `base` in the same repeat.
fn ratios(comparison: &Comparison, samples: &[Sample], base: &str) -> Table {
    by_case(comparison, |case, target| {
        let values: Vec<f64> = of(samples, case.name, target)
            .filter_map(|sample| {
                let other =
                    of(samples, case.name, base).find(|other| other.repeat == sample.repeat)?;
                Some(sample.figure()? / other.figure().filter(|&figure| figure > 0.0)?)
            })
            .collect();
        tell_spread(spread(&values))
    })
}

/// A row for each workload of two nodes, two cells for each Thicket broker.
fn linked(comparison: &Comparison, samples: &[Sample]) -> Table {
    let ours: Vec<&Target> = comparison.targets.iter().take(comparison.ours).collect();
    let header = ours
        .iter()
        .flat_map(|target| [target.name.clone(), format!("{}, a batch", target.name)]);
    let mut table = Table::new(std::iter::once("workload".to_owned()).chain(header));
    for case in &comparison.cases {
        let Some(one) = case.on_one_node else {
            continue;
        };
        let mut cells = vec![label(case)];
        for target in &ours {
            let both = || of(samples, case.name, &target.name);
            let ratios: Vec<f64> = both()
                .filter_map(|sample| {
                    let alone =
                        of(samples, one, &target.name).find(|it| it.repeat == sample.repeat)?;
                    Some(sample.figure()? / alone.figure()?)
                })
                .collect();
            let batches: Vec<f64> = both().filter_map(|it| it.messages_a_batch).collect();
            cells.push(tell_spread(spread(&ratios)));
            cells.push(tell_spread(spread(&batches)));
        }
        table.row(cells);
    }
    table
}

fn rates(comparison: &Comparison, samples: &[Sample]) -> Table {
    by_case(comparison, |case, target| {
        let outcomes = || {
            of(samples, case.name, target).filter_map(|sample| match &sample.result {
                SampleResult::Run(outcome) => Some(outcome),
                SampleResult::Idle(_) | SampleResult::Failed(_) => None,
            })
        };
        if let CaseKind::Idle { .. } = case.kind {
            let connects: Vec<f64> = of(samples, case.name, target)
                .filter_map(|sample| match &sample.result {
                    SampleResult::Idle(cost) => Some(cost.connects_per_s),
                    SampleResult::Run(_) | SampleResult::Failed(_) => None,
                })
                .collect();
            return spread(&connects).map_or("-".to_owned(), |s| {
                format!("{} connects/s", amount(s.median))
            });
        }
        let rate = spread(
            &outcomes()
                .map(|outcome| outcome.delivered_per_s)
                .collect::<Vec<_>>(),
        );
        let p99 = spread(
            &outcomes()
                .filter_map(|outcome| outcome.latency.map(|l| l.p99_us))
                .collect::<Vec<_>>(),
        );
        match (rate, p99) {
            (Some(rate), Some(p99)) => {
                format!("{}/s, {}", amount(rate.median), milliseconds(p99.median))
            }
            (Some(rate), None) => format!("{}/s", amount(rate.median)),
            (None, _) => "-".to_owned(),
        }
    })
}

fn tell_spread(spread: Option<Spread>) -> String {
    match spread {
        None => "-".to_owned(),
        Some(Spread { median, min, max }) if min == max => figure(median),
        Some(Spread { median, min, max }) => {
            format!("{} ({} - {})", figure(median), figure(min), figure(max))
        }
    }
}

fn figure(value: f64) -> String {
    if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Failures, unclean counts and warnings, each once for a case and a broker, with how often it was seen.
fn warnings(samples: &[Sample]) -> Vec<String> {
    let mut told: Vec<(String, usize)> = Vec::new();
    let mut tell = |text: String| match told.iter_mut().find(|(known, _)| *known == text) {
        Some((_, times)) => *times += 1,
        None => told.push((text, 1)),
    };
    for sample in samples {
        let at = format!("{} {}", sample.case, sample.target);
        match &sample.result {
            SampleResult::Failed(error) => tell(format!("{at}: failed: {error}")),
            SampleResult::Run(outcome) => {
                let c = &outcome.counts;
                if !c.is_clean() {
                    let (lost, twice, late) = (c.lost, c.duplicated, c.reordered);
                    tell(format!(
                        "{at}: lost {lost}, duplicated {twice}, reordered {late}, refused {}, foreign {}",
                        c.refused, c.foreign
                    ));
                }
                // With figures in the text every repeat would be a different warning.
                for warning in outcome.warnings.iter().filter(|warning| {
                    warning.contains("bottleneck") || warning.contains("Receive Maximum")
                }) {
                    let words: String = warning
                        .split(':')
                        .next_back()
                        .unwrap_or(warning)
                        .trim()
                        .to_owned();
                    tell(format!("{at}: {words}"));
                }
            }
            SampleResult::Idle(_) => {}
        }
    }
    told.into_iter()
        .map(|(text, times)| {
            if times == 1 {
                text
            } else {
                format!("{text} ({times} times)")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::case;
    use super::*;
    use crate::idle::IdleCost;
    use std::path::PathBuf;
    use std::time::Duration;

    fn sample(target: &str, repeat: usize, kib: f64) -> Sample {
        let cost = IdleCost {
            connections: 10,
            seconds: 1.0,
            connects_per_s: 10.0,
            memory: None,
            bytes_each: Some(kib * 1024.0),
            broker_us_each: None,
            own_us_each: 1.0,
        };
        Sample {
            case: "W8".to_owned(),
            target: target.to_owned(),
            repeat,
            result: SampleResult::Idle(cost),
            messages_a_batch: None,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_repeat_and_told_with_their_spread() {
        let target = |name| Target::plain(name, PathBuf::new(), &[]);
        let comparison = Comparison {
            cases: vec![case("W8").unwrap()],
            targets: vec![target("node"), target("relay")],
            ours: 1,
            missing: vec!["ghost".to_owned()],
            repeats: 3,
            measured: Duration::ZERO,
            warm_up: Duration::ZERO,
        };
        let mut samples = Vec::new();
        for (repeat, node, relay) in [(1, 2.0, 1.0), (2, 6.0, 2.0), (3, 4.0, 1.0)] {
            samples.extend([sample("node", repeat, node), sample("relay", repeat, relay)]);
        }
        samples.push(Sample {
            case: "W8".to_owned(),
            target: "node".to_owned(),
            repeat: 4,
            result: SampleResult::Failed("no reason".to_owned()),
            messages_a_batch: None,
        });
        let text = comparison_report(&comparison, &samples).to_text();
        for words in [
            "4.00 (2.00 - 6.00)",
            "3.00 (2.00 - 4.00)",
            "missing",
            "warning: ghost is not installed here",
            "W8 node: failed: no reason",
            "10 connects/s",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
    }
}
