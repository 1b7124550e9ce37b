//! The destinations of the log: standard error, as text or as a JSON object a line, and an OTLP receiver. It also limits how many lines a stranger
//! can cause.

mod export;
pub(crate) mod line;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thicket_node::{Remembered, Source};
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use export::export_to;

use crate::config::{LogFormat, LogLevel};

/// Lines about one subject are limited in windows of this length.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines in a window about one address; more are only counted.
const LINES_OF_PEER: u64 = 5;
/// Lines in a window with the same message and no address.
const LINES_OF_MESSAGE: u64 = 60;
/// Subjects tracked at a time. All further ones share one limit.
const SUBJECTS: usize = 1024;

/// Starts the log of this process. A second call changes nothing.
pub fn start(level: Option<LogLevel>, format: Option<LogFormat>) {
    let level = match level.unwrap_or(LogLevel::Info) {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer()
        // If standard error is closed, the error cannot be reported either, and a thread that tries would panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .with_target(false);
    let lines = match format.unwrap_or(LogFormat::Text) {
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .fmt_fields(text_fields())
            .boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry()
        .with(level)
        .with(lines)
        .with(export::Export);
    // Fails only if a log was started before; that one stays.
    let _ = subscriber.try_init();
}

/// Fields of a line of text: a value with blanks, or with characters that would end the line, is quoted, so that each can be found again.
fn text_fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    let write = |out: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug| {
        let text = format!("{value:?}");
        let name = field.name();
        let is_plain = |it: char| !it.is_whitespace() && !it.is_control() && it != '"';
        let is_quoted = text.starts_with('"') && !text.contains(char::is_control);
        match name {
            "message" if text.contains(char::is_control) => write!(out, "{}", text.escape_debug()),
            "message" => out.write_str(&text),
            _ if is_quoted || text.chars().all(is_plain) => write!(out, "{name}={text}"),
            _ => write!(out, "{name}={text:?}"),
        }
    };
    format::debug_fn(write).delimited(" ")
}

/// The subject of a line, if many such lines can be caused from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// What a peer did, and how the node reacted.
    Peer(Source),
    /// Normal events of clients at an address: they connect and disconnect.
    Visits(Source),
    /// A message without an address.
    Message(&'static str),
    /// All subjects beyond the limit.
    Others,
}

impl From<IpAddr> for Subject {
    fn from(peer: IpAddr) -> Self {
        Self::Peer(peer.into())
    }
}

impl From<SocketAddr> for Subject {
    fn from(peer: SocketAddr) -> Self {
        peer.ip().into()
    }
}

/// One for the process, like the log.
static QUIET: Mutex<Option<Quiet>> = Mutex::new(None);

/// Whether another line about `subject` may be written; if so, how many were suppressed before it.
pub(crate) fn may_say(subject: impl Into<Subject>) -> Option<Suppressed> {
    let mut quiet = lock();
    let quiet = quiet.get_or_insert_default();
    quiet.may_say(Instant::now(), subject.into())
}

/// The subjects that are tracked.
pub(crate) fn remembered() -> Remembered {
    let subjects = lock().as_ref().map_or(0, |quiet| quiet.windows.len());
    // One more for all others.
    Remembered::new("subjects of the log", subjects, SUBJECTS + 1)
}

/// Logs the numbers of suppressed lines for subjects without further events. Call it periodically.
pub(crate) fn sum_up() {
    let ended = match &mut *lock() {
        Some(quiet) => quiet.take_ended(Instant::now()),
        None => return,
    };
    for (subject, suppressed) in ended {
        match subject {
            Subject::Visits(_) => {
                tracing::info!(about = %subject, suppressed, "further lines were not written");
            }
            Subject::Peer(_) | Subject::Message(_) | Subject::Others => {
                tracing::warn!(about = %subject, suppressed, "further lines were not written");
            }
        }
    }
}

/// Lines suppressed since the start of the process.
pub(crate) fn suppressed_lines() -> u64 {
    lock().as_ref().map_or(0, |quiet| quiet.suppressed)
}

fn lock() -> MutexGuard<'static, Option<Quiet>> {
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many lines were suppressed before the one that is written; `None` if none were.
pub(crate) type Suppressed = Option<u64>;

/// Counts lines by their subjects.
#[derive(Debug, Default)]
struct Quiet {
    windows: HashMap<Subject, Window>,
    suppressed: u64,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    written: u64,
    suppressed: u64,
}

impl Quiet {
    fn may_say(&mut self, now: Instant, mut subject: Subject) -> Option<Suppressed> {
        if !self.windows.contains_key(&subject) && self.windows.len() >= SUBJECTS {
            subject = Subject::Others;
        }
        let window = self.windows.entry(subject).or_insert(Window {
            began: now,
            written: 0,
            suppressed: 0,
        });
        if now.duration_since(window.began) >= WINDOW {
            (window.began, window.written) = (now, 0);
        }
        if window.written >= subject.lines() {
            window.suppressed += 1;
            self.suppressed += 1;
            return None;
        }
        window.written += 1;
        let before = std::mem::take(&mut window.suppressed);
        Some((before > 0).then_some(before))
    }

    /// Removes windows that have ended; returns those with suppressed lines that were not reported.
    fn take_ended(&mut self, now: Instant) -> Vec<(Subject, u64)> {
        let is_over = |window: &Window| now.duration_since(window.began) >= WINDOW;
        let ended = self.windows.extract_if(|_, window| is_over(window));
        let told = ended.map(|(subject, window)| (subject, window.suppressed));
        told.filter(|(_, suppressed)| *suppressed > 0).collect()
    }
}

impl Subject {
    const fn lines(self) -> u64 {
        match self {
            Self::Peer(_) | Self::Visits(_) => LINES_OF_PEER,
            Self::Message(_) | Self::Others => LINES_OF_MESSAGE,
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Peer(source) => source.fmt(f),
            Self::Visits(source) => write!(f, "clients at {source}"),
            Self::Message(message) => f.write_str(message),
            Self::Others => f.write_str("other peers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> Subject {
        IpAddr::from(number.to_be_bytes()).into()
    }

    #[test]
    fn a_peer_has_a_few_lines_and_the_next_one_says_how_many_were_left_out() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        for _ in 0..LINES_OF_PEER {
            assert_eq!(quiet.may_say(start, peer(1)), Some(None));
        }
        for _ in 0..3 {
            assert_eq!(quiet.may_say(start, peer(1)), None);
        }
        assert_eq!(quiet.may_say(start, peer(2)), Some(None), "of another one");
        assert_eq!(quiet.may_say(start + WINDOW, peer(1)), Some(Some(3)));
        assert_eq!(quiet.may_say(start + WINDOW, peer(1)), Some(None));
        assert_eq!(quiet.suppressed, 3);
    }

    #[test]
    fn what_was_left_out_is_told_when_its_time_is_over() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        for _ in 0..LINES_OF_PEER + 7 {
            quiet.may_say(start, peer(1));
        }
        quiet.may_say(start, Subject::Message("once"));
        assert_eq!(quiet.take_ended(start), []);
        assert_eq!(quiet.take_ended(start + WINDOW), [(peer(1), 7)]);
        assert!(quiet.windows.is_empty());
    }

    #[test]
    fn peers_without_end_share_the_lines_of_one_subject() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        let many = SUBJECTS as u32 + 1000;
        let written = (0..many).filter(|number| quiet.may_say(start, peer(*number)).is_some());
        assert_eq!(written.count(), SUBJECTS + LINES_OF_MESSAGE as usize);
        assert_eq!(quiet.windows.len(), SUBJECTS + 1);
    }
}
