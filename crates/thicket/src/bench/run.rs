//! `thicket bench run`.

use std::time::Duration;

use clap::ValueEnum;
use thicket_bench::arrivals::{self, ArrivalOrder, Arrivals, Redirect, in_order};
use thicket_bench::generator::Fleet;
use thicket_bench::report::{arrivals_report, outcome_report};

use super::options::{
    LoadOptions, ScenarioOptions, SpanOptions, TypesOfPublishers, length_of_time,
};
use super::output::OutputOptions;

/// Arguments of `thicket bench run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    scenario: ScenarioOptions,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    span: SpanOptions,
    /// Number of runs, each with new connections; means have 95 % confidence intervals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Threads of the load generator; more than one with `pair` only
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Types of publishers: time between two arrivals, such as 5s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = length_of_time)]
    ramp: Duration,
    /// Types of publishers: order of their arrival
    #[arg(long, value_enum, default_value_t = Order::Given)]
    order: Order,
    /// What to do with a Server Reference (MQTT 5) in a CONNACK; with types of publishers, in a DISCONNECT too
    #[arg(long, value_enum, default_value_t = Follow::Follow)]
    redirect: Follow,
    #[command(flatten)]
    output: OutputOptions,
}

/// Orders of arrival by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// In the order in which the types are given
    Given,
    /// Random, by --seed
    Random,
}

/// What becomes of a Server Reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Follow {
    /// Connect there, at most once per attempt
    Follow,
    /// Report it as an error
    Ignore,
}

impl From<Follow> for Redirect {
    fn from(follow: Follow) -> Self {
        match follow {
            Follow::Follow => Self::Follow,
            Follow::Ignore => Self::Ignore,
        }
    }
}

/// Runs one load.
pub fn run(arguments: &Run) -> anyhow::Result<()> {
    let output = &arguments.output;
    if let Some(types) = arguments.scenario.types()? {
        return run_types(arguments, types);
    }
    let mut outcomes = Vec::new();
    for _ in 0..arguments.repeats {
        let mut scenario = arguments.scenario.scenario()?;
        scenario.redirect = arguments.redirect.into();
        let mut fleet = Fleet::connect(scenario, arguments.threads)?;
        for generator in fleet.generators() {
            let (clients, connecting) = (generator.clients(), generator.connecting().as_secs_f64());
            output.say(|| format!("{clients} clients connected in {connecting:.2} s"));
        }
        let (load, span) = (arguments.load.load(), arguments.span.span()?);
        outcomes.push(
            fleet.run(load, span, &arguments.span.watch(), &mut |progress| {
                output.say_second(progress)
            })?,
        );
    }
    output.finish(&outcomes, &outcome_report(&outcomes))
}

fn run_types(arguments: &Run, types: TypesOfPublishers) -> anyhow::Result<()> {
    let order = match arguments.order {
        Order::Given => ArrivalOrder::Given,
        Order::Random => ArrivalOrder::Random,
    };
    let arrivals = Arrivals {
        publishers: in_order(&types.types, order, types.seed),
        nodes: types.nodes,
        subscribers: types.subscribers,
        ramp: arguments.ramp,
        hold: arguments.span.measured()?,
        attach: types.attach,
        redirect: arguments.redirect.into(),
        prefix: types.prefix,
    };
    let output = &arguments.output;
    let mut outcomes = Vec::new();
    for _ in 0..arguments.repeats {
        let watch = arguments.span.watch();
        outcomes.push(arrivals::run(&arrivals, &watch, &mut |at_s, rates| {
            output.say(|| {
                let rates: Vec<String> = rates
                    .iter()
                    .map(|(broker, rate)| format!("{broker} {rate:.0}/s"))
                    .collect();
                format!("{at_s:>6.1} s  {}", rates.join("  "))
            });
        })?);
    }
    output.finish(&outcomes, &arrivals_report(&arrivals, &outcomes))
}
