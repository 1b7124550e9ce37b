//! `thicket place --proxy`: several sessions behind one, for clients that know only one.

use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_splitter::{Config, Splitter};

/// Arguments of `thicket place`.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// Run as a proxy in front of the nodes; required, as there is no other mode
    #[arg(long, required = true)]
    proxy: bool,
    /// Address for clients: HOST:PORT, or :PORT on loopback
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":1883")]
    listen: String,
    /// MQTT listener of a node of the cluster, without TLS; may be repeated
    #[arg(long, value_name = "HOST:PORT", required = true)]
    cluster: Vec<String>,
    /// Where to request placements: the listener for placements of a node (`placement_listen`), or its HTTP API, which serves only clients
    /// without a user name; may be repeated
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:18830")]
    api: Vec<String>,
    /// Maximum number of sessions per client, each on another node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    max_sessions: u8,
    /// Maximum packet size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1024..=268_435_460))]
    max_packet_size: u32,
    /// Maximum number of clients
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(arguments: &Place) -> anyhow::Result<()> {
    thicket_broker::start_log(None, None);
    crate::sandbox::write_nothing()?;
    // Before it starts, so that a signal that comes early is not lost.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let splitter = runtime.block_on(Splitter::bind(arguments.config()))?;
    if let Some(address) = splitter.address() {
        tracing::info!(%address, "listens");
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let signal = signals.forever().next();
        tracing::info!(signal, "stopping");
        // Nobody waits if it has ended.
        let _ = stop.send(());
    });
    runtime.block_on(async {
        tokio::select! {
            () = splitter.run() => {}
            _ = stopped => {}
        }
    });
    Ok(())
}

impl Place {
    fn config(&self) -> Config {
        let listen = match self.listen.strip_prefix(':') {
            // Passwords and messages pass here in the clear.
            Some(port) => format!("127.0.0.1:{port}"),
            None => self.listen.clone(),
        };
        Config {
            listen,
            cluster: self.cluster.clone(),
            apis: self.api.clone(),
            max_sessions: usize::from(self.max_sessions),
            maximum_packet_size: self.max_packet_size,
            max_connections: self.max_connections as usize,
            connect_timeout: Duration::from_secs(5),
        }
    }
}
