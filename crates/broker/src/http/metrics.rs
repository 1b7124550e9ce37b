//! The metrics of a node: counters end in `_total`, units are base units. Each is described once, for the text of Prometheus and for OTLP.

mod bridges;
mod disk;
mod hooks;
mod limits;
mod otlp;
mod overlay;
mod page;
mod placements;
mod rebalance;
mod tenants;

use thicket_node::{RedirectionReport, TenantId};
use thicket_process::Process;
use thicket_telemetry::Kind::{Counter, Gauge};
use thicket_telemetry::{Table, prometheus};

use self::page::Page;
use super::guard::Guard;
use super::inspect::Inspector;
use super::silence::Silence;
use crate::api::redirection::NodeStateEntry;
use crate::api::{MembershipEntry, NodeEntry, TrafficCounts};
use crate::certificates::CertificateDays;
use crate::counters::Counters;
use crate::tokens::TokenDays;

/// All metrics as text.
pub(super) async fn text(inspector: &Inspector) -> Result<String, Silence> {
    table(inspector).await.map(|table| prometheus::text(&table))
}

/// All metrics.
pub(crate) async fn table(inspector: &Inspector) -> Result<Table, Silence> {
    let traffic = inspector.traffic().await?.total;
    let nodes = inspector.nodes().await?;
    let ready = inspector.readiness().await?.is_ok();
    let tenants = inspector.tenants.len();
    let of_hub = inspector.of_hub(move |hub| {
        let tenants = (0..).take(tenants).map(TenantId);
        let retained = tenants.map(|tenant| hub.tenant_retained(tenant));
        let retained: Vec<_> = retained.collect();
        (hub.memory().retained_bytes, retained, hub.remembered())
    });
    let (retained_bytes, of_tenants, tables) = of_hub.await?;
    let overlay = inspector.overlay().await?;
    let mut page = of_node(&traffic, &nodes, ready, &inspector.counters);
    limits::append(&mut page, inspector, &traffic, retained_bytes);
    tenants::append(&mut page, &inspector.tenants, &of_tenants);
    page.membership(&inspector.membership().await?);
    page.loads(&nodes);
    page.redirections(&inspector.redirections().await?);
    placements::append(&mut page, &tables);
    rebalance::append(&mut page, &inspector.rebalance_counts().await?);
    if let Some(disk) = &inspector.disk {
        disk::append(&mut page, disk);
    }
    page.process();
    page.certificates(&inspector.certificates.days());
    page.tokens(inspector.guard.as_ref().map(Guard::token_days));
    bridges::append(&mut page, &inspector.bridges);
    hooks::append(&mut page, &inspector.hooks.statistics());
    if let Some(exporter) = inspector.counters.exporter.get() {
        otlp::append(&mut page, &exporter.statistics());
    }
    overlay::append(&mut page, &overlay);
    Ok(page.0)
}

fn of_node(traffic: &TrafficCounts, nodes: &[NodeEntry], ready: bool, counters: &Counters) -> Page {
    let mut page = Page::default();
    page.family("thicket_build_info", Gauge, "The version that runs");
    page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
    page.single(
        "thicket_ready",
        Gauge,
        "Whether clients are served here",
        u64::from(ready),
    );
    page.traffic(traffic);
    page.gauges(traffic);
    page.nodes(nodes);
    page.shell(counters);
    page
}

impl Page {
    /// Metrics of the process, with the names that all Prometheus clients use.
    fn process(&mut self) {
        let process = Process::own();
        let open = process.open_files().ok();
        for (name, kind, help, value) in [
            (
                "process_cpu_seconds_total",
                Counter,
                "User and system time of all threads",
                process.cpu_seconds().ok(),
            ),
            (
                "process_start_time_seconds",
                Gauge,
                "When the process started, in seconds since 1970",
                process.start_seconds().ok(),
            ),
            (
                "process_resident_memory_bytes",
                Gauge,
                "Of the process, in memory",
                process.resident_bytes().ok().map(|bytes| bytes as f64),
            ),
            (
                "process_threads",
                Gauge,
                "Threads",
                process.threads().ok().map(f64::from),
            ),
            (
                "process_open_fds",
                Gauge,
                "Files and sockets that are open",
                open.map(|count| count as f64),
            ),
            (
                "process_max_fds",
                Gauge,
                "Files and sockets that may be open",
                process.most_open_files().map(|count| count as f64),
            ),
        ] {
            if let Some(value) = value {
                self.family(name, kind, help);
                self.sample(&[], value);
            }
        }
    }

