//! The worker: connections and sessions of one thread.
//!
//! One input is everything read from one connection. Each PUBLISH in it is parsed once, matched once (or found in the cache), and its bytes are
//! appended to the out-buffers of the recipients here and to the batches for the other workers and the hub. At the end of a round the batches become
//! messages, and each connection that has something to send is named once.
//!
//! Files use only what is below them:
//!
//! | layer | files |
//! | --- | --- |
//! | the worker | methods of [`Worker`], which involve several parts: how a CONNECT is served, how a connection and its session end, the way of a PUBLISH, failover and switchover |
//! | parts, with state of their own | the table below |
//! | functions that are given the context alone | `deliver`, `forward`, `rights`, `capacity` and others |
//! | [`context`] | passed to all of them |
//! | [`state`] | what it is made of: connections, sessions, interests, what is to be stored, what leaves |
//!
//! | part | has |
//! | --- | --- |
//! | `replication::Primaries` | backups of the sessions whose primary is here; wills being published |
//! | `replication::Sources` | backups here of sessions whose primaries are on other nodes |
//! | `groups` | messages of shared subscriptions that are on their way to other nodes, or have no member |
//! | `retained`, `system` | retained messages and `$SYS` values on their way to new subscriptions |
//! | `relocate` | connections that move to other workers |
//! | `checkpoint`, `recover` | what the log needs to keep; what was read from it at the start |
//! | `transfer`, `publications` | sessions and messages that operators bring |
//! | `quota` | what users and addresses use of their quotas |
//! | `trace`, `rates` | spans of messages; how often is published to which topics |

mod acknowledge;
mod activity;
mod arrivals;
mod attach;
mod authentication;
mod banned;
mod barriers;
mod better_nodes;
mod branches;
mod budget;
mod capacity;
mod checkpoint;
mod clients;
mod close;
mod connect;
mod context;
mod deliver;
mod dispatch;
mod drain;
mod effort;
mod expiry;
mod forward;
mod groups;
mod hints;
mod journal;
mod listeners;
mod merge;
mod minority;
mod observe;
mod operate;
mod operator_publish;
mod packet_trace;
mod pause;
mod placing;
mod portions;
mod publications;
mod publish;
mod quota;
mod rates;
mod receive;
mod recording;
mod recover;
mod redirect;
mod refusal;
mod relocate;
mod relocated;
mod replication;
mod report;
mod retained;
mod rights;
mod scarcity;
mod send;
mod state;
mod subscribe;
mod switchover;
mod system;
mod tenants;
mod timers;
mod trace;
mod traced;
mod transfer;
mod wills;

use thicket_session::time::Instant;

use self::{
    checkpoint::Checkpoints,
    context::Context,
    state::{connection::Connection, sessions::Session, timers::Timer},
};
use crate::{ConnectionId, Now, WorkerConfig, WorkerId, WorkerInput, WorkerOutput};

pub(crate) use self::state::relocated::Relocated;

/// Connections and sessions of one thread. See the module's documentation and [`WorkerInput`], [`WorkerOutput`].
#[derive(Debug)]
pub struct Worker {
    cx: Context,
    /// When it last did something.
    breath: Option<Instant>,
    system: system::System,
    transfers: state::transfers::Transfers,
    checkpoints: Checkpoints,
    /// What was read of an earlier start, until all of it is.
    recovery: Option<Box<recover::Recovery>>,
    publications: publications::Publications,
    /// Replication of the sessions whose primary is here.
    primaries: replication::Primaries,
    /// Backups of sessions whose primaries are on other nodes.
    sources: replication::Sources,
    /// Shared subscriptions whose messages are on their way to other nodes, or have no member.
    groups: groups::Groups,
    relocations: relocate::Relocations,
    /// What users and addresses use of their quotas.
    quotas: quota::Quotas,
    traces: trace::Traces,
    topic_counts: rates::TopicCounts,
}

/// What is known of a worker, its connections and sessions: for operators, metrics and the shell. Reading it changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct WorkerView<'a> {
    worker: &'a Worker,
}

/// What operators order, and the shell for the whole node.
#[derive(Debug)]
pub struct WorkerOperator<'a> {
    worker: &'a mut Worker,
    now: Now,
}

