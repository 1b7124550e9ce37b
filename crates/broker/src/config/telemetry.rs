//! The configuration of telemetry over OTLP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thicket_node::Tracing;
use thicket_telemetry::{ExporterConfig, Headers, PATHS};

use super::faults::Faults;
use super::ratio::SampleRatio;
use super::values::{checked_url, in_range, invalid};
use super::{ConfigError, Settings};

/// Telemetry over OTLP, checked.
#[derive(Debug, Clone)]
pub struct TelemetryPlan {
    /// The exporter; facts about the node are filled in when they are known.
    pub exporter: ExporterConfig,
    /// The file of the headers, for reloads.
    pub headers_file: Option<PathBuf>,
    /// Which messages are traced; `None`: none.
    pub traces: Option<Tracing>,
}

/// `None`: telemetry is off. Reads headers and certificates.
pub(super) fn check(settings: &Settings, faults: &mut Faults) -> Option<TelemetryPlan> {
    let Some(endpoint) = settings.otlp_endpoint.clone() else {
        faults.or_default(refuse_others(settings));
        return None;
    };
    let endpoint = faults.or_default(checked_endpoint(endpoint));
    if settings.otlp_ca.is_some() && !endpoint.is_empty() && !endpoint.starts_with("https://") {
        faults.add(ConfigError::Conflict(
            "otlp_ca is for an otlp_endpoint that begins with https://",
        ));
    }
    let authorities = settings.otlp_ca.as_deref();
    faults.keep(thicket_hooks::agent(&endpoint, authorities));
    let default = ExporterConfig::new(endpoint);
    let interval_s = faults.in_range(
        "otlp_interval",
        settings.otlp_interval,
        default.interval.as_secs(),
        1..=86_400,
    );
    let headers_file = settings.otlp_headers_file.clone();
    let queue_spans = faults.in_range(
        "otlp_queue_spans",
        settings.otlp_queue_spans,
        default.queue_spans,
        1..=1_000_000,
    );
    let headers = faults.or_default(headers_file.as_deref().map(read_headers).transpose());
    Some(TelemetryPlan {
        exporter: ExporterConfig {
            authorities: settings.otlp_ca.clone(),
            headers: headers.unwrap_or_default(),
            interval: Duration::from_secs(interval_s),
            queue_spans,
            queue_log_records: faults.or_default(log_records(settings)),
            ..default
        },
        headers_file,
        traces: faults.or_default(traces(settings)),
    })
}

fn traces(settings: &Settings) -> Result<Option<Tracing>, ConfigError> {
    if settings.otlp_traces == Some(false) {
        return if settings.otlp_sample.is_some() || settings.otlp_queue_spans.is_some() {
            Err(ConfigError::Conflict(
                "otlp_sample and otlp_queue_spans have no effect with otlp_traces = false",
            ))
        } else {
            Ok(None)
        };
    }
    let SampleRatio(drawn) = settings.otlp_sample.unwrap_or_default();
    Ok(Some(Tracing { drawn }))
}

/// Most log records that wait; `None`: none are sent.
fn log_records(settings: &Settings) -> Result<Option<usize>, ConfigError> {
    let key = "otlp_queue_log_records";
    if settings.otlp_logs == Some(true) {
        return in_range(key, settings.otlp_queue_log_records, 2048, 1..=1_000_000).map(Some);
    }
    if settings.otlp_queue_log_records.is_some() {
        return Err(ConfigError::Conflict(
            "otlp_queue_log_records has no effect without otlp_logs = true",
        ));
    }
    Ok(None)
}

