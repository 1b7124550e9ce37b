//! A cursor over the bytes of one packet, and the variable byte integer.

use ascii::AsciiStr;

use crate::{DecodeError, PacketId, PacketKind};

/// The largest variable byte integer (5.0, 1.5.5): also the largest remaining length.
pub(crate) const VARIABLE_BYTE_INTEGER_MAX: u32 = 268_435_455;

/// Reads a variable byte integer: its value and its length in bytes; `None` if `bytes` ends too early.
#[inline]
pub(crate) fn variable_byte_integer(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    match bytes {
        [byte @ 0..0x80, ..] => Ok(Some((u32::from(*byte), 1))),
        _ => long_variable_byte_integer(bytes),
    }
}

fn long_variable_byte_integer(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return Err(DecodeError::VariableByteIntegerNotMinimal { value });
            }
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() >= 4 {
        return Err(DecodeError::VariableByteIntegerTooLong);
    }
    Ok(None)
}

/// What is left of a packet or of its properties.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses what is left over after the last field.
    pub(crate) fn finish(self, kind: PacketKind) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(DecodeError::TrailingBytes {
            kind,
            count: self.rest.len() as u32,
        })
    }

    #[cold]
    fn past_end(&self, needed: usize) -> DecodeError {
        DecodeError::FieldPastEnd {
            needed: needed as u32,
            left: self.rest.len() as u32,
        }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.past_end(len)),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.past_end(N)),
        }
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn variable_byte_integer(&mut self) -> Result<u32, DecodeError> {
        match variable_byte_integer(self.rest)? {
            Some((value, len)) => {
                self.rest = &self.rest[len..];
                Ok(value)
            }
            None => Err(self.past_end(self.rest.len() + 1)),
        }
    }

    #[inline]
    pub(crate) fn packet_id(&mut self, kind: PacketKind) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::PacketIdZero { kind })
    }

    /// Binary data (5.0, 1.5.6).
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }

    /// A UTF-8 encoded string (5.0, 1.5.4).
    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'a str, DecodeError> {
        let text = utf8(self.binary()?)?;
        if contains(text.as_bytes(), |byte| byte == 0) {
            return Err(DecodeError::StringContainsNull);
        }
        Ok(text)
    }

    /// Checks a string and steps over it. ASCII, the common case, needs no decoding.
    #[inline]
    pub(crate) fn skip_string(&mut self) -> Result<(), DecodeError> {
        let before = *self;
        let bytes = self.binary()?;
        if contains(bytes, |byte| (byte == 0) | (byte >= 0x80)) {
            *self = before;
            self.string()?;
        }
        Ok(())
    }

    /// A string that names something: a client, a user, a filter. Control characters are refused, see
    /// [`StringContainsControl`](DecodeError::StringContainsControl).
    #[inline]
    pub(crate) fn name(&mut self) -> Result<&'a str, DecodeError> {
        let text = utf8(self.binary()?)?;
        if contains(text.as_bytes(), may_begin_control) {
            check_controls(text)?;
        }
        Ok(text)
    }

    /// A name without wildcards; may be empty.
    #[inline]
    pub(crate) fn topic_name(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.binary()?;
        if is_plain(bytes)
            && let Ok(text) = AsciiStr::from_ascii(bytes)
        {
            return Ok(text.as_str());
        }
        let text = utf8(bytes)?;
        check_controls(text)?;
        check_wildcards(text)?;
        Ok(text)
    }

    /// The properties that begin here, their length read and taken off.
    #[inline]
    pub(crate) fn property_section(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.variable_byte_integer()?;
        self.bytes(len as usize)
    }
}

#[inline]
fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|error| DecodeError::StringNotUtf8 {
        valid_up_to: error.valid_up_to() as u32,
    })
}

/// Whether any byte is `wanted`. Looks at sixteen at a time and never stops early, which is quickest for the short strings
/// of topics and properties.
#[inline]
fn contains(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> bool {
    const LANES: usize = 16;
    let any = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(false, |found, &byte| found | wanted(byte))
    };
    let Some(last) = bytes.last_chunk::<LANES>() else {
        return any(bytes);
    };
    let (chunks, _) = bytes.as_chunks::<LANES>();
    let mut found = [false; LANES];
    // The last chunk overlaps the one before it instead of leaving a rest.
    for chunk in chunks.iter().chain([last]) {
        for lane in 0..LANES {
            found[lane] |= wanted(chunk[lane]);
        }
    }
    found != [false; LANES]
}

/// Whether all are printable ASCII characters and none a wildcard, as in nearly all topics: then nothing needs a closer look.
/// Eight bytes at a time; where a rest is left, the last eight are looked at, some of them again.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk() else {
        return bytes.iter().all(|&byte| is_plain_byte(byte));
    };
    let (chunks, _) = bytes.as_chunks();
    let others = chunks.iter().fold(others_than_plain(last), |found, chunk| {
        found | others_than_plain(chunk)
    });
    others == 0
}

const fn is_plain_byte(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'+' && byte != b'#'
}

/// Not 0 if one of these is no plain byte. A subtraction that borrows sets the high bit of its byte; what it borrows from the next one is
/// of no matter, as something was found then.
#[inline]
const fn others_than_plain(bytes: &[u8; 8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let word = u64::from_ne_bytes(*bytes);
    let below_space = word.wrapping_sub(ONES * b' ' as u64);
    let plus = (word ^ (ONES * b'+' as u64)).wrapping_sub(ONES);
    let hash = (word ^ (ONES * b'#' as u64)).wrapping_sub(ONES);
    let delete = word.wrapping_add(ONES);
    (word | below_space | plus | hash | delete) & HIGH
}

/// Whether a control character may begin with this byte: those below U+0020, U+007F, and the lead byte of U+0080 to U+00BF.
#[inline]
const fn may_begin_control(byte: u8) -> bool {
    (byte < 0x20) | (byte == 0x7F) | (byte == 0xC2)
}

#[cold]
fn check_controls(text: &str) -> Result<(), DecodeError> {
    match text.chars().find(|char| char.is_control()) {
        None => Ok(()),
        Some('\0') => Err(DecodeError::StringContainsNull),
        Some(char) => Err(DecodeError::StringContainsControl {
            code_point: u32::from(char),
        }),
    }
}

#[cold]
fn check_wildcards(text: &str) -> Result<(), DecodeError> {
    if text.contains(['+', '#']) {
        return Err(DecodeError::TopicNameInvalid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_not_plain_is_found_wherever_it_stands() {
        for len in 1..40 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'~'; len];
                    bytes[at] = byte;
                    assert_eq!(is_plain(&bytes), is_plain_byte(byte), "{byte} at {at}");
                    bytes.fill(b' ');
                    bytes[at] = byte;
                    assert_eq!(is_plain(&bytes), is_plain_byte(byte), "{byte} at {at}");
                }
            }
        }
        assert!(is_plain(b""));
    }
}
