//! `thicket bench run`.

use thicket_bench::generator::Fleet;
use thicket_bench::report::outcome_report;

use super::options::{LoadOptions, ScenarioOptions, SpanOptions};
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
    /// Run this many times, with new connections each time; means come with 95 % confidence intervals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Threads of the generator; more than one for `pair` only, where pairs are shared out
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    output: OutputOptions,
}

/// Runs one load.
pub fn run(arguments: &Run) -> anyhow::Result<()> {
    let output = &arguments.output;
    let mut outcomes = Vec::new();
    for _ in 0..arguments.repeats {
        let mut fleet = Fleet::connect(arguments.scenario.scenario()?, arguments.threads)?;
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
