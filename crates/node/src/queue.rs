//! The queue of a session on its way to another node, with how far its streams had come where it leaves, and the publications it
//! took there last.
//!
//! Everything that matched the session up to those numbers has come there and stands in the queue, is in flight, or was delivered:
//! whatever of it comes to the new node as well, because others there want it too, is no message for this session any more.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use thicket_session::{
    server::{Delivery, MessageId, SEEN_WORDS, decode_queue, encode_queue},
    time::Instant,
};

use crate::worker::Generations;

/// The last number of each stream: node, incarnation, worker.
pub(crate) type Marks = BTreeMap<(u64, u64, u8), u64>;

/// In this time after a node is up, what it had sent before and was not acknowledged has come.
pub(crate) const SETTLED: Duration = Duration::from_secs(30);
/// Runs of numbers remembered of a stream until then.
const RUNS: usize = 10_000;
/// Gaps told of a stream.
const GAPS: usize = 128;
/// Runs remembered after that: what came shortly before a node is down is asked for when it is up again.
const RECENT_RUNS: usize = 1_000;

/// What came of a stream since its node is up.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// The last number, whether the node was out meanwhile or not.
    pub last: u64,
    up_since: Instant,
    /// From this number on everything has come that was sent here; before, see `runs`. `u64::MAX`: not settled yet.
    settled: u64,
    runs: VecDeque<(u64, u64)>,
    /// Runs that came before the node was up again: each of these did come, but nothing can be said of others.
    former: VecDeque<(u64, u64)>,
    /// The last number before the node was out, and the first one since it is up: what lies between was not sent here.
    gap: (u64, u64),
}

impl Mark {
    /// Nothing came yet.
    pub const fn new(now: Instant) -> Self {
        Self {
            last: 0,
            up_since: now,
            settled: u64::MAX,
            runs: VecDeque::new(),
            former: VecDeque::new(),
            gap: (0, 0),
        }
    }

    /// Since when the node of the stream is up.
    pub const fn up_since(&self) -> Instant {
        self.up_since
    }

    /// The node is up again: what it sends may be older than what others got meanwhile.
    pub fn restart(&mut self, now: Instant) {
        let mut former = std::mem::take(&mut self.former);
        former.append(&mut self.runs);
        let surplus = former.len().saturating_sub(RUNS);
        former.drain(..surplus);
        *self = Self {
            last: self.last,
            former,
            gap: (self.last, self.last),
            ..Self::new(now)
        };
    }

    /// What did not come, each between two numbers, up to the last: as the node was out, or did not know yet what is wanted here. As long as
    /// that may be, only what came is known, and beyond [`GAPS`] only what came last.
    pub fn gaps(&self) -> Vec<(u64, u64)> {
        if self.settled != u64::MAX {
            let (last, first) = self.gap;
            return Vec::from_iter((first > last + 1).then_some(self.gap));
        }
        let mut runs: Vec<_> = self.runs.iter().copied().collect();
        runs.sort_unstable();
        let skipped = runs.len().saturating_sub(GAPS);
        let mut before = self.gap.0;
        let mut gaps = Vec::new();
        for (first, last) in runs.into_iter().skip(skipped) {
            if first > before + 1 {
                gaps.push((before, first));
            }
            before = before.max(last);
        }
        gaps
    }

    /// A message came.
    #[inline]
    pub fn note(&mut self, now: Instant, number: u64) {
        if self.settled == u64::MAX && now > self.up_since + SETTLED && number > self.last {
            thicket_session::reach!("time queue SETTLED");
            self.settled = number;
        }
        self.add(number);
        if self.gap.1 == self.gap.0 && self.gap.0 > 0 {
            self.gap.1 = self.gap.1.max(number);
        }
        self.last = self.last.max(number);
    }

    /// A message came that others had kept, behind what was sent after it.
    pub fn note_late(&mut self, number: u64) {
        if !self.has(number) {
            self.add(number);
        }
    }

    fn add(&mut self, number: u64) {
        match self.runs.back_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => self.runs.push_back((number, number)),
        }
        let bound = if self.settled == u64::MAX {
            RUNS
        } else {
            RECENT_RUNS
        };
        while self.runs.len() > bound {
            self.runs.pop_front();
        }
    }

    /// Whether a message has come, or, if it was sent here too, is about to. What came first of very much is perhaps forgotten.
    pub fn has(&self, number: u64) -> bool {
        number >= self.settled || contains(&self.runs, number)
    }

    /// Whether a message came before the node was up again, as far as that is remembered.
    pub fn had(&self, number: u64) -> bool {
        let had = contains(&self.former, number);
        if had {
            thicket_session::reach!("queue: known from before the node was down");
        }
        had
    }
}

fn contains(runs: &VecDeque<(u64, u64)>, number: u64) -> bool {
    let mut runs = runs.iter();
    runs.any(|(first, last)| (*first..=*last).contains(&number))
}

