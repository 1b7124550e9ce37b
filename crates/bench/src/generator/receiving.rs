//! The deliveries to subscribers in a run.

use hashbrown::HashMap;
use hdrhistogram::Histogram;

use super::audience::{Audience, Counts, MemberOrder};
use super::streams::{Settled, Stream};
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

/// A PUBLISH of QoS 1 or 2 with its last acknowledgement, PUBACK or PUBCOMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Index of the stream, which is that of its publisher.
    pub stream: u32,
    /// Number of the message in its stream.
    pub number: u32,
    /// Intended send time, in nanoseconds of the run's clock.
    pub sent_ns: u64,
    /// From then to the acknowledgement.
    pub after_ns: u64,
}

/// The acknowledgements to publishers.
#[derive(Debug)]
pub struct Acknowledging {
    pub time: Recorder,
    /// Individual ones, up to the limit.
    pub samples: Vec<Acknowledged>,
    /// Most to keep.
    pub sample_limit: usize,
}

impl Acknowledging {
    pub fn new() -> Self {
        Self {
            time: Recorder::new(),
            samples: Vec::new(),
            sample_limit: 0,
        }
    }

    #[inline]
    pub fn note(&mut self, stream: u32, settled: Settled, now_ns: u64) {
        self.time.note(settled.time_ns, now_ns);
        if self.samples.len() < self.sample_limit {
            self.samples.push(Acknowledged {
                stream,
                number: settled.number,
                sent_ns: settled.time_ns,
                after_ns: now_ns.saturating_sub(settled.time_ns),
            });
        }
    }

    pub fn restart(&mut self) {
        self.time.restart();
        self.samples.clear();
    }
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
    pub latency: Recorder,
    /// Whether arrivals enter the histogram.
    pub measuring: bool,
}

/// Times from the intended send time of messages on, in nanoseconds.
#[derive(Debug)]
pub struct Recorder {
    pub histogram: Histogram<u64>,
    /// Consecutive events with the same send time: messages of one batch are recorded together.
    batch: (u64, u64),
}

impl Recorder {
    pub fn new() -> Self {
        Self {
            // The bounds are fixed and valid: 1 < 2 * lowest <= highest, three digits.
            histogram: Histogram::new_with_bounds(100, LONGEST_LATENCY_NS, 3)
                .expect("bounds of the histogram are valid"),
            batch: (0, 0),
        }
    }

    /// Notes what happened now to a message.
    #[inline]
    pub fn note(&mut self, sent_ns: u64, now_ns: u64) {
        if sent_ns != self.batch.0 {
            self.end_batch(now_ns);
            self.batch.0 = sent_ns;
        }
        self.batch.1 += 1;
    }

    /// Ends a batch that was read together: all of it happened at the same time.
    #[inline]
    pub fn end_batch(&mut self, now_ns: u64) {
        if self.batch.1 > 0 {
            let (sent_ns, count) = std::mem::take(&mut self.batch);
            let value_ns = now_ns.saturating_sub(sent_ns).min(LONGEST_LATENCY_NS);
            // Values above the bound are clamped, so recording cannot fail.
            let _ = self.histogram.record_n(value_ns, count);
        }
    }

    pub fn restart(&mut self) {
        self.histogram.reset();
        self.batch = (0, 0);
    }
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
            latency: Recorder::new(),
            measuring: false,
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
                    self.latency.note(stamp.time_ns, now_ns);
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

    /// Starts a run.
    pub fn restart(&mut self, streams: &[Stream]) {
        self.counts = Counts::default();
        self.latency.restart();
        self.samples.clear();
        self.measuring = false;
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
        for (stream, index) in streams.iter().zip(0..) {
            for number in &stream.not_accepted {
                for audience in &self.audiences {
                    audience.except(index, *number, stream.next_number(), &mut counts);
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::super::streams::Form;
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
        let form = Form {
            qos: Qos::AtMostOnce,
            version: ProtocolVersion::V311,
            retain: false,
            payload_len,
            sizes: None,
        };
        let stream = |index| Stream::new(index, &plan.topics[index as usize], &form, 2).unwrap();
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
    fn messages_that_were_not_accepted_are_expected_only_if_they_arrived() {
        let (mut receiving, mut streams) = setting(64);
        let messages: Vec<Vec<u8>> = (0..4).map(|_| payload(&mut streams, 1, 64, 5)).collect();
        for number in [0, 1, 3] {
            receiving.on_message(0, b"t/out/1", &messages[number], 10);
        }
        receiving.on_message(1, b"t/out/1", &messages[0], 10);
        // Number 1 arrived at one of two subscribers, number 2 at none; number 3 was accepted.
        streams[1].not_accepted = vec![1, 2];
        let counts = receiving.settle(&streams);
        assert_eq!((counts.expected, counts.lost), (5, 1));
    }

    #[test]
    fn latencies_are_recorded_for_each_message_of_a_batch() {
        let (mut receiving, mut streams) = setting(64);
        receiving.measuring = true;
        for time_ns in [1_000, 1_000, 5_000] {
            let message = payload(&mut streams, 0, 64, time_ns);
            receiving.on_message(0, b"t/out/0", &message, 11_000);
        }
        receiving.latency.end_batch(11_000);
        let latency = &receiving.latency.histogram;
        assert_eq!(latency.len(), 3);
        for (seen, expected) in [(latency.max(), 10_000), (latency.min(), 6_000)] {
            assert!((seen as i64 - expected).abs() < 100, "{seen}");
        }
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
