//! Messages between the workers of a node and its hub: [`ToHub`] and [`ToWorker`], with the values that they carry. In order for each pair of sender
//! and receiver.

mod to_hub;
mod to_worker;

use std::{cmp::Ordering, net::SocketAddr, sync::Arc, time::Duration};

use thicket_mqtt::{PacketId, Qos, ReasonCode};
use thicket_overlay::{Incarnation, NodeId, NodeSlot, StreamId, record::HybridTime};
use thicket_session::{
    retained::RetainedCursor, server::Epoch, time::Instant, topic::SubscriptionFilter,
};

pub use self::{to_hub::HubMessage, to_worker::WorkerMessage};
pub(crate) use self::{to_hub::ToHub, to_worker::ToWorker};
use crate::{
    ConnectionId, ListenerId, PlacementError, PlacementReport, PlacementRequest, WorkerId,
    bans::Bans,
};

/// Another place that has interests.
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

/// The interest of a place in a filter, in aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// The highest QoS.
    pub qos: Qos,
    /// A session that outlives its connection is among them.
    pub persistent: bool,
    /// Connected members there; of a plain interest how many subscriptions there are, within a factor of two.
    pub weight: u32,
}

/// A change of the interest of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterestChange {
    /// The filter, or one group of it.
    pub key: SubscriptionFilter,
    /// `None`: it has none any more.
    pub interest: Option<Interest>,
}

/// Whose numbers the records of a batch carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// The node that accepted the messages from their publishers.
    pub node: NodeId,
    /// Of that node.
    pub incarnation: Incarnation,
    /// The worker of that node.
    pub stream: StreamId,
}

/// How a message of another worker or node comes to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In its origin's stream, as at all its destinations.
    Stream,
    /// Other nodes kept it while this node was down: backups of sessions here do not receive it by themselves.
    Hint,
    /// Nodes that met have compared their retained messages. It is not acknowledged.
    Comparison,
    /// It is the last write of a topic that several clients wrote at once: sessions that did not get it last get it again. It is not acknowledged; of a
    /// removal the number is 0.
    LastWrite,
}

/// One record on its way from a worker to the hub, or several in a row that go to the same nodes and have no numbers, or
/// consecutive ones.
#[derive(Debug, Clone)]
pub(crate) struct ForwardEntry {
    /// Bytes of the records.
    pub len: u32,
    /// How many they are.
    pub records: u32,
    /// Nodes that must receive it, ascending; may be empty for a retained message.
    pub destinations: Arc<[NodeSlot]>,
    /// Number of the first one in the worker's stream; 0: not acknowledged, none of them.
    pub number: u64,
    /// QoS of the records.
    pub qos: Qos,
    /// To be kept as retained message, on every node.
    pub retain: bool,
}

impl ForwardEntry {
    /// Bytes of several records at most: little beside a batch of a link, which they fill together.
    const MAXIMUM_BYTES: u32 = 4 * 1024;

    /// Adds one more record of `len` bytes that is not to be retained, if it belongs to those that are here.
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

/// What refuses a message that is over its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RefusedBy {
    /// All members of a shared subscription at a place: another place may have one that is not over its limit.
    Members,
    /// A place where it must be: its publisher is refused.
    Place,
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

/// Asks which worker has a client identifier's session.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The connection that asks, of the worker that asks.
    pub connection: ConnectionId,
    /// Its serial.
    pub serial: u64,
    /// Never empty.
    pub client_id: Arc<str>,
    /// The old session is to be discarded.
    pub clean_start: bool,
    /// What the hub needs to send the client elsewhere; `None`: the client would not understand.
    pub redirectable: Option<Redirectable>,
    /// The listener of a client before 5.0: if it is refused, it may connect to another node.
    pub refusable: Option<ListenerId>,
    /// The client asks where its sessions should be.
    pub asks: Option<Arc<PlacementRequest>>,
    /// How that was answered.
    pub placed: Option<Placed>,
}

