//! `thicket plan size`.

use std::{io::Write as _, path::PathBuf};

use serde_json::Value;
use thicket_placement::{
    ArrivalOrder, CpuWeights, Criterion, MatchingOptions, Run, Size, SizeQuestion, StrategyKind,
    TrafficModel,
};

use super::arguments::{FairOptions, Population, check_seeds, parse_order};
use super::measured;
use super::parallel::run_all;
use super::rows::{Format, Row, object, render};

/// Arguments of `thicket plan size`.
#[derive(Debug, clap::Args)]
pub(super) struct SizeArguments {
    #[command(flatten)]
    population: Population,
    /// Capacity of a broker in units of work per second [default: 20000, the paper's broker with two CPUs]
    #[arg(long, value_name = "UNITS", allow_negative_numbers = true)]
    capacity: Option<f64>,
    /// Take the capacity from a measurement of your own broker: the output of `thicket bench mst --json`.
    #[arg(long, value_name = "FILE", conflicts_with = "capacity")]
    from: Option<PathBuf>,
    /// Units of work for a message received.
    #[arg(
        long,
        value_name = "UNITS",
        default_value_t = 3.0,
        allow_negative_numbers = true
    )]
    weight_received: f64,
    /// Units of work for a message sent.
    #[arg(
        long,
        value_name = "UNITS",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    weight_sent: f64,
    #[command(flatten)]
    fair: FairOptions,
    /// Order of arrival: publishers-first, subscribers-first or random.
    #[arg(long, value_name = "ORDER", default_value = "random", value_parser = parse_order)]
    order: ArrivalOrder,
    /// Workloads to average over, with seeds 1 to N.
    #[arg(long, value_name = "N", default_value_t = 2)]
    seeds: u64,
    /// Keep the busiest broker within the capacity, not the average one; possibly no cluster is large enough.
    #[arg(long)]
    busiest: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &SizeArguments) -> anyhow::Result<()> {
    check_seeds(arguments.seeds)?;
    let mut setting = arguments.population.setting();
    setting.max_sessions = arguments.fair.max_sessions();
    setting.gamma = arguments.fair.gamma;
    let limits = setting.limits()?;
    let mut workloads = Vec::new();
    for seed in 1..=arguments.seeds {
        workloads.push((seed, setting.workload(arguments.order, seed)?));
    }
    let model = TrafficModel::with_equal_rates(
        &setting.scenario()?,
        setting.subscribers,
        setting.rates.mean(),
    )?;
    let weights = CpuWeights {
        received: arguments.weight_received,
        sent: arguments.weight_sent,
    };
    let (capacity, broker) = match (&arguments.from, arguments.capacity) {
        (Some(path), _) => (measured::capacity(path, weights)?, "the one measured"),
        (None, Some(capacity)) => (capacity, "as given"),
        (None, None) => (CpuWeights::PAPER_CAPACITY, "the paper's with two CPUs"),
    };
    let question = SizeQuestion {
        model: &model,
        workloads: &workloads,
        weights,
        capacity,
        criterion: if arguments.busiest {
            Criterion::Busiest
        } else {
            Criterion::Mean
        },
    };
    let linear = question.linear()?;
    let run = |strategy| Run {
        broker_count: linear,
        strategy,
        limits,
        matching: MatchingOptions::default(),
    };
    let mut answers = run_all(2, |job| match job {
        0 => without_placement(&question, &run(StrategyKind::Random)),
        _ => Ok(question.simulated(&run(StrategyKind::Thicket))?),
    })?
    .into_iter();
    let [without, with] = [answers.next().flatten(), answers.next().flatten()];
    let text = if arguments.json {
        let mut row = Row::default();
        row.set("external_in", model.external_in())
            .set("external_out", model.external_out())
            .set("capacity", capacity)
            .set("broker", broker)
            .set("linear", object([("brokers", linear.into())]))
            .set("without_placement", answer(without))
            .set("with_placement", answer(with));
        render(&[row], Format::Json)
    } else {
        let (incoming, outgoing) = (model.external_in(), model.external_out());
        heading(incoming, outgoing, broker, capacity) + &table(linear, without, with)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What comes in and goes out, and what a broker can do: a line each, so that neither is longer than a table.
fn heading(incoming: f64, outgoing: f64, broker: &str, capacity: f64) -> String {
    format!(
        "{incoming:.0} messages/s are received, {outgoing:.0} are sent.\n\
         Capacity of a broker ({broker}): {capacity:.0} units of work per second.\n"
    )
}

/// A line an answer; `-`: no cluster is large enough.
fn table(linear: usize, without: Option<Size>, with: Option<Size>) -> String {
    let line = |cluster: &str, brokers: Option<usize>, size: Option<Size>| {
        let whole =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        let mut row = Row::default();
        row.set("cluster", cluster)
            .set(
                "brokers",
                brokers.map_or("-".to_owned(), |brokers| brokers.to_string()),
            )
            .set("work_mean", whole(size.map(|size| size.mean)))
            .set("work_busiest", whole(size.map(|size| size.busiest)))
            .set("internal_per_s", whole(size.map(|size| size.internal)));
        row
    };
    let rows = [
        line("if scaling were linear", Some(linear), None),
        line(
            "without placement",
            without.map(|size| size.brokers),
            without,
        ),
        line("with placement", with.map(|size| size.brokers), with),
    ];
    render(&rows, Format::Table)
}

/// By the model where the average broker counts, by simulation where the busiest does.
fn without_placement(question: &SizeQuestion<'_>, random: &Run) -> anyhow::Result<Option<Size>> {
    Ok(match question.criterion {
        Criterion::Mean => match question.predicted()? {
            Some(brokers) => Some(question.at(random, brokers)?),
            None => None,
        },
        Criterion::Busiest => question.simulated(random)?,
    })
}

/// Null when no cluster is large enough.
fn answer(size: Option<Size>) -> Value {
    size.map_or(Value::Null, |size| {
        object([
            ("brokers", size.brokers.into()),
            ("work_mean", size.mean.into()),
            ("work_busiest", size.busiest.into()),
            ("internal", size.internal.into()),
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_largest_clusters_fits_a_hundred_columns() {
        let size = Size {
            brokers: 1_000_000,
            mean: 1e9,
            busiest: 1e9,
            internal: 1e9,
        };
        let heading = heading(1e9, 1e12, "the paper's with two CPUs", 1e9);
        assert!(heading.lines().all(|line| line.len() <= 100), "{heading}");
        let text = table(1_000_000, Some(size), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.len() <= 100), "{text}");
        assert!(lines[3].starts_with("with placement  "), "{text}");
    }
}
