//! What the workers of a node and its hub say to each other. In order for each pair of sender and receiver.

use std::{net::SocketAddr, sync::Arc};

use thicket_mqtt::{PacketId, Qos, ReasonCode};
use thicket_overlay::{Incarnation, NodeId, NodeSlot, StreamId};
use thicket_session::{
    server::Epoch,
    time::Instant,
    topic::{SubscriptionFilter, TopicFilter},
};

pub(crate) use crate::doors::Mail;
pub(crate) use crate::worker::HEAVIEST as HEAVIEST_TOPICS;
use crate::{
    ConnectionId, ListenerId, Payer, PlacementError, PlacementReport, PlacementRequest, WorkerId,
    bans::Bans,
};

/// Somewhere else that wants messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Another worker of this node.
    Worker(WorkerId),
    /// Another node.
    Node(NodeSlot),
}

impl Place {
    /// The node, if it is one.
    pub const fn node(self) -> Option<NodeSlot> {
        match self {
            Self::Worker(_) => None,
            Self::Node(slot) => Some(slot),
        }
    }
}

/// What a place wants of a filter, in aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// The highest QoS.
    pub qos: Qos,
    /// A session that outlives its connection is among them.
    pub persistent: bool,
    /// Connected members there; of a plain interest how many subscriptions there are, within a factor of two.
    pub weight: u32,
}

/// A change of what a place wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterestChange {
    /// The filter, or one group of it.
    pub key: SubscriptionFilter,
    /// `None`: nothing any more.
    pub interest: Option<Interest>,
}

/// Whose numbers the records of a batch carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// The node that took the messages from their publishers.
    pub node: NodeId,
    /// Of that node.
    pub incarnation: Incarnation,
    /// The worker of that node.
    pub stream: StreamId,
}

/// One record on its way from a worker to the hub, or several in a row that go to the same nodes and have no numbers, or
/// consecutive ones.
#[derive(Debug, Clone)]
pub(crate) struct ForwardEntry {
    /// Bytes of the records.
    pub len: u32,
    /// How many they are.
    pub records: u32,
    /// Nodes that are to have it, ascending; may be empty for a retained message.
    pub destinations: Arc<[NodeSlot]>,
    /// Number of the first one in the worker's stream; 0: not acknowledged, none of them.
    pub number: u64,
    /// QoS of the records.
    pub qos: Qos,
    /// To be kept as retained message, on every node.
    pub retain: bool,
    /// Who is charged for that.
    pub publisher: Option<Arc<Payer>>,
}

impl ForwardEntry {
    /// Bytes of several records at most: little beside a batch of a link, which they fill together.
    const MAXIMUM_BYTES: u32 = 4 * 1024;

    /// Takes in one more record of `len` bytes that is not to be retained, if it belongs to those that are here.
    pub fn absorb(
        &mut self,
        len: u32,
        number: u64,
        qos: Qos,
        destinations: &Arc<[NodeSlot]>,
    ) -> bool {
        let is_next = match self.number {
            0 => number == 0,
            first => first + u64::from(self.records) == number,
        };
        let belongs = is_next
            && !self.retain
            && self.qos == qos
            && self.len.saturating_add(len) <= Self::MAXIMUM_BYTES
            && (Arc::ptr_eq(&self.destinations, destinations)
                || self.destinations == *destinations);
        if belongs {
            self.len += len;
            self.records += 1;
        }
        belongs
    }
}

/// Runs of numbers, both ends included, ascending.
pub(crate) type NumberRuns = Vec<(u64, u64)>;

/// Adds a number to the last run or begins another.
pub(crate) fn push_number(runs: &mut NumberRuns, number: u64) {
    match runs.last_mut() {
        Some((_, to)) if *to + 1 == number => *to = number,
        Some(_) | None => runs.push((number, number)),
    }
}

/// Asks where a client identifier's session lives.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The connection that asks, of the worker that asks.
    pub connection: ConnectionId,
    /// Its serial.
    pub serial: u64,
    /// Never empty.
    pub client_id: Arc<str>,
    /// The old session is to be thrown away.
    pub clean_start: bool,
    /// What is to be known to send the client elsewhere; `None`: it would not understand.
    pub redirectable: Option<Redirectable>,
    /// Where a client before 5.0 came in: if it is refused, it may come to another node.
    pub refusable: Option<ListenerId>,
    /// The client asks where its sessions should be.
    pub asks: Option<Arc<PlacementRequest>>,
    /// How that was answered.
    pub placed: Option<Placed>,
}

