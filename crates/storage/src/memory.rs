//! Files in memory, which can simulate a loss of power.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::files::{Files, StoredFile};

/// A disk in memory, which keeps synced data apart from data that was only written.
///
/// Clones are the same disk. Dropping whatever uses it is a SIGKILL: all that was written stays. [`lose_power`](Self::lose_power)
/// keeps what was synced and, by seed, any part of the rest.
#[derive(Debug, Clone)]
pub struct MemoryFiles(Arc<Mutex<Disk>>);

/// A file of a [`MemoryFiles`].
#[derive(Debug, Clone)]
pub struct MemoryFile {
    disk: MemoryFiles,
    node: usize,
}

#[derive(Debug)]
struct Disk {
    capacity: u64,
    /// Names as the running system sees them.
    names: BTreeMap<PathBuf, usize>,
    /// Names that survive a loss of power.
    synced_names: BTreeMap<PathBuf, usize>,
    /// Changes of names not synced yet, oldest first.
    changes: Vec<Change>,
    contents: Vec<Content>,
    failing_writes: bool,
    failing_syncs: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// Writes not synced yet, oldest first.
    pending: Vec<Write>,
}

#[derive(Debug, Clone)]
enum Write {
    Bytes(u64, Vec<u8>),
    Extend(u64),
    Truncate(u64),
}

impl Write {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Bytes(offset, written) => {
                let (start, end) = (*offset as usize, *offset as usize + written.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].copy_from_slice(written);
            }
            Self::Extend(len) => bytes.resize(bytes.len().max(*len as usize), 0),
            Self::Truncate(len) => bytes.truncate(*len as usize),
        }
    }

    /// What remains of this write after a loss of power: all, nothing, or some ranges of its bytes.
    fn survivors(&self, random: &mut Random) -> Vec<Self> {
        match (self, random.below(4)) {
            (_, 0) => Vec::new(),
            (Self::Bytes(offset, bytes), 1 | 2) => torn(*offset, bytes, random),
            (whole, _) => vec![whole.clone()],
        }
    }
}

fn torn(offset: u64, bytes: &[u8], random: &mut Random) -> Vec<Write> {
    let mut left = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let end = bytes.len().min(start + 1 + random.below(512) as usize);
        if random.below(2) == 0 {
            left.push(Write::Bytes(
                offset + start as u64,
                bytes[start..end].to_vec(),
            ));
        }
        start = end;
    }
    left
}

/// A small generator (SplitMix64), so that a seed replays anywhere.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        crate::log::mix(&mut self.0) % bound
    }
}

