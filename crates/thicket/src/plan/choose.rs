//! `thicket plan choose`: the six decisions of Comparison's section 6, asked or given as flags, and the set-up that follows.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use thicket_bench::report::Table;
use thicket_lab::results::Results;
use thicket_lab::scenario::{Measure, Scenario};
use thicket_lab::summary::{cell, rows};
use thicket_lab::units::Positive;

use crate::files;

/// Share of the measured rate that a node is planned for.
const HEADROOM: f64 = 0.6;
/// Nodes of a cluster of one site.
const MOST_NODES: u32 = 64;
/// Well below what a node took on one core of the machine of docs/measurements/lab.md, in messages a second, if no other is given.
const CAPACITY_PER_S: f64 = 10_000.0;
/// From this round trip on it matters which way a message takes.
const FAR_MS: f64 = 5.0;
/// Figures of results beside the answer.
const SHOWN: [(&str, &str); 6] = [
    ("sustainable_msgs_per_s", "M1 msgs/s"),
    (DELAY, "mean delay ms"),
    ("connects_per_s", "M3 connects/s"),
    ("broker_start_s", "M4 s"),
    (LOST, "lost"),
    ("publish_broker_memory_mib", "MiB"),
];
const DELAY: &str = "delay_mean_ms";
const LOST: &str = "lost_messages";
/// The rate at which the mean delay is M2 (Comparison 5.2).
const M2_PER_S: f64 = 1000.0;

/// The heading of a figure: delay and loss are measures of Comparison in a load of its rate, and where a broker dies.
fn heading(name: &str, usual: &'static str, results: &Results) -> &'static str {
    let Ok((scenario, _)) = Scenario::parse(&results.scenario) else {
        return usual;
    };
    let is_swept = |key: &str| scenario.sweeps.iter().any(|sweep| sweep.key == key);
    let rate = scenario.workload.rate_per_s.map(Positive::value);
    match (name, &scenario.measure) {
        (LOST, Measure::Crash { .. }) => "M5 lost",
        (DELAY, Measure::Load) if rate == Some(M2_PER_S) && !is_swept("workload.rate_per_s") => {
            "M2 ms"
        }
        (DELAY, Measure::Throughput { .. }) => "delay at M1 ms",
        _ => usual,
    }
}

/// Arguments of `thicket plan choose`. What is not given is asked for: answers are read from the terminal or from a pipe, a line each, and the default holds
/// for an empty line and after the last one.
#[derive(Debug, clap::Args)]
pub(super) struct Choose {
    /// 1: what clients do with messages
    #[arg(long, value_enum)]
    use_of: Option<UseOf>,
    /// 2: messages published per second, in total
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// 2: recipients of a message, on average
    #[arg(long, value_name = "N")]
    recipients: Option<f64>,
    /// 2: clients that are connected at the same time
    #[arg(long, value_name = "N")]
    clients: Option<u64>,
    /// 3: who answers when something breaks
    #[arg(long, value_enum)]
    support: Option<Support>,
    /// 4: number of nodes that may fail without loss of service
    #[arg(long, value_name = "N")]
    survive: Option<u32>,
    /// 4: round trip between the sites of nodes in milliseconds; 0: one site
    #[arg(long, value_name = "MS")]
    rtt: Option<f64>,
    /// 5: who else is on the network
    #[arg(long, value_enum)]
    network: Option<Trust>,
    /// 6: which acknowledged messages may be lost
    #[arg(long, value_enum)]
    loss: Option<Loss>,
    /// 6: largest payload in bytes
    #[arg(long, value_name = "BYTES")]
    payload: Option<u64>,
    /// Messages per second, received and sent, that one node sustains: as measured by `bench mst` or the lab [default: 10000]
    #[arg(long, value_name = "PER_SECOND")]
    capacity: Option<f64>,
    /// Folder of results of `thicket lab run`, shown with the answer
    #[arg(long, value_name = "DIR")]
    measured: Vec<PathBuf>,
    /// Write the configuration to this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Uses of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UseOf {
    /// Readings, states and commands, for current subscribers
    Telemetry,
    /// Subscribers also read messages of days ago
    Replay,
    /// Requests with one answer each
    Requests,
}

/// Support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Support {
    /// Own people
    Own,
    /// A company, by contract
    Contract,
}

/// Trust in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Trust {
    /// Only this machine, for trying things out
    Loopback,
    /// Own devices
    Private,
    /// Anybody
    Open,
}

/// Losses that may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Loss {
    /// Single readings
    Some,
    /// Nothing when a node dies
    None,
    /// Nothing when all machines lose power
    #[value(name = "power-loss")]
    Power,
}

