//! The sockets of one thread: their owners and their readiness.

use std::collections::VecDeque;
use std::io;

use slab::Slab;
use thicket_node::ConnectionId;

use crate::layers::{Failure, Preface};
use crate::stream::Taken;
use crate::transport::Transport;

/// The owner of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The worker: a client's connection, or one not identified yet.
    Worker,
    /// The hub: a link.
    Hub,
    /// None: opened by this node and not connected yet.
    Dial,
    /// None: accepted, and its PROXY header is not complete.
    Preface,
    /// None: closed by the node, and its client may still send.
    Lingering,
}

/// One socket. Small: a hundred thousand idle ones must be cheap.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) transport: Transport,
    pub(crate) owner: Owner,
    /// Distinguishes this socket from an earlier one with the same index.
    pub(crate) serial: u32,
    /// The owner wants to read.
    reading: bool,
    /// The kernel may have bytes. With edge-triggered events only a read that finds nothing proves the contrary.
    readable: bool,
    /// It is in the queue of sockets to read.
    queued: bool,
    /// The peer has ended its direction: read until the end is reached.
    ending: bool,
    /// The peer accepted less than we had; wait for an event of the kernel.
    blocked: bool,
    /// It is in the list of sockets to flush.
    dirty: bool,
    /// A write failed; the owner is notified at the start of the next round.
    lost: bool,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// That many bytes.
    Bytes(usize),
    /// None now.
    Nothing,
    /// The connection is closed; if a handshake failed, why.
    Closed(Option<Failure>),
}

/// The sockets of one thread, and the lists of those with work.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// `None`: a socket that was removed in this round.
    slab: Slab<Option<Socket>>,
    /// Indices that become free at the end of the round.
    removed: Vec<usize>,
    next_serial: u32,
    to_read: VecDeque<ConnectionId>,
    to_flush: Vec<ConnectionId>,
    lost: Vec<ConnectionId>,
}

impl Sockets {
    /// The index of the next socket.
    pub(crate) fn next_id(&self) -> ConnectionId {
        id(self.slab.vacant_key())
    }

    /// Adds a socket.
    pub(crate) fn insert(&mut self, transport: Transport, owner: Owner) -> ConnectionId {
        self.next_serial = self.next_serial.wrapping_add(1);
        // Pending output of the layers waits for the first event of the kernel.
        let blocked = transport.has_unsent();
        id(self.slab.insert(Some(Socket {
            transport,
            owner,
            serial: self.next_serial,
            reading: true,
            readable: false,
            queued: false,
            ending: false,
            blocked,
            dirty: false,
            lost: false,
        })))
    }

    /// Removes a socket. Its index is free after [`Self::free_removed`]. Lists that still contain it are corrected when they are read.
    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Socket> {
        let socket = self.slab.get_mut(key(connection))?.take()?;
        self.removed.push(key(connection));
        Some(socket)
    }

    /// Frees the indices of removed sockets: all outputs that may name them have been performed.
    pub(crate) fn free_removed(&mut self) {
        for key in self.removed.drain(..) {
            self.slab.remove(key);
        }
    }

    pub(crate) fn find(&mut self, connection: ConnectionId) -> Option<&mut Socket> {
        find(&mut self.slab, connection)
    }

    /// Number of sockets of `owner`.
    pub(crate) fn count(&self, owner: Owner) -> usize {
        self.of(owner).count()
    }

    /// The hub's links that satisfy `is_it`.
    pub(crate) fn of_hub(&self, is_it: impl Fn(&Transport) -> bool) -> Vec<ConnectionId> {
        let links = self.of(Owner::Hub);
        links
            .filter(|(_, socket)| is_it(&socket.transport))
            .map(|(key, _)| id(key))
            .collect()
    }

    fn of(&self, owner: Owner) -> impl Iterator<Item = (usize, &Socket)> {
        let all = self.slab.iter();
        let there = all.filter_map(|(key, socket)| Some((key, socket.as_ref()?)));
        there.filter(move |(_, socket)| socket.owner == owner)
    }

