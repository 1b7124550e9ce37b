//! The data directory of one node: its lock, its format and its layout.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Result, StorageError, io_error};
use crate::files::{make_directory, sync_names};

/// The format of data directories. No release had a lower one.
const FORMAT: u64 = 3;
const FORMAT_FILE: &str = "format";
const LOCK_FILE: &str = "lock";
const STORE: &str = "store";
const LOG_PREFIX: &str = "log-";
const REMOVED_PREFIX: &str = "removed-log-";

/// The data directory of one node, locked as long as this exists.
///
/// | in it | is |
/// | --- | --- |
/// | `lock` | held by the process that uses the directory |
/// | `format` | the version of all this, in decimal digits |
/// | `log-<worker>/` | the [`Log`](crate::Log) of a worker |
/// | `store/` | the [`Store`](crate::Store) |
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

impl DataDirectory {
    /// Creates the directory if it does not exist, for the user of the process only.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(path: &Path) -> Result<()> {
        make_directory(path).map_err(io_error(path, "make the directory"))
    }

    /// Creates the directory or opens an existing one, and locks it.
    ///
    /// # Errors
    /// `InUse`: another process has it. `ForeignFormat`: another version of Thicket wrote it, and this one cannot read it. `Damaged`, `Io`.
    pub fn open(path: &Path) -> Result<Self> {
        Self::create(path)?;
        let directory = Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        };
        directory.take_format()?;
        for (name, _) in directory.numbered(REMOVED_PREFIX)? {
            delete(&path.join(name))?;
        }
        Ok(directory)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the names of the files in it are on disk.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> Result<()> {
        sync_names(&self.path).map_err(io_error(&self.path, "sync the directory"))
    }

    /// Directory of the store.
    #[must_use]
    pub fn store_path(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// Directory of a worker's log; it may not exist yet.
    #[must_use]
    pub fn log_path(&self, worker: u32) -> PathBuf {
        self.path.join(format!("{LOG_PREFIX}{worker}"))
    }

    /// Workers that have logs, ascending; also workers that no longer exist, because there were more at an earlier start.
    ///
    /// # Errors
    /// The system's error.
    pub fn logs(&self) -> Result<Vec<u32>> {
        let mut workers: Vec<u32> = self
            .numbered(LOG_PREFIX)?
            .into_iter()
            .map(|(_, worker)| worker)
            .collect();
        workers.sort_unstable();
        Ok(workers)
    }

    /// Removes the log of a worker that no longer exists, once its content is safe elsewhere. The removal is atomic, also in a crash.
    ///
    /// # Errors
    /// The system's error; then the log still exists as a whole, or its rest is removed at the next start.
    pub fn remove_log(&self, worker: u32) -> Result<()> {
        let path = self.log_path(worker);
        let removed = self.path.join(format!("{REMOVED_PREFIX}{worker}"));
        if removed.exists() {
            delete(&removed)?;
        }
        fs::rename(&path, &removed).map_err(io_error(&path, "rename"))?;
        self.sync()?;
        delete(&removed)
    }

    fn numbered(&self, prefix: &str) -> Result<Vec<(String, u32)>> {
        let mut found = Vec::new();
        let entries = fs::read_dir(&self.path).map_err(io_error(&self.path, "list"))?;
        for entry in entries {
            let entry = entry.map_err(io_error(&self.path, "list"))?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let digits = name.strip_prefix(prefix).unwrap_or_default();
            // `log-01` would be a second name for the log of worker 1.
            let number = digits
                .parse()
                .ok()
                .filter(|number: &u32| number.to_string() == digits);
            found.extend(number.map(|number| (name, number)));
        }
        Ok(found)
    }

    /// Checks the format, and writes this version's if there is none.
    fn take_format(&self) -> Result<()> {
        let path = self.path.join(FORMAT_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.write_format(&path);
            }
            Err(error) => return Err(io_error(&path, "read")(error)),
        };
        match text.trim().parse() {
            Ok(FORMAT) => Ok(()),
            Ok(found) => Err(StorageError::ForeignFormat {
                path,
                found,
                expected: FORMAT,
            }),
            Err(_) => Err(StorageError::Damaged {
                path,
                offset: 0,
                problem: format!("expected a number, found {:?}", text.trim()),
            }),
        }
    }

    /// Writes a new file and renames it, so that a crash leaves a whole file or none.
    fn write_format(&self, path: &Path) -> Result<()> {
        let beside = path.with_extension("new");
        let written = File::create(&beside).and_then(|mut file| {
            writeln!(file, "{FORMAT}")?;
            file.sync_all()
        });
        written
            .and_then(|()| fs::rename(&beside, path))
            .map_err(io_error(path, "write"))?;
        self.sync()
    }
}

fn lock(directory: &Path) -> Result<File> {
    let path = directory.join(LOCK_FILE);
    let mut options = File::options();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(io_error(&path, "open"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StorageError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(io_error(&path, "lock")(error)),
    }
}

fn delete(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).map_err(io_error(path, "delete"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_serves_one_node_at_a_time() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let first = DataDirectory::open(&path).expect("a new directory");
        let error = DataDirectory::open(&path).expect_err("in use");
        assert!(
            error.to_string().contains("in use by another node"),
            "{error}"
        );
        drop(first);
        DataDirectory::open(&path).expect("free again");
    }

    #[test]
    fn logs_of_workers_that_are_no_more_are_listed_and_removed_as_a_whole() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let directory = DataDirectory::open(&path).expect("a new directory");
        for name in [
            "log-0", "log-10", "log-2", "log-", "log-x", "log-02", "store",
        ] {
            fs::create_dir(path.join(name)).expect("temporary directory");
        }
        assert_eq!(directory.logs().expect("readable"), [0, 2, 10]);
        fs::write(directory.log_path(10).join("a"), "b").expect("temporary directory");
        directory.remove_log(10).expect("it is there");
        assert_eq!(directory.logs().expect("readable"), [0, 2]);
        drop(directory);
        fs::create_dir(path.join("removed-log-7")).expect("temporary directory");
        DataDirectory::open(&path).expect("ours");
        assert!(
            !path.join("removed-log-7").exists(),
            "what a crash left is removed"
        );
    }

    #[test]
    fn a_directory_of_another_format_is_refused_and_left_alone() {
        let cases = [
            (
                "4\n",
                "written in format 4, this version reads format 3; start the version that wrote it",
            ),
            ("0\n", "written in format 0"),
            ("one\n", "expected a number, found \"one\""),
        ];
        for (text, words) in cases {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let path = scratch.path().join("data");
            drop(DataDirectory::open(&path).expect("a new directory"));
            fs::write(path.join("format"), text).expect("temporary directory");
            let error = DataDirectory::open(&path).expect_err("another format");
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(
                fs::read_to_string(path.join("format")).expect("left alone"),
                text
            );
        }
    }
}
