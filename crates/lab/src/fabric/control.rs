//! Messages between the lab and its fabric process: JSON, one object for each line.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::topology::LinkShape;

/// The first line: what the process must create.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Links whose frames it carries: none with `netem`.
    pub links: Vec<WireLink>,
    /// Multicast groups it forwards.
    pub groups: Vec<SocketAddrV4>,
    /// Interfaces of every router, by site.
    pub routers: Vec<Router>,
    /// For each site and source: what is forwarded where.
    pub forwarding: Vec<Vec<Forwarding>>,
    /// Decides which frames are lost.
    pub seed: u64,
}

/// A link as two TAP devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireLink {
    /// Its ends.
    pub ends: [Device; 2],
    /// What it does.
    pub shape: LinkShape,
}

/// A device in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Path of the namespace.
    pub namespace: PathBuf,
    /// Name of the device.
    pub name: String,
}

/// A router as used for forwarding multicast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Router {
    /// Path of its namespace.
    pub namespace: PathBuf,
    /// Its interfaces: the site's own network first, then its links.
    pub interfaces: Vec<Interface>,
}

/// An interface of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
}

/// What a router does with a datagram of one source: interfaces by their place in [`Router::interfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// Where it must arrive; from anywhere else it is dropped.
    pub from: usize,
    /// Where it is sent.
    pub to: Vec<usize>,
}

/// Later requests of the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// New settings of links, by their place in the plan, for what each of their ends sends, all in the same moment.
    Set(Vec<(usize, [LinkShape; 2])>),
    /// Answer with a [`Report`] of the time since the last one.
    Report,
}

/// Answers of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The devices exist. `realtime`: whether it runs before other processes.
    Ready {
        /// SCHED_FIFO was granted.
        realtime: bool,
    },
    /// Links have their new settings.
    Done,
    /// The report on the time since the last one.
    Report(Report),
    /// The request failed.
    Failed(String),
}

/// The punctuality of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Frames carried.
    pub frames: u64,
    /// Frames lost or over the limit of a queue.
    pub dropped: u64,
    /// Frames written a millisecond or more after they were due; the time that a frame may have waited to be read counts.
    pub late: u64,
    /// 99th percentile of how late they were, in microseconds.
    pub late_p99_us: f64,
    /// The longest time that the process should have run and did not, in milliseconds.
    pub longest_stall_ms: f64,
    /// Its CPU time in seconds.
    pub cpu_s: f64,
}