/// Notes in `marks` what came of a stream: up to `last`, but for what lies in the gaps. Nodes of older versions know the first gap alone, or
/// none, and take the others for streams of incarnations that there never are.
pub(crate) fn note_came(marks: &mut Marks, stream: (u64, u64, u8), last: u64, gaps: &[(u64, u64)]) {
    marks.insert(stream, last);
    for (index, (before, first)) in gaps.iter().enumerate() {
        let [before_key, first_key] = gap_keys(stream, index);
        marks.insert(before_key, *before);
        marks.insert(first_key, *first);
    }
}

/// Whether a message came where `marks` are from.
pub(crate) fn came_by(marks: &Marks, id: MessageId) -> bool {
    let stream = stream_of(id);
    let last = marks.get(&stream).copied().unwrap_or(0);
    id.number <= last
        && !gaps_of(marks, stream).any(|(before, first)| before < id.number && id.number < first)
}

/// What came where either of these are from.
pub(crate) fn union(one: &Marks, other: &Marks) -> Marks {
    let mut all = Marks::new();
    let streams = one.keys().chain(other.keys());
    for stream in streams.filter(|(_, incarnation, _)| incarnation & OF_GAPS == 0) {
        let [ours, theirs] = [one, other].map(|marks| {
            let last = marks.get(stream).copied().unwrap_or(0);
            (last, gaps_of(marks, *stream).chain([(last, u64::MAX)]))
        });
        let last = ours.0.max(theirs.0);
        let theirs: Vec<_> = theirs.1.collect();
        // What came in neither place.
        let gaps: Vec<_> = ours
            .1
            .flat_map(|(before, first)| {
                let both = theirs
                    .iter()
                    .map(move |(b, f)| (before.max(*b), first.min(*f)));
                both.filter(|(before, first)| *first > *before + 1)
            })
            .filter(|(before, _)| *before < last)
            .collect();
        let surplus = gaps.len().saturating_sub(2 * GAPS);
        note_came(&mut all, *stream, last, &gaps[surplus..]);
    }
    all
}

fn gaps_of(marks: &Marks, stream: (u64, u64, u8)) -> impl Iterator<Item = (u64, u64)> {
    (0..=2 * GAPS).map_while(move |index| {
        let [before, first] = gap_keys(stream, index).map(|key| marks.get(&key).copied());
        before.zip(first)
    })
}

/// In the incarnation: this is a gap. No node has been up so often.
const OF_GAPS: u64 = 1 << 63;

const fn gap_keys(
    (node, incarnation, stream): (u64, u64, u8),
    index: usize,
) -> [(u64, u64, u8); 2] {
    let of_gaps = incarnation | OF_GAPS | (index as u64) << 48;
    [(node, of_gaps, stream), (node, of_gaps, stream | 1 << 7)]
}

/// Bytes of one mark.
const MARK_BYTES: usize = 25;
/// Bytes of what was taken of one publisher.
const PUBLISHER_BYTES: usize = 20 + 16 * SEEN_WORDS;

/// The stream of a message.
pub(crate) const fn stream_of(id: MessageId) -> (u64, u64, u8) {
    (id.node, id.incarnation, id.stream)
}

