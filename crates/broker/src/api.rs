//! The answers of the HTTP API, for server and client. Names are those of the specification; units are in the names.

pub mod audit;
pub mod bans;
pub mod cluster;
pub mod messages;
pub mod overlay;
pub mod recording;
pub mod redirection;
pub mod transfer;
pub mod watch;

use axum::http::StatusCode;
use redirection::{NodeStateEntry, state_entry};
use serde::{Deserialize, Serialize};
use thicket_bridge::{LaneStatistics, Monitor};
use thicket_node::{
    HubMemoryReport, MembershipReport, MemoryReport, NodeReport, PlacementError, ProblemEntry,
    Remembered, SessionReport, SubscriptionReport, TopicReport, Traffic, Whose,
};
use utoipa::ToSchema;

/// Mirrors a report of the node as JSON: the same fields, so that the compiler notices a new one.
///
/// A field whose type differs is converted: `field: Entry = report_field | convert`.
macro_rules! mirror {
    (@value $from:ident) => { $from };
    (@value $from:ident $convert:expr) => { $convert($from) };
    ($(#[$doc:meta])* $name:ident as $schema:ident of $report:ident { $(#[doc = $field_doc:literal] $field:ident: $type:ty = $from:ident $(| $convert:expr)?,)* }) => {
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
        $(#[$doc])*
        #[schema(as = $schema)]
        pub struct $name {
            $(#[doc = $field_doc] #[schema(required)] pub $field: $type,)*
        }

        impl From<$report> for $name {
            fn from(report: $report) -> Self {
                let $report { $($from,)* } = report;
                Self { $($field: mirror!(@value $from $($convert)?),)* }
            }
        }
    };
}

mirror! {
    /// A node as the one that answers sees it: `GET /v1/nodes`.
    NodeEntry as Node of NodeReport {
        /// For people.
        name: String = name,
        /// Hexadecimal.
        id: String = id,
        /// Rises with every start.
        incarnation: u64 = incarnation,
        /// HOST:PORT for clients and other nodes.
        address: String = address,
        /// The node that answers.
        is_self: bool = is_self,
        /// Whether messages get there.
        reachable: bool = reachable,
        /// Unix time in milliseconds since when it is out, as far as the node that answers saw it.
        out_since_ms: Option<u64> = out_since_ms,
        /// Of the links with it; none while it is out.
        wire_version: Option<u16> = wire_version,
        /// Round trip of the link; none to itself.
        rtt_us: Option<u64> = rtt_us,
        /// Names the key that its link is proved by, or that the node that answers shows; none where links are not proved or go over others.
        key: Option<String> = key,
        /// Connected there.
        clients: u64 = clients,
        /// Made there.
        subscriptions: u64 = subscriptions,
        /// What it has to do and where clients reach it; none: not known, as it is out, or of an older version.
        state: Option<NodeStateEntry> = state | state_entry,
        /// Messages kept here for its sessions while it is out.
        hinted_messages: u64 = hinted_messages,
        /// Of them.
        hinted_bytes: u64 = hinted_bytes,
        /// The site that it is configured with; none: it has none, or it is not up.
        site: Option<String> = site,
        /// What it has set otherwise than the node that answers, though it must be the same on all: in words.
        disagreements: Vec<String> = disagreements | in_words,
    }
}

impl NodeEntry {
    /// A line for each setting that should be the same on all nodes and is not, and for each name that several nodes have now: those are shown with
    /// their identities.
    #[must_use]
    pub fn disagreements_of(nodes: &[Self]) -> Vec<String> {
        let is_shared = |node: &Self| {
            let mut others = nodes.iter().filter(|it| it.is_self || it.reachable);
            others.any(|it| it.name == node.name && it.id != node.id)
        };
        let mut lines = Vec::new();
        for node in nodes {
            let shown = match is_shared(node) {
                true => format!("{} ({})", node.name, node.id),
                false => node.name.clone(),
            };
            let words = node.disagreements.iter();
            lines.extend(words.map(|words| format!("{shown}: {words}")));
            if (node.is_self || node.reachable) && is_shared(node) {
                lines.push(format!(
                    "{shown}: another node has the same name: give each one of its own"
                ));
            }
        }
        lines
    }
}

fn in_words(all: Vec<thicket_node::Disagreement>) -> Vec<String> {
    let words = |it: thicket_node::Disagreement| {
        format!("{} = {:?} there, {:?} here", it.key, it.theirs, it.own)
    };
    all.into_iter().map(words).collect()
}

mirror! {
    /// A topic that clients of a node publish to: `GET /v1/topics`.
    TopicEntry as Topic of TopicReport {
        /// With the prefix of the listener.
        topic: String = topic,
        /// Identity of the node.
        node: String = node,
        /// Within a factor of 1.5.
        messages_per_s: f64 = messages_per_s,
    }
}

mirror! {
    /// Who belongs to the cluster: `GET /v1/membership`.
    #[derive(Copy)]
    MembershipEntry as Membership of MembershipReport {
        /// False: this side of the cluster has no majority, and takes no messages of QoS 1 and 2 and no new clients.
        serves: bool = serves,
        /// Nodes that ever joined and were not removed.
        members: u64 = members,
        /// Of them, those that are there, the one that answers included.
        reachable: u64 = reachable,
    }
}

mirror! {
    /// A session of this node: `GET /v1/sessions`.
    SessionEntry as Session of SessionReport {
        /// Client identifier.
        client_id: String = client_id,
        /// Whose it is; none: nobody's in particular.
        user_name: Option<String> = user_name,
        /// Whether a connection serves it now.
        connected: bool = connected,
        /// 3, 4 (3.1.1) or 5; none: unknown until its client connects, as after a failover or a restart.
        protocol_version: Option<u8> = protocol_version,
        /// Address of the client.
        peer: Option<String> = peer,
        /// Clean Start of its last CONNECT.
        clean_start: bool = clean_start,
        /// None: it ends with the connection.
        session_expiry_interval_s: Option<u32> = session_expiry_interval,
        /// How many.
        subscriptions: usize = subscriptions,
        /// Waiting to be sent.
        queued_messages: usize = queued_messages,
        /// Their bytes.
        queued_bytes: u64 = queued_bytes,
        /// Sent and not acknowledged.
        inflight_messages: usize = inflight,
        /// Not delivered since the session began.
        dropped_messages: u64 = dropped_messages,
        /// Other nodes that have all of it.
        backups: u8 = backups,
        /// The thread that serves it.
        worker: u8 = worker,
    }
}

mirror! {
    /// One direction of a bridge.
    BridgeLane as BridgeLane of LaneStatistics {
        /// Messages that came, those that came again included.
        received: u64 = received,
        /// Messages the other broker has.
        forwarded: u64 = forwarded,
        /// Messages of QoS 0 that were dropped because the queue was full.
        dropped: u64 = dropped,
        /// Messages the other broker does not take.
        refused: u64 = refused,
        /// Messages whose time was over.
        expired: u64 = expired,
        /// Messages that had crossed before.
        looped: u64 = looped,
        /// Messages no rule takes.
        unmatched: u64 = unmatched,
        /// On their way now.
        queue_messages: usize = queue_messages,
        /// Their bytes.
        queue_bytes: usize = queue_bytes,
    }
}

/// A bridge of this node: `GET /v1/bridges`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Bridge)]
pub struct BridgeEntry {
    /// As configured.
    pub name: String,
    /// HOST:PORT of the other broker.
    pub address: String,
    /// Whether this node has accepted it.
    pub local_connected: bool,
    /// Whether the other broker has.
    pub remote_connected: bool,
    /// How often this node has accepted it.
    pub local_connects: u64,
    /// How often the other broker has.
    pub remote_connects: u64,
    /// From this node to the other broker.
    pub outward: BridgeLane,
    /// From the other broker to this node.
    pub inward: BridgeLane,
}

impl From<&Monitor> for BridgeEntry {
    fn from(monitor: &Monitor) -> Self {
        let statistics = monitor.statistics();
        Self {
            name: monitor.name().to_owned(),
            address: monitor.place().to_owned(),
            local_connected: statistics.local.is_connected,
            remote_connected: statistics.remote.is_connected,
            local_connects: statistics.local.connects,
            remote_connects: statistics.remote.connects,
            outward: statistics.outward.into(),
            inward: statistics.inward.into(),
        }
    }
}

mirror! {
    /// A subscription of a session of this node: `GET /v1/subscriptions`.
    SubscriptionEntry as Subscription of SubscriptionReport {
        /// Whose.
        client_id: String = client_id,
        /// As the client wrote it, `$share/...` included.
        filter: String = filter,
        /// Maximum QoS.
        qos: u8 = qos,
        /// Option.
        no_local: bool = no_local,
        /// Option.
        retain_as_published: bool = retain_as_published,
        /// Property.
        subscription_identifier: Option<u32> = subscription_identifier,
    }
}

mirror! {
    /// The four traffics since the start (Detti III), what was not delivered, and what there is now.
    #[derive(Copy, Default)]
    TrafficCounts as TrafficCounts of Traffic {
        /// Sessions that two nodes had, in a partition, and that became one here.
        merged_sessions: u64 = merged_sessions,
        /// What was new in the other one of them.
        merged_messages: u64 = merged_messages,
        /// For sessions of nodes that are out, dropped or refused for want of room.
        hinted_dropped_messages: u64 = hinted_dropped_messages,
        /// Connections handed to the worker that has the takers of what they publish.
        relocated_connections: u64 = relocated_connections,
        /// From clients.
        external_in_messages: u64 = external_in_messages,
        /// From clients.
        external_in_bytes: u64 = external_in_bytes,
        /// To clients.
        external_out_messages: u64 = external_out_messages,
        /// To clients.
        external_out_bytes: u64 = external_out_bytes,
        /// From other nodes.
        internal_in_messages: u64 = internal_in_messages,
        /// From other nodes.
        internal_in_bytes: u64 = internal_in_bytes,
        /// To other nodes.
        internal_out_messages: u64 = internal_out_messages,
        /// To other nodes.
        internal_out_bytes: u64 = internal_out_bytes,
        /// An out-buffer or a queue was full.
        dropped_messages: u64 = dropped_messages,
        /// Of them, by the queues of sessions, one for each such session.
        queue_dropped_messages: u64 = queue_dropped_messages,
        /// Refused to their publishers, as the queue of a session was full.
        queue_refused_messages: u64 = queue_refused_messages,
        /// Their time was over.
        expired_messages: u64 = expired_messages,
        /// Wills published here, as the nodes of their clients were out.
        wills_of_lost_nodes: u64 = wills_of_lost_nodes,
        /// The publisher may not publish there.
        refused_messages: u64 = refused_messages,
        /// The session may not read the topic.
        withheld_messages: u64 = withheld_messages,
        /// Now.
        connections: u64 = connections,
        /// Now.
        sessions: u64 = sessions,
        /// Now.
        subscriptions: u64 = subscriptions,
        /// Now: of the subscriptions, shared ones.
        shared_subscriptions: u64 = shared_subscriptions,
        /// Now: messages that wait for sessions here, once for each.
        queued_messages: u64 = queued_messages,
        /// Now: of them.
        queued_bytes: u64 = queued_bytes,
        /// Now: backups here of sessions of other nodes.
        backups: u64 = backups,
        /// Now: persistent sessions here without a whole backup on another node, though there is one, and others whose will none holds.
        under_replicated_sessions: u64 = under_replicated_sessions,
        /// Now.
        retained_messages: u64 = retained_messages,
        /// Now: of them, with their topics.
        retained_bytes: u64 = retained_bytes,
        /// Now: their publishers are still owed an acknowledgement.
        unacknowledged_messages: u64 = unacknowledged_messages,
        /// Connections ended because those without a session held too much.
        half_open_refused: u64 = half_open_refused,
        /// Clients refused, as there was no room for a session of theirs, or they had as many as they may have.
        sessions_refused: u64 = sessions_refused,
        /// Sessions that ended because their clients stayed away for longer than their expiry intervals.
        expired_sessions: u64 = expired_sessions,
    }
}

mirror! {
    /// Where the memory of a worker, or of all of them, is: a part of `GET /v1/memory`.
    #[derive(Copy, Default)]
    MemoryEntry as Memory of MemoryReport {
        /// Connections of clients.
        connections: u64 = connections,
        /// Buffers of what is on its way to clients.
        out_buffer_bytes: u64 = out_buffer_bytes,
        /// Buffers of packets that are not whole yet.
        in_buffer_bytes: u64 = in_buffer_bytes,
        /// Of them, held by connections whose CONNECT is not answered.
        half_open_bytes: u64 = half_open_bytes,
        /// Sessions, connected or not.
        sessions: u64 = sessions,
        /// Waiting to be sent.
        queued_messages: u64 = queued_messages,
        /// Their bytes; a message that waits for several sessions counts for each.
        queued_bytes: u64 = queued_bytes,
        /// Not delivered since the start, as the queue of a session was full.
        queue_dropped_messages: u64 = queue_dropped_messages,
        /// Refused to their publishers since the start, as the queue of a session was full.
        queue_refused_messages: u64 = queue_refused_messages,
        /// Sent and not acknowledged.
        inflight_messages: u64 = inflight_messages,
        /// Their bytes.
        inflight_bytes: u64 = inflight_bytes,
        /// Filters known to the matching trees.
        subscriptions: u64 = subscriptions,
        /// Text of the filters of sessions.
        filter_bytes: u64 = filter_bytes,
        /// Wills of sessions.
        wills: u64 = wills,
        /// Their bytes, with what it costs to hold them.
        will_bytes: u64 = will_bytes,
        /// Backups here of sessions of other nodes; what is above counts none of them, but for their filters in the matching trees.
        backups: u64 = backups,
        /// Held for them: queued, in flight, or come before the owner spoke of them.
        backup_messages: u64 = backup_messages,
        /// Their bytes; a message that several backups hold counts for each.
        backup_bytes: u64 = backup_bytes,
        /// Wills held for clients of other nodes whose sessions end with their connections.
        held_wills: u64 = held_wills,
        /// Their bytes, with what it costs to hold them.
        held_will_bytes: u64 = held_will_bytes,
        /// Told to the nodes that hold backups of the sessions here, and not acknowledged.
        backup_stream_bytes: u64 = backup_stream_bytes,
        /// Messages that other threads were handed, and have not taken.
        handed_bytes: u64 = handed_bytes,
    }
}

mirror! {
    /// Something that is remembered of what was, such as the routes of topics: a part of `GET /v1/memory`.
    RememberedEntry as Remembered of Remembered {
        /// Of what.
        what: String = what | str::to_owned,
        /// How many there are.
        entries: u64 = entries,
        /// From so many on the older ones make room.
        at_most: u64 = at_most,
        /// Their bytes, where they are counted.
        bytes: Option<u64> = bytes,
    }
}

impl RememberedEntry {
    /// Adds up the tables of one name, which several threads have.
    fn sum(tables: impl IntoIterator<Item = Remembered>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for table in tables {
            match all.iter_mut().find(|known| known.what == table.what) {
                Some(known) => {
                    known.entries += table.entries;
                    known.at_most += table.at_most;
                    known.bytes = known.bytes.zip(table.bytes).map(|(a, b)| a + b);
                }
                None => all.push(table.into()),
            }
        }
        all
    }
}

/// Where the memory of a node is: `GET /v1/memory`. Bytes are what was asked for; the rest of the process is code, tables and what the
/// allocator keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryLedger {
    /// Of the process, in memory.
    #[schema(required)]
    pub resident_bytes: Option<u64>,
    /// From here on nobody new is let in.
    #[schema(required)]
    pub limit_bytes: Option<u64>,
    /// Retained messages.
    pub retained_messages: u64,
    /// Of their topics and records.
    pub retained_bytes: u64,
    /// Sent to other nodes and not acknowledged.
    pub link_bytes: u64,
    /// Messages of other nodes that workers were handed, and have not taken.
    pub handed_bytes: u64,
    /// Kept for sessions of nodes that are out.
    pub hinted_messages: u64,
    /// Of them.
    pub hinted_bytes: u64,
    /// For which there was no room, since the start.
    pub hinted_dropped_messages: u64,
    /// What is remembered of what was, the tables of all workers together; each has a bound.
    pub remembered: Vec<RememberedEntry>,
    /// Of all workers.
    pub total: MemoryEntry,
    /// Of each worker, in order.
    pub workers: Vec<MemoryEntry>,
}

impl MemoryLedger {
    /// Adds up the reports of the workers.
    #[must_use]
    pub fn new(
        resident_bytes: Option<u64>,
        limit_bytes: Option<u64>,
        hub: HubMemoryReport,
        remembered: impl IntoIterator<Item = Remembered>,
        workers: Vec<MemoryEntry>,
    ) -> Self {
        Self {
            resident_bytes,
            limit_bytes,
            retained_messages: hub.retained_messages,
            retained_bytes: hub.retained_bytes,
            link_bytes: hub.link_bytes,
            handed_bytes: hub.handed_bytes,
            hinted_messages: hub.hinted_messages,
            hinted_bytes: hub.hinted_bytes,
            hinted_dropped_messages: hub.hinted_dropped_messages,
            remembered: RememberedEntry::sum(remembered),
            total: workers
                .iter()
                .fold(MemoryEntry::default(), |sum, worker| sum.plus(*worker)),
            workers,
        }
    }
}

impl MemoryEntry {
    fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            out_buffer_bytes: self.out_buffer_bytes + other.out_buffer_bytes,
            in_buffer_bytes: self.in_buffer_bytes + other.in_buffer_bytes,
            half_open_bytes: self.half_open_bytes + other.half_open_bytes,
            sessions: self.sessions + other.sessions,
            queued_messages: self.queued_messages + other.queued_messages,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            queue_dropped_messages: self.queue_dropped_messages + other.queue_dropped_messages,
            queue_refused_messages: self.queue_refused_messages + other.queue_refused_messages,
            inflight_messages: self.inflight_messages + other.inflight_messages,
            inflight_bytes: self.inflight_bytes + other.inflight_bytes,
            subscriptions: self.subscriptions + other.subscriptions,
            filter_bytes: self.filter_bytes + other.filter_bytes,
            wills: self.wills + other.wills,
            will_bytes: self.will_bytes + other.will_bytes,
            backups: self.backups + other.backups,
            backup_messages: self.backup_messages + other.backup_messages,
            backup_bytes: self.backup_bytes + other.backup_bytes,
            held_wills: self.held_wills + other.held_wills,
            held_will_bytes: self.held_will_bytes + other.held_will_bytes,
            backup_stream_bytes: self.backup_stream_bytes + other.backup_stream_bytes,
            handed_bytes: self.handed_bytes + other.handed_bytes,
        }
    }
}

