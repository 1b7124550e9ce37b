//! Announcements by UDP multicast: this node sends at an interval, and at once when it receives a new node's; it receives those of others.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Protocol, Socket, Type};
use thicket_overlay::NodeId;

use super::announcement::{Announcement, AnnouncementError, Freshness, Heard, LONGEST};
use crate::allowance::Allowance;
use crate::config::Multicast;
use crate::counters::Counters;
use crate::links::Links;
use crate::mailbox::{Letter, Mailbox};

const STOP: Token = Token(0);
const SOCKET: Token = Token(1);
/// A node that starts announces itself a few times in quick succession: a datagram may be lost.
const FIRST_PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// Nodes and strangers remembered. A forgotten one counts as new again, which costs a datagram or a line of the log.
const REMEMBERED: usize = 1024;

/// The thread. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Announcer {
    stop: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Joins the group and starts the thread.
    pub(super) fn start(
        config: &Multicast,
        own: Announcement,
        links: Option<Arc<Links>>,
        hub: Arc<Mailbox>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let stop = Arc::new(Waker::new(poll.registry(), STOP)?);
        let mut socket = UdpSocket::from_std(join(config)?);
        poll.registry()
            .register(&mut socket, SOCKET, Interest::READABLE)?;
        let group = SocketAddr::V4(config.group);
        let state = State {
            socket,
            group,
            own,
            links,
            hub,
            counters,
            known: HashMap::new(),
            strangers: HashSet::new(),
            lines: Allowance::of_lines(),
            answer: false,
        };
        let interval = config.interval;
        let thread = std::thread::Builder::new()
            .name("multicast".into())
            .spawn(move || run(poll, state, interval))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        // Fails only if the thread has ended by itself.
        let _ = self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket in the group. Several nodes of one host share the port, and each receives every announcement.
fn join(config: &Multicast) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    // Linux needs only the line above; other systems need both.
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&bind_address(config.group).into())?;
    socket.join_multicast_v4(config.group.ip(), &config.interface)?;
    if !config.interface.is_unspecified() {
        socket.set_multicast_if_v4(&config.interface)?;
    }
    socket.set_multicast_ttl_v4(u32::from(config.ttl))?;
    socket.set_multicast_loop_v4(true)?;
    Ok(socket.into())
}

/// On Unix a socket bound to the group receives nothing else; Windows requires the wildcard.
fn bind_address(group: SocketAddrV4) -> SocketAddr {
    let ip = if cfg!(unix) {
        *group.ip()
    } else {
        Ipv4Addr::UNSPECIFIED
    };
    SocketAddr::from((ip, group.port()))
}

struct State {
    socket: UdpSocket,
    group: SocketAddr,
    own: Announcement,
    /// The keys that sign announcements, if any.
    links: Option<Arc<Links>>,
    hub: Arc<Mailbox>,
    counters: Arc<Counters>,
    /// The last announcement of each node, and when it arrived.
    known: HashMap<NodeId, (Freshness, Instant)>,
    strangers: HashSet<(IpAddr, String)>,
    lines: Allowance,
    /// A new node was received, which may have started after our last announcement.
    answer: bool,
}

fn run(mut poll: Poll, mut state: State, interval: Duration) {
    let mut pauses = FIRST_PAUSES.into_iter();
    let mut events = Events::with_capacity(8);
    let mut due = Instant::now();
    loop {
        if due <= Instant::now() {
            state.announce();
            due = Instant::now() + pauses.next().unwrap_or(interval).min(interval);
        }
        match poll.poll(
            &mut events,
            Some(due.saturating_duration_since(Instant::now())),
        ) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return tracing::error!(%error, "cannot wait for announcements"),
            Ok(()) => {}
        }
        if events.iter().any(|event| event.token() == STOP) {
            return;
        }
        state.receive();
        if std::mem::take(&mut state.answer) {
            state.announce();
        }
    }
}

