//! Hooks: tables `[[hook]]` of the file become checked plans.

use std::path::Path;
use std::time::Duration;

use thicket_hooks::{
    Destination, HAS_KAFKA, HookConfig, HttpDestination, KafkaDestination, KafkaLogin,
    KafkaMechanism,
};
use thicket_session::topic::TopicFilter;
use thicket_transport::tls::ClientTls;

use super::choices::{HookKind, KafkaSasl};
use super::faults::Faults;
use super::tables::HookSettings;
use super::values::{checked_name, checked_url, host_and_port, invalid, password};
use super::{ConfigError, Settings};

/// A hook, checked.
#[derive(Debug, Clone)]
pub struct HookPlan {
    /// The events it receives.
    pub kinds: Vec<HookKind>,
    /// Filters of the messages it receives.
    pub filters: Vec<TopicFilter>,
    /// Where they are sent.
    pub config: HookConfig,
}

/// Checks all hooks. Reads their secrets and certificates.
pub(super) fn check(settings: &Settings, faults: &mut Faults) -> Vec<HookPlan> {
    let mut plans: Vec<HookPlan> = Vec::new();
    for table in settings.hook.as_deref().unwrap_or_default() {
        let plan = faults.within("hook", table.name.as_deref(), |faults| plan(table, faults));
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
        TopicFilter::new(text)
            .map_err(|error| invalid("hook.filters", text, format!("a topic filter: {error}")))
    };
    let default = HookConfig::new(name, destination(table, faults));
    if let Some(path) = &table.dead_letters
        && !is_file_or_may_be(path)
    {
        let expected = "a file, in a directory that exists";
        faults.add(invalid("hook.dead_letters", path.display(), expected));
    }
    if table.dead_letter_bytes.is_some() && table.dead_letters.is_none() {
        faults.add(ConfigError::Conflict(
            "hook.dead_letter_bytes has no effect without hook.dead_letters",
        ));
    }
    let filters = table.filters.iter().map(filter);
    let filters = filters.filter_map(|filter| faults.keep(filter)).collect();
    HookPlan {
        kinds: table.events.clone(),
        filters,
        config: HookConfig {
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

/// Whether the node could open it at its start, as far as can be seen without making it.
fn is_file_or_may_be(path: &Path) -> bool {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    parent.is_dir() && !path.is_dir()
}

fn destination(table: &HookSettings, faults: &mut Faults) -> Destination {
    if table.kafka_brokers.is_empty() {
        let others = table.kafka_topic.is_some()
            || table.kafka_tls.is_some()
            || table.kafka_sasl.is_some()
            || table.kafka_user.is_some()
            || table.kafka_password_file.is_some();
        if others {
            faults.add(ConfigError::Conflict(
                "hook.kafka_topic, hook.kafka_tls, hook.kafka_sasl, hook.kafka_user and hook.kafka_password_file have no effect without \
                 hook.kafka_brokers",
            ));
        }
        return Destination::Http(http(table, faults));
    }
    if !HAS_KAFKA {
        faults.add(ConfigError::Conflict(
            "hook.kafka_brokers needs a program that was built with the cargo feature `kafka`",
        ));
    }
    if table.url.is_some() || table.secret_file.is_some() {
        faults.add(ConfigError::Conflict(
            "hook.url and hook.secret_file are for HTTP receivers: they exclude hook.kafka_brokers",
        ));
    }
    Destination::Kafka(kafka(table, faults))
}

fn http(table: &HookSettings, faults: &mut Faults) -> HttpDestination {
    let url = table.url.clone().unwrap_or_default();
    let url = faults.or_default(checked_url("hook.url", url));
    if table.ca_file.is_some() && !url.is_empty() && !url.starts_with("https://") {
        faults.add(ConfigError::Conflict(
            "hook.ca_file is for a hook.url that begins with https://, or for hook.kafka_tls = true",
        ));
    }
    faults.keep(thicket_hooks::agent(&url, table.ca_file.as_deref()));
    HttpDestination {
        url,
        secret: faults.or_default(secret(table)),
        authorities: table.ca_file.clone(),
    }
}

fn kafka(table: &HookSettings, faults: &mut Faults) -> KafkaDestination {
    let brokers = table.kafka_brokers.iter();
    let brokers = brokers.map(|broker| kafka_broker(broker.clone()));
    let brokers = brokers.filter_map(|broker| faults.keep(broker)).collect();
    let topic = table.kafka_topic.clone().unwrap_or_default();
    let topic = faults.or_default(kafka_topic(topic));
    let has_tls = table.kafka_tls == Some(true);
    if table.ca_file.is_some() && !has_tls {
        faults.add(ConfigError::Conflict(
            "hook.ca_file has no effect on Kafka without hook.kafka_tls = true",
        ));
    }
    let tls = has_tls.then(|| ClientTls {
        authorities: table.ca_file.clone(),
        ..ClientTls::default()
    });
    if let Some(tls) = &tls {
        faults.keep(tls.load());
    }
    KafkaDestination {
        brokers,
        topic,
        tls,
        login: faults.or_default(kafka_login(table)),
    }
}

/// The Kafka client cannot check a certificate for an IPv6 address, and does not find the other brokers through one.
fn kafka_broker(text: String) -> Result<String, ConfigError> {
    let key = "hook.kafka_brokers";
    let expected = "HOST:PORT, such as kafka-1.example:9092 or 192.0.2.7:9092";
    match host_and_port(key, text.clone()) {
        Ok(good) if !good.starts_with('[') => Ok(good),
        Ok(_) | Err(_) => Err(invalid(key, text, expected)),
    }
}

/// Checks the name of a topic by the rules of Kafka.
fn kafka_topic(text: String) -> Result<String, ConfigError> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    let is_good = (1..=249).contains(&text.len()) && text.chars().all(is_plain);
    if is_good && text != "." && text != ".." {
        Ok(text)
    } else {
        let expected = "a topic of Kafka: 1 to 249 of the characters a-z, A-Z, 0-9, `.`, `_`, `-`";
        Err(invalid("hook.kafka_topic", text, expected))
    }
}

fn kafka_login(table: &HookSettings) -> Result<Option<KafkaLogin>, ConfigError> {
    let key = "hook.kafka_password_file";
    match (
        table.kafka_sasl,
        &table.kafka_user,
        &table.kafka_password_file,
    ) {
        (None, None, None) => Ok(None),
        (Some(KafkaSasl::Plain), _, _) if table.kafka_tls != Some(true) => {
            Err(ConfigError::Conflict(
                "hook.kafka_sasl = \"plain\" sends the password as it is: it needs hook.kafka_tls = true",
            ))
        }
        (Some(sasl), Some(user), Some(path)) => {
            let password = String::from_utf8(password(key, path)?);
            Ok(Some(KafkaLogin {
                mechanism: match sasl {
                    KafkaSasl::Plain => KafkaMechanism::Plain,
                    KafkaSasl::ScramSha256 => KafkaMechanism::ScramSha256,
                    KafkaSasl::ScramSha512 => KafkaMechanism::ScramSha512,
                },
                user: user.clone(),
                password: password.map_err(|_| ConfigError::BadFile {
                    key,
                    path: path.clone(),
                    problem: "expected a password in UTF-8".into(),
                })?,
            }))
        }
        _ => Err(ConfigError::Conflict(
            "hook.kafka_sasl, hook.kafka_user and hook.kafka_password_file: give all or none",
        )),
    }
}

/// The bytes of a file without the line ending.
fn secret(table: &HookSettings) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(path) = &table.secret_file else {
        return Ok(None);
    };
    let key = "hook.secret_file";
    let bytes = super::text::read_bytes(path).map_err(|source| ConfigError::Unreadable {
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

#[cfg(test)]
mod tests {
    use super::super::checked;
    use super::*;

    const GOOD: &str = "[[hook]]\nname = 'a'\nurl = 'http://localhost:1/x'\nevents = ['connect']\n";

    #[test]
    fn a_hook_has_the_defaults() {
        let config = checked(GOOD).expect("good");
        let destination = HttpDestination::new("http://localhost:1/x");
        let expected = HookConfig::new("a", Destination::Http(destination));
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
            (
                format!("{GOOD}dead_letters = '/nowhere/x'\n"),
                "hook.dead_letters = /nowhere/x: expected a file, in a directory that exists",
            ),
            (
                format!("{GOOD}dead_letters = '/'\n"),
                "hook.dead_letters = /: expected a file",
            ),
            (format!("{GOOD}{GOOD}"), "hook.name = a"),
        ] {
            let error = checked(&text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    const KAFKA: &str = "[[hook]]\nname = 'a'\nkafka_brokers = ['k1:9092', 'k2:9092']\nkafka_topic = 'events'\nevents = ['connect']\n";

    #[test]
    fn a_hook_writes_to_kafka_if_the_program_was_built_for_that() {
        let config = checked(KAFKA);
        if !HAS_KAFKA {
            let error = config.expect_err("built without it").to_string();
            assert!(
                error.contains("hook.kafka_brokers needs a program"),
                "{error}"
            );
            return;
        }
        let expected = KafkaDestination {
            brokers: vec!["k1:9092".into(), "k2:9092".into()],
            topic: "events".into(),
            tls: None,
            login: None,
        };
        let expected = HookConfig::new("a", Destination::Kafka(expected));
        assert_eq!(config.expect("good").hooks[0].config, expected);
    }

    #[test]
    fn bad_hooks_of_kafka_are_refused_with_key_value_and_expectation() {
        let directory = tempfile::tempdir().expect("a directory");
        let password = directory.path().join("password");
        std::fs::write(&password, b"\xff\n").expect("written");
        let login = format!(
            "kafka_user = 'u'\nkafka_password_file = '{}'\n",
            password.display()
        );
        for (text, expected) in [
            (
                KAFKA.replace("k1:9092", "k1"),
                "hook.kafka_brokers = k1: expected HOST:PORT",
            ),
            (
                KAFKA.replace("k1:9092", "[::1]:9092"),
                "hook.kafka_brokers = [::1]:9092",
            ),
            (
                KAFKA.replace("'events'\n", "'a b'\n"),
                "hook.kafka_topic = a b: expected a topic of Kafka",
            ),
            (
                KAFKA.replace("kafka_topic = 'events'", ""),
                "hook.kafka_topic = : expected",
            ),
            (format!("{KAFKA}url = 'http://a/'\n"), "hook.url"),
            (format!("{KAFKA}secret_file = 'x'\n"), "hook.secret_file"),
            (format!("{KAFKA}ca_file = 'x'\n"), "hook.ca_file"),
            (
                format!("{KAFKA}kafka_tls = true\nca_file = '/nowhere/x'\n"),
                "/nowhere/x",
            ),
            (format!("{GOOD}kafka_tls = true\n"), "hook.kafka_tls"),
            (format!("{KAFKA}kafka_user = 'u'\n"), "hook.kafka_user"),
            (
                format!("{KAFKA}{login}kafka_sasl = 'plain'\n"),
                "hook.kafka_sasl = \"plain\"",
            ),
            (
                format!("{KAFKA}{login}kafka_sasl = 'scram-sha-256'\n"),
                "hook.kafka_password_file: ",
            ),
            (
                format!("{KAFKA}{login}kafka_sasl = 'gssapi'\n"),
                "unknown variant `gssapi`",
            ),
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