    /// The kernel has bytes, or the end, for this socket.
    pub(crate) fn set_readable(&mut self, connection: ConnectionId, ending: bool) {
        let Some(socket) = find(&mut self.slab, connection) else {
            return;
        };
        socket.readable = true;
        socket.ending |= ending;
        if socket.reading && !socket.queued && socket.owner != Owner::Dial {
            socket.queued = true;
            self.to_read.push_back(connection);
        }
    }

    /// The socket accepts bytes again.
    pub(crate) fn set_writable(&mut self, connection: ConnectionId) {
        let Some(socket) = find(&mut self.slab, connection) else {
            return;
        };
        if socket.blocked {
            socket.blocked = false;
            self.mark_dirty(connection);
        }
    }

    /// Pauses or resumes reading. Events in the meantime are remembered.
    pub(crate) fn set_reading(&mut self, connection: ConnectionId, reading: bool) {
        let Some(socket) = find(&mut self.slab, connection) else {
            return;
        };
        socket.reading = reading;
        if reading && socket.readable {
            self.set_readable(connection, false);
        }
    }

    /// A connection that this node opened is established and belongs to the hub now.
    pub(crate) fn set_connected(&mut self, connection: ConnectionId) {
        if let Some(socket) = find(&mut self.slab, connection) {
            socket.owner = Owner::Hub;
            if socket.readable {
                self.set_readable(connection, false);
            }
        }
    }

    /// Whether the peer has ended its direction.
    pub(crate) fn is_ending(&mut self, connection: ConnectionId) -> bool {
        self.find(connection).is_some_and(|socket| socket.ending)
    }

    /// How many sockets wait to be read.
    pub(crate) fn reads_waiting(&self) -> usize {
        self.to_read.len()
    }

    /// The next socket to be read, in turn.
    pub(crate) fn next_to_read(&mut self) -> Option<(ConnectionId, Owner)> {
        while let Some(connection) = self.to_read.pop_front() {
            let Some(socket) = find(&mut self.slab, connection) else {
                continue;
            };
            if std::mem::take(&mut socket.queued) && socket.reading && socket.readable {
                return Some((connection, socket.owner));
            }
        }
        None
    }

    /// Reads once. A socket that may have more goes to the end of the queue.
    pub(crate) fn read(&mut self, connection: ConnectionId, buffer: &mut [u8]) -> Read {
        let Some(socket) = find(&mut self.slab, connection) else {
            return Read::Nothing;
        };
        let taken = socket.transport.try_read(buffer);
        let owes = socket.transport.has_unsent();
        let read = match taken {
            Ok(Taken::End) => Read::Closed(socket.transport.note_end(None)),
            Err(error) => Read::Closed(socket.transport.note_end(Some(&error))),
            Ok(Taken::Bytes { count, drained }) => {
                if socket.owner == Owner::Worker
                    && let Some(gate) = socket.transport.gate()
                {
                    gate.bytes_in.add(count);
                }
                // After the last byte the next one is a new edge. The end is reported only once, so reading continues until it is reached.
                socket.readable = !drained || socket.ending;
                Read::Bytes(count)
            }
            Ok(Taken::Nothing { drained }) => {
                socket.readable = !drained;
                Read::Nothing
            }
        };
        if socket.readable && !matches!(read, Read::Closed(_)) {
            self.set_readable(connection, false);
        }
        if owes {
            self.mark_dirty(connection);
        }
        read
    }

