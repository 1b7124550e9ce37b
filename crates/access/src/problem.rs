//! What is wrong with a file.

/// A line that cannot be used. Nothing of the file is. What was found is repeated only where it cannot be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {expected}")]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// What was expected, and what was found.
    pub expected: String,
}

impl Problem {
    pub(crate) fn new(line: usize, expected: impl Into<String>) -> Self {
        Self {
            line,
            expected: expected.into(),
        }
    }
}