/// Where the sessions of a client should be.
pub(crate) type Placed = Arc<Result<PlacementReport, PlacementError>>;

impl Claim {
    /// The client says that it comes from a node that sent it away.
    pub fn came_redirected(&self) -> bool {
        let redirectable = self.redirectable.as_ref();
        redirectable.is_some_and(|it| it.came_redirected)
    }

    /// The name under which a redirection is remembered: one that the client brings again.
    pub fn remembered_as(&self) -> &str {
        let anonymous = self
            .redirectable
            .as_ref()
            .and_then(|it| it.anonymous.as_deref());
        anonymous.unwrap_or(&self.client_id)
    }
}

/// What a client must have to be sent elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Redirectable {
    /// Where it came in.
    pub listener: ListenerId,
    /// It says that it comes from a node that sent it away.
    pub came_redirected: bool,
    /// It has no client identifier of its own: its address stands for it.
    pub anonymous: Option<Arc<str>>,
}

/// How often clients of a worker publish to a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicRate {
    pub topic: Arc<str>,
    /// Thousandths of a message a second.
    pub millis_per_s: u64,
}

/// A client that may be sent to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Movable {
    /// Of the worker that names it.
    pub connection: ConnectionId,
    /// Of the connection.
    pub serial: u64,
    /// Of its session.
    pub client_id: Arc<str>,
    /// Where it came in.
    pub listener: ListenerId,
    /// From it and to it.
    pub messages_per_s: u64,
}

/// What a connected client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientHabits {
    /// Of its session.
    pub client_id: Arc<str>,
    /// It understands a Server Reference, and some node has a listener like its own.
    pub can_move: bool,
    /// Messages from it and to it, in thousandths a second.
    pub millis_per_s: u64,
    /// What it publishes to, with thousandths of a message a second.
    pub publishes: Vec<(Arc<str>, u64)>,
    /// What it subscribes to, shared subscriptions left out.
    pub filters: Vec<Arc<str>>,
}

impl ClientHabits {
    /// Of its names.
    pub fn bytes(&self) -> usize {
        let topics = self.publishes.iter().map(|it| it.0.len() + 12);
        let filters = self.filters.iter().map(|it| it.len() + 4);
        self.client_id.len() + topics.sum::<usize>() + filters.sum::<usize>()
    }
}

/// Where a client of each listener of this node reaches each other node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Ascending by node.
    nodes: Vec<NodeElsewhere>,
}

/// One other node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeElsewhere {
    pub node: NodeId,
    /// It takes clients.
    pub serves: bool,
    /// HOST:PORT by `ListenerId` of this node.
    pub addresses: Vec<Option<Arc<str>>>,
}

impl NodeElsewhere {
    fn address(&self, listener: ListenerId) -> Option<&Arc<str>> {
        self.addresses.get(usize::from(listener.0))?.as_ref()
    }
}

impl Elsewhere {
    /// `nodes`: ascending.
    pub const fn new(nodes: Vec<NodeElsewhere>) -> Self {
        Self { nodes }
    }

    /// Whether anything is known of the node.
    pub fn has(&self, node: NodeId) -> bool {
        let addresses = self.of(node).into_iter().flat_map(|place| &place.addresses);
        addresses.flatten().next().is_some()
    }

    /// HOST:PORT for a client that came in at the listener.
    pub fn address(&self, node: NodeId, listener: ListenerId) -> Option<&Arc<str>> {
        self.of(node)?.address(listener)
    }

    /// HOST:PORT of the nodes that take clients, for one that came in at the listener.
    pub fn serving(&self, listener: ListenerId) -> impl Iterator<Item = &Arc<str>> {
        let serving = self.nodes.iter().filter(|place| place.serves);
        serving.filter_map(move |place| place.address(listener))
    }

    /// HOST:PORT of a node for a client that came in at the listener; `None`: it does not take clients, or has no such listener.
    pub fn serving_at(&self, node: NodeId, listener: ListenerId) -> Option<&Arc<str>> {
        let place = self.of(node).filter(|place| place.serves);
        place?.address(listener)
    }

