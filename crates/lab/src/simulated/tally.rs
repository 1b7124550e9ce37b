//! The arrivals at subscribers in virtual time, counted exactly.

use std::collections::BTreeMap;

use thicket_bench::generator::{Acknowledged, Sample};
use thicket_bench::sequence::{Arrival, Sequence};
use thicket_bench::stamp::{self, Stamp};
use thicket_bench::workload::Plan;

use crate::measured::MAX_SAMPLES;

/// Counts of a run.
#[derive(Debug)]
pub(super) struct Tally {
    plan: Plan,
    /// For each audience a sequence for each of its streams.
    sequences: Vec<Vec<Sequence>>,
    /// Audiences with several members: each receives only a part of what they share.
    shares: Vec<bool>,
    /// Arrivals by delay, ms.
    delays: BTreeMap<u64, u64>,
    /// The first arrivals.
    pub samples: Vec<Sample>,
    /// Last acknowledgements to publishers by the time that they took, ms.
    acknowledgements: BTreeMap<u64, u64>,
    /// The first of them.
    pub acknowledged: Vec<Acknowledged>,
    /// Messages of each stream published so far.
    pub sent: Vec<u64>,
    /// Deliveries of each stream.
    arrived: Vec<u64>,
    /// Recipients of each stream.
    recipients: Vec<u64>,
    delivered: u64,
    duplicated: u64,
    reordered: u64,
    foreign: u64,
    /// Messages that the brokers refused: nobody has to get them.
    pub not_accepted: Vec<Stamp>,
    /// Messages published earlier are warm-up.
    measured_from: u64,
    start: u64,
    pub last_arrival: u64,
}

impl Tally {
    pub fn new(plan: Plan) -> Self {
        let streams = plan.topics.len();
        let mut members = vec![0; plan.audiences.len()];
        for subscriber in &plan.subscribers {
            members[subscriber.audience as usize] += 1;
        }
        let mut recipients = vec![0; streams];
        for stream in plan.audiences.iter().flatten() {
            recipients[*stream as usize] += 1;
        }
        let sequences = |streams: &Vec<u32>| vec![Sequence::default(); streams.len()];
        Self {
            sequences: plan.audiences.iter().map(sequences).collect(),
            shares: members.iter().map(|count| *count > 1).collect(),
            delays: BTreeMap::new(),
            samples: Vec::new(),
            acknowledgements: BTreeMap::new(),
            acknowledged: Vec::new(),
            sent: vec![0; streams],
            arrived: vec![0; streams],
            recipients,
            delivered: 0,
            duplicated: 0,
            reordered: 0,
            foreign: 0,
            not_accepted: Vec::new(),
            measured_from: 0,
            start: 0,
            last_arrival: 0,
            plan,
        }
    }

    /// Publishing begins; the delay of messages published before `measured_from` is not counted.
    pub const fn begin(&mut self, start: u64, measured_from: u64) {
        (self.start, self.measured_from) = (start, measured_from);
        self.last_arrival = start;
    }

