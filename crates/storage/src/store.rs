//! The embedded store: small keyed values, changed in atomic batches over keyspaces.
//!
//! The engine is `fjall`, a log-structured merge tree. How it behaves on failure, as read in its source (3.1.13) and relied on here:
//!
//! - A batch is one entry of its journal with a checksum; at a start the journal is truncated at the first incomplete one. A batch without
//!   a durability stays in a buffer of the process, so every commit here requests at least the write.
//! - After a failed write or sync it is *poisoned*: it refuses every later change and sync until it is opened again, also after a full
//!   disk. So [`Store::commit`] refuses before that, while less than a reserve is free.
//! - Its writers ask its threads to flush a full memtable with one message each until the flush begins, through a queue that the threads
//!   fill themselves: with small batches the queue fills and every thread waits forever, while memory grows (known to its author, issue
//!   257 and pull request 323 there). So no memtable becomes as large as the engine allows: the store measures them as the engine does,
//!   with what each entry takes besides its bytes, and asks once.
//! - A writer waits in steps of 100 ms while four memtables of a keyspace wait to be flushed by the engine's one thread: a thread that
//!   must never wait should not change a store.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fjall::{AbstractTree, Database, Keyspace as Tree, KeyspaceCreateOptions, PersistMode};
use rustix::fs::statvfs;

use crate::error::{Result, StorageError, io_error};
use crate::files::{make_directory, sync_names};

/// Format of the store that this version reads and writes.
const FORMAT: u64 = 1;
/// In [`Keyspace::Node`]: format and node, eight bytes each, little-endian.
const FORMAT_KEY: &[u8] = b"\0format";
/// Changes of at most this many bytes may use a part of the reserve.
const SMALL_CHANGE: u64 = 256 * 1024;
const KEYSPACES: usize = 5;
/// Extension of the directory in which a new store is created.
const UNFINISHED_EXTENSION: &str = "new";
/// The engine's directory that has a directory for each keyspace.
const ENGINE_KEYSPACES: &str = "keyspaces";
const MAXIMUM_KEY: usize = u16::MAX as usize;
const MAXIMUM_VALUE: usize = 1 << 30;

/// A part of the store with its own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keyspace {
    /// Sessions.
    Sessions,
    /// Their subscriptions.
    Subscriptions,
    /// Retained messages.
    Retained,
    /// The members of the cluster.
    Cluster,
    /// What the node stores about itself. The key `"\0format"` is reserved.
    Node,
}

impl Keyspace {
    /// All keyspaces.
    pub const ALL: [Self; KEYSPACES] = [
        Self::Sessions,
        Self::Subscriptions,
        Self::Retained,
        Self::Cluster,
        Self::Node,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Subscriptions => "subscriptions",
            Self::Retained => "retained",
            Self::Cluster => "cluster",
            Self::Node => "node",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Sessions => 0,
            Self::Subscriptions => 1,
            Self::Retained => 2,
            Self::Cluster => 3,
            Self::Node => 4,
        }
    }
}

/// One change of the store. A key has at most 65,535 bytes and at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOp<'a> {
    /// Sets the value of a key.
    Put {
        /// The keyspace.
        keyspace: Keyspace,
        /// The key.
        key: &'a [u8],
        /// At most 1 GiB.
        value: &'a [u8],
    },
    /// Removes a key; it may be absent.
    Remove {
        /// The keyspace.
        keyspace: Keyspace,
        /// The key.
        key: &'a [u8],
    },
}

impl StoreOp<'_> {
    /// Whether the store can hold it: nothing that [`Store::commit`] refuses as misuse.
    ///
    /// # Errors
    /// `TooLarge` and `EmptyKey`.
    pub fn check(&self) -> Result<()> {
        match *self {
            StoreOp::Put { key, value, .. } => {
                check_key(key)?;
                check_len("value", value.len(), MAXIMUM_VALUE)
            }
            StoreOp::Remove { key, .. } => check_key(key),
        }
    }
}

/// The durability of a commit when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// In the operating system: survives SIGKILL, and a loss of power after the next [`Store::sync`].
    Written,
    /// On disk.
    Synced,
}

