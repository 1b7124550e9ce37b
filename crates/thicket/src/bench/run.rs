//! `thicket bench run`.

use thicket_bench::generator::Generator;

use super::options::{LoadOptions, ScenarioOptions, SpanOptions};

/// Arguments of `thicket bench run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    scenario: ScenarioOptions,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    span: SpanOptions,
}

/// Runs one load.
pub fn run(arguments: &Run) -> anyhow::Result<()> {
    let mut generator = Generator::connect(arguments.scenario.scenario()?)?;
    let outcome = generator.run(arguments.load.load(), arguments.span.span()?, &arguments.span.watch(), &mut |p| eprintln!("{p:?}"))?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}
