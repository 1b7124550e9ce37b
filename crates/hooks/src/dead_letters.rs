//! The file of events that could not be delivered: a JSON object a line, rotated once.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Event;

/// An open file and its size.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    path: PathBuf,
    file: File,
    bytes: u64,
    maximum: u64,
}

impl DeadLetters {
    /// Opens the file at `path` to append to it. A new one is for the user of the process only: it holds payloads and names.
    pub(crate) fn open(path: &Path, maximum: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            bytes: file.metadata()?.len(),
            file,
            maximum,
        })
    }

    /// Writes a line for each event: `hook`, `reason` and the event as it would have been sent.
    pub(crate) fn write(
        &mut self,
        hook: &str,
        run: &str,
        reason: &str,
        events: &[Event],
    ) -> io::Result<()> {
        for event in events {
            let line = json!({ "hook": hook, "reason": reason, "event": event.to_json(run) });
            let mut line = line.to_string();
            line.push('\n');
            if self.bytes > 0 && self.bytes + line.len() as u64 > self.maximum {
                self.rotate()?;
            }
            self.file.write_all(line.as_bytes())?;
            self.bytes += line.len() as u64;
        }
        Ok(())
    }

    /// Renames the file to `PATH.1`, replacing an older one.
    fn rotate(&mut self) -> io::Result<()> {
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        std::fs::rename(&self.path, older)?;
        *self = Self::open(&self.path, self.maximum)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_rotated_once_and_goes_on_after_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("dead.jsonl");
        let event = |number| Event {
            number,
            time_ms: 0,
            name: "test",
            fields: Vec::new(),
        };
        for number in 0..9 {
            // Reopened for each, as by a node that restarts.
            let mut letters = DeadLetters::open(&path, 300).expect("a file");
            letters
                .write("h", "r", "queue full", &[event(number)])
                .expect("written");
        }
        let lines = |path: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(path).expect("a file");
            assert!(text.len() <= 300);
            text.lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
                .map(|line| line["event"]["id"].as_str().expect("an id").to_owned())
                .collect()
        };
        let (older, newer) = (lines(&directory.path().join("dead.jsonl.1")), lines(&path));
        let kept = [older, newer].concat();
        let expected: Vec<_> = (9 - kept.len()..9)
            .map(|number| format!("r-{number}"))
            .collect();
        assert!(kept.len() >= 2);
        assert_eq!(kept, expected);
    }
}
