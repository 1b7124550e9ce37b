//! Hooks: tables `[[hook]]` of the file become checked plans.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use thicket_hooks::HookConfig;
use thicket_session::topic::TopicFilter;

use super::check::{checked_name, invalid};
use super::error::Faults;
use super::{ConfigError, Settings, units};

/// A table `[[hook]]`; what is `None` was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookSettings {
    /// Of this hook; no two of a node have the same.
    pub name: Option<String>,
    /// Where events are posted.
    pub url: Option<String>,
    /// Which kinds of events.
    pub events: Vec<HookKind>,
    /// Topics whose messages are events of the kind `publish`.
    pub filters: Vec<String>,
    /// File with the key of the signature.
    pub secret_file: Option<PathBuf>,
    /// PEM file of the authorities that the receiver is checked against.
    pub ca_file: Option<PathBuf>,
    /// Events in a request at most.
    pub batch: Option<usize>,
    /// Events that wait at most.
    pub queue_events: Option<usize>,
    /// Their bytes.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub queue_bytes: Option<usize>,
    /// How long a request may take, milliseconds.
    #[serde(deserialize_with = "units::millis_of_file")]
    pub timeout_ms: Option<u64>,
    /// How often a batch is sent before it is a dead letter.
    pub attempts: Option<u32>,
    /// The longest wait between two attempts, seconds.
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub retry_maximum_s: Option<u64>,
    /// File for events that could not be delivered.
    pub dead_letters: Option<PathBuf>,
    /// Bytes of that file before it is rotated.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub dead_letter_bytes: Option<u64>,
}

/// A kind of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookKind {
    /// Clients that connect or are refused.
    Connect,
    /// Clients that disconnect.
    Disconnect,
    /// Subscriptions.
    Subscribe,
    /// Their ends.
    Unsubscribe,
    /// Messages on topics that match `filters`.
    Publish,
    /// Sessions that begin, end, move or fail over.
    Session,
    /// Nodes and partitions.
    Cluster,
}

impl HookSettings {
    /// The keys of a table, for whoever mistypes one.
    pub(super) const KEYS: [&str; 14] = [
        "name",
        "url",
        "events",
        "filters",
        "secret_file",
        "ca_file",
        "batch",
        "queue_events",
        "queue_bytes",
        "timeout_ms",
        "attempts",
        "retry_maximum_s",
        "dead_letters",
        "dead_letter_bytes",
    ];
}

/// A hook, checked.
#[derive(Debug, Clone)]
pub struct HookPlan {
    /// Which events it gets.
    pub kinds: Vec<HookKind>,
    /// Topics of messages it gets.
    pub filters: Vec<TopicFilter>,
    /// Where they go.
    pub config: HookConfig,
}

/// All hooks. Reads their secrets and certificates.
pub(super) fn check(settings: &Settings, faults: &mut Faults) -> Vec<HookPlan> {
    let mut plans: Vec<HookPlan> = Vec::new();
    for table in settings.hook.as_deref().unwrap_or_default() {
        let plan = plan(table, faults);
        let is_same = |other: &&HookPlan, part: fn(&HookConfig) -> String| {
            part(&other.config) == part(&plan.config)
        };
        let has_name = !plan.config.name.is_empty();
        if has_name
            && plans
                .iter()
                .any(|other| is_same(&other, |it| it.name.clone()))
        {
            let name = &plan.config.name;
            faults.add(invalid("hook.name", name, "another name than other hooks"));
        }
        let path = plan.config.dead_letters.as_ref();
        if plans
            .iter()
            .any(|it| path.is_some() && it.config.dead_letters.as_ref() == path)
        {
            let path = path
                .map(|path| path.display().to_string())
                .unwrap_or_default();
            faults.add(invalid(
                "hook.dead_letters",
                path,
                "another file than other hooks",
            ));
        }
        plans.push(plan);
    }
    plans
}

