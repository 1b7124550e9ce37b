//! Commands on a network that runs by hand.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use thicket_bench::namespace;
use thicket_bench::report::Table;
use thicket_lab::cluster::Cluster;
use thicket_lab::driver::{Brokers, Driver};
use thicket_lab::hand::{Order, Reply, Side, namespace_of, order, serve};
use thicket_lab::janitor;
use thicket_lab::network::{DelayLaw, LinkSettings};
use thicket_lab::scenario::{Action, Fault, Reach};
use thicket_lab::screen;
use thicket_lab::summary::number;
use thicket_lab::testbed::{Setup, Testbed, check_machine};
use thicket_lab::topology::{Topology, broker_address};
use thicket_lab::units::{NonNegative, Percent, Positive};
use thicket_lab::unprivileged;

use super::backend::BackendChoice;
use super::{load, show};
use crate::files;
use crate::interruption;

/// Arguments of `thicket lab up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which of its systems to start [default: the first]
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Start no brokers
    #[arg(long, conflicts_with = "system")]
    bare: bool,
    /// Folder for files and logs of the brokers [default: one that is removed with the network]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What delays the frames
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    backend: BackendChoice,
}

/// Builds a network and keeps it.
pub fn up(arguments: &Up) -> anyhow::Result<()> {
    let (_, scenario, _) = load(&arguments.file)?;
    let system = match &arguments.system {
        None => &scenario.systems[0],
        Some(name) => scenario
            .systems
            .iter()
            .find(|system| system.name == *name)
            .with_context(|| format!("--system {name}: the scenario has no such system"))?,
    };
    let driver = Driver::load(system)?;
    anyhow::ensure!(
        arguments.bare || driver.brokers != Brokers::External,
        "{}: brokers that run elsewhere cannot be started; --bare starts none",
        system.name
    );
    if !arguments.bare {
        let checked = scenario.brokers.check_machine();
        checked.map_err(|reason| anyhow!("{}: {reason}", arguments.file.display()))?;
    }
    let program = std::env::current_exe()?;
    unprivileged::enter_if_needed(&program)?;
    check_machine()?;
    janitor::clean_dead()?;
    let names = scenario.network.names().map_err(anyhow::Error::msg)?;
    let topology =
        Topology::new(&scenario.network, &names, scenario.seed).map_err(anyhow::Error::msg)?;
    let interrupted = interruption::watch()?;
    let own = janitor::folder(std::process::id());
    let folder = arguments.out.as_ref().unwrap_or(&own);
    let mut testbed = Testbed::up(&Setup {
        program: &program,
        topology,
        limits: scenario.brokers.clone(),
        groups: driver.multicast.clone(),
        backend: arguments.backend.resolve(),
        seed: scenario.seed,
        interrupted: &interrupted,
    })?;
    let mut cluster = if arguments.bare {
        None
    } else {
        files::make_folder(folder)?;
        let layers = scenario.workload.layers();
        let reach = Reach::of(&scenario.faults);
        let cluster = Cluster::start(&testbed, &driver, system, &program, folder, layers, reach)?;
        Some(cluster)
    };
    let has_broker = |site| cluster.as_ref().is_some_and(|it| it.has_broker(site));
    let mut lines = String::new();
    for (site, name) in names.iter().enumerate() {
        let address = broker_address(site);
        let _ = match has_broker(site) {
            false => writeln!(lines, "{name}: no broker"),
            true if scenario.network.later.contains(name) => writeln!(
                lines,
                "{name}: no broker until `thicket lab broker join {name}`, then at {address}:1883"
            ),
            true => writeln!(lines, "{name}: broker at {address}:1883"),
        };
    }
    let number = std::process::id();
    show(&format!(
        "{lines}lab {number} is up; `thicket lab status`, `exec`, `set`, `cut`, `heal` and `broker` act on it, Ctrl-C or `thicket lab down` ends it\n"
    ))?;
    let served = serve(&mut testbed, cluster.as_mut(), &|| {
        interrupted.load(Ordering::Relaxed)
    });
    if let Some(cluster) = &mut cluster {
        cluster.stop(&testbed);
    }
    if arguments.out.is_none() && own.exists() {
        std::fs::remove_dir_all(&own)?;
    }
    Ok(served?)
}

