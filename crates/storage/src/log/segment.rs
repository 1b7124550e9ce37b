//! The format of a segment: a header, then records.
//!
//! All numbers are little-endian. The header is written and synced before the segment is renamed to its final name, so a segment under that name
//! always has one. Bytes after the last record are zero, or the rest of a torn write.
//!
//! | header, 64 bytes | | record, a multiple of 8 bytes | |
//! | --- | --- | --- | --- |
//! | 0 | magic, 8 bytes | 0 | marker: the upper half of the salt, its lowest bit set |
//! | 8 | format, u32 | 4 | CRC-32 of bytes 8.. to the end of the body, begun with the lower half of the salt |
//! | 12 | CRC-32 of the other 60 bytes | 8 | length of the body, u32 |
//! | 16 | number of the segment, u64 | 12 | kind, u32 |
//! | 24 | node, u64 | 16 | sequence number, u64 |
//! | 32 | salt, u64 | 24 | how many records were known to be synced, u64 |
//! | 40 | zero | 32 | body, then zeros up to a multiple of 8 |
//!
//! The salt differs in each segment and no client knows it, so that neither leftover bytes nor a payload that imitates a record is read as one.

use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use crate::error::{Result, StorageError};

/// Format of segments that this version reads and writes.
pub(crate) const FORMAT: u32 = 1;
/// Length of a segment's header in bytes.
pub(crate) const HEADER_LEN: u64 = 64;
/// Length of a record's header in bytes.
pub(crate) const RECORD_HEADER_LEN: usize = 32;
/// The longest body of a record in bytes.
pub(crate) const MAXIMUM_BODY: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"thicklog";
const SUFFIX: &str = ".segment";
/// Suffix of an unfinished segment; a crash may leave one, which is removed.
pub(crate) const UNFINISHED_SUFFIX: &str = ".segment-new";

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    pub(crate) node: u64,
    pub(crate) salt: u64,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes of the node.
    Node,
    /// First of a generation: it is empty, and ensures that the first segment of a log always begins with a synced record.
    Generation,
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) body_len: u32,
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    /// Every record with a lower sequence number was synced when this one was written.
    pub(crate) synced: u64,
}

/// Path of a finished segment.
pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}{SUFFIX}"))
}

/// Path of an unfinished segment.
pub(crate) fn unfinished_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}{UNFINISHED_SUFFIX}"))
}

/// The number in a segment's name; `None` if the name is not that of a segment.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let ours = digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_digit());
    ours.then(|| digits.parse().ok())?
}

/// Length of a record with a body of `body_len` bytes.
pub(crate) fn record_len(body_len: u64) -> u64 {
    RECORD_HEADER_LEN as u64 + body_len.next_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl SegmentHeader {
    /// The header as bytes.
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut bytes = [0; HEADER_LEN as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.node.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = Self::checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes and checks the header of segment `number` of `node`.
    pub(crate) fn decode(bytes: &[u8], path: &Path, number: u64, node: u64) -> Result<Self> {
        let damaged = |problem: &str| StorageError::Damaged {
            path: path.to_owned(),
            offset: 0,
            problem: problem.to_owned(),
        };
        if bytes.len() < HEADER_LEN as usize || bytes[..8] != MAGIC {
            return Err(damaged("not the header of a log segment"));
        }
        // Another format may have its checksum elsewhere, so the format is checked first.
        let format = u32_at(bytes, 8);
        if format != FORMAT {
            return Err(StorageError::ForeignFormat {
                path: path.to_owned(),
                found: u64::from(format),
                expected: u64::from(FORMAT),
            });
        }
        if u32_at(bytes, 12) != Self::checksum(&bytes[..HEADER_LEN as usize]) {
            return Err(damaged("the checksum of the header is wrong"));
        }
        let header = Self {
            number: u64_at(bytes, 16),
            node: u64_at(bytes, 24),
            salt: u64_at(bytes, 32),
        };
        if header.node != node {
            return Err(StorageError::ForeignNode {
                path: path.to_owned(),
                found: header.node,
                expected: node,
            });
        }
        if header.number != number {
            return Err(damaged(&format!(
                "it is segment {} under another name",
                header.number
            )));
        }
        Ok(header)
    }

    fn checksum(bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..]);
        hasher.finalize()
    }
}

/// First bytes of every record of a segment; never zero, so that empty space is not a record.
pub(crate) fn marker(salt: u64) -> [u8; 4] {
    (((salt >> 32) as u32) | 1).to_le_bytes()
}

