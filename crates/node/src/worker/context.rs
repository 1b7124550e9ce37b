//! What every part of a worker works with: who this worker is, its connections and sessions, what is stored, and what leaves.
//!
//! Each part of the worker has state that only it writes, and is given the context with each call. It sends [packets to clients](Context::send),
//! [messages to the hub](Context::send_to_hub) and [to other workers](Context::send_to_worker), and [log events](Context::event).

use std::{cell::Cell, collections::VecDeque, rc::Rc, sync::Arc};

use thicket_overlay::{NodeId, NodeSlot, StreamId};
use thicket_session::{
    server::{Epoch, MessageStream},
    time::Instant,
};

use super::state::{
    arrivals::Arrivals,
    barriers::Barriers,
    batches::Batches,
    connection::Connection,
    connections::Connections,
    debts::{Debts, SharedDebt},
    divergence::WorkerOfNode,
    drain::Drain,
    drops::Drops,
    effort::Effort,
    gates::Gates,
    grant_ends::GrantEnds,
    interests::Interests,
    journal::Journal,
    outgoing::Scratch,
    packet_trace::PacketTrace,
    replica::{
        hold::hold,
        stream::{Level, Release},
    },
    sessions::{Session, SessionKey, Sessions},
    timers::Timers,
};
use crate::{
    ConnectionId, Event, EventLevel, Observed, Traffic, WorkerConfig, WorkerId, WorkerOutput,
    messages::{Cluster, HubMessage, Origin, SessionState, ToHub, ToWorker, WorkerMessage},
    random::Random,
};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Context {
    pub id: WorkerId,
    pub config: WorkerConfig,
    pub random: Random,

    /// The cluster, as the hub has sent it.
    pub cluster: Arc<Cluster>,
    /// How far the node is drained.
    pub drain: Drain,
    /// The shell stops: what leaves in this round is the last.
    pub is_stopping: bool,
    /// Memory is short: the number of sessions when that began.
    pub short_since: Option<usize>,

    pub connections: Connections,
    pub sessions: Sessions,
    /// Some session has, or had, rights: while none has, they are not checked.
    pub have_rights: bool,
    /// What clients may publish in a second has a bound at some listener.
    pub has_rates: bool,
    pub interests: Interests,
    /// What was received from whom.
    pub arrivals: Arrivals,
    /// What publishers are owed.
    pub debts: Debts,
    /// What is to be stored, here and on backups.
    pub journal: Journal,

    pub timers: Timers,
    pub grant_ends: GrantEnds,
    pub barriers: Barriers,
    /// Changes of interests that others have not all applied, and what waits for that.
    pub gates: Gates,

    /// Packets of the message that is being delivered.
    pub scratch: Scratch,
    /// What was done in this round, and what is left for the next.
    pub effort: Effort,
    /// Records for other workers and nodes, gathered in this round.
    pub batches: Batches,
    pub outputs: VecDeque<WorkerOutput>,
    pub traffic: Traffic,
    /// For the log.
    pub drops: Drops,
    /// What the shell observes; the filters are with the interests.
    pub observed: Observed,
    /// When connections last gave up what they held, as memory is short.
    pub gave_up_at: Instant,
    /// Packets that an operator watches.
    pub packet_trace: Option<PacketTrace>,
    /// Connections and sessions that there have been.
    serials: u64,
    /// Messages that have a number only because sessions here accepted them.
    pub unsent: u64,
}

impl Context {
    pub fn new(id: WorkerId, config: WorkerConfig, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sessions = Sessions::new(random.next_u64(), &config.tenants);
        let interests = Interests::new(random.next_u64(), config.limits.topic_levels);
        Self {
            id,
            random,
            cluster: Arc::new(Cluster::new(config.incarnation)),
            drain: Drain::default(),
            is_stopping: false,
            short_since: None,
            connections: Connections::default(),
            sessions,
            have_rights: false,
            has_rates: (config.listeners.iter())
                .any(|it| it.client_messages_per_s > 0 || it.client_bytes_per_s > 0),
            interests,
            arrivals: Arrivals::default(),
            debts: Debts::new(),
            journal: Journal::new(id.0, config.stores),
            timers: Timers::default(),
            grant_ends: GrantEnds::default(),
            barriers: Barriers::default(),
            gates: Gates::default(),
            scratch: Scratch::default(),
            effort: Effort::default(),
            batches: Batches::new(config.workers),
            outputs: VecDeque::new(),
            traffic: Traffic::default(),
            drops: Drops::default(),
            observed: Observed::default(),
            gave_up_at: Instant::default(),
            packet_trace: None,
            serials: 0,
            unsent: 0,
            config,
        }
    }

