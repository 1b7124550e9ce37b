//! The TOML file.

use std::path::Path;

use clap::Args;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::{
    BridgeRuleSettings, BridgeSettings, ConfigError, HookSettings, ListenerSettings, Settings,
    TenantSettings,
};

/// Keys with a list of texts: a text alone is a list of one, as it is at the flag.
const LISTS: [&str; 6] = [
    "listen",
    "seed",
    "discover",
    "dns_name",
    "http_hosts",
    "site_price",
];
/// The same in the table of a hook.
const LISTS_OF_HOOKS: [&str; 3] = ["events", "filters", "kafka_brokers"];
/// Tables of the file that have no flags.
const TABLES: [&str; 4] = ["listener", "tenant", "bridge", "hook"];

impl Settings {
    /// Reads a file: the settings without unknown keys and invalid values, and those faults, by line.
    ///
    /// # Errors
    /// The file cannot be read, or is not TOML.
    pub fn from_file(path: &Path) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        read(path)
    }

    /// Reads the text of a file; `path` is for error messages.
    ///
    /// # Errors
    /// As [`Settings::from_file`].
    pub fn from_toml(path: &Path, text: &str) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        parse(path, text)
    }
}

/// Reads and parses `path`.
fn read(path: &Path) -> Result<(Settings, Vec<ConfigError>), ConfigError> {
    let text = super::text::read_text(path).map_err(|source| ConfigError::Unreadable {
        key: "config",
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text)
}

/// Parses the text of a file; `path` is for error messages. The settings do not contain the keys that have a fault.
fn parse(path: &Path, text: &str) -> Result<(Settings, Vec<ConfigError>), ConfigError> {
    let malformed = |error: toml::de::Error| {
        let mut problem = error.to_string();
        if let Some((told, "u8" | "u16" | "u32" | "u64" | "usize")) =
            problem.trim_end().rsplit_once("expected ")
        {
            problem = format!("{told}expected a whole number");
        }
        ConfigError::Malformed {
            path: path.to_owned(),
            problem,
        }
    };
    let root = DeTable::parse(text).map_err(malformed)?;
    let span = root.span();
    let mut reader = Reader {
        path,
        root: root.into_inner(),
        faults: Vec::new(),
    };
    // Unknown keys are removed before serde sees them: its own error lists all keys, ours names the nearest.
    reader.remove_unknown();
    reader.accept_single_texts();
    let settings = loop {
        let root = Spanned::new(span.clone(), reader.root.clone());
        match Settings::deserialize(toml::Deserializer::from(root)) {
            Ok(settings) => break settings,
            Err(mut error) => {
                error.set_input(Some(text));
                let at = error.span().map_or(0, |span| span.start);
                let fault = match choices(&reader.root, at).filter(|_| error.message() == NO_CHOICE)
                {
                    Some(choices) => ConfigError::Malformed {
                        path: path.to_owned(),
                        problem: error.to_string().replace(NO_CHOICE, &choices),
                    },
                    None => malformed(error),
                };
                reader.faults.push((at, fault));
                if !remove(&mut reader.root, at) {
                    break Settings::default();
                }
            }
        }
    };
    let mut faults = reader.faults;
    faults.sort_by_key(|(at, _)| *at);
    Ok((
        settings,
        faults.into_iter().map(|(_, fault)| fault).collect(),
    ))
}

/// What the parser says of a value that is no text where it wants one of several.
const NO_CHOICE: &str = "wanted string or table";

/// What the value at an offset could be: the parser says so of a text that is none of them.
fn choices(root: &DeTable<'_>, at: usize) -> Option<String> {
    let mut root = root.clone();
    if !put_text(&mut root, at) {
        return None;
    }
    let root = Spanned::new(0..0, root);
    let error = Settings::deserialize(toml::Deserializer::from(root)).err()?;
    let (_, choices) = error.message().split_once("expected ")?;
    Some(format!("expected {choices}"))
}

/// Puts a text in the place of the value at an offset. Returns whether it was found.
fn put_text(table: &mut DeTable<'_>, at: usize) -> bool {
    for (key, value) in table.iter_mut() {
        let name: &str = key.get_ref();
        let has_tables = TABLES.contains(&name) || name == "rule";
        if has_tables && tables_of(value).any(|table| put_text(table, at)) {
            return true;
        }
        if !has_tables && value.span().contains(&at) {
            *value.get_mut() = DeValue::String("?".into());
            return true;
        }
    }
    false
}

struct Reader<'a> {
    path: &'a Path,
    /// Does not contain the keys that have a fault.
    root: DeTable<'a>,
    /// With their offsets in the text.
    faults: Vec<(usize, ConfigError)>,
}

