//! `thicket bench dispatcher`.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use thicket_bench::dispatcher::{Experiment, dispatcher_report, places, play, plots};
use thicket_bench::target::find_program;

use super::options::seconds;
use super::output::OutputOptions;

/// Arguments of `thicket bench dispatcher`.
#[derive(Debug, clap::Args)]
pub struct DispatcherExperiment {
    /// Orders of arrival: of the ten that differ, the paper's two and then others, drawn
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10))]
    orders: u32,
    /// Decides the draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Between two arrivals, in seconds; the load a dispatcher sees is a mean of five
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    ramp: f64,
    /// After the last arrival, in seconds; the first two of them are left out
    #[arg(long, value_name = "SECONDS", default_value_t = 7.0)]
    hold: f64,
    /// Policy of the dispatcher: cpu, messages, connections or combined
    #[arg(long, default_value = "combined")]
    policy: String,
    /// What the dispatcher is told of each broker; {pid} is its process
    #[arg(long, value_name = "WORDS", default_value = "sys,pid={pid}")]
    sources: String,
    /// Folder for the figures, an SVG file each
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Plays the experiment.
pub fn run(arguments: &DispatcherExperiment) -> anyhow::Result<()> {
    let hold = seconds("--hold", arguments.hold)?;
    ensure!(
        arguments.hold >= 4.0,
        "--hold {}: expected at least 4",
        arguments.hold
    );
    let experiment = Experiment {
        thicket: std::env::current_exe().context("where this program lies")?,
        mosquitto: find_program("mosquitto")
            .context("mosquitto is not installed: deploy/peers installs it")?,
        places: places(arguments.orders as usize, arguments.seed),
        ramp: seconds("--ramp", arguments.ramp)?,
        hold,
        policy: arguments.policy.clone(),
        sources: arguments.sources.clone(),
    };
    let played = play(&experiment, &mut |line| arguments.output.say(|| line))?;
    if let Some(folder) = &arguments.figures {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("--figures: cannot make {}", folder.display()))?;
        for (name, plot) in plots(&played) {
            let path = folder.join(format!("{name}.svg"));
            std::fs::write(&path, plot.to_svg_file())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    let report = dispatcher_report(&experiment, &played);
    arguments.output.finish(&played, &report)
}