/// Whose connection to end: the body of `POST /v1/kick`, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Kick)]
#[serde(deny_unknown_fields)]
pub struct KickEntry {
    /// Client identifier.
    pub client_id: String,
    /// Of this user only, empty: of no user; otherwise whosever have this identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// Of listeners with this topic prefix only, empty: of those without one; otherwise of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_prefix: Option<String>,
    /// Its session ends too, whether it is connected or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_session: bool,
}

impl KickEntry {
    pub(crate) fn whose(&self) -> Whose<'_> {
        Whose {
            user_name: self.user_name.as_deref(),
            topic_prefix: self.topic_prefix.as_deref(),
        }
    }
}

/// What a node that is drained still has: the answer of `POST /v1/drain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Drain)]
pub struct DrainEntry {
    /// Clients connected.
    pub connections: u64,
    /// Sessions that outlive their connections.
    pub sessions: u64,
}

/// Which node to remove from the cluster: the body of `POST /v1/forget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Forget)]
pub struct ForgetEntry {
    /// Its name or its identity.
    pub node: String,
}

/// The node that was removed: the answer of `POST /v1/forget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Forgotten)]
pub struct ForgottenEntry {
    /// Hexadecimal.
    pub id: String,
    /// For people.
    pub name: String,
}

/// What to watch: the body of `POST /v1/trace`. One of the two.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRequest {
    /// All packets of this client.
    pub client_id: Option<String>,
    /// All PUBLISH packets whose topic matches this filter.
    pub topic: Option<String>,
}

