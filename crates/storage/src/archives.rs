//! A look at the files of the engine before it reads them: it allocates as many entries as a table
//! of contents claims to have before it compares the checksum of that table, and a failed
//! allocation ends the process.
//!
//! Its files are archives of the crate `sfa` (1.0.0), little-endian:
//!
//! | bytes | meaning |
//! | --- | --- |
//! | ... | sections |
//! | 4 + 4 | `TOC!`, number of entries |
//! | 18 and the name, each | entries |
//! | 4 + 1 + 1 + 16 | `SFA!`, version, kind and value of the checksum of the table |
//! | 8 + 8 | where the table begins, and its length |
//!
//! Only the number of entries is checked. All else that is damaged the engine refuses by itself.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Result, StorageError, io_error};

const TRAILER_MAGIC: &[u8; 4] = b"SFA!";
const TRAILER_BYTES: u64 = 4 + 1 + 1 + 16 + 8 + 8;
/// In the trailer.
const TABLE_AT: usize = 4 + 1 + 1 + 16;
const TABLE_HEAD_BYTES: u64 = 4 + 4;
const SHORTEST_ENTRY: u64 = 8 + 8 + 2;

/// Checks all archives below a directory.
///
/// # Errors
/// `Store`: the table of an archive has more entries than bytes. `Io`.
pub(crate) fn check(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(io_error(directory, "list"))? {
        let path = entry.map_err(io_error(directory, "list"))?.path();
        if path.is_dir() {
            check(&path)?;
        } else if !has_possible_table(&path).map_err(io_error(&path, "read"))? {
            return Err(StorageError::Store {
                path,
                action: "be opened",
                problem: "its table of contents is damaged; restore the data directory from a backup, or move the store away and accept the loss"
                    .to_owned(),
            });
        }
    }
    Ok(())
}

/// Also of a file that is no archive.
fn has_possible_table(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let Some(trailer_at) = len.checked_sub(TRAILER_BYTES) else {
        return Ok(true);
    };
    let mut trailer = [0; TRAILER_BYTES as usize];
    file.read_exact_at(&mut trailer, trailer_at)?;
    if !trailer.starts_with(TRAILER_MAGIC) {
        return Ok(true);
    }
    let table_at = u64::from_le_bytes(*trailer[TABLE_AT..].first_chunk().expect("16 bytes left"));
    let Some(table_bytes) = trailer_at
        .checked_sub(table_at)
        .and_then(|bytes| bytes.checked_sub(TABLE_HEAD_BYTES))
    else {
        return Ok(false);
    };
    let mut count = [0; 4];
    file.read_exact_at(&mut count, table_at + 4)?;
    Ok(u64::from(u32::from_le_bytes(count)) <= table_bytes / SHORTEST_ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with one entry and a section of ten bytes.
    fn archive(count: u32, table_at: u64) -> Vec<u8> {
        let mut bytes = b"0123456789TOC!".to_vec();
        bytes.extend(count.to_le_bytes());
        bytes.extend([0; SHORTEST_ENTRY as usize]);
        bytes.extend(TRAILER_MAGIC);
        bytes.extend([1, 0]);
        bytes.extend([0; 16]);
        bytes.extend(table_at.to_le_bytes());
        bytes.extend(26_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn a_table_cannot_have_more_entries_than_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("below/0");
        fs::create_dir(path.parent().expect("a directory")).expect("created");
        for (name, content, expected) in [
            ("as it was written", archive(1, 10), true),
            ("one entry too many", archive(2, 10), false),
            ("as many as a number holds", archive(u32::MAX, 10), false),
            ("a table behind the end", archive(1, 1000), false),
            ("a table at no place", archive(1, u64::MAX), false),
            ("a table in the trailer", archive(0, 30), false),
            ("no archive", vec![7; 100], true),
            ("too short", b"SFA!".to_vec(), true),
            ("empty", Vec::new(), true),
        ] {
            fs::write(&path, content).expect("written");
            let checked = check(directory.path());
            assert_eq!(checked.is_ok(), expected, "{name}: {checked:?}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("below/0"), "{name}: {error}");
            }
        }
    }
}
