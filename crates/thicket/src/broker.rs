//! `thicket broker`: one node, until a signal.

use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use anyhow::Context;
use clap::{ArgMatches, CommandFactory};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_broker::{
    Config, ConfigError, ConfigErrors, Failure, FileWarning, LogFormat, Node, SOON_DAYS,
    SOON_DAYS_OF_TOKENS, Settings, TokenDays, certificate_days, token_days,
};

use crate::sandbox::Entered;
use crate::{counted, environment, service_manager};

/// Arguments of `thicket broker`.
#[derive(Debug, clap::Args)]
pub struct Broker {
    /// TOML file with any of the settings below; flags and environment variables take precedence over it
    #[arg(long, env = "THICKET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and the files that it names, and exit without starting a node
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    settings: Settings,
    /// Stop when standard input ends. `thicket up` holds the other end: however it dies, its nodes do not outlive it.
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

impl Broker {
    /// What the command line says, without the file that it may name.
    pub fn settings(self) -> Settings {
        self.settings
    }
}

/// Why a running node is asked to end.
enum Wake {
    Signal,
    /// Read again what can change while the node runs.
    Reload,
    ParentGone,
    Failed(Failure),
}

/// Runs a node until SIGINT or SIGTERM. `matches`: where the values of `arguments` came from; `faults`: those of flags that are not in `arguments`.
pub fn run(arguments: Broker, matches: &ArgMatches, faults: Vec<String>) -> anyhow::Result<()> {
    let mut format = arguments.settings.log_format;
    let is_node = !arguments.check;
    let ended = check_and_run(arguments, matches, faults, &mut format);
    if let (Err(error), true, Some(LogFormat::Json)) = (&ended, is_node, format) {
        // Whoever reads this log reads objects.
        tracing::error!(problem = crate::in_words(error), "the node ended");
        std::process::exit(1);
    }
    ended
}

fn check_and_run(
    arguments: Broker,
    matches: &ArgMatches,
    faults: Vec<String>,
    format: &mut Option<LogFormat>,
) -> anyhow::Result<()> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let strange = environment::unknown(&crate::Cli::command(), names);
    let mut settings = arguments.settings;
    let mut found: Vec<_> = faults.into_iter().map(ConfigError::Flag).collect();
    if let Some(path) = &arguments.config {
        let (read, faults) = match Settings::from_file(path) {
            Ok(read) => read,
            Err(fault) => {
                thicket_broker::start_log(settings.log_level, settings.log_format);
                return Err(in_lines(strange, Some(fault.into()), matches));
            }
        };
        settings = settings.or(read);
        found.extend(faults);
    }
    thicket_broker::start_log(settings.log_level, settings.log_format);
    *format = settings.log_format;
    let config = match settings.check_after(found) {
        Ok(config) if strange.is_empty() => config,
        checked => return Err(in_lines(strange, checked.err(), matches)),
    };
    if arguments.check {
        for FileWarning { key, path, problem } in &config.file_warnings {
            let file = path.display();
            crate::print(&format!("{key} = {file}: {problem}\n"))?;
        }
        if let Some(problem) = config.unreachable_for_nodes() {
            crate::print(&format!("listen: {problem}\n"))?;
        }
        check_tokens(&config)?;
        check_certificates(&config)?;
        let listen: Vec<_> = config
            .listeners
            .iter()
            .map(|listen| listen.text.as_str())
            .collect();
        let sandbox = Entered::of_node(&config, config.try_sandbox()?);
        // Last, as nothing was wrong.
        return crate::print(&format!(
            "the configuration is good; the node would listen on {}; sandbox: {}\n",
            listen.join(" "),
            sandbox.in_words()
        ));
    }
    raise_descriptor_limit();
    // Before the first thread is started: threads inherit it.
    Entered::of_node(&config, config.enter_sandbox()?).log();
    let (sender, wake) = channel();
    // Before the node starts, so that a signal that comes early is not lost.
    watch_signals(sender.clone())?;
    let mut node = Node::start(config)?;
    service_manager::ready(&addresses(&node));
    if arguments.stop_with_stdin {
        watch_stdin(sender.clone())?;
    }
    watch_failures(&mut node, sender)?;
    loop {
        let woken = wake.recv().context("nobody is left to stop this node")?;
        match woken {
            // What is wrong, the log has said.
            Wake::Reload => drop(node.reload()),
            Wake::Signal | Wake::ParentGone => {
                service_manager::stopping();
                node.stop();
                return Ok(());
            }
            Wake::Failed(failure) => {
                node.stop();
                anyhow::bail!("the node ended: {}", failure.problem);
            }
        }
    }
}

