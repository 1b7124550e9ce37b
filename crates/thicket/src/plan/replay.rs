//! `thicket plan replay`.

use std::io::Write as _;

use anyhow::Context as _;
use serde_json::{Map, Value};
use thicket_placement::{
    Advisor, Arrival, BrokerId, CpuWeights, Distances, Limits, MatchingOptions, Step, StrategyKind,
    Traffic,
};

use super::arguments::{FairOptions, OpenChoices, parse_strategy};
use super::price::{Prices, Tariff};
use super::recording::Recording;
use super::rows::{Format, Row, object, render, rounded};
use super::source::Source;

/// Brokers of a recording that names none.
const BROKERS: usize = 8;

/// Arguments of `thicket plan replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    #[command(flatten)]
    source: Source,
    /// Number of brokers (M) [default: the number of nodes in the recording, else 8].
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
    #[command(flatten)]
    prices: Prices,
    /// Also show the death of each broker: the load after its sessions have failed over to their backups, placed as with `backups = 1`.
    #[arg(long)]
    deaths: bool,
    /// Print one JSON object per arrival, one with the traffic at the end, and one per death.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Replay) -> anyhow::Result<()> {
    let mut recording = arguments.source.recording()?;
    let arrivals = recording.arrivals.iter_mut().map(|(_, arrival)| arrival);
    arguments.fair.apply(arrivals);
    let run = Run {
        strategy: arguments.strategy,
        limits: arguments.fair.limits()?,
        options: arguments.choices.options()?,
        seed: arguments.seed,
        recording,
    };
    let cluster = &run.recording.cluster;
    let known = Some(cluster.nodes.len()).filter(|count| *count > 0);
    let brokers = arguments.brokers.or(known).unwrap_or(BROKERS);
    let tariff = arguments.prices.tariff(cluster)?;
    let cost = arguments.prices.cost_between(cluster)?;
    anyhow::ensure!(
        known.is_some() || tariff.is_none() && cost.is_none(),
        "nodes: must be named by a line with `cluster`: record with `--from live --save FILE`"
    );
    let names = names(&cluster.nodes, brokers);
    let (replay, mut rows) = run.replay(brokers, None)?;
    let mut summary = summary_row(&replay.traffic());
    if let Some(tariff) = &tariff {
        let now = run.month_now(tariff);
        summary
            .set("egress_a_month_now", now.map_or(Value::Null, Value::from))
            .set("egress_a_month", month(tariff, &names, &replay));
    }
    if let Some(cost) = cost {
        let of = |from: usize, to: usize| cost(&names[from], &names[to]);
        let (replay, _) = run.replay(brokers, Some(Distances::new(brokers, of)?))?;
        let mut by_price = Map::new();
        by_price.insert("internal".into(), replay.traffic().internal().into());
        if let Some(tariff) = &tariff {
            let month = month(tariff, &names, &replay);
            by_price.insert("egress_a_month".into(), month.into());
        }
        summary.set("by_price", by_price);
    }
    let deaths = if arguments.deaths {
        deaths(&replay, &names, arguments.fair.gamma)
    } else {
        Vec::new()
    };
    let text = if arguments.json {
        rows.push(summary);
        rows.extend(deaths);
        render(&rows, Format::Json)
    } else {
        let steps = rows.iter().map(Row::json).collect::<Vec<_>>().join("\n");
        let summary = render(&[summary], Format::Table);
        let after = match deaths.is_empty() {
            true => String::new(),
            false => format!("\n{}", render(&deaths, Format::Table)),
        };
        format!("{steps}\n{summary}{after}")
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// A row for the death of each broker; none if it is the only one.
fn deaths(replay: &thicket_placement::Replay, names: &[String], gamma: f64) -> Vec<Row> {
    let row = |(at, name): (usize, &String)| {
        let failover = replay.failover(BrokerId(at as u16))?;
        let traffic = failover.cluster.traffic();
        let left = traffic.brokers.iter().enumerate();
        let left = left.filter(|(broker, _)| *broker != at);
        let weights = CpuWeights::default();
        let work: Vec<f64> = left.map(|(_, it)| weights.work(it)).collect();
        let mean = work.iter().sum::<f64>() / work.len() as f64;
        let busiest = work.iter().copied().fold(0.0, f64::max);
        let above = work
            .iter()
            .filter(|work| **work > gamma * mean * (1.0 + 1e-12));
        let over_mean = (mean > 0.0).then(|| rounded(busiest / mean));
        let mut row = Row::default();
        row.set("death_of", name.as_str())
            .set("sessions", failover.moved.len())
            .set(
                "busiest_over_mean",
                over_mean.map_or(Value::Null, Value::from),
            )
            .set("above_gamma", above.count())
            .set("internal", rounded(traffic.internal()));
        Some(row)
    };
    names.iter().enumerate().filter_map(row).collect()
}

/// What a replay starts from.
struct Run {
    strategy: StrategyKind,
    limits: Limits,
    options: MatchingOptions,
    seed: u64,
    recording: Recording,
}

impl Run {
    /// All arrivals, and a row for each.
    fn replay(
        &self,
        brokers: usize,
        distances: Option<Distances>,
    ) -> anyhow::Result<(thicket_placement::Replay, Vec<Row>)> {
        let strategy = self.strategy.build(self.limits, self.options, self.seed);
        let mut replay = thicket_placement::Replay::new(brokers, strategy)?;
        if let Some(distances) = distances {
            replay.set_distances(distances);
        }
        let arrivals = &self.recording.arrivals;
        for (place, arrival) in arrivals {
            replay.announce(arrival).with_context(|| place.clone())?;
        }
        let mut rows = Vec::new();
        for (place, arrival) in arrivals {
            let step = replay.handle_arrival(arrival);
            let step = step.with_context(|| place.clone())?;
            rows.push(step_row(arrival, &step));
        }
        Ok((replay, rows))
    }

    /// A month with all clients where the recording has them; `None`: it does not say where all of them are.
    fn month_now(&self, tariff: &Tariff) -> Option<f64> {
        let nodes = self.recording.cluster.nodes.clone();
        let arrivals = self.recording.arrivals.iter();
        let arrivals = arrivals.map(|(_, arrival)| arrival.clone()).collect();
        let now = Advisor::new(nodes, arrivals, self.limits, CpuWeights::default());
        let now = now.ok()?.now();
        Some(rounded(tariff.month(&now.nodes, &now.flows)))
    }
}

fn month(tariff: &Tariff, names: &[String], replay: &thicket_placement::Replay) -> f64 {
    rounded(tariff.month(names, &replay.flows()))
}

/// Names of brokers: those of the nodes, in their order, as far as there are so many.
fn names(nodes: &[String], brokers: usize) -> Vec<String> {
    let new = (0..).map(|number| format!("broker {number}"));
    let new = new.skip(nodes.len()).filter(|name| !nodes.contains(name));
    nodes.iter().cloned().chain(new).take(brokers).collect()
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
