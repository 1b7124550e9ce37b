//! A scenario described in words.

use thicket_bench::generator::Arrivals;

use super::measure::CRASH_PER_S;
use super::{Cell, Measure, Placement, Scenario};
use crate::topology::Topology;
use crate::units::Positive;

impl Scenario {
    /// What will be built, run and varied, one line each.
    #[must_use]
    pub fn explain(&self, cells: &[Cell]) -> String {
        let mut lines = vec![self.title.clone()];
        if let Some(source) = &self.source {
            lines.push(format!("follows {source}"));
        }
        lines.push(String::new());
        lines.extend(self.network_lines());
        lines.push(format!("each broker:  {}", self.limits()));
        for system in &self.systems {
            let settings: Vec<String> = system
                .settings
                .iter()
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            let settings = if settings.is_empty() {
                String::new()
            } else {
                format!(" ({})", settings.join(", "))
            };
            lines.push(format!(
                "system:       {} by driver {}{settings}",
                system.name, system.driver
            ));
            if let Some(attach) = system.describe_attach() {
                lines.push(format!("              {attach}"));
            }
        }
        lines.extend(self.load_lines());
        if let Some(measure) = self.measure.describe() {
            lines.push(format!("measured:     {measure}"));
        }
        let apart_ms = self.network.start_every_ms.value();
        if apart_ms > 0.0 {
            lines.push(format!("starts:       brokers start {apart_ms} ms apart"));
        }
        if !self.network.later.is_empty() {
            lines.push(format!("joins later:  {}", self.network.later.join(", ")));
        }
        for fault in &self.faults {
            lines.push(format!(
                "fault:        {} s after the first message{}: {}",
                fault.at_s.value(),
                fault
                    .when_cpu_percent
                    .map_or(String::new(), |percent| format!(
                        " at the earliest, once a broker uses {} % of a core",
                        percent.value()
                    )),
                fault.describe()
            ));
            if let Some(seconds) = fault.for_s {
                lines.push(format!(
                    "              repaired after {} s",
                    seconds.value()
                ));
            }
            if let Some(mean) = fault.every_s {
                let until = fault
                    .until_s
                    .map_or("the end of the load".to_owned(), |until| {
                        format!("{} s", until.value())
                    });
                lines.push(format!(
                    "              recurs until {until}, on average {} s after the last repair, at times drawn from the seed",
                    mean.value()
                ));
            }
        }
        for sweep in &self.sweeps {
            let values: Vec<String> = sweep.values.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "varied:       {} = {}",
                sweep.key,
                values.join(", ")
            ));
        }
        lines.push(format!(
            "runs:         {} cells x {} systems x {} repeats = {}",
            cells.len(),
            self.systems.len(),
            self.repeats,
            cells.len() as u64 * self.systems.len() as u64 * self.repeats
        ));
        lines.join("\n") + "\n"
    }

    fn network_lines(&self) -> Vec<String> {
        let names = self.network.names().unwrap_or_default();
        let mut lines = vec![format!("sites:        {}", names.join(", "))];
        let Ok(topology) = Topology::new(&self.network, &names, self.seed) else {
            return lines;
        };
        for link in &topology.links {
            let shape = &link.shape;
            let rate = shape
                .bandwidth_mbit
                .map_or("no rate limit".to_owned(), |rate| {
                    format!("{rate} Mbit/s, {} packets may wait", shape.queue_packets)
                });
            let loss = if shape.loss_percent > 0.0 {
                format!(", {} % lost each way", shape.loss_percent)
            } else {
                String::new()
            };
            let law = shape.delay.describe().map_or(String::new(), |law| {
                format!(" on average, each way {law} for every packet")
            });
            lines.push(format!(
                "link:         {} - {}  RTT {:.2} ms{law}, {rate}{loss}",
                names[link.a],
                names[link.b],
                2.0 * shape.delay.mean_ms()
            ));
        }
        lines
    }

    fn limits(&self) -> String {
        let cpus = self.brokers.cpus.map_or("all cores".to_owned(), |cpus| {
            format!("{} cores", cpus.value())
        });
        let memory = self
            .brokers
            .memory_mib
            .map_or("all memory".to_owned(), |mib| format!("{mib} MiB"));
        let cores = match &self.brokers.cores[..] {
            [] => String::new(),
            lists => format!(", of the cores {} in turn", lists.join(" / ")),
        };
        format!("{cpus}, {memory}{cores}")
    }

    fn load_lines(&self) -> Vec<String> {
        let workload = &self.workload;
        let spacing = match workload.spacing() {
            Arrivals::Constant => String::new(),
            Arrivals::Poisson => " as Poisson processes".to_owned(),
            Arrivals::LogNormal {
                coefficient_of_variation,
            } => format!(" with log-normal gaps (variation {coefficient_of_variation})"),
        };
        let rate = match (workload.rate_per_s, workload.window) {
            _ if matches!(self.measure, Measure::Crash { .. }) => {
                let rate = workload.rate_per_s.map_or(CRASH_PER_S, Positive::value);
                format!("{rate} messages/s")
            }
            _ if self.measure.has_own_load() => "set by the measurement".to_owned(),
            (Some(rate), _) => format!("{} messages/s{spacing}", rate.value()),
            (None, window) => format!(
                "{} messages in flight for each publisher",
                window.unwrap_or(1)
            ),
        };
        let length = match (workload.messages, workload.seconds) {
            _ if self.measure.has_own_load() => "for its duration".to_owned(),
            (Some(messages), _) => format!("{messages} messages"),
            (None, seconds) => format!("{} s", seconds.map_or(1.0, Positive::value)),
        };
        let place = match &workload.placement {
            Placement::RoundRobin => "at all sites in turn".to_owned(),
            Placement::Random | Placement::Locality50Overlays => {
                "each at a site drawn at random".to_owned()
            }
            Placement::Locality100 => "all at the first site".to_owned(),
            Placement::Locality50Border => {
                "publishers at the first site, subscribers at sites drawn at random".to_owned()
            }
            Placement::Locality0 => {
                "publishers at the first site, subscribers at the second".to_owned()
            }
            Placement::Sites {
                publishers,
                subscribers,
            } => format!("publishers at {publishers}, subscribers at {subscribers}"),
        };
        let (pattern, place) = match &self.measure {
            Measure::Crash { site, .. } => (
                "a publisher, two subscribers to all its messages".to_owned(),
                format!("the publisher and a subscriber at the first site, a subscriber at {site}"),
            ),
            _ => (workload.plan().describe(), place),
        };
        let qos = match self.measure {
            Measure::Crash { .. } => workload.qos.max(1),
            _ => workload.qos,
        };
        vec![
            format!(
                "load:         {}, {} bytes at QoS {}, {rate}, {length}",
                pattern, workload.payload_bytes, qos
            ),
            format!("clients:      {place}{}", workload.of_clients()),
            format!(
                "phases:       control {} s, subscriptions with {} s of rest, publish",
                self.phases.control_s.value(),
                self.phases.settle_s.value()
            ),
        ]
    }
}
