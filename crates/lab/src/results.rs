//! The files of a lab run: `results.json`, `runs.csv`, samples. Plain data that can be read again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thicket_bench::Outcome;
use thicket_bench::generator::{Acknowledged, Sample};
use thicket_bench::outcome::Latency;

use crate::error::LabError;
use crate::testbed::Carried;

/// Version of the format.
pub const VERSION: u32 = 1;
/// Name of the main file.
pub const FILE: &str = "results.json";

/// Figures of what brokers report as sent to each other while messages were published: bytes,
/// publications, and the bytes of publications.
pub const OWN_COUNTERS: [&str; 3] = [
    "publish_own_link_bytes",
    "publish_own_link_messages",
    "publish_own_data_bytes",
];

/// 1 if a search for the highest rate ended at the limit of the load generator: the broker's rate is at least the result.
pub const GENERATOR_WAS_LIMIT: &str = "generator_was_limit";

/// Figures of what brokers did to clients in the middle of a run: connections closed, connections refused after that, publications refused by a reason code, and
/// publications of QoS 2 without an outcome.
pub const CONNECTION_COUNTS: [&str; 4] = [
    "closed_connections",
    "refused_connections",
    "refused_messages",
    "unknown_messages",
];

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this format.
    pub version: u32,
    /// Title of the scenario.
    pub title: String,
    /// The experiment it follows.
    pub source: Option<String>,
    /// Whether every run is valid and none is missing.
    pub valid: bool,
    /// Why it ended early, if it did.
    pub ended_early: Option<String>,
    /// Questions of the scenario that these tools do not answer, each with the reason.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// The machine and the tools.
    pub environment: Environment,
    /// Text of the scenario's file.
    pub scenario: String,
    /// All runs.
    pub runs: Vec<Run>,
}

/// What must be the same for two results to be comparable, and what explains a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Cores that are online.
    pub cores: usize,
    /// Memory of the machine in MiB.
    pub memory_mib: u64,
    /// Back end of the links.
    pub backend: String,
    /// Whether the link process runs before others.
    pub links_first: bool,
    /// What limits and counts CPU and memory.
    pub limits: String,
    /// Congestion control of TCP between sites.
    pub congestion_control: String,
    /// Whether brokers may use more cores together than there are.
    pub oversubscribed: bool,
    /// Version of the lab.
    pub lab: String,
    /// Commit that the program was built from, if it knows.
    pub commit: Option<String>,
    /// Whether the lab was built with optimisation.
    pub optimised: bool,
    /// Version of each system's broker.
    pub brokers: BTreeMap<String, String>,
}

/// One run: a system in a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the system.
    pub system: String,
    /// The varied parameters with their values here.
    pub parameters: Vec<(String, String)>,
    /// From 1.
    pub repeat: u64,
    /// Whether its figures may be used.
    pub valid: bool,
    /// Why not.
    pub invalid: Vec<String>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// Figures by name, with the unit last in the name.
    pub metrics: BTreeMap<String, f64>,
    /// Traffic and use by phase.
    pub phases: Vec<Phase>,
    /// The faults, and when each was really injected, in seconds after the first message.
    pub faults: Vec<(f64, String)>,
    /// File of samples, below the results' folder.
    pub samples: Option<String>,
    /// File of the acknowledgements to publishers, likewise.
    #[serde(default)]
    pub acknowledgements: Option<String>,
    /// File of a drawing of the arrivals over time, likewise.
    #[serde(default)]
    pub time_line: Option<String>,
    /// File of the numbers of that drawing, likewise.
    #[serde(default)]
    pub time_line_data: Option<String>,
}

/// A phase of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `control`, `subscriptions` or `publish`.
    pub name: String,
    /// Its length.
    pub seconds: f64,
    /// The traffic of the links.
    pub links: Vec<LinkTraffic>,
    /// The usage of the brokers.
    pub brokers: Vec<BrokerUse>,
}

/// Traffic of a link in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkTraffic {
    /// One end.
    pub a: String,
    /// The other.
    pub b: String,
    /// Bytes and frames.
    #[serde(flatten)]
    pub carried: Carried,
}

/// The usage of a broker in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokerUse {
    /// Its site.
    pub site: String,
    /// CPU seconds.
    pub cpu_s: f64,
    /// Memory at the end of the phase; `None` where it is not counted.
    #[serde(default)]
    pub memory_kib: Option<u64>,
    /// Most memory until the end of the phase, with page cache and kernel memory, likewise.
    #[serde(default)]
    pub memory_peak_kib: Option<u64>,
    /// Periods in which its quota of CPU was used up.
    pub throttled: u64,
}

