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
        /// Its name, for people.
        name: String = name,
        /// Hexadecimal.
        id: String = id,
        /// Increases with every start.
        incarnation: u64 = incarnation,
        /// HOST:PORT for clients and other nodes.
        address: String = address,
        /// Whether it is the node that answers.
        is_self: bool = is_self,
        /// Whether messages reach it.
        reachable: bool = reachable,
        /// Unix time in milliseconds since when it is down, as far as the node that answers has seen it.
        out_since_ms: Option<u64> = out_since_ms,
        /// Version of the links with it; none while it is down.
        wire_version: Option<u16> = wire_version,
        /// Round trip of the link; none for the node that answers.
        rtt_us: Option<u64> = rtt_us,
        /// Milliseconds that its clock is ahead of that of the node that answers (negative: behind); none: not known, or it is that node.
        clock_ahead_ms: Option<i64> = clock_ahead_ms,
        /// Name of the key that authenticates its link, or that the node that answers uses; none if links are not authenticated or go through other nodes.
        key: Option<String> = key,
        /// Clients connected to it.
        clients: u64 = clients,
        /// Subscriptions at it.
        subscriptions: u64 = subscriptions,
        /// Its load and its addresses for clients; none: not known, because it is down or of an older version.
        state: Option<NodeStateEntry> = state | state_entry,
        /// Messages kept here for its sessions while it is down (hinted handoff).
        hinted_messages: u64 = hinted_messages,
        /// Bytes of these messages.
        hinted_bytes: u64 = hinted_bytes,
        /// The site in its configuration; none: it has none, or it is down.
        site: Option<String> = site,
        /// Settings that must be the same on all nodes, but differ from those of the node that answers, in words.
        disagreements: Vec<String> = disagreements | in_words,
    }
}

impl NodeEntry {
    /// A line for each setting that should be the same on all nodes and is not, for each clock that is far from that of the node that answers, and for
    /// each name that several nodes have now: those are shown with their identities.
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
            if let Some(words) = node.clock_ahead_ms.and_then(far_clock) {
                lines.push(format!("{shown}: {words}"));
            }
            if (node.is_self || node.reachable) && is_shared(node) {
                lines.push(format!(
                    "{shown}: another node has the same name: give each one of its own"
                ));
            }
        }
        lines
    }
}

/// From this difference on, clocks are far from each other, ms.
const FAR_MS: u64 = 2_000;

fn far_clock(ahead_ms: i64) -> Option<String> {
    let seconds = ahead_ms.unsigned_abs() as f64 / 1000.0;
    let way = if ahead_ms > 0 { "ahead" } else { "behind" };
    (ahead_ms.unsigned_abs() >= FAR_MS).then(|| format!("the clock is {seconds:.1} s {way}"))
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
    /// The members of the cluster: `GET /v1/membership`.
    #[derive(Copy)]
    MembershipEntry as Membership of MembershipReport {
        /// False: this side of the cluster has no quorum, and accepts no messages of QoS 1 and 2 and no new clients.
        serves: bool = serves,
        /// Nodes that ever joined and were not removed.
        members: u64 = members,
        /// Members that are reachable, the node that answers included.
        reachable: u64 = reachable,
    }
}

mirror! {
    /// A session of this node: `GET /v1/sessions`.
    SessionEntry as Session of SessionReport {
        /// Client identifier.
        client_id: String = client_id,
        /// Its user; none: it belongs to no user.
        user_name: Option<String> = user_name,
        /// Whether its client is connected now.
        connected: bool = connected,
        /// 3, 4 (3.1.1) or 5; none: unknown until its client connects, as after a failover or a restart.
        protocol_version: Option<u8> = protocol_version,
        /// Address of the client.
        peer: Option<String> = peer,
        /// Clean Start of its last CONNECT.
        clean_start: bool = clean_start,
        /// Its expiry interval; none: it ends with the connection.
        session_expiry_interval_s: Option<u32> = session_expiry_interval,
        /// Number of its subscriptions.
        subscriptions: usize = subscriptions,
        /// Messages that wait to be sent.
        queued_messages: usize = queued_messages,
        /// Their bytes.
        queued_bytes: u64 = queued_bytes,
        /// Messages sent and not acknowledged.
        inflight_messages: usize = inflight,
        /// Messages that were not delivered since the session began.
        dropped_messages: u64 = dropped_messages,
        /// Backups on other nodes that have the whole session.
        backups: u8 = backups,
        /// The thread that serves it.
        worker: u8 = worker,
    }
}