impl MemoryFiles {
    /// An empty disk with a capacity of `capacity_bytes` bytes for all its files.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            capacity: capacity_bytes,
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            changes: Vec::new(),
            contents: Vec::new(),
            failing_writes: false,
            failing_syncs: false,
        })))
    }

    /// Changes the capacity; if it holds more already, it is full.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.disk().capacity = capacity_bytes;
    }

    /// Makes every write fail with an input/output error from now on, after writing half; or makes them succeed again.
    pub fn fail_writes(&self, failing: bool) {
        self.disk().failing_writes = failing;
    }

    /// Makes every sync of a file fail with an input/output error from now on; the unsynced data then counts as lost. Or makes them succeed again.
    pub fn fail_syncs(&self, failing: bool) {
        self.disk().failing_syncs = failing;
    }

    /// Simulates a loss of power: each unsynced part survives or is lost, by `seed`, in any order and torn anywhere.
    ///
    /// Files opened before must not be used any more.
    pub fn lose_power(&self, seed: u64) {
        let mut random = Random(seed);
        let mut disk = self.disk();
        let disk = &mut *disk;
        let mut names = std::mem::take(&mut disk.synced_names);
        for change in disk.changes.drain(..) {
            if random.below(2) == 0 {
                change.apply(&mut names);
            }
        }
        for content in &mut disk.contents {
            let mut bytes = std::mem::take(&mut content.synced);
            for write in content.pending.drain(..) {
                for left in write.survivors(&mut random) {
                    left.apply(&mut bytes);
                }
            }
            content.synced.clone_from(&bytes);
            content.bytes = bytes;
        }
        disk.synced_names.clone_from(&names);
        disk.names = names;
    }

    /// The current bytes of a file, to inspect or to damage; `None` if there is no such file.
    ///
    /// # Panics
    /// If another thread panicked while it used this disk.
    pub fn edit<T>(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
        let mut disk = self.disk();
        let node = *disk.names.get(path)?;
        let content = &mut disk.contents[node];
        let result = edit(&mut content.bytes);
        content.synced.clone_from(&content.bytes);
        content.pending.clear();
        Some(result)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0
            .lock()
            .expect("no thread panics while it holds the disk")
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Create(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
            Self::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

impl Disk {
    fn used(&self) -> u64 {
        let lens = self
            .names
            .values()
            .map(|&node| self.contents[node].bytes.len() as u64);
        lens.sum()
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn write(&mut self, node: usize, write: Write) {
        write.apply(&mut self.contents[node].bytes);
        self.contents[node].pending.push(write);
    }

    /// Checks that the capacity permits `node` to become `len` bytes long.
    fn check_space(&self, node: usize, len: u64) -> io::Result<()> {
        let more = len.saturating_sub(self.contents[node].bytes.len() as u64);
        if more > 0 && self.used() + more > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

fn failure() -> io::Error {
    io::Error::other("simulated input/output error")
}

impl Files for MemoryFiles {
    type File = MemoryFile;

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk();
        let inside = disk
            .names
            .keys()
            .filter(|path| path.parent() == Some(directory));
        let names = inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(names.collect())
    }

    fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        let mut disk = self.disk();
        disk.contents.push(Content::default());
        let node = disk.contents.len() - 1;
        disk.change(Change::Create(path.to_owned(), node));
        Ok(MemoryFile {
            disk: self.clone(),
            node,
        })
    }

    fn open(&self, path: &Path) -> io::Result<MemoryFile> {
        let node = self.disk().names.get(path).copied();
        Ok(MemoryFile {
            disk: self.clone(),
            node: node.ok_or(io::ErrorKind::NotFound)?,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        if !disk.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        if !disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let disk = &mut *disk;
        let is_inside = |path: &Path| path.parent() == Some(directory);
        disk.changes.retain(|change| {
            let (Change::Create(path, _) | Change::Rename(path, _) | Change::Remove(path)) = change;
            !is_inside(path)
        });
        disk.synced_names.retain(|path, _| !is_inside(path));
        let now = disk.names.iter().filter(|(path, _)| is_inside(path));
        disk.synced_names
            .extend(now.map(|(path, &node)| (path.clone(), node)));
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        let disk = self.disk();
        Ok(disk.capacity.saturating_sub(disk.used()))
    }
}

impl StoredFile for MemoryFile {
    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.disk.disk().contents[self.node].bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.disk.disk();
        let bytes = &disk.contents[self.node].bytes;
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(buffer.len());
        buffer[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk.disk();
        if disk.failing_writes {
            let half = bytes[..bytes.len() / 2].to_vec();
            disk.write(self.node, Write::Bytes(offset, half));
            return Err(failure());
        }
        disk.check_space(self.node, offset + bytes.len() as u64)?;
        disk.write(self.node, Write::Bytes(offset, bytes.to_vec()));
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.check_space(self.node, len)?;
        disk.write(self.node, Write::Extend(len));
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.disk().write(self.node, Write::Truncate(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        if disk.failing_syncs {
            // As Linux does it: the pages count as clean afterwards, and their bytes may be nowhere.
            disk.contents[self.node].pending.clear();
            return Err(failure());
        }
        let content = &mut disk.contents[self.node];
        for write in content.pending.drain(..) {
            write.apply(&mut content.synced);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_a_loss_of_power_and_the_rest_may_not() {
        let (directory, path) = (Path::new("d"), Path::new("d/f"));
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let disk = MemoryFiles::new(1 << 20);
            let file = disk.create(path).expect("space");
            file.write_all_at(b"synced", 0).expect("space");
            file.sync_data().expect("works");
            disk.sync_directory(directory).expect("works");
            file.write_all_at(b"written", 6).expect("space");
            disk.lose_power(seed);
            let bytes = disk
                .edit(path, |bytes| bytes.clone())
                .expect("its name was synced");
            assert!(bytes.starts_with(b"synced"), "seed {seed}");
            outcomes.insert(bytes.ends_with(b"written"));
        }
        assert_eq!(
            outcomes.len(),
            2,
            "by seed, what was only written is there or not"
        );
    }

    #[test]
    fn a_name_that_was_not_synced_may_be_lost() {
        let mut kept = 0;
        for seed in 0..64 {
            let disk = MemoryFiles::new(1 << 20);
            let file = disk.create(Path::new("d/f")).expect("space");
            file.sync_data().expect("works");
            disk.lose_power(seed);
            kept += u32::from(disk.open(Path::new("d/f")).is_ok());
        }
        assert!((1..64).contains(&kept), "{kept} of 64");
    }

    #[test]
    fn a_full_disk_refuses_to_grow_and_takes_overwriting() {
        let disk = MemoryFiles::new(100);
        let file = disk.create(Path::new("f")).expect("space");
        file.allocate(90).expect("space");
        assert_eq!(disk.free_bytes(Path::new("")).expect("works"), 10);
        let error = file.allocate(101).expect_err("no space");
        assert!(crate::error::is_out_of_space(&error));
        file.write_all_at(&[1; 90], 0).expect("allocated");
        let error = file.write_all_at(&[1; 20], 85).expect_err("no space");
        assert!(crate::error::is_out_of_space(&error));
    }
}
