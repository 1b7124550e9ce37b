//! The identity of this node: a number that stays the same when addresses change, and an incarnation that rises with every start.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thicket_overlay::{Incarnation, NodeId};
use thicket_storage::{DataDirectory, StorageError};

use crate::clock;

/// The identity of a node and its incarnation at this start.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Locked as long as the node runs: two processes with one identity would be one node in two places.
    pub(crate) directory: Option<Arc<DataDirectory>>,
}

/// The data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Reading or writing failed.
    #[error("data directory: {}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is in use by another process, is of another version, or cannot be created.
    #[error(transparent)]
    Directory(#[from] StorageError),
    /// The file is from other software, or truncated.
    #[error("data directory: {}: expected `id` of 16 hexadecimal digits and `incarnation`: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The system has no randomness.
    #[error("no randomness from the system: {0}")]
    Random(String),
}

/// The content of the file `node.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    id: String,
    incarnation: u64,
}

impl Identity {
    /// The identity stored in `data`, created if there is none yet; without `data`, one for this start only.
    pub(crate) fn load(data: Option<&Path>) -> Result<Self, IdentityError> {
        let Some(data) = data else {
            return Ok(Self {
                node: NodeId(random_id()?),
                incarnation: Incarnation(clock::wall_ms().min(Incarnation::MAXIMUM.0 / 2)),
                directory: None,
            });
        };
        let directory = DataDirectory::open(data)?;
        let path = data.join("node.toml");
        let stored = read(&path)?;
        let now = clock::wall_ms().min(Incarnation::MAXIMUM.0 / 2);
        // The wall clock may have been set back since the last start; an incarnation is never reused.
        let (node, incarnation) = match stored {
            Some((node, last)) => (node, now.max(last.saturating_add(1))),
            None => (random_id()?, now),
        };
        write(&path, node, incarnation)?;
        directory.sync()?;
        Ok(Self {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            directory: Some(Arc::new(directory)),
        })
    }
}

/// A seed or an identity from the system: any number but zero.
pub(crate) fn random_id() -> Result<u64, IdentityError> {
    loop {
        let random = getrandom::u64().map_err(|error| IdentityError::Random(error.to_string()))?;
        if random != 0 {
            return Ok(random);
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io { path, source }
}

fn read(path: &Path) -> Result<Option<(u64, u64)>, IdentityError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(path)(error)),
    };
    let malformed = |problem: String| IdentityError::Malformed {
        path: path.to_owned(),
        problem,
    };
    let stored: Stored = toml::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let id = u64::from_str_radix(&stored.id, 16).map_err(|error| malformed(error.to_string()))?;
    if stored.incarnation >= Incarnation::MAXIMUM.0 {
        return Err(malformed(format!(
            "incarnation {} is out of range (expected milliseconds since 1970)",
            stored.incarnation
        )));
    }
    Ok(Some((id, stored.incarnation)))
}

/// Writes a new file and renames it, so that a crash leaves the old file or the new one.
fn write(path: &Path, id: u64, incarnation: u64) -> Result<(), IdentityError> {
    let stored = Stored {
        id: format!("{id:016x}"),
        incarnation,
    };
    let text = toml::to_string(&stored).expect("a string and a number are TOML");
    let beside = path.with_extension("toml.new");
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written
        .and_then(|()| fs::rename(&beside, path))
        .map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn an_identity_is_kept_and_its_incarnation_rises() {
        let data = Scratch::new();
        let first = Identity::load(Some(&data)).expect("a new directory");
        let (node, incarnation) = (first.node, first.incarnation);
        drop(first);
        let second = Identity::load(Some(&data)).expect("the same directory");
        assert_eq!(second.node, node);
        assert!(second.incarnation > incarnation);
    }

    #[test]
    fn an_incarnation_rises_even_if_the_clock_was_set_back() {
        let data = Scratch::new();
        let far = Incarnation::MAXIMUM.0 - 9;
        write(&data.join("node.toml"), 0xabc, far).expect("temporary directory");
        let identity = Identity::load(Some(&data)).expect("a good file");
        assert_eq!(
            (identity.node, identity.incarnation),
            (NodeId(0xabc), Incarnation(far + 1))
        );
    }

    #[test]
    fn a_directory_serves_one_node_at_a_time() {
        let data = Scratch::new();
        let _first = Identity::load(Some(&data)).expect("a new directory");
        assert!(matches!(
            Identity::load(Some(&data)),
            Err(IdentityError::Directory(StorageError::InUse { .. }))
        ));
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_alone() {
        let data = Scratch::new();
        fs::write(data.join("node.toml"), "id = 'xyz'\nincarnation = 1\n")
            .expect("temporary directory");
        assert!(matches!(
            Identity::load(Some(&data)),
            Err(IdentityError::Malformed { .. })
        ));
        assert!(
            fs::read_to_string(data.join("node.toml"))
                .expect("still there")
                .contains("xyz")
        );
    }
}