    /// The four traffics (Detti III): external with clients, internal between nodes, in and out.
    fn traffic(&mut self, traffic: &TrafficCounts) {
        let four = [
            (
                "external",
                "in",
                traffic.external_in_messages,
                traffic.external_in_bytes,
            ),
            (
                "external",
                "out",
                traffic.external_out_messages,
                traffic.external_out_bytes,
            ),
            (
                "internal",
                "in",
                traffic.internal_in_messages,
                traffic.internal_in_bytes,
            ),
            (
                "internal",
                "out",
                traffic.internal_out_messages,
                traffic.internal_out_bytes,
            ),
        ];
        self.family(
            "thicket_messages_total",
            Counter,
            "Messages, with clients (external) and between nodes (internal)",
        );
        for (side, direction, messages, _) in four {
            self.sample(&[("traffic", side), ("direction", direction)], messages);
        }
        self.family("thicket_bytes_total", Counter, "Bytes of those messages");
        for (side, direction, _, bytes) in four {
            self.sample(&[("traffic", side), ("direction", direction)], bytes);
        }
        for (name, help, value) in [
            (
                "thicket_merged_sessions_total",
                "Sessions that were served by two nodes during a partition and were merged here",
                traffic.merged_sessions,
            ),
            (
                "thicket_hinted_dropped_messages_total",
                "Messages for sessions of nodes that are down, dropped or refused because a limit was reached",
                traffic.hinted_dropped_messages,
            ),
            (
                "thicket_merged_messages_total",
                "Messages received with them; some may be delivered twice",
                traffic.merged_messages,
            ),
            (
                "thicket_forgotten_finishes_total",
                "Ranges of finished messages given up over the limit: they may come once more",
                traffic.forgotten_finishes,
            ),
            (
                "thicket_wills_of_lost_nodes_total",
                "Wills published here because the nodes of their clients were down",
                traffic.wills_of_lost_nodes,
            ),
            (
                "thicket_relocated_connections_total",
                "Clients moved to the thread that has the recipients of what they publish",
                traffic.relocated_connections,
            ),
            (
                "thicket_dropped_messages_total",
                "Not delivered: an out-buffer or a queue was full",
                traffic.dropped_messages,
            ),
            (
                "thicket_queue_dropped_messages_total",
                "Of the dropped ones, those for which the queue of a session was full",
                traffic.queue_dropped_messages,
            ),
            (
                "thicket_queue_refused_messages_total",
                "Refused to their publishers because the queue of a session was full",
                traffic.queue_refused_messages,
            ),
            (
                "thicket_expired_messages_total",
                "Not delivered: they had expired",
                traffic.expired_messages,
            ),
            (
                "thicket_refused_messages_total",
                "Published where the publisher may not, and dropped",
                traffic.refused_messages,
            ),
            (
                "thicket_withheld_messages_total",
                "Not delivered: the session may not read the topic",
                traffic.withheld_messages,
            ),
        ] {
            self.single(name, Counter, help, value);
        }
    }