    /// Reads and discards bytes once, below all layers.
    pub(crate) fn drop_bytes(&mut self, connection: ConnectionId, buffer: &mut [u8]) -> Read {
        let Some(socket) = find(&mut self.slab, connection) else {
            return Read::Nothing;
        };
        match socket.transport.stream_mut().try_read(buffer) {
            Ok(0) => Read::Closed(None),
            Ok(count) => {
                self.set_readable(connection, false);
                Read::Bytes(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.readable = false;
                Read::Nothing
            }
            Err(_) => Read::Closed(None),
        }
    }

    /// Continues to read a PROXY header. When it is complete, the socket belongs to the worker.
    pub(crate) fn read_preface(
        &mut self,
        connection: ConnectionId,
        buffer: &mut [u8],
    ) -> io::Result<Preface> {
        let Some(Socket {
            transport: Transport::Layered(layered),
            owner,
            readable,
            ..
        }) = find(&mut self.slab, connection)
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let preface = layered.try_read_preface(buffer)?;
        match preface {
            Preface::Waiting => *readable = false,
            Preface::Client(_) => {
                *owner = Owner::Worker;
                self.set_readable(connection, false);
            }
        }
        Ok(preface)
    }

    /// The owner has bytes for this socket.
    pub(crate) fn mark_dirty(&mut self, connection: ConnectionId) {
        let Some(socket) = find(&mut self.slab, connection) else {
            return;
        };
        if !socket.dirty && !socket.blocked && !socket.lost {
            socket.dirty = true;
            self.to_flush.push(connection);
        }
    }

    /// Moves the list of sockets to be flushed into `list`, which is empty.
    pub(crate) fn take_dirty(&mut self, list: &mut Vec<ConnectionId>) {
        std::mem::swap(&mut self.to_flush, list);
    }

    /// The socket, if it is in the list of sockets to flush; it is removed from it.
    pub(crate) fn start_flush(&mut self, connection: ConnectionId) -> Option<&mut Socket> {
        let socket = find(&mut self.slab, connection)?;
        std::mem::take(&mut socket.dirty).then_some(socket)
    }

    /// A write failed or the peer vanished: the owner will be notified.
    pub(crate) fn mark_lost(&mut self, connection: ConnectionId) {
        let Some(socket) = find(&mut self.slab, connection) else {
            return;
        };
        if !socket.lost {
            socket.lost = true;
            self.lost.push(connection);
        }
    }

    /// The next lost socket whose owner must be notified.
    pub(crate) fn next_lost(&mut self) -> Option<(ConnectionId, Owner)> {
        while let Some(connection) = self.lost.pop() {
            let socket = find(&mut self.slab, connection);
            if let Some(socket) = socket.filter(|socket| socket.lost) {
                return Some((connection, socket.owner));
            }
        }
        None
    }

    /// Whether a round should follow at once.
    pub(crate) fn has_work(&self) -> bool {
        !(self.to_read.is_empty() && self.to_flush.is_empty() && self.lost.is_empty())
    }
}

impl Socket {
    /// The peer accepted less than we had.
    pub(crate) const fn set_blocked(&mut self) {
        self.blocked = true;
    }

