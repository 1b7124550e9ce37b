//! `thicket bench mst` and `thicket bench latency`.

use serde::Serialize;
use thicket_bench::Outcome;
use thicket_bench::generator::{Fleet, Scenario, Watch};
use thicket_bench::report::{Part, Plot, Report, Scale, Series, Table, amount, latency_cells};
use thicket_bench::search::{self, Criterion, Search, SearchSettings, Step};
use thicket_bench::statistics::{Estimate, estimate};

use super::options::{Arrival, ScenarioOptions, arrivals, seconds};
use super::output::OutputOptions;

/// Arguments of `thicket bench mst`.
#[derive(Debug, clap::Args)]
pub struct Mst {
    #[command(flatten)]
    scenario: ScenarioOptions,
    #[command(flatten)]
    search: SearchOptions,
    /// Number of searches; the mean has a 95 % confidence interval
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    output: OutputOptions,
}

/// How the maximum is searched for.
#[derive(Debug, clap::Args)]
pub(super) struct SearchOptions {
    #[command(flatten)]
    steps: StepOptions,
    /// First rate tried: doubled while sustainable, halved while not, then bisected
    #[arg(long, value_name = "PER_SECOND", default_value_t = 1000.0)]
    from: f64,
    /// Stop when the bounds are this close, as a share of the lower one
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    precision: f64,
    /// A rate is sustainable if deliveries differ from publications by no more than this many per second
    #[arg(long, value_name = "PER_SECOND", default_value_t = 100.0)]
    tolerance: f64,
    /// ... or by no more than this share, whichever is larger: messages are in transit at both ends of a short step
    #[arg(long, value_name = "SHARE", default_value_t = 0.005)]
    tolerance_share: f64,
    /// A rate is sustainable if the mean latency is below this, instead
    #[arg(long, value_name = "MS", conflicts_with_all = ["tolerance", "tolerance_share"])]
    mean_latency_ms: Option<f64>,
}

/// Arguments of `thicket bench latency`.
#[derive(Debug, clap::Args)]
pub struct LatencyAtRates {
    #[command(flatten)]
    scenario: ScenarioOptions,
    #[command(flatten)]
    steps: StepOptions,
    /// Rates, in messages per second of all publishers together
    #[arg(
        long,
        value_name = "PER_SECOND,...",
        value_delimiter = ',',
        default_value = "1000"
    )]
    rates: Vec<f64>,
    #[command(flatten)]
    output: OutputOptions,
}

/// What one rate looks like.
#[derive(Debug, clap::Args)]
struct StepOptions {
    /// Measured interval of each rate, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    step_seconds: f64,
    /// Load before it, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warm_up: f64,
    /// Spacing of the messages
    #[arg(long, value_enum, default_value_t = Arrival::Constant)]
    arrival: Arrival,
    /// Coefficient of variation of `--arrival lognormal`
    #[arg(long, value_name = "CV", default_value_t = 0.5)]
    cv: f64,
    /// Processes of the broker, whose CPU time and memory are measured
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Threads of the load generator; more than one with `pair` only
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

impl StepOptions {
    fn settings(
        &self,
        criterion: Criterion,
        from_per_s: f64,
        precision: f64,
    ) -> anyhow::Result<SearchSettings> {
        Ok(SearchSettings {
            criterion,
            from_per_s,
            precision,
            arrivals: arrivals(self.arrival, self.cv),
            warm_up: seconds("--warm-up", self.warm_up)?,
            step: seconds("--step-seconds", self.step_seconds)?,
        })
    }