/// A connection that moves to another worker of its node with its session.
#[derive(Debug, Clone)]
pub(crate) struct Relocation {
    /// Of the worker that has it.
    pub connection: ConnectionId,
    /// Its serial.
    pub serial: u64,
    /// Of its session.
    pub client_id: Arc<str>,
    /// Messages that it brings, a second.
    pub rate: u64,
}

/// Retained messages that a page has at most.
pub(crate) const PAGE_MESSAGES: usize = 512;

/// Asks for retained messages, a page at a time. The hub has no state of it between two pages.
#[derive(Debug)]
pub(crate) struct RetainedQuery {
    /// The worker's name for the session.
    pub session: u32,
    /// The worker's number for the page.
    pub page: u64,
    /// Where the page begins.
    pub cursor: RetainedCursor,
    /// The time in `InterestSettled`: what was written later reached the subscription as a message. `None`: unknown.
    pub since: Option<HybridTime>,
    /// Of the subscription.
    pub qos: Qos,
    /// Its client was away meanwhile: what was written later at QoS 0 did not reach it.
    pub is_resumed: bool,
    /// Messages that the page may have.
    pub messages: usize,
}

/// Where the sessions of a client should be.
pub(crate) type Placed = Arc<Result<PlacementReport, PlacementError>>;

impl Claim {
    /// The client states that it was sent away by a node.
    pub fn came_redirected(&self) -> bool {
        let redirectable = self.redirectable.as_ref();
        redirectable.is_some_and(|it| it.came_redirected)
    }

    /// Its client could be sent elsewhere, and has no client identifier of its own.
    pub fn is_assigned(&self) -> bool {
        let redirectable = self.redirectable.as_ref();
        redirectable.is_some_and(|it| it.anonymous.is_some())
    }

    /// The name under which a redirection is remembered: one that the client uses again.
    pub fn remembered_as(&self) -> &str {
        let anonymous = self
            .redirectable
            .as_ref()
            .and_then(|it| it.anonymous.as_deref());
        anonymous.unwrap_or(&self.client_id)
    }
}

/// What a client needs to be sent elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Redirectable {
    /// Its listener.
    pub listener: ListenerId,
    /// It states that it was sent away by a node.
    pub came_redirected: bool,
    /// It has no client identifier of its own: its address stands for it.
    pub anonymous: Option<Arc<str>>,
}

/// Topics that a worker reports, and a node keeps of each other one: those with most messages.
pub(crate) const HEAVIEST_TOPICS: usize = 4096;

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
    /// Of its session.
    pub client_id: Arc<str>,
    /// Its listener.
    pub listener: ListenerId,
    /// From it and to it.
    pub messages_per_s: u64,
}

/// The message rate, topics and filters of a connected client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientActivity {
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

impl ClientActivity {
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
    /// It accepts clients.
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

    /// Whether there is an address of the node.
    pub fn has(&self, node: NodeId) -> bool {
        let addresses = self.of(node).into_iter().flat_map(|place| &place.addresses);
        addresses.flatten().next().is_some()
    }

    /// HOST:PORT for a client that came through the listener.
    pub fn address(&self, node: NodeId, listener: ListenerId) -> Option<&Arc<str>> {
        self.of(node)?.address(listener)
    }

    /// HOST:PORT of the nodes that accept clients, for one that came through the listener.
    pub fn serving(&self, listener: ListenerId) -> impl Iterator<Item = &Arc<str>> {
        let serving = self.nodes.iter().filter(|place| place.serves);
        serving.filter_map(move |place| place.address(listener))
    }