    /// Current values.
    fn gauges(&mut self, traffic: &TrafficCounts) {
        for (name, help, value) in [
            (
                "thicket_connections",
                "Clients connected",
                traffic.connections,
            ),
            (
                "thicket_sessions",
                "Sessions, connected or not",
                traffic.sessions,
            ),
            (
                "thicket_session_backups",
                "Backups of sessions of other nodes",
                traffic.backups,
            ),
            (
                "thicket_under_replicated_sessions",
                "Under-replicated sessions: with fewer backups on other nodes than they should have, or whose will no other node holds",
                traffic.under_replicated_sessions,
            ),
            (
                "thicket_subscriptions",
                "Subscriptions of those sessions",
                traffic.subscriptions,
            ),
            (
                "thicket_shared_subscriptions",
                "Of the subscriptions, shared ones",
                traffic.shared_subscriptions,
            ),
            (
                "thicket_queued_messages",
                "Messages that wait for sessions here, once for each session",
                traffic.queued_messages,
            ),
            (
                "thicket_queued_bytes",
                "Bytes of these messages",
                traffic.queued_bytes,
            ),
            (
                "thicket_retained_messages",
                "Retained messages",
                traffic.retained_messages,
            ),
            (
                "thicket_unacknowledged_messages",
                "Messages whose publisher has not been sent an acknowledgement yet",
                traffic.unacknowledged_messages,
            ),
        ] {
            self.single(name, Gauge, help, value);
        }
    }

    fn certificates(&mut self, all: &[CertificateDays]) {
        let name = "thicket_certificate_expiry_seconds";
        self.family(
            name,
            Gauge,
            "Seconds that the certificates of a file are still valid; below 0: expired",
        );
        for it in all {
            let file = it.path.to_string_lossy();
            self.sample(&[("key", it.key), ("file", &file)], it.seconds);
        }
    }

    fn tokens(&mut self, all: Option<Vec<TokenDays>>) {
        self.family(
            "thicket_http_token_expiry_seconds",
            Gauge,
            "Seconds that a token of the HTTP API is still valid",
        );
        for it in all.iter().flatten() {
            self.sample(&[("token", &it.name)], it.seconds);
        }
    }

    fn nodes(&mut self, nodes: &[NodeEntry]) {
        let reachable = nodes
            .iter()
            .filter(|node| node.reachable || node.is_self)
            .count();
        self.family(
            "thicket_nodes",
            Gauge,
            "Nodes of the cluster, this one included",
        );
        self.sample(&[("state", "reachable")], reachable);
        self.sample(&[("state", "unreachable")], nodes.len() - reachable);
        self.family(
            "thicket_link_rtt_seconds",
            Gauge,
            "Round trip of the link to a node",
        );
        let mut kept = Vec::new();
        for node in nodes {
            if node.hinted_messages > 0 {
                kept.push(node);
            }
            if let Some(rtt_us) = node.rtt_us {
                let seconds = std::time::Duration::from_micros(rtt_us).as_secs_f64();
                self.sample(&[("node", &node.name), ("id", &node.id)], seconds);
            }
        }
        self.family(
            "thicket_clock_offset_seconds",
            Gauge,
            "How far the clock of a node is ahead of that of this one; negative: behind",
        );
        for node in nodes {
            if let Some(ahead_ms) = node.clock_ahead_ms {
                let labels = [("node", &*node.name), ("id", &*node.id)];
                self.sample(&labels, ahead_ms as f64 / 1000.0);
            }
        }
        self.hints(&kept);
    }

