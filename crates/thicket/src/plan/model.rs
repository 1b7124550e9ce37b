//! `thicket plan model`.

use std::io::Write as _;

use thicket_placement::{Prediction, Setting, TrafficModel};

use super::arguments::Population;
use super::rows::{Format, Row, render};

/// Arguments of `thicket plan model`.
#[derive(Debug, clap::Args)]
pub(super) struct Model {
    #[command(flatten)]
    population: Population,
    /// Cluster sizes (M).
    #[arg(
        long,
        value_name = "M,M..",
        value_delimiter = ',',
        default_value = "1,2,4,8,20"
    )]
    brokers: Vec<usize>,
    /// Add the number of choices for a subscriber of the social scenario with up to this many sessions (Nses, Eq. 12).
    #[arg(long, value_name = "N")]
    max_sessions: Option<usize>,
    /// Print one JSON object per cluster size.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Model) -> anyhow::Result<()> {
    let setting = arguments.population.setting();
    let scenario = setting.scenario()?;
    let model =
        TrafficModel::with_equal_rates(&scenario, setting.subscribers, setting.rates.mean())?;
    let mut rows = Vec::new();
    for brokers in &arguments.brokers {
        let mut row = row(&model.predict(*brokers)?);
        if let Some(max_sessions) = arguments.max_sessions {
            let setting = Setting {
                brokers: *brokers,
                max_sessions,
                ..setting.clone()
            };
            setting.limits()?;
            if let Some(space) = setting.decision_space() {
                row.set("decision_space", space.to_string());
            }
        }
        rows.push(row);
    }
    let format = if arguments.json {
        Format::Json
    } else {
        Format::Table
    };
    std::io::stdout().write_all(render(&rows, format).as_bytes())?;
    Ok(())
}

/// Traffic in messages per second.
fn row(prediction: &Prediction) -> Row {
    let mut row = Row::default();
    row.set("brokers", prediction.broker_count)
        .set("external_in", prediction.external_in)
        .set("external_out", prediction.external_out)
        .set("internal", prediction.internal)
        .set("routing_overhead", prediction.routing_overhead())
        .set("forwarding_overhead", prediction.forwarding_overhead());
    row
}
