//! A network controlled by hand: `lab up` keeps one running and accepts orders of other lab commands over a socket, one JSON object for each line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::error::LabError;
use crate::faults;
use crate::janitor::{self, socket};
use crate::links::Ways;
use crate::net;
use crate::running::running;
use crate::scenario::Fault;
use crate::testbed::{Carried, Testbed};
use crate::unprivileged;

/// Interval between checks for orders.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for an order's line, and for its answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An order to a running network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Inject or repair a fault now.
    Do(Box<Fault>),
    /// Report the status.
    Status,
    /// End the network.
    Down,
}

/// The status of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Sites, with the number of their brokers' processes.
    pub sites: Vec<(String, usize)>,
    /// Links: both ends, current settings, traffic.
    pub links: Vec<(String, String, Ways, Carried)>,
}

/// The reply to an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done.
    Done,
    /// The status.
    Status(Status),
    /// It could not be done.
    Refused(String),
}

/// Accepts orders until one is to end, or `interrupted`.
pub fn serve(
    testbed: &mut Testbed,
    mut cluster: Option<&mut Cluster>,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), LabError> {
    let path = socket(std::process::id());
    // A socket left by a dead lab with the same process number.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(LabError::io(path.display()))?;
    if unprivileged::is_inside() {
        janitor::mark_user_namespace().map_err(LabError::io("temporary folder"))?;
    }
    let result = take_orders(&listener, testbed, &mut cluster, interrupted);
    let _ = std::fs::remove_file(&path);
    result
}

fn take_orders(
    listener: &UnixListener,
    testbed: &mut Testbed,
    cluster: &mut Option<&mut Cluster>,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), LabError> {
    listener
        .set_nonblocking(true)
        .map_err(LabError::io("socket of the lab"))?;
    while !interrupted() {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // An incomplete order gets no answer; the network keeps running.
        let Ok(order) = read::<Order>(&stream) else {
            continue;
        };
        let reply = match &order {
            Order::Do(fault) => match obey(fault, testbed, cluster) {
                Ok(()) => Reply::Done,
                Err(reason) => Reply::Refused(reason),
            },
            Order::Status => match status(testbed) {
                Ok(status) => Reply::Status(status),
                Err(error) => Reply::Refused(error.to_string()),
            },
            Order::Down => Reply::Done,
        };
        let _ = write(&stream, &reply);
        if order == Order::Down {
            break;
        }
    }
    Ok(())
}

fn obey(
    fault: &Fault,
    testbed: &mut Testbed,
    cluster: &mut Option<&mut Cluster>,
) -> Result<(), String> {
    fault.check_in(&testbed.topology, "")?;
    match cluster {
        Some(cluster) => faults::apply(fault, testbed, cluster).map_err(|error| error.to_string()),
        None if fault.site.is_some() => Err("this network was started without brokers".to_owned()),
        None => faults::apply_to_links(fault, testbed).map_err(|error| error.to_string()),
    }
}

fn status(testbed: &Testbed) -> Result<Status, LabError> {
    let names = &testbed.topology.sites;
    let carried = testbed.carried()?;
    let links = testbed.topology.links.iter().zip(carried).enumerate();
    Ok(Status {
        sites: names
            .iter()
            .enumerate()
            .map(|(site, name)| (name.clone(), testbed.broker_processes(site).len()))
            .collect(),
        links: links
            .map(|(index, (link, carried))| {
                let ends = (names[link.a].clone(), names[link.b].clone());
                (ends.0, ends.1, testbed.links.now(index), carried)
            })
            .collect(),
    })
}

/// Sends an order to the network that runs by hand: `lab`, or the only one.
pub fn order(lab: Option<u32>, order: &Order) -> Result<Reply, LabError> {
    let path = socket(running(lab)?);
    let stream = UnixStream::connect(&path).map_err(LabError::io(path.display()))?;
    write(&stream, order)
        .and_then(|()| read(&stream))
        .map_err(LabError::io(path.display()))
}

/// Which of a site's namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// That of its clients.
    Clients,
    /// That of its broker, whose loopback has the broker's HTTP API.
    Broker,
}

/// A namespace of a site in the network that runs by hand.
pub fn namespace_of(lab: Option<u32>, site: &str, side: Side) -> Result<PathBuf, LabError> {
    let lab = running(lab)?;
    let Reply::Status(status) = order(Some(lab), &Order::Status)? else {
        return Err(LabError::Misuse("the lab does not answer".to_owned()));
    };
    let names: Vec<&str> = status.sites.iter().map(|(name, _)| name.as_str()).collect();
    match names.iter().position(|name| *name == site) {
        Some(number) => {
            let names = net::site(lab, number);
            Ok(net::path(match side {
                Side::Clients => &names.clients,
                Side::Broker => &names.broker,
            }))
        }
        None => Err(LabError::Misuse(format!(
            "there is no site {site}, only {}",
            names.join(", ")
        ))),
    }
}

fn read<T: serde::de::DeserializeOwned>(stream: &UnixStream) -> std::io::Result<T> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn write(mut stream: &UnixStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}
