//! Removes what a lab has created: processes, namespaces and control groups whose names begin with `thicket-PID-`, its socket and its temporary folder.
//!
//! A lab starts a janitor, a process that waits for its standard input to end and then cleans up. So the same code runs when a lab ends and when it
//! is killed. If the janitor was killed as well, `thicket lab down` and the next lab clean up.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::LabError;
use crate::limits::Controllers;
use crate::net::{self, PREFIX};

const RUN: &str = "/run";
const SOCKET: &str = ".sock";
const FOLDER: &str = "thicket-lab-";
/// A file in the folder of a lab that runs by hand in a user namespace: its socket cannot be seen from outside.
const IN_USER_NAMESPACE: &str = "user-namespace";
/// Longest wait for killed processes to be gone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The process that cleans up after this one.
#[derive(Debug)]
pub struct Janitor {
    child: Child,
}

impl Janitor {
    /// Starts it for this process.
    pub fn start(program: &Path) -> Result<Self, LabError> {
        let child = Command::new(program)
            .args(["lab", "child", "janitor", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for the lab; the janitor is still needed then.
            .process_group(0)
            .spawn()
            .map_err(LabError::io("janitor"))?;
        Ok(Self { child })
    }

    /// Makes it clean up, and waits until it is done.
    pub fn finish(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The janitor's process: waits until the lab `lab` is gone or done, then cleans up.
pub fn wait_and_clean(lab: u32) -> Result<(), LabError> {
    let mut nothing = Vec::new();
    // An error is an end as well.
    let _ = io::stdin().read_to_end(&mut nothing);
    clean(&[lab])
}

/// Labs that have left something, by their process number, and whether each is alive.
pub fn found() -> Vec<(u32, bool)> {
    let mut labs = BTreeSet::new();
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten();
    let names = namespaces
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .chain(Controllers::detect().groups());
    for name in names {
        if let Some(lab) = lab_of(&name) {
            labs.insert(lab);
        }
    }
    labs.extend(files().into_iter().map(|(lab, _)| lab));
    labs.into_iter().map(|lab| (lab, is_alive(lab))).collect()
}

/// Cleans up after dead labs; returns them.
pub fn clean_dead() -> Result<Vec<u32>, LabError> {
    let found = found().into_iter();
    let dead: Vec<u32> = found
        .filter(|(_, alive)| !alive)
        .map(|(lab, _)| lab)
        .collect();
    if !dead.is_empty() {
        clean(&dead)?;
    }
    Ok(dead)
}

/// Ends the processes of these labs and removes their namespaces and control groups.
pub fn clean(labs: &[u32]) -> Result<(), LabError> {
    let controllers = Controllers::detect();
    let ours = |name: &str| lab_of(name).is_some_and(|lab| labs.contains(&lab));
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten();
    let namespaces: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| ours(name))
        .collect();
    let start = Instant::now();
    loop {
        // A process may have entered its groups but not yet its namespace.
        let mut pids = processes(&namespaces);
        pids.extend(controllers.processes(&ours));
        for &pid in &pids {
            let _ = kill_process(pid, Signal::KILL);
        }
        if pids.is_empty() || start.elapsed() > TIMEOUT {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for (_, path) in files().into_iter().filter(|(lab, _)| labs.contains(lab)) {
        let _ = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
    }
    if !namespaces.is_empty() {
        let batch: String = namespaces
            .iter()
            .map(|name| format!("netns delete {name}\n"))
            .collect();
        let deleted = crate::command::feed("ip", &["-force", "-batch", "-"], &batch);
        controllers.remove(&ours);
        // The process that waits for the end of the same lab may have deleted them meanwhile.
        let is_left = |name: &String| net::path(name).exists();
        return match deleted {
            Err(error) if namespaces.iter().any(is_left) => Err(error),
            _ => Ok(()),
        };
    }
    controllers.remove(&ours);
    Ok(())
}

/// Processes whose network namespace is one of these.
#[must_use]
pub fn processes(namespaces: &[String]) -> Vec<Pid> {
    let inodes: BTreeSet<u64> = namespaces
        .iter()
        .filter_map(|name| std::fs::metadata(net::path(name)).ok())
        .map(|metadata| metadata.ino())
        .collect();
    if inodes.is_empty() {
        return Vec::new();
    }
    let own = std::process::id() as i32;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let namespace = std::fs::metadata(entry.path().join("ns/net")).ok()?;
            (pid != own && inodes.contains(&namespace.ino())).then_some(pid)
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// The socket through which a lab accepts orders.
#[must_use]
pub fn socket(lab: u32) -> PathBuf {
    Path::new(RUN).join(format!("{PREFIX}{lab}{SOCKET}"))
}

/// The folder for files that go with a lab.
#[must_use]
pub fn folder(lab: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{FOLDER}{lab}"))
}

/// Leaves a sign outside of this lab's user namespace, by which other commands of the user find it.
pub fn mark_user_namespace() -> io::Result<()> {
    let folder = folder(std::process::id());
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(IN_USER_NAMESPACE), "")
}

/// Labs of this user that run by hand in user namespaces.
#[must_use]
pub fn in_user_namespaces() -> Vec<u32> {
    let folders = of_labs(&std::env::temp_dir(), FOLDER, "").into_iter();
    let marked = folders.filter(|(_, folder)| folder.join(IN_USER_NAMESPACE).exists());
    let labs = marked.map(|(lab, _)| lab);
    labs.filter(|&lab| is_alive(lab)).collect()
}

/// Sockets and folders of labs of this user.
fn files() -> Vec<(u32, PathBuf)> {
    let sockets = of_labs(Path::new(RUN), PREFIX, SOCKET);
    let folders = of_labs(&std::env::temp_dir(), FOLDER, "");
    sockets.into_iter().chain(folders).collect()
}

/// What this user has in a folder under the name of a lab.
fn of_labs(folder: &Path, before: &str, after: &str) -> Vec<(u32, PathBuf)> {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.metadata().is_ok_and(|facts| facts.uid() == own))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let lab = name.strip_prefix(before)?.strip_suffix(after)?;
            Some((lab.parse().ok()?, entry.path()))
        })
        .collect()
}

fn lab_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Whether the process with this number is a lab; another program may have the number by now.
fn is_alive(lab: u32) -> bool {
    let command = std::fs::read(format!("/proc/{lab}/cmdline")).unwrap_or_default();
    command.split(|&byte| byte == 0).any(|word| word == b"lab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_lab() {
        for (name, lab) in [
            ("thicket-12-r1", Some(12)),
            ("thicket-12", None),
            ("thicket-x-r1", None),
            ("other-12-r1", None),
        ] {
            assert_eq!(lab_of(name), lab, "{name}");
        }
    }

    #[test]
    fn files_that_a_dead_lab_left_are_removed_and_others_stay() {
        // No process has such a number.
        let (dead, other) = (u32::MAX, std::env::temp_dir().join("thicket-lab-mine"));
        for folder in [folder(dead), other.clone()] {
            std::fs::create_dir_all(folder.join("s1")).unwrap();
        }
        assert!(found().contains(&(dead, false)));
        clean(&[dead]).unwrap();
        assert!(!folder(dead).exists() && other.exists());
        assert!(!found().contains(&(dead, false)));
        std::fs::remove_dir_all(other).unwrap();
        assert!(socket(7).ends_with("thicket-7.sock"));
        let names = tempfile::tempdir().unwrap();
        std::fs::write(names.path().join("thicket-12.sock"), "").unwrap();
        std::fs::write(names.path().join("thicket-x.sock"), "").unwrap();
        let labs = of_labs(names.path(), PREFIX, SOCKET);
        assert_eq!(labs.len(), 1);
        assert_eq!(labs[0].0, 12);
    }

    #[test]
    fn a_lab_in_a_user_namespace_is_found_by_its_sign_while_it_runs() {
        // The number of a process that is no lab, and one that none has.
        for lab in [1, u32::MAX - 1] {
            let folder = folder(lab);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(IN_USER_NAMESPACE), "").unwrap();
            assert!(!in_user_namespaces().contains(&lab));
            std::fs::remove_dir_all(folder).unwrap();
        }
        // A program that looks like a lab.
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line", "sh", "lab"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The kernel shows its command line only once it runs.
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let folder = folder(child.id());
        std::fs::create_dir_all(&folder).unwrap();
        assert!(!in_user_namespaces().contains(&child.id()));
        std::fs::write(folder.join(IN_USER_NAMESPACE), "").unwrap();
        let found = in_user_namespaces();
        drop(child.stdin.take());
        child.wait().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert!(found.contains(&child.id()));
    }

    #[test]
    fn a_process_that_is_no_lab_does_not_protect_what_a_dead_lab_left() {
        assert!(!is_alive(1));
        assert!(!is_alive(u32::MAX));
    }
}
