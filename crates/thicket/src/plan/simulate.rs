//! `thicket plan simulate`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use thicket_bench::report::Scale;
use thicket_bench::report::chart::{Chart, Curve, Mark, Pane, Point};
use thicket_placement::{
    Application, ArrivalOrder, Axis, FIGURE_ORDER, Figure, Measures, Panel, Rates, Run, Setting,
    Statistic, StrategyKind, Sweep, simulate,
};

use super::arguments::{
    FairOptions, OpenChoices, Population, check_seeds, parse_order, parse_strategy,
};
use super::parallel::run_all;
use super::rows::{Format, Row, object, render};
use crate::files;

/// Arguments of `thicket plan simulate`.
#[derive(Debug, clap::Args)]
pub(super) struct Simulate {
    /// Reproduce this figure of the paper, with its parameters: 7, 8 or 10 to 21.
    #[arg(long, value_name = "N", conflicts_with_all = ["Population", "brokers", "max_sessions", "gamma", "pareto"])]
    figure: Option<u32>,
    #[command(flatten)]
    population: Population,
    /// Draw the rates from a Pareto distribution with mean --rate and this shape, above 1.
    #[arg(long, value_name = "SHAPE", allow_negative_numbers = true)]
    pareto: Option<f64>,
    /// Cluster sizes (M).
    #[arg(
        long,
        value_name = "M,M..",
        value_delimiter = ',',
        default_value = "1,2,4,8,20"
    )]
    brokers: Vec<usize>,
    /// Strategies: random, round-robin, least-loaded, best-match, multi-session, thicket, optimum (small cases)
    /// [default: all but optimum].
    #[arg(long, value_name = "NAME,NAME..", value_delimiter = ',', value_parser = parse_strategy)]
    strategy: Vec<StrategyKind>,
    #[command(flatten)]
    fair: FairOptions,
    /// Order of arrival: publishers-first, subscribers-first or random.
    #[arg(long, value_name = "ORDER", default_value = FIGURE_ORDER.name(), value_parser = parse_order)]
    order: ArrivalOrder,
    /// Number of seeds to average over.
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u64,
    /// The first seed; the others follow it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    choices: OpenChoices,
    /// Print one JSON object per cluster size and strategy.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Write a plot with the axes of the figure: simulation as lines with bands of one standard deviation, theory as markers.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// What is simulated and drawn: a figure of the paper, or the user's own sweep over cluster sizes.
struct Study {
    figure: Option<u32>,
    title: String,
    sweeps: Vec<Sweep>,
    panels: Vec<Panel>,
    strategies: Vec<StrategyKind>,
}