/// The configuration of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreConfig {
    /// The node that writes it; the store of another node is refused.
    pub node: u64,
    /// Bytes of the disk that stay free, 128 MiB by default, for what the engine writes later in compactions.
    pub reserve_bytes: u64,
    /// Cache for blocks that were read, in bytes, 1 MiB by default: a node reads its store once, at its start.
    pub cache_bytes: u64,
    /// Bytes of changes of one keyspace in memory before they are flushed, 8 MiB by default.
    pub memtable_bytes: u64,
}

impl StoreConfig {
    /// The defaults for a node.
    #[must_use]
    pub fn new(node: u64) -> Self {
        Self {
            node,
            reserve_bytes: 128 << 20,
            cache_bytes: 1 << 20,
            memtable_bytes: 8 << 20,
        }
    }
}

/// A key and its value.
#[derive(Clone)]
pub struct Entry {
    key: fjall::Slice,
    value: fjall::Slice,
}

impl Entry {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = {} bytes",
            self.key.escape_ascii(),
            self.value.len()
        )
    }
}

/// The embedded store of one node. Several threads may use it.
pub struct Store {
    directory: PathBuf,
    config: StoreConfig,
    database: Database,
    trees: [Tree; KEYSPACES],
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens or creates the store in `directory`.
    ///
    /// # Errors
    /// `ForeignFormat`, `ForeignNode`, `OutOfSpace` for a new one, and `Store` with the engine's words.
    pub fn open(directory: &Path, config: StoreConfig) -> Result<Self> {
        // The engine panics on some damaged files that it reads. Nothing of it is used after that.
        let opened = catch_unwind(|| {
            if !directory.exists() {
                Self::create(directory, config)?;
            }
            crate::archives::check(directory)?;
            Self::open_here(directory, config)
        });
        opened.unwrap_or_else(|panic| Err(damaged(directory, "be opened", &*panic)))
    }

    /// Creates a new store under another name and renames it when all of it is on disk: the engine cannot open a store that a loss of power left
    /// incomplete, and does not sync the names of its keyspaces' directories.
    fn create(directory: &Path, config: StoreConfig) -> Result<()> {
        let beside = directory.with_extension(UNFINISHED_EXTENSION);
        if beside.exists() {
            std::fs::remove_dir_all(&beside).map_err(io_error(&beside, "delete"))?;
        }
        make_directory(&beside).map_err(io_error(&beside, "make the directory"))?;
        drop(Self::open_here(&beside, config)?);
        for path in [beside.join(ENGINE_KEYSPACES), beside.clone()] {
            sync_names(&path).map_err(io_error(&path, "sync the directory"))?;
        }
        std::fs::rename(&beside, directory).map_err(io_error(directory, "rename to"))?;
        make_directory(directory).map_err(io_error(directory, "sync the name of"))
    }

    fn open_here(directory: &Path, config: StoreConfig) -> Result<Self> {
        let refuse = |error: fjall::Error| store_error(directory, "be opened", &error);
        let database = Database::builder(directory)
            .cache_size(config.cache_bytes)
            // The engine's minimum.
            .max_journaling_size(64 << 20)
            .worker_threads(1)
            .open()
            .map_err(refuse)?;
        let tree = |keyspace: Keyspace| {
            // A data directory keeps what it was created with.
            let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
            database.keyspace(keyspace.name(), options).map_err(refuse)
        };
        let [sessions, subscriptions, retained, cluster, node] = Keyspace::ALL.map(tree);
        let store = Self {
            directory: directory.to_owned(),
            config,
            trees: [sessions?, subscriptions?, retained?, cluster?, node?],
            database,
        };
        store.check_format()?;
        Ok(store)
    }

