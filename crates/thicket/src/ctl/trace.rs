//! `thicket ctl trace`: packets as they come and go, until enough have been seen.

use std::io::Write;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_broker::api::{NodeEntry, TraceLines, TraceRequest};

use super::Ctl;
use crate::api::Api;

/// Time between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `thicket ctl trace`.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("subject").required(true))]
pub struct Trace {
    /// Trace all packets of this client
    #[arg(group = "subject")]
    client_id: Option<String>,
    /// Trace all PUBLISH packets whose topic, including the prefix of the listener, matches this filter
    #[arg(short, long, value_name = "FILTER", group = "subject")]
    topic: Option<String>,
    /// Stop after this time, such as 90s or 5min; a bare number is seconds
    #[arg(short = 'W', long, value_name = "TIME", default_value = "60s", value_parser = thicket_broker::parse_seconds::<u64>)]
    seconds: u64,
    /// Stop after this many packets
    #[arg(short = 'C', long, default_value_t = 1000)]
    count: u64,
}

/// A node that is watched.
struct Watched {
    name: String,
    api: Api,
}

/// Prints a line a packet: of all nodes, unless one is named.
pub fn run(arguments: &Ctl, wanted: &Trace) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let request = TraceRequest {
        client_id: wanted.client_id.clone(),
        topic: wanted.topic.clone(),
    };
    let mut watched = watch(arguments, &request)?;
    let is_named = watched.len() > 1;
    let end = Instant::now() + Duration::from_secs(wanted.seconds);
    let mut left = wanted.count;
    while left > 0 && Instant::now() < end && signals.pending().next().is_none() {
        std::thread::sleep(PAUSE);
        let mut failed = Vec::new();
        for (index, node) in watched.iter().enumerate() {
            match show(node, is_named, arguments.json, left) {
                Ok(shown) => left -= shown,
                Err(error) => failed.push((index, error)),
            }
        }
        // One that ends or is cut off is what others may be watched for.
        for (index, error) in failed.into_iter().rev() {
            if watched.len() == 1 {
                return Err(error);
            }
            let Watched { name, .. } = watched.remove(index);
            eprintln!("thicket: packets of {name} are no longer shown: {error:#}");
        }
    }
    for node in &watched {
        node.api.delete("/v1/trace")?;
    }
    Ok(())
}

/// Begins a trace at the node that is named, or at each node that is up. One that cannot be asked is reported, unless it is the one that was asked.
fn watch(arguments: &Ctl, request: &TraceRequest) -> anyhow::Result<Vec<Watched>> {
    let begin = |name: Option<&str>| -> anyhow::Result<Watched> {
        let api = arguments.api(name);
        let TraceLines { .. } = api.post("/v1/trace", request)?;
        let name = name.unwrap_or_default().to_owned();
        Ok(Watched { name, api })
    };
    if let Some(asked) = &arguments.asked {
        return Ok(vec![begin(Some(asked))?]);
    }
    let nodes: Vec<NodeEntry> = arguments.api(None).ask("/v1/nodes")?;
    let own = nodes.iter().find(|node| node.is_self);
    let mut watched = begin(None)?;
    watched.name = own.map_or_else(String::new, |node| node.name.clone());
    let mut all = vec![watched];
    for node in nodes.iter().filter(|node| node.reachable && !node.is_self) {
        match begin(Some(&node.id)) {
            Ok(watched) => all.push(Watched {
                name: node.name.clone(),
                ..watched
            }),
            Err(error) => eprintln!("thicket: packets of {} are not shown: {error:#}", node.name),
        }
    }
    Ok(all)
}

/// Prints what a node has seen since the last time, so many lines at most; how many there were.
fn show(node: &Watched, is_named: bool, is_json: bool, left: u64) -> anyhow::Result<u64> {
    let TraceLines { lines, lost } = node.api.post("/v1/trace/lines", &())?;
    let mut out = std::io::stdout().lock();
    let mut shown = 0;
    for line in lines
        .into_iter()
        .take(usize::try_from(left).unwrap_or(usize::MAX))
    {
        shown += 1;
        if is_json {
            let mut line = serde_json::to_value(&line)?;
            line["node"] = node.name.clone().into();
            writeln!(out, "{line}")?;
            continue;
        }
        let (client_id, direction, packet) = (line.client_id, line.direction, line.packet);
        if is_named {
            write!(out, "{} ", node.name)?;
        }
        writeln!(out, "{client_id} {direction:3} {packet}")?;
    }
    out.flush()?;
    if lost > 0 {
        eprintln!("thicket: {lost} packets were too many to show");
    }
    Ok(shown)
}
