//! What the workers of a node tell its hub.

use std::sync::Arc;

use thicket_overlay::NodeId;
use thicket_session::{server::Epoch, topic::TopicFilter};

use super::{
    BackupReport, Claim, ClientHabits, Fetched, ForwardEntry, InterestChange, Movable, NumberRuns,
    Origin, PlaceAsked, ReplicationStream, SessionState, TopicRate,
};

/// From a worker to the hub of its node.
#[derive(Debug)]
pub(crate) enum ToHub {
    /// Messages for other nodes, or to be retained.
    Forward {
        records: Vec<u8>,
        entries: Vec<ForwardEntry>,
    },
    /// These numbers of another node's stream are admitted here.
    Admitted { origin: Origin, numbers: NumberRuns },
    /// There is no room here for these numbers of another node's stream.
    NotAdmitted { origin: Origin, numbers: NumberRuns },
    /// What the worker wants has changed.
    Interest {
        sequence: u64,
        changes: Vec<InterestChange>,
    },
    /// `Peers` of this sequence are applied.
    PeersApplied { sequence: u64 },
    /// The next retained messages for a filter; `begin_at`: the first ones, of those kept when `InterestSettled` said so.
    RetainedQuery {
        query: u64,
        filter: TopicFilter,
        begin_at: Option<u64>,
    },
    /// No more retained messages are wanted.
    RetainedCancel { query: u64 },
    /// Each persistent session with subscriptions has its backups, each at one of these sets of nodes; or one has none.
    Covered(Option<Vec<Vec<NodeId>>>),
    /// A client has connected: where is its session?
    Claim(Claim),
    /// The connection that was granted is in service, which `Session` said before, or has gone.
    GrantDone { client_id: Arc<str> },
    /// What became of a session whose home the worker is.
    Session {
        client_id: Arc<str>,
        state: SessionState,
        /// Of the session.
        epoch: Epoch,
    },
    /// The answer to `Fetch`.
    Fetched { request: u64, answer: Fetched },
    /// The queue of a branch.
    Drained { request: u64, queue: Vec<u8> },
    /// The interests of what was imported are settled.
    Imported { request: u64 },
    /// A backup became the session, with this epoch: its primary handed it over, or, `is_beside`, has it too.
    TakenOver {
        client_id: Arc<str>,
        epoch: Epoch,
        is_beside: bool,
    },
    /// This node handed a session over that another one has here, which stays.
    NotTakenOver { client_id: Arc<str>, from: NodeId },
    /// A session that was to be evicted has something that is nowhere else.
    Contested { client_id: Arc<str> },
    /// The session of the connection is to live on another worker.
    Relocate { client_id: Arc<str>, serial: u64 },
    /// A session that was to live on another worker is here, or was not handed over.
    Relocated { client_id: Arc<str> },
    /// The next record of this worker's replication stream to another node.
    Replicate {
        to: NodeId,
        /// See [`ReplicationStream::id`].
        stream: u64,
        position: u64,
        record: Vec<u8>,
    },
    /// To the primaries at another node, whose stream it is.
    BackupReport {
        to: NodeId,
        stream: ReplicationStream,
        report: BackupReport,
    },
    /// Tell when all that is on its way to this worker has come.
    Barrier { barrier: u64 },
    /// The backups of a node's sessions are promoted.
    Promoted { node: NodeId },
    /// Which node would be better for a topic of a client? Answered before what is told later is.
    PlaceAsked(PlaceAsked),
    /// The answer to `TopicRatesAsked`.
    TopicRates(Vec<TopicRate>),
    /// The answer to `MovableAsked`.
    Movable(Vec<Movable>),
    /// The answer to `HabitsAsked`; `next`: there are more.
    Habits {
        asker: NodeId,
        round: u64,
        next: Option<u32>,
        clients: Vec<ClientHabits>,
    },
}
