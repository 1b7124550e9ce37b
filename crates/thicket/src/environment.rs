//! The environment as configuration: a variable that is no key is refused as a key of the file is, and a bad value names its variable.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};

const PREFIX: &str = "THICKET_";
/// Read where they are used, as no flag should show them to other users of the machine.
const PASSWORDS: [&str; 2] = ["THICKET_BENCH_PASSWORD", "THICKET_DISPATCH_PASSWORD"];

/// The variables of ours that no command knows, a line for each. `names`: of the environment.
pub fn unknown(command: &clap::Command, names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let known = known(command);
    let names: BTreeSet<_> = names
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with(PREFIX) && !is_service_link(name))
        .collect();
    let unknown = names.into_iter().filter(|name| !known.contains(name));
    let line = |name: String| {
        let hint =
            nearest(&name, &known).map_or(String::new(), |near| format!("; did you mean {near}?"));
        format!("unknown environment variable {name}{hint}")
    };
    unknown.map(line).collect()
}

/// Adds to a refusal by the command line where the value came from, if that was the environment.
pub fn explain(command: &clap::Command, error: &clap::Error, given: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let argument = all_commands(command)
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .find(|argument| argument.to_string() == *shown && argument.get_env().is_some())?;
    let long = format!("--{}", argument.get_long()?);
    let is_flag = given.iter().any(|word| {
        let word = word.to_string_lossy();
        word == long || word.starts_with(&format!("{long}="))
    });
    let variable = argument.get_env()?.to_string_lossy();
    (!is_flag && std::env::var_os(&*variable).is_some())
        .then(|| format!("the value comes from the environment variable {variable}"))
}

/// The variable that gave a setting its value, for an error that starts with the setting's key.
pub fn variable_of(problem: &str, matches: &clap::ArgMatches) -> Option<String> {
    let key: String = problem
        .chars()
        .take_while(|letter| letter.is_ascii_lowercase() || *letter == '_')
        .collect();
    let is_key = matches.ids().any(|id| id.as_str() == key);
    let source = is_key.then(|| matches.value_source(&key)).flatten();
    (source == Some(clap::parser::ValueSource::EnvVariable))
        .then(|| format!("{PREFIX}{}", key.to_ascii_uppercase()))
}

fn known(command: &clap::Command) -> BTreeSet<String> {
    all_commands(command)
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter_map(clap::Arg::get_env)
        .map(|name| name.to_string_lossy().into_owned())
        .chain(PASSWORDS.map(str::to_owned))
        .collect()
}

fn all_commands(command: &clap::Command) -> Vec<&clap::Command> {
    let below = command.get_subcommands().flat_map(all_commands);
    std::iter::once(command).chain(below).collect()
}

/// Kubernetes sets these in every container for each service of its namespace, so for one named `thicket` or `thicket-...` as well.
fn is_service_link(name: &str) -> bool {
    let is_number = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let port = name
        .split_once("_PORT")
        .is_some_and(|(_, rest)| rest.is_empty() || rest.strip_prefix('_').is_some_and(is_number));
    name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") || port
}

/// The most similar variable, if at most half of the letters after the prefix differ.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let most = (name.len().saturating_sub(PREFIX.len()) / 2).min(4);
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn refusal(name: &str) -> Option<String> {
        let names = ["PATH", name].map(OsString::from);
        let mut found = unknown(&crate::Cli::command(), names);
        assert!(found.len() <= 1, "{found:?}");
        found.pop()
    }

    #[test]
    fn a_variable_that_is_no_key_is_refused_with_the_nearest_one() {
        let cases = [
            ("THICKET_LISTENER", "THICKET_LISTEN"),
            ("THICKET_SEEDS", "THICKET_SEED"),
            ("THICKET_CLUSTERNAME", "THICKET_CLUSTER_NAME"),
            ("THICKET_API_TOKN", "THICKET_API_TOKEN"),
        ];
        for (name, expected) in cases {
            let expected = format!("unknown environment variable {name}; did you mean {expected}?");
            assert_eq!(refusal(name), Some(expected));
        }
        for name in ["THICKET_SOMETHING_ELSE", "THICKET_BIN"] {
            let far = format!("unknown environment variable {name}");
            assert_eq!(refusal(name), Some(far));
        }
    }

    #[test]
    fn variables_of_any_command_and_of_kubernetes_are_let_through() {
        let names = [
            "THICKET_LISTEN",
            "THICKET_CONFIG",
            "THICKET_API",
            "THICKET_DISPATCH_LISTEN",
            "THICKET_DISPATCH_PASSWORD",
            "THICKET_SERVICE_HOST",
            "THICKET_SERVICE_PORT",
            "THICKET_SERVICE_PORT_MQTT",
            "THICKET_PORT",
            "THICKET_PORT_1883_TCP",
            "THICKET_PORT_1883_TCP_ADDR",
            "THICKET_HEADLESS_SERVICE_HOST",
            "THICKET_HEADLESS_PORT_1883_TCP_PROTO",
        ];
        for name in names {
            assert_eq!(refusal(name), None, "{name}");
        }
    }
}