/// Which of several networks that are up.
#[derive(Debug, Clone, Copy, Args)]
pub struct Network {
    /// Number of the network, where several run; printed by `lab up`
    #[arg(long, value_name = "NUMBER")]
    pub lab: Option<u32>,
}

/// Arguments of `thicket lab exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// Site
    site: String,
    /// Run it where the broker runs, whose HTTP API is on loopback there: `lab exec --broker s1 -- thicket ctl nodes`
    #[arg(long)]
    broker: bool,
    #[command(flatten)]
    pub network: Network,
    /// Command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Becomes a command among a site's clients, or beside its broker.
pub fn exec(arguments: &Exec) -> anyhow::Result<()> {
    let side = match arguments.broker {
        true => Side::Broker,
        false => Side::Clients,
    };
    let path = namespace_of(arguments.network.lab, &arguments.site, side)?;
    namespace::move_into(&path).with_context(|| path.display().to_string())?;
    let (program, rest) = arguments
        .command
        .split_first()
        .context("there is no command")?;
    Err(std::process::Command::new(program).args(rest).exec()).context(program.clone())
}

/// Two sites with a link.
#[derive(Debug, Args)]
pub struct Link {
    /// One end
    a: String,
    /// The other
    b: String,
    #[command(flatten)]
    pub network: Network,
}

/// Arguments of `thicket lab cut`.
#[derive(Debug, Args)]
pub struct Cut {
    #[command(flatten)]
    pub link: Link,
    /// Only what the first end sends is lost
    #[arg(long)]
    one_way: bool,
}

/// Arguments of `thicket lab set`.
#[derive(Debug, Args)]
pub struct Set {
    #[command(flatten)]
    pub link: Link,
    /// Settings: rtt=50ms; delay=25ms (each way; us, ms, s), or random for each packet: delay=uniform:5ms:15ms, normal:MEAN:SD, log-normal:MEAN:SD
    /// or pareto:MIN:SHAPE; bandwidth=10mbit (kbit, mbit, gbit); queue=100; loss=1%. Numbers without a unit are ms, mbit and %
    #[arg(value_name = "KEY=VALUE", required = true)]
    settings: Vec<String>,
}

/// Arguments of `thicket lab heal`.
#[derive(Debug, Args)]
pub struct Heal {
    /// One end [default: all links]
    #[arg(requires = "b")]
    a: Option<String>,
    /// The other
    b: Option<String>,
    #[command(flatten)]
    pub network: Network,
}

/// What may happen to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fate {
    Kill,
    PowerOff,
    Pause,
    Resume,
    Restart,
    Join,
    Drain,
}

/// Arguments of `thicket lab broker`.
#[derive(Debug, Args)]
pub struct Broker {
    #[arg(value_enum)]
    fate: Fate,
    /// Site of the broker
    site: String,
    #[command(flatten)]
    pub network: Network,
}

/// Changes a link.
pub fn set(arguments: &Set) -> anyhow::Result<()> {
    let settings = all_settings(&arguments.settings).map_err(anyhow::Error::msg)?;
    let mut fault = Fault::now(Action::Slow);
    fault.link = Some([arguments.link.a.clone(), arguments.link.b.clone()]);
    fault.to = Some(settings);
    act(arguments.link.network, fault)
}

/// Cuts a link.
pub fn cut(arguments: &Cut) -> anyhow::Result<()> {
    let mut fault = Fault::now(Action::Cut);
    fault.link = Some([arguments.link.a.clone(), arguments.link.b.clone()]);
    fault.one_way = arguments.one_way;
    act(arguments.link.network, fault)
}