impl Reader<'_> {
    fn remove_unknown(&mut self) {
        let (path, faults) = (self.path, &mut self.faults);
        remove_unknown(path, &mut self.root, &known_keys(), faults);
        for listener in tables(&mut self.root, "listener") {
            remove_unknown(path, listener, &owned(&ListenerSettings::KEYS), faults);
        }
        for tenant in tables(&mut self.root, "tenant") {
            remove_unknown(path, tenant, &owned(&TenantSettings::KEYS), faults);
        }
        for hook in tables(&mut self.root, "hook") {
            remove_unknown(path, hook, &owned(&HookSettings::KEYS), faults);
        }
        for bridge in tables(&mut self.root, "bridge") {
            remove_unknown(path, bridge, &owned(&BridgeSettings::KEYS), faults);
            for rule in tables(bridge, "rule") {
                remove_unknown(path, rule, &owned(&BridgeRuleSettings::KEYS), faults);
            }
        }
    }

    fn accept_single_texts(&mut self) {
        accept_single_texts(&mut self.root, &LISTS);
        for hook in tables(&mut self.root, "hook") {
            accept_single_texts(hook, &LISTS_OF_HOOKS);
        }
    }
}

fn accept_single_texts(table: &mut DeTable<'_>, lists: &[&str]) {
    for (key, value) in table.iter_mut() {
        let name: &str = key.get_ref();
        if lists.contains(&name) && value.get_ref().is_str() {
            let mut list = DeArray::new();
            list.push(value.clone());
            *value.get_mut() = DeValue::Array(list);
        }
    }
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

/// The tables in an array.
fn tables<'a, 'i>(
    table: &'a mut DeTable<'i>,
    key: &str,
) -> impl Iterator<Item = &'a mut DeTable<'i>> {
    let values = table
        .iter_mut()
        .filter(move |(name, _)| name.get_ref() == key);
    values.flat_map(|(_, value)| tables_of(value))
}

fn tables_of<'a, 'i>(
    value: &'a mut Spanned<DeValue<'i>>,
) -> impl Iterator<Item = &'a mut DeTable<'i>> {
    let array = match value.get_mut() {
        DeValue::Array(array) => Some(array.iter_mut()),
        _ => None,
    };
    array
        .into_iter()
        .flatten()
        .filter_map(|it| match it.get_mut() {
            DeValue::Table(table) => Some(table),
            _ => None,
        })
}

fn remove_unknown(
    path: &Path,
    table: &mut DeTable<'_>,
    known: &[String],
    faults: &mut Vec<(usize, ConfigError)>,
) {
    retain(table, |key, _| {
        let name: &str = key.get_ref();
        let is_known = known.iter().any(|it| it == name);
        if !is_known {
            let fault = ConfigError::UnknownKey {
                path: path.to_owned(),
                key: name.to_owned(),
                nearest: nearest(name, known),
            };
            faults.push((key.span().start, fault));
        }
        is_known
    });
}

/// Removes the key whose value is at an offset of the text; within an array of tables, only that key of its table. Returns whether it was found.
fn remove(table: &mut DeTable<'_>, at: usize) -> bool {
    let mut is_found = false;
    for (key, value) in table.iter_mut() {
        let name: &str = key.get_ref();
        if TABLES.contains(&name) || name == "rule" {
            is_found |= tables_of(value).any(|table| remove(table, at));
        }
    }
    // The span of a table is its header only.
    retain(table, |_, value| {
        let is_it = !is_found && value.span().contains(&at);
        is_found |= is_it;
        !is_it
    });
    is_found
}

fn retain<'i>(
    table: &mut DeTable<'i>,
    mut is_kept: impl FnMut(&Spanned<DeString<'i>>, &Spanned<DeValue<'i>>) -> bool,
) {
    let all = std::mem::take(table).into_iter();
    *table = all.filter(|(key, value)| is_kept(key, value)).collect();
}

/// Every known key: the names of the flags' fields, and the tables that have no flags.
fn known_keys() -> Vec<String> {
    let command = Settings::augment_args(clap::Command::new("keys"));
    command
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .chain(TABLES.map(str::to_owned))
        .collect()
}

/// The known key most similar to `key`, if any is similar.
fn nearest(key: &str, known: &[String]) -> Option<String> {
    let plain = key.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&plain, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.clone())
}

