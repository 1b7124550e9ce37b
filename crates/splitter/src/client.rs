//! A client's connection, and its sessions at nodes.

mod admission;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use thicket_client::control::{Control, Placing};
use thicket_client::placement::{Answer, Entry, Placed, Request};
use thicket_mqtt::{Disconnect, Packet, ReasonCode, frame_header};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::Shared;
use crate::memory::{Place, Turn};
use crate::newcomers::Newcomer;
use crate::node::{self, Opening, Session, Template};
use crate::outbox::Outbox;
use crate::split::{Names, Output, Split};

use self::admission::Admitted;

/// Most reads that wait to be handled, for the client and for all nodes.
const READS: usize = 8;
/// Most bytes of a read.
const READ: usize = 16 << 10;
/// Time for the last bytes of a connection.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often deadlines are checked.
const LOOK: Duration = Duration::from_millis(500);
/// A control plane that did not answer is not asked again for this long.
const ASK_AGAIN: Duration = Duration::from_secs(20);
/// Placements expire after ten minutes; a connected client renews its own at this interval.
const RENEW: Duration = Duration::from_secs(240);

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client was refused.
    Refused(#[expect(dead_code, reason = "shown in the log")] String),
    /// The client closed, or was silent for too long.
    Client,
    /// A node closed, or did not answer.
    Node(usize),
    /// A packet of either side ended it.
    Packet,
}

/// Serves one client until either side ends.
pub(crate) async fn serve(stream: TcpStream, newcomer: Newcomer, shared: &Arc<Shared>) -> End {
    let admitted = match admission::admit(stream, newcomer, shared).await {
        Ok(admitted) => admitted,
        Err(problem) => return End::Refused(problem),
    };
    Connection::new(admitted, Arc::clone(shared)).run().await
}

/// Bytes read; `None` at the end.
type Read = Option<Vec<u8>>;
type Asked = Option<Placing>;

struct Behind {
    outbox: Arc<Outbox>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    /// Received bytes of an incomplete packet.
    partial: Vec<u8>,
    keep_alive: Duration,
    last_sent: Instant,
    last_ping: Instant,
    last_heard: Instant,
    address: String,
}

struct Connection {
    shared: Arc<Shared>,
    split: Split,
    template: Arc<Template>,
    control: Control,
    client: Arc<Outbox>,
    client_writer: JoinHandle<()>,
    client_reader: AbortHandle,
    from_client: mpsc::Receiver<Read>,
    from_nodes: mpsc::Receiver<(usize, Read)>,
    to_self: mpsc::Sender<(usize, Read)>,
    capacity: Arc<Notify>,
    behind: BTreeMap<usize, Behind>,
    inbox: Vec<u8>,
    /// The names in the current request to the control plane.
    asking: Option<(Names, JoinHandle<Asked>)>,
    ask_from: Instant,
    /// Names that the control plane denies: it would refuse any request that has them. Forgotten when the placement is renewed, as rights change.
    denied: BTreeSet<Entry>,
    renewing: Option<JoinHandle<Asked>>,
    renew_at: Instant,
    /// Nothing was sent to session 1 and it is new, so it may still be opened elsewhere.
    is_untouched: bool,
    keep_alive: Option<Duration>,
    last_heard: Instant,
    remembered: tokio::sync::OwnedMutexGuard<crate::memory::Remembered>,
    place: Arc<Place>,
    turn: Turn,
    key: crate::memory::Key,
    keeps_session: bool,
}

