//! Numbers and strings to bytes and back: little-endian, lengths as variable-length integers (LEB128).
//!
//! A reader returns slices of its input, so a false length costs an error and never memory.

use thicket_mqtt::DecodeError;
use thicket_session::topic::TopicFilterError;

use crate::identity::{Incarnation, NodeId};

/// Why bytes from another node cannot be decoded. Malformed: nothing has taken effect; the link they came from ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field extends beyond the end.
    #[error("field of {needed} bytes does not fit into the {left} left")]
    PastEnd {
        /// Bytes the field claims.
        needed: u64,
        /// Bytes available.
        left: usize,
    },
    /// A variable-length integer of more than 64 bits.
    #[error("integer has more than 64 bits")]
    IntegerTooLong,
    /// Bytes are left where a message should have ended.
    #[error("{count} bytes too many after {message}")]
    TrailingBytes {
        /// How many.
        count: usize,
        /// Of which message.
        message: &'static str,
    },
    /// A string is not UTF-8.
    #[error("{field} is not UTF-8")]
    NotUtf8 {
        /// Which one.
        field: &'static str,
    },
    /// A field has a value that it cannot have.
    #[error("{field} cannot be {value}")]
    Value {
        /// Which one.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A forwarded topic is empty, too long, or has wildcards or U+0000.
    #[error("topic of {len} bytes is no topic name")]
    Topic {
        /// Its length.
        len: usize,
    },
    /// An interest's filter is invalid.
    #[error("interest in an invalid filter: {0}")]
    Filter(#[from] TopicFilterError),
    /// Application properties are invalid.
    #[error("application properties: {0}")]
    Properties(#[from] DecodeError),
}

/// Reads fields from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// All bytes not read yet.
    pub(crate) const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.bytes;
        self.bytes = &[];
        rest
    }

    /// An error unless everything was read.
    pub(crate) fn finish(self, message: &'static str) -> Result<(), WireError> {
        match self.bytes.len() {
            0 => Ok(()),
            count => Err(WireError::TrailingBytes { count, message }),
        }
    }

    #[cold]
    const fn past_end(&self, needed: u64) -> WireError {
        WireError::PastEnd {
            needed,
            left: self.bytes.len(),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        match self.bytes.split_at_checked(len) {
            Some((front, rest)) => {
                self.bytes = rest;
                Ok(front)
            }
            None => Err(self.past_end(len as u64)),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((front, rest)) => {
                self.bytes = rest;
                Ok(*front)
            }
            None => Err(self.past_end(N as u64)),
        }
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u128(&mut self) -> Result<u128, WireError> {
        self.array().map(u128::from_le_bytes)
    }

    /// A variable-length integer, at most ten bytes.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        self.long_varint(first)
    }

    fn long_varint(&mut self, first: u8) -> Result<u64, WireError> {
        let mut value = u64::from(first & 0x7F);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::IntegerTooLong)
    }

    /// A length that must lie within the remaining bytes.
    #[inline]
    pub(crate) fn len(&mut self) -> Result<usize, WireError> {
        let len = self.varint()?;
        match usize::try_from(len) {
            Ok(len) if len <= self.bytes.len() => Ok(len),
            _ => Err(self.past_end(len)),
        }
    }

    /// Length and bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.len()?;
        self.take(len)
    }

    /// A varint that fits 32 bits.
    pub(crate) fn number(&mut self, field: &'static str) -> Result<u32, WireError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| WireError::Value { field, value })
    }

    /// Length and UTF-8.
    #[inline]
    pub(crate) fn str(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::NotUtf8 { field })
    }
}

/// Refuses an absurd incarnation: a node that accepted it could never rise above it.
pub(crate) const fn incarnation(value: u64) -> Result<Incarnation, WireError> {
    if value > Incarnation::MAXIMUM.0 {
        return Err(WireError::Value {
            field: "incarnation",
            value,
        });
    }
    Ok(Incarnation(value))
}

/// An error unless a node follows the one before it in a list.
pub(crate) fn ascending(
    field: &'static str,
    before: Option<NodeId>,
    node: NodeId,
) -> Result<(), WireError> {
    match before {
        Some(before) if before >= node => Err(WireError::Value {
            field,
            value: node.0,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Appends a variable-length integer.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of a variable-length integer.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends length and bytes.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_length_integers_are_read_as_written_and_bounded() {
        for value in [
            0,
            1,
            0x7F,
            0x80,
            0x3FFF,
            0x4000,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_len(value), "{value}");
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty(), "{value}");
        }
        let cases: &[(&str, &[u8], WireError)] = &[
            ("no byte", &[], WireError::PastEnd { needed: 1, left: 0 }),
            (
                "no last byte",
                &[0x80],
                WireError::PastEnd { needed: 1, left: 0 },
            ),
            (
                "65 bits",
                &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2],
                WireError::IntegerTooLong,
            ),
            ("eleven bytes", &[0x80; 11], WireError::IntegerTooLong),
        ];
        for (name, bytes, error) in cases {
            assert_eq!(Reader::new(bytes).varint().as_ref(), Err(error), "{name}");
        }
    }

    #[test]
    fn a_length_beyond_the_input_is_refused() {
        assert_eq!(
            Reader::new(&[5, 1, 2]).bytes(),
            Err(WireError::PastEnd { needed: 5, left: 2 })
        );
        let mut huge = Vec::new();
        put_varint(&mut huge, u64::MAX);
        assert_eq!(
            Reader::new(&huge).bytes(),
            Err(WireError::PastEnd {
                needed: u64::MAX,
                left: 0
            })
        );
    }
}
