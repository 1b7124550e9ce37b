//! Answers of the API as tables.

use std::time::Duration;

use thicket_access::text_of_time;
use thicket_bench::report::render;
use thicket_broker::api::{
    BridgeEntry, BridgeLane, MembershipEntry, MemoryLedger, NodeEntry, SessionEntry,
    SubscriptionEntry, TopicEntry, TrafficEntry,
};

use thicket_broker::api::audit::AuditEntry;
use thicket_broker::api::redirection::{NodeStateEntry, RatesEntry};
use thicket_session::time::WallClock;

/// Which columns of a table are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Those with which it fits a terminal of 100 columns, unless names are long; those of more than 64 characters are cut.
    Terminal,
    /// All.
    All,
}

/// Characters of a cell that are printed where the table must fit a terminal.
const LONGEST_CELL: usize = 64;

/// The text of a table; `details`: the columns that are left out where it must fit a terminal. Which they are depends on nothing else, so that scripts
/// find the same columns everywhere.
pub fn render_columns(
    head: &[&str],
    details: &[&str],
    rows: &[Vec<String>],
    width: Width,
) -> String {
    let is_shown = |index: &usize| width == Width::All || !details.contains(&head[*index]);
    let shown: Vec<usize> = (0..head.len()).filter(is_shown).collect();
    let head: Vec<&str> = shown.iter().map(|index| head[*index]).collect();
    let cell = |text: &String| match text.char_indices().nth(LONGEST_CELL) {
        Some((at, _)) if width == Width::Terminal => format!("{}...", &text[..at]),
        Some(_) | None => text.clone(),
    };
    let cells = |row: &Vec<String>| shown.iter().map(|index| cell(&row[*index])).collect();
    render(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// The text of a table, or a sentence where it would have no rows: in place of the head, so that what skips the first line skips this.
pub fn or_sentence(rows: &[Vec<String>], sentence: &str, table: impl FnOnce() -> String) -> String {
    if rows.is_empty() {
        format!("{sentence}\n")
    } else {
        table()
    }
}

/// `now`: the time since 1970.
pub fn nodes(nodes: &[NodeEntry], now: Duration, width: Width) -> String {
    let state = |node: &NodeEntry| match (node.is_self, node.reachable, node.out_since_ms) {
        _ if is(node, |state| state.draining) => "draining".to_owned(),
        _ if is(node, |state| state.full) => "full".to_owned(),
        (true, _, _) => "this node".to_owned(),
        (false, true, _) => "reachable".to_owned(),
        (false, false, None) => "unreachable".to_owned(),
        (false, false, Some(since)) => {
            let out_for = now.saturating_sub(Duration::from_millis(since));
            format!("unreachable for {}", length(out_for.as_secs()))
        }
    };
    let row = |node: &NodeEntry| {
        vec![
            node.name.clone(),
            node.id.clone(),
            node.address.clone(),
            state(node),
            node.wire_version
                .map_or_else(nothing, |version| version.to_string()),
            node.rtt_us.map_or_else(nothing, milliseconds),
            node.clock_ahead_ms.map_or_else(nothing, |ahead_ms| {
                format!("{:+.1} s", ahead_ms as f64 / 1000.0)
            }),
            node.key.clone().unwrap_or_else(nothing),
            cpu(node),
            messages(node),
            if node.is_self || node.reachable {
                node.clients.to_string()
            } else {
                nothing()
            },
            node.subscriptions.to_string(),
            node.hinted_messages.to_string(),
        ]
    };
    let mut ordered: Vec<_> = nodes.iter().collect();
    ordered.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    let rows: Vec<_> = ordered.into_iter().map(row).collect();
    render_columns(
        &[
            "NAME",
            "ID",
            "ADDRESS",
            "STATE",
            "WIRE",
            "RTT",
            "CLOCK",
            "KEY",
            "CPU",
            "MESSAGES/S",
            "CLIENTS",
            "SUBSCRIPTIONS",
            "KEPT",
        ],
        &["ID", "WIRE", "CLOCK", "KEY", "SUBSCRIPTIONS", "KEPT"],
        &rows,
        width,
    )
}

/// Settings and clocks that must be the same on all nodes and are not.
pub fn disagreements(nodes: &[NodeEntry]) -> String {
    let lines = NodeEntry::disagreements_of(nodes);
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.join("\n");
    format!(
        "\nsettings and clocks that must be the same on all nodes, and names that must not:\n{lines}\n"
    )
}

fn is(node: &NodeEntry, what: fn(&NodeStateEntry) -> bool) -> bool {
    node.state.as_ref().is_some_and(what)
}

/// Of what its process may use; a dash: not known.
fn cpu(node: &NodeEntry) -> String {
    let ratio = node.state.as_ref().and_then(|state| state.cpu_ratio);
    ratio.map_or_else(nothing, |ratio| format!("{:.0} %", ratio * 100.0))
}

/// From clients and to them, and in brackets from and to other nodes.
fn messages(node: &NodeEntry) -> String {
    let both = |rates: &RatesEntry| rates.in_messages_per_s + rates.out_messages_per_s;
    node.state.as_ref().map_or_else(nothing, |state| {
        format!("{} ({})", both(&state.external), both(&state.internal))
    })
}

/// Topics with most messages first.
pub fn topics(topics: &[TopicEntry], nodes: &[NodeEntry]) -> String {
    let name = |id: &str| {
        let node = nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| id.to_owned(), |node| node.name.clone())
    };
    let row = |topic: &TopicEntry| {
        vec![
            topic.topic.clone(),
            name(&topic.node),
            about(topic.messages_per_s),
        ]
    };
    let rows: Vec<_> = topics.iter().map(row).collect();
    or_sentence(
        &rows,
        "no topic has messages; nodes count them every five seconds",
        || render(&["TOPIC", "NODE", "MESSAGES/S"], &rows),
    )
}

/// A number that is known within a factor of 1.5.
fn about(number: f64) -> String {
    if number >= 1.0 {
        format!("~{number:.0}")
    } else {
        format!("~{number:.1}")
    }
}

/// Changes over the API, the oldest first. `now`: the time since 1970.
pub fn audit(entries: &[AuditEntry], now: Duration, width: Width) -> String {
    let row = |entry: &AuditEntry| {
        let ago = now.saturating_sub(Duration::from_millis(entry.last_time_ms));
        vec![
            format!("{} ago", length(ago.as_secs())),
            instant(entry.last_time_ms),
            match &entry.user {
                Some(token) if entry.by_token => format!("{token} (token)"),
                Some(user) => user.clone(),
                None => nothing(),
            },
            entry.peer.clone(),
            format!("{} {}", entry.method, entry.path),
            entry.node.clone().unwrap_or_else(nothing),
            entry.subject.clone().unwrap_or_else(nothing),
            entry.status.to_string(),
            entry.times.to_string(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    let titles = [
        "WHEN", "TIME", "USER", "FROM", "REQUEST", "NODE", "SUBJECT", "STATUS", "TIMES",
    ];
    or_sentence(&rows, "no changes over the API", || {
        render_columns(&titles, &["TIME", "NODE"], &rows, width)
    })
}

/// A time as in RFC 3339.
fn instant(at_ms: u64) -> String {
    text_of_time(WallClock::from_unix_millis(at_ms)).unwrap_or_else(nothing)
}

/// Whether this side of the cluster serves.
pub fn membership(membership: &MembershipEntry) -> String {
    let MembershipEntry {
        serves,
        members,
        reachable,
    } = membership;
    let state = if *serves { "serving" } else { "minority" };
    let needed = members / 2 + 1;
    let rest = if *serves {
        String::new()
    } else if *reachable >= needed {
        "; some of them have no path to each other".to_owned()
    } else {
        format!(
            ", {needed} are needed to serve; `thicket ctl forget NODE` removes one that is gone for good"
        )
    };
    format!("\n{state}: {reachable} of {members} members{rest}\n")
}

pub fn sessions(sessions: &[SessionEntry], width: Width) -> String {
    let row = |session: &SessionEntry| {
        vec![
            session.client_id.clone(),
            session.user_name.clone().unwrap_or_else(nothing),
            if session.connected {
                "connected"
            } else {
                "away"
            }
            .to_owned(),
            session.protocol_version.map_or_else(nothing, version),
            session.peer.clone().unwrap_or_else(nothing),
            session
                .session_expiry_interval_s
                .map_or_else(nothing, expiry),
            session.subscriptions.to_string(),
            session.queued_messages.to_string(),
            session.inflight_messages.to_string(),
            session.dropped_messages.to_string(),
            session.backups.to_string(),
            session.worker.to_string(),
        ]
    };
    let head = [
        "CLIENT ID",
        "USER",
        "STATE",
        "MQTT",
        "PEER",
        "EXPIRY",
        "SUBSCRIPTIONS",
        "QUEUED",
        "IN FLIGHT",
        "DROPPED",
        "BACKUPS",
        "WORKER",
    ];
    let rows: Vec<_> = sessions.iter().map(row).collect();
    let details = ["MQTT", "PEER", "EXPIRY", "WORKER"];
    or_sentence(&rows, "no sessions at this node", || {
        render_columns(&head, &details, &rows, width)
    })
}

pub fn subscriptions(subscriptions: &[SubscriptionEntry]) -> String {
    let row = |subscription: &SubscriptionEntry| {
        let mut options = Vec::new();
        if subscription.no_local {
            options.push("no local".to_owned());
        }
        if subscription.retain_as_published {
            options.push("retain as published".to_owned());
        }
        if let Some(identifier) = subscription.subscription_identifier {
            options.push(format!("identifier {identifier}"));
        }
        vec![
            subscription.client_id.clone(),
            subscription.filter.clone(),
            subscription.qos.to_string(),
            options.join(", "),
        ]
    };
    let rows: Vec<_> = subscriptions.iter().map(row).collect();
    or_sentence(&rows, "no subscriptions at this node", || {
        render(&["CLIENT ID", "FILTER", "QOS", "OPTIONS"], &rows)
    })
}

/// Two rows a bridge: out and in.
pub fn bridges(bridges: &[BridgeEntry], width: Width) -> String {
    let row = |bridge: &BridgeEntry, direction: &str, lane: &BridgeLane| {
        let side = |is_connected| if is_connected { "connected" } else { "away" };
        vec![
            bridge.name.clone(),
            bridge.address.clone(),
            side(bridge.local_connected).to_owned(),
            side(bridge.remote_connected).to_owned(),
            direction.to_owned(),
            lane.received.to_string(),
            lane.forwarded.to_string(),
            (lane.dropped + lane.refused + lane.expired).to_string(),
            lane.looped.to_string(),
            lane.queue_messages.to_string(),
        ]
    };
    let rows: Vec<_> = bridges
        .iter()
        .flat_map(|bridge| {
            [
                row(bridge, "out", &bridge.outward),
                row(bridge, "in", &bridge.inward),
            ]
        })
        .collect();
    let head = [
        "NAME",
        "ADDRESS",
        "LOCAL",
        "REMOTE",
        "DIRECTION",
        "RECEIVED",
        "FORWARDED",
        "LOST",
        "LOOPED",
        "QUEUED",
    ];
    or_sentence(&rows, "no bridges at this node", || {
        render_columns(&head, &["RECEIVED", "LOOPED"], &rows, width)
    })
}

pub fn traffic(traffic: &TrafficEntry) -> String {
    let total = &traffic.total;
    let row = |name: &str, messages: u64, bytes: u64| {
        vec![name.to_owned(), messages.to_string(), bytes.to_string()]
    };
    let carried = render(
        &["TRAFFIC", "MESSAGES", "BYTES"],
        &[
            row(
                "from clients",
                total.external_in_messages,
                total.external_in_bytes,
            ),
            row(
                "to clients",
                total.external_out_messages,
                total.external_out_bytes,
            ),
            row(
                "from nodes",
                total.internal_in_messages,
                total.internal_in_bytes,
            ),
            row(
                "to nodes",
                total.internal_out_messages,
                total.internal_out_bytes,
            ),
        ],
    );
    let count = |name: &str, number: u64| vec![name.to_owned(), number.to_string()];
    let counts = render(
        &["COUNT", ""],
        &[
            count("dropped messages", total.dropped_messages),
            count("of them by full queues", total.queue_dropped_messages),
            count("refused for full queues", total.queue_refused_messages),
            count("expired messages", total.expired_messages),
            count("connections", total.connections),
            count("sessions", total.sessions),
            count("subscriptions", total.subscriptions),
            count("retained messages", total.retained_messages),
            count("unacknowledged messages", total.unacknowledged_messages),
        ],
    );
    format!("{carried}\n{counts}")
}

pub fn memory(ledger: &MemoryLedger) -> String {
    let row = |name: &str, count: Option<u64>, bytes: Option<u64>| {
        let cell = |number: Option<u64>| number.map_or_else(nothing, |number| number.to_string());
        vec![name.to_owned(), cell(count), cell(bytes)]
    };
    let total = &ledger.total;
    let now = render(
        &["MEMORY", "COUNT", "BYTES"],
        &[
            row("process", None, ledger.resident_bytes),
            row("limit", None, ledger.limit_bytes),
            row(
                "out-buffers",
                Some(total.connections),
                Some(total.out_buffer_bytes),
            ),
            row(
                "in-buffers",
                Some(total.connections),
                Some(total.in_buffer_bytes),
            ),
            row("half open", None, Some(total.half_open_bytes)),
            row("sessions", Some(total.sessions), None),
            row(
                "queues",
                Some(total.queued_messages),
                Some(total.queued_bytes),
            ),
            row("queues, dropped", Some(total.queue_dropped_messages), None),
            row("queues, refused", Some(total.queue_refused_messages), None),
            row(
                "in flight",
                Some(total.inflight_messages),
                Some(total.inflight_bytes),
            ),
            row(
                "subscriptions",
                Some(total.subscriptions),
                Some(total.filter_bytes),
            ),
            row("wills", Some(total.wills), Some(total.will_bytes)),
            row("backups", Some(total.backups), None),
            row(
                "backups, messages",
                Some(total.backup_messages),
                Some(total.backup_bytes),
            ),
            row(
                "backups, wills",
                Some(total.held_wills),
                Some(total.held_will_bytes),
            ),
            row("backups, streams", None, Some(total.backup_stream_bytes)),
            row(
                "retained",
                Some(ledger.retained_messages),
                Some(ledger.retained_bytes),
            ),
            row("links", None, Some(ledger.link_bytes)),
            row(
                "between threads",
                None,
                Some(ledger.handed_bytes + total.handed_bytes),
            ),
            row(
                "for nodes that are down",
                Some(ledger.hinted_messages),
                Some(ledger.hinted_bytes),
            ),
        ],
    );
    let remembered: Vec<_> = ledger
        .remembered
        .iter()
        .map(|table| {
            vec![
                table.what.clone(),
                table.entries.to_string(),
                table.at_most.to_string(),
                table.bytes.map_or_else(nothing, |bytes| bytes.to_string()),
            ]
        })
        .collect();
    let remembered = render(&["REMEMBERED", "COUNT", "AT MOST", "BYTES"], &remembered);
    format!("{now}\n{remembered}")
}

pub fn nothing() -> String {
    "-".to_owned()
}

/// Below one millisecond, which is the resolution of a single measurement, nothing is known until there are several.
fn milliseconds(us: u64) -> String {
    if us == 0 {
        return "<1 ms".to_owned();
    }
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

fn version(level: u8) -> String {
    match level {
        3 => "3.1".to_owned(),
        4 => "3.1.1".to_owned(),
        5 => "5.0".to_owned(),
        other => other.to_string(),
    }
}

/// A length of time, in the largest unit that leaves it exact enough.
fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn expiry(seconds: u32) -> String {
    if seconds == u32::MAX {
        "never".to_owned()
    } else {
        format!("{seconds} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_cell_is_cut_unless_all_is_asked_for() {
        let long = "x".repeat(500);
        let rows = [vec![long.clone(), "1".to_owned()]];
        let table = |width| render_columns(&["CLIENT", "NODE"], &[], &rows, width);
        let cut = table(Width::Terminal);
        assert!(cut.contains(&format!("{}...", "x".repeat(64))), "{cut}");
        assert!(!cut.contains(&"x".repeat(65)), "{cut}");
        assert!(table(Width::All).contains(&long));
    }

    #[test]
    fn a_table_without_rows_is_a_sentence() {
        for (name, text) in [
            ("topics", topics(&[], &[])),
            ("audit", audit(&[], Duration::ZERO, Width::Terminal)),
            ("sessions", sessions(&[], Width::Terminal)),
            ("subscriptions", subscriptions(&[])),
            ("bridges", bridges(&[], Width::Terminal)),
        ] {
            assert!(
                text.starts_with("no ") && text.lines().count() == 1,
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn a_rate_that_is_known_roughly_is_rounded() {
        for (rate, expected) in [
            (0.064, "~0.1"),
            (1.024, "~1"),
            (4.096, "~4"),
            (16.384, "~16"),
        ] {
            assert_eq!(about(rate), expected);
        }
    }

    #[test]
    fn a_node_is_a_row_with_its_round_trip_in_milliseconds() {
        let node = NodeEntry {
            name: "node-2".into(),
            id: "00ff".into(),
            incarnation: 7,
            address: "127.0.0.1:1884".into(),
            is_self: false,
            reachable: true,
            out_since_ms: None,
            wire_version: Some(4),
            rtt_us: Some(1042),
            clock_ahead_ms: Some(-1_940),
            key: Some("3f2a9c01".into()),
            clients: 3,
            subscriptions: 4,
            state: None,
            hinted_messages: 0,
            hinted_bytes: 0,
            site: None,
            disagreements: Vec::new(),
        };
        let namesake = NodeEntry {
            id: "00fe".into(),
            clock_ahead_ms: Some(61_250),
            disagreements: vec!["routing = \"topic\" there".into()],
            ..node.clone()
        };
        let lines = disagreements(&[node.clone(), namesake]);
        for line in [
            "node-2 (00ff): another node has the same name",
            "node-2 (00fe): another node has the same name",
            "node-2 (00fe): routing = \"topic\" there",
            "node-2 (00fe): the clock is 61.2 s ahead",
        ] {
            assert!(lines.contains(line), "{lines}");
        }
        assert_eq!(disagreements(std::slice::from_ref(&node)), "");
        let now = Duration::from_secs(1_000_000);
        let away = NodeEntry {
            name: "node-1".into(),
            reachable: false,
            out_since_ms: Some(999_910_000),
            ..node.clone()
        };
        let all = [node, away];
        let text = nodes(&all, now, Width::All);
        let row = |number| -> Vec<&str> {
            let line = text.lines().nth(number).expect("a row");
            let cells = line.split("  ").filter(|cell| !cell.is_empty());
            cells.map(str::trim).collect()
        };
        let away = row(1);
        assert_eq!((away[0], away[3]), ("node-1", "unreachable for 90 s"));
        assert_eq!(away[10], "-", "nobody is connected to it");
        assert_eq!(
            row(2),
            [
                "node-2",
                "00ff",
                "127.0.0.1:1884",
                "reachable",
                "4",
                "1.042 ms",
                "-1.9 s",
                "3f2a9c01",
                "-",
                "-",
                "3",
                "4",
                "0"
            ]
        );
        let text = nodes(&all, now, Width::Terminal);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(
            !text.contains("3f2a9c01") && text.contains("1.042 ms"),
            "{text}"
        );
    }

    #[test]
    fn only_details_are_left_out_where_a_table_must_fit_a_terminal() {
        let rows = [vec!["a".to_owned(), "1".to_owned(), "x".to_owned()]];
        let text = |width| render_columns(&["NAME", "ID", "STATE"], &["ID"], &rows, width);
        assert_eq!(text(Width::Terminal), "NAME  STATE\na     x\n");
        assert_eq!(text(Width::All), "NAME  ID  STATE\na      1  x\n");
    }

    #[test]
    fn a_session_fits_a_terminal() {
        let session = SessionEntry {
            client_id: "sensor-of-hall-17-a".into(),
            user_name: Some("hall-17".into()),
            connected: true,
            protocol_version: Some(5),
            peer: Some("192.168.100.200:54321".into()),
            clean_start: false,
            session_expiry_interval_s: Some(u32::MAX),
            subscriptions: 12,
            queued_messages: 100_000,
            queued_bytes: 12_345_678,
            inflight_messages: 1024,
            dropped_messages: 12_345,
            backups: 1,
            worker: 0,
        };
        let all = [session];
        let text = sessions(&all, Width::Terminal);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let text = sessions(&all, Width::All);
        assert!(text.contains("192.168.100.200:54321"), "{text}");
    }
}
