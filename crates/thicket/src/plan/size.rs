//! `thicket plan size`.

use std::io::Write as _;

use serde_json::Value;
use thicket_placement::{
    ArrivalOrder, CpuWeights, Criterion, MatchingOptions, Run, SizeQuestion, StrategyKind,
    TrafficModel,
};

use super::arguments::{Population, parse_order};
use super::parallel::run_all;
use super::rows::{Format, Row, object, render};

/// Arguments of `thicket plan size`.
#[derive(Debug, clap::Args)]
pub(super) struct Size {
    #[command(flatten)]
    population: Population,
    /// Work one broker can do, in units per second; the default is the paper's broker with two CPUs at its knee.
    #[arg(long, value_name = "UNITS", default_value_t = CpuWeights::PAPER_CAPACITY, allow_negative_numbers = true)]
    capacity: f64,
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
    /// Sessions a client may have with placement (Nses).
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_sessions: usize,
    /// Fairness factor of the placement (gamma).
    #[arg(
        long,
        value_name = "G",
        default_value_t = 1.1,
        allow_negative_numbers = true
    )]
    gamma: f64,
    /// Order of arrival: publishers-first, subscribers-first or random.
    #[arg(long, value_name = "ORDER", default_value = "random", value_parser = parse_order)]
    order: ArrivalOrder,
    /// Workloads to average over, with seeds 1 to N.
    #[arg(long, value_name = "N", default_value_t = 2)]
    seeds: u64,
    /// Keep the busiest broker within the capacity, not the average one; no cluster may be large enough.
    #[arg(long)]
    busiest: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Size) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.seeds >= 1, "seeds: must be at least 1, not 0");
    let mut setting = arguments.population.setting();
    setting.max_sessions = arguments.max_sessions;
    setting.gamma = arguments.gamma;
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
    let question = SizeQuestion {
        model: &model,
        workloads: &workloads,
        weights: CpuWeights {
            received: arguments.weight_received,
            sent: arguments.weight_sent,
        },
        capacity: arguments.capacity,
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
    .into_iter()
    .map(answer);
    let mut row = Row::default();
    row.set("external_in", model.external_in())
        .set("external_out", model.external_out())
        .set("capacity", arguments.capacity)
        .set("linear", object([("brokers", linear.into())]))
        .set("without_placement", answers.next())
        .set("with_placement", answers.next());
    let format = if arguments.json {
        Format::Json
    } else {
        Format::Table
    };
    std::io::stdout().write_all(render(&[row], format).as_bytes())?;
    Ok(())
}

/// By the model where the average broker counts, by simulation where the busiest does.
fn without_placement(
    question: &SizeQuestion<'_>,
    random: &Run,
) -> anyhow::Result<Option<thicket_placement::Size>> {
    Ok(match question.criterion {
        Criterion::Mean => match question.predicted()? {
            Some(brokers) => Some(question.at(random, brokers)?),
            None => None,
        },
        Criterion::Busiest => question.simulated(random)?,
    })
}

/// Null when no cluster is large enough.
fn answer(size: Option<thicket_placement::Size>) -> Value {
    size.map_or(Value::Null, |size| {
        object([
            ("brokers", size.brokers.into()),
            ("work_mean", size.mean.into()),
            ("work_busiest", size.busiest.into()),
            ("internal", size.internal.into()),
        ])
    })
}
