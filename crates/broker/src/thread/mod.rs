//! One thread of the node: rounds over its sockets, its worker and, on thread 0, the hub.
//!
//! A round is one return of the readiness poll: all inputs are handed in (`input`), all outputs are performed, and every connection with something to
//! send is flushed once (`output`).

mod deadlines;
mod input;
mod lingering;
mod output;
mod publishing;
mod tenants;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::{Events, Poll, Token};
use thicket_node::{
    ConnectionId, Hub, HubConfig, HubInput, ListenerId, Now, Observed, RebalanceTask, Verdict,
    Worker, WorkerConfig, WorkerId, WorkerInput,
};
use thicket_session::time::Instant;

use crate::aside::Aside;
use crate::authenticator::{Authenticator, Request};
use crate::clock::Clock;
use crate::counters::Counters;
use crate::dials::{Dial, Dials};
use crate::flapping::Flapping;
use crate::hooks::Hooks;
use crate::links::Links;
use crate::listener::Listener;
use crate::mailbox::{Letter, Mailbox, Outgoing, PlacementAnswer, PublishAnswer, Summary};
use crate::sockets::{Owner, Sockets};
use crate::storage::{RecoveryError, WorkerStorage};
use crate::traces::{TracePlan, Traces};
use deadlines::Deadlines;
use lingering::Lingering;
use publishing::Publishers;
pub(crate) use tenants::TenantCount;
use tenants::Tenants;

/// The token of the mailbox.
pub(crate) const MAILBOX: Token = Token(0);
/// One read asks for this much: enough for thousands of small messages, little enough to stay in the cache.
const READ_BUFFER: usize = 128 * 1024;
/// Readiness events taken from the kernel in one round.
const EVENTS: usize = 1024;
/// After a stop, time for the DISCONNECTs to be sent.
const GOODBYE: Duration = Duration::from_secs(2);

/// The parts of a thread. They move to the new thread, which creates worker and hub there: these never leave it.
pub(crate) struct Parts {
    pub(crate) id: WorkerId,
    pub(crate) clock: Clock,
    pub(crate) poll: Poll,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) outgoing: Outgoing,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) worker: (WorkerConfig, u64),
    /// On thread 0. The number is a seed.
    pub(crate) hub: Option<(HubConfig, u64)>,
    pub(crate) authenticator: Authenticator,
    /// Finds the addresses of HOST:PORT.
    pub(crate) resolver: Aside<String>,
    /// Makes plans of the rebalancer.
    pub(crate) planner: Aside<Box<RebalanceTask>>,
    /// The protection of links; `None`: they are plain.
    pub(crate) links: Option<Arc<Links>>,
    pub(crate) counters: Arc<Counters>,
    /// What each tenant uses.
    pub(crate) tenants: Arc<[TenantCount]>,
    /// The receivers of events.
    pub(crate) hooks: Arc<Hooks>,
    /// `None`: tracing is off.
    pub(crate) traces: Option<TracePlan>,
    pub(crate) flapping: Arc<Flapping>,
    /// Receives a report when the thread's clients are gone after `StopWorker`.
    pub(crate) stopped: Sender<WorkerId>,
    /// The storage of the thread.
    pub(crate) storage: Option<WorkerStorage>,
    /// Receives one report: that stored data is recovered and interests are replicated to all threads, or why not.
    pub(crate) recovered: Sender<Result<(), RecoveryError>>,
}

impl Parts {
    /// Registers the listeners with the thread's poll.
    pub(crate) fn register_listeners(&mut self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            listener.register(self.poll.registry(), Token(MAILBOX.0 + 1 + index))?;
        }
        Ok(())
    }
}