    fn check_format(&self) -> Result<()> {
        let Some(value) = self.value(Keyspace::Node, FORMAT_KEY)? else {
            let value = [FORMAT.to_le_bytes(), self.config.node.to_le_bytes()].concat();
            let op = StoreOp::Put {
                keyspace: Keyspace::Node,
                key: FORMAT_KEY,
                value: &value,
            };
            return self.commit(&[op], Durability::Synced);
        };
        let number = |at: usize| {
            let bytes = value.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let path = self.directory.clone();
        match (number(0), number(8)) {
            (Some(FORMAT), Some(node)) if node == self.config.node => Ok(()),
            (Some(FORMAT), Some(found)) => Err(StorageError::ForeignNode {
                path,
                found,
                expected: self.config.node,
            }),
            (found, _) => Err(StorageError::ForeignFormat {
                path,
                found: found.unwrap_or(0),
                expected: FORMAT,
            }),
        }
    }

    /// Makes all changes or none, in order; visible to [`iterate`](Self::iterate) when it returns.
    ///
    /// # Errors
    /// `OutOfSpace`, `TooLarge` and `EmptyKey`: nothing changed. `Store`: the engine failed; it is unknown whether the changes will be there, and the
    /// store accepts no more until it is opened again.
    pub fn commit(&self, ops: &[StoreOp<'_>], durability: Durability) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(match durability {
            Durability::Written => PersistMode::Buffer,
            Durability::Synced => PersistMode::SyncData,
        }));
        let mut bytes = 0;
        let mut is_changed = [false; KEYSPACES];
        for op in ops {
            op.check()?;
            match *op {
                StoreOp::Put {
                    keyspace,
                    key,
                    value,
                } => {
                    bytes += (key.len() + value.len()) as u64;
                    is_changed[keyspace.index()] = true;
                    batch.insert(&self.trees[keyspace.index()], key, value);
                }
                StoreOp::Remove { keyspace, key } => {
                    bytes += key.len() as u64;
                    is_changed[keyspace.index()] = true;
                    batch.remove(&self.trees[keyspace.index()], key);
                }
            }
        }
        self.check_space(bytes)?;
        batch
            .commit()
            .map_err(|error| store_error(&self.directory, "commit", &error))?;
        let changed = self.trees.iter().zip(is_changed);
        for (tree, _) in changed.filter(|(_, is_changed)| *is_changed) {
            self.flush_if_full(tree)?;
        }
        Ok(())
    }

    /// Lets the engine's thread flush a memtable that has grown large enough.
    fn flush_if_full(&self, tree: &Tree) -> Result<()> {
        if tree.tree.active_memtable().size() < self.config.memtable_bytes {
            return Ok(());
        }
        tree.rotate_memtable()
            .map_err(|error| store_error(&self.directory, "write out", &error))?;
        Ok(())
    }

    /// Checks that the disk has space for changes of `bytes` bytes above the reserve, so that [`commit`](Self::commit) accepts them now.
    ///
    /// # Errors
    /// `OutOfSpace`, or `Io` if the system does not report the space.
    pub fn check_space(&self, bytes: u64) -> Result<()> {
        let free = self.free_bytes()?;
        // A small change is mostly about an end (a client has disconnected, a subscription has ended) and may use half of the reserve.
        let reserve = match bytes {
            0..=SMALL_CHANGE => self.config.reserve_bytes / 2,
            _ => self.config.reserve_bytes,
        };
        // Once for the journal, once for a table.
        if free < reserve.saturating_add(2 * bytes) {
            return Err(StorageError::OutOfSpace {
                path: self.directory.clone(),
                needed_bytes: bytes,
            });
        }
        Ok(())
    }

    /// Bytes of changes that certainly fit without the reserve, 0 if the system does not report the space.
    #[must_use]
    pub fn space(&self) -> u64 {
        let free = self.free_bytes().unwrap_or(0);
        free.saturating_sub(self.config.reserve_bytes) / 2
    }

    fn free_bytes(&self) -> Result<u64> {
        let facts = statvfs(&self.directory)
            .map_err(|error| io_error(&self.directory, "read the free space")(error.into()))?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// Waits until all that was committed is on disk.
    ///
    /// # Errors
    /// `Store`; then the store accepts no more until it is opened again.
    pub fn sync(&self) -> Result<()> {
        self.database
            .persist(PersistMode::SyncData)
            .map_err(|error| store_error(&self.directory, "sync", &error))
    }

    /// The value of one key; `None` if there is none.
    ///
    /// # Errors
    /// `Store`: reading failed, or what was read is damaged.
    pub fn value(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.trees[keyspace.index()].get(key);
        let value = value.map_err(|error| store_error(&self.directory, "read", &error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// All keys of a keyspace with their values, in the order of the keys' bytes, as they are now.
    ///
    /// # Errors
    /// Each item may be `Store`: reading failed, or what was read is damaged.
    pub fn iterate(&self, keyspace: Keyspace) -> impl Iterator<Item = Result<Entry>> + '_ {
        self.iterate_prefix(keyspace, &[])
    }

    /// As [`iterate`](Self::iterate), but only the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`iterate`](Self::iterate).
    pub fn iterate_prefix<'a>(
        &'a self,
        keyspace: Keyspace,
        prefix: &[u8],
    ) -> impl Iterator<Item = Result<Entry>> + use<'a> {
        let mut guards = Some(self.trees[keyspace.index()].prefix(prefix));
        let entries = std::iter::from_fn(move || {
            let next = || Some(guards.as_mut()?.next()?.into_inner());
            // As at the start, damaged files may make the engine panic; nothing more is read then.
            match catch_unwind(AssertUnwindSafe(next)) {
                Ok(Some(Ok((key, value)))) => Some(Ok(Entry { key, value })),
                Ok(Some(Err(error))) => Some(Err(store_error(&self.directory, "read", &error))),
                Ok(None) => None,
                Err(panic) => {
                    guards = None;
                    Some(Err(damaged(&self.directory, "read", &*panic)))
                }
            }
        });
        entries.filter(move |entry| {
            let is_format = keyspace == Keyspace::Node
                && entry.as_ref().is_ok_and(|entry| entry.key() == FORMAT_KEY);
            !is_format
        })
    }

    /// Size of the store on disk.
    ///
    /// # Errors
    /// `Store`: the engine does not report it.
    pub fn disk_bytes(&self) -> Result<u64> {
        self.database
            .disk_space()
            .map_err(|error| store_error(&self.directory, "measure itself", &error))
    }
}

