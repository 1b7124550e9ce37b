//! Messages to a worker: from the hub of its node, and from the other workers.

use std::sync::Arc;

use thicket_overlay::{NodeId, record::HybridTime};
use thicket_session::retained::RetainedCursor;

use super::{
    Absence, Adopted, BackupReport, BetterNodeRequest, ClaimGrant, ClaimRefusal, Cluster,
    InterestChange, Merge, NumberRuns, Origin, Place, Purpose, RefusedBy, Relocation,
    ReplicationStream, Way,
};
use crate::{ConnectionId, WorkerId};

/// A message for a worker; see [`HubMessage`](super::HubMessage).
#[derive(Debug)]
pub struct WorkerMessage(pub(crate) ToWorker);

/// From the hub, or from another worker where that is stated.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// Messages for its sessions.
    Records { origin: Origin, bytes: Vec<u8> },
    /// From the hub or another worker: it has processed this many bytes of the records that it was handed.
    Processed { bytes: u64 },
    /// One message for its sessions, not in the stream of its origin.
    Record {
        origin: Origin,
        bytes: Vec<u8>,
        way: Way,
    },
    /// The sender has admitted these of the receiver's own numbers.
    Acknowledged(NumberRuns),
    /// These of its numbers are over a limit: their publishers are refused when the last destination has acknowledged them. What refuses them
    /// acknowledges them as well.
    Refused { by: RefusedBy, numbers: NumberRuns },
    /// From another worker: all members that it has are over their limits. The record, with the receiver's number.
    MembersRefused { record: Vec<u8> },
    /// All reachable nodes have applied the worker's changes up to this sequence.
    InterestSettled {
        sequence: u64,
        /// No retained message that is here was written later.
        since: HybridTime,
    },
    /// The interests of others have changed.
    Peers {
        sequence: u64,
        changes: Vec<(Place, InterestChange)>,
    },
    /// The answer to `RetainedQuery`: some retained messages, with their hybrid times; `rest`: where the next ones begin, if there are more.
    RetainedPage {
        session: u32,
        page: u64,
        records: Vec<u8>,
        rest: Option<RetainedCursor>,
    },
    /// The answer to a claim.
    ClaimAnswered {
        connection: ConnectionId,
        serial: u64,
        client_id: Arc<str>,
        answer: Result<ClaimGrant, ClaimRefusal>,
    },
    /// Another node's session stays: end the session here. `may_contest`: if the session here may have something that is nowhere else, report
    /// `Contested` instead.
    Evict {
        client_id: Arc<str>,
        may_contest: bool,
    },
    /// Another node, or for a merge another worker of this one, is to have the session. Disconnect its client, keep queueing, answer `Fetched`.
    Fetch {
        request: u64,
        client_id: Arc<str>,
        to: NodeId,
        purpose: Purpose,
    },
    /// That node does not want the session any more; it stays here.
    CancelSwitchover { client_id: Arc<str>, to: NodeId },
    /// Everything that the sender had for `home` has been sent before this message. The hub sends it to all workers, after what came from other
    /// nodes; each other worker passes it on to `home`, after its own messages.
    BarrierPassed { home: WorkerId, barrier: u64 },
    /// The snapshot of another node's branch of a session that is here. Answered by `Imported` when its interests are settled.
    Import {
        request: u64,
        snapshot: Vec<u8>,
        merge: Merge,
    },
    /// The queue of a branch. Answered by `Imported` when all of the branch is stored, and backups that are up have it.
    ImportQueue {
        request: u64,
        client_id: Arc<str>,
        /// `None`: it does not come. Not answered.
        queue: Option<Vec<u8>>,
    },
    /// From another worker: it offers a connection whose messages go there; `load`: messages of the sender, a second.
    Offer { relocation: Relocation, load: u64 },
    /// That worker wants the connection. Nobody claims or fetches the session before `GrantDone`.
    Relocate {
        to: WorkerId,
        relocation: Relocation,
    },
    /// A record of the replication stream of another node's primaries.
    Replicate {
        from: NodeId,
        stream: ReplicationStream,
        position: u64,
        record: Vec<u8>,
    },
    /// About this worker's replication stream to another node.
    BackupReport {
        from: NodeId,
        /// See [`ReplicationStream::id`].
        stream: u64,
        report: BackupReport,
    },
    /// What a node was sent by a stream may be lost; `absence`: and the node had declared this one down.
    BackupsLost {
        node: NodeId,
        absence: Option<Absence>,
    },
    /// A node is down: the backups of its sessions are promoted. `publishes_wills`: this side declared it down while it had quorum, and publishes
    /// the wills of its clients.
    Promote { node: NodeId, publishes_wills: bool },
    /// The backups of a node's sessions are out of date.
    DropBackups { node: NodeId },
    /// From another worker: what it has read of sessions that have failed over to another node's worker.
    Adoptions {
        by: (NodeId, u8),
        /// Backups of an earlier primary are to be kept until they are replaced.
        adopted: Vec<Adopted>,
        /// By their `uid`: they were fully synced, or have ended.
        replaced: Vec<u128>,
    },
    /// The cluster from now on; something of it has changed.
    Cluster(Arc<Cluster>),
    /// The answer to `BetterNodeRequest`; none: this node is as good as any, or there is no data.
    BetterNode(BetterNodeRequest, Option<NodeId>),
    /// Which clients may be sent away? Their messages are counted from one such request to the next.
    MovableAsked,
    /// What do your clients do, those from this connection on? Requested by the rebalancer, in this round.
    ActivityRequested {
        asker: NodeId,
        round: u64,
        from: u32,
    },
    /// The client is to go to one of these nodes.
    SendClient {
        client_id: Arc<str>,
        to: Arc<[NodeId]>,
    },
}
