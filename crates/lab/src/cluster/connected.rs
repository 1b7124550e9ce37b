//! Whether clients of all brokers reach each other.

use std::time::{Duration, Instant};

use thicket_bench::generator::{Generator, Load, Node, Scenario as Clients, Span, Watch};
use thicket_bench::workload::Workload;
use thicket_mqtt::Qos;

use super::PAUSE;
use crate::error::LabError;

/// Waits until a message of a client at every node reaches a client at every node, exactly once. `pause` waits, unless the user ends the lab.
pub fn wait_connected(
    nodes: &[Node],
    patience: Duration,
    login: Option<&(String, String)>,
    pause: &dyn Fn(Duration) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let start = Instant::now();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let last = match try_all(nodes, attempt, login) {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => reason,
            Err(error) => error.to_string(),
        };
        if start.elapsed() > patience {
            return Err(LabError::NotReady(format!(
                "messages of clients at every node do not reach clients at every node: {last}"
            )));
        }
        pause(4 * PAUSE)?;
    }
}

/// Sends one message from each node to all; returns what is wrong, if anything.
fn try_all(
    nodes: &[Node],
    attempt: u32,
    login: Option<&(String, String)>,
) -> Result<Option<String>, LabError> {
    let workload = Workload::FanOut {
        publishers: nodes.len(),
        subscribers: nodes.len(),
    };
    let mut clients = Clients::new(nodes.to_vec(), workload);
    clients.qos = Qos::AtLeastOnce;
    clients.login = login.cloned();
    clients.prefix = format!("ready{:07}-{attempt:03}", std::process::id());
    let mut generator = Generator::connect(clients)?;
    let load = Load::Closed { window: 1 };
    let mut span = Span::messages(nodes.len() as u64);
    span.drain = Duration::from_secs(1);
    let outcome = generator.run(load, span, &Watch::default(), &mut |_| {})?;
    let counts = outcome.counts;
    Ok((!counts.is_clean()).then(|| {
        format!(
            "{} of {} messages arrived, {} twice",
            counts.delivered, counts.expected, counts.duplicated
        )
    }))
}