impl Phase {
    /// Bytes on all links, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let both = |link: &LinkTraffic| link.carried.bytes_ab + link.carried.bytes_ba;
        self.links.iter().map(both).sum()
    }

    /// Frames on all links, both ways.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let both = |link: &LinkTraffic| link.carried.packets_ab + link.carried.packets_ba;
        self.links.iter().map(both).sum()
    }
}

/// The figures of a run from the outcome of the load generator.
#[must_use]
pub fn load_metrics(outcome: &Outcome) -> BTreeMap<String, f64> {
    let mut metrics: BTreeMap<String, f64> =
        outcome.latency.iter().flat_map(delay_metrics).collect();
    let acknowledgement = outcome.acknowledgement.iter();
    metrics.extend(acknowledgement.flat_map(acknowledgement_metrics));
    let mut put = |name: String, value: f64| {
        metrics.insert(name, value);
    };
    let counts = &outcome.counts;
    for (name, count) in [
        ("published_messages", counts.published),
        ("expected_messages", counts.expected),
        ("delivered_messages", counts.delivered),
        ("lost_messages", counts.lost),
        ("duplicated_messages", counts.duplicated),
        ("reordered_messages", counts.reordered),
    ] {
        put(name.to_owned(), count as f64);
    }
    // Without faults each is an error, or at least strange: no column says 0.
    for (name, count) in CONNECTION_COUNTS.into_iter().zip([
        counts.closed_connections,
        counts.refused_connections,
        counts.refused,
        counts.unknown,
    ]) {
        if count > 0 {
            put(name.to_owned(), count as f64);
        }
    }
    put("published_msgs_per_s".to_owned(), outcome.published_per_s);
    put("delivered_msgs_per_s".to_owned(), outcome.delivered_per_s);
    put("generator_cpu_cores".to_owned(), outcome.own.cores);
    put("generator_behind_ms".to_owned(), outcome.behind_schedule_ms);
    put(
        "generator_behind_mean_ms".to_owned(),
        outcome.behind_schedule_mean_ms,
    );
    metrics
}

/// The figures of end-to-end delays.
pub fn delay_metrics(latency: &Latency) -> [(String, f64); 6] {
    time_metrics("delay", latency)
}

/// The figures of the times until publishers have the last acknowledgement.
pub fn acknowledgement_metrics(latency: &Latency) -> [(String, f64); 6] {
    time_metrics("acknowledgement", latency)
}

fn time_metrics(what: &str, latency: &Latency) -> [(String, f64); 6] {
    [
        ("mean", latency.mean_us),
        ("p50", latency.p50_us),
        ("p90", latency.p90_us),
        ("p99", latency.p99_us),
        ("p999", latency.p999_us),
        ("max", latency.max_us),
    ]
    .map(|(name, us)| (format!("{what}_{name}_ms"), us / 1000.0))
}

/// The figures of the phases.
#[must_use]
pub fn phases_metrics(phases: &[Phase]) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    // (BORDER Fig. 5) has the bytes of each phase over the length of the whole run.
    let run_s = phases.iter().map(|phase| phase.seconds).sum();
    for phase in phases {
        phase_metrics(phase, run_s, &mut |name, value| {
            metrics.insert(name, value);
        });
    }
    metrics
}

fn phase_metrics(phase: &Phase, run_s: f64, put: &mut impl FnMut(String, f64)) {
    let name = &phase.name;
    if !phase.links.is_empty() {
        put(format!("{name}_traffic_bytes"), phase.bytes() as f64);
        put(format!("{name}_traffic_packets"), phase.packets() as f64);
        if run_s > 0.0 {
            put(
                format!("{name}_traffic_over_run_bytes_per_s"),
                phase.bytes() as f64 / run_s,
            );
        }
        if phase.seconds > 0.0 {
            put(
                format!("{name}_traffic_bytes_per_s"),
                phase.bytes() as f64 / phase.seconds,
            );
        }
    }
    if !phase.brokers.is_empty() && phase.seconds > 0.0 {
        let count = phase.brokers.len() as f64;
        let cpu_s: f64 = phase.brokers.iter().map(|broker| broker.cpu_s).sum();
        let cpu_percent = 100.0 * cpu_s / phase.seconds;
        put(format!("{name}_cluster_cpu_percent"), cpu_percent);
        put(format!("{name}_broker_cpu_percent"), cpu_percent / count);
        let brokers = || phase.brokers.iter();
        if let Some(kib) = brokers().map(|it| it.memory_kib).sum::<Option<u64>>() {
            let mib = kib as f64 / 1024.0;
            put(format!("{name}_cluster_memory_mib"), mib);
            put(format!("{name}_broker_memory_mib"), mib / count);
        }
        let peaks = brokers().map(|it| it.memory_peak_kib);
        if let Some(kib) = peaks.collect::<Option<Vec<u64>>>() {
            let most = kib.into_iter().max().unwrap_or_default();
            put(
                format!("{name}_broker_memory_peak_mib"),
                most as f64 / 1024.0,
            );
        }
    }
}

