//! The TOML file.

use std::path::Path;

use clap::Args;

use super::{
    BridgeRuleSettings, BridgeSettings, ConfigError, HookSettings, ListenerSettings, Settings,
};

/// Reads and parses `path`.
pub(super) fn read(path: &Path) -> Result<Settings, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        key: "config",
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text)
}

/// Parses the text of a file; `path` is for the words of errors.
pub(super) fn parse(path: &Path, text: &str) -> Result<Settings, ConfigError> {
    let malformed = |error: toml::de::Error| ConfigError::Malformed {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let table: toml::Table = text.parse().map_err(malformed)?;
    let known = known_keys();
    // Looked for before serde does: its own refusal lists all keys there are, ours names the nearest.
    refuse_unknown(path, &table, &known)?;
    for listener in tables(&table, "listener") {
        refuse_unknown(path, listener, &ListenerSettings::KEYS.map(str::to_owned))?;
    }
    for hook in tables(&table, "hook") {
        refuse_unknown(path, hook, &HookSettings::KEYS.map(str::to_owned))?;
    }
    for bridge in tables(&table, "bridge") {
        refuse_unknown(path, bridge, &BridgeSettings::KEYS.map(str::to_owned))?;
        for rule in tables(bridge, "rule") {
            refuse_unknown(path, rule, &BridgeRuleSettings::KEYS.map(str::to_owned))?;
        }
    }
    toml::from_str(text).map_err(malformed)
}

/// The tables of an array.
fn tables<'a>(table: &'a toml::Table, key: &str) -> impl Iterator<Item = &'a toml::Table> {
    let array = table.get(key).and_then(toml::Value::as_array);
    array
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_table)
}

fn refuse_unknown(path: &Path, table: &toml::Table, known: &[String]) -> Result<(), ConfigError> {
    let Some(key) = table.keys().find(|key| !known.contains(key)) else {
        return Ok(());
    };
    Err(ConfigError::UnknownKey {
        path: path.to_owned(),
        key: key.clone(),
        nearest: nearest(key, known),
    })
}

/// Every key there is: the names of the flags' fields, and the tables that are no flags.
fn known_keys() -> Vec<String> {
    let command = Settings::augment_args(clap::Command::new("keys"));
    command
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .chain(["listener", "bridge", "hook"].map(str::to_owned))
        .collect()
}

/// The known key that looks most like `key`, if one does at all.
fn nearest(key: &str, known: &[String]) -> Option<String> {
    let plain = key.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&plain, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        parse(Path::new("thicket.toml"), text)
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let cases = [
            ("a letter too few", "clustername = 'x'", "cluster_name"),
            (
                "dashes as in the flag",
                "cluster-name = 'x'",
                "cluster_name",
            ),
            ("plural", "seeds = ['a:1']", "seed"),
            ("another unit", "connect_timeout = 3", "connect_timeout_s"),
        ];
        for (name, text, expected) in cases {
            let error = error_of(text);
            assert!(
                error.contains(&format!("did you mean `{expected}`?")),
                "{name}: {error}"
            );
        }
        assert!(error_of("zzz = 1").ends_with("unknown key `zzz`"));
    }

    #[test]
    fn the_sample_file_names_every_key_and_shows_the_defaults() {
        let sample = include_str!("../../../../deploy/thicket.toml");
        let config = parse(Path::new("deploy/thicket.toml"), sample)
            .and_then(Settings::check)
            .expect("the sample file is good");
        let default = Settings::default().check().expect("defaults are good");
        assert_eq!(config.limits, default.limits);
        assert_eq!(config.retained, default.retained);
        assert_eq!(config.multicast, default.multicast);
        assert_eq!(config.listeners, default.listeners);
        assert_eq!(
            (config.http, &config.cluster_name),
            (default.http, &default.cluster_name)
        );
        for key in known_keys() {
            let shown = sample.lines().any(|line| {
                let line = line.trim_start_matches("# ");
                line.split_once(" = ").is_some_and(|(name, _)| name == key)
                    || line == format!("[[{key}]]")
            });
            assert!(shown, "{key} is not in the sample file");
        }
    }

    #[test]
    fn the_sample_of_a_listener_names_every_key_of_one() {
        let sample = include_str!("../../../../deploy/thicket.toml");
        let start = sample.find("# [[listener]]").expect("there is one");
        let lines = sample[start..]
            .lines()
            .filter_map(|line| line.strip_prefix("# "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let settings = parse(Path::new("deploy/thicket.toml"), &text).expect("a good table");
        assert_eq!(settings.listener.map(|all| all.len()), Some(1));
        for key in ListenerSettings::KEYS {
            assert!(
                text.lines()
                    .any(|line| line.starts_with(&format!("{key} = "))),
                "{key}"
            );
        }
    }

    #[test]
    fn an_unknown_key_of_a_listener_is_refused_with_the_nearest_known_one() {
        let error = error_of("[[listener]]\naddress = 'localhost:1'\nproxyprotocol = true\n");
        assert!(error.contains("did you mean `proxy_protocol`?"), "{error}");
    }

    #[test]
    fn a_value_of_another_type_is_refused_with_line_value_and_expectation() {
        let error = error_of("name = 'a'\nworkers = 'two'\n");
        for word in [
            "thicket.toml",
            "line 2",
            "workers = 'two'",
            "invalid type: string \"two\", expected u32",
        ] {
            assert!(error.contains(word), "`{word}` in {error}");
        }
    }
}