impl Connection {
    fn new(admitted: Admitted, shared: Arc<Shared>) -> Self {
        let capacity = Arc::new(Notify::new());
        let now = Instant::now();
        let (reads, from_client) = mpsc::channel(READS);
        let (to_self, from_nodes) = mpsc::channel(READS);
        let (read_half, write_half) = admitted.stream.into_split();
        let client = Outbox::new(&capacity);
        client.push(&admitted.connack);
        let client_writer = tokio::spawn(Arc::clone(&client).write_to(write_half));
        let reader = read_client(read_half, reads);
        let client_reader = tokio::spawn(reader).abort_handle();
        let mut remembered = admitted.remembered;
        let memory = std::mem::take(&mut remembered.memory);
        let template = Arc::new(admitted.template);
        let maximum = shared.config.maximum_packet_size;
        let mut connection = Self {
            split: Split::new(template.version, maximum, memory),
            control: shared.config.control(admitted.login),
            template,
            client,
            client_writer,
            client_reader,
            from_client,
            from_nodes,
            to_self,
            capacity,
            behind: BTreeMap::new(),
            inbox: admitted.rest,
            asking: None,
            ask_from: now,
            denied: BTreeSet::new(),
            renewing: None,
            renew_at: now + RENEW,
            is_untouched: !admitted.session_present,
            keep_alive: admitted.keep_alive,
            last_heard: now,
            remembered,
            place: admitted.place,
            turn: admitted.turn,
            key: admitted.key,
            keeps_session: admitted.keeps_session,
            shared,
        };
        for (number, session) in admitted.sessions {
            connection.add(number, session);
        }
        connection
    }

    async fn run(mut self) -> End {
        let mut turn = self.turn.clone();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let end = loop {
            if let Some(end) = self.work() {
                break end;
            }
            let client_is_full = self.client.is_full();
            let reads_client = self.asking.is_none()
                && !client_is_full
                && !self.behind.values().any(|one| one.outbox.is_full());
            tokio::select! {
                read = self.from_client.recv(), if reads_client => match read.flatten() {
                    Some(bytes) => {
                        self.last_heard = Instant::now();
                        self.inbox.extend_from_slice(&bytes);
                    }
                    None => break End::Client,
                },
                read = self.from_nodes.recv(), if !client_is_full => {
                    if let Some((number, read)) = read
                        && let Some(end) = self.on_node(number, read)
                    {
                        break end;
                    }
                }
                answer = answer_of(self.asking.as_mut().map(|(_, asked)| asked)) => self.on_answer(answer).await,
                answer = answer_of(self.renewing.as_mut()) => self.on_renewed(answer),
                () = turn.is_over() => break self.give_way(),
                () = self.capacity.notified() => {}
                _ = look.tick() => if let Some(end) = self.on_look(client_is_full, reads_client) {
                    break end;
                },
            }
        };
        self.close(&end).await;
        end
    }

    /// A newer connection of the client takes over.
    fn give_way(&mut self) -> End {
        self.split.end(ReasonCode::SessionTakenOver);
        self.perform().unwrap_or(End::Packet)
    }

    /// Handles complete packets of the client, as long as their topics and filters have sessions.
    fn work(&mut self) -> Option<End> {
        let maximum = self.shared.config.maximum_packet_size;
        if self.asking.is_none() && !self.inbox.is_empty() {
            let names = self.split.unassigned(&self.inbox);
            if !names.publish.is_empty() || !names.subscribe.is_empty() {
                self.ask(names);
            }
        }
        while self.asking.is_none() {
            let len = match frame_header(&self.inbox) {
                Ok(Some(frame)) if frame.packet_len > maximum as usize => {
                    self.split.end(ReasonCode::PacketTooLarge);
                    return self.perform().or(Some(End::Packet));
                }
                Ok(Some(frame)) if frame.packet_len <= self.inbox.len() => frame.packet_len,
                Ok(_) => break,
                Err(_) => self.inbox.len(),
            };
            let packet: Vec<u8> = self.inbox.drain(..len).collect();
            if let Some(end) = self.note_expiry(&packet) {
                return Some(end);
            }
            if let Err(error) = self.split.handle_client(&packet) {
                self.split.end(error.reason_code());
            }
            if let Some(end) = self.perform() {
                return Some(end);
            }
        }
        None
    }

    /// In DISCONNECT a client may end its session, or prolong it, but not keep one that would have ended (5.0, 3.14.2.2.2). The splitter itself
    /// refuses that, as the nodes' answers to a DISCONNECT are not read.
    fn note_expiry(&mut self, packet: &[u8]) -> Option<End> {
        let version = self.template.version;
        let decoded = thicket_mqtt::decode(packet, version, u32::MAX);
        if packet.first() == Some(&0xE0)
            && let Ok(Some((Packet::Disconnect(disconnect), _))) = decoded
            && let Some(expiry) = disconnect.session_expiry_interval
        {
            if expiry > 0 && !self.keeps_session {
                self.split.end(ReasonCode::ProtocolError);
                return self.perform();
            }
            self.keeps_session = expiry > 0;
        }
        None
    }

