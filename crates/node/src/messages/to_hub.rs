//! Messages of the workers of a node to its hub.

use std::sync::Arc;

use thicket_overlay::NodeId;
use thicket_session::server::Epoch;

use super::{
    BackupReport, BetterNodeRequest, Claim, ClientActivity, Fetched, ForwardEntry, InterestChange,
    Movable, NumberRuns, Origin, RefusedBy, Relocation, ReplicationStream, RetainedQuery,
    SessionState, TopicRate,
};
use crate::WorkerId;

/// A message for the hub. Opaque to the shell, which only carries it, in order for each pair of sender and receiver.
#[derive(Debug)]
pub struct HubMessage(pub(crate) ToHub);

/// From a worker to the hub of its node.
#[derive(Debug)]
pub(crate) enum ToHub {
    /// The worker stood still, and accepts nothing until it is sent the cluster.
    StoodStill,
    /// Messages for other nodes, or to be retained.
    Forward {
        records: Vec<u8>,
        entries: Vec<ForwardEntry>,
    },
    /// The worker has processed this many bytes of the records that it was handed.
    Processed { bytes: u64 },
    /// These numbers of another node's stream are admitted here.
    Admitted { origin: Origin, numbers: NumberRuns },
    /// These numbers of another node's stream are over the limit here.
    Refused {
        origin: Origin,
        by: RefusedBy,
        numbers: NumberRuns,
    },
    /// The interests of the worker have changed.
    Interest {
        sequence: u64,
        changes: Vec<InterestChange>,
    },
    /// `Peers` of this sequence are applied.
    PeersApplied { sequence: u64 },
    /// The next retained messages for a new subscription.
    RetainedQuery(RetainedQuery),
    /// Each persistent session with subscriptions has its backups, each at one of these sets of nodes; or one has none.
    Covered(Option<Vec<Vec<NodeId>>>),
    /// A client has connected: where is its session?
    Claim(Claim),
    /// What was granted for a client identifier is done. A claim: the connection is in service, as reported by `Session` before, or has gone. A
    /// relocation: the session is here now, or stays.
    GrantDone { client_id: Arc<str> },
    /// The state of a session of the worker.
    Session {
        client_id: Arc<str>,
        state: SessionState,
        /// Of the session.
        epoch: Epoch,
    },
    /// The answer to `Fetch`.
    Fetched { request: u64, answer: Fetched },
    /// The interests of what was imported are settled; or the queue has been merged.
    Imported { request: u64 },
    /// This node did not take over a session from `from`, because a session here stays. Or it did not merge the branch of `from`, because the
    /// session here has ended or was handed over.
    HandoverRefused { client_id: Arc<str>, from: NodeId },
    /// The connection is wanted here, with its session; `from`: the worker that offers it.
    Relocate {
        from: WorkerId,
        relocation: Relocation,
    },
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
    /// Report when all that is on its way to this worker has arrived.
    Barrier { barrier: u64 },
    /// The backups of a node's sessions are promoted.
    Promoted { node: NodeId },
    /// Which node would be better for a topic of a client? Answered before later messages are.
    BetterNodeRequest(BetterNodeRequest),
    /// The topics with most messages since the last report.
    TopicRates(Vec<TopicRate>),
    /// The answer to `MovableAsked`.
    Movable(Vec<Movable>),
    /// The answer to `ActivityRequested`; `next`: there are more.
    Activity {
        asker: NodeId,
        round: u64,
        next: Option<u32>,
        clients: Vec<ClientActivity>,
    },
}
