//! `thicket plan advise`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use anyhow::Context as _;
use serde_json::Value;
use thicket_placement::{Advisor, Arrival, Change, CpuWeights, Outcome, Relocation};

use super::arguments::FairOptions;
use super::price::{Prices, Tariff};
use super::rows::{Format, Row, object, render, rounded};
use super::source::Source;

/// The name of the node that is added.
const NEW_NODE: &str = "new-node";
/// Ends the name of a change whose moves weigh what traffic between sites costs.
const BY_PRICE: &str = ", by price";

/// Arguments of `thicket plan advise`.
#[derive(Debug, clap::Args)]
pub(super) struct Advise {
    #[command(flatten)]
    source: Source,
    /// Show the death of each node instead of adding and removing nodes: the load after its sessions have failed over to their backups, placed as
    /// with `backups = 1`
    #[arg(long)]
    deaths: bool,
    /// Number of sessions that may move besides those that must, for each change.
    #[arg(long, value_name = "N", default_value_t = 100)]
    moves: usize,
    /// Print the moves of one row of the table, by its name there: `rebalance`, `add` or `remove NODE`, some with `, by price`
    #[arg(long, value_name = "CHANGE")]
    show: Option<String>,
    #[command(flatten)]
    fair: FairOptions,
    /// Capacity of a node in units of work per second [default: that of `plan size`].
    #[arg(long, value_name = "UNITS", default_value_t = CpuWeights::PAPER_CAPACITY, allow_negative_numbers = true)]
    capacity: f64,
    #[command(flatten)]
    prices: Prices,
    /// Print one JSON object per row, with its moves.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Advise) -> anyhow::Result<()> {
    let limits = arguments.fair.limits()?;
    anyhow::ensure!(
        arguments.capacity.is_finite() && arguments.capacity > 0.0,
        "capacity: must be a number above 0, not {}",
        arguments.capacity
    );
    let recording = arguments.source.recording()?;
    anyhow::ensure!(
        !recording.cluster.nodes.is_empty(),
        "nodes: must be named by a line with `cluster`: record with `--from live --save FILE`"
    );
    let tariff = arguments.prices.tariff(&recording.cluster)?;
    let sites = arguments.prices.sites(&recording.cluster)?;
    let cost = arguments.prices.cost_between(&recording.cluster)?;
    let mut arrivals: Vec<Arrival> = recording.arrivals.into_iter().map(|(_, it)| it).collect();
    arguments.fair.apply(arrivals.iter_mut());
    let assumed = assumed_sessions(&arrivals, arguments.fair);
    let weights = CpuWeights::default();
    let mut advisor = Advisor::new(recording.cluster.nodes, arrivals, limits, weights)?;
    let now = advisor.now();
    let scale = Scale {
        weights,
        capacity: arguments.capacity,
        gamma: arguments.fair.gamma,
        internal: now.traffic.internal(),
        tariff,
    };
    let changes = if arguments.deaths {
        deaths(advisor.nodes())
    } else {
        changes(advisor.nodes(), &sites)
    };
    let mut outcomes = vec![("now".to_owned(), now)];
    for (name, change) in &changes {
        outcomes.push((name.clone(), advisor.after(change, arguments.moves)?));
    }
    // No price moves a session of a node that dies.
    if let (Some(cost), false) = (cost, arguments.deaths) {
        advisor.weigh(cost)?;
        for (name, change) in &changes {
            let name = format!("{name}{BY_PRICE}");
            outcomes.push((name, advisor.after(change, arguments.moves)?));
        }
    }
    let text = match &arguments.show {
        Some(name) => {
            let known: Vec<&str> = outcomes.iter().map(|it| it.0.as_str()).collect();
            let found = outcomes.iter().find(|it| it.0 == *name);
            let (_, outcome) = found.with_context(|| {
                format!("show: must be one of {}, not {name:?}", known.join(", "))
            })?;
            let rows: Vec<Row> = outcome.moves.iter().map(move_row).collect();
            render(&rows, format_of(arguments.json))
        }
        None => {
            let row = |(name, outcome): &(String, Outcome)| {
                let mut row = scale.row(name, outcome);
                if arguments.json {
                    let moves = outcome.moves.iter().map(move_value);
                    row.set("nodes", scale.nodes(outcome));
                    row.set("relocations", moves.collect::<Vec<_>>());
                }
                row
            };
            let rows: Vec<Row> = outcomes.iter().map(row).collect();
            let table = render(&rows, format_of(arguments.json));
            let assumed = if arguments.json { "" } else { &assumed };
            format!("{table}{assumed}")
        }
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// How many sessions the moves of the table give clients, in words.
fn assumed_sessions(arrivals: &[Arrival], fair: FairOptions) -> String {
    let most = crate::counted(fair.max_sessions(), "session");
    let limited = arrivals.iter().filter(|it| it.max_sessions.is_some());
    match limited.count() {
        0 => format!("\nEach client may have up to {most} (--max-sessions).\n"),
        limited if limited == arrivals.len() => "\nClients have as many sessions as they are recorded with: one, unless they asked for more. \
             --max-sessions shows what more would gain.\n".to_owned(),
        limited => format!(
            "\n{limited} of {} clients have as many sessions as they are recorded with, the others up to {most}; --max-sessions is for all.\n",
            arrivals.len()
        ),
    }
}

fn format_of(is_json: bool) -> Format {
    if is_json { Format::Json } else { Format::Table }
}

fn changes(nodes: &[String], sites: &BTreeMap<String, String>) -> Vec<(String, Change)> {
    let new = (1..)
        .map(|number| match number {
            1 => NEW_NODE.to_owned(),
            number => format!("{NEW_NODE}-{number}"),
        })
        .find(|name| !nodes.contains(name))
        .unwrap_or_default();
    let mut changes = vec![
        ("rebalance".to_owned(), Change::Rebalance),
        ("add".to_owned(), Change::Add(new)),
    ];
    if nodes.len() > 1 {
        let remove = |node: &String| {
            let gone = BTreeSet::from([node.clone()]);
            (format!("remove {node}"), Change::Remove(gone))
        };
        changes.extend(nodes.iter().map(remove));
    }
    let all: BTreeSet<&String> = sites.values().collect();
    for site in all {
        let there = nodes.iter().filter(|node| sites.get(*node) == Some(site));
        let gone: BTreeSet<String> = there.cloned().collect();
        if gone.len() > 1 && gone.len() < nodes.len() {
            changes.push((format!("remove site {site}"), Change::Remove(gone)));
        }
    }
    changes
}

fn deaths(nodes: &[String]) -> Vec<(String, Change)> {
    if nodes.len() == 1 {
        return Vec::new();
    }
    let death = |node: &String| (format!("death of {node}"), Change::Death(node.clone()));
    nodes.iter().map(death).collect()
}

/// What outcomes are measured by.
struct Scale {
    weights: CpuWeights,
    capacity: f64,
    gamma: f64,
    /// Between nodes, as it is now.
    internal: f64,
    tariff: Option<Tariff>,
}

impl Scale {
    fn row(&self, name: &str, outcome: &Outcome) -> Row {
        let work = self.work(outcome);
        let mean = work.iter().sum::<f64>() / work.len() as f64;
        let busiest = work.iter().copied().fold(0.0, f64::max);
        let fair = self.gamma * mean * (1.0 + 1e-12);
        let above = work.iter().filter(|work| **work > fair).count();
        let internal = outcome.traffic.internal();
        let change =
            (self.internal > 0.0).then(|| rounded((internal / self.internal - 1.0) * 100.0));
        let mut row = Row::default();
        row.set("change", name)
            .set("node_count", outcome.nodes.len())
            .set("moves", outcome.moves.len())
            .set("cpu_busiest_percent", rounded(self.percent(busiest)))
            .set("cpu_mean_percent", rounded(self.percent(mean)))
            .set("above_gamma", above)
            .set("internal_msgs_per_s", rounded(internal))
            .set(
                "internal_change_percent",
                change.map_or(Value::Null, Value::from),
            );
        if let Some(tariff) = &self.tariff {
            let month = tariff.month(&outcome.nodes, &outcome.flows);
            row.set("egress_a_month", rounded(month));
        }
        row
    }

    fn work(&self, outcome: &Outcome) -> Vec<f64> {
        let brokers = outcome.traffic.brokers.iter();
        brokers.map(|it| self.weights.work(it)).collect()
    }

    fn percent(&self, work: f64) -> f64 {
        work / self.capacity * 100.0
    }

    /// Each node with its load.
    fn nodes(&self, outcome: &Outcome) -> Vec<Value> {
        let nodes = outcome.nodes.iter().zip(&outcome.traffic.brokers);
        nodes
            .map(|(name, traffic)| {
                object([
                    ("name", name.as_str().into()),
                    (
                        "cpu_percent",
                        rounded(self.percent(self.weights.work(traffic))).into(),
                    ),
                    ("external_in", traffic.external_in.into()),
                    ("external_out", traffic.external_out.into()),
                    ("internal_in", traffic.internal_in.into()),
                    ("internal_out", traffic.internal_out.into()),
                ])
            })
            .collect()
    }
}

fn move_row(relocation: &Relocation) -> Row {
    let mut row = Row::default();
    row.set("client", relocation.client.as_str())
        .set("from", relocation.from.as_str())
        .set("to", relocation.to.as_str())
        .set("topics", relocation.topics.clone());
    row
}

fn move_value(relocation: &Relocation) -> Value {
    object([
        ("client", relocation.client.as_str().into()),
        ("from", relocation.from.as_str().into()),
        ("to", relocation.to.as_str().into()),
        ("topics", relocation.topics.clone().into()),
    ])
}