/// Payload of a full TCP segment, and headers of a frame: Ethernet, IPv4, and TCP with its time
/// stamps.
const SEGMENT_BYTES: f64 = 1448.0;
const HEADER_BYTES: f64 = 66.0;
/// Frames for each segment: every second one has an acknowledgement.
const FRAMES: f64 = 1.5;

/// Adds the traffic of publications and of signalling while messages were published (Overlays Fig.
/// 7 and 8), if brokers report the bytes of each.
///
/// Publications have their bytes, and the headers of as many frames as they take if each is sent by
/// itself; all other traffic is signalling.
pub fn split_traffic(metrics: &mut BTreeMap<String, f64>) {
    let [own, messages, data] = OWN_COUNTERS.map(|name| metrics.get(name).copied());
    let (Some(own), Some(messages), Some(data)) = (own, messages, data) else {
        return;
    };
    let all = ["publish_traffic_bytes", "publish_traffic_bytes_per_s"];
    let [Some(bytes), Some(per_s)] = all.map(|name| metrics.get(name).copied()) else {
        return;
    };
    let segments = messages * (data / messages.max(1.0) / SEGMENT_BYTES).ceil();
    // Messages that share a segment have fewer headers: what nodes send besides is signalling at
    // least.
    let most = (bytes - (own - data).max(0.0)).max(0.0);
    let publications = (data + segments * FRAMES * HEADER_BYTES).min(most);
    let share = if bytes > 0.0 {
        publications / bytes
    } else {
        0.0
    };
    for (name, share) in [("data", share), ("signalling", 1.0 - share)] {
        metrics.insert(format!("publish_{name}_bytes_per_s"), share * per_s);
    }
}

/// The longest time between two arrivals at a subscriber, in seconds.
#[must_use]
pub fn longest_silence_s(samples: &[Sample]) -> Option<f64> {
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut longest = None;
    for sample in samples {
        let arrived_ns = sample.sent_ns + sample.delay_ns;
        if let Some(before) = last.insert(sample.subscriber, arrived_ns) {
            longest = longest.max(Some(arrived_ns.saturating_sub(before)));
        }
    }
    longest.map(|ns| ns as f64 / 1e9)
}

/// Samples as CSV.
#[must_use]
pub fn samples_csv(samples: &[Sample]) -> String {
    let mut csv = String::from("subscriber,publisher,number,sent_us,delay_us\n");
    for sample in samples {
        let _ = writeln!(
            csv,
            "{},{},{},{:.1},{:.1}",
            sample.subscriber,
            sample.stream,
            sample.number,
            sample.sent_ns as f64 / 1000.0,
            sample.delay_ns as f64 / 1000.0
        );
    }
    csv
}

/// Acknowledgements to publishers as CSV.
#[must_use]
pub fn acknowledgements_csv(samples: &[Acknowledged]) -> String {
    let mut csv = String::from("publisher,number,sent_us,acknowledged_after_us\n");
    for sample in samples {
        let _ = writeln!(
            csv,
            "{},{},{:.1},{:.1}",
            sample.stream,
            sample.number,
            sample.sent_ns as f64 / 1000.0,
            sample.after_ns as f64 / 1000.0
        );
    }
    csv
}

