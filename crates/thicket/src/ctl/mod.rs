//! `thicket ctl`: what a running node knows, as tables or as JSON, and what one may ask it to do.

mod bans;
mod cluster;
mod drain;
mod explain;
mod messages;
mod overlay;
mod rebalance;
mod rolling;
mod trace;
mod transfer;
mod view;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use serde::Serialize;
use thicket_broker::api::cluster::ClientPage;
use thicket_broker::api::overlay::{query_of_text, query_of_topic};
use thicket_broker::api::redirection::ClientExplanationEntry;
use thicket_broker::api::{ForgetEntry, ForgottenEntry, KickEntry, NodeEntry, ReloadEntry};

use crate::api::{Api, Credentials};
use drain::Last;
use view::Width;

/// Arguments of `thicket ctl`.
#[derive(Debug, clap::Args)]
pub struct Ctl {
    #[command(subcommand)]
    topic: Topic,
    /// HTTP API of the node to ask
    #[arg(
        long,
        env = "THICKET_API",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:18830",
        value_parser = crate::api::address,
        global = true
    )]
    api: String,
    /// Send the request on to this node, given by name or identity
    #[arg(long = "node", value_name = "NODE", global = true)]
    asked: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// Print the answer of the node as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print all columns of a table, even if its lines exceed 100 characters
    #[arg(long, global = true)]
    wide: bool,
}

/// What to show.
#[derive(Debug, Clone, Subcommand)]
enum Topic {
    /// List the nodes of the cluster, and show whether this side has quorum
    Nodes,
    /// List the sessions of all nodes: search them, or sort by waiting data or message rate
    Clients(cluster::Clients),
    /// List the subscriptions of all nodes: those that match a topic, or those of a client
    Subscribers(cluster::Subscribers),
    /// List retained messages, print one, or remove one
    Retained(messages::Retained),
    /// List all bans
    Bans,
    /// Ban clients from all nodes, by identifier, user or address; connected ones are disconnected
    Ban(bans::BanArguments),
    /// Lift a ban
    Unban(bans::Whom),
    /// Publish a message
    Publish(messages::Publish),
    /// List the sessions on the node
    Sessions,
    /// List the subscriptions on the node
    Subscriptions,
    /// Show messages and bytes of the node, exchanged with clients and with other nodes
    Traffic,
    /// List the topics that clients of each node publish to most, with their rates
    Topics,
    /// Reload users, rights, certificates and other files; rights apply to connected clients at once
    Reload,
    /// Show the nodes, links and trees as the node sees them
    Overlay {
        /// Also show where publications on this topic go
        #[arg(long, value_name = "TOPIC")]
        topic: Option<String>,
        /// Print a graph for Graphviz; with --topic, the paths from the node
        #[arg(long)]
        dot: bool,
    },
    /// Explain where a publication on a topic goes from each node, or why a client is connected to its node
    Explain {
        /// Topic name without wildcards, or the word `client`
        topic: String,
        /// Client identifier, after the word `client`
        client_id: Option<String>,
    },
    /// List the bridges of the node to other brokers
    Bridges,
    /// Show what the node uses memory for
    Memory,
    /// List the last 1000 changes made over the HTTP API of the node since its start: by whom, from where
    Audit,
    /// Disconnect a client, on any node; its session stays, as after a network failure
    Kick {
        /// Client identifier
        client_id: String,
        /// Only the client of this user; an empty name selects clients without a user
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Only the client of listeners with this topic prefix; an empty one selects listeners without a prefix
        #[arg(long, value_name = "PREFIX")]
        topic_prefix: Option<String>,
        /// End the session and drop its queue, whether the client is connected or not
        #[arg(long)]
        end_session: bool,
    },
    /// Take the node out of service: refuse new clients, hand its sessions to their backups, disconnect its clients
    Drain {
        /// How long to wait until no session is left, such as 90s or 5min; a bare number is seconds
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = thicket_broker::parse_seconds::<u64>)]
        timeout: u64,
        /// Drain also the last node that serves; without this, a terminal is asked, and the node refuses otherwise
        #[arg(long)]
        force: bool,
        /// Undo a drain: the node accepts clients again
        #[arg(long, conflicts_with_all = ["timeout", "force"])]
        undo: bool,
    },
    /// Restart all nodes one after the other, each by a command, and wait until the cluster is ready after each
    RollingRestart(rolling::RollingRestart),
    /// Plan which clients should move to other nodes, and move them
    Rebalance(rebalance::Rebalance),
    /// Remove a node that is down for good from the members, so that it no longer counts for the quorum
    Forget {
        /// Name or identity of the node, as shown by `ctl nodes`
        node: String,
    },
    /// Export the persistent sessions of the node with their messages, and all retained messages, as lines of JSON
    Export(transfer::Export),
    /// Import a file written by `export` into the node
    Import(transfer::Import),
    /// Print packets received and sent, without payloads: of all nodes, or of the one named by `--node`
    Trace(trace::Trace),
}

