//! Idle connections (Comparison M3): how many a broker accepts, how fast, and the cost of each.

use std::time::Duration;

use serde::Serialize;

use crate::BenchError;
use crate::generator::{Generator, Scenario, Watch};
use crate::process::{self, Memory};
use crate::workload::Workload;

/// The cost of idle connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleCost {
    /// Connections, all accepted by CONNACK.
    pub connections: usize,
    /// Seconds from the first attempt to the last CONNACK.
    pub seconds: f64,
    /// Connections a second.
    pub connects_per_s: f64,
    /// Memory of the watched processes before and with the connections; `None` if there are none.
    pub memory: Option<(Memory, Memory)>,
    /// Growth of the proportional memory for each connection, in bytes, without the kernel's buffers.
    pub bytes_each: Option<f64>,
    /// CPU microseconds of the watched processes for each connection.
    pub broker_us_each: Option<f64>,
    /// CPU microseconds of the generator for each connection.
    pub own_us_each: f64,
}

/// Opens `connections` idle clients, waits for `hold`, measures, and closes them.
pub fn measure(
    mut scenario: Scenario,
    connections: usize,
    hold: Duration,
    watch: &Watch,
) -> Result<IdleCost, BenchError> {
    scenario.workload = Workload::Idle {
        clients: connections,
    };
    let readings = || -> Result<Vec<_>, BenchError> {
        watch
            .pids
            .iter()
            .map(|&pid| process::cpu(pid).map_err(BenchError::system(format!("process {pid}"))))
            .collect()
    };
    let before = memory(watch)?;
    let cpu_before = readings()?;
    let own_before = process::own_cpu_s();
    let stop = scenario.stop.clone();
    let generator = Generator::connect(scenario)?;
    let own_s = process::own_cpu_s() - own_before;
    let cpu_s: f64 = readings()?
        .iter()
        .zip(&cpu_before)
        .map(|(after, before)| after.since(before))
        .sum();
    stop.sleep(hold)?;
    let after = memory(watch)?;
    let each = |whole: f64| whole / connections as f64;
    let watched = !watch.pids.is_empty();
    let growth = after.pss_kib as f64 - before.pss_kib as f64;
    let seconds = generator.connecting().as_secs_f64();
    Ok(IdleCost {
        connections: generator.clients(),
        seconds,
        connects_per_s: connections as f64 / seconds,
        memory: watched.then_some((before, after)),
        bytes_each: watched.then(|| each(growth * 1024.0)),
        broker_us_each: watched.then(|| each(cpu_s * 1e6)),
        own_us_each: each(own_s * 1e6),
    })
}

fn memory(watch: &Watch) -> Result<Memory, BenchError> {
    watch.pids.iter().try_fold(Memory::default(), |sum, &pid| {
        let one =
            process::memory(pid).map_err(BenchError::system(format!("memory of process {pid}")))?;
        Ok(Memory {
            rss_kib: sum.rss_kib + one.rss_kib,
            pss_kib: sum.pss_kib + one.pss_kib,
        })
    })
}
