//! Metrics of the node's limits: connections, memory, refused clients.

use std::sync::atomic::Ordering;

use thicket_telemetry::Kind::{self, Counter, Gauge};

use super::page::Page;
use crate::api::TrafficCounts;
use crate::counters::Counter as Count;
use crate::gate::Gate;
use crate::http::Inspector;
use crate::log;
use crate::memory::{limit_bytes, resident_bytes};

pub(super) fn append(
    page: &mut Page,
    inspector: &Inspector,
    traffic: &TrafficCounts,
    retained_bytes: u64,
) {
    page.listeners(inspector);
    page.refused(inspector, traffic);
    page.api(inspector);
    page.log();
    page.memory(inspector, retained_bytes);
}

impl Page {
    fn listeners(&mut self, inspector: &Inspector) {
        self.by_listener(
            inspector,
            ("thicket_listener_connections", Gauge),
            "Connections of a listener, handshakes included",
            |gate| u64::from(gate.open()),
        );
        self.by_listener(
            inspector,
            ("thicket_listener_admitted_total", Counter),
            "Connections admitted by a listener",
            |gate| gate.admitted.value(),
        );
        self.by_direction(
            inspector,
            "thicket_listener_bytes_total",
            "Bytes of MQTT with the clients of a listener, whatever packets they are",
            |gate| [&gate.bytes_in, &gate.bytes_out],
        );
        self.by_direction(
            inspector,
            "thicket_listener_messages_total",
            "Messages that the clients of a listener published and were sent",
            |gate| [&gate.messages_in, &gate.messages_out],
        );
        self.by_listener(
            inspector,
            ("thicket_listener_refused_messages_total", Counter),
            "Messages refused or dropped because the clients of a listener published more than they may in a second",
            |gate| gate.messages_refused.value(),
        );
        self.by_listener(
            inspector,
            ("thicket_listener_delayed_total", Counter),
            "Times connections waited because too many came in a second",
            |gate| gate.delayed.value(),
        );
    }

    /// A family with a sample for each listener.
    fn by_listener(
        &mut self,
        inspector: &Inspector,
        (name, kind): (&'static str, Kind),
        help: &'static str,
        value: impl Fn(&Gate) -> u64,
    ) {
        self.family(name, kind, help);
        for entrance in inspector.entrances.iter() {
            self.sample(&[("listener", &entrance.name)], value(&entrance.gate));
        }
    }

    /// The same with a sample for what came in and one for what went out.
    fn by_direction(
        &mut self,
        inspector: &Inspector,
        name: &'static str,
        help: &'static str,
        counters: impl Fn(&Gate) -> [&Count; 2],
    ) {
        self.family(name, Counter, help);
        for entrance in inspector.entrances.iter() {
            for (direction, count) in ["in", "out"].into_iter().zip(counters(&entrance.gate)) {
                let labels = [("listener", &*entrance.name), ("direction", direction)];
                self.sample(&labels, count.value());
            }
        }
    }

    fn refused(&mut self, inspector: &Inspector, traffic: &TrafficCounts) {
        let gate = &inspector.gate;
        let full: u64 = inspector
            .entrances
            .iter()
            .map(|entrance| entrance.gate.full.value())
            .sum();
        let name = "thicket_refused_connections_total";
        self.family(
            name,
            Counter,
            "Connections refused or ended because a limit was reached",
        );
        for (reason, count) in [
            ("listener_full", full),
            ("node_full", gate.node_full.value()),
            ("memory", gate.short_of_memory.value()),
            ("half_open", traffic.half_open_refused),
            ("session", traffic.sessions_refused),
        ] {
            self.sample(&[("reason", reason)], count);
        }
    }

    fn api(&mut self, inspector: &Inspector) {
        self.single(
            "thicket_http_connections",
            Gauge,
            "Connections to the HTTP API",
            inspector.seats.taken() as u64,
        );
        self.single(
            "thicket_http_turned_away_total",
            Counter,
            "Connections to the HTTP API that were refused because of the limit, or displaced by a new one before they had sent a request",
            inspector.seats.turned_away.value(),
        );
    }

    fn log(&mut self) {
        self.single(
            "thicket_log_lines_suppressed_total",
            Counter,
            "Lines of the log that were counted and not written because there were many about the same peer",
            log::suppressed_lines(),
        );
    }

    fn memory(&mut self, inspector: &Inspector, retained_bytes: u64) {
        let is_short = inspector.gate.is_short_of_memory.load(Ordering::Relaxed);
        for (name, help, value) in [
            (
                "thicket_memory_resident_bytes",
                "Memory of the process",
                resident_bytes(),
            ),
            (
                "thicket_memory_limit_bytes",
                "Memory above which new sessions are refused; 0: no bound",
                Some(limit_bytes(inspector.memory_bytes).unwrap_or(0)),
            ),
            (
                "thicket_memory_is_short",
                "Whether that bound is reached",
                Some(u64::from(is_short)),
            ),
            (
                "thicket_retained_bytes",
                "Bytes of retained messages",
                Some(retained_bytes),
            ),
        ] {
            if let Some(value) = value {
                self.single(name, Gauge, help, value);
            }
        }
    }
}