    /// The load that each node reports; a node that reports none has no sample.
    fn loads(&mut self, nodes: &[NodeEntry]) {
        type Value = fn(&NodeStateEntry) -> Option<f64>;
        let gauges: [(&str, &str, Value); 6] = [
            (
                "thicket_node_cpu_ratio",
                "CPU of a node's process, a mean of 5 s, as a ratio of what it may use",
                |state| state.cpu_ratio,
            ),
            (
                "thicket_node_memory_bytes",
                "Memory of a node's process",
                |state| state.memory_bytes.map(|bytes| bytes as f64),
            ),
            (
                "thicket_node_memory_limit_bytes",
                "Memory above which a node refuses new sessions",
                |state| state.memory_limit_bytes.map(|bytes| bytes as f64),
            ),
            (
                "thicket_node_connections",
                "Clients connected to a node",
                |state| Some(state.connections as f64),
            ),
            (
                "thicket_node_draining",
                "Whether a node is being drained",
                |state| Some(f64::from(u8::from(state.draining))),
            ),
            (
                "thicket_node_full",
                "Whether a node refuses new clients because it is over its limit of memory or connections",
                |state| Some(f64::from(u8::from(state.full))),
            ),
        ];
        for (name, help, value) in gauges {
            self.family(name, Gauge, help);
            for node in nodes {
                if let Some(value) = node.state.as_ref().and_then(value) {
                    self.sample(&[("node", &node.name), ("id", &node.id)], value);
                }
            }
        }
        let rates = |state: &NodeStateEntry| {
            [
                (
                    "external",
                    "in",
                    state.external.in_messages_per_s,
                    state.external.in_bytes_per_s,
                ),
                (
                    "external",
                    "out",
                    state.external.out_messages_per_s,
                    state.external.out_bytes_per_s,
                ),
                (
                    "internal",
                    "in",
                    state.internal.in_messages_per_s,
                    state.internal.in_bytes_per_s,
                ),
                (
                    "internal",
                    "out",
                    state.internal.out_messages_per_s,
                    state.internal.out_bytes_per_s,
                ),
            ]
        };
        for (name, help, is_bytes) in [
            (
                "thicket_node_messages_per_second",
                "Messages of a node in the last second",
                false,
            ),
            (
                "thicket_node_bytes_per_second",
                "Bytes of those messages",
                true,
            ),
        ] {
            self.family(name, Gauge, help);
            for node in nodes {
                for (traffic, direction, messages, bytes) in node.state.iter().flat_map(rates) {
                    let labels = [
                        ("node", &*node.name),
                        ("id", &*node.id),
                        ("traffic", traffic),
                        ("direction", direction),
                    ];
                    self.sample(&labels, if is_bytes { bytes } else { messages });
                }
            }
        }
    }

    fn redirections(&mut self, report: &RedirectionReport) {
        let name = "thicket_redirect_decisions_total";
        let help = "Clients that were sent to another node, or served although there is redirection, by reason";
        self.family(name, Counter, help);
        for (reason, count) in &report.decisions {
            let decision = if reason.is_redirected() {
                "redirected"
            } else {
                "served"
            };
            self.sample(&[("decision", decision), ("reason", reason.name())], count);
        }
    }

    /// Hinted handoff for nodes that are down.
    fn hints(&mut self, nodes: &[&NodeEntry]) {
        let value = |node: &NodeEntry| [node.hinted_messages, node.hinted_bytes];
        for (index, (name, help)) in [
            (
                "thicket_hinted_messages",
                "Messages kept here for sessions of a node that is down",
            ),
            ("thicket_hinted_bytes", "Bytes of those messages"),
        ]
        .into_iter()
        .enumerate()
        {
            self.family(name, Gauge, help);
            for node in nodes {
                let labels = [("node", &*node.name), ("id", &*node.id)];
                self.sample(&labels, value(node)[index]);
            }
        }
    }

    fn membership(&mut self, membership: &MembershipEntry) {
        for (name, help, value) in [
            (
                "thicket_members",
                "Nodes that ever joined the cluster and were not removed",
                membership.members,
            ),
            (
                "thicket_members_reachable",
                "Of those members, the ones that are reachable, this node included",
                membership.reachable,
            ),
            (
                "thicket_is_minority",
                "Whether this side of the cluster does not serve because it has no quorum",
                u64::from(!membership.serves),
            ),
        ] {
            self.single(name, Gauge, help, value);
        }
    }