/// The configuration from the text of a file.
#[cfg(test)]
pub(super) fn checked(text: &str) -> Result<super::Config, super::ConfigErrors> {
    let (settings, faults) = parse(Path::new("thicket.toml"), text)?;
    settings.check_after(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        checked(text).expect_err(text).to_string()
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
        let config = checked(sample).expect("the sample file is good");
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
    fn the_samples_of_listeners_and_tenants_name_every_key_of_one() {
        let sample = include_str!("../../../../deploy/thicket.toml");
        let (of_listener, of_tenant) = (&ListenerSettings::KEYS[..], &TenantSettings::KEYS[..]);
        for (table, keys) in [("listener", of_listener), ("tenant", of_tenant)] {
            let start = sample
                .find(&format!("# [[{table}]]"))
                .expect("there is one");
            let lines = sample[start..]
                .lines()
                .map_while(|line| line.strip_prefix("# "));
            let text: String = lines.map(|line| format!("{line}\n")).collect();
            let (settings, faults) = parse(Path::new("deploy/thicket.toml"), &text).expect("TOML");
            assert!(faults.is_empty(), "{faults:?}");
            let listeners = settings.listener.unwrap_or_default().len();
            let tenants = settings.tenant.unwrap_or_default().len();
            assert_eq!(listeners + tenants, 1, "{table}");
            for key in keys {
                let is_shown = |line: &str| line.starts_with(&format!("{key} = "));
                assert!(text.lines().any(is_shown), "{table}: {key}");
            }
        }
    }

    #[test]
    fn an_unknown_key_of_a_listener_is_refused_with_the_nearest_known_one() {
        let error = error_of("[[listener]]\naddress = 'localhost:1'\nproxyprotocol = true\n");
        assert!(error.contains("did you mean `proxy_protocol`?"), "{error}");
    }

    #[test]
    fn a_text_alone_is_a_list_of_one() {
        let text =
            "listen = '127.0.0.1:6001'\nseed = 'b:1883'\ndiscover = 'dns'\ndns_name = 'c:1883'\n";
        let (settings, faults) = parse(Path::new("thicket.toml"), text).expect("TOML");
        assert!(faults.is_empty(), "{faults:?}");
        for (found, expected) in [
            (settings.listen, "127.0.0.1:6001"),
            (settings.seed, "b:1883"),
            (settings.dns_name, "c:1883"),
        ] {
            assert_eq!(found, Some(vec![expected.to_owned()]));
        }
        assert_eq!(settings.discover.map(|all| all.len()), Some(1));
        let error = error_of("listen = 1883\n");
        assert!(error.contains("line 1"), "{error}");
        let hook = "[[hook]]\nname = 'h'\nurl = 'http://a/b'\nevents = 'connect'\n";
        assert_eq!(checked(hook).expect("good").hooks.len(), 1);
    }

    #[test]
    fn a_value_of_another_type_is_refused_with_line_value_and_expectation() {
        let error = error_of("name = 'a'\nworkers = 'two'\n");
        for word in [
            "thicket.toml",
            "line 2",
            "workers = 'two'",
            "invalid type: string \"two\", expected a whole number",
        ] {
            assert!(error.contains(word), "`{word}` in {error}");
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_refused_with_the_choices() {
        for (text, expected) in [
            (
                "partition = true\n",
                "expected one of `serve`, `majority`, `majority-without-data`",
            ),
            (
                "workers = 1\n[[listener]]\naddress = 'localhost:1'\ntransport = 3\n",
                "expected one of `tcp`, `tls`, ",
            ),
            (
                "[[bridge]]\nname = 'a'\n[[bridge.rule]]\ndirection = 2\n",
                "expected one of `in`, `out`, `both`",
            ),
        ] {
            let error = error_of(text);
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains(NO_CHOICE), "{error}");
        }
    }

    #[test]
    fn a_key_whose_value_cannot_be_read_is_not_missing_as_well() {
        let hook = "[[hook]]\nname = 'h'\nurl = 'http://a/b'\nevents = ['foo']\n";
        let rule = "[[bridge]]\nname = 'a'\naddress = 'b:1'\n[[bridge.rule]]\ntopic = 'a'\ndirection = 'sideways'\n";
        for (text, expected, not_missing) in [
            (hook, "unknown variant `foo`", "hook.events"),
            (rule, "unknown variant `sideways`", "bridge.rule.direction"),
        ] {
            let error = error_of(text);
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains(not_missing), "{error}");
        }
    }

    #[test]
    fn all_faults_are_found_at_once_and_each_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(at("acl"), "topic read a\nallow b\n").expect("written");
        let text = format!(
            "workers = 'two'
clustername = 'x'
users = '{}'
acl = '{}'
http_tokens = '{}'
backups = 9
maximum_packet_size = 7
topic_levels = 0
jwt_ca = 'x'
[[listener]]
address = 'tls://127.0.0.1:0'
tls_certificate = '{}'
tls_key = '{}'
connections = 'many'
proxyprotocol = true
[[listener]]
address = 'nowhere'
[[hook]]
name = 'h'
url = 'x'
events = ['connect']
batch = 0
",
            at("users"),
            at("acl"),
            at("http-tokens"),
            at("crt"),
            at("key"),
        );
        let faults = checked(&text).expect_err("bad");
        let found: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let expected = [
            "invalid type: string \"two\", expected a whole number",
            "unknown key `clustername`; did you mean `cluster_name`?",
            "invalid type: string \"many\", expected a whole number",
            "unknown key `proxyprotocol`; did you mean `proxy_protocol`?",
            "maximum_packet_size = 7: expected 64",
            "topic_levels = 0: expected 1",
            "cannot read a certificate from",
            "cannot read a key from",
            "listen = nowhere: expected HOST:PORT",
            "users: cannot read",
            "line 2: expected `user`, `topic` or `pattern`",
            "http_tokens: cannot read",
            "backups = 9: expected a number from 0 to 3",
            "hook.url = x",
            "hook.batch = 0",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "`{expected}` in {found}");
        }
        // If all keys could be read, combinations are checked as well.
        let error = error_of("jwt_ca = 'x'\nbackups = 9\n");
        assert!(
            error.contains("backups = 9") && error.contains("jwt_ca"),
            "{error}"
        );
    }
}
