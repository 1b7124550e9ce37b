//! Copies bytes from one socket to another.
//!
//! Small amounts go through one small buffer of this process, which is cheapest for them. From [`BULK`] on the kernel moves them from socket to
//! socket through a pipe (`splice`), without copying them here. Bytes that the other side does not accept yet stay in the flow, up to a limit, and
//! nothing more is read: so a slow reader slows its writer, as without a relay.

use std::io;
use std::os::fd::AsFd;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags};

/// After a read of this size more follows: the kernel moves the next bytes.
const BULK: usize = 16 * 1024;
/// Default capacity of a pipe.
const PIPE: usize = 64 * 1024;
/// Reads of one flow in a round; others wait too.
const TURNS: usize = 4;
/// Most idle pipes kept for reuse.
const SPARE_PIPES: usize = 64;

/// Shared by all flows of a thread.
#[derive(Debug)]
pub(crate) struct Tools {
    buffer: Box<[u8]>,
    pipes: Vec<Pipe>,
    /// Bytes moved.
    pub moved: u64,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// One direction of a relayed connection.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    held: Held,
    /// The last read was large.
    is_bulk: bool,
    /// The sender has closed its direction.
    ended: bool,
    /// The recipient was notified.
    pub is_over: bool,
}

/// Read and not written yet.
#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Bytes(Vec<u8>),
    Piped(Pipe, usize),
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing can be read or written now: an event will follow.
    Waits,
    /// There may be more.
    Again,
}

impl Tools {
    pub fn new() -> Self {
        Self {
            buffer: vec![0; BULK].into_boxed_slice(),
            pipes: Vec::new(),
            moved: 0,
        }
    }

    /// The buffer for connections that do not relay bytes unchanged.
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    fn pipe(&mut self) -> io::Result<Pipe> {
        if let Some(pipe) = self.pipes.pop() {
            return Ok(pipe);
        }
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { read, write })
    }

    fn give_back(&mut self, pipe: Pipe) {
        if self.pipes.len() < SPARE_PIPES {
            self.pipes.push(pipe);
        }
    }
}

impl Flow {
    /// A flow that starts with bytes that were read already.
    pub fn beginning_with(bytes: Vec<u8>) -> Self {
        Self {
            held: Held::Bytes(bytes),
            ..Self::default()
        }
    }

