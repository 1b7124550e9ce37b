//! The data types of the specification, written.

use crate::EncodeError;
use crate::reader::VARIABLE_BYTE_INTEGER_MAX;

/// Bytes of `value` as a variable byte integer, 1 to 4 for what is in range.
#[inline]
pub(crate) const fn variable_byte_integer_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// The bytes of a variable byte integer and how many of them count.
#[inline]
pub(crate) const fn variable_byte_integer_bytes(value: u32) -> ([u8; 4], usize) {
    debug_assert!(value <= VARIABLE_BYTE_INTEGER_MAX);
    let len = variable_byte_integer_len(value as usize);
    let mut bytes = [
        value as u8 & 0x7F,
        (value >> 7) as u8 & 0x7F,
        (value >> 14) as u8 & 0x7F,
        (value >> 21) as u8 & 0x7F,
    ];
    let mut index = 0;
    while index + 1 < len {
        bytes[index] |= 0x80;
        index += 1;
    }
    (bytes, len)
}

#[inline]
pub(crate) fn put_variable_byte_integer(out: &mut Vec<u8>, value: u32) {
    let (bytes, len) = variable_byte_integer_bytes(value);
    // Fixed sizes need no call to copy.
    match (len, bytes) {
        (1, [first, ..]) => out.push(first),
        (2, [first, second, ..]) => out.extend_from_slice(&[first, second]),
        _ => out.extend_from_slice(&bytes[..len]),
    }
}

pub(crate) fn put_binary(out: &mut Vec<u8>, data: &[u8]) -> Result<(), EncodeError> {
    let len =
        u16::try_from(data.len()).map_err(|_| EncodeError::StringTooLong { len: data.len() })?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(data);
    Ok(())
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) -> Result<(), EncodeError> {
    put_binary(out, text.as_bytes())
}

/// Appends what `content` writes, with its length as a variable byte integer before it.
pub(crate) fn put_with_length(
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    // Nearly every section is short enough for a length of one byte; longer ones are moved once.
    out.push(0);
    content(out)?;
    let len = out.len() - start - 1;
    let value = u32::try_from(len)
        .ok()
        .filter(|&value| value <= VARIABLE_BYTE_INTEGER_MAX);
    let (bytes, count) =
        variable_byte_integer_bytes(value.ok_or(EncodeError::PacketTooLong { len })?);
    out[start] = bytes[0];
    if count > 1 {
        out.splice(start + 1..start + 1, bytes.into_iter().take(count).skip(1));
    }
    Ok(())
}
