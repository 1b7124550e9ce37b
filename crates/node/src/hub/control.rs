//! Messages between hubs besides those of the overlay: claims of client identifiers, sessions that move, retained messages.

mod activity;
mod bytes;
mod load;
mod placements;

use std::sync::Arc;

use thicket_overlay::{Incarnation, NodeId, StreamId, record::HybridTime};
use thicket_placement::{MoveReason, Placement};
use thicket_session::server::Epoch;

pub(super) use self::{
    activity::{END, LEARNING},
    load::SentTopics,
    placements::{Follows, PlacementOrder, lengths_of},
};
use super::members::Membership;
use crate::{
    NodeState, RebalanceError, RebalanceWish, RedirectionReason,
    messages::{BackupReport, ClientActivity, NumberRuns, Origin, Purpose, ReplicationStream},
};

/// A message between hubs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message<'a> {
    /// To the registrar: may I have this client identifier? `view`: computed from the nodes that are up at the asker.
    Claim {
        request: u64,
        view: u64,
        client_id: &'a str,
    },
    /// From the registrar: it is yours; `None`: ask again later.
    ClaimAnswered {
        request: u64,
        grant: Option<Grant>,
        client_id: &'a str,
    },
    /// From a registrar that begins again: register your sessions that I am the registrar of. `unix_ms`: what its clock for claims says.
    RegisterAsked { round: u64, unix_ms: u64 },
    /// To the registrar: these client identifiers have their sessions here. `is_first`: what was registered before is void.
    Register {
        round: u64,
        is_first: bool,
        sessions: Vec<Registration<'a>>,
    },
    /// To the registrar: that was all, by this view.
    RegisterEnd { round: u64, view: u64 },
    /// To the registrar: there is no session here.
    Release {
        client_id: &'a str,
        release: Released,
    },
    /// To the registrar: the session is here now.
    Owned { client_id: &'a str, epoch: Epoch },
    /// From the registrar: another node has the client identifier with a higher epoch; `has_ended`: or had, and the session has ended.
    Evict {
        client_id: &'a str,
        epoch: Epoch,
        has_ended: bool,
    },
    /// To the registrar that evicts: what the session has here is nowhere else.
    Contested { client_id: &'a str },
    /// From the registrar: merge the branch of the session at `source`, which has it with `source_epoch`. Until that is done the session is claimed.
    Merge {
        epoch: Epoch,
        source: NodeId,
        source_epoch: Epoch,
        client_id: &'a str,
    },
    /// To the node that has a session: hand it over to me, or send me your branch of it.
    Fetch {
        request: u64,
        client_id: &'a str,
        purpose: Purpose,
    },
    /// The answer, unless the session is handed over.
    Fetched {
        request: u64,
        answer: FetchAnswer<'a>,
    },
    /// All nodes send the messages of a branch here now: send its queue.
    FetchQueue { request: u64 },
    /// To every node that may have sent messages to a session that leaves: answer when all that is on its way to me has been admitted here.
    Barrier { request: u64 },
    /// The answer.
    BarrierDone { request: u64 },
    /// I do not want the session any more, or did not take it over: keep it.
    CancelSwitchover { client_id: &'a str },
    /// A fingerprint of all retained messages.
    RetainedDigest {
        digest: u64,
        /// It answers a digest that differed: the other node sends all its messages if it has not yet, and answers no more.
        is_answer: bool,
    },
    /// Retained messages (an empty payload: removed), each a record with its time, and the node that published it.
    Retained { messages: Vec<RetainedRecord<'a>> },
    /// These messages of yours are over the limit here.
    Refused(RefusedNumbers),
    /// All members of a shared subscription here that these messages of yours are for are over their limits.
    MembersRefused(RefusedNumbers),
    /// I have noted that: acknowledge them now.
    RefusalNoted(RefusedNumbers),
    /// Part of a record of a replication stream.
    Replicate {
        stream: ReplicationStream,
        position: u64,
        part: Part<'a>,
    },
    /// About a replication stream of yours.
    BackupReport {
        stream: ReplicationStream,
        report: BackupReport,
    },
    /// All nodes that ever joined.
    Members(Vec<Membership<'a>>),
    /// Keys and values that must be the same on all nodes.
    Settings(Vec<(&'a str, &'a str)>),
    /// The time of day here.
    Clock { unix_ms: u64 },
    /// My load, and where clients reach me.
    State(NodeState),
    /// How often my clients publish to which topics.
    Topics {
        /// What was sent before is void.
        is_first: bool,
        topics: SentTopics<'a>,
    },
    /// To the placer.
    Place { request: u64, order: PlacementOrder },
    /// From the placer, behind the placement: that is it, or what is wrong with the request (empty: nothing).
    PlaceDone { request: u64, problem: &'a str },
    /// From the placer: this client is to be there.
    Placement {
        placement: Placement,
        follows: Follows,
        /// Who is charged for it; none: nobody, or who was before.
        payer: Option<Arc<str>>,
    },
    /// From the placer: the placement of a client was removed.
    Unplaced { client_id: &'a str },
    /// I have sent this client to that node, and why.
    Moved {
        to: NodeId,
        reason: RedirectionReason,
        client_id: &'a str,
    },
    /// From the rebalancer: what do your clients do, those from this cursor on?
    ActivityRequested { round: u64, cursor: u64 },
    /// To the rebalancer: some of them; `next`: the cursor of the others, `u64::MAX` if there are none.
    Activity {
        round: u64,
        next: u64,
        clients: Vec<ClientActivity>,
    },
    /// From the rebalancer: these clients of yours should be at another node.
    MovesOrdered {
        to: NodeId,
        reason: MoveReason,
        clients: Vec<&'a str>,
    },
    /// To the rebalancer: an operator asks.
    RebalanceAsked { request: u64, wish: RebalanceWish },
    /// From the rebalancer: the answer, a [`crate::RebalanceReport`] as JSON.
    RebalanceAnswered {
        request: u64,
        answer: Result<String, RebalanceError>,
    },
}

/// Numbers of one stream of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedNumbers {
    pub incarnation: Incarnation,
    pub stream: StreamId,
    pub runs: NumberRuns,
}

/// What a registrar grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub epoch: Epoch,
    /// The node that has the session, if it is not the one that claims.
    pub source: Option<NodeId>,
}

/// What is sent when a session is fetched that is not handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchAnswer<'a> {
    /// Of the branch; after `FetchQueue`, of its queue.
    Part(Part<'a>),
    /// There is no session here.
    Gone,
    /// A third node is to have it.
    Elsewhere,
}

/// Why a node has no session of a client identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    /// It has left or expired here, or was never here.
    Gone,
    /// The same, and it is not wanted any more, if it was claimed.
    Unclaimed,
    /// The session has ended, so earlier branches of it end too.
    Ended,
}

/// A client identifier that a node registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Registration<'a> {
    pub client_id: &'a str,
    pub epoch: Epoch,
    pub state: Registrable,
}

/// What is registered of a client identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Registrable {
    /// The session is here, its client is not connected.
    Waiting,
    /// Granted, and still being fetched or opened: others wait until that is done.
    Claimed,
    /// The session is here, and so is its client.
    Connected,
    /// It is not here, nor anywhere else: sessions up to this epoch have ended.
    Ended,
}

impl Registrable {
    /// Of a session that is here.
    pub const fn here(is_connected: bool) -> Self {
        if is_connected {
            Self::Connected
        } else {
            Self::Waiting
        }
    }
}

/// A retained message with where it came from: its record has its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetainedRecord<'a> {
    pub origin: Origin,
    pub record: &'a [u8],
}

/// Part of something too long for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub bytes: &'a [u8],
    pub is_last: bool,
}

/// Bytes of a part.
pub(super) const PART_BYTES: usize = 256 * 1024;

/// The order of writes of a topic: the last one wins, ties go to the higher node (rule 17).
pub(super) type WriteTime = (HybridTime, NodeId);
