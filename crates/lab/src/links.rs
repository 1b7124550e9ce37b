//! Links between routers, by one of two back ends: the kernel's `netem` if available, otherwise the [`crate::fabric`] process.

use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};

use serde::{Deserialize, Serialize};

use crate::command;
use crate::delay::Delay;
use crate::error::LabError;
use crate::fabric::{
    self, Answer, Command, Device, Forwarding, Interface, Plan, Report, Router, WireLink,
};
use crate::janitor;
use crate::net::{self, Site, wan};
use crate::topology::{Cut, LinkShape, Topology, link_addresses, router_address};

/// Bytes of a full frame.
const FRAME_BYTES: f64 = 1514.0;
/// The value that stands for one standard deviation in a table of netem.
const TABLE_UNIT: f64 = 8192.0;
/// The greatest value in such a table, in those units: it is below the greatest of 16 bits.
const TABLE_REACH: f64 = 3.99;
/// The variable that tells `tc` where tables of distributions are.
const TABLE_FOLDER: &str = "TC_LIB_DIR";
/// The rate of a link without one whose delay varies: netem keeps the order of frames only where it has a rate.
const IN_ORDER: &str = " rate 10gbit";

/// What delays the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The kernel.
    Netem,
    /// A process of ours.
    Wire,
}

impl Backend {
    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Netem => "netem",
            Self::Wire => "wire",
        }
    }

    /// `netem` if this machine has it, otherwise `wire`.
    #[must_use]
    pub fn choose() -> Self {
        if Self::Netem.check().is_ok() {
            Self::Netem
        } else {
            Self::Wire
        }
    }

    /// An error, with what to do, if this machine does not have it: `netem` is tried on a test device, `wire` needs TAP devices.
    pub fn check(self) -> Result<(), LabError> {
        if self == Self::Wire {
            return check_tap();
        }
        let namespace = format!("{}{}-try", net::PREFIX, std::process::id());
        let attempt = || -> Result<(), LabError> {
            command::run("ip", &["netns", "add", &namespace])?;
            net::ip(&namespace, "link add try0 type veth peer name try1\n")?;
            let qdisc = [
                "-n", &namespace, "qdisc", "add", "dev", "try0", "root", "netem", "delay", "1ms",
            ];
            command::run("tc", &qdisc).map(drop)
        };
        let tried = attempt();
        let _ = command::run("ip", &["netns", "delete", &namespace]);
        tried.map_err(|error| {
            LabError::Machine(format!(
                "its kernel does not take netem (module sch_netem), --backend wire needs none: {error}"
            ))
        })
    }
}

/// Whether this user may create TAP devices: root may, others if their system permits it.
fn check_tap() -> Result<(), LabError> {
    const DEVICE: &str = "/dev/net/tun";
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE);
    opened.map(drop).map_err(|error| {
        LabError::Machine(format!(
            "links need {DEVICE}, or a kernel with netem, which this one is not: {DEVICE}: {error}"
        ))
    })
}

/// The effect of a link on what its end with the lower number sends, and on what the other end sends.
pub type Ways = [LinkShape; 2];

/// The links of a testbed.
#[derive(Debug)]
pub struct Links {
    backend: Backend,
    topology: Topology,
    sites: Vec<Site>,
    now: Vec<Ways>,
    fabric: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Whether the link process runs before others.
    pub realtime: bool,
}

impl Links {
    /// Creates devices, addresses and routes, and starts the process behind them.
    pub fn up(
        program: &Path,
        backend: Backend,
        topology: &Topology,
        sites: &[Site],
        groups: &[SocketAddrV4],
        seed: u64,
    ) -> Result<Self, LabError> {
        if !topology.links.is_empty() {
            backend.check()?;
        }
        make_devices(backend, topology, sites)?;
        net::make_routes(sites, topology)?;
        if backend == Backend::Netem {
            for (index, link) in topology.links.iter().enumerate() {
                shape_by_kernel(sites, topology, index, &[link.shape; 2], "add")?;
            }
        }
        let mut fabric = Process::new(program)
            .args(["lab", "child", "fabric"])
            // Ctrl-C must only reach the lab.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(LabError::io("link process"))?;
        let (Some(commands), Some(answers)) = (fabric.stdin.take(), fabric.stdout.take()) else {
            return Err(LabError::Machine(
                "the link process has no pipes".to_owned(),
            ));
        };
        let mut links = Self {
            backend,
            topology: topology.clone(),
            sites: sites.to_vec(),
            now: topology.links.iter().map(|link| [link.shape; 2]).collect(),
            fabric,
            commands,
            answers: BufReader::new(answers),
            realtime: false,
        };
        match links.ask(&plan(backend, topology, sites, groups, seed))? {
            Answer::Ready { realtime } => links.realtime = realtime,
            other => return Err(unexpected(&other)),
        }
        Ok(links)
    }

