//! `thicket bench relay`.

use std::net::SocketAddr;

use anyhow::Context;
use thicket_bench::process;

/// Arguments of `thicket bench relay`.
#[derive(Debug, clap::Args)]
pub struct Relay {
    /// Address to listen on; with port 0 a free port is chosen and printed
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:1883")]
    listen: SocketAddr,
}

/// Relays until the process is ended.
pub fn run(arguments: &Relay) -> anyhow::Result<()> {
    let _ = process::raise_open_files();
    let relay = thicket_bench::relay::Relay::bind(arguments.listen)
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    println!(
        "relay listens on {}, process {}",
        relay.local_addr()?,
        std::process::id()
    );
    relay.run().context("the relay's wait for events failed")
}