    /// HOST:PORT of a node for a client that came through the listener; `None`: it does not accept clients, or has no such listener.
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
pub(crate) struct BetterNodeRequest {
    pub connection: ConnectionId,
    pub serial: u64,
    /// The name of its session.
    pub client_id: Arc<str>,
    pub question: BetterNodeSubject,
}

/// What a better node is asked for.
#[derive(Debug, Clone)]
pub(crate) enum BetterNodeSubject {
    /// The SUBACK of this filter waits.
    Filter {
        filter: Box<str>,
        packet_id: PacketId,
    },
    /// All subscribers of this topic are at this other node.
    Topic { topic: Box<str>, node: NodeSlot },
}

/// Travels with a connection to the worker that has the session.
#[derive(Debug)]
pub(crate) struct GrantedClaim {
    pub terms: Terms,
    /// The client identifier that we chose for a client without one.
    pub assigned: Option<Arc<str>>,
    /// How the client was admitted.
    pub admission: crate::Admission,
    /// Where its sessions should be, if it asked.
    pub placed: Option<Placed>,
}

/// A claim is granted: the session is, or may begin, at the worker `home`.
#[derive(Debug, Clone)]
pub(crate) struct ClaimGrant {
    pub home: WorkerId,
    pub terms: Terms,
    pub placed: Option<Placed>,
}

/// A claim is not granted.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRefusal {
    pub reason_code: ReasonCode,
    /// Nodes where the client may go, the chosen one first.
    pub instead: Arc<[NodeId]>,
}

/// What a claim was granted with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The epoch of the session from now on.
    pub epoch: Epoch,
    /// No node that is up has another branch of the session.
    pub is_sole: bool,
}

/// The state of a session, for the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// A client is connected.
    Connected,
    /// Nobody is connected; it waits.
    Waiting,
    /// A backup of it was promoted: its primary handed it over.
    TakenOver,
    /// A backup of it was promoted, and its primary has it too.
    Branch,
    /// It was to be evicted, and has something that is nowhere else.
    Contested,
    /// It has ended, and so have earlier branches of it at other nodes.
    Ended,
    /// There is none here any more: another node has it, or it has expired.
    Gone,
}

/// The replication stream of a worker's primaries to one other node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicationStream {
    /// The worker of these primaries.
    pub worker: u8,
    /// Differs for each stream that the worker begins.
    pub id: u64,
}

/// Reports of the backups at a node to the primaries of their replication stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackupReport {
    /// Positions up to which the stream is applied, and held.
    Held { applied: u64, held: u64 },
    /// Messages that the stream named have not arrived: numbers of sessions with sequences.
    Missing(Vec<(u64, u64)>),
    /// A message of a session reached only its backup.
    Misrouted(MisroutedMessage),
}

/// A message of a session that reached only a backup: the session had moved when it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MisroutedMessage {
    /// The session's number in the stream.
    pub session: u64,
    pub origin: Origin,
    /// A record.
    pub bytes: Vec<u8>,
}

/// Another node had declared this one down, unnoticed here: it worked without this node for a while, and may have promoted its backups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// When this node stood still last, from, until.
    pub paused: Option<(Instant, Instant)>,
}

/// A session that another node adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// See `StoredSession::uid`.
    pub uid: u128,
    /// In the stream of that node's worker.
    pub number: u64,
    /// The adoption is of backups with a lower one.
    pub epoch: Epoch,
}

/// Another node that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpNode {
    pub node: NodeId,
    pub slot: NodeSlot,
}

/// What every worker of a node has to know of the cluster. The hub has the original, and sends the workers another one when something has changed.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// Of this node. It rises if an earlier start of the node is remembered with a higher one.
    pub incarnation: Incarnation,
    /// The other nodes that are up.
    pub up: Vec<UpNode>,
    /// The other nodes that belong to the cluster, up or down.
    pub members: Vec<NodeId>,
    /// Free capacity of those that are up (C of Overlays 4.2.1), as far as it is known.
    pub capabilities: Vec<(NodeId, u64)>,
    /// Where clients reach the other nodes.
    pub elsewhere: Arc<Elsewhere>,
    /// Who may not connect.
    pub bans: Arc<Bans>,
    /// This side has no quorum (rule 19).
    pub is_minority: bool,
    /// A thread that was silent for less cannot have missed that other nodes declared this one
    /// down; none: it makes no difference, as both sides of a partition serve.
    pub lease: Option<Duration>,
}