    fn on_node(&mut self, number: usize, read: Read) -> Option<End> {
        let Some(bytes) = read else {
            return Some(End::Node(number));
        };
        let behind = self.behind.get_mut(&number)?;
        behind.last_heard = Instant::now();
        behind.partial.extend_from_slice(&bytes);
        loop {
            let behind = self.behind.get_mut(&number)?;
            let maximum = self.shared.config.maximum_packet_size as usize;
            let len = match frame_header(&behind.partial) {
                Ok(Some(frame)) if frame.packet_len > maximum => return Some(End::Node(number)),
                Ok(Some(frame)) if frame.packet_len <= behind.partial.len() => frame.packet_len,
                Ok(_) => return None,
                Err(_) => return Some(End::Node(number)),
            };
            let packet: Vec<u8> = behind.partial.drain(..len).collect();
            if self.split.handle_node(number, &packet).is_err() {
                return Some(End::Node(number));
            }
            if let Some(end) = self.perform() {
                return Some(end);
            }
        }
    }

    fn perform(&mut self) -> Option<End> {
        while let Some(output) = self.split.poll_output() {
            match output {
                Output::ToClient(bytes) => self.client.push(&bytes),
                Output::ToNode(number, bytes) => {
                    self.is_untouched &= number != 1;
                    // Cannot happen: a session is opened before anything is assigned to it.
                    let Some(behind) = self.behind.get_mut(&number) else {
                        return Some(End::Node(number));
                    };
                    behind.last_sent = Instant::now();
                    behind.outbox.push(&bytes);
                }
                Output::End => return Some(End::Packet),
            }
        }
        None
    }

    fn ask(&mut self, names: Names) {
        if self.control.urls.is_empty() || Instant::now() < self.ask_from {
            return self.split.assign(1, &names);
        }
        let is_denied = |entry: Entry| self.denied.contains(&entry);
        let mut publish = names.publish.iter().cloned().map(Entry::Publish);
        let mut subscribe = names.subscribe.iter().cloned().map(Entry::Subscribe);
        if publish.all(is_denied) && subscribe.all(is_denied) {
            return self.split.assign(1, &names);
        }
        let all = self.allowed_names(&names);
        let asked = self.spawn_ask(all);
        self.asking = Some((names, asked));
    }

    /// The names that the client uses, and `new` ones, without those that are denied.
    fn allowed_names(&self, new: &Names) -> Names {
        let mut names = self.split.memory().names();
        names.publish.extend(new.publish.iter().cloned());
        names.subscribe.extend(new.subscribe.iter().cloned());
        for entry in &self.denied {
            match entry {
                Entry::Publish(topic) => names.publish.remove(topic),
                Entry::Subscribe(filter) => names.subscribe.remove(filter),
            };
        }
        names
    }

    fn spawn_ask(&self, names: Names) -> JoinHandle<Asked> {
        let request = Request {
            client_id: self.template.client_id.clone(),
            publish: names.publish,
            subscribe: names.subscribe,
            max_sessions: self.template.sessions,
            rates: BTreeMap::new(),
        };
        let control = self.control.clone();
        tokio::task::spawn_blocking(move || Some(control.ask(request)))
    }

    async fn on_answer(&mut self, answer: Asked) {
        let Some((names, _)) = self.asking.take() else {
            return;
        };
        match self.placed(answer) {
            Ok(placed) => self.follow(&placed, &names).await,
            Err(problem) => {
                let client_id = &self.template.client_id;
                tracing::warn!(client_id, problem, "no placement: session 1 serves");
                self.ask_from = Instant::now() + ASK_AGAIN;
            }
        }
        // Names that have no session by now go to session 1.
        self.split.assign(1, &names);
    }

