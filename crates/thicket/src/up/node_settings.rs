//! Settings of `thicket broker` that `up` passes on to all its nodes: the flags after `--`, and the environment.

use std::ffi::OsString;

use anyhow::{bail, ensure};
use clap::CommandFactory;
use clap::parser::ValueSource;

use crate::{Cli, environment};

/// Settings that differ from node to node, or that `up` has a flag for; and what says so.
const OWN: [(&str, &str); 15] = [
    ("name", "each node has its own"),
    ("listen", "use --port"),
    ("http", "use --http-port"),
    ("probe", "each node has its own"),
    ("placement_listen", "use --placement-port"),
    ("advertise", "each node has its own"),
    ("link_tls_certificate", "each node has its own"),
    ("link_tls_key", "each node has its own"),
    ("users", "use --users"),
    ("cluster_name", "use --cluster-name"),
    ("workers", "use --workers"),
    ("data", "use --data"),
    ("log_level", "use --log-level"),
    ("tls_certificate", "use --tls-certificate"),
    ("tls_key", "use --tls-key"),
];

/// Refuses flags that no node knows, or that are not for all of them: before anything is started.
pub fn check(flags: &[OsString]) -> anyhow::Result<()> {
    let words = ["thicket", "broker"].map(OsString::from);
    let line = words.iter().chain(flags);
    let mut command = Cli::command();
    // Only then do arguments show as errors show them.
    command.build();
    let mut matches = match command.try_get_matches_from_mut(line) {
        Ok(matches) => matches,
        Err(error) => match environment::explain(&command, &error, flags) {
            Some(source) => bail!("{}: {source}", first_line(&error)),
            None => bail!("after `--`: {}", first_line(&error)),
        },
    };
    let (_, matches) = matches.remove_subcommand().expect("it is broker");
    for (key, instead) in OWN {
        ensure!(
            matches.value_source(key) != Some(ValueSource::CommandLine),
            "after `--`: --{}: {instead}, before `--`",
            key.replace('_', "-")
        );
    }
    for key in ["check", "stop_with_stdin"] {
        ensure!(
            matches.value_source(key) != Some(ValueSource::CommandLine),
            "after `--`: --{}: not for `up`",
            key.replace('_', "-")
        );
    }
    Ok(())
}

/// What is wrong, without the hints of a command line that the user did not write.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// The variables of ours in the environment.
#[derive(Debug, PartialEq, Eq)]
pub struct Variables {
    /// Not passed on.
    pub withheld: Vec<OsString>,
    /// Of those that the user may have expected to be, why not; a line each.
    pub remarks: Vec<String>,
}

impl Variables {
    pub fn sort(names: impl IntoIterator<Item = OsString>) -> Self {
        let ours: Vec<OsString> = names
            .into_iter()
            .filter(|name| name.to_string_lossy().starts_with("THICKET_"))
            .collect();
        let command = Cli::command();
        let broker = command.find_subcommand("broker").expect("it is one");
        let key_of = |name: &OsString| {
            let mut arguments = broker.get_arguments();
            let argument = arguments.find(|argument| argument.get_env() == Some(name))?;
            Some(argument.get_id().as_str())
        };
        let mut remarks: Vec<String> = environment::unknown(&command, ours.iter().cloned());
        let mut withheld = Vec::new();
        for name in ours {
            let key = key_of(&name);
            let own = OWN.iter().find(|(own, _)| key == Some(*own));
            if let Some((_, instead)) = own {
                let name = name.to_string_lossy();
                remarks.push(format!("{name} is not passed on to the nodes: {instead}"));
            }
            if key.is_none() || own.is_some() {
                withheld.push(name);
            }
        }
        Self { withheld, remarks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_not_for_all_nodes_are_refused_before_anything_starts() {
        let good = ["--redirect", "topics", "--rebalance=on", "--backups", "2"];
        check(&good.map(OsString::from)).expect("flags of a node");
        for (flags, expected) in [
            (&["--listen", ":1"][..], "--listen: use --port, before `--`"),
            (&["--data", "d"], "--data: use --data"),
            (&["--name=n"], "--name: each node has its own"),
            (&["--redirekt", "load"], "unexpected argument '--redirekt'"),
            (&["--redirect", "up"], "invalid value 'up'"),
            (&["--check"], "--check: not for `up`"),
        ] {
            let flags: Vec<_> = flags.iter().map(OsString::from).collect();
            let error = check(&flags).expect_err("refused").to_string();
            assert!(
                error.starts_with("after `--`: ") && error.contains(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn variables_of_all_nodes_are_passed_on_and_the_others_are_named() {
        let names = [
            "PATH",
            "THICKET_REDIRECT",
            "THICKET_DATA",
            "THICKET_API",
            "THICKET_REDIRCT",
        ];
        let sorted = Variables::sort(names.map(OsString::from));
        assert_eq!(
            sorted.withheld,
            ["THICKET_DATA", "THICKET_API", "THICKET_REDIRCT"]
        );
        assert_eq!(
            sorted.remarks,
            [
                "unknown environment variable THICKET_REDIRCT; did you mean THICKET_REDIRECT?",
                "THICKET_DATA is not passed on to the nodes: use --data",
            ]
        );
    }

    #[test]
    fn each_setting_of_its_own_is_one_of_a_node() {
        let command = Cli::command();
        let broker = command.find_subcommand("broker").expect("it is one");
        for (key, _) in OWN {
            let mut arguments = broker.get_arguments();
            assert!(arguments.any(|it| it.get_id() == key), "{key}");
        }
    }
}