/// Heals a link, or all.
pub fn heal(arguments: &Heal) -> anyhow::Result<()> {
    let mut fault = Fault::now(Action::Heal);
    fault.link = arguments
        .a
        .clone()
        .zip(arguments.b.clone())
        .map(<[String; 2]>::from);
    act(arguments.network, fault)
}

/// Does something to a broker.
pub fn broker(arguments: &Broker) -> anyhow::Result<()> {
    let action = match arguments.fate {
        Fate::Kill => Action::Kill,
        Fate::PowerOff => Action::PowerOff,
        Fate::Pause => Action::Pause,
        Fate::Resume => Action::Resume,
        Fate::Restart => Action::Restart,
        Fate::Join => Action::Join,
        Fate::Drain => Action::Drain,
    };
    act(arguments.network, Fault::of_site(action, &arguments.site))
}

/// Shows how the network stands.
pub fn status(arguments: Network) -> anyhow::Result<()> {
    let Reply::Status(status) = order(arguments.lab, &Order::Status)? else {
        anyhow::bail!("the lab does not answer");
    };
    let mut sites = Table::new(["SITE", "PROCESSES OF THE BROKER"]);
    for (name, processes) in &status.sites {
        sites.row([name.clone(), processes.to_string()]);
    }
    let mut links = Table::new(["LINK", "RTT MS", "MBIT/S", "LOSS %", "BYTES", "BACK"]);
    for (a, b, ways, carried) in &status.links {
        let [shape, _] = ways;
        links.row([
            format!("{a} - {b}"),
            shape.delay.round_trip(),
            shape.bandwidth_mbit.map_or("-".to_owned(), number),
            screen::loss([a, b], ways),
            carried.bytes_ab.to_string(),
            carried.bytes_ba.to_string(),
        ]);
    }
    show(&format!("{}\n{}", sites.to_text(), links.to_text()))
}

fn act(network: Network, fault: Fault) -> anyhow::Result<()> {
    match order(network.lab, &Order::Do(Box::new(fault)))? {
        Reply::Refused(reason) => anyhow::bail!(reason),
        Reply::Done | Reply::Status(_) => Ok(()),
    }
}

fn all_settings(texts: &[String]) -> Result<LinkSettings, String> {
    let mut settings = LinkSettings::default();
    for text in texts {
        setting(&mut settings, text)?;
    }
    let is_of_delay = |text: &&String| text.starts_with("rtt=") || text.starts_with("delay=");
    let of_delay: Vec<&String> = texts.iter().filter(is_of_delay).collect();
    match of_delay[..] {
        [first, second, ..] => Err(format!("{first} and {second} both set the delay, give one")),
        _ => Ok(settings),
    }
}

fn setting(settings: &mut LinkSettings, text: &str) -> Result<(), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or(format!("{text} is not KEY=VALUE"))?;
    if let ("delay", Some((law, parameters))) = (key, value.split_once(':')) {
        settings.delay = Some(law_of(law, parameters).map_err(|error| format!("{text}: {error}"))?);
        return Ok(());
    }
    let number = number_of(key, value).map_err(|error| format!("{text}: {error}"))?;
    let named = |error: String| format!("{text}: {error}");
    match key {
        "rtt" => settings.rtt_ms = Some(NonNegative::try_from(number).map_err(named)?),
        "delay" => settings.one_way_ms = Some(NonNegative::try_from(number).map_err(named)?),
        "bandwidth" => settings.bandwidth_mbit = Some(Positive::try_from(number).map_err(named)?),
        "loss" => settings.loss_percent = Some(Percent::try_from(number).map_err(named)?),
        "queue" if number >= 1.0 => settings.queue_packets = Some(number as u32),
        "queue" => return Err(format!("{text}: a queue holds at least one packet")),
        other => {
            return Err(format!(
                "{other} is no setting of a link: rtt, delay, bandwidth, queue, loss"
            ));
        }
    }
    Ok(())
}