    /// Whether another node is up.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.cluster.up.iter().any(|up| up.node == node)
    }

    pub fn is_slot_up(&self, slot: NodeSlot) -> bool {
        self.cluster.up.iter().any(|up| up.slot == slot)
    }

    /// The session of a connection in service.
    pub fn session_at(&self, id: ConnectionId) -> Option<&Session> {
        self.sessions.get(self.connections.session_of(id)?)
    }

    /// How many nodes are to have all of a session: `backups`, or all that are up if these are fewer (rule 6).
    pub fn wanted_backups(&self) -> usize {
        wanted_backups(&self.config, &self.cluster)
    }

    /// The node is drained: it accepts no clients.
    pub const fn is_draining(&self) -> bool {
        self.drain.step.is_some()
    }

    /// The origin of the records of this worker.
    pub fn origin(&self) -> Origin {
        Origin {
            node: self.config.node,
            incarnation: self.config.incarnation,
            stream: StreamId(u16::from(self.id.0)),
        }
    }

    /// The stream of what clients of this worker publish.
    pub const fn own_stream(&self) -> MessageStream {
        MessageStream {
            node: self.config.node.0,
            incarnation: self.config.incarnation.0,
            stream: self.id.0,
        }
    }

    /// This worker, among those of all nodes.
    pub const fn worker_of_node(&self) -> WorkerOfNode {
        (self.config.node, self.id.0)
    }

    /// For another connection or session; never repeated.
    pub const fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    pub fn send_to_hub(&mut self, content: ToHub) {
        self.outputs
            .push_back(WorkerOutput::HubMessage(HubMessage(content)));
    }

    /// Sends the hub something that it must receive after the records of this round.
    pub fn send_to_hub_after_records(&mut self, content: ToHub) {
        self.seal_records();
        self.send_to_hub(content);
    }

    pub fn send_to_worker(&mut self, to: WorkerId, content: ToWorker) {
        let message = WorkerMessage(content);
        self.outputs
            .push_back(WorkerOutput::WorkerMessage { to, message });
    }

    /// Sends another worker something that it must receive after the records of this round.
    pub fn send_to_worker_after_records(&mut self, to: WorkerId, content: ToWorker) {
        self.seal_records();
        self.send_to_worker(to, content);
    }

    /// Sends a message to each of the other workers.
    pub fn send_to_workers(&mut self, content: impl Fn() -> ToWorker) {
        for worker in (0..self.config.workers).map(WorkerId) {
            if worker != self.id {
                self.send_to_worker(worker, content());
            }
        }
    }

    /// The records gathered in this round become messages.
    pub fn seal_records(&mut self) {
        let origin = self.origin();
        self.batches.seal(origin, &mut self.outputs);
    }

    pub fn event(
        &mut self,
        level: EventLevel,
        message: &'static str,
        fields: Vec<(&'static str, String)>,
    ) {
        self.outputs.push_back(WorkerOutput::Event(Event {
            level,
            message,
            fields,
        }));
    }

    /// Says what was dropped, in a line a second at most for each reason.
    pub fn report_drops(&mut self, now: Instant) {
        if self.drops.is_empty() {
            return;
        }
        for fields in self.drops.due(now) {
            self.event(
                EventLevel::Warn,
                "acknowledged messages are dropped",
                fields,
            );
        }
    }

    /// Reports the state of a session to the hub.
    pub fn report_session(&mut self, client_id: &str, state: SessionState) {
        let key = self.sessions.find(client_id);
        let session = key.and_then(|key| self.sessions.get(key));
        let epoch = session.map_or(Epoch::NONE, |session| session.epoch);
        let client_id = client_id.into();
        self.send_to_hub(ToHub::Session {
            client_id,
            state,
            epoch,
        });
    }

    /// Orders the shell to read from a connection, or not to. One that a drain has stopped stays so.
    pub fn set_reading(&mut self, id: ConnectionId, is_read: bool) {
        let connection = self.connections.get(id);
        let is_stopped =
            |connection: &Connection| self.drain.stopped.contains(&(id, connection.serial));
        if is_read && connection.is_some_and(is_stopped) {
            return;
        }
        let order = WorkerOutput::SetReading(id, is_read);
        self.outputs.push_back(order);
    }

    /// See [`hold`].
    pub fn hold_output(&mut self, id: ConnectionId, key: SessionKey) {
        self.hold_output_until(id, key, Level::Applied);
    }

    /// See [`hold`].
    pub fn hold_output_until(&mut self, id: ConnectionId, key: SessionKey, level: Level) {
        if !self.config.waits_for_backups || self.journal.streams.is_empty() {
            return;
        }
        let Some(stored) = self.sessions.get(key).map(|session| session.stored) else {
            return;
        };
        self.journal.write_done();
        if let Some(connection) = self.connections.get_mut(id) {
            hold(&mut self.journal.streams, connection, id, stored, level);
        }
    }

    /// What is owed waits until the nodes of all these streams, one or more, have applied what was written so far: one condition becomes as many as
    /// there are streams.
    pub fn wait_for_streams(&mut self, streams: &[u8], (debt, open): SharedDebt) {
        let more = streams.len() as u32 - 1;
        let open = match open {
            Some(open) => {
                open.set(open.get() + more);
                Some(open)
            }
            None => (more > 0).then(|| Rc::new(Cell::new(more + 1))),
        };
        for index in streams {
            match self.journal.streams.get_mut(*index) {
                Some(stream) => stream.wait(Level::Applied, Release::Debt((debt, open.clone()))),
                None => self.debts.meet((debt, open.clone())),
            }
        }
    }

    /// The stream to a node, begun if there is none; `None`: there are too many.
    pub fn stream_to(&mut self, node: NodeId) -> Option<u8> {
        let random = &mut self.random;
        let streams = &mut self.journal.streams;
        streams.find_or_begin(node, || random.next_u64())
    }
}

/// See [`Context::wanted_backups`].
pub(super) fn wanted_backups(config: &WorkerConfig, cluster: &Cluster) -> usize {
    usize::from(config.backups).min(cluster.up.len())
}
