//! The receiving side: what each audience still expects, and exact counts.

use serde::Serialize;

use crate::sequence::{Arrival, Sequence};

/// Counts of all messages of a run, including warm-up. Exact if payloads contain a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Messages published.
    pub published: u64,
    /// Deliveries expected for them.
    pub expected: u64,
    /// Deliveries, including duplicates.
    pub delivered: u64,
    /// Expected but not delivered.
    pub lost: u64,
    /// Delivered again.
    pub duplicated: u64,
    /// Delivered after a later message of the same publisher and topic.
    pub reordered: u64,
    /// Publications the broker refused by a reason code. One that did not arrive is neither expected nor lost.
    pub refused: u64,
    /// Publications of QoS 2 whose connection ended before they were acknowledged: they are not sent again, as they may have arrived. Otherwise like those
    /// refused.
    pub unknown: u64,
    /// Connections that ended in the middle of the run.
    pub closed_connections: u64,
    /// Attempts to connect again that were refused, or reached no broker.
    pub refused_connections: u64,
    /// Messages without a matching subscription, or from elsewhere.
    pub foreign: u64,
}

impl Counts {
    /// Whether every message arrived exactly once and in order.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.lost == 0
            && self.duplicated == 0
            && self.reordered == 0
            && self.refused == 0
            && self.unknown == 0
            && self.closed_connections == 0
            && self.foreign == 0
    }
}

/// Those who together receive each message of some streams once: a subscriber, or a group with a shared subscription.
#[derive(Debug)]
pub struct Audience {
    streams: StreamSet,
    /// A sequence for each stream in the set.
    sequences: Vec<Sequence>,
    /// Arrivals in this run for each stream, kept only for payloads without a number.
    arrivals: Vec<u64>,
}

/// A set of streams, with a position for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamSet {
    /// Consecutive streams.
    Range {
        /// The first.
        first: u32,
        /// Their number.
        len: u32,
    },
    /// Any streams, ascending.
    Sorted(Box<[u32]>),
}

impl StreamSet {
    /// The set of `streams`, which must be ascending and distinct.
    pub fn new(streams: &[u32]) -> Self {
        match (streams.first(), streams.last()) {
            (Some(&first), Some(&last)) if (last - first) as usize + 1 == streams.len() => {
                Self::Range {
                    first,
                    len: streams.len() as u32,
                }
            }
            _ => Self::Sorted(streams.into()),
        }
    }