/// One thread of the node.
pub(crate) struct Thread {
    id: WorkerId,
    clock: Clock,
    poll: Poll,
    mailbox: Arc<Mailbox>,
    outgoing: Outgoing,
    listeners: Vec<Listener>,
    /// The listeners until `Serve`.
    waiting_listeners: Vec<Listener>,
    /// Receives one report that the thread is ready.
    recovered: Option<Sender<Result<(), RecoveryError>>>,
    publishers: Publishers,
    tenants: Tenants,
    /// Tokens kept for listeners, also after they are closed.
    listener_tokens: usize,
    sockets: Sockets,
    dials: Dials,
    /// Connections whose PROXY header is not complete: their listener and the peer.
    prefaces: Deadlines<(ListenerId, SocketAddr)>,
    lingering: Lingering,
    /// Connections above their limit that have not proved yet that they are links, with their serials; the oldest first.
    expected_links: VecDeque<(ConnectionId, u32)>,
    worker: Worker,
    hub: Option<Hub>,
    authenticator: Authenticator,
    /// The requests of connections that wait for a verdict; they go with the connection.
    asking: HashMap<ConnectionId, Arc<Request>>,
    resolver: Aside<String>,
    planner: Aside<Box<RebalanceTask>>,
    links: Option<Arc<Links>>,
    counters: Arc<Counters>,
    hooks: Arc<Hooks>,
    traces: Option<Traces>,
    flapping: Arc<Flapping>,
    stopped: Sender<WorkerId>,
    storage: Option<WorkerStorage>,
    phase: Phase,
    round_began: std::time::Instant,
    /// Shared by all reads of the thread, so that an idle connection owns no buffer.
    buffer: Box<[u8]>,
    letters: Vec<Letter>,
    to_flush: Vec<ConnectionId>,
    /// The worker's last summary of its clients.
    summary: Summary,
    /// On thread 0: the last summary of each worker.
    summaries: Vec<Summary>,
    /// Verdicts known at once, handed in when the worker's outputs are drained.
    verdicts: Vec<(ConnectionId, Verdict)>,
    /// Connections that wait for a verdict and whose end may have arrived, handed in when the worker's outputs are drained.
    ends_due: Vec<ConnectionId>,
    /// Dials ordered, begun when the hub's outputs are drained: one that fails at once is an input.
    dials_due: Vec<Dial>,
    /// The recipients of placements, by number.
    placements: HashMap<u64, PlacementAnswer>,
    next_placement: u64,
    /// The recipients of publication results, by number.
    publications: HashMap<u64, PublishAnswer>,
    next_publication: u64,
    /// Why the node must end.
    problem: Option<String>,
}

/// The phase of a thread, from running to stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Serving.
    Running,
    /// The worker has sent its DISCONNECTs; its connections are closing, until then at the latest.
    WorkerStopping(Instant),
    /// The clients are gone. The hub, if there is one, still runs.
    WorkerStopped,
    /// Nothing is left to do.
    Done,
}

impl Thread {
    /// Must be called on the thread itself. Worker and hub start from the stored data.
    ///
    /// # Errors
    /// [`RecoveryError`]: the stored data cannot be read, and the node must not start.
    pub(crate) fn new(mut parts: Parts) -> Result<Self, RecoveryError> {
        let (worker, worker_seed) = parts.worker;
        let workers = usize::from(worker.workers);
        let now = parts.clock.now();
        let mut hub = parts.hub.map(|(config, seed)| Hub::new(config, now, seed));
        let prefaces = Deadlines::new(worker.limits.connect_timeout);
        let mut machine = Worker::new(parts.id, worker, worker_seed);
        if let Some(storage) = &mut parts.storage {
            storage.recover(now, &mut machine, hub.as_mut())?;
        }
        let traces = parts.traces.as_ref().map(|plan| plan.tracing);
        let observed = parts.hooks.observed();
        if observed.is_some() || traces.is_some() {
            let observed = observed.unwrap_or_default();
            machine
                .operate(now)
                .observe(Observed { traces, ..observed });
        }
        Ok(Self {
            id: parts.id,
            clock: parts.clock,
            poll: parts.poll,
            mailbox: parts.mailbox,
            outgoing: parts.outgoing,
            publishers: Publishers::new(&parts.listeners),
            tenants: Tenants::new(parts.tenants),
            listener_tokens: parts.listeners.len(),
            listeners: Vec::new(),
            waiting_listeners: parts.listeners,
            recovered: Some(parts.recovered),
            sockets: Sockets::default(),
            dials: Dials::default(),
            prefaces,
            lingering: Lingering::new(),
            expected_links: VecDeque::new(),
            worker: machine,
            hub,
            authenticator: parts.authenticator,
            asking: HashMap::new(),
            resolver: parts.resolver,
            planner: parts.planner,
            links: parts.links,
            counters: parts.counters,
            hooks: parts.hooks,
            traces: parts.traces.map(|plan| Traces::new(plan, parts.id)),
            round_began: std::time::Instant::now(),
            flapping: parts.flapping,
            stopped: parts.stopped,
            storage: parts.storage,
            phase: Phase::Running,
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            letters: Vec::new(),
            to_flush: Vec::new(),
            summary: Summary::default(),
            summaries: vec![Summary::default(); workers],
            verdicts: Vec::new(),
            ends_due: Vec::new(),
            dials_due: Vec::new(),
            placements: HashMap::new(),
            next_placement: 0,
            publications: HashMap::new(),
            next_publication: 0,
            problem: None,
        })
    }

