//! `thicket lab watch`: the running network, anew every second.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use thicket_lab::hand::{Order, Reply, Status, order};
use thicket_lab::screen::screen;

use super::hand::Network;

/// Arguments of `thicket lab watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Time between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Stop after this many updates [default: on Ctrl-C, or when the network is removed]
    #[arg(long, value_name = "N")]
    looks: Option<u64>,
    #[command(flatten)]
    pub network: Network,
}

/// Shows the network until Ctrl-C.
pub fn watch(arguments: &Watch) -> anyhow::Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
    let lab = arguments.network.lab;
    let mut before = look(lab)?;
    let mut at = Instant::now();
    let mut looks = 0;
    while arguments.looks.is_none_or(|most| looks < most) {
        let until = at + Duration::from_secs(arguments.every);
        while Instant::now() < until && !interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let now = look(lab)?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        let mut out = std::io::stdout();
        // Home, and what was below is gone.
        write!(out, "\x1b[H\x1b[2J{}", screen(&before, &now, seconds))?;
        out.flush()?;
        before = now;
        looks += 1;
    }
    Ok(())
}

fn look(lab: Option<u32>) -> anyhow::Result<Status> {
    match order(lab, &Order::Status)? {
        Reply::Status(status) => Ok(status),
        _ => anyhow::bail!("the lab does not answer"),
    }
}
