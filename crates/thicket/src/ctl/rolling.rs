//! `thicket ctl rolling-restart`: one node after the other is drained, restarted by a command of the operator's, and waited for.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_broker::api::{NodeEntry, TrafficEntry};

use super::drain::{Last, drain};
use super::report;
use crate::api::{Api, Credentials, address};

/// What stands in braces for a word of the node.
const PLACEHOLDERS: [&str; 5] = ["name", "id", "host", "address", "api"];
/// Time between two looks at the nodes.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `thicket ctl rolling-restart`.
#[derive(Debug, Clone, clap::Args)]
pub struct RollingRestart {
    /// Command that restarts a node, run by `sh -c` after the node was drained; {name}, {id}, {host}, {address} and {api} are replaced by those of
    /// the node
    #[arg(long, value_name = "COMMAND", value_parser = command)]
    exec: String,
    /// HTTP APIs of the nodes [default: those that the nodes announce]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = address)]
    apis: Vec<String>,
    /// How long to wait for each step, such as 90s or 10min; a bare number is seconds
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = thicket_broker::parse_seconds::<u64>)]
    timeout: u64,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Something to run.
fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("expected a command that restarts a node".to_owned());
    }
    Ok(text.to_owned())
}

/// What to do about the node that is drained now, for whoever interrupts this.
static DRAINED: Mutex<Option<String>> = Mutex::new(None);

fn set_drained(words: Option<String>) {
    *DRAINED.lock().unwrap_or_else(PoisonError::into_inner) = words;
}

/// Says at a signal which node is drained, and ends the process.
fn watch_signals() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        let Some(signal) = signals.forever().next() else {
            return;
        };
        let drained = DRAINED.lock().unwrap_or_else(PoisonError::into_inner);
        let words = drained
            .as_deref()
            .unwrap_or("this command has drained no node");
        eprintln!("thicket: interrupted: {words}");
        std::process::exit(128 + signal);
    });
    Ok(())
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
    is_json: bool,
) -> anyhow::Result<()> {
    let timeout = Duration::from_secs(arguments.timeout);
    let members = members(first, credentials, &arguments.apis)?;
    let commands: Vec<String> = members
        .iter()
        .map(|member| member.fill_in(&arguments.exec))
        .collect::<anyhow::Result<_>>()?;
    let each = members.iter().zip(&commands);
    let nodes: Vec<_> = each
        .clone()
        .map(|(it, command)| json!({ "name": it.name, "id": it.id, "command": command }))
        .collect();
    let done = json!({ "dry_run": arguments.dry_run, "nodes": nodes });
    if arguments.dry_run {
        let lines = each.map(|(it, command)| format!("{}: drain, then: {command}\n", it.name));
        return report(is_json, &done, &lines.collect::<String>());
    }
    let progress = Progress { is_json };
    watch_signals()?;
    progress.wait_until_whole(&members, timeout)?;
    for (member, command) in each {
        let name = &member.name;
        progress.say(&format!("{name}: draining\n"))?;
        let to_do = member.is_drained();
        set_drained(Some(to_do.clone()));
        // A cluster of one node is restarted at once, and whoever restarts it wants that.
        let last = if members.len() == 1 {
            Last::Drain
        } else {
            Last::Ask
        };
        let restarted = member.restart(command, last, &progress, timeout);
        restarted.context(to_do)?;
        set_drained(None);
        progress.wait_until_whole(&members, timeout)?;
        progress.say(&format!(
            "{name}: ready, and every session has its backups\n"
        ))?;
    }
    report(is_json, &done, "")
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
                "{} announces no address of its HTTP API: name it with --apis",
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
    own.context("the node is not in its own list of nodes")
}

/// Where it is said how far this is: on standard error if what was done is printed as JSON.
struct Progress {
    is_json: bool,
}

impl Progress {
    fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.is_json {
            eprint!("{text}");
            return Ok(());
        }
        crate::print(text)
    }

    /// Waits until every node is ready, sees all the others, and has backups of all its sessions.
    fn wait_until_whole(&self, members: &[Member], timeout: Duration) -> anyhow::Result<()> {
        self.wait(timeout, || {
            let mut each = members.iter();
            each.try_for_each(|it| it.check(members.len()).with_context(|| it.name.clone()))
        })
    }

    /// Asks again and again, and says what is missing; after `timeout` the last answer is the error.
    fn wait(&self, timeout: Duration, ask: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        let mut said = String::new();
        while let Err(error) = ask() {
            if Instant::now() > deadline {
                return Err(error.context(format!("waited {} seconds", timeout.as_secs())));
            }
            let missing = crate::in_words(&error);
            if missing != said {
                self.say(&format!("waiting: {missing}\n"))?;
                said = missing;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Member {
    /// What somebody has to do who ends this while the node is drained.
    fn is_drained(&self) -> String {
        format!(
            "{} is drained and refuses clients: restart it, or let it accept clients again with `thicket ctl --api {} drain --undo`; then run this again",
            self.name, self.api_address
        )
    }

    /// An error unless this node is ready, sees all the others, and has backups of all its sessions.
    fn check(&self, all: usize) -> anyhow::Result<()> {
        self.api.text("/v1/health/ready")?;
        let nodes: Vec<NodeEntry> = self.api.ask("/v1/nodes")?;
        let up = nodes.iter().filter(|node| node.is_self || node.reachable);
        let up = up.count();
        ensure!(up >= all, "it reaches {up} of {all} nodes");
        let traffic: TrafficEntry = self.api.ask("/v1/traffic")?;
        let missing = traffic.total.under_replicated_sessions;
        ensure!(
            missing == 0,
            "{missing} sessions have fewer backups than they should"
        );
        Ok(())
    }

    /// Drains the node, runs the command, and waits until another process answers for the node.
    fn restart(
        &self,
        command: &str,
        last: Last,
        progress: &Progress,
        timeout: Duration,
    ) -> anyhow::Result<()> {
        let (_, words) = drain(&self.api, timeout, last)?;
        progress.say(&format!("{words}{}: {command}\n", self.name))?;
        let mut shell = Command::new("sh");
        if progress.is_json {
            shell.stdout(Stdio::from(std::io::stderr()));
        }
        let status = shell.args(["-c", command]).status()?;
        ensure!(status.success(), "the command ended with {status}");
        progress.wait(timeout, || {
            let own = own_entry(&self.api)?;
            let is_new = own.id != self.id || own.incarnation > self.incarnation;
            ensure!(is_new, "{} has not been restarted", self.name);
            Ok(())
        })
    }

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
    fn a_command_of_blanks_is_refused() {
        for text in ["", " \t"] {
            assert!(command(text).is_err(), "{text:?}");
        }
        assert_eq!(command("restart").as_deref(), Ok("restart"));
    }

    #[test]
    fn words_that_a_shell_would_take_apart_are_refused() {
        let error = member("a; b").fill_in("restart {name}");
        let error = error.expect_err("not one word").to_string();
        assert!(error.contains("\"a; b\""), "{error}");
        assert!(member("a; b").fill_in("restart {id}").is_ok(), "not used");
    }
}
