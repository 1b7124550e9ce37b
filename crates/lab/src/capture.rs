//! A second count of what links carry, by `tcpdump`, to compare with the interfaces' counters.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command;
use crate::error::LabError;
use crate::net::wan;
use crate::testbed::{Carried, Testbed};

/// Bytes kept of a frame: its length is in the capture record.
const KEPT: &str = "64";
/// After this time without writes, all frames have been written.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait for that.
const TIMEOUT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of the head of a capture file, and of each record.
const HEAD: usize = 24;
const RECORD: usize = 16;

/// Captures at both ends of every link.
#[derive(Debug)]
pub struct Capture {
    folder: PathBuf,
    /// By link: from its first site, and from its second.
    running: Vec<[Child; 2]>,
}

impl Capture {
    /// An error if this machine cannot capture.
    pub fn check() -> Result<(), LabError> {
        match command::find("tcpdump") {
            Some(_) => Ok(()),
            None => Err(LabError::Machine(
                "tcpdump is missing (package tcpdump)".to_owned(),
            )),
        }
    }

    /// Begins; files are written to `folder`.
    pub fn start(testbed: &Testbed, folder: &Path) -> Result<Self, LabError> {
        let mut capture = Self {
            folder: folder.to_owned(),
            running: Vec::new(),
        };
        for (number, link) in testbed.topology.links.iter().enumerate() {
            let end = |own: usize, other: usize, end: usize| {
                listen(
                    &testbed.sites[own].router,
                    &wan(other),
                    &file(folder, number, end),
                )
            };
            capture
                .running
                .push([end(link.a, link.b, 0)?, end(link.b, link.a, 1)?]);
        }
        Ok(capture)
    }

    /// Waits until tcpdump has written what the kernel holds for it: it drops the rest when it ends.
    fn settle(&self) {
        let start = Instant::now();
        let (mut written, mut changed) = (0, start);
        while changed.elapsed() < QUIET && start.elapsed() < TIMEOUT {
            std::thread::sleep(LOOK);
            let now: u64 = (0..self.running.len())
                .flat_map(|link| [file(&self.folder, link, 0), file(&self.folder, link, 1)])
                .filter_map(|path| Some(std::fs::metadata(path).ok()?.len()))
                .sum();
            if now != written {
                (written, changed) = (now, Instant::now());
            }
        }
    }

    /// Ends the captures, and counts what was captured.
    pub fn finish(mut self) -> Result<Vec<Carried>, LabError> {
        self.settle();
        let mut carried = Vec::new();
        for (number, ends) in self.running.iter_mut().enumerate() {
            let mut counts = [(0, 0); 2];
            for (end, child) in ends.iter_mut().enumerate() {
                if let Some(pid) = Pid::from_raw(child.id() as i32) {
                    let _ = kill_process(pid, Signal::INT);
                }
                child.wait().map_err(LabError::io("tcpdump"))?;
                let path = file(&self.folder, number, end);
                let bytes = std::fs::read(&path).map_err(LabError::io(path.display()))?;
                counts[end] = count(&bytes)
                    .ok_or_else(|| LabError::Unlike(format!("{}: no capture", path.display())))?;
            }
            carried.push(Carried {
                bytes_ab: counts[0].0,
                packets_ab: counts[0].1,
                bytes_ba: counts[1].0,
                packets_ba: counts[1].1,
            });
        }
        Ok(carried)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn file(folder: &Path, link: usize, end: usize) -> PathBuf {
    folder.join(format!("link-{link}-{end}.pcap"))
}

/// Starts a capture of what leaves through a device, and waits until tcpdump listens.
fn listen(namespace: &str, device: &str, file: &Path) -> Result<Child, LabError> {
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace, "tcpdump", "-i", device])
        .args([
            "--immediate-mode",
            "-Q",
            "out",
            "-s",
            KEPT,
            "-U",
            "-B",
            "16384",
            "-n",
            "-Z",
            "root",
            "-w",
        ])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(LabError::io("tcpdump"))?;
    let mut said = String::new();
    if let Some(errors) = child.stderr.take() {
        let mut errors = BufReader::new(errors);
        while !said.contains("listening on") {
            let mut line = String::new();
            if errors
                .read_line(&mut line)
                .map_err(LabError::io("tcpdump"))?
                == 0
            {
                let _ = child.wait();
                return Err(LabError::Machine(format!("tcpdump: {}", said.trim())));
            }
            said.push_str(&line);
        }
        // It writes more at its end, which must be read.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    }
    Ok(child)
}

/// Bytes and frames on the wire, from the records of a capture file in this machine's byte order; `None`: not a capture file.
fn count(file: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    if ![0xa1b2_c3d4, 0xa1b2_3c4d].contains(&word(0)?) {
        return None;
    }
    let (mut at, mut bytes, mut frames) = (HEAD, 0, 0);
    while let (Some(kept), Some(length)) = (word(at + 8), word(at + 12)) {
        bytes += u64::from(length);
        frames += 1;
        at += RECORD + kept as usize;
    }
    Some((bytes, frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_counted_by_the_length_on_the_wire() {
        let mut file = 0xa1b2_c3d4_u32.to_ne_bytes().to_vec();
        file.resize(HEAD, 0);
        for (kept, length) in [(4_u32, 1514_u32), (2, 66)] {
            file.extend([0; 8]);
            file.extend(kept.to_ne_bytes());
            file.extend(length.to_ne_bytes());
            file.extend(vec![0; kept as usize]);
        }
        assert_eq!(count(&file), Some((1580, 2)));
        assert_eq!(count(b"nothing"), None);
    }
}