    fn watch(&self) -> Watch {
        Watch {
            pids: self.pid.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct MstResult {
    criterion: Criterion,
    mst_per_s: Option<Estimate>,
    searches: Vec<Search>,
}

impl SearchOptions {
    fn criterion(&self) -> Criterion {
        match self.mean_latency_ms {
            Some(below_ms) => Criterion::MeanLatency { below_ms },
            None => Criterion::Stable {
                tolerance_per_s: self.tolerance,
                tolerance_share: self.tolerance_share,
            },
        }
    }

    /// One search on new connections; `say` hears of each rate.
    pub(super) fn search(
        &self,
        scenario: Scenario,
        say: &mut dyn FnMut(&Step),
    ) -> anyhow::Result<Search> {
        anyhow::ensure!(self.precision > 0.0, "--precision must be above 0");
        let settings = (self.steps).settings(self.criterion(), self.from, self.precision)?;
        let mut fleet = Fleet::connect(scenario, self.steps.threads)?;
        let watch = self.steps.watch();
        Ok(search::search(&mut fleet, &settings, &watch, say)?)
    }
}

/// Searches for the maximum sustainable throughput.
pub fn run(arguments: &Mst) -> anyhow::Result<()> {
    let mut searches = Vec::new();
    for _ in 0..arguments.repeats {
        let say = &mut |step: &Step| arguments.output.say(|| step_line(step));
        searches.push(
            arguments
                .search
                .search(arguments.scenario.scenario()?, say)?,
        );
    }
    let found: Vec<f64> = searches.iter().map(|search| search.mst_per_s).collect();
    let result = MstResult {
        criterion: arguments.search.criterion(),
        mst_per_s: estimate(&found),
        searches,
    };
    arguments.output.finish(&result, &report(&result))
}

/// Measures latency at each rate.
pub fn run_at_rates(arguments: &LatencyAtRates) -> anyhow::Result<()> {
    let unbounded = Criterion::MeanLatency {
        below_ms: f64::INFINITY,
    };
    let settings = arguments.steps.settings(unbounded, 1.0, 1.0)?;
    let scenario = arguments.scenario.scenario()?;
    let mut fleet = Fleet::connect(scenario, arguments.steps.threads)?;
    let mut outcomes = Vec::new();
    for &rate in &arguments.rates {
        let outcome = search::run_at(&mut fleet, rate, &settings, &arguments.steps.watch())?;
        arguments
            .output
            .say(|| format!("{} msg/s done", amount(rate)));
        outcomes.push((rate, outcome));
    }
    let points: Vec<(f64, &Outcome, &str)> = outcomes
        .iter()
        .map(|(rate, outcome)| (*rate, outcome, ""))
        .collect();
    let mut report = Report::new(format!(
        "Latency of {} at {}",
        workload(&points),
        nodes(&points)
    ));
    report.push(Part::Table(rates_table(&points)));
    push_warnings(&mut report, &points);
    report.push(Part::Plot(latency_plot(&points)));
    arguments.output.finish(&outcomes, &report)
}

pub(super) fn step_line(step: &Step) -> String {
    let verdict = if step.sustainable {
        "sustainable"
    } else {
        "too much"
    };
    let [mean, _, _, p99, _, _] = latency_cells(step.outcome.latency.as_ref());
    format!(
        "{:>11} msg/s  delivered {:>11}/s  mean {mean} ms  p99 {p99} ms  {verdict}",
        amount(step.rate_per_s),
        amount(step.outcome.delivered_per_s)
    )
}

fn report(result: &MstResult) -> Report {
    let points: Vec<(f64, &Outcome, &str)> = result
        .searches
        .iter()
        .flat_map(|search| &search.steps)
        .map(|step| {
            (
                step.rate_per_s,
                &step.outcome,
                if step.sustainable { "yes" } else { "no" },
            )
        })
        .collect();
    let mut report = Report::new(format!(
        "Maximum sustainable throughput of {} at {}",
        workload(&points),
        nodes(&points)
    ));
    let criterion = match result.criterion {
        Criterion::Stable {
            tolerance_per_s,
            tolerance_share,
        } => format!(
            "deliveries within {tolerance_per_s} msg/s or {} % of what was published, nothing lost",
            tolerance_share * 100.0
        ),
        Criterion::MeanLatency { below_ms } => {
            format!("mean latency below {below_ms} ms, nothing lost")
        }
    };
    let found = match result.mst_per_s {
        Some(Estimate {
            mean,
            half_width_95: Some(half),
            repeats,
        }) => {
            format!(
                "{} msg/s +- {} (95 % confidence, {repeats} searches)",
                amount(mean),
                amount(half)
            )
        }
        Some(Estimate { mean, .. }) => format!("{} msg/s", amount(mean)),
        None => "none".to_owned(),
    };
    report.push(Part::Text(format!("MST: {found} ({criterion})")));
    report.push(Part::Table(rates_table(&points)));
    push_warnings(&mut report, &points);
    report.push(Part::Plot(latency_plot(&points)));
    report
}

fn workload(points: &[(f64, &Outcome, &str)]) -> String {
    points.first().map_or_else(String::new, |(_, outcome, _)| {
        format!(
            "{}, QoS {}, {} B",
            outcome.workload, outcome.qos, outcome.payload_len
        )
    })
}

fn nodes(points: &[(f64, &Outcome, &str)]) -> String {
    points
        .first()
        .map_or_else(String::new, |(_, outcome, _)| outcome.nodes.join(", "))
}

fn rates_table(points: &[(f64, &Outcome, &str)]) -> Table {
    let mut table = Table::new([
        "msg/s",
        "delivered/s",
        "mean ms",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "lost",
        "dup",
        "reord",
        "own us",
        "broker us",
        "sustainable",
    ]);
    for (rate, outcome, verdict) in points {
        let counts = &outcome.counts;
        let mut row = vec![amount(*rate), amount(outcome.delivered_per_s)];
        row.extend(latency_cells(outcome.latency.as_ref()));
        row.extend(
            [counts.lost, counts.duplicated, counts.reordered].map(|count| amount(count as f64)),
        );
        row.push(format!("{:.2}", outcome.own.us_per_delivered));
        row.push(outcome.broker.map_or("-".to_owned(), |broker| {
            format!("{:.2}", broker.cpu.us_per_delivered)
        }));
        row.push((*verdict).to_owned());
        table.row(row);
    }
    table
}

fn push_warnings(report: &mut Report, points: &[(f64, &Outcome, &str)]) {
    for (rate, outcome, _) in points {
        for warning in &outcome.warnings {
            report.push(Part::Warning(format!(
                "at {} msg/s: {warning}",
                amount(*rate)
            )));
        }
    }
}

fn latency_plot(points: &[(f64, &Outcome, &str)]) -> Plot {
    let mut sorted: Vec<_> = points
        .iter()
        .filter_map(|(rate, outcome, _)| Some((*rate, outcome.latency?)))
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let line = |name: &str, pick: fn(&thicket_bench::outcome::Latency) -> f64| Series {
        name: name.to_owned(),
        points: sorted
            .iter()
            .map(|(rate, latency)| (*rate, pick(latency) / 1000.0))
            .collect(),
    };
    Plot {
        title: "Latency over rate".to_owned(),
        x_label: "messages published a second".to_owned(),
        y_label: "ms".to_owned(),
        scale: Scale::Logarithmic,
        series: vec![
            line("mean", |l| l.mean_us),
            line("p50", |l| l.p50_us),
            line("p99", |l| l.p99_us),
            line("p99.9", |l| l.p999_us),
        ],
    }
}