    /// The position of `stream`, if it is in the set.
    #[inline]
    pub fn place(&self, stream: u32) -> Option<usize> {
        match self {
            Self::Range { first, len } => {
                let place = stream.wrapping_sub(*first);
                (place < *len).then_some(place as usize)
            }
            Self::Sorted(streams) => streams.binary_search(&stream).ok(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (range, sorted) = match self {
            Self::Range { first, len } => (*first..first + len, &[][..]),
            Self::Sorted(streams) => (0..0, &**streams),
        };
        range.chain(sorted.iter().copied())
    }
}

impl Audience {
    /// An audience of these streams, ascending and distinct. `counted`: the payloads contain no number.
    pub fn new(streams: &[u32], counted: bool) -> Self {
        Self {
            streams: StreamSet::new(streams),
            sequences: vec![Sequence::default(); streams.len()],
            arrivals: vec![0; if counted { streams.len() } else { 0 }],
        }
    }

    /// Notes a numbered message; `None` if the stream is not in the audience.
    #[inline]
    pub fn observe(&mut self, stream: u32, number: u32) -> Option<Arrival> {
        let place = self.streams.place(stream)?;
        Some(self.sequences[place].observe(number))
    }

    /// Notes a message without a number; false if the stream is not in the audience.
    pub fn count(&mut self, stream: u32) -> bool {
        match self
            .streams
            .place(stream)
            .and_then(|place| self.arrivals.get_mut(place))
        {
            Some(arrivals) => {
                *arrivals += 1;
                true
            }
            None => false,
        }
    }

    /// Adds missing messages to `counts`. `sent` returns a stream's next number and its messages of this run.
    pub fn settle(&self, sent: impl Fn(u32) -> (u32, u64), counts: &mut Counts) {
        for (place, stream) in self.streams.iter().enumerate() {
            let (next_number, published) = sent(stream);
            counts.expected += published;
            match self.arrivals.get(place) {
                None => counts.lost += self.sequences[place].missing(next_number),
                Some(&arrivals) => {
                    counts.lost += published.saturating_sub(arrivals);
                    counts.duplicated += arrivals.saturating_sub(published);
                }
            }
        }
    }

    /// Takes a message that was not accepted, and did not arrive, out of those expected. Payloads without a number do not tell which one arrived.
    pub fn except(&self, stream: u32, number: u32, sent_up_to: u32, counts: &mut Counts) {
        let Some(place) = self.streams.place(stream) else {
            return;
        };
        if self.arrivals.is_empty() && self.sequences[place].is_missing(number, sent_up_to) {
            counts.expected -= 1;
            counts.lost -= 1;
        }
    }

    /// Starts the counts of a run.
    pub fn restart(&mut self, next_number: impl Fn(u32) -> u32) {
        for (sequence, stream) in self.sequences.iter_mut().zip(self.streams.iter()) {
            sequence.restart_at(next_number(stream));
        }
        self.arrivals.fill(0);
    }
}

/// The order in which one member of a sharing group receives each stream. The group's common sequence does not show it: members read at different
/// times.
#[derive(Debug)]
pub struct MemberOrder {
    streams: StreamSet,
    /// The highest number seen of each stream, plus one.
    next: Vec<u32>,
}

impl MemberOrder {
    /// The order of these streams, ascending and distinct.
    pub fn new(streams: &[u32]) -> Self {
        Self {
            streams: StreamSet::new(streams),
            next: vec![0; streams.len()],
        }
    }

    /// Notes a message; false if a later one of its stream arrived before it.
    pub fn observe(&mut self, stream: u32, number: u32) -> bool {
        let Some(next) = self
            .streams
            .place(stream)
            .and_then(|place| self.next.get_mut(place))
        else {
            return true;
        };
        let in_order = number.wrapping_sub(*next) < u32::MAX / 2;
        if in_order {
            *next = number.wrapping_add(1);
        }
        in_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_streams_and_their_places() {
        for (streams, kind) in [
            (&[4, 5, 6][..], "range"),
            (&[4, 6, 9], "sorted"),
            (&[], "empty"),
        ] {
            let set = StreamSet::new(streams);
            assert_eq!(matches!(set, StreamSet::Range { .. }), kind == "range");
            assert_eq!(set.iter().collect::<Vec<_>>(), streams);
            for stream in 0..12 {
                assert_eq!(
                    set.place(stream),
                    streams.iter().position(|&s| s == stream),
                    "{kind}: {stream}"
                );
            }
        }
    }

    #[test]
    fn what_is_missing_is_settled_against_what_was_sent() {
        let mut audience = Audience::new(&[2, 5], false);
        audience.observe(2, 0);
        audience.observe(5, 1);
        assert_eq!(audience.observe(3, 0), None);
        let mut counts = Counts::default();
        audience.settle(
            |stream| if stream == 2 { (1, 1) } else { (4, 4) },
            &mut counts,
        );
        assert_eq!((counts.expected, counts.lost), (5, 3));
    }

    #[test]
    fn a_member_may_skip_numbers_but_not_go_back() {
        let mut order = MemberOrder::new(&[3]);
        assert_eq!(
            [0, 4, 2, 5].map(|number| order.observe(3, number)),
            [true, true, false, true]
        );
    }

    #[test]
    fn without_numbers_messages_are_only_counted() {
        let mut audience = Audience::new(&[0, 1], true);
        for stream in [0, 0, 0, 1] {
            assert!(audience.count(stream));
        }
        assert!(!audience.count(2));
        let mut counts = Counts::default();
        audience.settle(|_| (2, 2), &mut counts);
        assert_eq!((counts.expected, counts.lost, counts.duplicated), (4, 1, 1));
    }
}
