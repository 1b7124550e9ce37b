//! Data from one other node: duplicates, admission, pending acknowledgements, and the credit granted.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use thicket_session::time::Instant;

use crate::identity::{Incarnation, NodeId, StreamId};
use crate::message::{AcknowledgedStream, put_stream};
use crate::ranges::RangeSet;
use crate::record::age_expiry;

/// Streams that one node may have; beyond it the link ends.
const MAXIMUM_STREAMS: usize = 1024;

/// Data from one other node.
#[derive(Debug)]
pub(crate) struct Inbound {
    windows: BTreeMap<(Incarnation, StreamId), Window>,
    /// Bytes delivered to the hub and not yet admitted or released.
    outstanding: u64,
    /// Bytes received on the current link.
    received: u64,
    /// The total that the other node may send on the current link.
    granted: u64,
    credit_window: u64,
    has_acknowledgements: bool,
}

/// Numbers of one stream that were received and may be received again.
#[derive(Debug, Default)]
struct Window {
    low: u64,
    admitted: RangeSet,
    /// Delivered to the hub, not admitted: number and length, ascending.
    in_progress: VecDeque<(u64, u32)>,
    acknowledge: RangeSet,
    /// The highest number delivered.
    handed_over: u64,
    /// Records received over a tree before one that they must follow, by number.
    waiting: BTreeMap<u64, Waiting>,
    /// Delivered before one of the two nodes marked the other as down: other nodes may have kept them, and send them again.
    before: RangeSet,
}

/// Ranges of a stream remembered from before two nodes marked each other as down.
const MAXIMUM_BEFORE: usize = 1024;

#[derive(Debug)]
struct Waiting {
    before: u64,
    since: Instant,
    record: Vec<u8>,
}

/// Why data ends a link. Protocol: the other node exceeded a limit that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InboundError {
    #[error("{received} bytes of data, {granted} were granted")]
    CreditExceeded { received: u64, granted: u64 },
    #[error("more than {maximum} streams")]
    TooManyStreams { maximum: usize },
    #[error("more than {maximum} ranges of numbers that may be sent again")]
    WindowExceeded { maximum: usize },
}

/// The result of receiving a record over a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Deliver it.
    New,
    /// It is delivered after another one.
    Waits,
    /// A duplicate.
    Known,
    /// The origin sends more than its window: dropped. A numbered record is resent.
    OverLimit,
}

/// The state of a numbered message of another node, which may arrive by two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Unknown: not received, or so long ago that it is not sent again.
    No,
    /// Delivered; not all workers have admitted it.
    UnderWay,
    /// Admitted by the workers.
    Admitted,
}

impl Inbound {
    pub(crate) const fn new(credit_window: u64) -> Self {
        Self {
            windows: BTreeMap::new(),
            outstanding: 0,
            received: 0,
            granted: 0,
            credit_window,
            has_acknowledgements: false,
        }
    }

    /// Starts a new link; returns its first credit. What the workers still hold from an earlier link is subtracted.
    pub(crate) fn start_link(&mut self) -> u64 {
        self.received = 0;
        self.granted = self.limit();
        self.granted
    }

    const fn limit(&self) -> u64 {
        self.received + self.credit_window.saturating_sub(self.outstanding)
    }

    /// One of the two nodes has marked the other as down: the records that the waiting ones must follow never arrive. The waiting ones have not been
    /// acknowledged. What was delivered may arrive once more, from nodes that kept it meanwhile.
    pub(crate) fn begin_again(&mut self) {
        for window in self.windows.values_mut() {
            window.remember();
            for waiting in std::mem::take(&mut window.waiting).into_values() {
                let len = waiting.record.len() as u64;
                self.outstanding = self.outstanding.saturating_sub(len);
            }
        }
    }

    /// A batch begins: numbers below `low` are never sent again.
    pub(crate) fn start_batch(
        &mut self,
        incarnation: Incarnation,
        stream: StreamId,
        low: u64,
        maximum_ranges: usize,
    ) -> Result<(), InboundError> {
        if self.windows.len() >= MAXIMUM_STREAMS
            && !self.windows.contains_key(&(incarnation, stream))
        {
            return Err(InboundError::TooManyStreams {
                maximum: MAXIMUM_STREAMS,
            });
        }
        let window = self.windows.entry((incarnation, stream)).or_default();
        if low > window.low {
            window.low = low;
            window.admitted.remove_below(low);
        }
        if window.admitted.len() > maximum_ranges {
            return Err(InboundError::WindowExceeded {
                maximum: maximum_ranges,
            });
        }
        Ok(())
    }