impl RecordHeader {
    /// Replaces `out` by the whole record: header, the concatenation of `parts`, zeros.
    ///
    /// `body_len` is the sum of the lengths of `parts`.
    pub(crate) fn encode(&self, salt: u64, parts: &[&[u8]], out: &mut Vec<u8>) {
        out.clear();
        out.reserve(record_len(u64::from(self.body_len)) as usize);
        let kind: u32 = match self.kind {
            Kind::Node => 0,
            Kind::Generation => 1,
        };
        out.extend_from_slice(&marker(salt));
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body_len.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.synced.to_le_bytes());
        for part in parts {
            out.extend_from_slice(part);
        }
        let checksum = Self::checksum(salt, &out[8..]);
        out[4..8].copy_from_slice(&checksum.to_le_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
    }

    /// Length of the body that the first bytes of a record claim; `None` if they are not those of a record.
    pub(crate) fn claimed_body_len(salt: u64, bytes: &[u8]) -> Option<u32> {
        let found = bytes.len() >= RECORD_HEADER_LEN && bytes[..4] == marker(salt);
        found.then(|| u32_at(bytes, 8))
    }

    /// Decodes and checks the record at the start of `bytes`, which hold at least header and claimed body.
    pub(crate) fn decode(salt: u64, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let body_len = Self::claimed_body_len(salt, bytes)?;
        let end = RECORD_HEADER_LEN.checked_add(body_len as usize)?;
        let record = bytes.get(..end)?;
        if u32_at(bytes, 4) != Self::checksum(salt, &record[8..]) {
            return None;
        }
        let header = Self {
            body_len,
            kind: match u32_at(bytes, 12) {
                0 => Kind::Node,
                1 => Kind::Generation,
                _ => return None,
            },
            sequence: u64_at(bytes, 16),
            synced: u64_at(bytes, 24),
        };
        Some((header, &record[RECORD_HEADER_LEN..]))
    }

    fn checksum(salt: u64, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new_with_initial(salt as u32);
        hasher.update(bytes);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        number: 7,
        node: 0xabc,
        salt: 0x0123_4567_89ab_cdef,
    };

    #[test]
    fn a_header_that_is_not_of_this_segment_format_or_node_is_refused_in_words() {
        let path = Path::new("log-0/000000000007.segment");
        let good = HEADER.encode();
        assert_eq!(
            SegmentHeader::decode(&good, path, 7, 0xabc).expect("good"),
            HEADER
        );
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            bytes.to_vec()
        };
        let cases = [
            (
                "too short",
                good[..63].to_vec(),
                7,
                0xabc,
                "not the header of a log segment",
            ),
            (
                "other magic",
                with(0, b'T'),
                7,
                0xabc,
                "not the header of a log segment",
            ),
            (
                "other format",
                with(8, 9),
                7,
                0xabc,
                "written in format 9, this version reads format 1",
            ),
            (
                "a flipped bit",
                with(33, 0),
                7,
                0xabc,
                "the checksum of the header is wrong",
            ),
            (
                "other node",
                good.to_vec(),
                7,
                0xabd,
                "belongs to node 0000000000000abc",
            ),
            (
                "other number",
                good.to_vec(),
                8,
                0xabc,
                "it is segment 7 under another name",
            ),
        ];
        for (name, bytes, number, node, expected) in cases {
            let error = SegmentHeader::decode(&bytes, path, number, node).expect_err(name);
            assert!(error.to_string().contains(expected), "{name}: {error}");
            assert!(
                error.to_string().contains("000000000007.segment"),
                "{name}: {error}"
            );
        }
    }

    #[test]
    fn a_record_is_read_back_and_any_flipped_bit_is_noticed() {
        let header = RecordHeader {
            body_len: 5,
            kind: Kind::Node,
            sequence: 42,
            synced: 40,
        };
        let mut bytes = Vec::new();
        header.encode(HEADER.salt, &[b"ab", b"", b"cde"], &mut bytes);
        assert_eq!(bytes.len() as u64, record_len(5));
        assert_eq!(
            RecordHeader::decode(HEADER.salt, &bytes),
            Some((header, &b"abcde"[..]))
        );
        for bit in 0..(RECORD_HEADER_LEN + 5) * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(HEADER.salt, &bytes), None, "bit {bit}");
        }
        assert_eq!(
            RecordHeader::decode(HEADER.salt + 1, &bytes),
            None,
            "of another segment"
        );
        assert_eq!(
            RecordHeader::decode(HEADER.salt, &[0; 64]),
            None,
            "empty space"
        );
    }

    #[test]
    fn only_names_of_segments_are_taken_for_segments() {
        let cases = [
            ("000000000001.segment", Some(1)),
            ("1000000000001.segment", Some(1_000_000_000_001)),
            ("1.segment", None),
            ("000000000001.segment-new", None),
            ("+00000000001.segment", None),
            ("lock", None),
        ];
        for (name, number) in cases {
            assert_eq!(number_of(name), number, "{name}");
        }
    }
}
