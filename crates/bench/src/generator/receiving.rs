//! The deliveries to subscribers in a run.

use hashbrown::HashMap;
use hdrhistogram::Histogram;

use super::audience::{Audience, Counts, MemberOrder};
use super::streams::Stream;
use crate::sequence::Arrival;
use crate::stamp::{self, StampForm};
use crate::workload::Plan;

/// Latencies are recorded with three digits, up to ten minutes; longer ones count as ten minutes.
const LONGEST_LATENCY_NS: u64 = 600_000_000_000;

/// One arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Index of the subscriber.
    pub subscriber: u32,
    /// Index of the stream, which is that of its publisher.
    pub stream: u32,
    /// Number of the message in its stream.
    pub number: u32,
    /// Intended send time, in nanoseconds of the run's clock.
    pub sent_ns: u64,
    /// From then to the arrival.
    pub delay_ns: u64,
}

/// All audiences and their deliveries.
#[derive(Debug)]
pub struct Receiving {
    /// Individual arrivals, up to the limit.
    pub samples: Vec<Sample>,
    /// Most arrivals to keep.
    pub sample_limit: usize,
    audiences: Vec<Audience>,
    /// Audience of each subscriber, and the order of its deliveries if it shares.
    subscribers: Vec<(u32, Option<MemberOrder>)>,
    form: StampForm,
    /// Streams by topic, for payloads that do not contain theirs.
    by_topic: HashMap<Box<[u8]>, u32>,
    /// Counts of this run; missing messages are added at its end.
    pub counts: Counts,
    pub latency: Histogram<u64>,
    /// Whether arrivals enter the histogram.
    pub measuring: bool,
    /// Consecutive arrivals with the same send time: messages of one batch are recorded together.
    batch: (u64, u64),
}

impl Receiving {
    pub fn new(plan: &Plan, form: StampForm) -> Self {
        let counted = form == StampForm::Counted;
        let mut members = vec![0; plan.audiences.len()];
        for subscriber in &plan.subscribers {
            members[subscriber.audience as usize] += 1;
        }
        let subscriber = |audience: u32| {
            let shares = members[audience as usize] > 1;
            (
                audience,
                shares.then(|| MemberOrder::new(&plan.audiences[audience as usize])),
            )
        };
        let topics = plan
            .topics
            .iter()
            .zip(0..)
            .map(|(topic, stream)| (topic.as_bytes().into(), stream));
        Self {
            samples: Vec::new(),
            sample_limit: 0,
            audiences: plan
                .audiences
                .iter()
                .map(|streams| Audience::new(streams, counted))
                .collect(),
            subscribers: plan
                .subscribers
                .iter()
                .map(|subscriber_plan| subscriber(subscriber_plan.audience))
                .collect(),
            form,
            by_topic: if form == StampForm::Full {
                HashMap::new()
            } else {
                topics.collect()
            },
            counts: Counts::default(),
            // The bounds are fixed and valid: 1 < 2 * lowest <= highest, three digits.
            latency: Histogram::new_with_bounds(100, LONGEST_LATENCY_NS, 3)
                .expect("bounds of the histogram are valid"),
            measuring: false,
            batch: (0, 0),
        }
    }

    /// Notes a message; returns its stream and that stream's progress, `None` if there is no matching subscription.
    #[inline]
    pub fn on_message(
        &mut self,
        subscriber: u32,
        topic: &[u8],
        payload: &[u8],
        now_ns: u64,
    ) -> Option<(u32, u64)> {
        let (audience_index, order) = &mut self.subscribers[subscriber as usize];
        let audience = &mut self.audiences[*audience_index as usize];
        let (stream, number) = match self.form {
            StampForm::Full => {
                let stamp = stamp::read_full(payload)?;
                if self.measuring {
                    if stamp.time_ns != self.batch.0 {
                        let (time_ns, count) =
                            std::mem::replace(&mut self.batch, (stamp.time_ns, 0));
                        record(&mut self.latency, now_ns.saturating_sub(time_ns), count);
                    }
                    self.batch.1 += 1;
                    if self.samples.len() < self.sample_limit {
                        self.samples.push(Sample {
                            subscriber,
                            stream: stamp.stream,
                            number: stamp.number,
                            sent_ns: stamp.time_ns,
                            delay_ns: now_ns.saturating_sub(stamp.time_ns),
                        });
                    }
                }
                (stamp.stream, stamp.number)
            }
            StampForm::Number => (*self.by_topic.get(topic)?, stamp::read_number(payload)?),
            StampForm::Counted => {
                let stream = *self.by_topic.get(topic)?;
                self.counts.delivered += 1;
                return audience.count(stream).then_some((stream, 1));
            }
        };
        let arrival = audience.observe(stream, number)?;
        self.counts.delivered += 1;
        let came_on = match arrival {
            Arrival::InOrder => 1,
            Arrival::Ahead { skipped } => 1 + u64::from(skipped),
            Arrival::Reordered => {
                self.counts.reordered += u64::from(order.is_none());
                0
            }
            Arrival::Duplicate => {
                self.counts.duplicated += 1;
                0
            }
        };
        if let Some(order) = order
            && !order.observe(stream, number)
        {
            self.counts.reordered += 1;
        }
        Some((stream, came_on))
    }

