//! Metrics of the overlay: trees, elections, durations, and what each link carried.

use thicket_telemetry::Kind::{Counter, Gauge};

use super::page::Page;
use crate::api::overlay::OverlayEntry;
use crate::histogram::{Distribution, SLOW};

/// Appends the families of the overlay.
pub(super) fn append(page: &mut Page, overlay: &OverlayEntry) {
    let counters = &overlay.counters;
    let seconds = |millis: u64| millis as f64 / 1000.0;
    page.histogram(
        "thicket_link_round_trip_seconds",
        "Round trips of links, to the millisecond",
        &Distribution {
            bounds: SLOW,
            within: counters.round_trips,
            count: counters.round_trip_count,
            seconds: std::time::Duration::from_micros(counters.round_trip_us).as_secs_f64(),
        },
    );
    for (name, kind, help, value) in [
        (
            "thicket_overlay_topic_trees",
            Gauge,
            "Trees of topics",
            overlay.topic_tree_count as f64,
        ),
        (
            "thicket_overlay_elections_total",
            Counter,
            "Roots elected for the tree of all nodes",
            counters.elections as f64,
        ),
        (
            "thicket_overlay_convergence_seconds",
            Gauge,
            "From the start to the first agreed tree; 0 before that",
            seconds(counters.convergence_ms),
        ),
        (
            "thicket_overlay_repairs_total",
            Counter,
            "Repairs of trees after a node was lost",
            counters.repairs as f64,
        ),
        (
            "thicket_overlay_last_repair_seconds",
            Gauge,
            "Duration of the last repair, from the last sign of the lost node to the trees without it",
            seconds(counters.last_repair_ms),
        ),
        (
            "thicket_overlay_repair_seconds_total",
            Counter,
            "Duration of all repairs",
            seconds(counters.repair_ms),
        ),
        (
            "thicket_overlay_refused_trees_total",
            Counter,
            "Sets of nodes that got no tree of their own",
            counters.refused_trees as f64,
        ),
        (
            "thicket_overlay_refused_links_total",
            Counter,
            "Links of strangers, other clusters or versions",
            counters.refused_links as f64,
        ),
        (
            "thicket_overlay_repeated_records_total",
            Counter,
            "Records of nodes that had been applied before, or were older",
            counters.repeated_records as f64,
        ),
        (
            "thicket_overlay_altered_records_total",
            Counter,
            "Received records of this node that differ from its own",
            counters.altered_records as f64,
        ),
        (
            "thicket_overlay_unreadable_messages_total",
            Counter,
            "Messages of other nodes that could not be read: dropped, and refused to their publishers",
            counters.unreadable_messages as f64,
        ),
        (
            "thicket_overlay_relayed_messages_total",
            Counter,
            "Messages of others passed on",
            counters.relayed_messages as f64,
        ),
        (
            "thicket_overlay_relayed_bytes_total",
            Counter,
            "Their bytes",
            counters.relayed_bytes as f64,
        ),
        (
            "thicket_overlay_relay_drops_total",
            Counter,
            "QoS 0 messages of others not passed on",
            counters.relay_drops as f64,
        ),
        (
            "thicket_overlay_relay_misses_total",
            Counter,
            "Messages of other nodes without a route or a place in a buffer",
            counters.relay_misses as f64,
        ),
        (
            "thicket_overlay_tunnels_total",
            Counter,
            "Links opened over other nodes",
            counters.tunnels as f64,
        ),
    ] {
        page.family(name, kind, help);
        page.sample(&[], value);
    }
    page.family(
        "thicket_link_bytes_total",
        Counter,
        "Bytes on the links with a node, by kind",
    );
    for link in &overlay.traffic {
        for (what, direction, bytes) in [
            ("data", "out", link.data_out_bytes),
            ("data", "in", link.data_in_bytes),
            ("control", "out", link.control_out_bytes),
            ("control", "in", link.control_in_bytes),
        ] {
            let labels = [
                ("node", &*link.node),
                ("what", what),
                ("direction", direction),
            ];
            page.sample(&labels, bytes);
        }
    }
    for (name, help) in [
        (
            "thicket_link_messages_total",
            "Messages sent on the links with a node",
        ),
        ("thicket_link_batches_total", "Batches they were sent in"),
    ] {
        page.family(name, Counter, help);
        for link in &overlay.traffic {
            let value = match name {
                "thicket_link_batches_total" => link.data_out_batches,
                _ => link.data_out_messages,
            };
            page.sample(&[("node", &link.node)], value);
        }
    }
    page.family(
        "thicket_link_refused_total",
        Counter,
        "Links ended because the node broke a rule",
    );
    for link in &overlay.traffic {
        page.sample(&[("node", &link.node)], link.refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlay_counts_in_the_buckets_that_the_page_names() {
        let bounds = thicket_overlay::RoundTrips::BOUNDS_MS;
        assert_eq!(bounds.map(|millis| millis as f64 / 1000.0), SLOW);
    }
}
