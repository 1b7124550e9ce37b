//! Messages that one destination has not admitted yet, and its credit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Range, RangeInclusive};

use crate::identity::StreamId;

/// Data towards one other node.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    streams: BTreeMap<StreamId, Queue>,
    bytes: u64,
    messages: usize,
    credit: Credit,
    /// The stream of the last batch; the next stream follows it.
    last_served: Option<StreamId>,
}

/// Messages of one stream for one destination.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Numbers not acknowledged, ascending. The first `sent` of them were sent over the current link.
    pending: VecDeque<u64>,
    sent: usize,
    /// The first of them that were sent over an earlier link as well.
    sent_before: usize,
    /// Numbers inserted among those already sent, and not sent yet.
    late: VecDeque<u64>,
    /// Records without numbers, back to back, in pieces no longer than a batch.
    plain: VecDeque<Plain>,
}

/// Some records back to back.
#[derive(Debug)]
pub(crate) struct Plain {
    /// The last numbered record before them, 0: none. It is sent first, so that messages of one topic and QoS stay in order whether they are retained
    /// (and so numbered) or not.
    after: u64,
    pub(crate) records: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What may be sent on the current link.
#[derive(Debug, Default)]
struct Credit {
    sent: u64,
    limit: u64,
    window: u64,
}

impl Credit {
    /// Whether `len` more bytes may be sent while `reserve` stays for others.
    const fn covers(&self, len: u64, reserve: u64) -> bool {
        len + reserve <= self.limit.saturating_sub(self.sent)
    }

    /// The same for one record: if it is larger than the window, it may be sent alone.
    const fn allows(&self, len: u64, reserve: u64) -> bool {
        let left = self.limit.saturating_sub(self.sent);
        self.covers(len, reserve) || (left > 0 && left >= self.window)
    }
}

impl Outbound {
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds messages of `len` bytes together, with numbers above all so far.
    pub(crate) fn push(&mut self, stream: StreamId, numbers: Range<u64>, len: usize) {
        self.messages += (numbers.end - numbers.start) as usize;
        self.streams
            .entry(stream)
            .or_default()
            .pending
            .extend(numbers);
        self.bytes += len as u64;
    }

    /// Every pending number, by stream and ascending.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (StreamId, u64)> + '_ {
        let numbers = |(stream, queue): (&StreamId, &'_ Queue)| {
            (*stream, queue.pending.iter().copied().collect::<Vec<_>>())
        };
        let queues = self.streams.iter().map(numbers);
        queues.flat_map(|(stream, numbers)| numbers.into_iter().map(move |number| (stream, number)))
    }

    /// The last pending number of the stream before `number`.
    pub(crate) fn pending_before(&self, stream: StreamId, number: u64) -> Option<u64> {
        let pending = &self.streams.get(&stream)?.pending;
        let at = pending.partition_point(|other| *other < number);
        pending.get(at.checked_sub(1)?).copied()
    }

    /// Bytes that the destination accepts when nothing is in transit.
    pub(crate) const fn window(&self) -> u64 {
        self.credit.window
    }

