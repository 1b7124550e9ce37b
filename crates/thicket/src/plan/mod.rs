//! `thicket plan`.

/// Arguments of `thicket plan`.
#[derive(Debug, clap::Args)]
pub struct Plan {}

/// Runs the planner.
pub fn run(_plan: Plan) -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
