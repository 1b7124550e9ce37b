//! Topic names: what a message is published to.

use std::fmt;
use std::sync::Arc;

use thicket_mqtt::ReasonCode;

use super::MAXIMUM_TOPIC_BYTES;

/// A valid topic name: not empty, no wildcard, no U+0000, at most 65,535 bytes (5.0, 4.7). Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicName(Arc<str>);

/// Why a text is no topic name. Protocol: the peer chose it; answer 0x90 or close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// A topic name has at least one character [MQTT-4.7.3-1].
    #[error("topic name is empty")]
    Empty,
    /// Longer than a string of the protocol can be [MQTT-4.7.3-3].
    #[error("topic name has {bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// `+` and `#` are for filters only [MQTT-4.7.0-1].
    #[error("topic name holds the wildcard {wildcard:?}")]
    Wildcard {
        /// The first one found.
        wildcard: char,
    },
    /// U+0000 is not allowed [MQTT-4.7.3-2].
    #[error("topic name holds U+0000")]
    NullCharacter,
}

impl TopicNameError {
    /// The reason code for the peer: Topic Name invalid.
    #[must_use]
    pub const fn reason_code(self) -> ReasonCode {
        ReasonCode::TopicNameInvalid
    }
}

impl TopicName {
    /// Checks and copies `text`.
    ///
    /// # Errors
    /// See [`TopicName::check`].
    pub fn new(text: &str) -> Result<Self, TopicNameError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks `text` without keeping it.
    ///
    /// # Errors
    /// Which rule of 4.7 the text breaks.
    pub fn check(text: &str) -> Result<(), TopicNameError> {
        if text.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if text.len() > MAXIMUM_TOPIC_BYTES {
            return Err(TopicNameError::TooLong { bytes: text.len() });
        }
        if holds_forbidden(text.as_bytes()) {
            Err(forbidden(text))
        } else {
            Ok(())
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared.
    #[must_use]
    pub fn into_shared(self) -> Arc<str> {
        self.0
    }
}

/// Whether one of `+`, `#` and U+0000 is among `bytes`. Every message passes here, so eight bytes are checked together.
#[inline]
fn holds_forbidden(bytes: &[u8]) -> bool {
    const LOWEST_BITS: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHEST_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The one bit that distinguishes `#` (0x23) from `+` (0x2B): with it set, both are `+`.
    const HASH_TO_PLUS: u64 = u64::from_ne_bytes([b'#' ^ b'+'; 8]);
    const PLUS: u64 = u64::from_ne_bytes([b'+'; 8]);
    // Not zero exactly if a byte of `word` is zero.
    let zeros = |word: u64| word.wrapping_sub(LOWEST_BITS) & !word & HIGHEST_BITS;
    let (words, rest) = bytes.as_chunks();
    let found = words.iter().fold(0, |found, word| {
        let word = u64::from_ne_bytes(*word);
        found | zeros(word) | zeros((word | HASH_TO_PLUS) ^ PLUS)
    });
    found != 0 || rest.iter().any(|byte| matches!(byte, b'+' | b'#' | 0))
}

#[cold]
fn forbidden(text: &str) -> TopicNameError {
    match text.bytes().find(|byte| matches!(byte, b'+' | b'#' | 0)) {
        Some(wildcard @ (b'+' | b'#')) => TopicNameError::Wildcard {
            wildcard: char::from(wildcard),
        },
        Some(_) | None => TopicNameError::NullCharacter,
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_are_checked() {
        let long = "a".repeat(MAXIMUM_TOPIC_BYTES + 1);
        let cases: &[(&str, &str, Result<(), TopicNameError>)] = &[
            ("plain", "site/1/temp", Ok(())),
            ("one slash", "/", Ok(())),
            ("space", " ", Ok(())),
            ("dollar", "$SYS/x", Ok(())),
            ("longest", &long[1..], Ok(())),
            ("empty", "", Err(TopicNameError::Empty)),
            (
                "too long",
                &long,
                Err(TopicNameError::TooLong { bytes: 65_536 }),
            ),
            (
                "plus",
                "a/+",
                Err(TopicNameError::Wildcard { wildcard: '+' }),
            ),
            (
                "hash in a level",
                "a#",
                Err(TopicNameError::Wildcard { wildcard: '#' }),
            ),
            ("null", "a\0b", Err(TopicNameError::NullCharacter)),
        ];
        for (name, text, expected) in cases {
            assert_eq!(TopicName::check(text), *expected, "{name}");
            assert_eq!(TopicName::new(text).is_ok(), expected.is_ok(), "{name}");
        }
        assert_eq!(TopicNameError::Empty.reason_code() as u8, 0x90);
    }

    #[test]
    fn a_forbidden_character_is_found_wherever_it_stands() {
        for byte in 0..=0x7F_u8 {
            for length in [1, 7, 8, 9, 16, 23] {
                for place in 0..length {
                    let mut text = vec![b'*'; length];
                    text[place] = byte;
                    let text = String::from_utf8(text).unwrap();
                    let is_forbidden = matches!(byte, b'+' | b'#' | 0);
                    assert_eq!(
                        TopicName::check(&text).is_err(),
                        is_forbidden,
                        "{byte:#x} at {place} of {length}"
                    );
                }
            }
        }
        assert!(TopicName::check("é☃𝄞 and more").is_ok());
    }
}