    /// Moves available bytes, up to a limit.
    ///
    /// # Errors
    /// One of the connections broke.
    pub fn pump(
        &mut self,
        from: &impl AsFd,
        to: &impl AsFd,
        tools: &mut Tools,
    ) -> io::Result<Turn> {
        if !self.write_held(to, tools)? {
            return Ok(Turn::Waits);
        }
        for _ in 0..TURNS {
            if self.ended {
                return self.end(to);
            }
            let turn = if self.is_bulk {
                self.splice(from, to, tools)?
            } else {
                self.copy(from, to, tools)?
            };
            if turn == Turn::Waits && !self.ended {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::Again)
    }

    /// Whether bytes are held that the recipient did not accept.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }

    fn end(&mut self, to: &impl AsFd) -> io::Result<Turn> {
        if !std::mem::replace(&mut self.is_over, true) {
            // It may be closed already.
            let _ = rustix::net::shutdown(to, Shutdown::Write);
        }
        Ok(Turn::Waits)
    }

    fn copy(&mut self, from: &impl AsFd, to: &impl AsFd, tools: &mut Tools) -> io::Result<Turn> {
        let len = match received(
            rustix::net::recv(from, &mut *tools.buffer, RecvFlags::empty()).map(|got| got.0),
        )? {
            None => return Ok(Turn::Waits),
            Some(0) => {
                self.ended = true;
                return Ok(Turn::Again);
            }
            Some(len) => len,
        };
        tools.moved += len as u64;
        let bytes = &tools.buffer[..len];
        let written = sent(rustix::net::send(to, bytes, SendFlags::NOSIGNAL))?;
        if written < len {
            self.held = Held::Bytes(bytes[written..].to_vec());
            return Ok(Turn::Waits);
        }
        self.is_bulk = len == tools.buffer.len();
        // A short read empties a stream socket (epoll(7)): no second read is needed to find out.
        Ok(if self.is_bulk {
            Turn::Again
        } else {
            Turn::Waits
        })
    }

    fn splice(&mut self, from: &impl AsFd, to: &impl AsFd, tools: &mut Tools) -> io::Result<Turn> {
        let pipe = tools.pipe()?;
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let got = rustix::pipe::splice(from, None, &pipe.write, None, PIPE, flags);
        let len = match received(got)? {
            None | Some(0) => {
                tools.give_back(pipe);
                // A read will show which of the two it is.
                self.is_bulk = false;
                return Ok(Turn::Again);
            }
            Some(len) => len,
        };
        tools.moved += len as u64;
        self.held = Held::Piped(pipe, len);
        self.is_bulk = len >= BULK;
        let done = self.write_held(to, tools)?;
        // A splice may move less than is available, so only a read shows that there is nothing.
        Ok(if done { Turn::Again } else { Turn::Waits })
    }

    /// Writes the held bytes; returns whether none are left.
    fn write_held(&mut self, to: &impl AsFd, tools: &mut Tools) -> io::Result<bool> {
        match std::mem::take(&mut self.held) {
            Held::Nothing => Ok(true),
            Held::Bytes(mut bytes) => {
                let written = sent(rustix::net::send(to, &bytes, SendFlags::NOSIGNAL))?;
                if written < bytes.len() {
                    bytes.drain(..written);
                    self.held = Held::Bytes(bytes);
                    return Ok(false);
                }
                Ok(true)
            }
            Held::Piped(pipe, mut len) => {
                let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                while len > 0 {
                    let moved = sent(rustix::pipe::splice(&pipe.read, None, to, None, len, flags))?;
                    if moved == 0 {
                        self.held = Held::Piped(pipe, len);
                        return Ok(false);
                    }
                    len -= moved;
                }
                tools.give_back(pipe);
                Ok(true)
            }
        }
    }
}

/// `None`: nothing available now.
fn received(result: Result<usize, Errno>) -> io::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// 0: no capacity now.
fn sent(result: Result<usize, Errno>) -> io::Result<usize> {
    match result {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        other => other.map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        (one, other)
    }

    /// Sends `len` bytes through a flow to a reader that reads at the system's pace, in any order of turns.
    fn everything_arrives(len: usize) {
        let (mut sender, from) = pair();
        let (to, mut recipient) = pair();
        from.set_nonblocking(true).unwrap();
        to.set_nonblocking(true).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
        let expected = bytes.clone();
        let send = std::thread::spawn(move || {
            sender.write_all(&bytes).unwrap();
        });
        let receive = std::thread::spawn(move || {
            let mut all = Vec::new();
            recipient.read_to_end(&mut all).unwrap();
            all
        });
        let (mut flow, mut tools) = (Flow::beginning_with(b"first".to_vec()), Tools::new());
        while !flow.is_over {
            flow.pump(&from, &to, &mut tools).unwrap();
            std::thread::yield_now();
        }
        send.join().unwrap();
        drop(to);
        let all = receive.join().unwrap();
        assert_eq!(&all[..5], b"first");
        assert!(
            all[5..] == expected[..],
            "{len} bytes, {} came",
            all.len() - 5
        );
        assert_eq!(tools.moved, len as u64);
    }

    #[test]
    fn all_bytes_arrive_in_order_and_then_the_end() {
        for len in [0, 1, 1_000, BULK, BULK + 1, 3 * PIPE, 20_000_000] {
            everything_arrives(len);
        }
    }

    #[test]
    fn a_recipient_that_reads_nothing_stops_the_sender() {
        let (mut sender, from) = pair();
        let (to, recipient) = pair();
        for socket in [&from, &to, &sender] {
            socket.set_nonblocking(true).unwrap();
        }
        let (mut flow, mut tools) = (Flow::default(), Tools::new());
        let chunk = vec![7; 1 << 20];
        let mut idle = 0;
        while idle < 1_000 {
            let wrote = sender.write(&chunk).is_ok();
            let before = tools.moved;
            flow.pump(&from, &to, &mut tools).unwrap();
            idle = if wrote || tools.moved > before {
                0
            } else {
                idle + 1
            };
        }
        assert!(flow.is_waiting());
        drop(recipient);
    }
}
