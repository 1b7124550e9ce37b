//! Spans: a step of a message on a node, and its duration.

/// Most bytes of a text in an attribute. The rest is cut off, so that a queue of spans is bounded in bytes as well.
const LONGEST_TEXT: usize = 512;

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Identifier of the trace, not all zero.
    pub trace_id: [u8; 16],
    /// Identifier of this span, not all zero.
    pub span_id: [u8; 8],
    /// The span that led to this one; `None`: this one is the first of its trace.
    pub parent: Option<[u8; 8]>,
    /// Constant.
    pub name: &'static str,
    /// The role of the node in the span.
    pub role: Role,
    /// Nanoseconds since the Unix epoch.
    pub start_unix_nanos: u64,
    /// The time of its end; not before its start.
    pub end_unix_nanos: u64,
    /// Each name once.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// The role of a node in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It answered a request.
    Server,
    /// It sent a message on.
    Producer,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// Made by [`Attribute::text`].
    Text(String),
    /// A whole number.
    Integer(i64),
    /// `true` or `false`.
    Flag(bool),
}

impl Attribute {
    /// A text, shortened to 512 bytes.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = format!("{}ü", "x".repeat(511));
        assert_eq!(Attribute::text(&text), Attribute::Text("x".repeat(511)));
        assert_eq!(Attribute::text("a/b"), Attribute::Text("a/b".into()));
    }
}
