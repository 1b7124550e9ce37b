//! Messages that this node originated, kept until every remote destination has admitted them.
//!
//! Bytes lie back to back in segments, so that keeping a message needs no allocation of its own. A message has only the number of destinations it
//! waits for; each destination's [`Outbound`](crate::outbound::Outbound) has the messages it still lacks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use thicket_session::time::Instant;

use crate::identity::{Incarnation, StreamId};
use crate::interface::Unacknowledged;
use crate::ranges::RangeSet;

const SEGMENT_BYTES: usize = 64 * 1024;

/// All streams of this node.
#[derive(Debug, Default)]
pub(crate) struct Store {
    streams: BTreeMap<StreamId, Stream>,
    bytes: u64,
    messages: usize,
    /// Freed segments, for reuse.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Stream {
    last: u64,
    /// Ascending by number; messages that wait for no destination are removed at the front.
    kept: VecDeque<Kept>,
    segments: VecDeque<Segment>,
    first_segment: u64,
    /// First number and incarnation; the first entry applies to the first message kept.
    incarnations: VecDeque<(u64, Incarnation)>,
    completed: RangeSet,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    at: Instant,
    segment: u64,
    offset: u32,
    len: u32,
    waiting: u16,
}

#[derive(Debug)]
struct Segment {
    bytes: Vec<u8>,
    live: u32,
}

/// Kept messages with consecutive numbers, as they are sent: their records back to back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sendable<'a> {
    pub(crate) bytes: &'a [u8],
    /// The number of messages.
    pub(crate) count: u64,
    /// Length of the first record.
    pub(crate) first_len: usize,
    pub(crate) incarnation: Incarnation,
    /// When they were handed in.
    pub(crate) at: Instant,
}