impl Ctl {
    /// The API that is asked, on behalf of another node if one is named.
    fn api(&self, node: Option<&str>) -> Api {
        Api::new(&self.api)
            .with_credentials(&self.credentials)
            .with_node(node)
    }

    const fn width(&self) -> Width {
        if self.wide {
            Width::All
        } else {
            Width::Terminal
        }
    }
}

/// Asks and prints.
pub fn run(arguments: &Ctl) -> anyhow::Result<()> {
    let api = arguments.api(arguments.asked.as_deref());
    let width = arguments.width();
    let path = match &arguments.topic {
        Topic::Nodes => "/v1/nodes",
        Topic::Sessions => "/v1/sessions",
        Topic::Subscriptions => "/v1/subscriptions",
        Topic::Topics => "/v1/topics",
        Topic::Traffic => "/v1/traffic",
        Topic::Overlay { .. } => "/v1/overlay",
        Topic::Explain { topic, client_id } => &match client_of(topic, client_id.as_deref())? {
            Some(client_id) => format!("/v1/explain?{}", query_of_text("client_id", client_id)),
            None => explain_path(topic),
        },
        Topic::Bridges => "/v1/bridges",
        Topic::Memory => "/v1/memory",
        Topic::Audit => "/v1/audit",
        Topic::Kick {
            client_id,
            user,
            topic_prefix,
            end_session,
        } => {
            let entry = KickEntry {
                client_id: client_id.clone(),
                user_name: user.clone(),
                topic_prefix: topic_prefix.clone(),
                end_session: *end_session,
            };
            return kick(&api, &entry, arguments.json);
        }
        Topic::Clients(wanted) => return cluster::clients(&api, wanted, arguments.json, width),
        Topic::Subscribers(wanted) => return cluster::subscribers(&api, wanted, arguments.json),
        Topic::Retained(wanted) => return messages::retained(&api, wanted, arguments.json),
        Topic::Bans => return bans::bans(&api, arguments.json),
        Topic::Ban(wanted) => return bans::ban(&api, wanted, arguments.json),
        Topic::Unban(whom) => return bans::unban(&api, whom, arguments.json),
        Topic::Publish(wanted) => return messages::publish(&api, wanted, arguments.json),
        Topic::Drain { undo: true, .. } => return drain::end(&api, arguments.json),
        Topic::Drain { timeout, force, .. } => {
            let last = if *force { Last::Drain } else { Last::Ask };
            let (left, words) = drain::drain(&api, Duration::from_secs(*timeout), last)?;
            return report(arguments.json, &left, &words);
        }
        Topic::RollingRestart(restart) => {
            return rolling::run(&api, &arguments.credentials, restart, arguments.json);
        }
        Topic::Forget { node } => return forget(&api, node, arguments.json),
        Topic::Rebalance(asked) => return rebalance::run(&api, asked, arguments.json),
        Topic::Trace(wanted) => return trace::run(arguments, wanted),
        Topic::Export(export) => return transfer::export(&api, export, arguments.json),
        Topic::Import(import) => return transfer::import(&api, import, arguments.json),
        Topic::Reload => return reload(&api, arguments.json),
    };
    let text = if arguments.json {
        let mut body = api.text(path)?;
        body.push('\n');
        body
    } else {
        match &arguments.topic {
            Topic::Nodes => show_nodes(&api, width)?,
            Topic::Sessions => view::sessions(&api.ask::<Vec<_>>(path)?, width),
            Topic::Subscriptions => view::subscriptions(&api.ask::<Vec<_>>(path)?),
            Topic::Topics => {
                view::topics(&api.ask::<Vec<_>>(path)?, &api.ask::<Vec<_>>("/v1/nodes")?)
            }
            Topic::Traffic => view::traffic(&api.ask(path)?),
            Topic::Overlay { topic, dot } => show_overlay(&api, topic.as_deref(), *dot)?,
            Topic::Explain {
                client_id: Some(client_id),
                ..
            } => explain_client(&api, client_id, path)?,
            Topic::Explain { .. } => overlay::explanation(&api.ask(path)?),
            Topic::Bridges => view::bridges(&api.ask::<Vec<_>>(path)?, width),
            Topic::Memory => view::memory(&api.ask(path)?),
            Topic::Audit => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                view::audit(&api.ask::<Vec<_>>(path)?, now, width)
            }
            Topic::Clients(_)
            | Topic::Subscribers(_)
            | Topic::Retained(_)
            | Topic::Publish(_)
            | Topic::Bans
            | Topic::Ban(_)
            | Topic::Unban(_)
            | Topic::Kick { .. }
            | Topic::Drain { .. }
            | Topic::Forget { .. }
            | Topic::Rebalance(_)
            | Topic::RollingRestart(_)
            | Topic::Trace(_)
            | Topic::Export(_)
            | Topic::Import(_)
            | Topic::Reload => String::new(),
        }
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Prints what was done: the answer of the node, or words.
fn report(is_json: bool, answer: &impl Serialize, words: &str) -> anyhow::Result<()> {
    if is_json {
        return crate::print(&format!("{}\n", serde_json::to_string(answer)?));
    }
    let lines: Vec<String> = words
        .split('\n')
        .map(thicket_bench::report::visible)
        .collect();
    crate::print(&lines.join("\n"))
}

fn reload(api: &Api, is_json: bool) -> anyhow::Result<()> {
    let entry: ReloadEntry = api.post("/v1/reload", &())?;
    report(is_json, &entry, "read again\n")
}

fn show_overlay(api: &Api, topic: Option<&str>, dot: bool) -> anyhow::Result<String> {
    let entry = api.ask("/v1/overlay")?;
    let explanation = topic
        .map(|topic| api.ask(&explain_path(topic)))
        .transpose()?;
    if dot {
        return Ok(overlay::dot(&entry, explanation.as_ref()));
    }
    let mut text = overlay::overview(&entry);
    if let Some(explanation) = &explanation {
        text.push('\n');
        text.push_str(&overlay::explanation(explanation));
    }
    Ok(text)
}

/// The client that is asked for; `None`: a topic is.
fn client_of<'a>(word: &str, client_id: Option<&'a str>) -> anyhow::Result<Option<&'a str>> {
    anyhow::ensure!(
        client_id.is_none() || word == "client",
        "expected `explain TOPIC` or `explain client CLIENT_ID`"
    );
    Ok(client_id)
}

