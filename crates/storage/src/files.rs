//! The file operations that the log needs, and the operating system's.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Where the log keeps its files: the operating system ([`OsFiles`]) or memory that can lose its power
/// ([`MemoryFiles`](crate::MemoryFiles)).
///
/// A change to a directory (a file created, renamed or removed) survives a loss of power only after
/// [`sync_directory`](Files::sync_directory), a change to a file only after [`sync_data`](StoredFile::sync_data).
pub trait Files: Clone + Debug + Send + Sync + 'static {
    /// A file open for reading and writing.
    type File: StoredFile;

    /// Creates a directory and its parents; an existing one is fine. It survives a loss of power when this returns.
    ///
    /// # Errors
    /// The system's error.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, sorted.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates an empty file, or empties an existing one.
    ///
    /// # Errors
    /// The system's error.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// The system's error, including `NotFound`.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Renames a file atomically; a file of the new name is replaced.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Waits until the names in a directory are on disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Bytes that may still be written on the file system of `directory`.
    ///
    /// # Errors
    /// The system's error.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// A file open for reading and writing. Clones are the same file, so that another thread may sync what this one writes.
pub trait StoredFile: Clone + Debug + Send + Sync + 'static {
    /// Length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn byte_len(&self) -> io::Result<u64>;

    /// Reads at `offset` until `buffer` is full or the file ends; returns the number of bytes.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// The system's error; then any part of the bytes may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Extends the file to at least `len` bytes with zeros, and takes the space from the disk now.
    ///
    /// # Errors
    /// The system's error, including `StorageFull`.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Truncates the file to `len`.
    ///
    /// # Errors
    /// The system's error.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Waits until the file's bytes and length are on disk.
    ///
    /// # Errors
    /// The system's error. Then it is unknown which bytes are on disk, even after a later call that succeeds.
    fn sync_data(&self) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsFiles;

/// A file of the operating system.
#[derive(Debug, Clone)]
pub struct OsFile(Arc<fs::File>);

impl Files for OsFiles {
    type File = OsFile;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        make_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // A name that is not UTF-8 is not ours.
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<OsFile> {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.mode(0o600);
        Ok(OsFile(Arc::new(file.open(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<OsFile> {
        let file = fs::File::options().read(true).write(true).open(path)?;
        Ok(OsFile(Arc::new(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        sync_names(directory)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let facts = statvfs(directory)?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }
}

/// Waits until the names in a directory are on disk.
pub(crate) fn sync_names(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

/// Creates a directory and its parents, for the user of the process only: what is stored holds messages and names. When this returns, their names
/// are on disk.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    let was_there = path.is_dir();
    if !was_there {
        if !parent.is_dir() {
            make_directory(parent)?;
        }
        fs::DirBuilder::new().mode(0o700).create(path)?;
    }
    match sync_names(parent) {
        // Whoever created it has synced it; sync again if possible: it may have been this process, killed before the sync.
        Err(error) if was_there && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

impl StoredFile for OsFile {
    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self
                .0
                .read_at(&mut buffer[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(&*self.0, bytes, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match fallocate(&*self.0, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(error)
                if error == rustix::io::Errno::OPNOTSUPP || error == rustix::io::Errno::NOSYS =>
            {
                self.write_zeros(len)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl OsFile {
    /// Writes zeros, where the file system cannot reserve space.
    fn write_zeros(&self, len: u64) -> io::Result<()> {
        // Not a static, which would be in the program's file.
        let zeros = vec![0; 64 * 1024];
        let mut offset = self.byte_len()?;
        while offset < len {
            let step = (len - offset).min(zeros.len() as u64);
            self.write_all_at(&zeros[..step as usize], offset)?;
            offset += step;
        }
        Ok(())
    }
}
