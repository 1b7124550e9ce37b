//! `thicket plan replay`.

use std::io::Write as _;

use anyhow::Context as _;
use serde_json::Value;
use thicket_placement::{Arrival, Step, StrategyKind, Traffic};

use super::arguments::{FairOptions, OpenChoices, parse_strategy};
use super::recording::Source;
use super::rows::{Format, Row, object, render};

/// Brokers of a recording that names none.
const BROKERS: usize = 8;

/// Arguments of `thicket plan replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    #[command(flatten)]
    source: Source,
    /// Number of brokers (M) [default: as many nodes as the recording names, else 8].
    #[arg(long, value_name = "M")]
    brokers: Option<usize>,
    /// Strategy: random, round-robin, least-loaded, best-match, multi-session, thicket or optimum.
    #[arg(long, value_name = "NAME", default_value = "thicket", value_parser = parse_strategy)]
    strategy: StrategyKind,
    #[command(flatten)]
    fair: FairOptions,
    /// Seed of the random strategy.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    choices: OpenChoices,
    /// Print one JSON object an arrival, and one with the traffic at the end.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Replay) -> anyhow::Result<()> {
    let limits = arguments.fair.limits()?;
    let strategy = arguments
        .strategy
        .build(limits, arguments.choices.options()?, arguments.seed);
    let recording = arguments.source.recording()?;
    let known = Some(recording.cluster.nodes.len()).filter(|count| *count > 0);
    let brokers = arguments.brokers.or(known).unwrap_or(BROKERS);
    let mut replay = thicket_placement::Replay::new(brokers, strategy)?;
    let arrivals = &recording.arrivals;
    for (place, arrival) in arrivals {
        replay.announce(arrival).with_context(|| place.clone())?;
    }
    let mut rows = Vec::new();
    for (place, arrival) in arrivals {
        let step = replay.handle_arrival(arrival);
        let step = step.with_context(|| place.clone())?;
        rows.push(step_row(arrival, &step));
    }
    let summary = summary_row(&replay.traffic());
    let text = if arguments.json {
        rows.push(summary);
        render(&rows, Format::Json)
    } else {
        let steps = rows.iter().map(Row::json).collect::<Vec<_>>().join("\n");
        format!("{steps}\n{}", render(&[summary], Format::Table))
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn step_row(arrival: &Arrival, step: &Step) -> Row {
    let brokers = step
        .brokers
        .iter()
        .map(|(topic, broker)| (topic.clone(), Value::from(broker.0)))
        .collect();
    let redirected: Vec<Value> = step
        .redirected
        .iter()
        .map(|(client, topic, broker)| {
            object([
                ("client", client.as_str().into()),
                ("topic", topic.as_str().into()),
                ("broker", broker.0.into()),
            ])
        })
        .collect();
    let mut row = Row::default();
    row.set("client", arrival.client.as_str())
        .set("brokers", Value::Object(brokers))
        .set("flagged", step.flagged);
    if !redirected.is_empty() {
        row.set("redirected", redirected);
    }
    if arrival.leave {
        row.set("leave", true);
    }
    row
}

fn summary_row(traffic: &Traffic) -> Row {
    let mut row = Row::default();
    row.set("internal", traffic.internal())
        .set("external_in", traffic.external_in())
        .set("external_out", traffic.external_out())
        .set("routing_overhead", traffic.routing_overhead())
        .set("forwarding_overhead", traffic.forwarding_overhead())
        .set("jain", traffic.jain());
    row
}
