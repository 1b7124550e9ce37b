//! Takes rights away from this process that a server does not need once it has started: to write
//! anywhere but in some directories, to execute programs, to gain privileges, to send signals to
//! other processes. By Landlock, where the kernel has it.
//!
//! Reading is not restricted: certificates, lists of users and secrets are read again while a
//! server runs, from files that may have been replaced or are symbolic links to others by then.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest version of Landlock whose rights are taken away. A kernel with an earlier one takes
/// away those that it knows.
const VERSION: ABI = ABI::V6;

/// Where a sandboxed process may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writable {
    /// Files and directories below a directory.
    Tree(PathBuf),
    /// Files below a directory, but no new directories.
    Files(PathBuf),
    /// Unix sockets below a directory: they are created and removed.
    Sockets(PathBuf),
}

impl Writable {
    fn directory(&self) -> &Path {
        match self {
            Self::Tree(directory) | Self::Files(directory) | Self::Sockets(directory) => directory,
        }
    }

    fn rights(&self) -> BitFlags<AccessFs> {
        match self {
            Self::Tree(_) => AccessFs::from_write(VERSION) & !AccessFs::IoctlDev,
            Self::Files(_) => {
                AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate
            }
            Self::Sockets(_) => AccessFs::MakeSock | AccessFs::RemoveFile,
        }
    }
}

/// What holds after [`enter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Everything that this module promises.
    Full,
    /// An older kernel enforces some of it.
    Partial,
    /// The kernel has no Landlock, or it is disabled: only privileges cannot be gained.
    NoLandlock,
}

/// The system refused to take rights away although it has Landlock.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A directory cannot be opened.
    #[error("{0}")]
    Directory(#[from] PathFdError),
    /// Landlock itself.
    #[error("{0}")]
    Landlock(#[from] RulesetError),
}

/// Takes the rights away from the calling thread and all threads and processes that it starts
/// afterwards, for good. So a program calls this before it starts threads. A directory that does
/// not exist is skipped.
///
/// # Errors
/// A directory cannot be opened, or the system refuses. Then nothing has changed, except that
/// privileges may not be gained any more.
pub fn enter(writable: &[Writable]) -> Result<Sandbox, SandboxError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_write(VERSION) | AccessFs::Execute)?
        .scope(Scope::from_all(VERSION))?
        .create()?;
    for place in writable {
        if let Some(directory) = open(place.directory())? {
            rules = rules.add_rule(PathBeneath::new(directory, place.rights()))?;
        }
    }
    // This also sets `no_new_privs` (prctl(2)), whether the kernel has Landlock or not.
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Sandbox::Full,
        RulesetStatus::PartiallyEnforced => Sandbox::Partial,
        RulesetStatus::NotEnforced => Sandbox::NoLandlock,
    })
}

fn open(directory: &Path) -> Result<Option<PathFd>, SandboxError> {
    match PathFd::new(directory) {
        Ok(opened) => Ok(Some(opened)),
        Err(PathFdError::OpenCall { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind::PermissionDenied;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Runs `test` in a thread of its own, which alone loses its rights. On a kernel without
    /// Landlock there is nothing to test.
    fn in_sandbox(writable: Vec<Writable>, test: impl FnOnce() + Send + 'static) {
        let thread = thread::spawn(move || match enter(&writable).expect("entered") {
            Sandbox::NoLandlock => eprintln!("NOT CHECKED: this kernel has no Landlock"),
            Sandbox::Full | Sandbox::Partial => test(),
        });
        thread.join().expect("the test passes");
    }

    fn denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == PermissionDenied)
    }

    #[test]
    fn below_a_tree_everything_can_be_written_and_elsewhere_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let (data, other) = (root.path().join("data"), root.path().join("other"));
        fs::create_dir(&data).expect("created");
        fs::create_dir(&other).expect("created");
        fs::write(other.join("file"), "as it was").expect("written");
        std::os::unix::fs::symlink(&other, data.join("link")).expect("linked");
        let read_again = other.join("file");
        let tree = data.clone();
        in_sandbox(vec![Writable::Tree(tree.clone())], move || {
            fs::create_dir_all(tree.join("a/b")).expect("a directory");
            fs::create_dir(tree.join("c")).expect("a directory");
            fs::write(tree.join("a/b/file"), "text").expect("a file");
            fs::rename(tree.join("a/b/file"), tree.join("c/file")).expect("renamed");
            fs::write(tree.join("c/file"), "").expect("truncated");
            fs::remove_dir_all(tree.join("a")).expect("removed");
            assert!(denied(fs::write(other.join("new"), "text")));
            assert!(denied(fs::write(other.join("file"), "text")));
            assert!(denied(fs::write(tree.join("link/file"), "text")), "a link");
            assert!(denied(fs::remove_file(other.join("file"))));
            assert!(denied(fs::create_dir(other.join("directory"))));
            let moved = fs::rename(tree.join("c/file"), other.join("moved"));
            assert!(moved.is_err(), "{moved:?}");
            let text = fs::read_to_string(other.join("file")).expect("read");
            assert_eq!(text, "as it was");
        });
        fs::write(read_again, "changed").expect("the other threads keep their rights");
    }

    #[test]
    fn nothing_is_executed_and_no_privilege_gained() {
        in_sandbox(Vec::new(), || {
            assert!(denied(Command::new("/bin/true").status()));
            let status = fs::read_to_string("/proc/thread-self/status").expect("this has /proc");
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        });
    }

    #[test]
    fn files_may_be_rotated_but_no_directory_created() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().to_owned();
        in_sandbox(vec![Writable::Files(path.clone())], move || {
            fs::write(path.join("log"), "1").expect("written");
            fs::write(path.join("log"), "2").expect("truncated");
            fs::rename(path.join("log"), path.join("log.1")).expect("renamed");
            fs::remove_file(path.join("log.1")).expect("removed");
            assert!(denied(fs::create_dir(path.join("directory"))));
        });
    }

    #[test]
    fn sockets_may_be_bound_where_no_file_can_be_written() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().to_owned();
        in_sandbox(vec![Writable::Sockets(path.clone())], move || {
            let socket = path.join("socket");
            let listener = UnixListener::bind(&socket).expect("bound");
            UnixStream::connect(&socket).expect("connected");
            drop(listener);
            fs::remove_file(&socket).expect("removed");
            assert!(denied(fs::write(path.join("file"), "text")));
        });
    }

    #[test]
    fn a_directory_that_does_not_exist_is_skipped_and_one_that_cannot_be_one_named() {
        let root = tempfile::tempdir().expect("a directory");
        let missing = root.path().join("missing");
        in_sandbox(vec![Writable::Tree(missing.clone())], move || {
            assert!(denied(fs::create_dir(&missing)));
        });
        fs::write(root.path().join("file"), "").expect("written");
        let below = root.path().join("file/x");
        let error = enter(&[Writable::Tree(below)]).expect_err("a file has nothing below it");
        assert!(error.to_string().contains("file/x"), "{error}");
    }
}
