//! `thicket up`: several nodes on this machine, for trying things out.
//!
//! Each node is a process of its own, the same `thicket broker` that runs in production, so that one of them can be killed and its
//! memory looked at. All end with this process, however it ends: they hold the other end of a pipe.

mod cluster;
mod node_settings;

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_bench::report::render;
use thicket_broker::LogLevel;

use cluster::{Cluster, Member};

use crate::api::Credentials;

/// Time for the nodes to find each other; on an idle machine it takes a fraction of a second.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Arguments of `thicket up`.
#[derive(Debug, clap::Args)]
pub struct Up {
    /// Number of nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// MQTT port of the first node; the others use the ports after it
    #[arg(long, default_value_t = 1883)]
    port: u16,
    /// HTTP API port of the first node; the others use the ports after it
    #[arg(long, default_value_t = 18830)]
    http_port: u16,
    /// WebSocket port of the first node; the others use the ports after it [default: none]
    #[arg(long)]
    ws_port: Option<u16>,
    /// TLS port of the first node; the others use the ports after it [default: none]
    #[arg(long, requires = "tls_certificate", requires = "tls_key")]
    tls_port: Option<u16>,
    /// PEM file of the certificate for TLS
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    tls_certificate: Option<PathBuf>,
    /// PEM file of the key for TLS
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    tls_key: Option<PathBuf>,
    /// File of the users that may connect, one line `name:$argon2id$...` each, as printed by `thicket passwd` [default: everybody on this machine]
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Name of the cluster; other nodes with this cluster name on this machine join it
    #[arg(long, value_name = "NAME", default_value = "thicket")]
    cluster_name: String,
    /// Threads of each node that serve clients [default: one per core]
    #[arg(long)]
    workers: Option<u32>,
    /// Data directory, with a subdirectory for each node [default: nothing is stored]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// Log level of the nodes
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: LogLevel,
    /// Placement port of the first node; the others use the ports after it [default: none]
    #[arg(long)]
    placement_port: Option<u16>,
    #[command(flatten)]
    credentials: Credentials,
    /// Flags of `thicket broker` for every node, such as `-- --redirect topics --rebalance on --backups 2`
    #[arg(last = true, value_name = "FLAG OF A NODE")]
    node_flags: Vec<OsString>,
}

/// Runs the nodes until Ctrl-C.
pub fn run(arguments: &Up) -> anyhow::Result<()> {
    // Before the first child, so that none is left behind by an early Ctrl-C.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    node_settings::check(&arguments.node_flags)?;
    let members = arguments.members()?;
    for member in &members {
        check_free(member.address, member, "--port")?;
        check_free(member.http, member, "--http-port")?;
        for (address, flag) in [
            (member.ws, "--ws-port"),
            (member.tls, "--tls-port"),
            (member.placement, "--placement-port"),
        ] {
            address.map_or(Ok(()), |address| check_free(address, member, flag))?;
        }
    }
    let mut cluster = Cluster::start(members, arguments)?;
    if !wait_until_complete(&mut cluster, &mut signals)? {
        return cluster.stop();
    }
    greet(&cluster, arguments)?;
    while !cluster.is_empty() && signals.pending().next().is_none() {
        cluster.report_ended();
        std::thread::sleep(PAUSE);
    }
    if !cluster.is_empty() {
        eprintln!("\nstopping {}", crate::counted(cluster.len(), "node"));
    }
    cluster.stop()
}

impl Up {
    fn members(&self) -> anyhow::Result<Vec<Member>> {
        let port = |first: u16, index: u16, flag: &str| {
            let port = first.checked_add(index).filter(|port| *port != 0);
            port.ok_or_else(|| {
                anyhow::anyhow!(
                    "{flag} {first}: expected {} ports from 1 to 65535 in a row",
                    self.nodes
                )
            })
        };
        let firsts = [
            ("--port", Some(self.port)),
            ("--http-port", Some(self.http_port)),
            ("--ws-port", self.ws_port),
            ("--tls-port", self.tls_port),
            ("--placement-port", self.placement_port),
        ];
        for (index, (flag, first)) in firsts.iter().enumerate() {
            for (other_flag, other) in &firsts[index + 1..] {
                if let (Some(first), Some(other)) = (first, other) {
                    ensure!(
                        first.abs_diff(*other) >= self.nodes,
                        "{flag} {first} and {other_flag} {other}: the ports of {} nodes overlap",
                        self.nodes
                    );
                }
            }
        }
        let optional = |first: Option<u16>, index: u16, flag: &str| {
            let port = first.map(|first| port(first, index, flag)).transpose()?;
            anyhow::Ok(port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
        };
        (0..self.nodes)
            .map(|index| {
                Ok(Member {
                    name: format!("node-{}", index + 1),
                    address: SocketAddr::from((
                        Ipv4Addr::LOCALHOST,
                        port(self.port, index, "--port")?,
                    )),
                    http: SocketAddr::from((
                        Ipv4Addr::LOCALHOST,
                        port(self.http_port, index, "--http-port")?,
                    )),
                    ws: optional(self.ws_port, index, "--ws-port")?,
                    tls: optional(self.tls_port, index, "--tls-port")?,
                    placement: optional(self.placement_port, index, "--placement-port")?,
                })
            })
            .collect()
    }
}

/// How this program is called from here: it need not be where the shell looks for programs.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._/".contains(it);
    match called.is_empty() {
        true => "thicket".to_owned(),
        false if called.chars().all(is_plain) => called,
        false => format!("'{}'", called.replace('\'', r"'\''")),
    }
}

