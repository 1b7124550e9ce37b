//! Metrics of the node's bridges.

use thicket_bridge::{LaneStatistics, Monitor, Statistics};

use thicket_telemetry::Kind::{self, Counter, Gauge};

use super::page::Page;

/// Name, kind, help, and the field.
type Family = (&'static str, Kind, &'static str, fn(&LaneStatistics) -> u64);

const FAMILIES: [Family; 9] = [
    (
        "thicket_bridge_received_messages_total",
        Counter,
        "Messages that came to a bridge",
        |lane| lane.received,
    ),
    (
        "thicket_bridge_forwarded_messages_total",
        Counter,
        "Messages that the other broker has accepted",
        |lane| lane.forwarded,
    ),
    (
        "thicket_bridge_dropped_messages_total",
        Counter,
        "Messages of QoS 0 that were dropped because the queue was full",
        |lane| lane.dropped,
    ),
    (
        "thicket_bridge_refused_messages_total",
        Counter,
        "Messages that the other broker refused",
        |lane| lane.refused,
    ),
    (
        "thicket_bridge_expired_messages_total",
        Counter,
        "Messages that had expired",
        |lane| lane.expired,
    ),
    (
        "thicket_bridge_looped_messages_total",
        Counter,
        "Messages that had crossed the bridge before",
        |lane| lane.looped,
    ),
    (
        "thicket_bridge_unmatched_messages_total",
        Counter,
        "Messages that match no rule",
        |lane| lane.unmatched,
    ),
    (
        "thicket_bridge_queue_messages",
        Gauge,
        "Messages that wait",
        |lane| lane.queue_messages as u64,
    ),
    (
        "thicket_bridge_queue_bytes",
        Gauge,
        "Bytes of those messages",
        |lane| lane.queue_bytes as u64,
    ),
];

pub(super) fn append(page: &mut Page, bridges: &[Monitor]) {
    let all: Vec<_> = bridges
        .iter()
        .map(|bridge| (bridge.name(), bridge.statistics()))
        .collect();
    append_statistics(page, &all);
}

fn append_statistics(page: &mut Page, bridges: &[(&str, Statistics)]) {
    if bridges.is_empty() {
        return;
    }
    let name = "thicket_bridge_connected";
    page.family(name, Gauge, "Whether a side has accepted the bridge");
    for (bridge, statistics) in bridges {
        for (side, side_statistics) in [("local", statistics.local), ("remote", statistics.remote)]
        {
            let labels = [("bridge", *bridge), ("side", side)];
            page.sample(&labels, u64::from(side_statistics.is_connected));
        }
    }
    for (name, kind, help, value) in FAMILIES {
        page.family(name, kind, help);
        for (bridge, statistics) in bridges {
            for (direction, lane) in [("out", statistics.outward), ("in", statistics.inward)] {
                page.sample(
                    &[("bridge", bridge), ("direction", direction)],
                    value(&lane),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_of_a_bridge_has_its_lines() {
        let mut statistics = Statistics::default();
        statistics.remote.is_connected = true;
        statistics.inward.looped = 3;
        let mut page = Page::default();
        append_statistics(&mut page, &[("plant", statistics)]);
        let text = thicket_telemetry::prometheus::text(&page.0);
        for line in [
            "thicket_bridge_connected{bridge=\"plant\",side=\"remote\"} 1",
            "thicket_bridge_looped_messages_total{bridge=\"plant\",direction=\"in\"} 3",
            "thicket_bridge_looped_messages_total{bridge=\"plant\",direction=\"out\"} 0",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "`{line}` in\n{text}"
            );
        }
        let mut page = Page::default();
        append_statistics(&mut page, &[]);
        assert!(page.0.families.is_empty());
    }
}
