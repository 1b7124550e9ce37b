//! The store of a node on a real file system, as a crash or the disk may have left it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use thicket_storage::{Durability, Keyspace, Result, Store, StoreConfig, StoreOp};

type Content = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn config() -> StoreConfig {
    StoreConfig {
        reserve_bytes: 0,
        // Small, so that a few changes reach the files of the engine.
        memtable_bytes: 2048,
        ..StoreConfig::new(1)
    }
}

/// All that a store has, or its first error.
fn read(store: &Store) -> Result<Content> {
    let mut content = Content::new();
    for (index, keyspace) in Keyspace::ALL.into_iter().enumerate() {
        for entry in store.iterate(keyspace) {
            let entry = entry?;
            content.insert((index, entry.key().to_vec()), entry.value().to_vec());
        }
    }
    Ok(content)
}

/// Carries out `script`, three bytes a step: changes, a new start, and damage between two starts.
///
/// # Panics
/// If an undamaged store gives something else than was written, or a damaged one panics.
pub fn damage_store(script: &[u8]) {
    static ONCE: Once = Once::new();
    // The engine panics on damage, which `Store` turns into errors; the hook of libFuzzer would end
    // the process before that.
    ONCE.call_once(|| drop(std::panic::take_hook()));
    let scratch = tempfile::tempdir_in("/dev/shm").expect("a file system in memory");
    let path = scratch.path().join("store");
    let mut store = Some(Store::open(&path, config()).expect("a new store"));
    let mut expected = read(store.as_ref().expect("open")).expect("new");
    let mut is_damaged = false;
    for step in script.chunks_exact(3) {
        let (low, high) = (step[1], step[2]);
        if let (Some(open), 0..=3) = (&store, step[0] % 8) {
            change(open, &mut expected, step[0], low, high);
        } else if let (Some(open), 4) = (&store, step[0] % 8) {
            let _ = open.sync();
        } else if let (None, 5..=7) = (&store, step[0] % 8) {
            is_damaged |= damage(&path, step[0] >> 3, low, high);
        } else {
            drop(store.take());
            if !step[0].is_multiple_of(2) {
                continue;
            }
            // Damage may be refused; that is then the end.
            let Ok(again) = Store::open(&path, config()) else {
                assert!(is_damaged, "refused without damage");
                return;
            };
            match read(&again) {
                Ok(content) if is_damaged => expected = content,
                Ok(content) => assert_eq!(content, expected),
                Err(error) => assert!(is_damaged, "{error}"),
            }
            store = Some(again);
        }
    }
}

fn change(store: &Store, expected: &mut Content, selector: u8, low: u8, high: u8) {
    let index = usize::from(selector >> 3) % (Keyspace::ALL.len() - 1);
    let keyspace = Keyspace::ALL[index];
    let key = [low];
    let value = vec![high; usize::from(high) * 4];
    let op = match selector % 4 {
        0 => StoreOp::Remove {
            keyspace,
            key: &key,
        },
        _ => StoreOp::Put {
            keyspace,
            key: &key,
            value: &value,
        },
    };
    // A store that was opened from damaged files may refuse.
    if store.commit(&[op], Durability::Written).is_ok() {
        match selector % 4 {
            0 => expected.remove(&(index, key.to_vec())),
            _ => expected.insert((index, key.to_vec()), value),
        };
    }
}

/// Changes a byte of a file, or cuts the file off there. Whether anything is different then.
fn damage(root: &Path, file: u8, low: u8, high: u8) -> bool {
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    if files.is_empty() {
        return false;
    }
    let path = &files[usize::from(file) % files.len()];
    let Ok(mut bytes) = fs::read(path) else {
        return false;
    };
    // From the start or from the end: both have what the engine reads first.
    let at = match high % 4 {
        0 | 1 => usize::from(low) * 2,
        _ => bytes.len().saturating_sub(1 + usize::from(low)),
    };
    if at >= bytes.len() {
        return false;
    }
    match high % 8 {
        7 => bytes.truncate(at),
        _ => bytes[at] ^= high | 1,
    }
    fs::write(path, bytes).is_ok()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
