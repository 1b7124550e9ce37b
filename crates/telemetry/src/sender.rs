//! Sends one kind of request to the receiver, and interprets its answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use prost::Message;
use ureq::http::HeaderMap;

use crate::message::Answer;
use crate::shared::{Counts, Shared};

/// The first wait after a failure; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A longer pause that a receiver asks for is shortened to this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(15 * 60);
/// An answer has at most a number and a sentence.
const LONGEST_ANSWER: u64 = 64 * 1024;
/// Time between two lines of the log about a failing receiver.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The paths of OTLP after an endpoint: of metrics, of spans and of log records.
pub const PATHS: [&str; 3] = [
    Signal::Metrics.path(),
    Signal::Traces.path(),
    Signal::Logs.path(),
];

/// What a request contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Traces,
    Logs,
}

impl Signal {
    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Traces => "/v1/traces",
            Self::Logs => "/v1/logs",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Accepted,
    /// Permanently refused: do not retry.
    Refused,
    /// There was no answer, or the receiver asked to wait: retry after this time.
    Retry(Duration),
}

/// Why a request was not accepted.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// Another attempt may succeed, after the time that the receiver asked for.
    Temporary(String, Option<Duration>),
    Refused(String),
}

/// Sends requests of one kind, one at a time.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    signal: Signal,
    url: String,
    random: u64,
    /// The wait after the next failure.
    wait: Duration,
    is_failing: bool,
    /// When a failure was last logged.
    logged_at: Option<Instant>,
    /// The log has a line about the failing receiver, and none yet about its recovery.
    has_logged_failure: bool,
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, signal: Signal, seed: u64) -> Self {
        let endpoint = shared.config.endpoint.trim_end_matches('/');
        Self {
            url: format!("{endpoint}{}", signal.path()),
            shared,
            signal,
            random: seed | 1,
            wait: FIRST_WAIT,
            is_failing: false,
            logged_at: None,
            has_logged_failure: false,
        }
    }

    pub(crate) const fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Makes one attempt and counts it; logs a failure.
    pub(crate) fn send(&mut self, body: &[u8], timeout: Duration) -> Sent {
        let (sent, error) = match self.post(body, timeout) {
            Ok(answer) => {
                self.counts().accepted.fetch_add(1, Ordering::Relaxed);
                self.note_success(&answer);
                return Sent::Accepted;
            }
            Err(Failure::Refused(error)) => (Sent::Refused, error),
            Err(Failure::Temporary(error, after)) => {
                let pause = after.unwrap_or_else(|| self.next_wait());
                (Sent::Retry(pause), error)
            }
        };
        self.counts().failed.fetch_add(1, Ordering::Relaxed);
        self.note_failure(&error);
        sent
    }

    fn post(&self, body: &[u8], timeout: Duration) -> Result<Answer, Failure> {
        let mut request = self
            .shared
            .agent
            .post(&self.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/x-protobuf")
            .header("user-agent", concat!("thicket/", env!("CARGO_PKG_VERSION")));
        for (name, value) in self.shared.headers().iter() {
            request = request.header(name.clone(), value.clone());
        }
        let mut answer = request
            .send(body)
            .map_err(|error| Failure::Temporary(error.to_string(), None))?;
        classify(
            answer.status().as_u16(),
            answer.headers(),
            SystemTime::now(),
        )?;
        // It was accepted, whatever the body says.
        let body = answer.body_mut().with_config().limit(LONGEST_ANSWER);
        let body = body.read_to_vec().unwrap_or_default();
        Ok(Answer::decode(&*body).unwrap_or_default())
    }

    /// A random time between half of the wait and all of it, so that nodes do not retry at the same time.
    fn next_wait(&mut self) -> Duration {
        // xorshift64 suffices: the value need not be secret.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random % 1024) as u32;
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        wait / 2 + wait / 2 * part / 1024
    }

    fn note_success(&mut self, answer: &Answer) {
        self.wait = FIRST_WAIT;
        self.is_failing = false;
        let signal = self.signal.name();
        if std::mem::take(&mut self.has_logged_failure) {
            tracing::info!(signal, "the OTLP receiver accepts requests again");
        }
        if let Some(partial) = &answer.partial_success
            && partial.rejected > 0
        {
            let rejected = partial.rejected.unsigned_abs();
            self.counts()
                .rejected
                .fetch_add(rejected, Ordering::Relaxed);
            let error = &partial.error_message;
            if self.may_log() {
                tracing::warn!(
                    signal,
                    rejected,
                    error,
                    "the OTLP receiver rejected a part of a request"
                );
            }
        }
    }

    /// Logs one line for a series of failures, at most one a minute; the counters have the rest.
    fn note_failure(&mut self, error: &str) {
        self.is_failing = true;
        if !self.has_logged_failure && self.may_log() {
            self.has_logged_failure = true;
            let signal = self.signal.name();
            tracing::warn!(signal, error, "the OTLP receiver does not accept requests");
        }
    }

    fn may_log(&mut self) -> bool {
        let now = Instant::now();
        let may = self
            .logged_at
            .is_none_or(|logged_at| now.duration_since(logged_at) >= LOG_INTERVAL);
        if may {
            self.logged_at = Some(now);
        }
        may
    }

    fn counts(&self) -> &Counts {
        match self.signal {
            Signal::Metrics => &self.shared.metrics,
            Signal::Traces => &self.shared.traces,
            Signal::Logs => &self.shared.logs,
        }
    }
}

/// Interprets a status (OTLP 1.x, OTLP/HTTP Response).
fn classify(status: u16, headers: &HeaderMap, now: SystemTime) -> Result<(), Failure> {
    match status {
        200..300 => Ok(()),
        429 | 502 | 503 | 504 => Err(Failure::Temporary(
            format!("status {status}"),
            retry_after(headers, now),
        )),
        _ => Err(Failure::Refused(format!("status {status}"))),
    }
}

/// Seconds, or a date (RFC 9110, 10.2.3). Clamped: with an answer of 0 or a past date the thread would spin.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(asked.clamp(FIRST_WAIT, LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_classified_by_status_and_retry_after() {
        let now = httpdate::parse_http_date("Tue, 24 Nov 2026 13:00:00 GMT").expect("a date");
        let temporary = |status: u16, seconds: Option<u64>| {
            Err(Failure::Temporary(
                format!("status {status}"),
                seconds.map(Duration::from_secs),
            ))
        };
        let refused = |status: u16| Err(Failure::Refused(format!("status {status}")));
        for (status, retry_after, expected) in [
            (200, "", Ok(())),
            (202, "", Ok(())),
            (301, "", refused(301)),
            (400, "", refused(400)),
            (401, "5", refused(401)),
            (408, "", refused(408)),
            (429, "7", temporary(429, Some(7))),
            (500, "", refused(500)),
            (502, "", temporary(502, None)),
            (503, "0", temporary(503, Some(1))),
            (503, "901", temporary(503, Some(900))),
            (
                503,
                "Tue, 24 Nov 2026 13:01:30 GMT",
                temporary(503, Some(90)),
            ),
            (
                503,
                "Tue, 24 Nov 2026 12:00:00 GMT",
                temporary(503, Some(1)),
            ),
            (503, "soon", temporary(503, None)),
            (504, "-1", temporary(504, None)),
        ] {
            let mut headers = HeaderMap::new();
            if !retry_after.is_empty() {
                headers.insert("retry-after", retry_after.parse().expect("a value"));
            }
            assert_eq!(
                classify(status, &headers, now),
                expected,
                "{status} {retry_after}"
            );
        }
    }
}