    /// Changes the settings of links, all at once with `wire`, one after the other with `netem`.
    pub fn set(&mut self, changes: &[(usize, Ways)]) -> Result<(), LabError> {
        match self.backend {
            Backend::Netem => {
                for (index, ways) in changes {
                    shape_by_kernel(&self.sites, &self.topology, *index, ways, "change")?;
                }
            }
            Backend::Wire => match self.ask(&Command::Set(changes.to_vec()))? {
                Answer::Done => {}
                other => return Err(unexpected(&other)),
            },
        }
        for &(index, ways) in changes {
            self.now[index] = ways;
        }
        Ok(())
    }

    /// Cuts links: everything on them is lost, silently, or what one end sends.
    pub fn cut(&mut self, cuts: &[Cut]) -> Result<(), LabError> {
        let cut = |cut: &Cut| {
            let mut ways = self.now[cut.link];
            for direction in cut.directions() {
                ways[direction].loss_percent = 100.0;
            }
            (cut.link, ways)
        };
        let changes: Vec<_> = cuts.iter().map(cut).collect();
        self.set(&changes)
    }

    /// Restores the links' settings of the scenario.
    pub fn heal(&mut self, links: &[usize]) -> Result<(), LabError> {
        let planned = |&index: &usize| (index, [self.topology.links[index].shape; 2]);
        let changes: Vec<_> = links.iter().map(planned).collect();
        self.set(&changes)
    }

    /// The current settings of a link.
    #[must_use]
    pub fn now(&self, link: usize) -> Ways {
        self.now[link]
    }

    /// The punctuality of the link process since the last report.
    pub fn report(&mut self) -> Result<Report, LabError> {
        match self.ask(&Command::Report)? {
            Answer::Report(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether the process behind the links still runs.
    pub fn is_up(&mut self) -> bool {
        matches!(self.fabric.try_wait(), Ok(None))
    }

    fn ask(&mut self, what: &impl Serialize) -> Result<Answer, LabError> {
        let mut line = serde_json::to_string(what)
            .map_err(|error| LabError::io("link process")(error.into()))?;
        line.push('\n');
        self.commands
            .write_all(line.as_bytes())
            .and_then(|()| self.commands.flush())
            .and_then(|()| fabric::read_answer(&mut self.answers))
            .map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => io::Error::other("it has ended"),
                _ => error,
            })
            .map_err(LabError::io("link process"))
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let _ = self.fabric.kill();
        let _ = self.fabric.wait();
    }
}

fn unexpected(answer: &Answer) -> LabError {
    let reason = match answer {
        Answer::Failed(reason) => reason.clone(),
        other => format!("answered {other:?}"),
    };
    LabError::Machine(format!("the link process: {reason}"))
}

fn make_devices(backend: Backend, topology: &Topology, sites: &[Site]) -> Result<(), LabError> {
    for (number, site) in sites.iter().enumerate() {
        let mut batch = String::new();
        for link in &topology.links {
            match backend {
                Backend::Wire if link.a == number || link.b == number => {
                    let other = if link.a == number { link.b } else { link.a };
                    let _ = writeln!(batch, "tuntap add dev {} mode tap", wan(other));
                }
                Backend::Netem if link.a == number => {
                    let _ = writeln!(
                        batch,
                        "link add {} type veth peer name {} netns {}",
                        wan(link.b),
                        wan(link.a),
                        sites[link.b].router
                    );
                }
                Backend::Wire | Backend::Netem => {}
            }
        }
        net::ip(&site.router, &batch)?;
    }
    Ok(())
}

/// Sets both ends of a link by `tc`; `how` is `add` or `change`.
fn shape_by_kernel(
    sites: &[Site],
    topology: &Topology,
    index: usize,
    ways: &Ways,
    how: &str,
) -> Result<(), LabError> {
    let link = topology.links[index];
    // Only their losses differ.
    let table = Table::of(&ways[0].delay);
    let (folder, name) = table_file(index);
    if let Some(table) = &table {
        let file = folder.join(format!("{name}.dist"));
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&file, table.to_text()))
            .map_err(LabError::io(file.display()))?;
    }
    let table = table.as_ref().map(|table| (table, &*name));
    for ((own, other), shape) in [(link.a, link.b), (link.b, link.a)].into_iter().zip(ways) {
        let line = netem_line(&wan(other), shape, table, how);
        let arguments = ["-n", &sites[own].router, "-batch", "-"];
        command::feed_with("tc", &arguments, &line, &[(TABLE_FOLDER, &folder)])?;
    }
    Ok(())
}

