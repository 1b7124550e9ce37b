//! `thicket plan`: the traffic model, the strategies and the simulator at the command line.

mod advise;
mod anonymous;
mod arguments;
mod choose;
mod live;
mod measured;
mod model;
mod parallel;
mod price;
mod recording;
mod replay;
mod rows;
mod simulate;
mod size;
mod source;

/// Arguments of `thicket plan`.
#[derive(Debug, clap::Args)]
pub struct Plan {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Predict the traffic of clusters whose clients attach at random.
    Model(model::Model),
    /// Simulate strategies on drawn workloads, or reproduce a figure of the paper.
    Simulate(simulate::Simulate),
    /// Place recorded arrivals, one after the other.
    Replay(replay::Replay),
    /// Show what adding or removing a node would cost, from where the clients are now.
    Advise(advise::Advise),
    /// Compute how many brokers a load needs, with and without placement.
    Size(size::SizeArguments),
    /// Choose a configuration by six questions, and write it.
    Choose(Box<choose::Choose>),
}

/// Runs the planner.
///
/// # Errors
/// A parameter or an input line breaks its rule, or a file cannot be read or written.
pub fn run(plan: Plan) -> anyhow::Result<()> {
    match plan.command {
        Command::Model(arguments) => model::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Size(arguments) => size::run(&arguments),
        Command::Choose(arguments) => choose::run(&arguments),
    }
}
