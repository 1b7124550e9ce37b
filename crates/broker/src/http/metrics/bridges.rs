//! What the bridges of a node have carried.

use thicket_bridge::{LaneStatistics, Monitor, Statistics};

use super::Page;

/// Name, kind, help, and where it stands.
type Family = (
    &'static str,
    &'static str,
    &'static str,
    fn(&LaneStatistics) -> u64,
);

const FAMILIES: [Family; 9] = [
    (
        "thicket_bridge_received_messages_total",
        "counter",
        "Messages that came to a bridge",
        |lane| lane.received,
    ),
    (
        "thicket_bridge_forwarded_messages_total",
        "counter",
        "Messages the broker across has",
        |lane| lane.forwarded,
    ),
    (
        "thicket_bridge_dropped_messages_total",
        "counter",
        "Messages of QoS 0 that found no room",
        |lane| lane.dropped,
    ),
    (
        "thicket_bridge_refused_messages_total",
        "counter",
        "Messages the broker across does not take",
        |lane| lane.refused,
    ),
    (
        "thicket_bridge_expired_messages_total",
        "counter",
        "Messages whose time was over",
        |lane| lane.expired,
    ),
    (
        "thicket_bridge_looped_messages_total",
        "counter",
        "Messages that had crossed before",
        |lane| lane.looped,
    ),
    (
        "thicket_bridge_unmatched_messages_total",
        "counter",
        "Messages no rule takes",
        |lane| lane.unmatched,
    ),
    (
        "thicket_bridge_queue_messages",
        "gauge",
        "Messages on their way",
        |lane| lane.queue_messages as u64,
    ),
    (
        "thicket_bridge_queue_bytes",
        "gauge",
        "Bytes of those messages",
        |lane| lane.queue_bytes as u64,
    ),
];

pub(super) fn render(bridges: &[Monitor]) -> String {
    let all: Vec<_> = bridges
        .iter()
        .map(|bridge| (bridge.name(), bridge.statistics()))
        .collect();
    of(&all)
}

fn of(bridges: &[(&str, Statistics)]) -> String {
    let mut page = Page::default();
    if bridges.is_empty() {
        return page.0;
    }
    let name = "thicket_bridge_connected";
    page.family(name, "gauge", "Whether a side has accepted the bridge");
    for (bridge, statistics) in bridges {
        for (side, side_statistics) in [("local", statistics.local), ("remote", statistics.remote)]
        {
            let labels = [("bridge", *bridge), ("side", side)];
            page.sample(name, &labels, u64::from(side_statistics.is_connected));
        }
    }
    for (name, kind, help, value) in FAMILIES {
        page.family(name, kind, help);
        for (bridge, statistics) in bridges {
            for (direction, lane) in [("out", statistics.outward), ("in", statistics.inward)] {
                page.sample(
                    name,
                    &[("bridge", bridge), ("direction", direction)],
                    value(&lane),
                );
            }
        }
    }
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_of_a_bridge_has_its_lines() {
        let mut statistics = Statistics::default();
        statistics.remote.is_connected = true;
        statistics.inward.looped = 3;
        let text = of(&[("plant", statistics)]);
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
        assert!(of(&[]).is_empty());
    }
}