/// All six decisions.
#[derive(Debug, Clone, PartialEq)]
struct Needs {
    use_of: UseOf,
    rate: f64,
    recipients: f64,
    clients: u64,
    support: Support,
    survive: u32,
    rtt_ms: f64,
    network: Trust,
    loss: Loss,
    payload: u64,
    /// As measured, if it was.
    capacity: Option<f64>,
}

impl Needs {
    fn capacity(&self) -> f64 {
        self.capacity.unwrap_or(CAPACITY_PER_S)
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    nodes: u32,
    /// A line a decision, with its reason.
    decisions: Vec<String>,
    /// The configuration file of every node.
    config: String,
}

/// Asks what is missing, and answers.
pub(super) fn run(arguments: &Choose) -> anyhow::Result<()> {
    let mut ask = Ask {
        answers: Some(std::io::stdin().lock()),
        is_terminal: std::io::stdin().is_terminal(),
    };
    let needs = needs(arguments, &mut ask)?;
    let all = arguments
        .measured
        .iter()
        .map(|folder| Results::load(folder));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let answer = answer(&needs);
    let mut out = std::io::stdout();
    for line in &answer.decisions {
        writeln!(out, "{line}")?;
    }
    match &arguments.config {
        Some(path) => {
            files::write(path, &answer.config)?;
            writeln!(
                out,
                "\nThe configuration of every node is in {}.",
                path.display()
            )?;
        }
        None => write!(out, "\n# thicket.toml of every node\n{}", answer.config)?,
    }
    for results in &all {
        write!(out, "\n{}\n{}", results.title, measured(results).to_text())?;
    }
    if all.is_empty() {
        writeln!(
            out,
            "\nMeasure it on your machines: `thicket lab run scenarios/comparison-m1.toml --out DIR`, then `--measured DIR` and `--capacity`."
        )?;
    }
    Ok(())
}

fn needs(arguments: &Choose, ask: &mut Ask<impl BufRead>) -> anyhow::Result<Needs> {
    let needs = Needs {
        use_of: ask.of(
            "1. What are messages for",
            arguments.use_of,
            UseOf::Telemetry,
        )?,
        rate: ask.number("2. Messages published in a second", arguments.rate, 1000.0)?,
        recipients: ask.number("   Recipients of a message", arguments.recipients, 1.0)?,
        clients: ask.number("   Clients at the same time", arguments.clients, 1000)?,
        support: ask.of(
            "3. Who answers when it breaks",
            arguments.support,
            Support::Own,
        )?,
        survive: ask.number("4. Nodes that may be lost", arguments.survive, 1)?,
        rtt_ms: ask.number("   Round trip between sites in ms", arguments.rtt, 0.0)?,
        network: ask.of(
            "5. Who else is on the network",
            arguments.network,
            Trust::Private,
        )?,
        loss: ask.of("6. What may be lost", arguments.loss, Loss::None)?,
        payload: ask.number("   Largest payload in bytes", arguments.payload, 65_536)?,
        capacity: arguments.capacity,
    };
    for (key, value) in [
        ("--rate", needs.rate),
        ("--recipients", needs.recipients),
        ("--rtt", needs.rtt_ms),
    ] {
        anyhow::ensure!(
            (0.0..1e12).contains(&value),
            "{key} {value}: expected a number from 0 to below 1e12"
        );
    }
    anyhow::ensure!(
        needs.capacity() > 0.0 && needs.capacity() < 1e12,
        "--capacity {}: expected a number above 0 and below 1e12",
        needs.capacity()
    );
    anyhow::ensure!(
        needs.survive <= 3,
        "--survive {}: a session has three replicas at most beside its primary",
        needs.survive
    );
    anyhow::ensure!(
        (1..=268_435_455).contains(&needs.payload),
        "--payload {}: MQTT carries 1 to 268435455 bytes",
        needs.payload
    );
    Ok(needs)
}

fn answer(needs: &Needs) -> Answer {
    let work = needs.rate * (1.0 + needs.recipients);
    let spare = spare(needs);
    let for_load = (work / (needs.capacity() * HEADROOM)).ceil().max(1.0) as u32;
    // A majority must be left.
    let for_deaths = if spare == 0 { 1 } else { 2 * spare + 1 };
    let nodes = (for_load + spare).max(for_deaths).min(MOST_NODES);
    let mut decisions = vec![appropriate(needs)];
    decisions.push(format!(
        "2. {}: {work:.0} messages/s come and go in all, a node is planned for {:.0} ({:.0} % of {}), {} clients.",
        if nodes == 1 { "One node" } else { "A cluster" },
        needs.capacity() * HEADROOM,
        100.0 * HEADROOM,
        match needs.capacity {
            Some(measured) => format!("the {measured:.0} of --capacity"),
            None => format!("the default of {CAPACITY_PER_S:.0}, which was not measured on your machines"),
        },
        needs.clients
    ));
    decisions.push(match needs.support {
        Support::Own => "3. Open source: Thicket, with your own people.".to_owned(),
        Support::Contract => "3. With a contract: Thicket has none to sell. EMQX and HiveMQ have (Comparison, table 1); what follows is for a trial beside them.".to_owned(),
    });
    decisions.push(format!(
        "4. {}: {for_load} for the load{}; {}.",
        crate::counted(nodes, "node"),
        match spare {
            0 => ", none to spare".to_owned(),
            spare => format!(", {spare} to spare, {for_deaths} at least, so that with `partition = \"majority\"` those that are left serve"),
        },
        if for_load + spare > MOST_NODES {
            "that is the most a cluster is planned for: measure, or split the topics over clusters".to_owned()
        } else {
            routing(needs).1
        }
    ));
    decisions.push(security(needs.network).1.to_owned());
    decisions.push(format!(
        "6. {}; packets up to {} bytes.",
        safety(needs).1,
        packet(needs)
    ));
    Answer {
        nodes,
        decisions,
        config: config(needs, nodes),
    }
}

/// Nodes that may die: one at least where nothing may be lost by it.
fn spare(needs: &Needs) -> u32 {
    match needs.loss {
        Loss::None => needs.survive.max(1),
        Loss::Some | Loss::Power => needs.survive,
    }
}

fn appropriate(needs: &Needs) -> String {
    match needs.use_of {
        UseOf::Telemetry => "1. MQTT fits: clients come and go, and subscribe to topics.",
        UseOf::Replay => "1. MQTT alone does not fit: a broker keeps a message until it is delivered, not for later readers. Put a log behind it, fed by a subscriber.",
        UseOf::Requests => "1. MQTT 5 can do it (response topics), but a request with one answer is what HTTP or gRPC is made for. Take MQTT if the same devices publish anyway.",
    }
    .to_owned()
}

/// The routing mode, and why.
fn routing(needs: &Needs) -> (&'static str, String) {
    if needs.rtt_ms >= FAR_MS {
        (
            "topic",
            format!(
                "routing `topic`: with {} ms between sites a tree for each topic saves way and traffic",
                needs.rtt_ms
            ),
        )
    } else {
        (
            "mesh",
            "routing `mesh`: nodes are near each other, each sends to each".to_owned(),
        )
    }
}

fn security(trust: Trust) -> (&'static str, &'static str) {
    match trust {
        Trust::Loopback => (
            "allow_anonymous = true\ninsecure_links = true\n",
            "5. No users and no encryption: only on this machine.",
        ),
        Trust::Private => (
            "users = \"/etc/thicket/users\"                     # thicket passwd\nacl = \"/etc/thicket/acl\"\ncluster_secret_file = \"/etc/thicket/cluster-secret\"  # head -c 32 /dev/urandom | base64\n",
            "5. Users with passwords and rights, and a secret that encrypts the links between nodes; clients without TLS.",
        ),
        Trust::Open => (
            "tls_certificate = \"/etc/thicket/server.pem\"\ntls_key = \"/etc/thicket/server.key\"\nusers = \"/etc/thicket/users\"                     # thicket passwd\nacl = \"/etc/thicket/acl\"\ncluster_secret_file = \"/etc/thicket/cluster-secret\"  # head -c 32 /dev/urandom | base64\n",
            "5. TLS for clients, users with passwords and rights, a secret for links. TLS takes of the rate (M6: `thicket bench tls`; 20 and 43 % in Comparison).",
        ),
    }
}

/// Backups and what is synced, and why.
fn safety(needs: &Needs) -> (String, String) {
    let backups = spare(needs).min(3);
    let each = if backups == 1 {
        "a replica of each".to_owned()
    } else {
        format!("{backups} replicas of each")
    };
    match needs.loss {
        Loss::Some => (
            "backups = 0\n".to_owned(),
            "QoS 0, or 1 without replicas: what a dead node had is lost".to_owned(),
        ),
        Loss::None => (
            format!("backups = {backups}\n"),
            format!("QoS 1 or 2 with persistent sessions, {each}"),
        ),
        Loss::Power => (
            format!("backups = {backups}\ndata = \"/var/lib/thicket\"\nsync = \"commit\"\n"),
            format!(
                "QoS 1 or 2 with persistent sessions, {each}, and a disk that has everything before it is acknowledged: it decides the rate"
            ),
        ),
    }
}

/// The largest packet: payload, topic and properties.
fn packet(needs: &Needs) -> u64 {
    (needs.payload + 65_536).clamp(1_048_576, 268_435_455)
}

fn config(needs: &Needs, nodes: u32) -> String {
    let mut text = String::from("cluster_name = \"thicket\"\n");
    let listen = match needs.network {
        Trust::Loopback => "localhost:1883",
        Trust::Private => "0.0.0.0:1883",
        Trust::Open => "tls://0.0.0.0:8883",
    };
    let _ = writeln!(text, "listen = [\"{listen}\"]");
    text.push_str(security(needs.network).0);
    if nodes > 1 {
        let _ = writeln!(text, "routing = \"{}\"", routing(needs).0);
        if spare(needs) > 0 {
            text.push_str("# Only the side of a partition with more than half of the nodes serves; with \"serve\" both do, and merge afterwards.\npartition = \"majority\"\n");
            if needs.loss != Loss::Power {
                text.push_str("# Without it each start of a node adds a member that counts towards the majority.\ndata = \"/var/lib/thicket\"\n");
            }
        }
        if needs.rtt_ms > 0.0 {
            text.push_str("# The site of this node: nodes at one place have the same.\nsite = \"site-1\"\n# Multicast ends at routers: name the others.\ndiscover = [\"off\"]\nseed = [\"node-1.example:1883\", \"node-2.example:1883\"]\n");
        }
    }
    text.push_str(&safety(needs).0);
    let _ = writeln!(text, "maximum_packet_size = {}", packet(needs));
    text
}

fn measured(results: &Results) -> Table {
    let rows = rows(results);
    let is_there = |name: &str| rows.iter().any(|row| row.figures.contains_key(name));
    let shown: Vec<(&str, &str)> = SHOWN
        .into_iter()
        .filter(|(name, _)| is_there(name))
        .collect();
    let mut table = Table::new(
        ["SYSTEM", "PARAMETERS"].into_iter().chain(
            shown
                .iter()
                .map(|(name, head)| heading(name, head, results)),
        ),
    );
    for row in &rows {
        let words: Vec<String> = (row.parameters.iter())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let figures = shown
            .iter()
            .map(|(name, _)| row.figures.get(*name).map_or("-".to_owned(), cell));
        table.row(
            [row.system.clone(), words.join(" ")]
                .into_iter()
                .chain(figures),
        );
    }
    table
}

/// Questions, at a terminal or answered from a pipe.
struct Ask<R> {
    /// Where answers come from; `None`: there are no more.
    answers: Option<R>,
    is_terminal: bool,
}

impl<R: BufRead> Ask<R> {
    fn of<T: ValueEnum>(&mut self, what: &str, given: Option<T>, default: T) -> anyhow::Result<T> {
        let name = |value: &T| value.to_possible_value().map(|it| it.get_name().to_owned());
        let names: Vec<String> = T::value_variants().iter().filter_map(name).collect();
        let default_name = name(&default).unwrap_or_default();
        self.ask(
            what,
            given,
            default,
            &format!("{} [{default_name}]", names.join(", ")),
            |word| {
                T::from_str(word, true).map_err(|_| format!("it is one of {}", names.join(", ")))
            },
        )
    }