/// One point of one sweep under one strategy.
struct Outcome {
    sweep: usize,
    setting: Setting,
    strategy: StrategyKind,
    /// By the name of the measure.
    statistics: Vec<(&'static str, Statistic)>,
    /// By the name of the measure, where theory says something.
    theory: BTreeMap<&'static str, f64>,
}

pub(super) fn run(arguments: &Simulate) -> anyhow::Result<()> {
    check_seeds(arguments.seeds)?;
    let study = study(arguments)?;
    let outcomes = simulate_all(arguments, &study)?;
    if let Some(path) = &arguments.plot {
        files::write(path, chart(&study, &outcomes).to_svg())?;
    }
    let rows: Vec<Row> = outcomes
        .iter()
        .map(|outcome| row(arguments, &study, outcome))
        .collect();
    let format = match (arguments.json, arguments.csv) {
        (true, _) => Format::Json,
        (false, true) => Format::Csv,
        (false, false) => Format::Table,
    };
    let text = match format {
        Format::Json | Format::Csv => render(&rows, format),
        Format::Table => render(&short_rows(&study, &outcomes), format),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn study(arguments: &Simulate) -> anyhow::Result<Study> {
    let chosen = |default: Vec<StrategyKind>| {
        if arguments.strategy.is_empty() {
            default
        } else {
            arguments.strategy.clone()
        }
    };
    if let Some(number) = arguments.figure {
        let figure = Figure::new(number)?;
        return Ok(Study {
            figure: Some(number),
            title: format!("Fig. {number}: {}", figure.title),
            sweeps: figure.sweeps,
            panels: figure.panels,
            strategies: chosen(figure.strategies),
        });
    }
    let mut base = arguments.population.setting();
    base.max_sessions = arguments.fair.max_sessions();
    base.gamma = arguments.fair.gamma;
    if let Some(shape) = arguments.pareto {
        base.rates = Rates::Pareto {
            mean: base.rates.mean(),
            shape,
        };
    }
    let settings = arguments
        .brokers
        .iter()
        .map(|brokers| Setting {
            brokers: *brokers,
            ..base.clone()
        })
        .collect();
    // The axes are those of Fig. 13.
    Ok(Study {
        figure: None,
        title: "Overhead by cluster size".to_owned(),
        sweeps: vec![Sweep {
            label: "",
            axis: Axis::Brokers,
            settings,
        }],
        panels: Figure::new(13)?.panels,
        strategies: chosen(StrategyKind::EVERYDAY.to_vec()),
    })
}

fn simulate_all(arguments: &Simulate, study: &Study) -> anyhow::Result<Vec<Outcome>> {
    let matching = arguments.choices.options()?;
    let mut points = Vec::new();
    for (sweep, settings) in study.sweeps.iter().enumerate() {
        for setting in &settings.settings {
            let theory = theory(setting)?;
            let limits = setting.limits()?;
            for strategy in &study.strategies {
                points.push((sweep, setting, limits, *strategy, theory.clone()));
            }
        }
    }
    let seeds = arguments.seeds as usize;
    let measured: Vec<Measures> = run_all(points.len() * seeds, |job| {
        let (_, setting, limits, strategy, _) = points[job / seeds];
        let seed = arguments.seed.wrapping_add((job % seeds) as u64);
        let workload = setting.workload(arguments.order, seed)?;
        let run = Run {
            broker_count: setting.brokers,
            strategy,
            limits,
            matching,
        };
        Ok(simulate(&run, &workload, seed)?)
    })?;
    let outcomes = points.into_iter().zip(measured.chunks(seeds)).map(
        |((sweep, setting, _, strategy, theory), measured)| Outcome {
            sweep,
            setting: setting.clone(),
            strategy,
            statistics: statistics(measured),
            theory,
        },
    );
    Ok(outcomes.collect())
}

fn theory(setting: &Setting) -> anyhow::Result<BTreeMap<&'static str, f64>> {
    let mut theory = BTreeMap::new();
    for name in Measures::NAMES {
        if let Some(value) = setting.theory(name)? {
            theory.insert(name, value);
        }
    }
    Ok(theory)
}

fn statistics(measured: &[Measures]) -> Vec<(&'static str, Statistic)> {
    Measures::NAMES
        .into_iter()
        .map(|name| {
            let values: Vec<f64> = measured
                .iter()
                .filter_map(|measures| measures.by_name(name))
                .collect();
            (name, Statistic::of(&values))
        })
        .collect()
}

fn row(arguments: &Simulate, study: &Study, outcome: &Outcome) -> Row {
    let setting = &outcome.setting;
    let mut row = Row::default();
    if let Some(figure) = study.figure {
        row.set("figure", figure)
            .set("sweep", study.sweeps[outcome.sweep].label);
    }
    row.set("brokers", setting.brokers)
        .set("strategy", outcome.strategy.name())
        .set("order", arguments.order.name())
        .set("topics", setting.topics)
        .set("subscribers", setting.subscribers);
    match setting.application {
        Application::Social { subscriptions } => {
            row.set("scenario", "social")
                .set("subscriptions", subscriptions);
        }
        Application::Iot { .. } => {
            row.set("scenario", "iot");
        }
    }
    row.set("alpha", setting.alpha)
        .set("max_sessions", setting.max_sessions)
        .set("gamma", setting.gamma);
    for (name, statistic) in &outcome.statistics {
        let fields = [
            ("mean", statistic.mean.into()),
            ("sd", statistic.sd.into()),
            ("n", statistic.n.into()),
        ];
        row.set(name, object(fields));
    }
    // The model describes random attachment.
    if outcome.strategy == StrategyKind::Random {
        let model = [
            "internal",
            "external_in",
            "external_out",
            "routing_overhead",
            "forwarding_overhead",
        ]
        .map(|name| (name, outcome.theory.get(name).copied().into()));
        row.set("model", object(model));
    }
    if let Some(space) = setting.decision_space() {
        row.set("choices_bound", space.to_string());
    }
    row
}

/// What fits a terminal: the measures drawn, by strategy and x.
fn short_rows(study: &Study, outcomes: &[Outcome]) -> Vec<Row> {
    let mut shown: Vec<&'static str> = Vec::new();
    for measure in study.panels.iter().flat_map(|panel| &panel.measures) {
        if !shown.contains(measure) {
            shown.push(measure);
        }
    }
    for measure in ["jain", "sessions", "above_gamma"] {
        if !shown.contains(&measure) {
            shown.push(measure);
        }
    }
    let short = |outcome: &Outcome| {
        let sweep = &study.sweeps[outcome.sweep];
        let mut row = Row::default();
        if !sweep.label.is_empty() {
            row.set("sweep", sweep.label);
        }
        row.set(
            sweep.axis.name(),
            short_number(sweep.axis.value(&outcome.setting)),
        )
        .set("strategy", outcome.strategy.name());
        for (name, statistic) in &outcome.statistics {
            if shown.contains(name) {
                let fields = [("mean", statistic.mean.into()), ("sd", statistic.sd.into())];
                row.set(name, object(fields));
            }
        }
        row
    };
    outcomes.iter().map(short).collect()
}

/// A count without its fraction.
fn short_number(value: f64) -> Value {
    if value.fract() == 0.0 {
        (value as u64).into()
    } else {
        value.into()
    }
}

fn chart(study: &Study, outcomes: &[Outcome]) -> Chart {
    let panes = study
        .panels
        .iter()
        .map(|panel| Pane {
            title: panel.title.to_owned(),
            x_label: study.sweeps[panel.sweeps[0]].axis.label().to_owned(),
            y_label: panel.y_label.to_owned(),
            scale: if panel.logarithmic {
                Scale::Logarithmic
            } else {
                Scale::Linear
            },
            from_zero: false,
            curves: curves(study, panel, outcomes),
        })
        .collect();
    Chart {
        title: study.title.clone(),
        panes,
    }
}

fn curves(study: &Study, panel: &Panel, outcomes: &[Outcome]) -> Vec<Curve> {
    let mut all = Vec::new();
    for (variant, (sweep, measure)) in panel
        .sweeps
        .iter()
        .flat_map(|sweep| panel.measures.iter().map(move |measure| (*sweep, *measure)))
        .enumerate()
    {
        let mut suffix = String::new();
        if panel.sweeps.len() > 1 {
            suffix = format!("{suffix}, {}", study.sweeps[sweep].label);
        }
        if panel.measures.len() > 1 {
            suffix = format!("{suffix}, {measure}");
        }
        for strategy in &study.strategies {
            let points = outcomes
                .iter()
                .filter(|outcome| outcome.sweep == sweep && outcome.strategy == *strategy)
                .filter_map(|outcome| {
                    let (_, statistic) = outcome
                        .statistics
                        .iter()
                        .find(|(name, _)| *name == measure)?;
                    Some(Point {
                        x: study.sweeps[sweep].axis.value(&outcome.setting),
                        y: statistic.mean,
                        spread: statistic.sd,
                    })
                });
            all.push(Curve {
                label: format!("{}{suffix}", strategy.name()),
                // The same colour in every figure.
                colour: *strategy as usize,
                mark: Mark::Line { dashes: variant },
                points: points.collect(),
            });
        }
        all.push(theory_curve(study, outcomes, sweep, measure, &suffix));
    }
    all
}

fn theory_curve(
    study: &Study,
    outcomes: &[Outcome],
    sweep: usize,
    measure: &'static str,
    suffix: &str,
) -> Curve {
    let name = match measure {
        "choices" => "upper bound (Eq. 12)",
        "jain" => "least possible",
        _ => "model of random",
    };
    let points = outcomes
        .iter()
        .filter(|outcome| outcome.sweep == sweep && outcome.strategy == study.strategies[0])
        .filter_map(|outcome| {
            Some(Point {
                x: study.sweeps[sweep].axis.value(&outcome.setting),
                y: *outcome.theory.get(measure)?,
                spread: 0.0,
            })
        });
    Curve {
        label: format!("{name}{suffix}"),
        colour: 0,
        mark: Mark::Circles,
        points: points.collect(),
    }
}
