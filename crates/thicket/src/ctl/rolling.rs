//! `thicket ctl rolling-restart`: one node after the other is drained, restarted by a command of the operator's, and waited for.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use thicket_broker::api::{NodeEntry, TrafficEntry};

use super::drain::drain;
use crate::api::{Api, Credentials, address};

/// What stands in braces for a word of the node.
const PLACEHOLDERS: [&str; 5] = ["name", "id", "host", "address", "api"];
/// Time between two looks at the nodes.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `thicket ctl rolling-restart`.
#[derive(Debug, Clone, clap::Args)]
pub struct RollingRestart {
    /// What restarts a node, run by `sh -c` when the node is drained; {name}, {id}, {host}, {address} and {api} stand for those of the node, any other
    /// {word} is refused
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// HTTP APIs of the nodes [default: those that the nodes tell of themselves]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = address)]
    apis: Vec<String>,
    /// How long to wait for each step of a node, such as 90s or 10min; a bare number is seconds
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = thicket_broker::parse_seconds::<u64>)]
    timeout: u64,
    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// A node to restart.
struct Member {
    name: String,
    id: String,
    incarnation: u64,
    address: String,
    api_address: String,
    api: Api,
}

/// Restarts all nodes, the one at `first` last.
pub fn run(
    first: &Api,
    credentials: &Credentials,
    arguments: &RollingRestart,
) -> anyhow::Result<()> {
    let timeout = Duration::from_secs(arguments.timeout);
    let members = members(first, credentials, &arguments.apis)?;
    let apis: Vec<&Api> = members.iter().map(|member| &member.api).collect();
    let commands: Vec<String> = members
        .iter()
        .map(|member| member.fill_in(&arguments.exec))
        .collect::<anyhow::Result<_>>()?;
    if arguments.dry_run {
        for (member, command) in members.iter().zip(&commands) {
            crate::print(&format!("{}: drain, then: {command}\n", member.name))?;
        }
        return Ok(());
    }
    wait_until_whole(&apis, timeout)?;
    for (member, command) in members.iter().zip(&commands) {
        let name = &member.name;
        crate::print(&format!("{name}: draining\n"))?;
        drain(&member.api, timeout).with_context(|| format!("{name} was not restarted"))?;
        crate::print(&format!("{name}: {command}\n"))?;
        let status = Command::new("sh").args(["-c", command]).status()?;
        ensure!(
            status.success(),
            "{name} is drained and refuses clients: the command ended with {status}; restart the node, then run this again"
        );
        member.wait_until_back(timeout)?;
        wait_until_whole(&apis, timeout)?;
        crate::print(&format!(
            "{name}: ready, and every session has its backups\n"
        ))?;
    }
    Ok(())
}

/// All nodes of the cluster with their APIs, the one that was asked last.
fn members(first: &Api, credentials: &Credentials, apis: &[String]) -> anyhow::Result<Vec<Member>> {
    let nodes: Vec<NodeEntry> = first.ask("/v1/nodes")?;
    if let Some(missing) = nodes.iter().find(|node| !node.is_self && !node.reachable) {
        bail!(
            "{} is down: start it, or remove it with `thicket ctl forget {}`",
            missing.name,
            missing.id
        );
    }
    let mut given = BTreeMap::new();
    for address in apis {
        let node = own_entry(&Api::new(address).with_credentials(credentials))?;
        given.insert(node.id, address.clone());
    }
    let mut members = Vec::new();
    for node in nodes {
        let told = node.state.as_ref().and_then(|it| it.http_address.clone());
        let api_address = given.get(&node.id).cloned().or(told);
        let api_address = api_address.with_context(|| {
            format!(
                "{} tells no address of its HTTP API: name it with --apis",
                node.name
            )
        })?;
        let api = Api::new(&api_address).with_credentials(credentials);
        let own = own_entry(&api).with_context(|| format!("the HTTP API of {}", node.name))?;
        ensure!(
            own.id == node.id,
            "at {api_address} answers {}, not {}: name the HTTP APIs of the nodes with --apis",
            own.name,
            node.name
        );
        members.push((
            node.is_self,
            Member {
                name: node.name,
                id: node.id,
                incarnation: node.incarnation,
                address: node.address,
                api_address,
                api,
            },
        ));
    }
    members.sort_by(|(is_asked, a), (other, b)| (is_asked, &a.name).cmp(&(other, &b.name)));
    Ok(members.into_iter().map(|(_, member)| member).collect())
}