    /// The first pending number of each stream that has one.
    pub(crate) fn first_pending(&self) -> impl Iterator<Item = (StreamId, u64)> + '_ {
        let streams = self.streams.iter();
        streams.filter_map(|(stream, queue)| Some((*stream, *queue.pending.front()?)))
    }

    /// The last pending number of each stream that has one.
    pub(crate) fn last_pending(&self) -> Vec<(StreamId, u64)> {
        self.streams
            .iter()
            .filter_map(|(stream, queue)| Some((*stream, *queue.pending.back()?)))
            .collect()
    }

    /// Whether a number up to `mark` is pending in the stream.
    pub(crate) fn is_pending_up_to(&self, stream: StreamId, mark: u64) -> bool {
        let first = self
            .streams
            .get(&stream)
            .and_then(|queue| queue.pending.front());
        first.is_some_and(|first| *first <= mark)
    }

    /// Whether the message is pending.
    pub(crate) fn contains(&self, stream: StreamId, number: u64) -> bool {
        self.streams
            .get(&stream)
            .is_some_and(|queue| queue.pending.binary_search(&number).is_ok())
    }

    /// Adds a message anywhere; the caller has checked that it is not pending.
    pub(crate) fn insert(&mut self, stream: StreamId, number: u64, len: u32) {
        let queue = self.streams.entry(stream).or_default();
        let at = queue.pending.partition_point(|other| *other < number);
        queue.pending.insert(at, number);
        if at < queue.sent {
            queue.sent += 1;
            queue.late.push_back(number);
        }
        if at < queue.sent_before {
            queue.sent_before += 1;
        }
        self.bytes += u64::from(len);
        self.messages += 1;
    }

    /// Removes the pending numbers within `range` and passes them to `settle`, consecutive ones together; it returns their length.
    pub(crate) fn acknowledge(
        &mut self,
        stream: StreamId,
        range: &RangeInclusive<u64>,
        mut settle: impl FnMut(RangeInclusive<u64>) -> u64,
    ) {
        let Some(queue) = self.streams.get_mut(&stream) else {
            return;
        };
        let first = queue
            .pending
            .partition_point(|number| number < range.start());
        let after = queue
            .pending
            .partition_point(|number| number <= range.end())
            .max(first);
        queue.sent -= after.min(queue.sent) - first.min(queue.sent);
        queue.sent_before -= after.min(queue.sent_before) - first.min(queue.sent_before);
        self.messages -= after - first;
        let mut numbers = queue.pending.drain(first..after);
        let mut next = numbers.next();
        while let Some(start) = next {
            let mut end = start;
            next = numbers.find(|number| {
                let is_in_a_row = *number == end + 1;
                end += u64::from(is_in_a_row);
                !is_in_a_row
            });
            self.bytes = self.bytes.saturating_sub(settle(start..=end));
        }
    }

    /// The destination is down: passes every pending number to `settle` and forgets everything.
    pub(crate) fn abandon(&mut self, mut settle: impl FnMut(StreamId, u64)) {
        for (stream, queue) in std::mem::take(&mut self.streams) {
            queue
                .pending
                .into_iter()
                .for_each(|number| settle(stream, number));
        }
        *self = Self::default();
    }

    /// A new link: everything pending is resent, within its credit. Records without numbers are lost; returns their number.
    pub(crate) fn start_link(&mut self, limit: u64, window: u64) -> u64 {
        let mut lost = 0;
        for queue in self.streams.values_mut() {
            queue.sent_before = queue.sent_before.max(queue.sent);
            queue.sent = 0;
            queue.late.clear();
            lost += queue
                .plain
                .drain(..)
                .map(|piece| piece.records)
                .sum::<u64>();
        }
        self.credit = Credit {
            sent: 0,
            limit,
            window,
        };
        lost
    }

    /// The destination has granted more credit.
    pub(crate) const fn raise_limit(&mut self, limit: u64) {
        if limit > self.credit.limit {
            self.credit.limit = limit;
        }
    }

    /// Adds `count` records without numbers, back to back, if credit beyond the reserve for numbered ones covers all of them.
    pub(crate) fn push_plain(
        &mut self,
        stream: StreamId,
        records: &[u8],
        count: u32,
        batch_bytes: usize,
    ) -> bool {
        let (len, reserve) = (records.len() as u64, self.credit.window / 4);
        let is_allowed = if count == 1 {
            self.credit.allows(len, reserve)
        } else {
            self.credit.covers(len, reserve)
        };
        if !is_allowed {
            return false;
        }
        self.credit.sent += records.len() as u64;
        let queue = self.streams.entry(stream).or_default();
        let after = queue.pending.back().copied().unwrap_or(0);
        match queue.plain.back_mut() {
            Some(piece)
                if piece.after == after && piece.bytes.len() + records.len() <= batch_bytes =>
            {
                piece.records += u64::from(count);
                piece.bytes.extend_from_slice(records);
            }
            Some(_) | None => queue.plain.push_back(Plain {
                after,
                records: count.into(),
                bytes: records.to_vec(),
            }),
        }
        true
    }

    /// The next stream, in turn, with something to send; `None` if none has anything that credit may allow.
    pub(crate) fn next_stream(&mut self) -> Option<StreamId> {
        let can_send_numbered = self.credit.sent < self.credit.limit;
        let ready =
            |queue: &Queue| !queue.plain.is_empty() || (can_send_numbered && queue.has_unsent());
        let after = |last: StreamId| {
            self.streams
                .range((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded))
                .find(|(_, queue)| ready(queue))
        };
        let next = self
            .last_served
            .and_then(after)
            .or_else(|| self.streams.iter().find(|(_, queue)| ready(queue)));
        self.last_served = next.map(|(stream, _)| *stream);
        self.last_served
    }

    /// The stream's next record lacks credit: the stream stays first in turn, or small records of others would starve it.
    pub(crate) const fn serve_again(&mut self, before: Option<StreamId>) {
        self.last_served = before;
    }

    /// The stream of the last batch.
    pub(crate) const fn last_served(&self) -> Option<StreamId> {
        self.last_served
    }

    /// A stream that has records without numbers.
    pub(crate) fn stream_with_plain(&self) -> Option<StreamId> {
        let with_plain = self
            .streams
            .iter()
            .find(|(_, queue)| !queue.plain.is_empty());
        with_plain.map(|(stream, _)| *stream)
    }

    /// The length of the next piece of records without numbers, and whether everything before it was sent.
    pub(crate) fn next_plain(&mut self, stream: StreamId) -> Option<(usize, bool)> {
        let queue = self.streams.get_mut(&stream)?;
        let is_first = queue.next_unsent().is_none();
        queue
            .plain
            .front()
            .map(|piece| (piece.bytes.len(), is_first))
    }

    /// A piece of records without numbers.
    pub(crate) fn take_plain(&mut self, stream: StreamId) -> Option<Plain> {
        self.streams.get_mut(&stream)?.plain.pop_front()
    }

    /// The number to send next on this stream.
    pub(crate) fn next_unsent(&mut self, stream: StreamId) -> Option<u64> {
        self.streams.get_mut(&stream)?.next_unsent()
    }

    /// How many consecutive numbers, starting with the one that `next_unsent` returned, may be sent at once; at most `maximum`.
    pub(crate) fn unsent_in_a_row(&self, stream: StreamId, maximum: u64) -> u64 {
        let queue = self.streams.get(&stream);
        queue.map_or(1, |queue| queue.unsent_in_a_row(maximum))
    }

    /// Whether credit allows a numbered record of `len` bytes.
    pub(crate) const fn allows(&self, len: usize) -> bool {
        self.credit.allows(len as u64, 0)
    }

    /// Bytes of numbered records that credit allows.
    pub(crate) const fn credit_left(&self) -> u64 {
        self.credit.limit.saturating_sub(self.credit.sent)
    }

    /// `count` numbers, from the one that `next_unsent` returned on, have been sent; returns how many of them were resent.
    pub(crate) fn sent(&mut self, stream: StreamId, count: u64, len: usize) -> u64 {
        self.credit.sent += len as u64;
        let queue = self.streams.get_mut(&stream);
        queue.map_or(0, |queue| queue.advance(count))
    }
}

