//! Topic filters: what a subscription asks for.

use std::fmt;
use std::sync::Arc;

use thicket_mqtt::ReasonCode;

use super::{MAXIMUM_TOPIC_BYTES, level_count};

/// Levels a filter may have by default.
///
/// A filter costs a node of the tree for each level, so the bound limits the cost of one SUBSCRIBE.
pub const DEFAULT_MAXIMUM_LEVELS: usize = 128;

/// A valid topic filter (5.0, 4.7), without the prefix of a shared subscription. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicFilter {
    text: Arc<str>,
    has_wildcards: bool,
}

/// Why a text is no topic filter. Protocol: the peer chose it; answer 0x8F for this filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopicFilterError {
    /// A filter has at least one character [MQTT-4.7.3-1].
    #[error("topic filter is empty")]
    Empty,
    /// Longer than a string of the protocol can be [MQTT-4.7.3-3], or than what is kept of a subscription.
    #[error("topic filter has {bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// U+0000 is not allowed [MQTT-4.7.3-2].
    #[error("topic filter holds U+0000")]
    NullCharacter,
    /// `#` stands alone in its level, and that level is the last [MQTT-4.7.1-1].
    #[error("# is not the whole last level of the topic filter")]
    MisplacedMultiLevelWildcard,
    /// `+` fills a whole level [MQTT-4.7.1-2].
    #[error("+ is not a whole level of the topic filter")]
    MisplacedSingleLevelWildcard,
    /// Refused: more levels than this broker accepts.
    #[error("topic filter has {levels} levels, the maximum is {maximum}")]
    TooManyLevels {
        /// Its levels.
        levels: usize,
        /// Levels allowed.
        maximum: usize,
    },
}

impl TopicFilterError {
    /// The reason code for the peer: Topic Filter invalid.
    #[must_use]
    pub const fn reason_code(self) -> ReasonCode {
        ReasonCode::TopicFilterInvalid
    }
}

impl TopicFilter {
    /// Checks and copies `text`, which may have up to [`DEFAULT_MAXIMUM_LEVELS`] levels.
    ///
    /// # Errors
    /// Which rule of 4.7 the text breaks.
    pub fn new(text: &str) -> Result<Self, TopicFilterError> {
        Self::with_maximum_levels(text, DEFAULT_MAXIMUM_LEVELS)
    }

    /// Checks and copies `text`, which may have up to `maximum` levels.
    ///
    /// # Errors
    /// Which rule of 4.7 the text breaks, or that it has too many levels.
    pub fn with_maximum_levels(text: &str, maximum: usize) -> Result<Self, TopicFilterError> {
        if text.is_empty() {
            return Err(TopicFilterError::Empty);
        }
        if text.len() > MAXIMUM_TOPIC_BYTES {
            return Err(TopicFilterError::TooLong { bytes: text.len() });
        }
        if text.bytes().any(|byte| byte == 0) {
            return Err(TopicFilterError::NullCharacter);
        }
        let levels = level_count(text);
        if levels > maximum {
            return Err(TopicFilterError::TooManyLevels { levels, maximum });
        }
        let has_wildcards = check_wildcards(text)?;
        Ok(Self {
            text: text.into(),
            has_wildcards,
        })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text, shared.
    #[must_use]
    pub const fn as_shared(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether the filter contains `+` or `#`. Without, it matches the one topic of the same name.
    #[must_use]
    pub const fn has_wildcards(&self) -> bool {
        self.has_wildcards
    }

    /// Whether the filter matches `topic`, see [`super::matches`].
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        if self.has_wildcards {
            super::matches(&self.text, topic)
        } else {
            *self.text == *topic
        }
    }
}

/// Whether there are wildcards, all in their places.
fn check_wildcards(text: &str) -> Result<bool, TopicFilterError> {
    let mut found = false;
    let mut levels = text.split('/').peekable();
    while let Some(level) = levels.next() {
        match level {
            "#" if levels.peek().is_none() => found = true,
            "+" => found = true,
            _ if level.contains('#') => return Err(TopicFilterError::MisplacedMultiLevelWildcard),
            _ if level.contains('+') => return Err(TopicFilterError::MisplacedSingleLevelWildcard),
            _ => {}
        }
    }
    Ok(found)
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::TopicFilterError as Error;
    use super::*;

    #[test]
    fn topic_filters_are_checked() {
        let long = "a".repeat(MAXIMUM_TOPIC_BYTES + 1);
        let (deep, deepest) = ("/".repeat(128), "/".repeat(127));
        let too_deep = Error::TooManyLevels {
            levels: 129,
            maximum: 128,
        };
        let cases: &[(&str, &str, Result<bool, Error>)] = &[
            ("exact", "a/b", Ok(false)),
            ("all", "#", Ok(true)),
            ("one level", "+", Ok(true)),
            ("plus, then hash", "+/tennis/#", Ok(true)),
            ("plus inside", "sport/+/player1", Ok(true)),
            ("slashes", "//", Ok(false)),
            ("dollar", "$SYS/#", Ok(true)),
            ("deepest", &deepest, Ok(false)),
            ("empty", "", Err(Error::Empty)),
            ("too long", &long, Err(Error::TooLong { bytes: 65_536 })),
            ("null", "a/\0", Err(Error::NullCharacter)),
            (
                "hash after text",
                "sport/tennis#",
                Err(Error::MisplacedMultiLevelWildcard),
            ),
            (
                "hash not last",
                "sport/tennis/#/ranking",
                Err(Error::MisplacedMultiLevelWildcard),
            ),
            ("two hashes", "##", Err(Error::MisplacedMultiLevelWildcard)),
            (
                "plus after text",
                "sport+",
                Err(Error::MisplacedSingleLevelWildcard),
            ),
            ("two pluses", "++", Err(Error::MisplacedSingleLevelWildcard)),
            ("too deep", &deep, Err(too_deep)),
        ];
        for (name, text, expected) in cases {
            let filter = TopicFilter::new(text);
            assert_eq!(
                filter
                    .as_ref()
                    .map(TopicFilter::has_wildcards)
                    .map_err(|e| *e),
                *expected,
                "{name}"
            );
            if let Err(error) = filter {
                assert_eq!(error.reason_code() as u8, 0x8F, "{name}");
            }
        }
    }

    #[test]
    fn the_maximum_number_of_levels_is_the_callers() {
        assert!(TopicFilter::with_maximum_levels("a/b/c", 3).is_ok());
        assert!(TopicFilter::with_maximum_levels("a/b/c", 2).is_err());
        assert!(TopicFilter::with_maximum_levels(&"/".repeat(65_535), 65_536).is_ok());
    }

    #[test]
    fn a_filter_without_wildcards_matches_itself_only() {
        let filter = TopicFilter::new("a/b").unwrap();
        assert!(filter.matches("a/b"));
        assert!(!filter.matches("a/c"));
        assert!(TopicFilter::new("a/+").unwrap().matches("a/c"));
    }
}
