//! The stamp in a payload, by which its arrival is checked: stream, number, and intended send time.

/// Bytes of the full stamp.
const FULL: usize = 16;
/// Bytes of a bare number.
const NUMBER: usize = 4;

/// How much of a stamp fits into a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StampForm {
    /// 16 bytes and more: stream, number and time.
    Full,
    /// 4 to 15 bytes: the number; the stream follows from the topic; no latency.
    Number,
    /// 0 to 3 bytes: messages are only counted; no latency, no order, and a duplicate can hide a loss.
    Counted,
}

/// The content of a full stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Index of the stream in the plan.
    pub stream: u32,
    /// Number of the message in its stream.
    pub number: u32,
    /// Intended send time in nanoseconds of the run's clock.
    pub time_ns: u64,
}

impl StampForm {
    /// The form that fits into `payload_len` bytes.
    #[must_use]
    pub const fn for_payload(payload_len: usize) -> Self {
        match payload_len {
            FULL.. => Self::Full,
            NUMBER.. => Self::Number,
            _ => Self::Counted,
        }
    }

    /// Writes as much of `stamp` as fits to the start of `payload`.
    #[inline]
    pub fn write(self, stamp: Stamp, payload: &mut [u8]) {
        match self {
            Self::Full => {
                payload[..4].copy_from_slice(&stamp.stream.to_le_bytes());
                payload[4..8].copy_from_slice(&stamp.number.to_le_bytes());
                payload[8..16].copy_from_slice(&stamp.time_ns.to_le_bytes());
            }
            Self::Number => payload[..4].copy_from_slice(&stamp.number.to_le_bytes()),
            Self::Counted => {}
        }
    }
}

/// The full stamp at the start of `payload`, `None` if it is too short.
#[inline]
#[must_use]
pub fn read_full(payload: &[u8]) -> Option<Stamp> {
    let bytes: &[u8; FULL] = payload.first_chunk()?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some(Stamp {
        stream: word(0),
        number: word(4),
        time_ns: u64::from(word(8)) | u64::from(word(12)) << 32,
    })
}

/// The bare number at the start of `payload`, `None` if it is too short.
#[inline]
#[must_use]
pub fn read_number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().copied().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        stream: 70_000,
        number: 0xFFFF_FFFE,
        time_ns: 0x0123_4567_89AB_CDEF,
    };

    #[test]
    fn a_full_stamp_is_read_as_it_was_written() {
        for len in [16, 17, 64] {
            let mut payload = vec![0xEE; len];
            let form = StampForm::for_payload(len);
            form.write(STAMP, &mut payload);
            assert_eq!(
                (form, read_full(&payload)),
                (StampForm::Full, Some(STAMP)),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn shorter_payloads_carry_what_fits() {
        for (len, form, number) in [
            (15, StampForm::Number, Some(STAMP.number)),
            (4, StampForm::Number, Some(STAMP.number)),
            (3, StampForm::Counted, None),
            (0, StampForm::Counted, None),
        ] {
            let mut payload = vec![0; len];
            assert_eq!(StampForm::for_payload(len), form, "{len} bytes");
            form.write(STAMP, &mut payload);
            assert_eq!(
                (read_number(&payload), read_full(&payload)),
                (number, None),
                "{len} bytes"
            );
        }
    }
}