fn plan(table: &HookSettings, faults: &mut Faults) -> HookPlan {
    let name = table.name.clone().unwrap_or_default();
    let name = faults.or_default(checked_name("hook.name", name));
    let url = table.url.clone().unwrap_or_default();
    let url = faults.or_default(checked_url("hook.url", url));
    if table.events.is_empty() {
        faults.add(invalid(
            "hook.events",
            "[]",
            "at least one of connect, disconnect, subscribe, unsubscribe, publish, session, cluster",
        ));
    }
    if table.events.contains(&HookKind::Publish) == table.filters.is_empty() {
        faults.add(ConfigError::Conflict(
            "hook.filters names the topics of hook.events = [\"publish\"]: give both or neither",
        ));
    }
    let filter = |text: &String| {
        TopicFilter::new(text).map_err(|error| invalid("hook.filters", text, error.to_string()))
    };
    let default = HookConfig::new(name, url);
    if table.ca_file.is_some() && !default.url.is_empty() && !default.url.starts_with("https://") {
        faults.add(ConfigError::Conflict(
            "hook.ca_file is for a hook.url that begins with https://",
        ));
    }
    if table.dead_letter_bytes.is_some() && table.dead_letters.is_none() {
        faults.add(ConfigError::Conflict(
            "hook.dead_letter_bytes has no effect without hook.dead_letters",
        ));
    }
    let authorities = table.ca_file.as_deref();
    faults.keep(thicket_hooks::agent(&default.url, authorities));
    let filters = table.filters.iter().map(filter);
    let filters = filters.filter_map(|filter| faults.keep(filter)).collect();
    HookPlan {
        kinds: table.events.clone(),
        filters,
        config: HookConfig {
            secret: faults.or_default(secret(table)),
            authorities: table.ca_file.clone(),
            batch: faults.in_range("hook.batch", table.batch, default.batch, 1..=10_000),
            queue_events: faults.in_range(
                "hook.queue_events",
                table.queue_events,
                default.queue_events,
                1..=10_000_000,
            ),
            queue_bytes: faults.in_range(
                "hook.queue_bytes",
                table.queue_bytes,
                default.queue_bytes,
                1024..=usize::MAX,
            ),
            timeout: Duration::from_millis(faults.in_range(
                "hook.timeout_ms",
                table.timeout_ms,
                default.timeout.as_millis() as u64,
                10..=60_000,
            )),
            attempts: faults.in_range(
                "hook.attempts",
                table.attempts,
                default.attempts,
                1..=1_000_000,
            ),
            longest_wait: Duration::from_secs(faults.in_range(
                "hook.retry_maximum_s",
                table.retry_maximum_s,
                default.longest_wait.as_secs(),
                1..=3600,
            )),
            dead_letters: table.dead_letters.clone(),
            dead_letter_bytes: faults.in_range(
                "hook.dead_letter_bytes",
                table.dead_letter_bytes,
                default.dead_letter_bytes,
                1024..=u64::MAX,
            ),
            ..default
        },
    }
}

/// The bytes of a file without the line's end.
fn secret(table: &HookSettings) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(path) = &table.secret_file else {
        return Ok(None);
    };
    let key = "hook.secret_file";
    let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable {
        key,
        path: path.clone(),
        source,
    })?;
    let secret = bytes.trim_ascii_end();
    if secret.len() < 16 {
        return Err(ConfigError::BadFile {
            key,
            path: path.clone(),
            problem: "expected a secret of at least 16 bytes".into(),
        });
    }
    Ok(Some(secret.to_vec()))
}

/// `http://` or `https://`, and a host.
pub(super) fn checked_url(key: &'static str, url: String) -> Result<String, ConfigError> {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split('/').next());
    if host.is_none_or(|host| host.is_empty() || host.contains('@')) {
        return Err(invalid(
            key,
            url,
            "http://HOST:PORT/PATH or https://HOST:PORT/PATH",
        ));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::checked;
    use super::*;

    const GOOD: &str = "[[hook]]\nname = 'a'\nurl = 'http://localhost:1/x'\nevents = ['connect']\n";

    #[test]
    fn a_hook_has_the_defaults() {
        let config = checked(GOOD).expect("good");
        let expected = HookConfig::new("a", "http://localhost:1/x");
        assert_eq!(config.hooks[0].config, expected);
        assert_eq!(config.hooks[0].kinds, [HookKind::Connect]);
    }

    #[test]
    fn bad_hooks_are_refused_with_key_value_and_expectation() {
        for (text, expected) in [
            (GOOD.replace("name = 'a'", ""), "hook.name"),
            (
                GOOD.replace("http://", "ftp://"),
                "hook.url = ftp://localhost:1/x",
            ),
            (GOOD.replace("'connect'", ""), "hook.events = []"),
            (
                GOOD.replace("'connect'", "'conect'"),
                "unknown variant `conect`",
            ),
            (GOOD.replace("'connect'", "'publish'"), "hook.filters"),
            (format!("{GOOD}filters = ['a']\n"), "hook.filters"),
            (
                GOOD.replace("['connect']", "['publish']\nfilters = ['a#']"),
                "hook.filters = a#",
            ),
            (format!("{GOOD}ca_file = 'x'\n"), "hook.ca_file"),
            (
                format!("{GOOD}batch = 0\n"),
                "hook.batch = 0: expected 1 to 10000",
            ),
            (format!("{GOOD}atempts = 1\n"), "did you mean `attempts`"),
            (
                format!("{GOOD}secret_file = '/nowhere/x'\n"),
                "hook.secret_file: cannot read",
            ),
            (format!("{GOOD}{GOOD}"), "hook.name = a"),
        ] {
            let error = checked(&text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn the_sample_of_a_hook_names_every_key_of_one() {
        let sample = include_str!("../../../../deploy/thicket.toml");
        let start = sample.find("# [[hook]]").expect("there is one");
        let lines = sample[start..]
            .lines()
            .map_while(|line| line.strip_prefix("# "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let read = Settings::from_toml(Path::new("thicket.toml"), &text).expect("TOML");
        let (settings, faults) = read;
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(settings.hook.map(|all| all.len()), Some(1));
        for key in HookSettings::KEYS {
            assert!(text.contains(&format!("\n{key} = ")), "{key}");
        }
    }
}