    /// A Server Reference: the addresses of these nodes, with spaces between (5.0, 4.11).
    pub fn reference(&self, nodes: &[NodeId], listener: ListenerId) -> Option<String> {
        let addresses = nodes
            .iter()
            .filter_map(|node| self.address(*node, listener));
        let all: Vec<&str> = addresses.map(|address| &**address).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    fn of(&self, node: NodeId) -> Option<&NodeElsewhere> {
        let found = self.nodes.binary_search_by_key(&node, |place| place.node);
        found.ok().map(|at| &self.nodes[at])
    }
}

/// A question for a client that follows better nodes by topic.
#[derive(Debug, Clone)]
pub(crate) struct PlaceAsked {
    pub connection: ConnectionId,
    pub serial: u64,
    /// The name of its session.
    pub client_id: Arc<str>,
    pub question: PlaceQuestion,
}

/// What a better node is asked for.
#[derive(Debug, Clone)]
pub(crate) enum PlaceQuestion {
    /// Whose SUBACK waits.
    Filter {
        filter: Box<str>,
        packet_id: PacketId,
    },
    /// All whose subscribers are at this other node.
    Topic { topic: Box<str>, node: NodeSlot },
}

/// Travels with a connection to the worker where the session lives.
#[derive(Debug)]
pub(crate) struct GrantedClaim {
    pub terms: Terms,
    /// The client identifier that we chose for a client without one.
    pub assigned: Option<Arc<str>>,
    /// How the client was let in.
    pub admission: crate::Admission,
    /// Where its sessions should be, if it asked.
    pub placed: Option<Placed>,
}

/// What a claim was granted with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What the session has from now on.
    pub epoch: Epoch,
    /// No node that is up has another branch of the session.
    pub is_sole: bool,
}

/// How a session's connection ended, for the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// A client is connected.
    Connected,
    /// Nobody is connected; it waits.
    Waiting,
    /// There is none any more.
    Ended,
}

/// A message of a session that reached a backup alone: the session had moved when it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReachedBackup {
    /// The worker of the primary, and the stream by which it tells the backup.
    pub worker: u8,
    pub stream: u64,
    /// The session's number there.
    pub session: u64,
    pub origin: Origin,
    /// A record.
    pub bytes: Vec<u8>,
}