    /// Runs rounds until the node stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut unfinished = true;
        let mut now = self.clock.now();
        while self.phase != Phase::Done {
            let timeout = if unfinished {
                Some(Duration::ZERO)
            } else {
                self.time_to_sleep(now.instant)
            };
            let is_awake = timeout == Some(Duration::ZERO) || !self.mailbox.fall_asleep();
            let timeout = if is_awake {
                Some(Duration::ZERO)
            } else {
                timeout
            };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                result => result?,
            }
            now = self.clock.now_after(now);
            let began = std::time::Instant::now();
            self.round_began = began;
            let delivered = self.worker.view().delivered();
            self.tick_storage(now).map_err(io::Error::other)?;
            self.publishers.allow(&mut self.worker, now);
            self.tenants.limit(&mut self.worker, now);
            self.take_in(now, &events);
            unfinished = self.carry_out(now)?;
            self.publishers.count(&self.worker, now.instant);
            self.note_round(began.elapsed(), delivered);
            if let Some(problem) = self.problem.take() {
                return Err(io::Error::other(problem));
            }
            self.report_ready();
            self.advance_stop(now);
        }
        if let Some(storage) = &mut self.storage {
            storage.close();
        }
        Ok(())
    }

    /// What arrives in a round leaves at its end: so its length is the time that each of its messages took here.
    fn note_round(&self, took: Duration, delivered: u64) {
        self.counters.rounds.add(took, 1);
        let delivered = self.worker.view().delivered() - delivered;
        if delivered > 0 {
            self.counters.deliveries.add(took, delivered);
        }
    }

    /// Reports that this thread may serve: its data is recovered, and its interests are replicated to all threads.
    fn report_ready(&mut self) {
        if self.worker.view().is_settled()
            && let Some(recovered) = self.recovered.take()
        {
            // Fails if another thread could not recover: then the receiver is gone.
            let _ = recovered.send(Ok(()));
        }
    }

    /// Time from `now`, when the round began, until something is due without an event of the kernel; `None`: nothing is. The sleep ends late by the
    /// length of the round at most, and rounds before a sleep are short: reading the clock again would cost more.
    fn time_to_sleep(&self, now: Instant) -> Option<Duration> {
        if self.sockets.has_work() {
            return Some(Duration::ZERO);
        }
        let mut next = self.worker.poll_timeout();
        let mut note = |deadline: Option<Instant>| next = earliest(next, deadline);
        note(self.hub.as_ref().and_then(Hub::poll_timeout));
        note(self.dials.next_deadline());
        note(self.prefaces.next_deadline());
        note(self.lingering.next_deadline());
        note(self.storage.as_ref().map(WorkerStorage::next_tick));
        for listener in &self.listeners {
            note(listener.wake_at(now));
        }
        if let Phase::WorkerStopping(deadline) = self.phase {
            note(Some(deadline));
        }
        Some(next?.since(now))
    }

    /// Hands in timeouts that are due.
    fn take_timeouts(&mut self, now: Now) {
        if self
            .worker
            .poll_timeout()
            .is_some_and(|at| at <= now.instant)
        {
            self.worker.handle_input(now, WorkerInput::Timeout);
        }
        if let Some(hub) = &mut self.hub
            && hub.is_due(now.instant)
        {
            hub.handle_input(now, HubInput::Timeout);
        }
        while let Some(connection) = self.dials.next_late(now.instant) {
            self.fail_dial(now, connection, &io::Error::from(io::ErrorKind::TimedOut));
        }
        while let Some(connection) = self.prefaces.next_late(now.instant) {
            self.fail_preface(connection, &io::Error::from(io::ErrorKind::TimedOut));
        }
        while let Some(connection) = self.lingering.next_due(now.instant) {
            self.end_lingering(connection);
        }
    }

    /// Closes the listeners; the worker disconnects its clients.
    fn stop_worker(&mut self, now: Now) {
        self.listeners.clear();
        self.waiting_listeners.clear();
        self.worker.shut_down(now);
        self.phase = Phase::WorkerStopping(now.instant + GOODBYE);
    }

    /// The hub closes its links. It is the last thing this thread does.
    fn stop_hub(&mut self, now: Now) {
        if let Some(hub) = &mut self.hub {
            hub.shut_down(now);
        }
        if let Err(error) = self.carry_out(now) {
            tracing::error!(%error, "the last round of a thread failed");
        }
        self.phase = Phase::Done;
    }

    fn advance_stop(&mut self, now: Now) {
        let Phase::WorkerStopping(deadline) = self.phase else {
            return;
        };
        if self.sockets.count(Owner::Worker) > 0 && now.instant < deadline {
            return;
        }
        self.phase = if self.hub.is_some() {
            Phase::WorkerStopped
        } else {
            Phase::Done
        };
        // The receiver is gone if the node was dropped without waiting.
        let _ = self.stopped.send(self.id);
    }
}

/// The earlier of two deadlines.
fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
