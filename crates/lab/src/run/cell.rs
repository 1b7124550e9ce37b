//! One run of a cell: its phases, the measurement, and the counters that are read between the phases.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thicket_bench::Layering;
use thicket_bench::generator::{Fleet, Node};
use thicket_bench::process;
use thicket_bench::report::chart::Chart;
use thicket_transport::tls::ClientTls;

use super::Bench;
use crate::cluster::{Cluster, repaired_max_s};
use crate::error::LabError;
use crate::faults;
use crate::limits::Use;
use crate::measured::{Measured, measure};
use crate::results::{self, BrokerUse, LinkTraffic, Phase, Run};
use crate::runs::Files;
use crate::scenario::{Layers, Measure, clients, prefix};
use crate::testbed::{Carried, Testbed};

/// The path of WebSocket at all brokers.
const WEBSOCKET_PATH: &str = "/mqtt";
/// Interval between checks whether a measurement has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// Time that a measurement has after an interruption to return what it has measured.
const GRACE: Duration = Duration::from_secs(1);

impl Bench<'_> {
    /// One run: its phases, with all counters read between them.
    pub(super) fn cell(
        &self,
        cell: usize,
        repeat: u64,
        run: &mut Run,
        mut lab: Option<(&mut Testbed, &mut Cluster)>,
        nodes: &[Node],
        pids: &[u32],
    ) -> Result<Measured, LabError> {
        let scenario = &self.cells[cell].scenario;
        let names = scenario.network.names().map_err(LabError::Machine)?;
        let nodes = lab
            .as_ref()
            .map_or_else(|| nodes.to_vec(), |(_, cluster)| cluster.nodes.clone());
        let look = |lab: &Option<(&mut Testbed, &mut Cluster)>| {
            Look::take(lab.as_ref().map(|(testbed, _)| &**testbed), pids)
        };
        // Traffic of forming the cluster, or of removing the clients of the previous run, is not control traffic.
        self.rest(scenario.phases.settle_s.value())?;
        let start = look(&lab)?;
        self.rest(scenario.phases.control_s.value())?;
        let idle = look(&lab)?;
        run.phases
            .push(idle.since(&start, "control", &names, lab.as_ref()));
        let seed = scenario.seed + repeat;
        let mut prefix = prefix(cell, repeat);
        if lab.is_none() {
            // Brokers of others may still have the sessions of an earlier run.
            prefix = format!("{prefix}-{:07}", std::process::id());
        }
        let layers = scenario.workload.layers();
        let nodes = if lab.is_some() {
            of_layers(nodes, layers)
        } else {
            nodes
        };
        let mut clients = clients(scenario, &names, &nodes, &prefix, seed);
        clients.layering = layering(layers)?;
        clients.stop = Arc::clone(self.options.interrupted).into();
        let entrance = lab
            .as_ref()
            .map(|(testbed, cluster)| cluster.entrance(testbed));
        let connects = matches!(scenario.measure, Measure::Load | Measure::Throughput { .. });
        let (mut generator, mut subscribed) = (None, idle);
        if connects {
            let threads = scenario.workload.threads();
            generator = Some(Fleet::connect(clients.clone(), threads)?);
            let now = look(&lab)?;
            run.phases
                .push(now.since(&subscribed, "subscriptions", &names, lab.as_ref()));
            subscribed = now;
        }
        let own_counters = |lab: &Option<(&mut Testbed, &mut Cluster)>| {
            lab.as_ref().map_or([None; 3], |(testbed, cluster)| {
                cluster.sent_on_links(testbed)
            })
        };
        let own_before = own_counters(&lab);
        let repairs = |lab: &Option<(&mut Testbed, &mut Cluster)>| {
            lab.as_ref()
                .map_or_else(Vec::new, |(testbed, cluster)| cluster.repairs(testbed))
        };
        let repairs_before = repairs(&lab);
        let converged_s =
            (lab.as_ref()).and_then(|(testbed, cluster)| cluster.converged_max_s(testbed));
        let (orders, wanted) = channel();
        let worker = {
            let scenario = scenario.clone();
            std::thread::spawn(move || measure(&scenario, generator, clients, entrance, orders))
        };
        let mut followed = faults::Followed::default();
        if let Some((testbed, cluster)) = &mut lab {
            let stop = || worker.is_finished();
            let interrupted = || self.is_interrupted();
            let mut line = faults::TimeLine {
                faults: &scenario.time_line(seed),
                testbed,
                cluster,
                orders: &wanted,
                stop: &stop,
                interrupted: &interrupted,
            };
            followed = line.follow();
            if self.is_interrupted() {
                // Whatever still waits for an answer of a broker gets an error.
                cluster.kill_all(testbed);
            }
        }
        drop(wanted);
        run.faults = followed.done;
        run.warnings = followed.missed;
        let error = followed.error.map(|error| error.to_string());
        run.invalid.extend(error);
        let mut measured = self.result_of(worker)?;
        if let (Some((_, cluster)), Some(usage)) = (&lab, &followed.usage)
            && !scenario.faults.is_empty()
        {
            let sites = names.iter().enumerate();
            let sites = sites.map(|(site, name)| cluster.has_broker(site).then(|| name.clone()));
            // It has brokers that joined too.
            let plot = usage.plot(&sites.collect::<Vec<_>>(), &run.faults);
            measured.cpu = plot.or(measured.cpu);
        }
        if let Some(longest_s) = followed.joined_s.into_iter().reduce(f64::max) {
            measured.metrics.insert("join_s".to_owned(), longest_s);
        }
        let is_cut = self.is_interrupted();
        if is_cut || measured.error.is_some() {
            keep_files(run, self.options.folder, cell, &measured)?;
            return match measured.error {
                Some(error) => Err(error),
                None => Err(LabError::Interrupted),
            };
        }
        let published = look(&lab)?;
        run.phases
            .push(published.since(&subscribed, "publish", &names, lab.as_ref()));
        run.metrics = measured.metrics.clone();
        run.metrics.extend(results::phases_metrics(&run.phases));
        let own = own_before.into_iter().zip(own_counters(&lab));
        for (name, (before, after)) in results::OWN_COUNTERS.into_iter().zip(own) {
            if let (Some(before), Some(after)) = (before, after) {
                let sent = after.saturating_sub(before) as f64;
                run.metrics.insert(name.to_owned(), sent);
            }
        }
        results::split_traffic(&mut run.metrics);
        if let Measure::Connections { count, .. } = scenario.measure {
            let memory = |phase: &Phase| {
                let all = phase.brokers.iter().map(|it| it.memory_kib);
                all.sum::<Option<u64>>()
            };
            if let (Some(before), Some(after)) = (memory(&run.phases[0]), memory(&run.phases[1])) {
                let bytes = 1024.0 * (after as f64 - before as f64) / count as f64;
                run.metrics
                    .insert("memory_bytes_per_connection".to_owned(), bytes);
            }
        }
        if let Some((testbed, cluster)) = &mut lab {
            run.metrics
                .insert("cluster_formed_s".to_owned(), cluster.formed_s);
            if let Some(start_s) = cluster.mean_start_s() {
                run.metrics.insert("broker_start_s".to_owned(), start_s);
            }
            for (name, seconds) in [
                ("converged_max_s", converged_s),
                (
                    "repaired_max_s",
                    repaired_max_s(&repairs_before, &cluster.repairs(testbed)),
                ),
            ] {
                if let Some(seconds) = seconds {
                    run.metrics.insert(name.to_owned(), seconds);
                }
            }
            let all: Vec<usize> = (0..testbed.topology.links.len()).collect();
            if !run.faults.is_empty()
                && let Err(error) = testbed.links.heal(&all)
            {
                run.invalid.push(error.to_string());
            }
        }
        // The measurement is complete here: an interruption does not touch it any more.
        keep_files(run, self.options.folder, cell, &measured)?;
        Ok(measured)
    }

    /// Waits for the end of a measurement. One that does not end after an interruption is left behind: the process ends soon.
    fn result_of(
        &self,
        worker: JoinHandle<Result<Measured, LabError>>,
    ) -> Result<Measured, LabError> {
        let mut interrupted_at = None;
        while !worker.is_finished() {
            if self.is_interrupted()
                && interrupted_at.get_or_insert_with(Instant::now).elapsed() > GRACE
            {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(PAUSE);
        }
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The brokers' addresses for clients, with the port for what these have over TCP.
fn of_layers(mut nodes: Vec<Node>, layers: Layers) -> Vec<Node> {
    for node in &mut nodes {
        node.address.set_port(layers.port());
    }
    nodes
}

/// Clients accept any certificate.
fn layering(layers: Layers) -> Result<Layering, LabError> {
    let tls = ClientTls {
        insecure: true,
        ..ClientTls::default()
    };
    let refused = |error| LabError::Machine(format!("TLS: {error}"));
    Ok(Layering {
        tls: layers
            .tls
            .then(|| tls.load())
            .transpose()
            .map_err(refused)?,
        websocket: layers.websocket.then(|| WEBSOCKET_PATH.to_owned()),
    })
}

/// Writes what was measured beside the results.
fn keep_files(
    run: &mut Run,
    folder: &Path,
    cell: usize,
    measured: &Measured,
) -> Result<(), LabError> {
    let chart = measured.time_line();
    let time_line = chart.as_ref().map(Chart::to_svg);
    let time_line_data = chart.as_ref().map(Chart::to_tsv);
    let files = Files {
        samples: measured.samples.as_deref(),
        acknowledgements: measured.acknowledgements.as_deref(),
        time_line: time_line.as_deref(),
        time_line_data: time_line_data.as_deref(),
    };
    run.keep(folder, cell, files)
}

/// All counters at one time.
struct Look {
    at: Instant,
    carried: Vec<Carried>,
    used: Vec<Use>,
    by_pid: Vec<(process::CpuReading, u64)>,
}

impl Look {
    fn take(testbed: Option<&Testbed>, pids: &[u32]) -> Result<Self, LabError> {
        let pid = |&pid: &u32| {
            let memory = process::memory(pid).unwrap_or_default();
            process::cpu(pid)
                .map(|cpu| (cpu, memory.pss_kib))
                .map_err(LabError::io(format!("process {pid}")))
        };
        Ok(Self {
            at: Instant::now(),
            carried: testbed.map_or(Ok(Vec::new()), Testbed::carried)?,
            used: testbed.map_or(Vec::new(), Testbed::used),
            by_pid: pids.iter().map(pid).collect::<Result<_, _>>()?,
        })
    }

    fn since(
        &self,
        before: &Self,
        name: &str,
        names: &[String],
        lab: Option<&(&mut Testbed, &mut Cluster)>,
    ) -> Phase {
        let links = lab.map_or(&[][..], |(testbed, _)| &testbed.topology.links);
        let traffic = links.iter().zip(self.carried.iter().zip(&before.carried));
        let by_group = self.used.iter().zip(&before.used).enumerate();
        let by_group = by_group
            .filter(|(site, _)| lab.is_some_and(|(_, cluster)| cluster.has_broker(*site)))
            .map(|(site, (now, before))| BrokerUse {
                site: names[site].clone(),
                cpu_s: now.cpu_s - before.cpu_s,
                memory_kib: now.memory_kib,
                memory_peak_kib: now.memory_peak_kib,
                throttled: now.throttled - before.throttled,
            });
        let by_pid = self.by_pid.iter().zip(&before.by_pid).enumerate();
        let by_pid = by_pid.map(|(number, (now, before))| BrokerUse {
            site: names
                .get(number)
                .cloned()
                .unwrap_or_else(|| format!("process {}", number + 1)),
            cpu_s: now.0.since(&before.0),
            memory_kib: Some(now.1),
            memory_peak_kib: None,
            throttled: 0,
        });
        Phase {
            name: name.to_owned(),
            seconds: (self.at - before.at).as_secs_f64(),
            links: traffic
                .map(|(link, (now, before))| LinkTraffic {
                    a: names[link.a].clone(),
                    b: names[link.b].clone(),
                    carried: now.since(before),
                })
                .collect(),
            brokers: by_group.chain(by_pid).collect(),
        }
    }
}