/// Marks, publications and queue as bytes.
pub(crate) fn encode<'a>(
    marks: &Marks,
    taken: impl IntoIterator<Item = (u128, &'a Generations)>,
    queue: impl IntoIterator<Item = &'a Delivery>,
    now: Instant,
) -> Vec<u8> {
    let mut bytes = (marks.len() as u32).to_le_bytes().to_vec();
    for ((node, incarnation, stream), number) in marks {
        bytes.extend_from_slice(&node.to_le_bytes());
        bytes.extend_from_slice(&incarnation.to_le_bytes());
        bytes.push(*stream);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for (uid, taken) in taken {
        bytes.extend_from_slice(&uid.to_le_bytes());
        bytes.extend_from_slice(&taken.highest.to_le_bytes());
        for word in taken.bits {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        count += 1;
    }
    bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&encode_queue(queue, now));
    bytes
}

/// No marks, no queue: of a session that cannot be asked any more.
pub(crate) fn empty() -> Vec<u8> {
    encode(&Marks::new(), [], [], Instant::default())
}

/// What `encode` wrote.
#[derive(Debug, PartialEq)]
pub(crate) struct Moved {
    pub marks: Marks,
    /// By publisher.
    pub taken: Vec<(u128, Generations)>,
    pub queue: Vec<Delivery>,
}

/// What `encode` wrote; `None` if it is something else.
pub(crate) fn decode(bytes: &[u8], now: Instant) -> Option<Moved> {
    let (marks, rest) = items::<MARK_BYTES>(bytes)?;
    let (taken, queue) = items::<PUBLISHER_BYTES>(rest)?;
    let mark = |bytes: &[u8; MARK_BYTES]| {
        let number = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        Some(((number(0)?, number(8)?, bytes[16]), number(17)?))
    };
    let publisher = |bytes: &[u8; PUBLISHER_BYTES]| {
        let (words, _) = bytes[20..].as_chunks();
        let mut bits = [0; SEEN_WORDS];
        for (bits, word) in bits.iter_mut().zip(words) {
            *bits = u128::from_le_bytes(*word);
        }
        let highest = u32::from_le_bytes(*bytes[16..].first_chunk()?);
        let uid = u128::from_le_bytes(*bytes.first_chunk()?);
        Some((uid, Generations { highest, bits }))
    };
    Some(Moved {
        marks: marks.iter().map(mark).collect::<Option<Marks>>()?,
        taken: taken.iter().map(publisher).collect::<Option<Vec<_>>>()?,
        queue: decode_queue(queue, now).ok()?,
    })
}

/// Items of `N` bytes behind their count, and the rest.
fn items<const N: usize>(bytes: &[u8]) -> Option<(&[[u8; N]], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let len = (u32::from_le_bytes(*count) as usize).checked_mul(N)?;
    let (items, rest) = rest.split_at_checked(len)?;
    Some((items.as_chunks::<N>().0, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_known_number_by_number_until_all_that_is_older_has_come() {
        let at = Instant::from_millis;
        let mut mark = Mark::new(at(0));
        for (now, number) in [(1, 50), (2, 51), (3, 7), (40_000, 52), (40_001, 60)] {
            mark.note(at(now), number);
        }
        for (number, has) in [(6, false), (7, true), (8, false), (51, true), (55, true)] {
            assert_eq!(mark.has(number), has, "{number}");
        }
        mark.restart(at(50_000));
        assert_eq!((mark.last, mark.has(60), mark.has(61)), (60, false, false));
        assert_eq!(mark.gaps(), [], "nothing came since");
        for (number, had) in [(8, false), (51, true), (55, false), (60, true), (61, false)] {
            assert_eq!(mark.had(number), had, "{number}");
        }
        mark.note(at(90_000), 9);
        assert!(
            !mark.has(61),
            "sent again: nothing can be said of what is newer"
        );
    }

    #[test]
    fn what_did_not_come_while_a_node_was_out_is_known_elsewhere() {
        let at = Instant::from_millis;
        let mut mark = Mark::new(at(0));
        (5..8).for_each(|number| mark.note(at(1), number));
        mark.restart(at(2));
        (11..14).for_each(|number| mark.note(at(3), number));
        let stream = (1, 2, 3);
        let mut marks = Marks::new();
        note_came(&mut marks, stream, mark.last, &mark.gaps());
        for (number, came) in [
            (7, true),
            (8, false),
            (10, false),
            (11, true),
            (13, true),
            (14, false),
        ] {
            let id = MessageId {
                node: 1,
                incarnation: 2,
                stream: 3,
                number,
            };
            assert_eq!(came_by(&marks, id), came, "{number}");
        }
    }

    #[test]
    fn a_node_that_is_up_again_may_not_know_yet_what_is_wanted_here() {
        let at = Instant::from_millis;
        let stream = (1, 2, 3);
        let came = |marks: &Marks| -> Vec<u64> {
            let id = |number| MessageId {
                node: 1,
                incarnation: 2,
                stream: 3,
                number,
            };
            (1..=20)
                .filter(|number| came_by(marks, id(*number)))
                .collect()
        };
        let told = |mark: &Mark| {
            let mut marks = Marks::new();
            note_came(&mut marks, stream, mark.last, &mark.gaps());
            marks
        };
        let mut here = Mark::new(at(0));
        for number in [3, 4, 9, 6, 12] {
            here.note(at(1), number);
        }
        assert_eq!(came(&told(&here)), [3, 4, 6, 9, 12], "each for itself");
        here.note(at(40_000), 15);
        assert_eq!(came(&told(&here)), (1..=15).collect::<Vec<_>>(), "settled");
        let mut before = Mark::new(at(0));
        for number in [1, 2, 3, 9, 10, 11] {
            before.note(at(1), number);
        }
        let mut after = Mark::new(at(0));
        for number in [3, 5, 6, 13, 14, 18] {
            after.note(at(1), number);
        }
        let both = union(&told(&before), &told(&after));
        assert_eq!(came(&both), [1, 2, 3, 5, 6, 9, 10, 11, 13, 14, 18]);
        assert_eq!(union(&told(&after), &told(&before)), both);
        assert_eq!(union(&both, &Marks::new()), both);
    }

    #[test]
    fn marks_are_read_as_written_and_cut_bytes_are_refused() {
        let marks = Marks::from([((1, 2, 3), 4), ((u64::MAX, 0, 255), u64::MAX)]);
        let taken = vec![(u128::MAX - 1, Generations::new(3))];
        let pairs = taken.iter().map(|(uid, taken)| (*uid, taken));
        let bytes = encode(&marks, pairs, [], Instant::default());
        let queue = Vec::new();
        let moved = Moved {
            marks,
            taken,
            queue,
        };
        assert_eq!(decode(&bytes, Instant::default()), Some(moved));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], Instant::default()).is_none(), "{len}");
        }
    }
}
