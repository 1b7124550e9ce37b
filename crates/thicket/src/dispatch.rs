//! `thicket dispatch`: sends clients to the broker with the lowest load, until a signal.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_dispatch::{Broker, Config, Dispatcher, Listener};
use thicket_placement::Policy;

/// How often a dispatcher that ended by itself is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `thicket dispatch`.
#[derive(Debug, clap::Args)]
pub struct Dispatch {
    /// Address for clients: HOST:PORT; with `,passthrough` for TLS that the brokers terminate, with `,cert=FILE,key=FILE` for TLS that the
    /// dispatcher terminates; may be repeated
    #[arg(
        long,
        value_name = "HOST:PORT[,...]",
        default_value = "127.0.0.1:1883",
        env = "THICKET_DISPATCH_LISTEN"
    )]
    listen: Vec<String>,
    /// Address of a broker, and where to read its load: `sys`, `pid=N`, `nodes[=HOST:PORT]`, `metrics=URL#NAME` (CPU), `messages=URL#NAME`,
    /// `connections=URL#NAME`; also `tls=HOST:PORT` and `advertise=HOST:PORT`; may be repeated
    #[arg(long, value_name = "HOST:PORT[,...]")]
    broker: Vec<String>,
    /// File with more brokers, one per line; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    brokers: Option<PathBuf>,
    /// Measure of the load of a broker: cpu, messages, connections or combined
    #[arg(long, default_value = "combined")]
    policy: Policy,
    /// Address that serves health, brokers and metrics over HTTP, or `off`
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:18860")]
    http: String,
    /// Maximum number of client connections
    #[arg(long, value_name = "N", default_value_t = 8_192, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
    /// User name for the connections that observe the brokers; the password is read from THICKET_DISPATCH_PASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// Dispatches until SIGINT or SIGTERM; SIGHUP reads the file of brokers again.
pub fn run(arguments: &Dispatch) -> anyhow::Result<()> {
    thicket_broker::start_log(None, None);
    let config = arguments.config()?;
    raise_descriptor_limit(u64::from(arguments.max_connections));
    crate::sandbox::write_nothing()?;
    // Before it starts, so that a signal that comes early is not lost.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let dispatcher = Dispatcher::start(config)?;
    for address in dispatcher.addresses() {
        tracing::info!(%address, "listens");
    }
    if let Some(address) = dispatcher.http() {
        tracing::info!(%address, "serves health and metrics");
    }
    loop {
        for signal in signals.pending() {
            if signal != SIGHUP {
                tracing::info!(signal, "stopping");
                return Ok(dispatcher.stop()?);
            }
            match arguments
                .all_brokers()
                .and_then(|brokers| Ok(dispatcher.reload(brokers)?))
            {
                Ok(()) => tracing::info!("read the brokers again"),
                Err(error) => {
                    tracing::error!("the brokers stay as they were: {error:#}");
                }
            }
        }
        if dispatcher.has_failed() {
            return Ok(dispatcher.stop()?);
        }
        std::thread::sleep(LOOK);
    }
}

impl Dispatch {
    fn config(&self) -> anyhow::Result<Config> {
        let listeners: Result<Vec<Listener>, _> = self
            .listen
            .iter()
            .map(|text| Listener::parse(text))
            .collect();
        let http: Option<SocketAddr> = match self.http.as_str() {
            "off" => None,
            text => Some(
                text.parse()
                    .with_context(|| format!("--http {text}: expected ADDRESS:PORT or off"))?,
            ),
        };
        let login = self.user.clone().map(|user| {
            let password = std::env::var("THICKET_DISPATCH_PASSWORD").unwrap_or_default();
            (user, password.into_bytes())
        });
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).context("the system has no randomness")?;
        Ok(Config {
            listeners: listeners?,
            brokers: self.all_brokers()?,
            policy: self.policy,
            http,
            max_connections: self.max_connections as usize,
            login,
            seed: u64::from_le_bytes(seed),
        })
    }

    fn all_brokers(&self) -> anyhow::Result<Vec<Broker>> {
        let of_file = self.brokers.as_deref().map(lines).transpose()?;
        let texts = self.broker.iter().cloned();
        let brokers: Result<Vec<_>, _> = texts
            .chain(of_file.unwrap_or_default())
            .map(|text| Broker::parse(&text))
            .collect();
        Ok(brokers?)
    }
}

/// The lines of a file that are neither empty nor comments.
fn lines(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--brokers: cannot read {}", path.display()))?;
    let lines = text.lines().map(str::trim);
    Ok(lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect())
}

/// A relayed client takes two descriptors.
fn raise_descriptor_limit(clients: u64) {
    let limit = thicket_bench::process::raise_open_files();
    if limit < 2 * clients + 64 {
        tracing::warn!(
            limit,
            clients,
            "fewer open files are allowed than relayed clients need"
        );
    }
}