/// Keys that have no effect without an endpoint.
fn refuse_others(settings: &Settings) -> Result<(), ConfigError> {
    let others = settings.otlp_ca.is_some()
        || settings.otlp_headers_file.is_some()
        || settings.otlp_interval.is_some()
        || settings.otlp_traces.is_some()
        || settings.otlp_sample.is_some()
        || settings.otlp_queue_spans.is_some()
        || settings.otlp_logs.is_some()
        || settings.otlp_queue_log_records.is_some();
    if others {
        return Err(ConfigError::Conflict(
            "otlp_ca, otlp_headers_file, otlp_interval, otlp_traces, otlp_sample, otlp_queue_spans, otlp_logs and otlp_queue_log_records have no effect without \
             otlp_endpoint",
        ));
    }
    Ok(())
}

/// A URL with a valid port and without a query or fragment: the paths of OTLP are appended.
fn checked_endpoint(text: String) -> Result<String, ConfigError> {
    let key = "otlp_endpoint";
    let text = checked_url(key, text)?;
    let uri = text.parse::<ureq::http::Uri>().ok();
    let authority = uri.as_ref().and_then(ureq::http::Uri::authority);
    let has_port = authority.is_some_and(|it| match it.as_str().rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok_and(|it| it != 0),
        Some(_) | None => true,
    });
    if !has_port || text.contains(['?', '#']) {
        let expected = "the base URL of an OTLP receiver, such as http://127.0.0.1:4318";
        return Err(invalid(key, text, expected));
    }
    // Documentation of receivers often names one of these paths.
    let plain = text.trim_end_matches('/');
    let mut bases = PATHS.iter().filter_map(|path| plain.strip_suffix(path));
    if let Some(base) = bases.next() {
        let expected = format!("the base URL {base}: the node adds {}", PATHS.join(", "));
        return Err(invalid(key, text, expected));
    }
    Ok(text)
}

