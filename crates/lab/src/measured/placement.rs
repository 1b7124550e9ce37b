//! Clients of the client library that find their nodes as the system attaches them (Detti V): the traffic between nodes, and the delay of messages.
//!
//! A client is at a random site and first connects to the node of its site. What it does then, and what is counted, is in `thicket bench placement`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thicket_bench::generator::{Node, Scenario as Clients};
use thicket_bench::namespace;
use thicket_bench::placement::{Entry, PlacementExperiment, PlacementOutcome, play_with};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::Measured;
use crate::cluster::Entrance;
use crate::error::LabError;
use crate::scenario::{Scenario, placement_load};

/// The address of a node's HTTP API, in the namespace of its site.
const API: ([u8; 4], u16) = ([127, 0, 0, 1], 18830);
/// Clients that connect at a time.
const IN_FLIGHT: usize = 8;

/// The clients of one site: a thread in its namespace that drives them until this is dropped.
#[derive(Debug)]
struct Site {
    clients: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Site {
    fn start(namespace: Option<PathBuf>) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let clients = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let (entered, has_entered) = std::sync::mpsc::channel();
        let drive = move || {
            let moved = namespace.as_deref().map_or(Ok(()), namespace::move_into);
            let is_there = moved.is_ok();
            // The receiver waits for it.
            let _ = entered.send(moved);
            if is_there {
                // It ends when its site is dropped, which is an error here.
                let _ = runtime.block_on(ended);
            }
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().spawn(drive)?;
        let gone = |_error| std::io::Error::other("the thread of a site's clients has ended");
        has_entered.recv().map_err(gone)??;
        Ok(Self {
            clients,
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Attaches the clients and counts for the duration of the workload.
pub(super) fn measure(
    scenario: &Scenario,
    clients: &Clients,
    entrance: &Entrance,
) -> Result<Measured, LabError> {
    let attach = (entrance.by)
        .ok_or_else(|| LabError::Misuse("system.attach: no placement is asked for".to_owned()))?;
    let experiment = experiment(scenario, clients)?;
    let place = |node: &Node| node.namespace.clone();
    let started: std::io::Result<Vec<Site>> = (entrance.brokers.iter())
        .map(|node| Site::start(place(node)))
        .collect();
    let sites = started.map_err(LabError::io("the clients of a site"))?;
    let entry = |(number, node): (usize, &Node)| Entry {
        address: node.address,
        api: API.into(),
        api_namespace: entrance.api_namespaces.get(number).cloned(),
        pid: entrance.pids.get(number).copied().unwrap_or_default(),
        clients: sites[number].clients.clone(),
    };
    let entries = entrance.brokers.iter().enumerate().map(entry).collect();
    let outcome = play_with(&experiment, attach, entries)?;
    Ok(Measured {
        metrics: metrics(&outcome),
        ..Measured::default()
    })
}

fn experiment(scenario: &Scenario, clients: &Clients) -> Result<PlacementExperiment, LabError> {
    let load = placement_load(&clients.workload).map_err(LabError::Misuse)?;
    let workload = &scenario.workload;
    let rate = workload.rate_per_s.map_or(0.0, |rate| rate.value());
    let seconds = workload.seconds.map_or(1.0, |seconds| seconds.value());
    Ok(PlacementExperiment {
        thicket: Path::new("").to_owned(),
        nodes: clients.nodes.len(),
        load,
        rate_per_s: rate / load.topics() as f64,
        payload_len: workload.payload_bytes,
        hold: Duration::from_secs_f64(seconds),
        attach: Vec::new(),
        in_flight: IN_FLIGHT,
        seed: clients.seed,
        slices: 1,
    })
}

fn metrics(outcome: &PlacementOutcome) -> BTreeMap<String, f64> {
    let lost = outcome.expected.saturating_sub(outcome.received);
    let figures = [
        ("internal_msgs_per_s", outcome.internal_per_s),
        ("model_internal_msgs_per_s", outcome.model_internal_per_s),
        ("delivered_msgs_per_s", outcome.external_out_per_s),
        ("traffic_overhead", outcome.overhead()),
        ("client_sessions", outcome.sessions as f64),
        ("client_setup_mean_ms", outcome.setup_ms),
        ("broker_cpu_us_per_message", outcome.cpu_us),
        ("load_jain", outcome.jain),
        ("delay_mean_ms", outcome.delay_mean_ms),
        ("delay_p50_ms", outcome.delay_ms[0]),
        ("delay_p99_ms", outcome.delay_ms[1]),
        ("expected_messages", outcome.expected as f64),
        ("delivered_messages", outcome.received as f64),
        ("lost_messages", lost as f64),
    ];
    figures.map(|(name, value)| (name.to_owned(), value)).into()
}
