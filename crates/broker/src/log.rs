//! Where the lines of the log go: standard error, as text or as an object a line.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

use crate::config::{LogFormat, LogLevel};

/// Starts the log of this process. A second call changes nothing.
pub fn start(level: Option<LogLevel>, format: Option<LogFormat>) {
    let level = match level.unwrap_or(LogLevel::Info) {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    // Fails only if a log was started before, and then that one stays.
    let _ = match format.unwrap_or(LogFormat::Text) {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