    fn number<T>(&mut self, what: &str, given: Option<T>, default: T) -> anyhow::Result<T>
    where
        T: std::str::FromStr + std::fmt::Display,
    {
        let hint = format!("[{default}]");
        self.ask(what, given, default, &hint, |word| {
            word.parse().map_err(|_| "it is a number".to_owned())
        })
    }

    fn ask<T>(
        &mut self,
        what: &str,
        given: Option<T>,
        default: T,
        hint: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        if let Some(given) = given {
            return Ok(given);
        }
        while let Some(answers) = &mut self.answers {
            if self.is_terminal {
                eprint!("{what}? {hint} ");
            }
            let mut line = String::new();
            if answers.read_line(&mut line)? == 0 {
                self.answers = None;
                break;
            }
            match line.trim() {
                "" => break,
                word => match read(word) {
                    Ok(value) => return Ok(value),
                    Err(reason) if self.is_terminal => eprintln!("   {reason}"),
                    Err(reason) => anyhow::bail!("{}? {word}: {reason}", what.trim_start()),
                },
            }
        }
        Ok(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs {
            use_of: UseOf::Telemetry,
            rate: 1000.0,
            recipients: 1.0,
            clients: 1000,
            support: Support::Own,
            survive: 0,
            rtt_ms: 0.0,
            network: Trust::Loopback,
            loss: Loss::Some,
            payload: 100,
            capacity: Some(10_000.0),
        }
    }

    #[test]
    fn nodes_follow_from_load_and_deaths() {
        let nodes = |change: &dyn Fn(&mut Needs)| {
            let mut needs = needs();
            change(&mut needs);
            answer(&needs).nodes
        };
        assert_eq!(nodes(&|_| {}), 1);
        assert_eq!(nodes(&|it| it.survive = 1), 3);
        assert_eq!(nodes(&|it| it.loss = Loss::None), 3);
        assert_eq!(nodes(&|it| it.recipients = 17.0), 3);
        assert_eq!(nodes(&|it| (it.recipients, it.survive) = (17.0, 2)), 5);
        assert_eq!(nodes(&|it| it.rate = 1e9), MOST_NODES);
    }

    #[test]
    fn every_configuration_is_one_that_a_node_takes() {
        for network in [Trust::Loopback, Trust::Private, Trust::Open] {
            for loss in [Loss::Some, Loss::None, Loss::Power] {
                for rtt_ms in [0.0, 20.0] {
                    let needs = Needs {
                        network,
                        loss,
                        rtt_ms,
                        survive: 1,
                        ..needs()
                    };
                    let answer = answer(&needs);
                    let text = answer.config;
                    let argues = answer.decisions.join("\n").contains("majority");
                    assert_eq!(
                        text.contains("\npartition = \"majority\"\n"),
                        argues,
                        "{text}"
                    );
                    let stores = text.contains("\ndata = ");
                    assert!(stores || !argues, "{text}");
                    assert_eq!(text.contains("\nsite = "), rtt_ms > 0.0, "{text}");
                    let table: toml::Table = toml::from_str(&text).unwrap();
                    let known = include_str!("../../../../deploy/thicket.toml");
                    for key in table.keys() {
                        let is_key = |line: &str| {
                            let line = line.trim_start_matches(['#', ' ']);
                            line.strip_prefix(key.as_str())
                                .is_some_and(|rest| rest.starts_with(" ="))
                        };
                        assert!(known.lines().any(is_key), "{key}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_a_measure_of_comparison_has_its_number() {
        let head = |name: &str, workload: &str, measure: &str| {
            let scenario = format!(
                "title = \"t\"\nnetwork = {{ sites = 2 }}\nsystem = [{{ name = \"a\", driver = \"thicket\" }}]\n\
                 workload = {{ pattern = \"fan-out\", {workload} }}\n{measure}"
            );
            let results = serde_json::from_value(serde_json::json!({
                "version": 1, "title": "t", "source": null, "valid": true, "ended_early": null, "scenario": scenario, "runs": [],
                "environment": {
                    "kernel": "6", "cpu": "x", "cores": 2, "memory_mib": 1, "backend": "wire", "links_first": true, "limits": "none",
                    "congestion_control": "cubic", "oversubscribed": false, "lab": "0", "commit": null, "optimised": true, "brokers": {}
                }
            }));
            heading(name, "plain", &results.unwrap())
        };
        let slow = "rate_per_s = 10, messages = 30";
        let crash = "measure = { kind = \"crash\", site = \"s2\" }";
        assert_eq!(head(DELAY, slow, ""), "plain");
        assert_eq!(head(LOST, slow, ""), "plain");
        assert_eq!(head(DELAY, "rate_per_s = 1000, messages = 30", ""), "M2 ms");
        assert_eq!(head(LOST, "rate_per_s = 10", crash), "M5 lost");
    }

    #[test]
    fn a_flag_wins_over_an_answer_and_an_answer_over_the_default() {
        let mut ask = Ask {
            answers: Some(&b"7\n\nmany\n"[..]),
            is_terminal: false,
        };
        assert_eq!(ask.number("rate", Some(5.0), 1.0).unwrap(), 5.0);
        assert_eq!(ask.number("rate", None, 1.0).unwrap(), 7.0);
        assert_eq!(ask.of("loss", None, Loss::None).unwrap(), Loss::None);
        let error = ask.number("   clients", None, 1).unwrap_err().to_string();
        assert_eq!(error, "clients? many: it is a number");
        assert_eq!(ask.number("clients", None, 3).unwrap(), 3);
    }

    #[test]
    fn a_capacity_that_nobody_measured_is_called_a_default() {
        let line = |capacity| {
            let needs = Needs {
                capacity,
                ..needs()
            };
            answer(&needs).decisions[1].clone()
        };
        assert!(line(None).contains("60 % of the default of 10000, which was not measured"));
        assert!(line(Some(5000.0)).contains("60 % of the 5000 of --capacity"));
    }
}