impl Results {
    /// Reads the results in a folder.
    pub fn load(folder: &Path) -> Result<Self, LabError> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(LabError::io(path.display()))?;
        let results: Self = serde_json::from_str(&text)
            .map_err(|error| LabError::Unlike(format!("{}: {error}", path.display())))?;
        if results.version != VERSION {
            return Err(LabError::Unlike(format!(
                "{}: format {} is not {VERSION}",
                path.display(),
                results.version
            )));
        }
        Ok(results)
    }

    /// Writes `results.json` and `runs.csv`.
    pub fn save(&self, folder: &Path) -> Result<(), LabError> {
        let text =
            serde_json::to_string_pretty(self).map_err(|error| LabError::io(FILE)(error.into()))?;
        for (name, text) in [(FILE, text), ("runs.csv", self.csv())] {
            replace(&folder.join(name), &text)?;
        }
        Ok(())
    }

    /// A line for each run, a column for each figure.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut names: Vec<&String> = self
            .runs
            .iter()
            .flat_map(|run| run.metrics.keys())
            .collect();
        names.sort();
        names.dedup();
        let parameters: Vec<&String> = self
            .runs
            .first()
            .map(|run| run.parameters.iter().map(|(key, _)| key).collect())
            .unwrap_or_default();
        let mut csv = String::from("system");
        for key in &parameters {
            let _ = write!(csv, ",{}", quoted(key));
        }
        csv.push_str(",repeat,valid");
        for name in &names {
            let _ = write!(csv, ",{name}");
        }
        csv.push('\n');
        for run in &self.runs {
            csv.push_str(&run.system);
            for (_, value) in &run.parameters {
                let _ = write!(csv, ",{}", quoted(value));
            }
            let _ = write!(csv, ",{},{}", run.repeat, run.valid);
            for name in &names {
                let value = run.metrics.get(*name);
                let _ = write!(csv, ",{}", value.map_or(String::new(), ToString::to_string));
            }
            csv.push('\n');
        }
        csv
    }
}

/// Writes a file beside the one of before and moves it there: a lab that is killed meanwhile leaves that one whole.
fn replace(path: &Path, text: &str) -> Result<(), LabError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // On a full disk it is empty, or a part.
        let _ = std::fs::remove_file(&new);
    }
    written.map_err(LabError::io(path.display()))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_between_two_arrivals_of_one_subscriber() {
        let sample = |subscriber, sent_ns, delay_ns| Sample {
            subscriber,
            stream: 0,
            number: 0,
            sent_ns,
            delay_ns,
        };
        let second = 1_000_000_000;
        let samples = [
            sample(0, 0, 5),
            sample(1, second, 5),
            sample(0, second, second),
            sample(1, 4 * second, 5),
        ];
        assert_eq!(longest_silence_s(&samples), Some(3.0));
        assert_eq!(longest_silence_s(&samples[..1]), None);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        let error = replace(&path, "x").unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn traffic_is_split_as_brokers_count_their_bytes() {
        let of = |pairs: &[(&str, f64)]| {
            let mut metrics: BTreeMap<String, f64> = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect();
            split_traffic(&mut metrics);
            ["data", "signalling"].map(|it| {
                let figure = metrics.get(&format!("publish_{it}_bytes_per_s"));
                figure.map(|it| it.round())
            })
        };
        let traffic = ("publish_traffic_bytes", 12_000.0);
        let rate = ("publish_traffic_bytes_per_s", 1200.0);
        let counted = |messages: f64| {
            of(&[
                ("publish_own_link_bytes", 7000.0),
                ("publish_own_data_bytes", 5000.0),
                ("publish_own_link_messages", messages),
                traffic,
                rate,
            ])
        };
        // Ten messages of 500 bytes in a frame each, and five acknowledgements: 15 headers of 66
        // bytes.
        assert_eq!(counted(10.0), [Some(599.0), Some(601.0)]);
        // A thousand small ones share frames: what nodes count as signalling is left.
        assert_eq!(counted(1000.0), [Some(1000.0), Some(200.0)]);
        assert_eq!(of(&[traffic, rate]), [None, None], "no counters");
    }

    #[test]
    fn clusters_have_the_sum_of_their_brokers_and_these_their_mean() {
        let broker = |site: &str, cpu_s: f64, mib: u64| BrokerUse {
            site: site.to_owned(),
            cpu_s,
            memory_kib: Some(1024 * mib),
            memory_peak_kib: None,
            throttled: 0,
        };
        let phase = Phase {
            name: "publish".to_owned(),
            seconds: 10.0,
            links: Vec::new(),
            brokers: vec![broker("s1", 2.0, 30), broker("s2", 6.0, 50)],
        };
        let metrics = phases_metrics(&[phase]);
        for (name, value) in [
            ("publish_cluster_cpu_percent", 80.0),
            ("publish_broker_cpu_percent", 40.0),
            ("publish_cluster_memory_mib", 80.0),
            ("publish_broker_memory_mib", 40.0),
        ] {
            assert_eq!(metrics[name], value, "{name}");
        }
    }

    #[test]
    fn a_value_with_a_comma_is_quoted() {
        assert_eq!(quoted("{ a = 1, b = 2 }"), "\"{ a = 1, b = 2 }\"");
    }
}