/// A word in braces that stands for nothing. Braces with blanks or other characters, `${NAME}` and `{{` are the shell's or those of its programs.
fn unknown_placeholder(command: &str) -> Option<&str> {
    let starts = command.match_indices('{');
    starts
        .map(|(at, _)| command.split_at(at))
        .find_map(|(before, rest)| {
            let (word, _) = rest[1..].split_once('}')?;
            let is_word = !word.is_empty() && word.chars().all(char::is_alphanumeric);
            let is_ours = is_word && !before.ends_with(['$', '{']);
            (is_ours && !PLACEHOLDERS.contains(&word)).then_some(word)
        })
}

/// What the node at an API says of itself.
fn own_entry(api: &Api) -> anyhow::Result<NodeEntry> {
    let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
    let own = nodes.into_iter().find(|node| node.is_self);
    own.context("a node that does not know itself")
}

/// Waits until every node is ready, sees all the others, and has backups of all its sessions.
fn wait_until_whole(apis: &[&Api], timeout: Duration) -> anyhow::Result<()> {
    wait(timeout, || {
        for api in apis {
            api.text("/v1/health/ready")?;
            let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
            let up = nodes.iter().filter(|node| node.is_self || node.reachable);
            let (up, all) = (up.count(), apis.len());
            ensure!(up >= all, "a node sees {up} of {all} nodes");
            let traffic: TrafficEntry = api.ask("/v1/traffic")?;
            let missing = traffic.total.under_replicated_sessions;
            ensure!(
                missing == 0,
                "{missing} sessions have fewer backups than they should"
            );
        }
        Ok(())
    })
}

impl Member {
    /// The command with what stands for this node.
    fn fill_in(&self, command: &str) -> anyhow::Result<String> {
        if let Some(unknown) = unknown_placeholder(command) {
            let known = PLACEHOLDERS.map(|known| format!("{{{known}}}")).join(", ");
            bail!("--exec: {{{unknown}}} is none of {known}");
        }
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut filled = command.to_owned();
        let values = [&self.name, &self.id, host, &self.address, &self.api_address];
        for (key, value) in PLACEHOLDERS.into_iter().zip(values) {
            let key = &format!("{{{key}}}");
            if !filled.contains(key) {
                continue;
            }
            // A shell reads it.
            let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._:[]".contains(it);
            ensure!(
                value.chars().all(is_plain),
                "{key} of a node is {value:?}, which a shell would not take as one word"
            );
            filled = filled.replace(key, value);
        }
        Ok(filled)
    }

    /// Waits until another process answers for the node.
    fn wait_until_back(&self, timeout: Duration) -> anyhow::Result<()> {
        wait(timeout, || {
            let own = own_entry(&self.api)?;
            let is_new = own.id != self.id || own.incarnation > self.incarnation;
            ensure!(is_new, "{} has not been restarted", self.name);
            Ok(())
        })
    }
}

/// Asks again and again; after `timeout` the last answer is the error.
fn wait(timeout: Duration, mut ask: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        match ask() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                let waited = format!("waited {} seconds", timeout.as_secs());
                return Err(error.context(waited));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Member {
        Member {
            name: name.into(),
            id: "00ff".into(),
            incarnation: 1,
            address: "[fd00::2]:1883".into(),
            api_address: "10.0.0.2:18830".into(),
            api: Api::new("10.0.0.2:18830"),
        }
    }

    #[test]
    fn a_command_gets_the_words_of_its_node() {
        let filled = member("node-1").fill_in("ssh {host} restart {name} {id} {address} {api}");
        assert_eq!(
            filled.expect("plain words"),
            "ssh fd00::2 restart node-1 00ff [fd00::2]:1883 10.0.0.2:18830"
        );
    }

    #[test]
    fn an_unknown_placeholder_is_refused_and_other_braces_are_the_shells() {
        for (command, unknown) in [
            ("ssh {hots} x", "{hots}"),
            ("ssh {HOST} restart {name}", "{HOST}"),
            ("ssh {host} restart {node}", "{node}"),
        ] {
            let error = member("a").fill_in(command);
            let error = error.expect_err(command).to_string();
            assert!(
                error.contains(&format!("{unknown} is none of {{name}}, {{id}}")),
                "{error}"
            );
        }
        for command in [
            "awk '{ print }' x",
            "x ${VERSION} {a,b} {{.Names}} {}",
            "f() { restart; }",
        ] {
            let filled = member("a").fill_in(command).expect(command);
            assert_eq!(filled, command);
        }
    }

    #[test]
    fn words_that_a_shell_would_take_apart_are_refused() {
        let error = member("a; b").fill_in("restart {name}");
        let error = error.expect_err("not one word").to_string();
        assert!(error.contains("\"a; b\""), "{error}");
        assert!(member("a; b").fill_in("restart {id}").is_ok(), "not used");
    }
}