impl State {
    fn announce(&mut self) {
        self.own.fresh.number += 1;
        let trust = self.links.as_ref().map(|links| links.trust());
        let key = trust.as_ref().and_then(|trust| trust.announcements.first());
        // The network may be down for a while; the next announcement follows soon.
        if let Err(error) = self.socket.send_to(&self.own.encode(key), self.group) {
            tracing::debug!(%error, "cannot send an announcement");
        }
    }

    fn receive(&mut self) {
        let mut buffer = [0; LONGEST + 1];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((count, source)) => self.hear(&buffer[..count], source.ip()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(%error, "cannot receive announcements");
                    return;
                }
            }
        }
    }

    fn hear(&mut self, datagram: &[u8], source: IpAddr) {
        match Announcement::decode(datagram) {
            Ok(heard) if heard.announcement.node == self.own.node => {}
            Ok(heard) if heard.announcement.cluster_name == self.own.cluster_name => {
                self.hear_of_cluster(&heard, source);
            }
            Ok(heard) => self.refuse(
                source,
                format!("cluster {}", heard.announcement.cluster_name),
            ),
            Err(error @ AnnouncementError::Version(_)) => self.refuse(source, error.to_string()),
            Err(AnnouncementError::Malformed) => self.counters.announcements_malformed.add_one(),
        }
    }

    fn hear_of_cluster(&mut self, heard: &Heard<'_>, source: IpAddr) {
        let trust = self.links.as_ref().map(|links| links.trust());
        let keys = trust.as_ref().map_or(&[][..], |trust| &trust.announcements);
        if !heard.is_of(keys) {
            return self.refuse(source, "another secret, or none".to_owned());
        }
        self.meet(&heard.announcement, !keys.is_empty(), source);
    }

    fn meet(&mut self, heard: &Announcement, is_signed: bool, source: IpAddr) {
        let last = self.known.get(&heard.node).map(|(fresh, _)| *fresh);
        // Unsigned announcements are never dropped as repetitions: a forged one could otherwise suppress those of a real node.
        if is_signed && last.is_some_and(|last| heard.fresh <= last) {
            return self.counters.announcements_repeated.add_one();
        }
        if last.is_none() && self.known.len() >= REMEMBERED {
            let longest_silent = self.known.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(node) = longest_silent.map(|(node, _)| *node) {
                self.known.remove(&node);
            }
        }
        self.known.insert(heard.node, (heard.fresh, Instant::now()));
        self.answer |= last.is_none();
        self.hub.post(Letter::Announced {
            address: heard.reachable_at(source),
        });
    }

    /// Logs one line for a stranger, and a limited number for many.
    fn refuse(&mut self, source: IpAddr, what: String) {
        self.counters.announcements_strange.add_one();
        if self.strangers.len() >= REMEMBERED {
            self.strangers.clear();
        }
        if self.strangers.insert((source, what.clone())) && self.lines.take().is_some() {
            tracing::info!(peer = %source, found = what, expected = self.own.cluster_name, "ignoring a stranger's announcement");
        }
    }
}

#[cfg(test)]
mod tests {
    use thicket_overlay::Incarnation;

    use super::*;
    use crate::config::ClusterSecret;
    use crate::readiness::LastRefusal;
    use crate::scratch::Scratch;

    struct Side {
        poll: Poll,
        mailbox: Arc<Mailbox>,
        counters: Arc<Counters>,
        _announcer: Announcer,
    }

