//! `thicket health`: a probe for containers and scripts, without another program in the image.

use crate::api::{Api, Credentials};

/// Arguments of `thicket health`.
#[derive(Debug, clap::Args)]
pub struct Health {
    /// HTTP API of the node to ask
    #[arg(
        long,
        env = "THICKET_API",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:18830",
        value_parser = crate::api::address
    )]
    api: String,
    /// Check only whether the threads of the node answer, not whether it is ready for clients
    #[arg(long)]
    live: bool,
}

/// Ends well if the node is ready, or alive.
pub fn run(arguments: &Health) -> anyhow::Result<()> {
    let path = match arguments.live {
        true => "/v1/health/live",
        false => "/v1/health/ready",
    };
    // These paths ask nobody for a password.
    let api = Api::new(&arguments.api).with_credentials(&Credentials::default());
    crate::print(&api.text(path)?)
}