/// The content of a mail.
#[derive(Debug)]
pub(crate) enum Content {
    /// Hub to worker: an earlier start of this node is remembered with a higher incarnation; this one is above it now.
    Incarnation(Incarnation),
    /// To a worker: messages for its sessions.
    Records { origin: Origin, bytes: Vec<u8> },
    /// Hub to worker: retained messages that another node told of: like `Records`, but out of their order and not to be acknowledged.
    RetainedRecords { origin: Origin, bytes: Vec<u8> },
    /// Hub to worker: the last write of a topic that several wrote at once, a record with its number; of a removal the number is 0.
    LastWord { origin: Origin, bytes: Vec<u8> },
    /// Hub to worker: who may not connect, from now on.
    Bans(Arc<Bans>),
    /// Hub to worker: a message that others kept for this node while it was down: like one of `Records`, but no backup gets it by itself.
    Hinted { origin: Origin, bytes: Vec<u8> },
    /// Worker to hub: each persistent session with subscriptions has its backups, each at one of these sets of nodes; or one has none.
    Covered(Option<Vec<Vec<NodeId>>>),
    /// Worker to hub: messages for other nodes, or to be retained.
    Forward {
        records: Vec<u8>,
        entries: Vec<ForwardEntry>,
    },
    /// To a worker: the sender has admitted these of the receiver's own numbers.
    Acknowledged(NumberRuns),
    /// Hub to worker: these of its numbers found no room on their way; their publishers must be told.
    Refused(NumberRuns),
    /// Hub to worker: another node has no room for these of its numbers, and acknowledges them when it has been heard.
    RefusalAhead(NumberRuns),
    /// Worker to hub: there is no room here for these numbers of another node's stream.
    NotAdmitted { origin: Origin, numbers: NumberRuns },
    /// Worker to hub: these numbers of another node's stream are admitted here.
    Admitted { origin: Origin, numbers: NumberRuns },
    /// Worker to hub: what the worker wants has changed.
    Interest {
        sequence: u64,
        changes: Vec<InterestChange>,
    },
    /// Hub to worker: everyone reachable has applied the worker's changes up to this sequence.
    InterestSettled {
        sequence: u64,
        /// Where the retained messages stood then.
        retained: u64,
    },
    /// Hub to worker: what others want has changed.
    Peers {
        sequence: u64,
        changes: Vec<(Place, InterestChange)>,
    },
    /// Worker to hub: applied.
    PeersApplied { sequence: u64 },
    /// Worker to hub.
    Claim(Claim),
    /// Hub to worker: the session lives, or may live, at `home`.
    Granted {
        connection: ConnectionId,
        serial: u64,
        client_id: Arc<str>,
        home: WorkerId,
        terms: Terms,
        placed: Option<Placed>,
    },
    /// Worker to hub: the connection that was granted is in service, which `Session` said before, or has gone.
    GrantDone { client_id: Arc<str> },
    /// Hub to worker.
    ClaimRefused {
        connection: ConnectionId,
        serial: u64,
        reason_code: ReasonCode,
        /// Nodes where the client may go, the chosen one first.
        instead: Arc<[NodeId]>,
    },
    /// Hub to worker: where clients reach the other nodes.
    Elsewhere(Arc<Elsewhere>),
    /// Worker to hub: which node would be better for a topic of a client? Answered before what is told later is.
    PlaceAsked(PlaceAsked),
    /// The answer; none: this node is as good as any, or nothing is known.
    PlaceTold(PlaceAsked, Option<NodeId>),
    /// Hub to worker: which topics have most messages, since the last such question?
    TopicRatesAsked,
    /// The answer.
    TopicRates(Vec<TopicRate>),
    /// Hub to worker: which clients may be sent away? Their messages are counted from one such question to the next.
    MovableAsked,
    /// The answer.
    Movable(Vec<Movable>),
    /// Hub to worker: what do your clients do, those from this connection on? Asked by the rebalancer, in this round.
    HabitsAsked {
        asker: NodeId,
        round: u64,
        from: u32,
    },
    /// The answer; `next`: there are more.
    Habits {
        asker: NodeId,
        round: u64,
        next: Option<u32>,
        clients: Vec<ClientHabits>,
    },
    /// Hub to worker: the client is to go to one of these nodes.
    SendAway {
        connection: ConnectionId,
        serial: u64,
        to: Arc<[NodeId]>,
    },
    /// Hub to worker: the client is to go to one of these nodes.
    SendClient {
        client_id: Arc<str>,
        to: Arc<[NodeId]>,
    },
    /// Worker to hub: what became of a session whose home the worker is.
    Session {
        client_id: Arc<str>,
        state: SessionState,
        /// Of the session.
        epoch: Epoch,
    },
    /// Hub to worker: another node is to have the session. Disconnect its client, keep queueing, answer `Fetched`.
    Fetch {
        request: u64,
        client_id: Arc<str>,
        to: NodeId,
        purpose: Purpose,
    },
    /// Worker to hub.
    Fetched { request: u64, answer: Fetched },
    /// Hub to worker: the other node receives the branch's messages now. Send the queue.
    Drain { request: u64, client_id: Arc<str> },
    /// Hub to worker: tell `home`, behind all that was sent to it, that it has all that was sent before this.
    Synchronise { request: u64, home: WorkerId },
    /// Worker to worker: that was all. The last one lets `Drain` of the same number go on.
    Synchronised { request: u64 },
    /// Worker to hub: the queue of a branch.
    Drained { request: u64, queue: Vec<u8> },
    /// Hub to worker: the other node does not want the session any more; it stays.
    TakeBack { client_id: Arc<str> },
    /// Hub to worker: what another node has of a session that is here. Answered by `Imported` when its interests are settled.
    Import {
        request: u64,
        snapshot: Vec<u8>,
        merge: Merge,
    },
    /// Worker to hub.
    Imported { request: u64 },
    /// Hub to worker: the rest of a branch does not come.
    Forget { client_id: Arc<str> },
    /// Hub to worker: the queue of a branch.
    ImportQueue { client_id: Arc<str>, queue: Vec<u8> },
    /// Worker to hub: the next retained messages for a filter; `begin_at`: the first ones, of those kept when
    /// `InterestSettled` said so.
    RetainedQuery {
        query: u64,
        filter: TopicFilter,
        begin_at: Option<u64>,
    },
    /// Hub to worker: some of them, with their hybrid times.
    RetainedPage {
        query: u64,
        records: Vec<u8>,
        has_more: bool,
    },
    /// Worker to hub: no more of them are wanted.
    RetainedCancel { query: u64 },
    /// Hub to worker: the other nodes that are up.
    Nodes(Vec<UpNode>),
    /// Hub to worker: how much other nodes that are up can take (C of Overlays 4.2.1).
    Capabilities(Vec<(NodeId, u64)>),
    /// Hub to worker: a node that is down will not come back.
    Forgotten { node: NodeId },
    /// Worker to hub: the next record of a stream of backups.
    Replicate {
        to: NodeId,
        stream: u64,
        position: u64,
        record: Vec<u8>,
    },
    /// Hub to worker: a record of the stream of another node's worker.
    Copied {
        from: NodeId,
        worker: u8,
        stream: u64,
        position: u64,
        record: Vec<u8>,
    },
    /// Worker to hub: up to these positions a stream is applied, and held, here.
    BackupsHeld {
        to: NodeId,
        worker: u8,
        stream: u64,
        applied: u64,
        held: u64,
    },
    /// Hub to worker: the same of the worker's own stream.
    BackupsAreHeld {
        by: NodeId,
        stream: u64,
        applied: u64,
        held: u64,
    },
    /// Worker to hub: messages that a stream named have not come; session numbers with sequences.
    BackupsWanted {
        to: NodeId,
        worker: u8,
        stream: u64,
        wanted: Vec<(u64, u64)>,
    },
    /// Hub to worker: the same of the worker's own stream.
    BackupsAreWanted {
        by: NodeId,
        stream: u64,
        wanted: Vec<(u64, u64)>,
    },
    /// Worker to hub, for the primary's node; hub to the primary's worker, from the backup's node.
    ReachedBackup {
        node: NodeId,
        reached: ReachedBackup,
    },
    /// Hub to worker: what a node was told by a stream may be lost.
    BackupsLost { node: NodeId },
    /// Hub to worker: a node had declared this one down, unnoticed here: it worked without this node for a while, and may have promoted its backups.
    /// `paused`: when this node stood still last, from, until.
    GivenUpBy {
        node: NodeId,
        paused: Option<(Instant, Instant)>,
    },
    /// Worker to hub: tell when all that was on its way to this worker has come.
    BackupBarrier { barrier: u64 },
    /// Hub to worker: all that was on its way from other nodes has come; `Synchronised` of the same request says it of other workers.
    BackupBarrierPassed { barrier: u64, request: u64 },
    /// Hub to worker: a node is down, the backups of its sessions become the sessions. `is_news`: others do not know more of it.
    Promote { node: NodeId, is_news: bool },
    /// Hub to worker: the backups of a node's sessions are out of date.
    DropBackups { node: NodeId },
    /// Hub to worker: this side of the cluster does not serve, or serves again (rule 19).
    Minority(bool),
    /// Worker to worker: these sessions have failed over to another node's worker. Backups that an earlier primary told are to be kept until it has
    /// told them anew.
    BackupsAdopted {
        by: (NodeId, u8),
        sessions: Vec<Adopted>,
    },
    /// Worker to worker: it has, or they have ended.
    BackupsReplaced {
        by: (NodeId, u8),
        sessions: Vec<u128>,
    },
    /// Worker to hub: they are.
    Promoted { node: NodeId },
    /// Worker to hub: a backup became the session, with this epoch: its primary handed it over, or, `is_beside`, has it too.
    TakenOver {
        client_id: Arc<str>,
        epoch: Epoch,
        is_beside: bool,
    },
    /// Worker to hub: this node handed a session over that another one has here, which stays.
    NotTakenOver { client_id: Arc<str>, from: NodeId },
    /// Hub to worker: another node has the session too, and its stays; it ends here, and nobody hears of it. `may_contest`: unless what
    /// it has is nowhere else.
    Evict {
        client_id: Arc<str>,
        may_contest: bool,
    },
    /// Worker to hub: it is nowhere else.
    Contested { client_id: Arc<str> },
    /// Worker to worker: a connection whose messages go there would come; its messages and the sender's, a second.
    Offer {
        connection: ConnectionId,
        serial: u64,
        rate: u64,
        load: u64,
    },
    /// The answer, if it is yes.
    OfferTaken {
        connection: ConnectionId,
        serial: u64,
        rate: u64,
    },
    /// Worker to hub: the session of the connection is to live on another worker.
    Relocate { client_id: Arc<str>, serial: u64 },
    /// The answer. If it is yes, nobody claims or fetches the session before `Relocated`.
    Relocation {
        client_id: Arc<str>,
        serial: u64,
        is_granted: bool,
    },
    /// Worker to hub: it is here, or was not handed over.
    Relocated { client_id: Arc<str> },
}