    /// The plan of the run.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A message has arrived at a subscriber.
    pub fn note(&mut self, subscriber: usize, payload: &[u8], at: u64) {
        let Some(stamp) = stamp::read_full(payload) else {
            self.foreign += 1;
            return;
        };
        let audience = self.plan.subscribers[subscriber].audience as usize;
        let Ok(place) = self.plan.audiences[audience].binary_search(&stamp.stream) else {
            self.foreign += 1;
            return;
        };
        self.last_arrival = at;
        self.delivered += 1;
        match self.sequences[audience][place].observe(stamp.number) {
            Arrival::InOrder | Arrival::Ahead { .. } => self.arrived[stamp.stream as usize] += 1,
            Arrival::Reordered => {
                self.arrived[stamp.stream as usize] += 1;
                self.reordered += u64::from(!self.shares[audience]);
            }
            Arrival::Duplicate => self.duplicated += 1,
        }
        let sent = stamp.time_ns / 1_000_000;
        if sent < self.measured_from {
            return;
        }
        let delay = at - sent;
        *self.delays.entry(delay).or_default() += 1;
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(Sample {
                subscriber: subscriber as u32,
                stream: stamp.stream,
                number: stamp.number,
                sent_ns: stamp.time_ns - self.start * 1_000_000,
                delay_ns: delay * 1_000_000,
            });
        }
    }

    /// A publisher has the last acknowledgement of a message.
    pub fn note_acknowledged(&mut self, message: Stamp, at: u64) {
        let sent = message.time_ns / 1_000_000;
        if sent < self.measured_from {
            return;
        }
        let after = at - sent;
        *self.acknowledgements.entry(after).or_default() += 1;
        if self.acknowledged.len() < MAX_SAMPLES {
            self.acknowledged.push(Acknowledged {
                stream: message.stream,
                number: message.number,
                sent_ns: message.time_ns - self.start * 1_000_000,
                after_ns: after * 1_000_000,
            });
        }
    }

    /// Messages of a stream that have not arrived at all their recipients.
    pub fn on_their_way(&self, stream: usize) -> u64 {
        let back = self.arrived[stream]
            .checked_div(self.recipients[stream])
            .unwrap_or(self.sent[stream]);
        self.sent[stream].saturating_sub(back)
    }

    fn expected(&self) -> u64 {
        let of = |(sent, recipients): (&u64, &u64)| sent * recipients;
        self.sent.iter().zip(&self.recipients).map(of).sum()
    }

    /// Whether every message has arrived at every recipient.
    pub fn is_complete(&self) -> bool {
        self.arrived.iter().sum::<u64>() >= self.expected()
    }

    /// Deliveries so far, duplicates included.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Deliveries of refused messages that did not happen.
    fn excepted(&self) -> u64 {
        let of = |message: &Stamp| {
            let audiences = self.plan.audiences.iter().zip(&self.sequences);
            let missing = audiences.filter(|(streams, sequences)| {
                let place = streams.binary_search(&message.stream);
                let sent = self.sent[message.stream as usize] as u32;
                place.is_ok_and(|place| sequences[place].is_missing(message.number, sent))
            });
            missing.count() as u64
        };
        self.not_accepted.iter().map(of).sum()
    }

    fn lost(&self) -> u64 {
        let audiences = self.plan.audiences.iter().zip(&self.sequences);
        audiences
            .flat_map(|(streams, sequences)| streams.iter().zip(sequences))
            .map(|(stream, sequence)| sequence.missing(self.sent[*stream as usize] as u32))
            .sum()
    }

    /// The figures of the run.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::new();
        let mut put = |name: &str, value: f64| {
            metrics.insert(name.to_owned(), value);
        };
        for (name, count) in [
            ("published_messages", self.sent.iter().sum()),
            ("expected_messages", self.expected() - self.excepted()),
            ("delivered_messages", self.delivered),
            ("lost_messages", self.lost() - self.excepted()),
            ("duplicated_messages", self.duplicated),
            ("reordered_messages", self.reordered),
            ("foreign_messages", self.foreign),
        ] {
            put(name, count as f64);
        }
        for (what, times) in [
            ("delay", &self.delays),
            ("acknowledgement", &self.acknowledgements),
        ] {
            let count: u64 = times.values().sum();
            if count == 0 {
                continue;
            }
            let sum: u64 = times.iter().map(|(time, count)| time * count).sum();
            put(&format!("{what}_mean_ms"), sum as f64 / count as f64);
            for (name, share) in [
                ("p50", 0.5),
                ("p90", 0.9),
                ("p99", 0.99),
                ("p999", 0.999),
                ("max", 1.0),
            ] {
                put(&format!("{what}_{name}_ms"), quantile(times, share) as f64);
            }
        }
        metrics
    }
}

/// The time that a share of these did not exceed, ms. `times`: how many took that long.
fn quantile(times: &BTreeMap<u64, u64>, share: f64) -> u64 {
    let all: u64 = times.values().sum();
    let rank = (share * all as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (time, count) in times {
        seen += count;
        if seen >= rank {
            return *time;
        }
    }
    0
}