/// The engine would panic on an empty key.
fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(StorageError::EmptyKey);
    }
    check_len("key", key.len(), MAXIMUM_KEY)
}

fn check_len(what: &'static str, len: usize, maximum: usize) -> Result<()> {
    if len > maximum {
        return Err(StorageError::TooLarge {
            what,
            bytes: len as u64,
            maximum: maximum as u64,
        });
    }
    Ok(())
}

/// The error for a panic of the engine.
fn damaged(directory: &Path, action: &'static str, panic: &(dyn Any + Send)) -> StorageError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    StorageError::Store {
        path: directory.to_owned(),
        action,
        problem: format!(
            "its files are damaged ({}); restore the data directory from a backup, or move the store away and accept the loss",
            text.unwrap_or("the engine gave no reason")
        ),
    }
}

/// Converts the engine's errors.
fn store_error(directory: &Path, action: &'static str, error: &fjall::Error) -> StorageError {
    let problem = match error {
        fjall::Error::Poisoned => "an earlier write or sync failed, nothing is stored until the node is started again".to_owned(),
        fjall::Error::Locked => "another process has it open".to_owned(),
        fjall::Error::Io(error) => error.to_string(),
        fjall::Error::InvalidVersion(_) => "another version of the engine wrote it; start the version that did".to_owned(),
        fjall::Error::JournalRecovery(problem) => format!(
            "its journal is damaged ({problem:?}); restore the data directory from a backup, or move the store away and accept the loss"
        ),
        fjall::Error::Storage(problem) => format!(
            "{problem:?}; if its files are damaged, restore the data directory from a backup, or move the store away and accept the loss"
        ),
        fjall::Error::Unrecoverable => {
            "its files are damaged; restore the data directory from a backup, or move the store away and accept the loss".to_owned()
        }
        other => format!("{other:?}"),
    };
    StorageError::Store {
        path: directory.to_owned(),
        action,
        problem,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn put<'a>(keyspace: Keyspace, key: &'a [u8], value: &'a [u8]) -> StoreOp<'a> {
        StoreOp::Put {
            keyspace,
            key,
            value,
        }
    }

    fn all(store: &Store, keyspace: Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entries = store
            .iterate(keyspace)
            .map(|entry| entry.expect("readable"));
        entries
            .map(|entry| (entry.key().to_vec(), entry.value().to_vec()))
            .collect()
    }

    #[test]
    fn keys_with_a_prefix_are_found_and_no_others() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let store = Store::open(&path, StoreConfig::new(1)).expect("new");
        let keys: [&[u8]; 6] = [&[0], &[0, 255], &[1], &[1, 7], &[255], &[255, 255]];
        for key in keys {
            let op = put(Keyspace::Sessions, key, b"");
            store.commit(&[op], Durability::Written).expect("space");
        }
        for prefix in [&[0][..], &[1], &[2], &[255], &[255, 255], &[]] {
            let found: Vec<Vec<u8>> = store
                .iterate_prefix(Keyspace::Sessions, prefix)
                .map(|entry| entry.expect("readable").key().to_vec())
                .collect();
            let expected: Vec<&[u8]> = (keys.into_iter())
                .filter(|key| key.starts_with(prefix))
                .collect();
            assert_eq!(found, expected, "{prefix:?}");
        }
    }

    #[test]
    fn a_batch_over_keyspaces_is_there_after_opening_again() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let store = Store::open(&path, StoreConfig::new(1)).expect("new");
        for keyspace in Keyspace::ALL {
            assert_eq!(all(&store, keyspace), [], "{keyspace:?}");
        }
        let first = [
            put(Keyspace::Sessions, b"b", b"2"),
            put(Keyspace::Sessions, b"a", b"1"),
            put(Keyspace::Retained, b"t", b"hot"),
        ];
        store.commit(&first, Durability::Written).expect("space");
        let remove = StoreOp::Remove {
            keyspace: Keyspace::Retained,
            key: b"t",
        };
        store
            .commit(
                &[remove, put(Keyspace::Node, b"n", b"")],
                Durability::Synced,
            )
            .expect("space");
        drop(store);
        let store = Store::open(&path, StoreConfig::new(1)).expect("ours");
        let sessions = all(&store, Keyspace::Sessions);
        assert_eq!(
            sessions,
            [
                (b"a".to_vec(), b"1".to_vec()),
                (b"b".to_vec(), b"2".to_vec())
            ]
        );
        assert_eq!(all(&store, Keyspace::Retained), []);
        assert_eq!(all(&store, Keyspace::Node), [(b"n".to_vec(), Vec::new())]);
        assert_eq!(
            store.value(Keyspace::Sessions, b"b").expect("readable"),
            Some(b"2".to_vec())
        );
        assert_eq!(
            store.value(Keyspace::Sessions, b"c").expect("readable"),
            None
        );
    }

    #[test]
    fn a_store_of_another_node_or_format_is_refused_in_words() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let store = Store::open(&path, StoreConfig::new(1)).expect("new");
        let error = |node| {
            Store::open(&path, StoreConfig::new(node))
                .expect_err("refused")
                .to_string()
        };
        assert!(
            error(1).contains("another process has it open"),
            "{}",
            error(1)
        );
        drop(store);
        assert!(
            error(2).contains("belongs to node 0000000000000001"),
            "{}",
            error(2)
        );
        let store = Store::open(&path, StoreConfig::new(1)).expect("ours");
        let other = [9_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat();
        store
            .commit(
                &[put(Keyspace::Node, FORMAT_KEY, &other)],
                Durability::Synced,
            )
            .expect("space");
        drop(store);
        assert!(error(1).contains("written in format 9"), "{}", error(1));
    }

    #[test]
    fn a_full_disk_is_refused_before_the_engine_meets_it() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let mut store = Store::open(&path, StoreConfig::new(1)).expect("new");
        store.config.reserve_bytes = u64::MAX;
        let refused = store.commit(&[put(Keyspace::Sessions, b"a", b"1")], Durability::Written);
        assert!(
            matches!(refused, Err(StorageError::OutOfSpace { .. })),
            "{refused:?}"
        );
        store.config.reserve_bytes = 0;
        store
            .commit(&[put(Keyspace::Sessions, b"b", b"2")], Durability::Written)
            .expect("space again");
        assert_eq!(all(&store, Keyspace::Sessions).len(), 1);
    }

    #[test]
    fn many_small_batches_do_not_keep_the_engine_from_writing_out() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let config = StoreConfig {
            memtable_bytes: 16 * 1024,
            ..StoreConfig::new(1)
        };
        // The second time the engine also starts with what it recovered.
        for round in 0..2_u8 {
            let store = Store::open(&path, config).expect("ours");
            for key in 0..5000_u32 {
                let (key, value) = (key.to_be_bytes(), [round; 100]);
                let ops = [put(Keyspace::Sessions, &key, &value)];
                store.commit(&ops, Durability::Written).expect("space");
            }
            let tree = &store.trees[Keyspace::Sessions.index()];
            while tree.sealed_memtable_count() > 0 {
                std::thread::yield_now();
            }
            assert!(tree.table_count() > 0);
            let sessions = all(&store, Keyspace::Sessions);
            assert_eq!(sessions.len(), 5000);
            assert!(sessions.iter().all(|(_, value)| *value == [round; 100]));
        }
    }

    #[test]
    fn small_entries_count_with_all_that_the_engine_counts() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let config = StoreConfig {
            memtable_bytes: 16 * 1024,
            ..StoreConfig::new(1)
        };
        let store = Store::open(&path, config).expect("new");
        let tree = &store.trees[Keyspace::Retained.index()];
        for key in 0..2000_u32 {
            let key = key.to_be_bytes();
            let op = match key[3] % 2 {
                0 => put(Keyspace::Retained, &key, b""),
                _ => StoreOp::Remove {
                    keyspace: Keyspace::Retained,
                    key: &key,
                },
            };
            store.commit(&[op], Durability::Written).expect("space");
            // Of one that is larger the engine asks its thread to write it out, with each commit anew.
            assert!(tree.tree.active_memtable().size() < config.memtable_bytes);
        }
    }

    /// All files below a directory, by their paths there, with their content.
    fn files_below(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory") {
                let entry = entry.expect("an entry").path();
                if entry.is_dir() {
                    directories.push(entry);
                } else {
                    let name = entry.strip_prefix(root).expect("below it").to_owned();
                    files.insert(name, std::fs::read(entry).expect("a file"));
                }
            }
        }
        files
    }

    /// Whatever is damaged, the store opens, or an error names it: no panic.
    #[test]
    fn a_damaged_store_is_refused_in_words_or_read() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let store = Store::open(&path, StoreConfig::new(1)).expect("new");
        for number in 0..200_u32 {
            let key = number.to_be_bytes();
            let op = put(Keyspace::Sessions, &key, &[7; 300]);
            store.commit(&[op], Durability::Written).expect("space");
            if number == 100 {
                let tree = &store.trees[Keyspace::Sessions.index()];
                tree.rotate_memtable_and_wait().expect("written");
            }
        }
        drop(store);
        let files = files_below(&path);
        for file in files.keys() {
            let changes: [fn(&mut Vec<u8>); 6] = [
                |bytes| bytes.truncate(bytes.len() / 2),
                |bytes| bytes.clear(),
                |bytes| bytes.iter_mut().take(16).for_each(|byte| *byte ^= 0xFF),
                |bytes| {
                    bytes
                        .iter_mut()
                        .rev()
                        .take(16)
                        .for_each(|byte| *byte ^= 0xFF)
                },
                |bytes| {
                    bytes
                        .iter_mut()
                        .rev()
                        .take(64)
                        .for_each(|byte| *byte = 0xFF)
                },
                |bytes| bytes.iter_mut().step_by(97).for_each(|byte| *byte = !*byte),
            ];
            for (number, change) in changes.iter().enumerate() {
                // An engine that opens what is damaged may remove files.
                let copy = scratch.path().join("data-that-is-damaged");
                let _ = std::fs::remove_dir_all(&copy);
                for (other, bytes) in &files {
                    let mut bytes = bytes.clone();
                    if other == file {
                        change(&mut bytes);
                    }
                    let place = copy.join(other);
                    std::fs::create_dir_all(place.parent().expect("a directory")).expect("space");
                    std::fs::write(place, bytes).expect("space");
                }
                let opened = Store::open(&copy, StoreConfig::new(1));
                let read = opened.map(|store| {
                    let entries = store.iterate(Keyspace::Sessions);
                    entries.filter_map(Result::err).count()
                });
                if let Err(error) = read {
                    let words = error.to_string();
                    assert!(words.contains("data"), "{file:?} {number}: {words}");
                }
            }
        }
    }

    #[test]
    fn a_key_that_is_too_long_or_empty_changes_nothing() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("data");
        let store = Store::open(&path, StoreConfig::new(1)).expect("new");
        let long = vec![b'k'; MAXIMUM_KEY + 1];
        let ops = [
            put(Keyspace::Sessions, b"a", b"1"),
            put(Keyspace::Sessions, &long, b"2"),
        ];
        let error = store
            .commit(&ops, Durability::Written)
            .expect_err("refused");
        assert_eq!(
            error.to_string(),
            "key of 65536 bytes, at most 65535 are possible"
        );
        assert_eq!(all(&store, Keyspace::Sessions), []);
    }
}
