//! A log written, damaged and opened again, as the bytes of the fuzzer say.

use std::path::{Path, PathBuf};

use thicket_storage::{Log, LogConfig, MemoryFiles, Result};

const DIRECTORY: &str = "data/log-0";

fn config(seed: u64) -> LogConfig {
    LogConfig {
        segment_bytes: 2048,
        reserve_bytes: 0,
        ..LogConfig::new(1, seed)
    }
}

/// Bodies tell their number, so that a record that was never written is noticed.
fn body(sequence: u64, len: u8) -> Vec<u8> {
    let mut body = sequence.to_le_bytes().to_vec();
    body.resize(8 + usize::from(len), sequence as u8);
    body
}

fn open(disk: &MemoryFiles, seed: u64) -> Result<(Log<MemoryFiles>, u64)> {
    let mut replay = Log::open(disk.clone(), Path::new(DIRECTORY), config(seed))?;
    let mut last = None;
    while let Some(record) = replay.next_record()? {
        assert!(last.is_none_or(|last| last < record.sequence), "in order");
        let len = u8::try_from(record.body.len() - 8).expect("as written");
        assert_eq!(record.body, body(record.sequence, len));
        last = Some(record.sequence);
    }
    let (log, recovered) = replay.finish()?;
    Ok((log, recovered.records))
}

/// Carries out `script`, three bytes a step, over a log whose disk may lie.
///
/// # Panics
/// If a record comes back that was not written, or a log that was opened once gives something else when opened again.
pub fn replay_log(script: &[u8]) {
    let disk = MemoryFiles::new(1 << 20);
    let Ok((mut log, _)) = open(&disk, 0) else {
        panic!("a new log");
    };
    for (seed, step) in script.chunks_exact(3).enumerate() {
        let (low, high) = (step[1], step[2]);
        match step[0] % 8 {
            0..=2 => {
                let _ = log.append(&[&body(log.next_sequence(), low)]);
            }
            3 => drop(log.sync()),
            4 => drop(log.start_generation()),
            5 => log.remove_before(log.first_segment() + u64::from(low % 4)),
            6 => damage(
                &disk,
                log.current_segment() - u64::from(high >> 4).min(log.current_segment()),
                low,
                high,
            ),
            _ => {
                drop(log);
                if high % 2 == 0 {
                    disk.lose_power(u64::from(low));
                }
                // Damage may be refused; that is then the end.
                let Ok((_, records)) = open(&disk, seed as u64) else {
                    return;
                };
                let Ok((again, same)) = open(&disk, seed as u64 + 1) else {
                    panic!("opened once, refused the second time");
                };
                assert_eq!(records, same);
                log = again;
            }
        }
    }
}

fn damage(disk: &MemoryFiles, number: u64, low: u8, high: u8) {
    let path: PathBuf = [DIRECTORY, &format!("{number:012}.segment")]
        .iter()
        .collect();
    let at = usize::from(low) * 8 + usize::from(high & 7);
    disk.edit(&path, |bytes| {
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << (high >> 5);
        }
    });
}