/// The folder of tables of this lab, and the name of a link's table.
fn table_file(link: usize) -> (PathBuf, String) {
    let folder = janitor::folder(std::process::id()).join("tc");
    (folder, format!("link{link}"))
}

/// A law as a table of netem, which draws one of the values and gives a frame the delay `centre_us + value / 8192 * spread_us`.
#[derive(Debug, Clone, PartialEq)]
struct Table {
    centre_us: f64,
    spread_us: f64,
    values: Vec<i32>,
}

impl Table {
    /// The table of a law; `None` for a constant.
    fn of(delay: &Delay) -> Option<Self> {
        let all = delay.quantiles();
        let (first, last) = (all.first()?, all.last()?);
        if delay.is_constant() {
            return None;
        }
        let centre = f64::midpoint(*first, *last);
        let spread = (last - first) / 2.0 / TABLE_REACH;
        let value = |ms: &f64| ((ms - centre) / spread * TABLE_UNIT).round() as i32;
        Some(Self {
            centre_us: 1000.0 * centre,
            spread_us: 1000.0 * spread,
            values: all.iter().map(value).collect(),
        })
    }

    /// The form of a file for `tc`.
    fn to_text(&self) -> String {
        let words: Vec<String> = self.values.iter().map(i32::to_string).collect();
        words.join("\n") + "\n"
    }
}

/// The line for `tc -batch`, with the link's table and its name where the delay varies. netem's limit also counts packets in the delay, so it is the
/// queue's limit plus those.
fn netem_line(device: &str, shape: &LinkShape, table: Option<(&Table, &str)>, how: &str) -> String {
    let longest_ms = shape.delay.quantiles().last().copied().unwrap_or(0.0);
    let delay = match table {
        None => format!("{}us", (longest_ms * 1000.0).round()),
        Some((table, name)) => format!(
            "{:.1}us {:.1}us distribution {name}",
            table.centre_us, table.spread_us
        ),
    };
    let (rate, limit) = match shape.bandwidth_mbit {
        None if table.is_some() => (IN_ORDER.to_owned(), 100_000),
        None => (String::new(), 100_000),
        Some(mbit) => {
            let in_delay = (mbit * longest_ms * 1000.0 / 8.0 / FRAME_BYTES).ceil() as u32;
            (
                format!(" rate {}kbit", (mbit * 1000.0).round()),
                shape.queue_packets + in_delay,
            )
        }
    };
    format!(
        "qdisc {how} dev {device} root netem limit {limit} delay {delay} loss {}%{rate}\n",
        shape.loss_percent
    )
}

fn plan(
    backend: Backend,
    topology: &Topology,
    sites: &[Site],
    groups: &[SocketAddrV4],
    seed: u64,
) -> Plan {
    let device = |own: usize, other: usize| Device {
        namespace: net::path(&sites[own].router),
        name: wan(other),
    };
    let carried = if backend == Backend::Wire {
        &topology.links[..]
    } else {
        &[]
    };
    let links = carried.iter().map(|link| WireLink {
        ends: [device(link.a, link.b), device(link.b, link.a)],
        shape: link.shape,
    });
    let routers: Vec<Router> = (0..sites.len())
        .map(|site| router(topology, sites, site))
        .collect();
    Plan {
        links: links.collect(),
        groups: groups.to_vec(),
        forwarding: (0..sites.len())
            .map(|site| forwarding(topology, site))
            .collect(),
        routers,
        seed,
    }
}

fn own_links(topology: &Topology, site: usize) -> Vec<usize> {
    (0..topology.links.len())
        .filter(|&link| topology.links[link].a == site || topology.links[link].b == site)
        .collect()
}

fn router(topology: &Topology, sites: &[Site], site: usize) -> Router {
    let mut interfaces = vec![Interface {
        name: "br0".to_owned(),
        address: router_address(site),
    }];
    for link in own_links(topology, site) {
        let [a, b] = link_addresses(link);
        interfaces.push(Interface {
            name: wan(topology.other_end(link, site)),
            address: if topology.links[link].a == site { a } else { b },
        });
    }
    Router {
        namespace: net::path(&sites[site].router),
        interfaces,
    }
}