impl Worker {
    /// See [`WorkerView`].
    #[must_use]
    pub const fn view(&self) -> WorkerView<'_> {
        WorkerView { worker: self }
    }

    /// See [`WorkerOperator`].
    #[must_use]
    pub const fn operate(&mut self, now: Now) -> WorkerOperator<'_> {
        WorkerOperator { worker: self, now }
    }

    /// A worker without connections. `seed` comes from the operating system; all that is random here comes from it.
    #[must_use]
    pub fn new(id: WorkerId, config: WorkerConfig, seed: u64) -> Self {
        let checkpoints = Checkpoints::new(config.small_log_bytes);
        Self {
            cx: Context::new(id, config, seed),
            breath: None,
            system: system::System::default(),
            transfers: state::transfers::Transfers::default(),
            checkpoints,
            recovery: None,
            publications: publications::Publications::default(),
            primaries: replication::Primaries::default(),
            sources: replication::Sources::new(),
            groups: groups::Groups::default(),
            relocations: relocate::Relocations::default(),
            quotas: quota::Quotas::default(),
            traces: trace::Traces::default(),
            topic_counts: rates::TopicCounts::default(),
        }
    }

    /// The only way in.
    pub fn handle_input(&mut self, now: Now, input: WorkerInput<'_>) {
        self.note_time(now);
        self.end_grants(now);
        match input {
            WorkerInput::Accepted {
                connection,
                listener,
                peer,
            } => {
                let serial = self.cx.serial();
                self.cx.connections.insert(
                    connection,
                    Connection::new(serial, listener, peer, now.instant),
                );
                let at = now.instant + self.cx.config.limits.connect_timeout;
                self.cx
                    .timers
                    .set(at, Timer::Connect { connection, serial });
            }
            WorkerInput::Adopted { connection, state } => {
                self.handle_adopted(now, connection, *state)
            }
            WorkerInput::Received { connection, bytes } => {
                self.handle_received(now, connection, bytes)
            }
            WorkerInput::Closed { connection } => self.handle_closed(now, connection),
            WorkerInput::Message { from, message } => self.take_message(now, from, message),
            WorkerInput::Authenticated {
                connection,
                verdict,
            } => self.handle_verdict(now, connection, verdict),
            WorkerInput::Reloaded { policy } => self.handle_reloaded(now, &policy),
            WorkerInput::Timeout => self.handle_timeout(now),
        }
        self.settle_met(now);
    }

    /// Turns the batches of this round into messages and names the connections to flush. Once a round, after all inputs.
    pub fn end_round(&mut self, now: Now) {
        self.note_time(now);
        self.cx.effort.begin_round();
        // This may be the first that happens after the node stood still: nobody is answered whose grant has ended meanwhile.
        self.end_grants(now);
        self.settle_met(now);
        self.cx.pull_relieved(now);
        self.topic_counts.review(&mut self.cx, now);
        self.primaries.level_backups(&mut self.cx, now);
        self.promote_handed(now);
        self.end_superseded(now);
        self.primaries.covers.review(&mut self.cx, now);
        self.primaries.begin_misrouted_barrier(&mut self.cx);
        self.sources.acknowledge_backups(&mut self.cx);
        self.seal_backups(now);
        self.cx.report_drops(now.instant);
        self.cx.seal_records();
        self.relocations.hand_over_leaving(&mut self.cx, now);
        self.cx.connections.flush(&mut self.cx.outputs);
    }

    /// See [`crate::Egress`].
    pub(crate) fn poll_output(&mut self) -> Option<WorkerOutput> {
        self.cx.outputs.pop_front()
    }

    /// When `Timeout` is wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.checkpoints.is_under_way() || self.cx.has_left() {
            return Some(Instant::default());
        }
        let deadlines = [self.cx.timers.next(), self.next_breath()];
        deadlines.into_iter().flatten().min()
    }

    /// See [`crate::Egress`].
    pub(crate) fn pending_output(&self, connection: ConnectionId) -> &[u8] {
        self.cx
            .connections
            .get(connection)
            .map_or(&[], |state| state.out.pending())
    }

    /// The socket accepted the first `count` bytes of `pending_output`.
    pub fn handle_written(&mut self, connection: ConnectionId, count: usize) {
        let Self {
            cx, relocations, ..
        } = self;
        let limit = cx.config.limits.out_buffer_bytes as usize;
        let Some(state) = cx.connections.get_mut(connection) else {
            return;
        };
        let before = state.out.len();
        state.out.consume(count);
        let after = state.out.len();
        // The queue is no longer pulled while the buffer is full; half empty is soon enough to resume.
        let is_relieved = after == 0 || (before > limit / 2 && after <= limit / 2);
        let session = state.attached().map(|attached| attached.session);
        if let Some(key) = session.filter(|_| is_relieved)
            && cx.sessions.get(key).is_some_and(Session::has_more)
        {
            cx.connections.relieved.push(key);
        }
        if after == 0 {
            relocations.note_emptied();
        }
    }

    /// Whether another `end_round` has something to do after `handle_written` and `handle_stored`.
    #[must_use]
    pub fn wants_round(&self) -> bool {
        let (connections, debts) = (&self.cx.connections, &self.cx.debts);
        connections.want_round() || !debts.met.is_empty() || self.relocations.may_hand_over()
    }
}