/// Says how long certificates hold. One that has expired or is not valid yet is an error: no client would come in.
fn check_certificates(config: &Config) -> anyhow::Result<()> {
    let mut invalid = Vec::new();
    for it in certificate_days(config) {
        let (key, file, days) = (it.key, it.path.display(), it.days);
        if it.days_to_wait > 0 {
            invalid.push(format!(
                "{key} = {file}: not valid yet, for another {}: check its dates and the clock of this host",
                counted(it.days_to_wait, "day")
            ));
        } else if days < 0 {
            invalid.push(format!(
                "{key} = {file}: expired {}: replace it, or remove the expired certificate from the file",
                ago(days)
            ));
        } else {
            let soon = if days <= SOON_DAYS {
                ": replace it soon"
            } else {
                ""
            };
            let left = counted(days, "day");
            crate::print(&format!("{key} = {file}: {left} left{soon}\n"))?;
        }
    }
    anyhow::ensure!(invalid.is_empty(), "{}", invalid.join("\n"));
    Ok(())
}

/// How long ago the days that are left ended: -1 stands for the first day after that.
fn ago(days: i64) -> String {
    match days {
        -1 => "less than a day ago".to_owned(),
        _ => format!("{} ago", counted(-days - 1, "day")),
    }
}

fn addresses(node: &Node) -> String {
    let addresses: Vec<_> = node.addresses().iter().map(ToString::to_string).collect();
    addresses.join(" ")
}

/// Says how long tokens of the HTTP API are still valid. One that has expired is refused, and harms nobody.
fn check_tokens(config: &Config) -> anyhow::Result<()> {
    for TokenDays { name, days, .. } in token_days(config) {
        let left = match days {
            ..0 => format!("expired {}: make a new one and remove its line", ago(days)),
            0..=SOON_DAYS_OF_TOKENS => format!("{} left: replace it soon", counted(days, "day")),
            _ => format!("{} left", counted(days, "day")),
        };
        crate::print(&format!("http_tokens, token {name}: {left}\n"))?;
    }
    Ok(())
}

/// A line for each fault. Those of values say which variable they came from, if they came from one.
fn in_lines(
    strange: Vec<String>,
    faults: Option<ConfigErrors>,
    matches: &ArgMatches,
) -> anyhow::Error {
    let of_values = faults.iter().flat_map(ConfigErrors::iter).map(|fault| {
        let words = fault.to_string();
        match environment::variable_of(&words, matches) {
            Some(variable) => format!("environment variable {variable}: {words}"),
            None => words,
        }
    });
    let all: Vec<_> = strange.into_iter().chain(of_values).collect();
    anyhow::Error::msg(all.join("\n"))
}

/// Every connection is a descriptor, and the usual soft limit of 1024 is meant for other programs.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// The first signal stops the node, the second does not wait for it. SIGHUP reads certificates again.
fn watch_signals(wake: Sender<Wake>) -> anyhow::Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let watch = move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                let _ = wake.send(Wake::Reload);
                continue;
            }
            if std::mem::replace(&mut is_stopping, true) {
                std::process::exit(128 + signal);
            }
            tracing::info!(signal, "stopping");
            // Fails only if the node is stopping already.
            let _ = wake.send(Wake::Signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch)?;
    Ok(())
}

fn watch_stdin(wake: Sender<Wake>) -> anyhow::Result<()> {
    let watch = move || {
        let mut scratch = [0; 64];
        // Whatever comes is not for us; the end, or a broken pipe, is.
        while matches!(std::io::stdin().read(&mut scratch), Ok(1..)) {}
        let _ = wake.send(Wake::ParentGone);
    };
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(watch)?;
    Ok(())
}

fn watch_failures(node: &mut Node, wake: Sender<Wake>) -> anyhow::Result<()> {
    let Some(failures) = node.failures() else {
        return Ok(());
    };
    let watch = move || {
        for failure in failures {
            let _ = wake.send(Wake::Failed(failure));
        }
    };
    std::thread::Builder::new()
        .name("failures".into())
        .spawn(watch)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expired_seconds_ago_expired_less_than_a_day_ago() {
        for (days, expected) in [
            (-1, "less than a day ago"),
            (-2, "1 day ago"),
            (-40, "39 days ago"),
        ] {
            assert_eq!(ago(days), expected);
        }
    }
}