impl Store {
    /// Bytes held, including segments that are partly free.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn messages(&self) -> usize {
        self.messages
    }

    /// The last number of a stream, 0 before the first.
    pub(crate) fn last(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).map_or(0, |stream| stream.last)
    }

    /// The lowest number that may still be resent.
    pub(crate) fn low(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).map_or(0, |stream| {
            stream
                .kept
                .front()
                .map_or(stream.last + 1, |kept| kept.number)
        })
    }

    /// Keeps messages with numbers from `first` on for `waiting` destinations; without destinations they are complete at once. The caller has checked
    /// that numbers rise.
    pub(crate) fn keep<'a>(
        &mut self,
        stream: StreamId,
        first: u64,
        waiting: u16,
        records: impl IntoIterator<Item = &'a [u8]>,
        now: Instant,
        incarnation: Incarnation,
    ) {
        let stream = self.streams.entry(stream).or_default();
        if stream
            .incarnations
            .back()
            .is_none_or(|(_, last)| *last != incarnation)
        {
            stream.incarnations.push_back((first, incarnation));
        }
        for (number, record) in (first..).zip(records) {
            stream.last = number;
            if waiting == 0 {
                stream.completed.insert(number);
                continue;
            }
            stream.keep(number, waiting, record, now, &mut self.spare);
            self.bytes += record.len() as u64;
            self.messages += 1;
        }
    }

    /// The message, if it is kept.
    pub(crate) fn sendable(&self, stream: StreamId, number: u64) -> Option<Sendable<'_>> {
        self.sendable_in_a_row(stream, number, 1, 0)
    }

    /// The message, if it is kept, and those that follow it in memory and were handed in at the same time: at most `maximum` messages and `bytes`
    /// bytes, but always the first one.
    pub(crate) fn sendable_in_a_row(
        &self,
        stream: StreamId,
        number: u64,
        maximum: u64,
        bytes: usize,
    ) -> Option<Sendable<'_>> {
        let stream = self.streams.get(&stream)?;
        let position = stream.position(number)?;
        let first = stream.kept.get(position)?;
        let incarnation = stream.incarnation(number)?;
        let is_one_incarnation = stream.incarnations.len() == 1;
        let maximum = if is_one_incarnation { maximum } else { 1 };
        let (mut count, mut end) = (1, first.offset + first.len);
        for next in stream.kept.range(position + 1..) {
            let is_next = next.waiting > 0
                && next.number == number + count
                && (next.segment, next.offset, next.at) == (first.segment, end, first.at);
            let len = (end + next.len - first.offset) as usize;
            if count >= maximum || !is_next || len > bytes {
                break;
            }
            count += 1;
            end += next.len;
        }
        Some(Sendable {
            bytes: stream.bytes(first, end - first.offset)?,
            count,
            first_len: first.len as usize,
            incarnation,
            at: first.at,
        })
    }

    /// Adds a destination to wait for; returns the length of the message, `None` if it is no longer kept.
    pub(crate) fn wait_for_one_more(&mut self, stream: StreamId, number: u64) -> Option<u32> {
        let stream = self.streams.get_mut(&stream)?;
        let at = stream.position(number)?;
        let kept = stream.kept.get_mut(at).filter(|kept| kept.waiting > 0)?;
        kept.waiting = kept.waiting.checked_add(1)?;
        Some(kept.len)
    }

    /// One destination less to wait for; returns the length of the message.
    pub(crate) fn settle(&mut self, stream: StreamId, number: u64) -> u32 {
        let mut settled = 0;
        self.settle_all(stream, number..=number, |_, len| settled = len);
        settled
    }

    /// One destination less to wait for, for each message of `numbers` that waits for any; `settled` is called for each of them with its length. The
    /// message with the first number must be kept.
    pub(crate) fn settle_all(
        &mut self,
        stream: StreamId,
        numbers: RangeInclusive<u64>,
        mut settled: impl FnMut(u64, u32),
    ) {
        let Some(stream) = self.streams.get_mut(&stream) else {
            return;
        };
        let Some(first) = stream.position(*numbers.start()) else {
            return;
        };
        let mut freed = 0;
        for index in first..stream.kept.len() {
            let kept = &mut stream.kept[index];
            if kept.number > *numbers.end() {
                break;
            }
            if kept.waiting == 0 {
                continue;
            }
            settled(kept.number, kept.len);
            kept.waiting -= 1;
            if kept.waiting == 0 {
                let (number, segment) = (kept.number, kept.segment);
                stream.completed.insert(number);
                self.messages -= 1;
                freed += stream.release(segment, &mut self.spare);
            }
        }
        self.bytes -= freed;
        while stream.kept.pop_front_if(|kept| kept.waiting == 0).is_some() {}
        stream.forget_incarnations();
    }

    /// Takes the messages completed since the last call: streams ascending, their ranges ascending.
    pub(crate) fn take_completed(
        &mut self,
    ) -> impl Iterator<Item = (StreamId, Vec<RangeInclusive<u64>>)> + '_ {
        self.streams
            .iter_mut()
            .filter(|(_, stream)| !stream.completed.is_empty())
            .map(|(id, stream)| {
                let ranges = stream.completed.iter().collect();
                stream.completed.clear();
                (*id, ranges)
            })
    }

    /// Every message that waits for a destination.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = Unacknowledged<'_>> {
        self.streams.iter().flat_map(|(id, stream)| {
            stream
                .kept
                .iter()
                .filter(|kept| kept.waiting > 0)
                .filter_map(|kept| {
                    Some(Unacknowledged {
                        stream: *id,
                        number: kept.number,
                        record: stream.bytes(kept, kept.len)?,
                    })
                })
        })
    }
}

impl Stream {
    fn position(&self, number: u64) -> Option<usize> {
        let first = self.kept.front()?.number;
        // Without gaps the number gives the place.
        let guess = usize::try_from(number.checked_sub(first)?).ok()?;
        if self
            .kept
            .get(guess)
            .is_some_and(|kept| kept.number == number)
        {
            return Some(guess);
        }
        self.kept
            .binary_search_by_key(&number, |kept| kept.number)
            .ok()
    }

