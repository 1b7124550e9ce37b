//! `thicket ctl`: what a running node knows, as tables or as JSON.

mod view;

use std::io::Write;

use clap::Subcommand;

use crate::api::{Api, Credentials};

/// Arguments of `thicket ctl`.
#[derive(Debug, clap::Args)]
pub struct Ctl {
    #[command(subcommand)]
    topic: Topic,
    /// HTTP API of the node to ask
    #[arg(
        long,
        env = "THICKET_API",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:18830",
        global = true
    )]
    api: String,
    #[command(flatten)]
    credentials: Credentials,
    /// Print what the node answers instead of a table
    #[arg(long, global = true)]
    json: bool,
}

/// What to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
enum Topic {
    /// The nodes of the cluster
    Nodes,
    /// The sessions on the node that is asked
    Sessions,
    /// The subscriptions of those sessions
    Subscriptions,
    /// What the node carried: with clients (external) and with other nodes (internal)
    Traffic,
    /// Have the node read its users and rights again; connected clients are looked at anew
    Reload,
}

/// Asks and prints.
pub fn run(arguments: &Ctl) -> anyhow::Result<()> {
    let api = Api::new(&arguments.api).with_credentials(&arguments.credentials);
    let path = arguments.topic.path();
    let text = if arguments.topic == Topic::Reload {
        api.post(path)?;
        "read again\n".to_owned()
    } else if arguments.json {
        let mut body = api.text(path)?;
        body.push('\n');
        body
    } else {
        match arguments.topic {
            Topic::Nodes => view::nodes(&api.ask::<Vec<_>>(path)?),
            Topic::Sessions => view::sessions(&api.ask::<Vec<_>>(path)?),
            Topic::Subscriptions => view::subscriptions(&api.ask::<Vec<_>>(path)?),
            Topic::Traffic => view::traffic(&api.ask(path)?),
            Topic::Reload => String::new(),
        }
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

impl Topic {
    const fn path(self) -> &'static str {
        match self {
            Self::Nodes => "/v1/nodes",
            Self::Sessions => "/v1/sessions",
            Self::Subscriptions => "/v1/subscriptions",
            Self::Traffic => "/v1/traffic",
            Self::Reload => "/v1/reload",
        }
    }
}