    /// A record of the batch; returns whether it is new and is delivered to the hub.
    pub(crate) fn arrive(
        &mut self,
        incarnation: Incarnation,
        stream: StreamId,
        number: u64,
        len: u32,
        slack: u64,
    ) -> Result<bool, InboundError> {
        self.received += u64::from(len);
        // One record larger than the window may be sent, so `slack` is the longest packet.
        if self.received > self.granted.saturating_add(slack) {
            return Err(InboundError::CreditExceeded {
                received: self.received,
                granted: self.granted,
            });
        }
        if number > 0
            && let Some(window) = self.windows.get_mut(&(incarnation, stream))
        {
            if number < window.low || window.admitted.contains(number) {
                window.acknowledge.insert(number);
                self.has_acknowledgements = true;
                return Ok(false);
            }
            match window.place(number) {
                Ok(_) => return Ok(false),
                Err(at) => window.in_progress.insert(at, (number, len)),
            }
            window.handed_over = window.handed_over.max(number);
        }
        self.outstanding += u64::from(len);
        Ok(true)
    }

    /// A record received over a tree, to be delivered after the one `gap` numbers before it. Its credit is what its origin has in transit, so none is
    /// granted here; what an origin sends beyond twice the window is refused.
    pub(crate) fn arrive_over_tree(
        &mut self,
        now: Instant,
        (incarnation, stream): (Incarnation, StreamId),
        number: u64,
        gap: u64,
        bytes: &[u8],
    ) -> Arrival {
        let len = bytes.len() as u32;
        let bound = if number > 0 {
            self.credit_window.saturating_mul(2)
        } else {
            self.credit_window
        };
        let has_capacity = self.outstanding == 0 || self.outstanding + u64::from(len) <= bound;
        let Some(window) = self
            .windows
            .get_mut(&(incarnation, stream))
            .filter(|_| number > 0)
        else {
            if has_capacity {
                self.outstanding += u64::from(len);
            }
            return if has_capacity {
                Arrival::New
            } else {
                Arrival::OverLimit
            };
        };
        if number < window.low || window.admitted.contains(number) {
            window.acknowledge.insert(number);
            self.has_acknowledgements = true;
            return Arrival::Known;
        }
        if window.place(number).is_ok() || window.waiting.contains_key(&number) {
            return Arrival::Known;
        }
        if !has_capacity {
            return Arrival::OverLimit;
        }
        self.outstanding += u64::from(len);
        let before = if gap == 0 {
            0
        } else {
            number.saturating_sub(gap)
        };
        if window.has_handed_over(before) {
            window.hand_over(number, len);
            return Arrival::New;
        }
        let (since, record) = (now, bytes.to_vec());
        window.waiting.insert(
            number,
            Waiting {
                before,
                since,
                record,
            },
        );
        Arrival::Waits
    }

    /// A record that waited for one before it, if that one has been delivered; its expiry is reduced by the wait.
    pub(crate) fn take_next(
        &mut self,
        now: Instant,
        stream: (Incarnation, StreamId),
    ) -> Option<Vec<u8>> {
        let window = self.windows.get_mut(&stream)?;
        let (&number, next) = window.waiting.first_key_value()?;
        if !window.has_handed_over(next.before) {
            return None;
        }
        let Waiting {
            since, mut record, ..
        } = window.waiting.remove(&number)?;
        window.hand_over(number, record.len() as u32);
        let waited = now.since(since).as_millis();
        age_expiry(&mut record, u64::try_from(waited).unwrap_or(u64::MAX));
        Some(record)
    }

    /// The workers have admitted these numbers; those that were not delivered are ignored.
    pub(crate) fn admit(
        &mut self,
        incarnation: Incarnation,
        stream: StreamId,
        numbers: &RangeInclusive<u64>,
    ) {
        let Some(window) = self.windows.get_mut(&(incarnation, stream)) else {
            return;
        };
        let first = window
            .in_progress
            .partition_point(|(number, _)| number < numbers.start());
        let after = window
            .in_progress
            .partition_point(|(number, _)| number <= numbers.end())
            .max(first);
        for (number, len) in window.in_progress.drain(first..after) {
            self.outstanding = self.outstanding.saturating_sub(u64::from(len));
            if number >= window.low {
                window.admitted.insert(number);
            }
            window.acknowledge.insert(number);
            self.has_acknowledgements = true;
        }
    }

