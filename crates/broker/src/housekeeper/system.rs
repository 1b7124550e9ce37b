//! The `$SYS/broker/` topics that clients expect, with Mosquitto's names.

use std::time::{Duration, Instant};

use crate::api::TrafficCounts;
use crate::http::{Inspector, Silence};
use crate::memory::resident_bytes;

/// The averages of a load: name and time.
const AVERAGES: [(&str, Duration); 3] = [
    ("1min", Duration::from_secs(60)),
    ("5min", Duration::from_secs(300)),
    ("15min", Duration::from_secs(900)),
];

/// Number of loads that are published.
const LOADS: usize = 9;

/// What is remembered between rounds.
pub(super) struct System {
    start: Instant,
    last: Instant,
    counted: [u64; LOADS],
    loads: [[f64; AVERAGES.len()]; LOADS],
    most_connected: u64,
    most_bytes: u64,
}

/// Counters of the process that are not those of workers.
#[derive(Debug, Clone, Copy, Default)]
struct Process {
    /// Connections accepted.
    sockets: u64,
    /// Clients let in.
    connects: u64,
    /// Resident memory.
    bytes: u64,
}

/// Counters whose loads are published: topic and value.
const fn loads_of(traffic: &TrafficCounts, process: Process) -> [(&'static str, u64); LOADS] {
    [
        ("messages/received", traffic.external_in_messages),
        ("messages/sent", traffic.external_out_messages),
        ("publish/received", traffic.external_in_messages),
        ("publish/sent", traffic.external_out_messages),
        ("publish/dropped", traffic.dropped_messages),
        ("bytes/received", traffic.external_in_bytes),
        ("bytes/sent", traffic.external_out_bytes),
        ("sockets", process.sockets),
        ("connections", process.connects),
    ]
}

impl System {
    pub(super) const fn new(start: Instant) -> Self {
        Self {
            start,
            last: start,
            counted: [0; LOADS],
            loads: [[0.0; AVERAGES.len()]; LOADS],
            most_connected: 0,
            most_bytes: 0,
        }
    }

    /// Collects the threads' counters and has every worker publish them to its clients.
    pub(super) async fn publish(&mut self, inspector: &Inspector) -> Result<(), Silence> {
        let traffic = inspector.traffic().await?.total;
        let process = Process {
            sockets: inspector.counters.accepted.value(),
            connects: inspector.counters.connects.value(),
            bytes: resident_bytes().unwrap_or(0),
        };
        let topics = self.topics(Instant::now(), &traffic, process);
        inspector.order_all(move |worker, now| {
            for (topic, value) in &topics {
                worker.operate(now).publish_system(topic, value.as_bytes());
            }
        });
        Ok(())
    }

    fn topics(
        &mut self,
        now: Instant,
        traffic: &TrafficCounts,
        process: Process,
    ) -> Vec<(String, String)> {
        self.most_connected = self.most_connected.max(traffic.connections);
        self.most_bytes = self.most_bytes.max(process.bytes);
        let away = traffic.sessions.saturating_sub(traffic.connections);
        let stored = traffic.queued_messages + traffic.retained_messages;
        let stored_bytes = traffic.queued_bytes + traffic.retained_bytes;
        let seconds = now.duration_since(self.start).as_secs();
        let plain = [
            (
                "version",
                format!("thicket version {}", env!("CARGO_PKG_VERSION")),
            ),
            ("uptime", format!("{seconds} seconds")),
            ("clients/total", traffic.sessions.to_string()),
            ("clients/connected", traffic.connections.to_string()),
            ("clients/disconnected", away.to_string()),
            // Former names of the two above; dashboards use both.
            ("clients/active", traffic.connections.to_string()),
            ("clients/inactive", away.to_string()),
            ("clients/maximum", self.most_connected.to_string()),
            ("clients/expired", traffic.expired_sessions.to_string()),
            ("heap/current", process.bytes.to_string()),
            ("heap/maximum", self.most_bytes.to_string()),
            (
                "messages/received",
                traffic.external_in_messages.to_string(),
            ),
            ("messages/sent", traffic.external_out_messages.to_string()),
            (
                "publish/messages/received",
                traffic.external_in_messages.to_string(),
            ),
            (
                "publish/messages/sent",
                traffic.external_out_messages.to_string(),
            ),
            (
                "publish/messages/dropped",
                traffic.dropped_messages.to_string(),
            ),
            (
                "publish/bytes/received",
                traffic.external_in_bytes.to_string(),
            ),
            ("publish/bytes/sent", traffic.external_out_bytes.to_string()),
            ("bytes/received", traffic.external_in_bytes.to_string()),
            ("bytes/sent", traffic.external_out_bytes.to_string()),
            ("subscriptions/count", traffic.subscriptions.to_string()),
            (
                "shared_subscriptions/count",
                traffic.shared_subscriptions.to_string(),
            ),
            ("store/messages/count", stored.to_string()),
            // Former name of the one above.
            ("messages/stored", stored.to_string()),
            ("store/messages/bytes", stored_bytes.to_string()),
            (
                "retained messages/count",
                traffic.retained_messages.to_string(),
            ),
        ];
        let topic = |rest: &str| format!("$SYS/broker/{rest}");
        let mut all: Vec<_> = plain
            .into_iter()
            .map(|(rest, value)| (topic(rest), value))
            .collect();
        for (index, (rest, count)) in loads_of(traffic, process).into_iter().enumerate() {
            self.average(now, index, count);
            for ((name, _), load) in AVERAGES.iter().zip(self.loads[index]) {
                all.push((topic(&format!("load/{rest}/{name}")), format!("{load:.2}")));
            }
        }
        self.last = now;
        all
    }

    /// Moves the averages, in counts a minute, towards the count since the last round.
    fn average(&mut self, now: Instant, index: usize, count: u64) {
        let elapsed_s = now.duration_since(self.last).as_secs_f64();
        let since = count.saturating_sub(std::mem::replace(&mut self.counted[index], count));
        if elapsed_s <= 0.0 {
            return;
        }
        let a_minute = since as f64 * 60.0 / elapsed_s;
        for ((_, time), load) in AVERAGES.iter().zip(&mut self.loads[index]) {
            let kept = (-elapsed_s / time.as_secs_f64()).exp();
            *load = a_minute.mul_add(1.0 - kept, *load * kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(topics: &[(String, String)], rest: &str) -> String {
        let found = topics
            .iter()
            .find(|(topic, _)| *topic == format!("$SYS/broker/{rest}"));
        found.unwrap_or_else(|| panic!("no {rest}")).1.clone()
    }

    #[test]
    fn counts_become_topics() {
        let start = Instant::now();
        let mut system = System::new(start);
        let traffic = TrafficCounts {
            sessions: 5,
            connections: 3,
            external_in_messages: 7,
            retained_messages: 2,
            retained_bytes: 100,
            queued_messages: 3,
            queued_bytes: 1000,
            shared_subscriptions: 4,
            ..TrafficCounts::default()
        };
        let process = Process {
            bytes: 1000,
            ..Process::default()
        };
        let topics = system.topics(start + Duration::from_secs(90), &traffic, process);
        for (rest, expected) in [
            ("uptime", "90 seconds"),
            ("clients/connected", "3"),
            ("clients/disconnected", "2"),
            ("messages/received", "7"),
            ("retained messages/count", "2"),
            ("shared_subscriptions/count", "4"),
            ("store/messages/count", "5"),
            ("messages/stored", "5"),
            ("store/messages/bytes", "1100"),
            ("clients/inactive", "2"),
            ("heap/current", "1000"),
        ] {
            assert_eq!(value(&topics, rest), expected, "{rest}");
        }
        let later = TrafficCounts {
            connections: 1,
            ..traffic
        };
        let topics = system.topics(start + Duration::from_secs(100), &later, Process::default());
        assert_eq!(value(&topics, "clients/maximum"), "3");
        assert_eq!(value(&topics, "heap/maximum"), "1000");
    }

    #[test]
    fn a_steady_load_is_what_comes_in_a_minute_and_fades() {
        let start = Instant::now();
        let mut system = System::new(start);
        let mut topics = Vec::new();
        // Two messages a second for an hour, then none for five minutes.
        for round in 1..=390 {
            let traffic = TrafficCounts {
                external_in_messages: 20 * round.min(360),
                ..TrafficCounts::default()
            };
            let now = start + Duration::from_secs(10 * round);
            topics = system.topics(now, &traffic, Process::default());
            if round == 360 {
                let load: f64 = value(&topics, "load/messages/received/15min")
                    .parse()
                    .expect("a number");
                assert!((115.0..=120.0).contains(&load), "{load}");
            }
        }
        let load = |name: &str| {
            value(&topics, &format!("load/messages/received/{name}"))
                .parse::<f64>()
                .expect("a number")
        };
        assert!(load("1min") < 1.0 && load("5min") < 50.0 && load("15min") > 80.0);
    }
}