    fn keep(
        &mut self,
        number: u64,
        waiting: u16,
        record: &[u8],
        now: Instant,
        spare: &mut Vec<Vec<u8>>,
    ) {
        let has_space = |segment: &Segment| {
            segment.live > 0 && segment.bytes.len() + record.len() <= SEGMENT_BYTES
        };
        if !self.segments.back().is_some_and(has_space) {
            self.segments.push_back(Segment {
                bytes: spare.pop().unwrap_or_default(),
                live: 0,
            });
        }
        let segment = self.first_segment + self.segments.len() as u64 - 1;
        let Some(last) = self.segments.back_mut() else {
            return;
        };
        let offset = last.bytes.len() as u32;
        last.bytes.extend_from_slice(record);
        last.live += 1;
        self.kept.push_back(Kept {
            number,
            at: now,
            segment,
            offset,
            len: record.len() as u32,
            waiting,
        });
    }

    const fn index_of(&self, segment: u64) -> usize {
        (segment - self.first_segment) as usize
    }

    /// `len` bytes from the record of `first` on.
    fn bytes(&self, first: &Kept, len: u32) -> Option<&[u8]> {
        let segment = &self.segments.get(self.index_of(first.segment))?.bytes;
        segment.get(first.offset as usize..)?.get(..len as usize)
    }

    fn incarnation(&self, number: u64) -> Option<Incarnation> {
        let after = self
            .incarnations
            .partition_point(|(first, _)| *first <= number);
        self.incarnations
            .get(after.checked_sub(1)?)
            .map(|(_, incarnation)| *incarnation)
    }

    fn forget_incarnations(&mut self) {
        let low = self.kept.front().map_or(self.last + 1, |kept| kept.number);
        while self
            .incarnations
            .get(1)
            .is_some_and(|(first, _)| *first <= low)
        {
            self.incarnations.pop_front();
        }
    }