/// The headers in a file, lines `NAME: VALUE`.
pub(crate) fn read_headers(path: &Path) -> Result<Headers, ConfigError> {
    let key = "otlp_headers_file";
    let text = super::text::read_text(path).map_err(|source| ConfigError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    })?;
    Headers::parse(&text).map_err(|problem| ConfigError::BadFile {
        key,
        path: path.to_owned(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use super::super::ConfigErrors;
    use super::*;

    fn checked(text: &str) -> Result<Option<TelemetryPlan>, ConfigErrors> {
        super::super::checked(text).map(|config| config.telemetry)
    }

    #[test]
    fn nothing_is_exported_unless_a_receiver_is_named() {
        assert!(checked("").expect("good").is_none());
        let plan = checked("otlp_endpoint = 'http://localhost:4318'\n").expect("good");
        let expected = ExporterConfig::new("http://localhost:4318");
        assert_eq!(plan.map(|it| it.exporter), Some(expected));
        for endpoint in ["https://[::1]:4318/otlp/", "http://[::1]", "http://a"] {
            let text = format!("otlp_endpoint = '{endpoint}'\notlp_interval = '15s'\n");
            let plan = checked(&text).expect(endpoint).expect(endpoint);
            assert_eq!(plan.exporter.interval, Duration::from_secs(15));
        }
    }

    #[test]
    fn messages_are_traced_if_their_publisher_asks_or_by_a_ratio() {
        let good = "otlp_endpoint = 'http://localhost:4318'\n";
        for (rest, expected) in [
            ("", Some(0)),
            ("otlp_sample = 0", Some(0)),
            ("otlp_sample = 0.5", Some(1 << 63)),
            ("otlp_sample = 1", Some(u64::MAX)),
            ("otlp_traces = false", None),
        ] {
            let plan = checked(&format!("{good}{rest}\n")).expect(rest);
            let drawn = plan.expect(rest).traces.map(|it| it.drawn);
            assert_eq!(drawn, expected, "{rest}");
        }
        assert_eq!("0.25".parse(), Ok(SampleRatio(1 << 62)));
        assert!("1e1".parse::<SampleRatio>().is_err() && "NaN".parse::<SampleRatio>().is_err());
    }

    #[test]
    fn lines_of_the_log_are_sent_if_they_are_asked_for() {
        let good = "otlp_endpoint = 'http://localhost:4318'\n";
        for (rest, expected) in [
            ("", None),
            ("otlp_logs = false", None),
            ("otlp_logs = true", Some(2048)),
            ("otlp_logs = true\notlp_queue_log_records = 5", Some(5)),
        ] {
            let plan = checked(&format!("{good}{rest}\n")).expect(rest);
            let records = plan.expect(rest).exporter.queue_log_records;
            assert_eq!(records, expected, "{rest}");
        }
    }

    #[test]
    fn bad_values_are_refused_with_key_value_and_expectation() {
        let directory = tempfile::tempdir().expect("a directory");
        let headers = directory.path().join("headers");
        std::fs::write(&headers, "authorization = secret\n").expect("written");
        let headers = headers.display();
        let good = "otlp_endpoint = 'http://localhost:4318'\n";
        for (text, expected) in [
            (
                "otlp_endpoint = 'localhost:4318'\n".to_owned(),
                "otlp_endpoint = localhost:4318: expected http://HOST",
            ),
            (
                "otlp_endpoint = 'grpc://localhost:4317'\n".to_owned(),
                "otlp_endpoint = grpc://localhost:4317",
            ),
            (
                "otlp_endpoint = 'http://localhost:70000'\n".to_owned(),
                "otlp_endpoint = http://localhost:70000: expected the base URL",
            ),
            (
                "otlp_endpoint = 'http://localhost/?a=b'\n".to_owned(),
                "otlp_endpoint = http://localhost/?a=b",
            ),
            (
                "otlp_endpoint = 'http://localhost:4318/v1/metrics'\n".to_owned(),
                "otlp_endpoint = http://localhost:4318/v1/metrics: expected the base URL http://localhost:4318: the node adds /v1/metrics, /v1/traces, /v1/logs",
            ),
            (
                "otlp_endpoint = 'https://a/otlp/v1/traces/'\n".to_owned(),
                "expected the base URL https://a/otlp: the node adds",
            ),
            (
                "otlp_endpoint = 'http://a b:1'\n".to_owned(),
                "otlp_endpoint = http://a b:1",
            ),
            (
                format!("{good}otlp_interval = 0\n"),
                "otlp_interval = 0: expected 1 to 86400",
            ),
            (
                format!("{good}otlp_interval = '500ms'\n"),
                "otlp_interval = '500ms'",
            ),
            (
                format!("{good}otlp_ca = 'ca.pem'\n"),
                "otlp_ca is for an otlp_endpoint that begins with https://",
            ),
            (
                format!("{good}otlp_headers_file = '/nowhere/x'\n"),
                "otlp_headers_file: cannot read /nowhere/x",
            ),
            (
                format!("{good}otlp_headers_file = '{headers}'\n"),
                "line 1: expected `NAME: VALUE`",
            ),
            (format!("{good}otlp_sample = 1.5\n"), "otlp_sample = 1.5"),
            (
                format!("{good}otlp_sample = -0.1\n"),
                "-0.1: expected a ratio from 0 to 1",
            ),
            (
                format!("{good}otlp_queue_spans = 0\n"),
                "otlp_queue_spans = 0: expected 1 to 1000000",
            ),
            (
                format!("{good}otlp_traces = false\notlp_sample = 0.1\n"),
                "otlp_sample and otlp_queue_spans have no effect with otlp_traces = false",
            ),
            (
                format!("{good}otlp_queue_log_records = 5\n"),
                "otlp_queue_log_records has no effect without otlp_logs = true",
            ),
            (
                format!("{good}otlp_logs = true\notlp_queue_log_records = 0\n"),
                "otlp_queue_log_records = 0: expected 1 to 1000000",
            ),
            (
                "otlp_logs = true\n".to_owned(),
                "have no effect without otlp_endpoint",
            ),
            (
                "otlp_interval = '15s'\n".to_owned(),
                "have no effect without otlp_endpoint",
            ),
        ] {
            let error = checked(&text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
