//! Commands that measure no broker: check, verify, drivers, down.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use thicket_bench::report::Table;
use thicket_lab::capture::Capture;
use thicket_lab::prepare::prepare as lab_prepare;
use thicket_lab::probe;
use thicket_lab::scenario::Scenario;
use thicket_lab::testbed::{Carried, Setup, Testbed, check_machine};
use thicket_lab::topology::Topology;
use thicket_lab::{driver, hand, janitor, running, unprivileged};

use super::backend::BackendChoice;
use super::hand::Network;
use super::{load, show};
use crate::files;

/// Rest after the last frame of a verification.
const SETTLE: Duration = Duration::from_millis(200);

/// Arguments of `thicket lab check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Explains a scenario.
pub fn check(arguments: &Check) -> anyhow::Result<()> {
    let (_, scenario, cells) = load(&arguments.file)?;
    show(&scenario.explain(&cells))
}

/// The most probes of a pair.
const MOST_PROBES: usize = 100_000;
/// The longest that TCP is sent.
const LONGEST_TCP_S: f64 = 3600.0;

/// Arguments of `thicket lab verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Number of probes for each pair
    #[arg(long, value_name = "N", default_value_t = 200)]
    probes: usize,
    /// Also send TCP from the first site to the second for this many seconds
    #[arg(long, value_name = "SECONDS")]
    tcp: Option<f64>,
    /// Compare the counters of links with a capture by tcpdump, of the probes and of the data of --tcp
    #[arg(long)]
    capture: bool,
    /// What delays the frames
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    backend: BackendChoice,
}

/// Measures the network of a scenario.
pub fn verify(arguments: &Verify) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=MOST_PROBES).contains(&arguments.probes),
        "--probes {}: expected 1 to {MOST_PROBES}",
        arguments.probes
    );
    if let Some(seconds) = arguments.tcp {
        anyhow::ensure!(
            seconds > 0.0 && seconds <= LONGEST_TCP_S,
            "--tcp {seconds}: expected more than 0 and up to {LONGEST_TCP_S} s"
        );
    }
    let (scenario, _) = Scenario::load(&arguments.file)?;
    unprivileged::enter_if_needed(&std::env::current_exe()?)?;
    check_machine()?;
    if arguments.capture {
        Capture::check()?;
    }
    janitor::clean_dead()?;
    let names = scenario.network.names().map_err(anyhow::Error::msg)?;
    let topology =
        Topology::new(&scenario.network, &names, scenario.seed).map_err(anyhow::Error::msg)?;
    let program = std::env::current_exe()?;
    let start = Instant::now();
    let mut testbed = Testbed::up(&Setup {
        program: &program,
        topology,
        limits: scenario.brokers.clone(),
        groups: Vec::new(),
        backend: arguments.backend.resolve(),
        seed: scenario.seed,
        interrupted: &Arc::default(),
    })?;
    show(&format!(
        "{} sites, {} links, built in {:.2} s; limits by {}\n",
        testbed.sites.len(),
        testbed.topology.links.len(),
        start.elapsed().as_secs_f64(),
        testbed.controllers.describe()
    ))?;
    let folder = janitor::folder(std::process::id());
    let capture = if arguments.capture {
        files::make_folder(&folder)?;
        Some(Capture::start(&testbed, &folder)?)
    } else {
        None
    };
    let start = testbed.carried()?;
    let pairs = probe::round_trips(&testbed.topology, &testbed.sites, arguments.probes, &|| {
        Ok(())
    })?;
    let mut table = Table::new(["PAIR", "EXPECTED MS", "MIN", "MEDIAN", "P99", "LOST", ""]);
    for pair in &pairs {
        table.row([
            format!("{} - {}", pair.a, pair.b),
            format!("{:.2}", pair.expected_ms),
            format!("{:.2}", pair.min_ms),
            format!("{:.2}", pair.p50_ms),
            format!("{:.2}", pair.p99_ms),
            pair.lost.to_string(),
            if pair.is_right() { "" } else { "OFF" }.to_owned(),
        ]);
    }
    show(&table.to_text())?;
    let before = testbed.carried()?;
    if let Some(seconds) = arguments.tcp {
        let goodput = probe::tcp_goodput(&testbed.sites, 0, 1, seconds)?;
        show(&format!(
            "TCP from {} to {}: {goodput:.2} Mbit/s\n",
            names[0], names[1]
        ))?;
        for (link, (after, before)) in testbed.carried()?.iter().zip(&before).enumerate() {
            let carried = after.since(before);
            if carried == Carried::default() {
                continue;
            }
            let link = testbed.topology.links[link];
            show(&format!(
                "link {} - {}: {} bytes in {} frames, {} in {} back\n",
                names[link.a],
                names[link.b],
                carried.bytes_ab,
                carried.packets_ab,
                carried.bytes_ba,
                carried.packets_ba
            ))?;
        }
    }
    if let Some(capture) = capture {
        // Frames that a link still holds have left the router: they are counted and captured.
        std::thread::sleep(SETTLE);
        let counted = testbed.carried()?;
        let captured = capture.finish();
        std::fs::remove_dir_all(&folder)?;
        hold_against(&testbed, &start, &counted, &captured?)?;
    }
    let report = testbed.links.report()?;
    show(&format!(
        "link process: {} frames, {} lost, {} late by 1 ms or more, p99 {:.0} us late, stood still for {:.1} ms at most, {:.2} s of CPU, {}\n",
        report.frames,
        report.dropped,
        report.late,
        report.late_p99_us,
        report.longest_stall_ms,
        report.cpu_s,
        if testbed.links.realtime {
            "runs before others"
        } else {
            "runs like others"
        }
    ))?;
    anyhow::ensure!(
        pairs.iter().all(probe::PairRtt::is_right),
        "round trips are off"
    );
    Ok(())
}