    /// Whether a number was delivered and may arrive again.
    pub(crate) fn knows(&self, incarnation: Incarnation, stream: StreamId, number: u64) -> Known {
        let Some(window) = self.windows.get(&(incarnation, stream)) else {
            return Known::No;
        };
        if window.place(number).is_ok() {
            Known::UnderWay
        } else if window.admitted.contains(number) || window.before.contains(number) {
            Known::Admitted
        } else {
            Known::No
        }
    }

    /// The workers have accepted records without numbers.
    pub(crate) const fn release(&mut self, bytes: u64) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }

    /// Whether something must be sent to the other node: acknowledgements, or enough credit for a packet.
    pub(crate) const fn owes(&self) -> bool {
        let more = self.limit().saturating_sub(self.granted);
        // When idle, all credit is granted, so that a record as large as the window can be sent.
        self.has_acknowledgements
            || more > self.credit_window / 8
            || (more > 0 && self.outstanding == 0)
    }

    /// Appends all acknowledgements and grants all available credit; returns the limit.
    pub(crate) fn take_acknowledgements(&mut self, origin: NodeId, out: &mut Vec<u8>) -> u64 {
        if self.has_acknowledgements {
            for ((incarnation, stream), window) in &mut self.windows {
                if !window.acknowledge.is_empty() {
                    let stream = AcknowledgedStream {
                        origin,
                        incarnation: *incarnation,
                        stream: *stream,
                    };
                    put_stream(
                        out,
                        stream,
                        window.acknowledge.len(),
                        window.acknowledge.iter(),
                    );
                    window.acknowledge.clear();
                }
            }
            self.has_acknowledgements = false;
        }
        self.granted = self.granted.max(self.limit());
        self.granted
    }
}

impl Window {
    /// Whether a record that must follow number `before` may be delivered.
    const fn has_handed_over(&self, before: u64) -> bool {
        before <= self.handed_over || before < self.low
    }

    fn hand_over(&mut self, number: u64, len: u32) {
        self.handed_over = self.handed_over.max(number);
        let at = self
            .in_progress
            .partition_point(|(other, _)| *other < number);
        self.in_progress.insert(at, (number, len));
    }

