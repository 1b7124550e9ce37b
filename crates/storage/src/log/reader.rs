//! Reads one segment from its start, with a buffer of bounded size.

use std::path::PathBuf;

use super::segment::{self, HEADER_LEN, RECORD_HEADER_LEN, RecordHeader, SegmentHeader};
use crate::error::{Result, io_error};
use crate::files::StoredFile;

const BUFFER_BYTES: usize = 1 << 20;

/// Reads the records of one segment.
#[derive(Debug)]
pub(crate) struct Reader<F> {
    pub(crate) file: F,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    /// Length of the file.
    len: u64,
    /// Offset of the next record.
    pub(crate) offset: u64,
    buffer: Vec<u8>,
    /// Offset of the buffer in the file.
    buffer_offset: u64,
}

impl<F: StoredFile> Reader<F> {
    /// Starts after the header.
    pub(crate) fn new(file: F, path: PathBuf, header: SegmentHeader) -> Result<Self> {
        let len = file
            .byte_len()
            .map_err(io_error(&path, "read the length"))?;
        Ok(Self {
            file,
            path,
            header,
            len,
            offset: HEADER_LEN,
            buffer: Vec::new(),
            buffer_offset: 0,
        })
    }

    /// The body of the record that [`peek`](Self::peek) just found; `offset` moves past it.
    pub(crate) fn take(&mut self, header: RecordHeader) -> &[u8] {
        let start = (self.offset - self.buffer_offset) as usize + RECORD_HEADER_LEN;
        self.offset += segment::record_len(u64::from(header.body_len));
        &self.buffer[start..start + header.body_len as usize]
    }

    /// The header of the record at `offset`, if it is valid.
    pub(crate) fn peek(&mut self) -> Result<Option<RecordHeader>> {
        let salt = self.header.salt;
        let head = self.fill(RECORD_HEADER_LEN)?;
        let Some(body_len) = RecordHeader::claimed_body_len(salt, head) else {
            return Ok(None);
        };
        let needed = RECORD_HEADER_LEN as u64 + u64::from(body_len);
        // A damaged length must not cause an allocation that no record needs.
        if needed > self.len.saturating_sub(self.offset) {
            return Ok(None);
        }
        let bytes = self.fill(needed as usize)?;
        Ok(RecordHeader::decode(salt, bytes).map(|(header, _)| header))
    }

    /// The bytes from `offset` on, at least `needed` unless the file ends first.
    fn fill(&mut self, needed: usize) -> Result<&[u8]> {
        let skip = self.offset.saturating_sub(self.buffer_offset);
        let outside = self.offset < self.buffer_offset || skip > self.buffer.len() as u64;
        let held = if outside {
            0
        } else {
            self.buffer.len() - skip as usize
        };
        let left = self.len.saturating_sub(self.offset);
        if held >= needed || held as u64 >= left {
            let start = if outside {
                self.buffer.len()
            } else {
                skip as usize
            };
            return Ok(&self.buffer[start..]);
        }
        let keep_from = self.buffer.len() - held;
        self.buffer.copy_within(keep_from.., 0);
        self.buffer_offset = self.offset;
        // Records start at multiples of 8, so the end of the buffer never splits a marker.
        let target = needed.max(BUFFER_BYTES).next_multiple_of(8) as u64;
        let target = target.min(left) as usize;
        self.buffer.resize(target, 0);
        let read = self
            .file
            .read_at(&mut self.buffer[held..], self.offset + held as u64)
            .map_err(io_error(&self.path, "read"))?;
        self.buffer.truncate(held + read);
        Ok(&self.buffer)
    }

    /// Scans the rest of the segment, from `offset` on, for records that `self` cannot reach in order.
    pub(crate) fn look_behind(&mut self) -> Result<Behind> {
        let mut behind = Behind {
            used_until: self.offset,
            synced: 0,
        };
        while self.offset < self.len {
            if let Some(header) = self.peek()? {
                self.take(header);
                behind.synced = behind.synced.max(header.synced);
                behind.used_until = self.offset.min(self.len);
                continue;
            }
            let marker = segment::marker(self.header.salt);
            let at = self.offset;
            let bytes = self.fill(8)?;
            let (step, used) = to_next_marker(bytes, marker);
            if let Some(used) = used {
                behind.used_until = at + used;
            }
            self.offset += step;
            if step == 0 {
                break;
            }
        }
        Ok(behind)
    }
}

/// The distance to the next place where a record may start, and the end of the last byte before it that is not zero.
fn to_next_marker(bytes: &[u8], marker: [u8; 4]) -> (u64, Option<u64>) {
    // The usual case: space that was allocated and never used.
    if bytes.iter().all(|&byte| byte == 0) {
        return (bytes.len() as u64, None);
    }
    let mut used = None;
    let mut at = 0;
    while at < bytes.len() {
        let word = &bytes[at..bytes.len().min(at + 8)];
        if at > 0 && word.starts_with(&marker) {
            break;
        }
        if let Some(last) = word.iter().rposition(|&byte| byte != 0) {
            used = Some((at + last + 1) as u64);
        }
        at += 8;
    }
    (at.min(bytes.len()) as u64, used)
}

/// What follows the last record that can be reached in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The end of the last byte that is not zero.
    pub(crate) used_until: u64,
    /// The highest number of synced records according to a valid record there.
    pub(crate) synced: u64,
}