/// A packet that was seen: a part of the answer of `POST /v1/trace/lines`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TraceLine)]
pub struct TraceEntry {
    /// Whose.
    pub client_id: String,
    /// `in`: from the client; `out`: to it.
    pub direction: String,
    /// Kind and facts, no payload.
    pub packet: String,
}

/// What was seen since the last time: the answer of `POST /v1/trace/lines`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct TraceLines {
    /// In order for each client.
    pub lines: Vec<TraceEntry>,
    /// Seen, and not kept because nobody asked in time.
    pub lost: u64,
}

/// What a node carried: `GET /v1/traffic`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Traffic)]
pub struct TrafficEntry {
    /// Of the node.
    pub total: TrafficCounts,
    /// Of the links to other nodes, and what the node retains.
    pub hub: TrafficCounts,
    /// Of each worker, in order.
    pub workers: Vec<TrafficCounts>,
}

impl TrafficEntry {
    /// Adds up the reports of the hub and the workers.
    #[must_use]
    pub fn new(hub: TrafficCounts, workers: Vec<TrafficCounts>) -> Self {
        let total = workers.iter().fold(hub, |sum, worker| sum.plus(*worker));
        Self {
            total,
            hub,
            workers,
        }
    }
}

impl TrafficCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            merged_sessions: self.merged_sessions + other.merged_sessions,
            merged_messages: self.merged_messages + other.merged_messages,
            hinted_dropped_messages: self.hinted_dropped_messages + other.hinted_dropped_messages,
            relocated_connections: self.relocated_connections + other.relocated_connections,
            external_in_messages: self.external_in_messages + other.external_in_messages,
            external_in_bytes: self.external_in_bytes + other.external_in_bytes,
            external_out_messages: self.external_out_messages + other.external_out_messages,
            external_out_bytes: self.external_out_bytes + other.external_out_bytes,
            internal_in_messages: self.internal_in_messages + other.internal_in_messages,
            internal_in_bytes: self.internal_in_bytes + other.internal_in_bytes,
            internal_out_messages: self.internal_out_messages + other.internal_out_messages,
            internal_out_bytes: self.internal_out_bytes + other.internal_out_bytes,
            dropped_messages: self.dropped_messages + other.dropped_messages,
            queue_dropped_messages: self.queue_dropped_messages + other.queue_dropped_messages,
            queue_refused_messages: self.queue_refused_messages + other.queue_refused_messages,
            expired_messages: self.expired_messages + other.expired_messages,
            wills_of_lost_nodes: self.wills_of_lost_nodes + other.wills_of_lost_nodes,
            refused_messages: self.refused_messages + other.refused_messages,
            withheld_messages: self.withheld_messages + other.withheld_messages,
            connections: self.connections + other.connections,
            sessions: self.sessions + other.sessions,
            subscriptions: self.subscriptions + other.subscriptions,
            shared_subscriptions: self.shared_subscriptions + other.shared_subscriptions,
            queued_messages: self.queued_messages + other.queued_messages,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            backups: self.backups + other.backups,
            under_replicated_sessions: self.under_replicated_sessions
                + other.under_replicated_sessions,
            retained_messages: self.retained_messages + other.retained_messages,
            retained_bytes: self.retained_bytes + other.retained_bytes,
            unacknowledged_messages: self.unacknowledged_messages + other.unacknowledged_messages,
            half_open_refused: self.half_open_refused + other.half_open_refused,
            sessions_refused: self.sessions_refused + other.sessions_refused,
            expired_sessions: self.expired_sessions + other.expired_sessions,
        }
    }
}