    /// Remembers what was delivered, also after `low` has passed it.
    fn remember(&mut self) {
        let admitted = self.admitted.iter().flatten();
        let in_progress = self.in_progress.iter().map(|(number, _)| *number);
        for number in admitted.chain(in_progress) {
            self.before.insert(number);
        }
        self.before.shorten(MAXIMUM_BEFORE);
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        match self.in_progress.back() {
            // Nearly always the number is the last.
            Some((last, _)) if *last >= number => self
                .in_progress
                .binary_search_by_key(&number, |(number, _)| *number),
            Some(_) | None => Err(self.in_progress.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    const HERE: (Incarnation, StreamId) = (Incarnation(1), StreamId(0));

    fn arrive(inbound: &mut Inbound, number: u64) -> bool {
        inbound
            .arrive(HERE.0, HERE.1, number, 10, 0)
            .expect("within credit")
    }

    fn acknowledged(inbound: &mut Inbound) -> Vec<RangeInclusive<u64>> {
        let (mut out, mut ranges) = (Vec::new(), Vec::new());
        let credit_limit = inbound.take_acknowledgements(NodeId(1), &mut out);
        let view = crate::message::AcknowledgeView {
            credit_limit,
            control_received: 0,
            streams: &out,
        };
        view.for_each_range(|_, range| ranges.push(range))
            .expect("just written");
        ranges
    }

    #[test]
    fn a_number_is_new_once_and_acknowledged_when_admitted_and_whenever_it_comes_again() {
        let mut inbound = Inbound::new(1000);
        inbound.start_link();
        inbound
            .start_batch(HERE.0, HERE.1, 3, 10)
            .expect("first stream");
        assert_eq!(
            [5, 4, 7, 5].map(|number| arrive(&mut inbound, number)),
            [true, true, true, false]
        );
        assert!(!inbound.owes(), "nothing is admitted");
        inbound.admit(HERE.0, HERE.1, &(4..=6));
        assert_eq!(acknowledged(&mut inbound), [4..=5]);
        assert!(!arrive(&mut inbound, 4), "admitted");
        assert!(!arrive(&mut inbound, 2), "below low");
        assert!(!arrive(&mut inbound, 7), "in progress: not acknowledged");
        assert_eq!(acknowledged(&mut inbound), [2..=2, 4..=4]);
        inbound
            .start_batch(HERE.0, HERE.1, 8, 10)
            .expect("known stream");
        inbound.admit(HERE.0, HERE.1, &(7..=7));
        assert_eq!(acknowledged(&mut inbound), [7..=7]);
        assert!(
            inbound.windows[&HERE].admitted.is_empty(),
            "nothing below low is remembered"
        );
    }

    #[test]
    fn what_came_before_two_nodes_gave_each_other_up_stays_known() {
        let mut inbound = Inbound::new(1000);
        inbound.start_link();
        let begin = |inbound: &mut Inbound, low| {
            let begun = inbound.start_batch(HERE.0, HERE.1, low, 10);
            begun.expect("one stream");
        };
        begin(&mut inbound, 3);
        (3..6).for_each(|number| assert!(arrive(&mut inbound, number)));
        inbound.admit(HERE.0, HERE.1, &(3..=4));
        let known = |inbound: &Inbound| [3, 5, 6].map(|it| inbound.knows(HERE.0, HERE.1, it));
        let before = [Known::Admitted, Known::UnderWay, Known::No];
        assert_eq!(known(&inbound), before);
        inbound.begin_again();
        begin(&mut inbound, 8);
        assert_eq!(known(&inbound), before, "low has passed them");
        inbound.admit(HERE.0, HERE.1, &(5..=5));
        assert_eq!(known(&inbound)[1], Known::Admitted);
    }

    #[test]
    fn what_waits_for_one_before_it_comes_after_it_and_has_less_time_left() {
        let at = Instant::from_millis;
        let mut inbound = Inbound::new(1000);
        inbound
            .start_batch(HERE.0, HERE.1, 1, 10)
            .expect("first stream");
        let record = |number| {
            let mut bytes = Vec::new();
            Record {
                number,
                expiry_left_ms: Some(5000),
                topic: "a",
                ..Record::default()
            }
            .encode(&mut bytes);
            bytes
        };
        let late = inbound.arrive_over_tree(at(100), HERE, 7, 3, &record(7));
        assert_eq!(
            (late, inbound.take_next(at(100), HERE)),
            (Arrival::Waits, None)
        );
        let first = inbound.arrive_over_tree(at(900), HERE, 4, 0, &record(4));
        assert_eq!(first, Arrival::New);
        let next = inbound.take_next(at(900), HERE).expect("its turn");
        let (next, _) = Record::decode(&next).expect("whole");
        assert_eq!((next.number, next.expiry_left_ms), (7, Some(4200)));
        assert_eq!(inbound.take_next(at(900), HERE), None);
    }

    #[test]
    fn credit_returns_with_admission_and_release() {
        let mut inbound = Inbound::new(100);
        assert_eq!(inbound.start_link(), 100);
        inbound
            .start_batch(HERE.0, HERE.1, 1, 10)
            .expect("first stream");
        (1..=5).for_each(|number| assert!(arrive(&mut inbound, number)));
        assert!(
            inbound
                .arrive(HERE.0, HERE.1, 0, 50, 0)
                .expect("within credit")
        );
        assert_eq!(
            inbound.take_acknowledgements(NodeId(1), &mut Vec::new()),
            100
        );
        assert_eq!(
            inbound.arrive(HERE.0, HERE.1, 6, 1, 0),
            Err(InboundError::CreditExceeded {
                received: 101,
                granted: 100
            }),
        );
        inbound.release(50);
        inbound.admit(HERE.0, HERE.1, &(1..=2));
        assert_eq!(
            inbound.take_acknowledgements(NodeId(1), &mut Vec::new()),
            171
        );
        assert_eq!(inbound.start_link(), 70, "three are still held");
    }

    #[test]
    fn streams_and_ranges_are_bounded() {
        let mut inbound = Inbound::new(1 << 20);
        inbound.start_link();
        for stream in 0..MAXIMUM_STREAMS as u16 {
            inbound
                .start_batch(HERE.0, StreamId(stream), 1, 3)
                .expect("within the bound");
        }
        assert!(inbound.start_batch(Incarnation(2), HERE.1, 1, 3).is_err());
        for number in [1, 3, 5, 7] {
            arrive(&mut inbound, number);
            inbound.admit(HERE.0, HERE.1, &(number..=number));
        }
        assert_eq!(
            inbound.start_batch(HERE.0, HERE.1, 1, 3),
            Err(InboundError::WindowExceeded { maximum: 3 })
        );
        assert_eq!(inbound.start_batch(HERE.0, HERE.1, 3, 3), Ok(()));
    }
}