    /// One message of the segment is complete; returns the number of bytes freed.
    fn release(&mut self, segment: u64, spare: &mut Vec<Vec<u8>>) -> u64 {
        let Some(released) = self
            .segments
            .get_mut((segment - self.first_segment) as usize)
        else {
            return 0;
        };
        released.live -= 1;
        if released.live > 0 {
            return 0;
        }
        let mut bytes = std::mem::take(&mut released.bytes);
        let freed = bytes.len() as u64;
        if bytes.capacity() <= 2 * SEGMENT_BYTES && spare.len() < 64 {
            bytes.clear();
            spare.push(bytes);
        }
        while self
            .segments
            .front()
            .is_some_and(|segment| segment.live == 0)
        {
            self.segments.pop_front();
            self.first_segment += 1;
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const STREAM: StreamId = StreamId(1);

    #[test]
    fn what_was_kept_together_lies_in_a_row_and_nothing_else() {
        let mut store = Store::default();
        let mut keep = |first, lens: &[usize], at| {
            let records: Vec<_> = lens.iter().map(|len| vec![first as u8; *len]).collect();
            let records = records.iter().map(|record| &**record);
            let at = Instant::from_millis(at);
            store.keep(STREAM, first, 1, records, at, Incarnation(1));
        };
        keep(1, &[10, 20, 30, 40], 0);
        keep(5, &[50, 60], 0);
        keep(8, &[70], 0);
        keep(9, &[80], 1);
        for (number, maximum, bytes, count, len) in [
            (1, 100, 1000, 6, 210),
            (1, 3, 1000, 3, 60),
            (1, 100, 99, 3, 60),
            (1, 100, 0, 1, 10),
            (4, 100, 1000, 3, 150),
            (8, 100, 1000, 1, 70),
        ] {
            let row = store.sendable_in_a_row(STREAM, number, maximum, bytes);
            let row = row.map(|row| (row.count, row.bytes.len()));
            assert_eq!(row, Some((count, len)), "{number}, {maximum}, {bytes}");
        }
        store.settle(STREAM, 3);
        let row = store.sendable_in_a_row(STREAM, 1, 100, 1000);
        assert_eq!(row.map(|row| row.count), Some(2), "nobody waits for 3");
    }

    proptest! {
        #[test]
        fn a_store_agrees_with_a_plain_map(steps in proptest::collection::vec((0_u8..4, any::<prop::sample::Index>(), 0_u16..3, 1_usize..40_000), 1..120)) {
            let mut store = Store::default();
            let mut plain: BTreeMap<u64, (u16, usize, u64)> = BTreeMap::new();
            let (mut number, mut incarnation, mut completed) = (0, 1, Vec::new());
            for (step, which, waiting, len) in steps {
                let chosen = (!plain.is_empty()).then(|| *plain.keys().nth(which.index(plain.len())).expect("within"));
                match (step, chosen) {
                    (2, Some(chosen)) => {
                        let entry = plain.get_mut(&chosen).expect("chosen from it");
                        entry.0 -= 1;
                        prop_assert_eq!(store.settle(STREAM, chosen) as usize, entry.1);
                        if entry.0 == 0 {
                            plain.remove(&chosen);
                            completed.push(chosen);
                        }
                    }
                    (1, Some(chosen)) if waiting == 2 => {
                        let numbers = chosen..=chosen + len as u64 % 3;
                        let expected: Vec<_> = plain.range(numbers.clone()).map(|(number, (_, len, _))| (*number, *len as u32)).collect();
                        let mut settled = Vec::new();
                        store.settle_all(STREAM, numbers, |number, len| settled.push((number, len)));
                        prop_assert_eq!(&settled, &expected);
                        for (number, _) in expected {
                            let entry = plain.get_mut(&number).expect("settled");
                            entry.0 -= 1;
                            if entry.0 == 0 {
                                plain.remove(&number);
                                completed.push(number);
                            }
                        }
                    }
                    (3, Some(chosen)) => {
                        prop_assert!(store.wait_for_one_more(STREAM, chosen).is_some());
                        plain.get_mut(&chosen).expect("chosen from it").0 += 1;
                    }
                    _ => {
                        number += 1 + u64::from(waiting);
                        incarnation += u64::from(step == 1);
                        let numbers = number..=number + len as u64 % 4;
                        let records: Vec<_> = numbers.clone().map(|number| vec![number as u8; len]).collect();
                        store.keep(STREAM, number, waiting, records.iter().map(|it| &**it), Instant::default(), Incarnation(incarnation));
                        for kept in numbers {
                            number = kept;
                            if waiting == 0 { completed.push(kept) } else { plain.insert(kept, (waiting, len, incarnation)); }
                        }
                    }
                }
                prop_assert_eq!(store.messages(), plain.len());
                prop_assert_eq!(store.low(STREAM), plain.keys().next().copied().unwrap_or(store.last(STREAM) + 1).min(store.low(STREAM)));
                prop_assert!(store.bytes() >= plain.values().map(|(_, len, _)| *len as u64).sum());
                prop_assert_eq!(store.bytes() == 0, plain.is_empty());
                let kept: Vec<_> = store.unacknowledged().map(|message| message.number).collect();
                prop_assert_eq!(kept, plain.keys().copied().collect::<Vec<_>>());
                for (number, (_, len, incarnation)) in &plain {
                    let sendable = store.sendable(STREAM, *number).expect("kept");
                    prop_assert_eq!((sendable.bytes, sendable.incarnation), (&*vec![*number as u8; *len], Incarnation(*incarnation)));
                    let row = store.sendable_in_a_row(STREAM, *number, 3, 2 * len).expect("kept");
                    let expected: Vec<u8> = (*number..).take(row.count as usize).flat_map(|number| vec![number as u8; plain[&number].1]).collect();
                    prop_assert_eq!((row.bytes, row.first_len), (&*expected, *len));
                    prop_assert!(row.count <= 3 && row.bytes.len() <= 2 * len);
                }
            }
            completed.sort_unstable();
            let taken: Vec<u64> = store.take_completed().flat_map(|(_, ranges)| ranges).flatten().collect();
            prop_assert_eq!(taken, completed);
            prop_assert_eq!(store.take_completed().count(), 0);
        }
    }
}