/// What came of a reload: `POST /v1/reload`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Reload)]
pub struct ReloadEntry {
    /// What could not be read, a line each; it stays as it was.
    pub problems: Vec<String>,
}

/// An answer with a status of 4xx or 5xx: a problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ErrorEntry {
    /// In a few words.
    #[serde(default)]
    #[schema(required)]
    pub title: String,
    /// The status of the answer.
    #[serde(default)]
    #[schema(required)]
    pub status: u16,
    /// In words.
    #[serde(default)]
    #[schema(required)]
    pub detail: String,
    /// The parameter or field that is not valid, if the problem is about one.
    #[serde(default)]
    #[schema(required)]
    pub field: Option<String>,
    /// The same as `detail`.
    // Nodes of older versions answer with this field alone, and existing programs read it.
    pub error: String,
}

impl ErrorEntry {
    pub(crate) fn new(status: StatusCode, detail: String) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            error: detail.clone(),
            detail,
            field: None,
        }
    }
}

impl From<&PlacementError> for ErrorEntry {
    fn from(error: &PlacementError) -> Self {
        let ProblemEntry {
            title,
            status,
            detail,
            field,
        } = error.into();
        Self {
            title,
            status,
            error: detail.clone(),
            detail,
            field,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_json_carry_their_units() {
        let report = SessionReport {
            client_id: "a".into(),
            user_name: None,
            connected: true,
            protocol_version: Some(5),
            peer: Some("127.0.0.1:5".into()),
            clean_start: false,
            session_expiry_interval: Some(60),
            subscriptions: 1,
            queued_messages: 2,
            queued_bytes: 3,
            inflight: 4,
            dropped_messages: 5,
            backups: 2,
            worker: 1,
        };
        let json = serde_json::to_value(SessionEntry::from(report)).expect("plain data");
        for (key, value) in [
            ("session_expiry_interval_s", 60),
            ("queued_bytes", 3),
            ("inflight_messages", 4),
            ("worker", 1),
        ] {
            assert_eq!(json[key], value, "{key}");
        }
    }

    #[test]
    fn the_traffic_of_a_node_is_that_of_its_hub_and_its_workers() {
        let worker = |messages| TrafficCounts {
            external_in_messages: messages,
            sessions: 1,
            ..TrafficCounts::default()
        };
        let hub = TrafficCounts {
            internal_in_messages: 5,
            ..TrafficCounts::default()
        };
        let total = TrafficEntry::new(hub, vec![worker(3), worker(4)]).total;
        let sums = (
            total.external_in_messages,
            total.sessions,
            total.internal_in_messages,
        );
        assert_eq!(sums, (7, 2, 5));
    }
}