    fn config(port: u16) -> Multicast {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 18, 84), port);
        Multicast {
            group,
            ttl: 0,
            interface: Ipv4Addr::LOCALHOST,
            interval: Duration::from_millis(100),
        }
    }

    fn side(port: u16, node: u64, cluster_name: &str) -> Side {
        side_with(port, node, cluster_name, None)
    }

    fn side_with(port: u16, node: u64, cluster_name: &str, links: Option<Arc<Links>>) -> Side {
        let poll = Poll::new().expect("a poll");
        let mailbox = Arc::new(Mailbox::new(
            Waker::new(poll.registry(), Token(0)).expect("a waker"),
        ));
        let counters = Arc::new(Counters::default());
        let own = Announcement {
            node: NodeId(node),
            fresh: Freshness {
                incarnation: Incarnation(1),
                number: 0,
            },
            cluster_name: cluster_name.into(),
            address: format!("0.0.0.0:{node}"),
        };
        let announcer = Announcer::start(
            &config(port),
            own,
            links,
            Arc::clone(&mailbox),
            Arc::clone(&counters),
        )
        .expect("loopback has multicast");
        Side {
            poll,
            mailbox,
            counters,
            _announcer: announcer,
        }
    }

    impl Side {
        fn discovered(&mut self) -> Vec<String> {
            let mut letters = Vec::new();
            let mut events = Events::with_capacity(8);
            if self.mailbox.fall_asleep() {
                self.poll
                    .poll(&mut events, Some(Duration::from_secs(10)))
                    .expect("a poll");
            }
            self.mailbox.swap(&mut letters);
            let address = |letter| match letter {
                Letter::Announced { address } => address,
                other => panic!("{other:?}"),
            };
            letters.into_iter().map(address).collect()
        }
    }

    #[test]
    fn two_nodes_of_one_host_hear_each_other_and_not_themselves() {
        let mut first = side(18840, 1001, "lab");
        let mut second = side(18840, 1002, "lab");
        assert!(
            first
                .discovered()
                .iter()
                .all(|address| address == "127.0.0.1:1002")
        );
        assert!(
            second
                .discovered()
                .iter()
                .all(|address| address == "127.0.0.1:1001")
        );
    }

    fn links(scratch: &Scratch, secret: &str) -> Option<Arc<Links>> {
        let path = scratch.file(secret, secret);
        let secret = ClusterSecret::from_file(&path).expect("a good secret");
        Links::new(None, Some(secret), LastRefusal::default()).expect("derived")
    }

    #[test]
    fn with_a_secret_only_its_nodes_are_heard_and_each_announcement_once() {
        let scratch = Scratch::new();
        let ours = links(&scratch, "qM2f8mXbJ0sZrT1kVQ9wYc4hN7uLpE3a6GdRiBxOoDs");
        let theirs = links(&scratch, "Ub6YdNf2hQp9vJx4Cg8tKr0zMe5wAl7iSoD3yBqVnZE");
        let ear = join(&config(18842)).expect("loopback has multicast");
        let mut home = side_with(18842, 1001, "lab", ours.clone());
        let _plain = side(18842, 1003, "lab");
        let _stranger = side_with(18842, 1004, "lab", theirs);
        let _friend = side_with(18842, 1002, "lab", ours);
        let mut buffer = [0; LONGEST];
        for _ in 0..100 {
            let heard = home.discovered();
            assert!(heard.iter().all(|it| it == "127.0.0.1:1002"), "{heard:?}");
            // Sends each received announcement again; this socket receives the repetition too.
            if let Ok(count) = ear.recv(&mut buffer) {
                ear.send_to(&buffer[..count], config(18842).group)
                    .expect("loopback has multicast");
            }
            let counters = &home.counters;
            if counters.announcements_strange.value() > 1
                && counters.announcements_repeated.value() > 0
            {
                return;
            }
        }
        panic!("{:?}", home.counters);
    }

    #[test]
    fn strangers_and_torn_datagrams_are_counted_and_ignored() {
        let mut home = side(18841, 1001, "lab");
        let _stranger = side(18841, 1003, "other");
        let noise = join(&config(18841)).expect("loopback has multicast");
        noise
            .send_to(b"noise", config(18841).group)
            .expect("loopback has multicast");
        let _friend = side(18841, 1002, "lab");
        // The friend is received again and again; wait until the others were received too.
        for _ in 0..100 {
            assert!(
                home.discovered()
                    .iter()
                    .all(|address| address == "127.0.0.1:1002")
            );
            if home.counters.announcements_malformed.value() > 0
                && home.counters.announcements_strange.value() > 0
            {
                return;
            }
        }
        panic!("{:?}", home.counters);
    }
}