    /// The sessions of an answer; what it denies is not asked for again.
    fn placed(&mut self, answer: Asked) -> Result<BTreeMap<usize, Placed>, String> {
        let placing = answer.ok_or_else(|| "asking failed".to_owned())?;
        let client_id = &self.template.client_id;
        if !placing.denied.is_empty() {
            tracing::debug!(client_id, denied = ?placing.denied, "not placed: the client may not use these");
        }
        self.denied.extend(placing.denied);
        Answer::parse(&placing.answer?, client_id, self.template.sessions)
            .map_err(|error| error.to_string())
    }

    async fn follow(&mut self, placed: &BTreeMap<usize, Placed>, names: &Names) {
        for (number, session) in placed {
            let of = |all: &[String], new: &BTreeSet<String>| {
                all.iter()
                    .filter(|name| new.contains(*name))
                    .cloned()
                    .collect()
            };
            let new = Names {
                publish: of(&session.publish, &names.publish),
                subscribe: of(&session.subscribe, &names.subscribe),
            };
            if new == Names::default() {
                continue;
            }
            // Sessions opened from here on would take over those of a newer connection.
            if self.turn.has_passed() {
                return;
            }
            if *number == 1 {
                self.move_first(&session.address).await;
            } else if !self.behind.contains_key(number)
                && !self.open(*number, &session.address).await
            {
                continue;
            }
            self.split.assign(*number, &new);
        }
    }

    /// Opens session 1 at its placement, if it is empty, so that nothing is lost. It disconnects from its node with DISCONNECT first, because a node
    /// that loses a client to another one publishes its will.
    async fn move_first(&mut self, address: &str) {
        let is_there = self
            .behind
            .get(&1)
            .is_some_and(|one| one.address == address);
        if is_there || !self.is_untouched {
            return;
        }
        let Some(old) = self.behind.remove(&1) else {
            return;
        };
        let disconnect = Packet::Disconnect(Disconnect::default());
        let mut bytes = Vec::new();
        let encoded = disconnect.encode(self.template.version, &mut bytes);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        old.outbox.push(&bytes);
        old.outbox.end();
        await_all([old.writer, old.reader]).await;
        self.drop_reads_of(1);
        let opening = Opening {
            number: 1,
            clean_start: self.template.clean_start,
            is_to_end: false,
        };
        let addresses = vec![address.to_owned(), old.address];
        let opened = node::open(&self.shared, &self.template, opening, addresses).await;
        self.place.note_reopened();
        match opened {
            Ok(session) => self.add(1, session),
            // The next packet for it ends the connection, and the client reconnects.
            Err(failure) => {
                let client_id = &self.template.client_id;
                tracing::warn!(client_id, address, ?failure, "session 1 cannot move");
            }
        }
    }

    /// Drops the last bytes from the node that session 1 was moved from: the client does not need them.
    fn drop_reads_of(&mut self, number: usize) {
        let mut kept = Vec::new();
        while let Ok(read) = self.from_nodes.try_recv() {
            if read.0 != number {
                kept.push(read);
            }
        }
        for read in kept {
            // There is capacity: these were in the channel.
            let _ = self.to_self.try_send(read);
        }
    }

    async fn open(&mut self, number: usize, address: &str) -> bool {
        if self.behind.len() >= self.template.sessions {
            return false;
        }
        let addresses = vec![address.to_owned()];
        match node::open_new(&self.shared, &self.template, number, addresses).await {
            Ok(session) => {
                self.add(number, session);
                true
            }
            Err(failure) => {
                let client_id = &self.template.client_id;
                tracing::warn!(
                    client_id,
                    session = number,
                    address,
                    ?failure,
                    "session 1 serves in its place"
                );
                false
            }
        }
    }

    fn add(&mut self, number: usize, session: Session) {
        let (read_half, write_half) = session.stream.into_split();
        let outbox = Outbox::new(&self.capacity);
        let writer = tokio::spawn(Arc::clone(&outbox).write_to(write_half));
        let reads = self.to_self.clone();
        let reader = tokio::spawn(read_node(read_half, number, session.rest, reads));
        let now = Instant::now();
        let behind = Behind {
            outbox,
            writer,
            reader,
            partial: Vec::new(),
            keep_alive: Duration::from_secs(u64::from(session.keep_alive.max(1))),
            last_sent: now,
            last_ping: now,
            last_heard: now,
            address: session.address,
        };
        self.behind.insert(number, behind);
    }