    fn shell(&mut self, counters: &Counters) {
        self.histogram(
            "thicket_round_seconds",
            "How long a round of a thread took",
            &counters.rounds.read(),
        );
        self.histogram(
            "thicket_delivery_seconds",
            "Of each message delivered to a client, from when its thread received it to when it was written",
            &counters.deliveries.read(),
        );
        let all = [
            (
                "thicket_accepted_connections_total",
                "Connections accepted",
                &counters.accepted,
            ),
            (
                "thicket_proxy_headers_refused_total",
                "Connections without a valid PROXY header at listeners that require one",
                &counters.prefaces_refused,
            ),
            (
                "thicket_accept_exhausted_total",
                "Times a listener paused because the process had no descriptor left",
                &counters.accept_exhausted,
            ),
            (
                "thicket_announcements_malformed_total",
                "Announcements that could not be read",
                &counters.announcements_malformed,
            ),
            (
                "thicket_announcements_strange_total",
                "Announcements of other clusters or versions, or not signed with the secret of this one",
                &counters.announcements_strange,
            ),
            (
                "thicket_announcements_repeated_total",
                "Signed announcements that were received before",
                &counters.announcements_repeated,
            ),
            (
                "thicket_authentications_total",
                "Users authenticated or refused",
                &counters.authentications,
            ),
            (
                "thicket_authentications_refused_total",
                "Users refused",
                &counters.authentications_refused,
            ),
            (
                "thicket_authentications_slow_total",
                "Users whose password was hashed, or the signature of whose token was checked",
                &counters.authentications_slow,
            ),
            (
                "thicket_hook_requests_total",
                "Requests to the authentication hook",
                &counters.hook_requests,
            ),
            (
                "thicket_hook_failures_total",
                "Clients for whom the hook gave no answer",
                &counters.hook_failures,
            ),
            (
                "thicket_jwt_key_fetches_total",
                "Fetches of the keys of tokens from their provider",
                &counters.jwt_key_fetches,
            ),
            (
                "thicket_jwt_key_fetch_failures_total",
                "Fetches of the keys of tokens that failed",
                &counters.jwt_key_fetch_failures,
            ),
            (
                "thicket_flapping_bans_total",
                "Clients banned by this node because they connected too often",
                &counters.flapping_bans,
            ),
        ];
        for (name, help, counter) in all {
            self.single(name, Counter, help, counter.value());
        }
        let name = "thicket_jwt_keys_age_seconds";
        self.family(
            name,
            Gauge,
            "Since the keys of tokens were last fetched from their provider",
        );
        if let Some(age) = counters.jwt_keys_fetched.age() {
            self.sample(&[], age.as_secs());
        }
        self.single(
            "thicket_client_connects_total",
            Counter,
            "Clients accepted",
            counters.connects.value(),
        );
        for (name, help, reasons) in [
            (
                "thicket_client_disconnects_total",
                "Clients disconnected, by reason",
                &counters.disconnects,
            ),
            (
                "thicket_connects_refused_total",
                "CONNECTs refused, by reason code, and what came in their place: `tls` or `http` at a port without",
                &counters.connects_refused,
            ),
            (
                "thicket_handshakes_failed_total",
                "TLS and WebSocket handshakes of clients that failed, by reason",
                &counters.handshakes_failed,
            ),
        ] {
            self.family(name, Counter, help);
            for (reason, count) in reasons.values() {
                self.sample(&[("reason", &reason)], count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_lines_with_labels() {
        let traffic = TrafficCounts {
            external_in_messages: 7,
            internal_out_bytes: 9,
            ..TrafficCounts::default()
        };
        let node = NodeEntry {
            name: "a\"b".into(),
            id: "0f".into(),
            incarnation: 1,
            address: "127.0.0.1:1883".into(),
            is_self: false,
            reachable: true,
            out_since_ms: None,
            wire_version: Some(4),
            rtt_us: Some(1500),
            clock_ahead_ms: Some(-2_500),
            key: None,
            clients: 0,
            subscriptions: 0,
            state: None,
            hinted_messages: 2,
            hinted_bytes: 300,
            site: None,
            disagreements: Vec::new(),
        };
        let page = of_node(&traffic, &[node], true, &Counters::default());
        let text = prometheus::text(&page.0);
        for line in [
            "thicket_ready 1",
            "thicket_messages_total{traffic=\"external\",direction=\"in\"} 7",
            "thicket_bytes_total{traffic=\"internal\",direction=\"out\"} 9",
            "thicket_nodes{state=\"reachable\"} 1",
            "thicket_link_rtt_seconds{node=\"a\\\"b\",id=\"0f\"} 0.0015",
            "thicket_clock_offset_seconds{node=\"a\\\"b\",id=\"0f\"} -2.5",
            "thicket_hinted_messages{node=\"a\\\"b\",id=\"0f\"} 2",
            "thicket_hinted_bytes{node=\"a\\\"b\",id=\"0f\"} 300",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "`{line}` in\n{text}"
            );
        }
    }
}
