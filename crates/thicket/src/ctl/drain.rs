//! `thicket ctl drain`: empties a node step by step, and says what to know before it is stopped.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use thicket_broker::api::{DrainEntry, NodeEntry, TrafficEntry};

use super::report;
use crate::api::Api;

/// Time between two steps of a drain.
const STEP: Duration = Duration::from_millis(100);

/// What is done about the last node that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It is drained.
    Drain,
    /// Whoever sits at the terminal is asked; without a terminal it is not drained.
    Ask,
}

/// Asks until nothing is left; the last answer, and what to know before the node is stopped.
pub fn drain(api: &Api, timeout: Duration, last: Last) -> anyhow::Result<(DrainEntry, String)> {
    let path = if last == Last::Drain || confirms_last(api)? {
        "/v1/drain?force=true"
    } else {
        "/v1/drain"
    };
    let deadline = Instant::now() + timeout;
    loop {
        let left: DrainEntry = api.post(path, &())?;
        let DrainEntry {
            connections,
            sessions,
        } = left;
        if (connections, sessions) == (0, 0) {
            return Ok((left, drained(api)?));
        }
        // Clients without such a session are gone already.
        if connections <= sessions && !sees_others(api)? {
            anyhow::bail!(
                "no other node is reachable: {} here, in the data directory if there is one",
                match sessions {
                    1 => "1 session stays".to_owned(),
                    _ => format!("{sessions} sessions stay"),
                }
            );
        }
        if Instant::now() > deadline {
            anyhow::bail!(
                "{} and {} are left: sessions go only to a node that has a backup (`thicket_under_replicated_sessions`)",
                crate::counted(connections, "client"),
                crate::counted(sessions, "session")
            );
        }
        std::thread::sleep(STEP);
    }
}

/// Whether the node is the last one that serves, and the person at the terminal wants it drained. Without a terminal the node refuses.
fn confirms_last(api: &Api) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
    let is_drained = |node: &NodeEntry| node.state.as_ref().is_some_and(|it| it.draining);
    let (own, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|it| it.is_self);
    let mut serving = others.iter().filter(|it| it.reachable && !is_drained(it));
    if serving.next().is_some() || own.iter().any(|it| is_drained(it)) {
        return Ok(false);
    }
    let name = own.first().map_or("this node", |own| own.name.as_str());
    eprint!(
        "{name} is the last node that serves: once it is drained, no client is accepted anywhere. Drain it? [y/N] "
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(
        matches!(answer.trim(), "y" | "Y" | "yes"),
        "{name} was not drained"
    );
    Ok(true)
}

/// That a node is drained, and that backups of other nodes' sessions end with it.
fn drained(api: &Api) -> anyhow::Result<String> {
    let TrafficEntry { total, .. } = api.ask("/v1/traffic")?;
    let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
    let others = nodes.iter().filter(|it| it.reachable && !it.is_self);
    let mut text = "drained: the node can be stopped\n".to_owned();
    if total.backups > 0 {
        text += &format!(
            "it holds {} of sessions of other nodes: {}\n",
            crate::counted(total.backups, "backup"),
            if others.count() > 1 {
                "new ones are created when it has stopped; wait for that before you stop the next node (`thicket_under_replicated_sessions` is 0)"
            } else {
                "with one other node only, these sessions have no backup until this node is back"
            }
        );
    }
    Ok(text)
}

/// Lets the node accept clients again.
pub fn end(api: &Api, is_json: bool) -> anyhow::Result<()> {
    api.delete("/v1/drain")?;
    report(
        is_json,
        &serde_json::json!({ "draining": false }),
        "the node accepts clients again; sessions that it handed over come back with their clients\n",
    )
}

/// Whether the node reaches any that could have its sessions.
fn sees_others(api: &Api) -> anyhow::Result<bool> {
    let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
    Ok(nodes.iter().any(|node| node.reachable && !node.is_self))
}