/// A number in the unit that its key has in a file, as in `50ms`.
fn number_of(key: &str, value: &str) -> Result<f64, String> {
    // The first unit is that of the key in a file.
    let units: &[(&str, f64)] = match key {
        "rtt" | "delay" => &[("ms", 1.0), ("us", 0.001), ("s", 1000.0)],
        "bandwidth" => &[("mbit", 1.0), ("kbit", 0.001), ("gbit", 1000.0)],
        "loss" => &[("%", 1.0)],
        _ => &[],
    };
    let in_unit = |(unit, factor): &(&str, f64)| Some((value.strip_suffix(unit)?, *factor));
    let (digits, factor) = units.iter().find_map(in_unit).unwrap_or((value, 1.0));
    let number: f64 = digits.parse().map_err(|_| {
        let units: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
        match &units[..] {
            [] => format!("{value} is no number"),
            units => format!(
                "{value} is no number, with one of the units {} or without",
                units.join(", ")
            ),
        }
    })?;
    Ok(number * factor)
}

/// A law with two parameters, as in `uniform:5ms:15ms`.
fn law_of(law: &str, parameters: &str) -> Result<DelayLaw, String> {
    let (first, second) = parameters
        .split_once(':')
        .ok_or(format!("{law} has two parameters, as in {law}:5ms:15ms"))?;
    // The shape is a number without a unit.
    let second = match law {
        "pareto" => number_of("shape", second)?,
        _ => number_of("delay", second)?,
    };
    DelayLaw::named(law, [number_of("delay", first)?, second])
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_lab::delay::Delay;

    #[test]
    fn a_delay_that_is_set_twice_is_refused_in_the_words_of_the_command_line() {
        let all = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            all_settings(&texts).map(drop)
        };
        let error = all(&["rtt=5ms", "loss=1%", "delay=uniform:5ms:15ms"]).unwrap_err();
        assert_eq!(
            error,
            "rtt=5ms and delay=uniform:5ms:15ms both set the delay, give one"
        );
        assert_eq!(all(&["rtt=5ms", "loss=1%"]), Ok(()));
    }

    #[test]
    fn settings_of_a_link_are_read_with_or_without_units() {
        let mut settings = LinkSettings::default();
        for text in ["rtt=50ms", "loss=1%", "bandwidth=10mbit", "queue=20"] {
            setting(&mut settings, text).unwrap();
        }
        assert_eq!(settings.rtt_ms.map(NonNegative::value), Some(50.0));
        assert_eq!(settings.loss_percent.map(Percent::value), Some(1.0));
        assert_eq!(settings.queue_packets, Some(20));
        for text in ["rtt=0.1s", "delay=500us", "bandwidth=10kbit"] {
            setting(&mut settings, text).unwrap();
        }
        assert_eq!(settings.rtt_ms.map(NonNegative::value), Some(100.0));
        assert_eq!(settings.one_way_ms.map(NonNegative::value), Some(0.5));
        assert_eq!(settings.bandwidth_mbit.map(Positive::value), Some(0.01));
        let mut settings = LinkSettings::default();
        setting(&mut settings, "delay=log-normal:10ms:500us").unwrap();
        let delay = Delay::LogNormal {
            mean_ms: 10.0,
            sd_ms: 0.5,
        };
        assert_eq!(settings.one_way("to"), Ok(delay));
        for (text, expected) in [
            ("delay=uniform:15ms:5ms", "uniform.max_ms: 5 is not above"),
            ("delay=uniform:15ms", "two parameters"),
            ("delay=pareto:5ms:2ms", "2ms is no number"),
            ("delay=cauchy:5:2", "cauchy is no law of a delay: uniform,"),
            ("rtt=50mbit", "units ms, us, s"),
            ("loss=1ms", "units %"),
            ("queue=5ms", "no number"),
            ("rtt=x", "no number"),
            ("loss=101", "percentage"),
            ("colour=1", "no setting"),
            ("rtt", "KEY=VALUE"),
        ] {
            let error = setting(&mut settings, text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
