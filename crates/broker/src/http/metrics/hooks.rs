//! Metrics of the node's hooks.

use thicket_hooks::Statistics;
use thicket_telemetry::Kind::{self, Counter, Gauge};

use super::page::Page;

/// Name, kind, help, and the field for each outcome.
type Family = (
    &'static str,
    Kind,
    &'static str,
    fn(&Statistics) -> Vec<(Option<&'static str>, u64)>,
);

const FAMILIES: [Family; 4] = [
    (
        "thicket_event_hook_events_total",
        Counter,
        "Events of a hook that were delivered, written to the dead-letter file or dropped",
        |it| {
            vec![
                (Some("delivered"), it.delivered),
                (Some("dead_letter"), it.dead_letters),
                (Some("dropped"), it.dropped),
            ]
        },
    ),
    (
        "thicket_event_hook_requests_total",
        Counter,
        "Requests of a hook that its receiver accepted or that failed",
        |it| {
            vec![
                (Some("accepted"), it.requests_accepted),
                (Some("failed"), it.requests_failed),
            ]
        },
    ),
    (
        "thicket_event_hook_queue_events",
        Gauge,
        "Events of a hook that wait",
        |it| vec![(None, it.queue_events)],
    ),
    (
        "thicket_event_hook_queue_bytes",
        Gauge,
        "Bytes of those events",
        |it| vec![(None, it.queue_bytes)],
    ),
];

pub(super) fn append(page: &mut Page, hooks: &[(&str, Statistics)]) {
    if hooks.is_empty() {
        return;
    }
    for (name, kind, help, values) in FAMILIES {
        page.family(name, kind, help);
        for (hook, statistics) in hooks {
            for (outcome, value) in values(statistics) {
                let mut labels = vec![("hook", *hook)];
                labels.extend(outcome.map(|outcome| ("outcome", outcome)));
                page.sample(&labels, value);
            }
        }
    }
}