/// A session that another node goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// See `StoredSession::uid`.
    pub uid: u128,
    /// In the stream of that node's worker.
    pub number: u64,
    /// Backups with a lower one are meant.
    pub epoch: Epoch,
}

/// Another node that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpNode {
    pub node: NodeId,
    pub slot: NodeSlot,
}

/// What becomes of a session that another node asks for.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// There is none (any more).
    Gone,
    /// It goes to a third node.
    Elsewhere,
    /// It was handed over, by the stream of its backups.
    Handed,
    /// What this branch of it has, but for its queue.
    Branch(Vec<u8>),
}

/// What a session is fetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// That node becomes its primary.
    Move,
    /// Its client begins anew: it ends.
    Discard,
    /// It becomes one with the session of the same client identifier there.
    Merge,
}

impl Purpose {
    /// By what stands in a message.
    pub(crate) const ALL: [Self; 3] = [Self::Move, Self::Discard, Self::Merge];
}

/// A session that becomes one with the one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Where the other one is.
    pub node: NodeId,
    /// Of the one that both become.
    pub epoch: Epoch,
    /// Of the last claim of the other one.
    pub source_epoch: Epoch,
}

/// Where a connection came from, for the log.
pub(crate) fn peer_text(peer: SocketAddr) -> String {
    // A Unix socket has no address.
    if peer.ip().is_unspecified() {
        return "unix".to_owned();
    }
    peer.to_string()
}

