//! What a node of this program would say of a command line, for scenarios that have it.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Args, FromArgMatches};
use thicket_broker::ConfigError;

use crate::broker::Broker;
use crate::flags;

/// Reads a command line from the word `broker` on, and checks its values. Files that it names are not read: those of a run are not there yet.
pub(super) fn read_line(words: &[String]) -> Result<(), String> {
    if words.first().is_none_or(|word| word != "broker") {
        return Ok(());
    }
    // The lab's brokers do not have its environment.
    let command = Broker::augment_args(clap::Command::new("broker"));
    let command = command.mut_args(|argument| argument.env(Resettable::Reset));
    let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let mut faults = Vec::new();
    let broker = loop {
        let parsed = command.clone().try_get_matches_from(&words);
        let error = match parsed.and_then(|matches| Broker::from_arg_matches(&matches)) {
            Ok(broker) => break broker,
            Err(error) => error,
        };
        match flags::take_fault(&error, &mut words) {
            Some(fault) => faults.push(ConfigError::Flag(fault)),
            None => return Err(first_line(&error)),
        }
    };
    let checked = broker.settings().check_after(faults);
    let faults = checked.err();
    let faults = faults.iter().flat_map(|faults| faults.iter());
    let faults = faults.filter(|fault| is_of_value(fault));
    let words: Vec<String> = faults.map(ToString::to_string).collect();
    if words.is_empty() {
        Ok(())
    } else {
        Err(words.join("; "))
    }
}

/// Whether the command line alone is wrong, whatever is in the files that it names.
fn is_of_value(fault: &ConfigError) -> bool {
    match fault {
        ConfigError::In { fault, .. } => is_of_value(fault),
        ConfigError::Invalid { .. }
        | ConfigError::Flag(_)
        | ConfigError::Conflict(_)
        | ConfigError::TooOpen(_) => true,
        ConfigError::Unreadable { .. }
        | ConfigError::Malformed { .. }
        | ConfigError::UnknownKey { .. }
        | ConfigError::BadFile { .. }
        | ConfigError::Users(_)
        | ConfigError::Tls(_) => false,
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_refused_for_its_values_but_not_for_files() {
        let read = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            read_line(&words).err().unwrap_or_default()
        };
        for (line, expected) in [
            ("broker", ""),
            ("broker --workers=2 --routing=topic", ""),
            ("broker --workers=-1", "--workers -1: -1 is not in 0..="),
            ("broker --workers=0", "workers = 0: expected"),
            (
                "broker --routing=x",
                "routing = \"x\": expected mesh, topic, tree or flood",
            ),
            ("broker --log-level=x", "--log-level x: expected one of "),
            ("broker --bakups 1", "unexpected argument '--bakups'"),
            (
                "broker --workers 1 --workers 2",
                "cannot be used multiple times",
            ),
            ("broker --users /no/such/file", ""),
            ("another --workers=-1", ""),
        ] {
            let error = read(line);
            let is_right = error.contains(expected) && error.is_empty() == expected.is_empty();
            assert!(is_right, "{line}: {error}");
        }
    }
}