    /// Whether the owner reads at the moment.
    pub(crate) const fn is_reading(&self) -> bool {
        self.reading
    }
}

fn id(key: usize) -> ConnectionId {
    ConnectionId(u32::try_from(key).expect("a process has fewer than 2^32 descriptors"))
}

fn find(slab: &mut Slab<Option<Socket>>, connection: ConnectionId) -> Option<&mut Socket> {
    slab.get_mut(key(connection))?.as_mut()
}

const fn key(connection: ConnectionId) -> usize {
    connection.0 as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Stream;
    use mio::net::TcpStream;
    use std::io::Write;
    use std::net::TcpListener;

    /// A socket among `sockets` and its peer.
    fn connected(sockets: &mut Sockets) -> (ConnectionId, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let peer =
            std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (stream, _) = listener.accept().expect("connected");
        stream.set_nonblocking(true).expect("a socket");
        (
            sockets.insert(
                Transport::Plain {
                    stream: Stream::Tcp(TcpStream::from_std(stream)),
                    seat: None,
                },
                Owner::Worker,
            ),
            peer,
        )
    }

    /// Reads until there are bytes: loopback is fast but not instantaneous.
    fn read_some(sockets: &mut Sockets, connection: ConnectionId, buffer: &mut [u8]) -> Read {
        for _ in 0..1000 {
            match sockets.read(connection, buffer) {
                Read::Nothing => std::thread::sleep(std::time::Duration::from_millis(1)),
                read => return read,
            }
        }
        Read::Nothing
    }

    #[test]
    fn idle_state_is_small() {
        // With debug assertions mio remembers in each socket where it is registered.
        let most = if cfg!(debug_assertions) { 48 } else { 32 };
        assert!(size_of::<Socket>() <= most, "{} bytes", size_of::<Socket>());
    }

    #[test]
    fn a_filled_buffer_is_read_again_and_a_short_read_means_drained() {
        let mut sockets = Sockets::default();
        let (connection, mut peer) = connected(&mut sockets);
        peer.write_all(b"123456").expect("connected");
        sockets.set_readable(connection, false);
        let mut buffer = [0; 4];
        assert_eq!(sockets.next_to_read(), Some((connection, Owner::Worker)));
        assert_eq!(
            read_some(&mut sockets, connection, &mut buffer),
            Read::Bytes(4)
        );
        assert_eq!(sockets.next_to_read(), Some((connection, Owner::Worker)));
        assert_eq!(
            read_some(&mut sockets, connection, &mut buffer),
            Read::Bytes(2)
        );
        assert_eq!(sockets.next_to_read(), None);
    }

    #[test]
    fn an_end_that_was_announced_is_read_after_a_short_read() {
        let mut sockets = Sockets::default();
        let (connection, mut peer) = connected(&mut sockets);
        peer.write_all(b"bye").expect("connected");
        drop(peer);
        sockets.set_readable(connection, true);
        let mut buffer = [0; 16];
        assert_eq!(sockets.next_to_read(), Some((connection, Owner::Worker)));
        assert_eq!(
            read_some(&mut sockets, connection, &mut buffer),
            Read::Bytes(3)
        );
        assert_eq!(sockets.next_to_read(), Some((connection, Owner::Worker)));
        assert_eq!(
            read_some(&mut sockets, connection, &mut buffer),
            Read::Closed(None)
        );
    }

    #[test]
    fn readiness_is_remembered_while_reading_is_stopped() {
        let mut sockets = Sockets::default();
        let (connection, _peer) = connected(&mut sockets);
        sockets.set_readable(connection, false);
        sockets.set_reading(connection, false);
        assert_eq!(sockets.next_to_read(), None);
        sockets.set_readable(connection, false);
        assert_eq!(sockets.next_to_read(), None);
        sockets.set_reading(connection, true);
        assert_eq!(sockets.next_to_read(), Some((connection, Owner::Worker)));
    }

    #[test]
    fn lists_do_not_mistake_a_new_socket_for_an_old_one() {
        let mut sockets = Sockets::default();
        let (old, _old_peer) = connected(&mut sockets);
        sockets.set_readable(old, false);
        sockets.mark_dirty(old);
        sockets.mark_lost(old);
        sockets.remove(old);
        sockets.free_removed();
        let (new, _new_peer) = connected(&mut sockets);
        assert_eq!(new, old);
        assert_eq!(sockets.next_to_read(), None);
        assert_eq!(sockets.next_lost(), None);
        assert!(sockets.start_flush(new).is_none());
    }

    #[test]
    fn an_index_names_no_other_socket_before_the_outputs_of_the_round_are_performed() {
        let mut sockets = Sockets::default();
        let (old, _old_peer) = connected(&mut sockets);
        assert!(sockets.remove(old).is_some());
        let (new, _new_peer) = connected(&mut sockets);
        assert_ne!(new, old);
        // An order for the old socket.
        assert!(sockets.remove(old).is_none());
        assert_eq!(sockets.count(Owner::Worker), 1);
        sockets.free_removed();
        let (next, _next_peer) = connected(&mut sockets);
        assert_eq!(next, old);
    }

    #[test]
    fn a_blocked_socket_is_flushed_again_only_when_the_kernel_says_so() {
        let mut sockets = Sockets::default();
        let (connection, _peer) = connected(&mut sockets);
        sockets
            .find(connection)
            .expect("just inserted")
            .set_blocked();
        let mut list = Vec::new();
        sockets.mark_dirty(connection);
        sockets.take_dirty(&mut list);
        assert!(list.is_empty());
        sockets.set_writable(connection);
        sockets.take_dirty(&mut list);
        assert_eq!(list, [connection]);
    }
}