    fn on_look(&mut self, client_is_full: bool, reads_client: bool) -> Option<End> {
        let now = Instant::now();
        if let Some(keep_alive) = self.keep_alive {
            // A client that is not read from because of the nodes does not count as silent.
            if !reads_client && !client_is_full {
                self.last_heard = now;
            } else if now - self.last_heard > keep_alive * 3 / 2 {
                self.split.end(ReasonCode::KeepAliveTimeout);
                return self.perform().map(|_| End::Client);
            }
        }
        for (number, behind) in &mut self.behind {
            let limit = behind.keep_alive / 2;
            let is_silent = now - behind.last_sent > limit || now - behind.last_heard > limit;
            if is_silent && now - behind.last_ping > limit / 2 {
                (behind.last_sent, behind.last_ping) = (now, now);
                behind.outbox.push(&[0xC0, 0]);
            }
            if client_is_full {
                // Reads of the nodes are paused now, so none counts as silent.
                behind.last_heard = now;
            } else if now - behind.last_heard > behind.keep_alive * 2 {
                return Some(End::Node(*number));
            }
        }
        if now >= self.renew_at
            && self.asking.is_none()
            && self.renewing.is_none()
            && !self.control.urls.is_empty()
        {
            self.renew_at = now + RENEW;
            self.denied.clear();
            let names = self.allowed_names(&Names::default());
            if names != Names::default() {
                self.renewing = Some(self.spawn_ask(names));
            }
        }
        None
    }

    fn on_renewed(&mut self, answer: Asked) {
        self.renewing = None;
        // The sessions in the answer change nothing: names keep theirs.
        if let Err(problem) = self.placed(answer) {
            let client_id = &self.template.client_id;
            tracing::warn!(client_id, problem, "placement not renewed");
            self.renew_at = Instant::now() + ASK_AGAIN;
        }
    }

    async fn close(mut self, end: &End) {
        if let End::Node(number) = end {
            tracing::warn!(
                client_id = self.template.client_id,
                session = number,
                "lost its node"
            );
            self.split.end(ReasonCode::ServerShuttingDown);
            self.perform();
        }
        self.client_reader.abort();
        self.client.end();
        drop(self.from_nodes);
        let mut tasks = vec![self.client_writer];
        for behind in self.behind.into_values() {
            behind.outbox.end();
            tasks.extend([behind.writer, behind.reader]);
        }
        await_all(tasks).await;
        if self.keeps_session {
            self.remembered.memory = self.split.into_memory();
            self.remembered.is_known = true;
        } else {
            self.remembered.is_known = false;
            self.shared.memories.forget(&self.key, &self.place);
        }
    }
}

/// Waits a while for tasks to end by themselves.
async fn await_all(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    let deadline = Instant::now() + LAST_WORDS;
    for mut task in tasks {
        if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn answer_of(asked: Option<&mut JoinHandle<Asked>>) -> Asked {
    match asked {
        Some(asked) => asked.await.unwrap_or(None),
        None => pending().await,
    }
}

async fn read_client(mut socket: OwnedReadHalf, reads: mpsc::Sender<Read>) {
    loop {
        let read = read_one(&mut socket).await;
        let is_end = read.is_none();
        if reads.send(read).await.is_err() || is_end {
            return;
        }
    }
}

async fn read_node(
    mut socket: OwnedReadHalf,
    number: usize,
    rest: Vec<u8>,
    reads: mpsc::Sender<(usize, Read)>,
) {
    let mut read = Some(rest).filter(|rest| !rest.is_empty());
    loop {
        if read.is_none() {
            read = read_one(&mut socket).await;
        }
        let is_end = read.is_none();
        if reads.send((number, read.take())).await.is_err() {
            // Nothing is forwarded any more, but closing a socket with unread bytes resets it, and a DISCONNECT to the node would be lost.
            while read_one(&mut socket).await.is_some() {}
            return;
        }
        if is_end {
            return;
        }
    }
}

async fn read_one(socket: &mut OwnedReadHalf) -> Read {
    let mut bytes = Vec::with_capacity(READ);
    match socket.read_buf(&mut bytes).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(bytes),
    }
}
