//! Log records: lines of the log of a node.

use crate::span::Attribute;

/// Most bytes of a line's text. The rest is cut off, so that a queue of records is bounded in bytes as well.
const LONGEST_BODY: usize = 4096;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// When it was written, nanoseconds since the Unix epoch.
    pub unix_nanos: u64,
    /// Its severity.
    pub severity: Severity,
    /// Its message, without the fields; made by [`LogRecord::body`].
    pub body: String,
    /// The fields, each name once.
    pub attributes: Vec<(&'static str, Attribute)>,
}

impl LogRecord {
    /// The text of a line, shortened to 4096 bytes.
    #[must_use]
    pub fn body(mut text: String) -> String {
        text.truncate(text.floor_char_boundary(LONGEST_BODY));
        text
    }
}

/// The severity of a line, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Bytes.
    Trace,
    /// Packets.
    Debug,
    /// What an operator wants to know.
    Info,
    /// Something is wrong.
    Warn,
    /// Something failed.
    Error,
}

impl Severity {
    /// The name in capitals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_between_characters() {
        let text = format!("{}ü", "x".repeat(4095));
        assert_eq!(LogRecord::body(text), "x".repeat(4095));
        assert_eq!(LogRecord::body("short".into()), "short");
    }
}