    /// Ends a batch that was read together: its arrivals have the same time.
    #[inline]
    pub fn end_batch(&mut self, now_ns: u64) {
        if self.batch.1 > 0 {
            let (time_ns, count) = std::mem::take(&mut self.batch);
            record(&mut self.latency, now_ns.saturating_sub(time_ns), count);
        }
    }

    /// Starts a run.
    pub fn restart(&mut self, streams: &[Stream]) {
        self.counts = Counts::default();
        self.latency.reset();
        self.samples.clear();
        self.measuring = false;
        self.batch = (0, 0);
        for audience in &mut self.audiences {
            audience.restart(|stream| streams[stream as usize].next_number());
        }
    }

    /// The counts of the run, including what is missing by now.
    pub fn settle(&self, streams: &[Stream]) -> Counts {
        let mut counts = self.counts;
        counts.published = streams.iter().map(|stream| stream.sent).sum();
        let sent = |stream: u32| {
            let stream = &streams[stream as usize];
            (stream.next_number(), stream.sent)
        };
        for audience in &self.audiences {
            audience.settle(sent, &mut counts);
        }
        counts
    }
}

fn record(latency: &mut Histogram<u64>, value_ns: u64, count: u64) {
    if count > 0 {
        // Values above the bound are clamped, so recording cannot fail.
        let _ = latency.record_n(value_ns.min(LONGEST_LATENCY_NS), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use thicket_mqtt::{ProtocolVersion, Qos};

    fn setting(payload_len: usize) -> (Receiving, Vec<Stream>) {
        let plan = Workload::FanOut {
            publishers: 2,
            subscribers: 2,
        }
        .plan("t", 1)
        .unwrap();
        let stream = |index| {
            Stream::new(
                index,
                &plan.topics[index as usize],
                Qos::AtMostOnce,
                ProtocolVersion::V311,
                payload_len,
                2,
            )
            .unwrap()
        };
        (
            Receiving::new(&plan, StampForm::for_payload(payload_len)),
            vec![stream(0), stream(1)],
        )
    }

    fn payload(streams: &mut [Stream], stream: usize, len: usize, time_ns: u64) -> Vec<u8> {
        let mut packet = Vec::new();
        streams[stream].write_next(time_ns, &mut packet);
        packet[packet.len() - len..].to_vec()
    }

    #[test]
    fn counts_are_exact_for_every_size_of_payload() {
        for (len, lost, reordered, duplicated) in
            [(64, 1, 1, 1), (16, 1, 1, 1), (4, 1, 1, 1), (0, 0, 0, 0)]
        {
            let (mut receiving, mut streams) = setting(len);
            let messages: Vec<Vec<u8>> = (0..4).map(|_| payload(&mut streams, 1, len, 5)).collect();
            // Number 3 never arrives, number 1 arrives late and twice; the other subscriber receives all.
            for number in [0, 2, 1, 1] {
                receiving.on_message(0, b"t/out/1", &messages[number], 10);
            }
            for message in &messages {
                receiving.on_message(1, b"t/out/1", message, 10);
            }
            let counts = receiving.settle(&streams);
            let seen = (counts.lost, counts.reordered, counts.duplicated);
            assert_eq!(seen, (lost, reordered, duplicated), "{len} bytes");
            assert_eq!(
                (counts.published, counts.expected, counts.delivered),
                (4, 8, 8),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn latencies_are_recorded_for_each_message_of_a_batch() {
        let (mut receiving, mut streams) = setting(64);
        receiving.measuring = true;
        for time_ns in [1_000, 1_000, 5_000] {
            let message = payload(&mut streams, 0, 64, time_ns);
            receiving.on_message(0, b"t/out/0", &message, 11_000);
        }
        receiving.end_batch(11_000);
        assert_eq!(receiving.latency.len(), 3);
        assert!(
            (receiving.latency.max() as i64 - 10_000).abs() < 100,
            "{}",
            receiving.latency.max()
        );
        assert!(
            (receiving.latency.min() as i64 - 6_000).abs() < 100,
            "{}",
            receiving.latency.min()
        );
    }

    #[test]
    fn as_many_arrivals_are_kept_as_were_asked_for() {
        let (mut receiving, mut streams) = setting(64);
        receiving.measuring = true;
        receiving.sample_limit = 2;
        for time_ns in [1_000, 2_000, 3_000] {
            let message = payload(&mut streams, 0, 64, time_ns);
            receiving.on_message(1, b"t/out/0", &message, 10_000);
        }
        let kept: Vec<_> = receiving
            .samples
            .iter()
            .map(|sample| (sample.subscriber, sample.number, sample.delay_ns))
            .collect();
        assert_eq!(kept, [(1, 0, 9_000), (1, 1, 8_000)]);
    }

    #[test]
    fn a_message_of_another_topic_is_not_counted_as_delivered() {
        let (mut receiving, _) = setting(0);
        assert_eq!(receiving.on_message(0, b"other", b"", 0), None);
        assert_eq!(receiving.counts.delivered, 0);
    }
}
