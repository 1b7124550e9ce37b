//! `thicket plan replay`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;
use thicket_placement::{Arrival, Limits, Step, StrategyKind, Traffic};

use super::arguments::{OpenChoices, parse_strategy};
use super::rows::{Format, Row, object, render};

/// Arguments of `thicket plan replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    /// Recorded arrivals, one JSON object a line: `client`, `publish` (list of topics), `subscribe` (list of topics or filters), optional
    /// `rates` (an object topic: messages per second, or a list in the order of `publish` and then `subscribe`), `leave` (true).
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// Number of brokers (M).
    #[arg(long, value_name = "M", default_value_t = 8)]
    brokers: usize,
    /// Strategy: random, round-robin, least-loaded, best-match, multi-session, thicket or optimum.
    #[arg(long, value_name = "NAME", default_value = "thicket", value_parser = parse_strategy)]
    strategy: StrategyKind,
    /// Sessions a client may have (Nses).
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_sessions: usize,
    /// Fairness factor (gamma).
    #[arg(
        long,
        value_name = "G",
        default_value_t = 1.1,
        allow_negative_numbers = true
    )]
    gamma: f64,
    /// Seed of the random strategy.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    choices: OpenChoices,
    /// Print one JSON object an arrival, and one with the traffic at the end.
    #[arg(long)]
    json: bool,
}

/// One line as it is written.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    client: String,
    #[serde(default)]
    publish: Vec<String>,
    #[serde(default)]
    subscribe: Vec<String>,
    #[serde(default)]
    rates: Option<LineRates>,
    #[serde(default)]
    leave: bool,
}

#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum LineRates {
    ByTopic(BTreeMap<String, f64>),
    InOrder(Vec<f64>),
}

pub(super) fn run(arguments: &Replay) -> anyhow::Result<()> {
    let limits = Limits::new(arguments.max_sessions, arguments.gamma)?;
    let strategy = arguments
        .strategy
        .build(limits, arguments.choices.options()?, arguments.seed);
    let mut replay = thicket_placement::Replay::new(arguments.brokers, strategy)?;
    let arrivals = read(arguments)?;
    for (number, arrival) in &arrivals {
        replay
            .announce(arrival)
            .with_context(|| place(arguments, *number))?;
    }
    let mut rows = Vec::new();
    for (number, arrival) in &arrivals {
        let step = replay
            .handle_arrival(arrival)
            .with_context(|| place(arguments, *number))?;
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

fn place(arguments: &Replay, number: usize) -> String {
    format!("{} line {number}", arguments.file.display())
}

/// The arrivals with their line numbers; empty lines are skipped.
fn read(arguments: &Replay) -> anyhow::Result<Vec<(usize, Arrival)>> {
    let text = std::fs::read_to_string(&arguments.file)
        .with_context(|| format!("cannot read {}", arguments.file.display()))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let number = index + 1;
            parse(line)
                .with_context(|| place(arguments, number))
                .map(|arrival| (number, arrival))
        })
        .collect()
}

fn parse(line: &str) -> anyhow::Result<Arrival> {
    let line: Line = serde_json::from_str(line).context(
        "a line must be one JSON object with client, publish, subscribe and optionally rates and leave",
    )?;
    let rates = match line.rates {
        None => BTreeMap::new(),
        Some(LineRates::ByTopic(rates)) => rates,
        Some(LineRates::InOrder(rates)) => {
            let topics = line.publish.len() + line.subscribe.len();
            anyhow::ensure!(
                rates.len() == line.publish.len() || rates.len() == topics,
                "rates: must be one number for each topic of publish, or of publish and subscribe, not {} numbers",
                rates.len()
            );
            let names = line.publish.iter().chain(&line.subscribe).cloned();
            names.zip(rates).collect()
        }
    };
    Ok(Arrival {
        client: line.client,
        publish: line.publish,
        subscribe: line.subscribe,
        rates,
        leave: line.leave,
    })
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