/// A name to show in the commands.
fn first_user(path: &std::path::Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--users: cannot read {}", path.display()))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let name = lines.find_map(|line| line.split_once(':'));
    let name = name
        .with_context(|| format!("--users: nobody is in {}", path.display()))?
        .0;
    Ok(format!("'{}'", name.replace('\'', r"'\''")))
}

/// Found out before anything is started: half a cluster is of no use.
fn check_free(address: SocketAddr, member: &Member, flag: &str) -> anyhow::Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!(
                "port {} for {} is in use by another process; stop it, or choose other ports with `{flag}`",
                address.port(),
                member.name
            )
        }
        Err(error) => bail!("port {} for {}: {error}", address.port(), member.name),
    }
}

/// `false`: a signal came first.
fn wait_until_complete(cluster: &mut Cluster, signals: &mut Signals) -> anyhow::Result<bool> {
    let deadline = Instant::now() + TIMEOUT;
    while !cluster.is_complete()? {
        if signals.pending().next().is_some() {
            return Ok(false);
        }
        if let Some(member) = cluster.find_ended() {
            bail!("{member} ended while starting; its last log lines are above");
        }
        ensure!(
            Instant::now() < deadline,
            "the nodes did not find each other within {} seconds",
            TIMEOUT.as_secs()
        );
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

/// What is there and what to do with it.
fn greet(cluster: &Cluster, arguments: &Up) -> anyhow::Result<()> {
    let program = program();
    let login = match &arguments.users {
        None => String::new(),
        Some(path) => format!(" -u {} -P PASSWORD", first_user(path)?),
    };
    let rows: Vec<_> = cluster.rows();
    let (first, last) = cluster.ends();
    let (first, last) = (first.port(), last.port());
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}",
        render(&["NODE", "MQTT", "HTTP API", "PROCESS", "SEES"], &rows)
    )?;
    writeln!(
        out,
        "Subscribe on one node and publish on another, in two other terminals:"
    )?;
    writeln!(out, "  mosquitto_sub{login} -p {last} -t 'site/+/temp' -v")?;
    writeln!(
        out,
        "  mosquitto_pub{login} -p {first} -t site/1/temp -m 21"
    )?;
    writeln!(out, "or without other software:")?;
    writeln!(out, "  {program} sub{login} -p {last} -t 'site/+/temp' -v")?;
    writeln!(
        out,
        "  {program} pub{login} -p {first} -t site/1/temp -m 21"
    )?;
    writeln!(
        out,
        "Show the state of the cluster:\n  {program} ctl --api {0} nodes\nor open http://{0}/ in a browser",
        cluster.api()
    )?;
    if let Some(port) = arguments.tls_port {
        let more = format!("--cafile CA.pem -h localhost -p {port}");
        writeln!(
            out,
            "Over TLS:\n  mosquitto_sub{login} {more} -t 'site/+/temp' -v"
        )?;
    }
    if let Some(port) = arguments.ws_port {
        writeln!(out, "Over WebSocket: ws://127.0.0.1:{port}/mqtt")?;
    }
    if let Some(port) = arguments.placement_port {
        writeln!(out, "Placements: http://127.0.0.1:{port}")?;
    }
    writeln!(out, "Ctrl-C stops all.")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        up: Up,
    }

    fn up(arguments: &[&str]) -> Up {
        Line::parse_from(std::iter::once("up").chain(arguments.iter().copied())).up
    }

    #[test]
    fn ports_follow_the_first() {
        let members = up(&["--nodes", "2", "--port", "2000"])
            .members()
            .expect("enough ports");
        let ports: Vec<_> = members
            .iter()
            .map(|member| (member.address.port(), member.http.port()))
            .collect();
        assert_eq!(ports, [(2000, 18830), (2001, 18831)]);
    }

    #[test]
    fn ports_that_do_not_exist_or_overlap_are_refused() {
        for (name, arguments, expected) in [
            (
                "beyond the last port",
                &["--port", "65534"],
                "expected 3 ports",
            ),
            ("overlap", &["--http-port", "1885"], "overlap"),
            ("overlap of others", &["--ws-port", "18832"], "overlap"),
        ] {
            let error = up(arguments).members().expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