/// An error unless the interfaces counted what was captured, to the byte.
fn hold_against(
    testbed: &Testbed,
    start: &[Carried],
    counted: &[Carried],
    captured: &[Carried],
) -> anyhow::Result<()> {
    let (mut bytes, mut frames) = (0, 0);
    let names = &testbed.topology.sites;
    for (number, captured) in captured.iter().enumerate() {
        let counted = counted[number].since(&start[number]);
        let link = testbed.topology.links[number];
        anyhow::ensure!(
            counted == *captured,
            "link {} - {}: the interfaces counted {counted:?}, captured were {captured:?}",
            names[link.a],
            names[link.b]
        );
        bytes += counted.bytes_ab + counted.bytes_ba;
        frames += counted.packets_ab + counted.packets_ba;
    }
    show(&format!(
        "counters equal the capture on every link: {bytes} bytes in {frames} frames\n"
    ))?;
    Ok(())
}

/// Lists the drivers.
pub fn drivers() -> anyhow::Result<()> {
    let drivers = driver::available(&std::env::current_exe()?);
    let widths = drivers.iter().map(|driver| driver.name.len());
    let width = widths.max().unwrap_or_default();
    for driver in drivers {
        let here = driver
            .found
            .unwrap_or_else(|missing| format!("NOT HERE: {missing}"));
        show(&format!(
            "{:<width$} {}\n{:width$} {here}\n",
            driver.name, driver.about, ""
        ))?;
    }
    Ok(())
}

/// Arguments of `thicket lab prepare`.
#[derive(Debug, Args)]
pub struct Prepare {
    /// Driver, as listed by `thicket lab drivers`
    driver: String,
}

/// Prepares a driver's broker.
pub fn prepare(arguments: &Prepare) -> anyhow::Result<()> {
    let folder = lab_prepare(&arguments.driver, &|line| eprintln!("{line}"))?;
    show(&format!(
        "{}: ready in {}\n",
        arguments.driver,
        folder.display()
    ))?;
    Ok(())
}

/// Arguments of `thicket lab down`.
#[derive(Debug, Args)]
pub struct Down {
    /// Also remove what belongs to labs that still run
    #[arg(long, conflicts_with = "lab")]
    all: bool,
    #[command(flatten)]
    pub network: Network,
}

/// Cleans up after other labs.
pub fn down(arguments: &Down) -> anyhow::Result<()> {
    // Those that run by hand end in order and clean up themselves.
    let by_hand = match arguments.network.lab {
        None if arguments.all || running::all_running().is_empty() => running::all_running(),
        lab => vec![running::running(lab)?],
    };
    for lab in by_hand {
        hand::order(Some(lab), &hand::Order::Down)?;
        while janitor::found().iter().any(|&(found, _)| found == lab) {
            std::thread::sleep(Duration::from_millis(50));
        }
        show(&format!("lab {lab}: ended\n"))?;
    }
    let found = janitor::found();
    let chosen: Vec<u32> = found
        .iter()
        .filter(|(_, alive)| arguments.all || !alive)
        .map(|&(lab, _)| lab)
        .collect();
    if !chosen.is_empty() {
        janitor::clean(&chosen)?;
    }
    for (lab, alive) in &found {
        let state = match (chosen.contains(lab), alive) {
            (true, _) => "taken away",
            (false, _) => "still runs; --all takes it away as well",
        };
        show(&format!("lab {lab}: {state}\n"))?;
    }
    if found.is_empty() {
        show("nothing is left of any lab\n")?;
    }
    Ok(())
}