impl Queue {
    fn has_unsent(&self) -> bool {
        !self.late.is_empty() || self.sent < self.pending.len()
    }

    fn next_unsent(&mut self) -> Option<u64> {
        while let Some(number) = self.late.front() {
            if self.pending.binary_search(number).is_ok() {
                return Some(*number);
            }
            self.late.pop_front();
        }
        let next = self.pending.get(self.sent).copied()?;
        (next <= self.last_in_turn()).then_some(next)
    }

    /// The last number to send before the next records without numbers.
    fn last_in_turn(&self) -> u64 {
        self.plain.front().map_or(u64::MAX, |piece| piece.after)
    }

    fn unsent_in_a_row(&self, maximum: u64) -> u64 {
        let Some(&first) = self.pending.get(self.sent) else {
            return 1;
        };
        if !self.late.is_empty() {
            return 1;
        }
        let behind = self.pending.range(self.sent..);
        let in_a_row = behind.zip(first..=self.last_in_turn());
        let in_a_row = in_a_row.take_while(|(number, next)| *number == next);
        in_a_row.take(maximum as usize).count() as u64
    }

    fn advance(&mut self, count: u64) -> u64 {
        if self.late.pop_front().is_some() {
            return 0;
        }
        let again = self.sent_before.saturating_sub(self.sent) as u64;
        self.sent += count as usize;
        again.min(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(2);

    fn send_all(outbound: &mut Outbound) -> Vec<(u64, bool)> {
        let mut sent = Vec::new();
        while let Some(number) = outbound.next_unsent(STREAM)
            && outbound.allows(10)
        {
            sent.push((number, outbound.sent(STREAM, 1, 10) == 1));
        }
        sent
    }

    fn outbound(numbers: RangeInclusive<u64>, limit: u64) -> Outbound {
        let mut outbound = Outbound::default();
        outbound.start_link(limit, limit);
        numbers.for_each(|number| outbound.push(STREAM, number..number + 1, 10));
        outbound
    }

    #[test]
    fn what_is_pending_is_sent_once_a_link_and_again_over_the_next() {
        let mut outbound = outbound(1..=4, 1000);
        assert_eq!(
            send_all(&mut outbound),
            [(1, false), (2, false), (3, false), (4, false)]
        );
        let mut settled = Vec::new();
        outbound.acknowledge(STREAM, &(2..=3), |numbers| {
            settled.push(numbers);
            20
        });
        outbound.push(STREAM, 5..6, 10);
        assert_eq!((settled, outbound.bytes()), (vec![2..=3], 30));
        assert_eq!(send_all(&mut outbound), [(5, false)]);
        outbound.start_link(1000, 1000);
        outbound.push(STREAM, 6..7, 10);
        assert_eq!(
            send_all(&mut outbound),
            [(1, true), (4, true), (5, true), (6, false)]
        );
    }

    #[test]
    fn numbers_in_a_row_are_sent_at_once_as_far_as_they_are_in_turn() {
        let mut outbound = outbound(1..=4, 1000);
        outbound.push(STREAM, 6..9, 30);
        for (maximum, count) in [(10, 4), (3, 3), (1, 1)] {
            assert_eq!(outbound.unsent_in_a_row(STREAM, maximum), count);
        }
        assert_eq!(outbound.sent(STREAM, 2, 20), 0);
        outbound.start_link(1000, 1000);
        assert_eq!(outbound.sent(STREAM, 4, 40), 2, "two of them again");
        assert_eq!(outbound.next_unsent(STREAM), Some(6));
        assert!(outbound.push_plain(STREAM, &[0; 5], 1, 100));
        outbound.push(STREAM, 9..12, 30);
        assert_eq!(
            outbound.unsent_in_a_row(STREAM, 10),
            3,
            "then the one without"
        );
        outbound.sent(STREAM, 3, 30);
        assert_eq!(outbound.next_unsent(STREAM), None);
        outbound.take_plain(STREAM);
        outbound.insert(STREAM, 5, 10);
        assert_eq!(outbound.next_unsent(STREAM), Some(5));
        assert_eq!(outbound.unsent_in_a_row(STREAM, 10), 1, "it goes alone");
    }

    #[test]
    fn a_number_added_among_those_sent_is_sent_alone_unless_acknowledged_first() {
        for (name, acknowledged_first, expected) in [
            ("sent", false, vec![(2, false), (4, false)]),
            ("acknowledged", true, vec![(4, false)]),
        ] {
            let mut outbound = outbound(1..=1, 1000);
            outbound.push(STREAM, 3..4, 10);
            send_all(&mut outbound);
            outbound.insert(STREAM, 2, 10);
            outbound.push(STREAM, 4..5, 10);
            if acknowledged_first {
                outbound.acknowledge(STREAM, &(0..=3), |_| 10);
            }
            assert_eq!(send_all(&mut outbound), expected, "{name}");
        }
    }

    #[test]
    fn credit_holds_numbered_records_back_and_drops_others_a_quarter_earlier() {
        let mut outbound = outbound(1..=9, 40);
        assert!(outbound.push_plain(STREAM, &[0; 30], 1, 100));
        assert!(
            !outbound.push_plain(STREAM, &[0; 1], 1, 100),
            "the last quarter is kept"
        );
        assert_eq!(send_all(&mut outbound), [(1, false)]);
        assert_eq!(
            outbound.next_stream(),
            Some(STREAM),
            "records without numbers were paid for"
        );
        assert_eq!(
            outbound.take_plain(STREAM).map(|piece| piece.bytes.len()),
            Some(30)
        );
        assert_eq!(outbound.next_stream(), None, "no credit");
        outbound.raise_limit(60);
        outbound.raise_limit(50);
        assert_eq!(send_all(&mut outbound), [(2, false), (3, false)]);
    }

    #[test]
    fn a_record_larger_than_the_window_goes_alone() {
        let mut outbound = outbound(1..=2, 5);
        assert_eq!(send_all(&mut outbound), [(1, false)]);
        outbound.raise_limit(15);
        assert_eq!(send_all(&mut outbound), [(2, false)]);
    }
}