impl Cluster {
    /// A cluster without other nodes.
    pub fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            up: Vec::new(),
            members: Vec::new(),
            capabilities: Vec::new(),
            elsewhere: Arc::default(),
            bans: Arc::default(),
            is_minority: false,
            lease: None,
        }
    }

    /// Free capacity of a node. One that has none left, or whose capacity is unknown, counts as 1, as in `rendezvous_by_weight`: if that is true of
    /// all, each has a share.
    pub fn capability_of(&self, node: NodeId) -> u64 {
        let known = self.capabilities.iter().find(|(of, _)| *of == node);
        known.map_or(1, |(_, capability)| (*capability).max(1))
    }
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
    /// The queue of the branch.
    Queue(Vec<u8>),
}

/// The purpose of fetching a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// That node becomes its primary.
    Move,
    /// Its client starts with Clean Start: it ends.
    Discard,
    /// It is merged into the session of the same client identifier there.
    Merge,
    /// What was fetched to be merged is there, and all nodes send its messages there too: its queue follows.
    Queue,
    /// That node becomes its primary, and its client was redirected there. Not sent between nodes: it is a `Move` there.
    Follow,
}

impl Purpose {
    /// Those of a `Fetch` between nodes, by their number there.
    pub(crate) const ALL: [Self; 3] = [Self::Move, Self::Discard, Self::Merge];
}

/// A session that is merged into the one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Where the other one is.
    pub node: NodeId,
    /// Of the merged session.
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

/// How `key` and `$share/name/filter` are ordered: to find one among thousands of a topic.
pub(crate) fn compare_share_key(key: &str, name: &str, filter: &str) -> Ordering {
    let mut rest = key.as_bytes();
    for part in ["$share/", name, "/"] {
        let (start, after) = rest.split_at(part.len().min(rest.len()));
        match start.cmp(part.as_bytes()) {
            Ordering::Equal => rest = after,
            different => return different,
        }
    }
    rest.cmp(filter.as_bytes())
}

/// Searches an ascending list, from a place on near which it is likely to be: those that are searched for one after the other come in order. `compare`: how
/// an element is ordered to what is searched for.
pub(crate) fn search_near<T>(
    list: &[T],
    near: usize,
    compare: impl Fn(&T) -> Ordering,
) -> Option<usize> {
    let (mut low, mut high, mut step) = (0, list.len(), 0);
    let mut at = near;
    while at < high {
        match compare(&list[at]) {
            Ordering::Equal => return Some(at),
            Ordering::Less => low = at + 1,
            Ordering::Greater => high = at,
        }
        // The distances double: elements of other places lie between.
        step = 2 * step + 1;
        at = low + step - 1;
    }
    let found = list[low..high].binary_search_by(compare).ok()?;
    Some(low + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_what_is_there_from_wherever_it_begins() {
        for len in 0..40 {
            let list: Vec<u32> = (0..len).map(|number| 2 * number).collect();
            for near in 0..list.len() + 2 {
                for wanted in 0..2 * len + 2 {
                    let found = search_near(&list, near, |it| it.cmp(&wanted));
                    let expected = list.binary_search(&wanted).ok();
                    assert_eq!(found, expected, "{wanted} of {len} from {near}");
                }
            }
        }
    }

    #[test]
    fn a_share_key_is_compared_like_its_text() {
        let names = ["g", "g0", "g1", "h"];
        let filters = ["a", "a/b", "a/b/c", "+", "#"];
        let texts = |name: &str, filter: &str| format!("$share/{name}/{filter}");
        for (name, filter) in names.iter().flat_map(|name| filters.map(|it| (name, it))) {
            let text = texts(name, filter);
            for key in names
                .iter()
                .flat_map(|name| filters.map(|it| texts(name, it)))
            {
                let compared = compare_share_key(&key, name, filter);
                assert_eq!(compared, key.cmp(&text), "{key} and {text}");
            }
            assert_eq!(compare_share_key("$share/g", name, filter), Ordering::Less);
        }
    }

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
