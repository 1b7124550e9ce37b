//! `thicket bench tls`: what TLS costs (Comparison M6).

use serde::Serialize;
use thicket_bench::generator::Scenario;
use thicket_bench::report::{Part, Report, Table, amount};
use thicket_bench::search::{Search, Step};
use thicket_bench::statistics::{Estimate, estimate};

use super::mst::{SearchOptions, step_line};
use super::options::ScenarioOptions;
use super::output::OutputOptions;

/// Arguments of `thicket bench tls`.
#[derive(Debug, clap::Args)]
pub struct TlsCost {
    #[command(flatten)]
    scenario: ScenarioOptions,
    /// The TLS listeners of the same brokers, in the same order
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        default_value = "127.0.0.1:8883"
    )]
    tls_nodes: Vec<String>,
    #[command(flatten)]
    search: SearchOptions,
    /// Number of searches without and with TLS, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    output: OutputOptions,
}

/// What was found, rates in published messages a second.
#[derive(Debug, Serialize)]
struct Cost {
    plain_per_s: Option<Estimate>,
    tls_per_s: Option<Estimate>,
    /// By how much TLS lowers the maximum sustainable throughput, of each pair of searches; 0.25: to three quarters.
    lowered_by: Option<Estimate>,
    plain: Vec<Search>,
    tls: Vec<Search>,
}

/// Searches for the maximum sustainable throughput without and with TLS, in turn.
pub fn run(arguments: &TlsCost) -> anyhow::Result<()> {
    let (plain, tls) = arguments.scenario.plain_and_tls(&arguments.tls_nodes)?;
    let (mut plain_searches, mut tls_searches) = (Vec::new(), Vec::new());
    for _ in 0..arguments.repeats {
        plain_searches.push(search(arguments, "plain", &plain)?);
        tls_searches.push(search(arguments, "TLS", &tls)?);
    }
    let rates = |searches: &[Search]| -> Vec<f64> {
        searches.iter().map(|search| search.mst_per_s).collect()
    };
    let (plain_rates, tls_rates) = (rates(&plain_searches), rates(&tls_searches));
    let pairs = plain_rates.iter().zip(&tls_rates);
    let lowered: Vec<f64> = pairs
        .filter(|(plain, _)| **plain > 0.0)
        .map(|(plain, tls)| 1.0 - tls / plain)
        .collect();
    let cost = Cost {
        plain_per_s: estimate(&plain_rates),
        tls_per_s: estimate(&tls_rates),
        lowered_by: estimate(&lowered),
        plain: plain_searches,
        tls: tls_searches,
    };
    arguments.output.finish(&cost, &report(&cost))
}

fn search(arguments: &TlsCost, side: &str, scenario: &Scenario) -> anyhow::Result<Search> {
    let say = &mut |step: &Step| {
        let line = || format!("{side:5} {}", step_line(step));
        arguments.output.say(line);
    };
    arguments.search.search(scenario.clone(), say)
}

fn report(cost: &Cost) -> Report {
    let mut report = Report::new("The cost of TLS".to_owned());
    let with_spread = |estimate: Option<Estimate>, form: fn(f64) -> String| match estimate {
        None => "-".to_owned(),
        Some(Estimate {
            mean,
            half_width_95: Some(half),
            ..
        }) => format!("{} +- {}", form(mean), form(half)),
        Some(Estimate { mean, .. }) => form(mean),
    };
    let mut table = Table::new(["", "maximum sustainable throughput, msg/s"]);
    table.row(vec![
        "plain".to_owned(),
        with_spread(cost.plain_per_s, amount),
    ]);
    table.row(vec!["TLS".to_owned(), with_spread(cost.tls_per_s, amount)]);
    report.push(Part::Table(table));
    let lowered = with_spread(cost.lowered_by, |share| format!("{:.1} %", share * 100.0));
    report.push(Part::Text(format!(
        "TLS lowers it by {lowered} (spread: 95 % confidence)"
    )));
    for search in cost.plain.iter().chain(&cost.tls) {
        for step in &search.steps {
            for warning in &step.outcome.warnings {
                let rate = amount(step.rate_per_s);
                report.push(Part::Warning(format!("at {rate} msg/s: {warning}")));
            }
        }
    }
    report
}