/// How a site's router forwards a datagram of each source: in from the source's direction, out to its own network and to its children.
fn forwarding(topology: &Topology, site: usize) -> Vec<Forwarding> {
    let links = own_links(topology, site);
    let interface = |link: usize| 1 + links.iter().position(|&own| own == link).unwrap_or(0);
    (0..topology.sites.len())
        .map(|source| {
            let children = topology.children(source, site).into_iter().map(interface);
            match topology.parent(source, site) {
                None => Forwarding {
                    from: 0,
                    to: children.collect(),
                },
                Some(parent) => Forwarding {
                    from: interface(parent),
                    to: std::iter::once(0).chain(children).collect(),
                },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    fn topology(text: &str) -> Topology {
        let network: Network = toml::from_str(text).unwrap();
        Topology::new(&network, &network.names().unwrap(), 1).unwrap()
    }

    #[test]
    fn netem_gets_a_limit_that_holds_the_delay_and_the_queue() {
        let mut shape = LinkShape {
            delay: Delay::Constant { ms: 2.5 },
            bandwidth_mbit: Some(10.0),
            queue_packets: 100,
            loss_percent: 0.0,
        };
        assert_eq!(
            netem_line("wan2", &shape, None, "add"),
            "qdisc add dev wan2 root netem limit 103 delay 2500us loss 0% rate 10000kbit\n"
        );
        shape.bandwidth_mbit = None;
        shape.loss_percent = 100.0;
        assert_eq!(
            netem_line("wan2", &shape, None, "change"),
            "qdisc change dev wan2 root netem limit 100000 delay 2500us loss 100%\n"
        );
    }

    /// The delay that the kernel makes of a value of a table (`tabledist` of `net/sched/sch_netem.c`), in ns.
    fn by_kernel(centre_ns: i64, spread_ns: i64, value: i64) -> i64 {
        const SCALE: i64 = 8192;
        let part = (spread_ns % SCALE) * value;
        let half = if part >= 0 { SCALE / 2 } else { -SCALE / 2 };
        (part + half) / SCALE + (spread_ns / SCALE) * value + centre_ns
    }

    #[test]
    fn the_kernel_draws_a_law_from_its_table() {
        let delays = [
            Delay::Uniform {
                min_ms: 5.0,
                max_ms: 15.0,
            },
            Delay::Normal {
                mean_ms: 10.0,
                sd_ms: 2.5,
            },
            Delay::LogNormal {
                mean_ms: 10.0,
                sd_ms: 13.0,
            },
            Delay::Pareto {
                min_ms: 5.0,
                shape: 2.5,
            },
        ];
        for delay in delays {
            let table = Table::of(&delay).unwrap();
            // `tc` reads numbers of 16 bits, at most 16,384 of them.
            let is_read = |value: &i32| i16::try_from(*value).is_ok();
            assert!(table.values.iter().all(is_read) && table.values.len() <= 16_384);
            let ns = |us: f64| (1000.0 * us).round() as i64;
            let (centre_ns, spread_ns) = (ns(table.centre_us), ns(table.spread_us));
            let drawn: Vec<f64> = (table.values.iter())
                .map(|value| by_kernel(centre_ns, spread_ns, i64::from(*value)) as f64 / 1e6)
                .collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let expected = delay.mean_ms();
            assert!((mean - expected).abs() < 0.01 * expected, "{delay:?}");
            for share in [0.05, 0.5, 0.95, 0.99] {
                let found = drawn[(share * drawn.len() as f64) as usize];
                let expected = delay.quantile_ms(share);
                assert!(
                    (found - expected).abs() < 0.01 * expected,
                    "{delay:?} at {share}: {found}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn a_delay_that_varies_names_its_table_and_keeps_the_order() {
        let shape = LinkShape {
            delay: Delay::Uniform {
                min_ms: 5.0,
                max_ms: 15.0,
            },
            bandwidth_mbit: None,
            queue_packets: 100,
            loss_percent: 0.0,
        };
        let table = Table::of(&shape.delay).unwrap();
        let line = netem_line("wan2", &shape, Some((&table, "link0")), "add");
        assert_eq!(
            line,
            "qdisc add dev wan2 root netem limit 100000 delay 10000.0us 1252.8us distribution link0 loss 0% rate 10gbit\n"
        );
        let lines = table.to_text();
        assert_eq!(lines.lines().count(), 4096);
        assert_eq!(lines.lines().next(), Some("-32686"));
    }

    #[test]
    fn multicast_goes_to_every_site_once_along_a_line() {
        let topology = topology("sites = 3\nshape = \"line\"");
        let middle = forwarding(&topology, 1);
        let rule = |from, to: &[usize]| Forwarding {
            from,
            to: to.to_vec(),
        };
        assert_eq!(
            middle,
            [rule(1, &[0, 2]), rule(0, &[1, 2]), rule(2, &[0, 1])]
        );
        assert_eq!(forwarding(&topology, 2)[0], rule(1, &[0]));
    }
}