/// What the node knows of a client, and where its session is.
fn explain_client(api: &Api, client_id: &str, path: &str) -> anyhow::Result<String> {
    let query = query_of_text("client_id", client_id);
    let found: ClientPage = api.ask(&format!("/v1/clients?{query}"))?;
    let explanation: ClientExplanationEntry = api.ask(path)?;
    let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
    Ok(explain::client(&explanation, &found, &nodes))
}

fn explain_path(topic: &str) -> String {
    format!("/v1/explain?{}", query_of_topic(topic))
}

fn show_nodes(api: &Api, width: Width) -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
    let mut text = view::nodes(&nodes, now, width);
    text.push_str(&view::disagreements(&nodes));
    text.push_str(&view::membership(&api.ask("/v1/membership")?));
    Ok(text)
}

fn forget(api: &Api, node: &str, is_json: bool) -> anyhow::Result<()> {
    let entry = ForgetEntry { node: node.into() };
    let forgotten: ForgottenEntry = api.post("/v1/forget", &entry)?;
    let ForgottenEntry { id, name } = &forgotten;
    let words = format!("{name} ({id}) does not belong to the cluster any more\n");
    report(is_json, &forgotten, &words)
}

fn kick(api: &Api, entry: &KickEntry, is_json: bool) -> anyhow::Result<()> {
    let kicked: KickEntry = api.post("/v1/kick", entry)?;
    let what = if kicked.end_session {
        "session"
    } else {
        "connection"
    };
    let words = format!("ended the {what} of {}\n", kicked.client_id);
    report(is_json, &kicked, &words)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_of_commands_has_all_of_them_and_no_others() {
        let page = include_str!("../../../../docs/operating.md");
        let (_, section) = page.split_once("\n## Commands\n").expect("the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter(|line| line.starts_with("| `ctl "));
        let cells = rows.filter_map(|line| line.split(" | ").next());
        let documented: BTreeSet<&str> = cells
            .flat_map(|cell| cell.split("`ctl ").skip(1))
            .filter_map(|rest| rest.split([' ', '`']).next())
            .collect();
        let command = Topic::augment_subcommands(clap::Command::new("ctl"));
        let known: BTreeSet<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        assert_eq!(documented, known);
    }
}