/// Whether `key` is `$share/name/filter`.
pub(crate) fn is_share_key(key: &str, name: &str, filter: &str) -> bool {
    key.strip_prefix("$share/")
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|rest| rest == filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_together_that_the_hub_treats_alike() {
        let nodes: Arc<[NodeSlot]> = Arc::new([NodeSlot(1), NodeSlot(2)]);
        let (same, other): (Arc<[NodeSlot]>, Arc<[NodeSlot]>) =
            (nodes.to_vec().into(), Arc::new([NodeSlot(1)]));
        let (plain, once) = (Qos::AtMostOnce, Qos::AtLeastOnce);
        for (name, first, next, expected) in [
            (
                "without numbers",
                (0, plain, false),
                (10, 0, plain, &nodes),
                true,
            ),
            (
                "equal nodes",
                (0, plain, false),
                (10, 0, plain, &same),
                true,
            ),
            (
                "other nodes",
                (0, plain, false),
                (10, 0, plain, &other),
                false,
            ),
            (
                "consecutive numbers",
                (7, once, false),
                (10, 9, once, &nodes),
                true,
            ),
            ("a gap", (7, once, false), (10, 10, once, &nodes), false),
            (
                "the same number",
                (7, once, false),
                (10, 8, once, &nodes),
                false,
            ),
            (
                "a number behind none",
                (0, plain, false),
                (10, 1, plain, &nodes),
                false,
            ),
            (
                "none behind a number",
                (7, plain, false),
                (10, 0, plain, &nodes),
                false,
            ),
            (
                "another QoS",
                (0, plain, false),
                (10, 0, once, &nodes),
                false,
            ),
            ("retained", (0, plain, true), (10, 0, plain, &nodes), false),
            (
                "too long",
                (0, plain, false),
                (4096, 0, plain, &nodes),
                false,
            ),
        ] {
            let (number, qos, retain) = first;
            let mut entry = ForwardEntry {
                len: 20,
                records: 2,
                destinations: Arc::clone(&nodes),
                number,
                qos,
                retain,
                publisher: None,
            };
            let (len, number, qos, destinations) = next;
            assert_eq!(
                entry.absorb(len, number, qos, destinations),
                expected,
                "{name}"
            );
            let after = if expected { (30, 3) } else { (20, 2) };
            assert_eq!((entry.len, entry.records), after, "{name}");
        }
    }
}