mirror! {
    /// One direction of a bridge.
    BridgeLane as BridgeLane of LaneStatistics {
        /// Messages received, including those sent again.
        received: u64 = received,
        /// Messages that the other broker has acknowledged.
        forwarded: u64 = forwarded,
        /// Messages of QoS 0 that were dropped because the queue was full.
        dropped: u64 = dropped,
        /// Messages that the other broker refused.
        refused: u64 = refused,
        /// Messages that expired.
        expired: u64 = expired,
        /// Messages that had crossed the bridge before.
        looped: u64 = looped,
        /// Messages without a matching rule.
        unmatched: u64 = unmatched,
        /// Messages in the queue now.
        queue_messages: usize = queue_messages,
        /// Bytes of these messages.
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
    /// The four kinds of traffic since the start (Detti III), messages that were not delivered, and gauges.
    #[derive(Copy, Default)]
    TrafficCounts as TrafficCounts of Traffic {
        /// Sessions with two branches after a partition that were merged here.
        merged_sessions: u64 = merged_sessions,
        /// Messages that only the other branch had.
        merged_messages: u64 = merged_messages,
        /// Ranges of finished messages that were given up over the limit. Their messages may come once more.
        forgotten_finishes: u64 = forgotten_finishes,
        /// Messages for sessions of nodes that are down, dropped or refused because the limit was reached.
        hinted_dropped_messages: u64 = hinted_dropped_messages,
        /// Connections that moved to the worker of their matching subscribers.
        relocated_connections: u64 = relocated_connections,
        /// Messages from clients.
        external_in_messages: u64 = external_in_messages,
        /// Bytes from clients.
        external_in_bytes: u64 = external_in_bytes,
        /// Messages to clients.
        external_out_messages: u64 = external_out_messages,
        /// Bytes to clients.
        external_out_bytes: u64 = external_out_bytes,
        /// Messages from other nodes.
        internal_in_messages: u64 = internal_in_messages,
        /// Bytes from other nodes.
        internal_in_bytes: u64 = internal_in_bytes,
        /// Messages to other nodes.
        internal_out_messages: u64 = internal_out_messages,
        /// Bytes to other nodes.
        internal_out_bytes: u64 = internal_out_bytes,
        /// Messages dropped because an out-buffer or a queue was full.
        dropped_messages: u64 = dropped_messages,
        /// Those of them that were dropped by queues of sessions, one for each such session.
        queue_dropped_messages: u64 = queue_dropped_messages,
        /// Messages refused to their publishers because the queue of a session was full.
        queue_refused_messages: u64 = queue_refused_messages,
        /// Messages that expired.
        expired_messages: u64 = expired_messages,
        /// Wills published here because the nodes of their clients were down.
        wills_of_lost_nodes: u64 = wills_of_lost_nodes,
        /// Messages whose publisher may not publish to the topic.
        refused_messages: u64 = refused_messages,
        /// Messages whose topic the session may not read.
        withheld_messages: u64 = withheld_messages,
        /// Connections now.
        connections: u64 = connections,
        /// Sessions now.
        sessions: u64 = sessions,
        /// Subscriptions now.
        subscriptions: u64 = subscriptions,
        /// Shared subscriptions among these now.
        shared_subscriptions: u64 = shared_subscriptions,
        /// Messages that wait for sessions here now, once for each session.
        queued_messages: u64 = queued_messages,
        /// Bytes of these messages now.
        queued_bytes: u64 = queued_bytes,
        /// Backups here of sessions of other nodes now.
        backups: u64 = backups,
        /// Persistent sessions here without a complete backup although another node is up, and other sessions whose will no other node holds, now.
        under_replicated_sessions: u64 = under_replicated_sessions,
        /// Retained messages now.
        retained_messages: u64 = retained_messages,
        /// Bytes of these messages and their topics now.
        retained_bytes: u64 = retained_bytes,
        /// Messages that are not acknowledged to their publishers yet, now.
        unacknowledged_messages: u64 = unacknowledged_messages,
        /// Connections closed because those without a session held too much memory.
        half_open_refused: u64 = half_open_refused,
        /// Clients refused because the limit of sessions was reached, or their own limit.
        sessions_refused: u64 = sessions_refused,
        /// Sessions that ended because their clients were away for longer than their expiry intervals.
        expired_sessions: u64 = expired_sessions,
    }
}

mirror! {
    /// The memory of a worker, or of all workers: a part of `GET /v1/memory`.
    #[derive(Copy, Default)]
    MemoryEntry as Memory of MemoryReport {
        /// Connections of clients.
        connections: u64 = connections,
        /// Buffers of packets to clients.
        out_buffer_bytes: u64 = out_buffer_bytes,
        /// Buffers of incomplete packets.
        in_buffer_bytes: u64 = in_buffer_bytes,
        /// Those of them that are of connections whose CONNECT is not answered.
        half_open_bytes: u64 = half_open_bytes,
        /// Sessions, connected or not.
        sessions: u64 = sessions,
        /// Messages that wait to be sent.
        queued_messages: u64 = queued_messages,
        /// Their bytes; a message that waits for several sessions counts for each.
        queued_bytes: u64 = queued_bytes,
        /// Messages dropped since the start because the queue of a session was full.
        queue_dropped_messages: u64 = queue_dropped_messages,
        /// Messages refused to their publishers since the start because the queue of a session was full.
        queue_refused_messages: u64 = queue_refused_messages,
        /// Messages sent and not acknowledged.
        inflight_messages: u64 = inflight_messages,
        /// Their bytes.
        inflight_bytes: u64 = inflight_bytes,
        /// Filters in the matching trees.
        subscriptions: u64 = subscriptions,
        /// Text of the filters of sessions.
        filter_bytes: u64 = filter_bytes,
        /// Wills of sessions.
        wills: u64 = wills,
        /// Their bytes, with the memory that holds them.
        will_bytes: u64 = will_bytes,
        /// Backups here of sessions of other nodes. The figures above do not include them, except for their filters in the matching trees.
        backups: u64 = backups,
        /// Messages of backups: queued, in flight, or received before the primary named them.
        backup_messages: u64 = backup_messages,
        /// Their bytes; a message of several backups counts for each.
        backup_bytes: u64 = backup_bytes,
        /// Wills held for clients of other nodes whose sessions end with their connections.
        held_wills: u64 = held_wills,
        /// Their bytes, with the memory that holds them.
        held_will_bytes: u64 = held_will_bytes,
        /// Sent to the backups of the sessions here, and not acknowledged.
        backup_stream_bytes: u64 = backup_stream_bytes,
        /// Messages handed to other threads and not processed there yet.
        handed_bytes: u64 = handed_bytes,
    }
}

mirror! {
    /// A table of earlier facts, such as the routes of topics: a part of `GET /v1/memory`.
    RememberedEntry as Remembered of Remembered {
        /// Kind of the entries.
        what: String = what | str::to_owned,
        /// Number of entries.
        entries: u64 = entries,
        /// Limit; beyond it the oldest entries are dropped.
        at_most: u64 = at_most,
        /// Their bytes, if they are counted.
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

/// The memory of a node: `GET /v1/memory`. Bytes are those that were requested from the allocator; the rest of the process is code, tables and
/// free memory of the allocator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryLedger {
    /// Resident memory of the process.
    #[schema(required)]
    pub resident_bytes: Option<u64>,
    /// Above this no new clients are accepted.
    #[schema(required)]
    pub limit_bytes: Option<u64>,
    /// Retained messages.
    pub retained_messages: u64,
    /// Bytes of their topics and records.
    pub retained_bytes: u64,
    /// Sent to other nodes and not acknowledged.
    pub link_bytes: u64,
    /// Messages of other nodes handed to workers and not processed there yet.
    pub handed_bytes: u64,
    /// Messages kept for sessions of nodes that are down (hinted handoff).
    pub hinted_messages: u64,
    /// Bytes of these messages.
    pub hinted_bytes: u64,
    /// Messages of hinted handoff dropped because the limit was reached, since the start.
    pub hinted_dropped_messages: u64,
    /// Tables of earlier facts, those of all workers added up; each has a limit.
    pub remembered: Vec<RememberedEntry>,
    /// Of all workers together.
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
    /// Only of this user; empty: only without a user. Absent: of any user.
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

/// The remaining clients and sessions of a node that is drained: the answer of `POST /v1/drain`.
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

/// Packets seen since the last request: the answer of `POST /v1/trace/lines`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct TraceLines {
    /// In order for each client.
    pub lines: Vec<TraceEntry>,
    /// Seen, but not kept because no request came in time.
    pub lost: u64,
}

/// The traffic of a node: `GET /v1/traffic`.
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
            forgotten_finishes: self.forgotten_finishes + other.forgotten_finishes,
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

/// The result of a reload: `POST /v1/reload`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Reload)]
pub struct ReloadEntry {
    /// What could not be read, a line for each; the previous value stays in use.
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
