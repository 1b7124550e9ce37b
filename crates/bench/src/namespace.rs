//! Runs code in another network namespace: a socket opened there stays there.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs `work` with this thread in the network namespace at `path` (`/run/netns/NAME`), and returns to its own.
///
/// Other threads are not affected. If the thread cannot return, the error says so and the thread must not be used any more.
pub fn inside<T>(path: &Path, work: impl FnOnce() -> T) -> io::Result<T> {
    let home = File::open("/proc/thread-self/ns/net")?;
    let there = File::open(path)?;
    enter(&there)?;
    let done = work();
    enter(&home)?;
    Ok(done)
}

/// Moves this thread into the network namespace at `path` for good.
pub fn move_into(path: &Path) -> io::Result<()> {
    enter(&File::open(path)?)
}

fn enter(namespace: &File) -> io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_not_there_leaves_the_thread_where_it_is() {
        let error = inside(Path::new("/run/netns/thicket-none"), || ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_ok());
    }
}
