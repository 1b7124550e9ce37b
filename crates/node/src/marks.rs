//! Which messages of the streams of other nodes arrived: at a worker, and for a session that moves.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use thicket_session::{
    server::{MessageId, MessageStream},
    time::Instant,
};

/// In this time after a node is up, what it had sent before and was not acknowledged has arrived.
pub(crate) const SETTLED: Duration = Duration::from_secs(30);
/// Runs of numbers remembered of a stream until then.
const RUNS: usize = 10_000;
/// Gaps of a stream that are sent.
pub(crate) const GAPS: usize = 128;
/// Runs remembered after that: what arrived shortly before a node goes down is needed when it is up again.
const RECENT_RUNS: usize = 1_000;

/// What arrived of a stream since its node is up.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// The last number, whether the node was down meanwhile or not.
    pub last: u64,
    /// The highest number that arrived, be it behind what was sent after it: not everything up to it has arrived.
    highest: u64,
    up_since: Instant,
    /// From this number on everything that was sent here has arrived; before, see `runs`. `u64::MAX`: not settled yet.
    settled: u64,
    runs: VecDeque<(u64, u64)>,
    /// Above all numbers of runs that are no longer remembered.
    forgotten: u64,
    /// Runs that arrived before the node was up again: each of these did arrive, but nothing is known of others.
    former: VecDeque<(u64, u64)>,
    /// What had arrived when the node was up again.
    before: ReceivedNumbers,
    /// The first number since then that it had not sent before. `u64::MAX`: none yet; 1: it was never up again.
    first: u64,
}

impl Mark {
    /// Nothing has arrived yet.
    pub const fn new(now: Instant) -> Self {
        Self {
            last: 0,
            highest: 0,
            up_since: now,
            settled: u64::MAX,
            runs: VecDeque::new(),
            forgotten: 0,
            former: VecDeque::new(),
            before: ReceivedNumbers::up_to(0),
            first: 1,
        }
    }

    /// No number above it has arrived.
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// Since when the node of the stream is up.
    pub const fn up_since(&self) -> Instant {
        self.up_since
    }

    /// The node is up again: what it sends may be older than what others received meanwhile.
    pub fn restart(&mut self, now: Instant) {
        let before = self.received();
        let mut former = std::mem::take(&mut self.former);
        former.append(&mut self.runs);
        let surplus = former.len().saturating_sub(RUNS);
        former.drain(..surplus);
        *self = Self {
            last: self.last,
            highest: self.highest,
            former,
            before,
            first: u64::MAX,
            ..Self::new(now)
        };
    }

    /// What arrived. The rest did not, because the node was down, or did not have the interests here yet; as long as that is possible, only what
    /// arrived is certain, and beyond [`GAPS`] only what arrived last.
    pub fn received(&self) -> ReceivedNumbers {
        self.before.union(&self.received_since_up())
    }

    /// What arrived after something had begun here, when the last number was `last`. What the node sent again since it is up counts.
    pub fn received_since(&self, begun: Instant, last: u64) -> ReceivedNumbers {
        if self.up_since >= begun {
            self.before.after(last).union(&self.received_since_up())
        } else {
            self.received().after(last)
        }
    }

    /// What arrived since the node is up.
    fn received_since_up(&self) -> ReceivedNumbers {
        if self.settled != u64::MAX {
            let gap = Gap {
                after: 0,
                before: self.first,
            };
            return ReceivedNumbers::with_gaps(self.last, [gap]);
        }
        let mut gaps = Vec::new();
        let mut runs: Vec<_> = self.runs.iter().copied().collect();
        runs.sort_unstable();
        let skipped = runs.len().saturating_sub(GAPS);
        let mut after = 0;
        for (first, last) in runs.into_iter().skip(skipped) {
            gaps.push(Gap {
                after,
                before: first,
            });
            after = after.max(last);
        }
        ReceivedNumbers::with_gaps(after, gaps)
    }

    /// A message arrived.
    #[inline]
    pub fn note(&mut self, now: Instant, number: u64) {
        if self.settled == u64::MAX && now > self.up_since + SETTLED && number > self.last {
            thicket_session::reach!("time marks SETTLED");
            self.settled = number;
        }
        self.add(number);
        if self.first == u64::MAX && number > self.before.last() {
            self.first = number;
        }
        self.last = self.last.max(number);
    }

    /// A message arrived that others had kept, behind what was sent after it.
    pub fn note_late(&mut self, number: u64) {
        if !self.has(number) {
            self.add(number);
        }
    }

    fn add(&mut self, number: u64) {
        self.highest = self.highest.max(number);
        match self.runs.back_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => self.runs.push_back((number, number)),
        }
        let bound = if self.settled == u64::MAX {
            RUNS
        } else {
            RECENT_RUNS
        };
        while self.runs.len() > bound
            && let Some((_, last)) = self.runs.pop_front()
        {
            self.forgotten = self.forgotten.max(last + 1);
        }
    }

    /// Whether a message has arrived; of the first of very many, once the stream has settled, whether it was sent here.
    pub fn has(&self, number: u64) -> bool {
        (self.settled..self.forgotten).contains(&number) || contains(&self.runs, number)
    }

    /// Whether a message arrived before the node was up again, as far as that is remembered.
    pub fn had(&self, number: u64) -> bool {
        let had = contains(&self.former, number);
        if had {
            thicket_session::reach!("queue: known from before the node was down");
        }
        had
    }
}

fn contains(runs: &VecDeque<(u64, u64)>, number: u64) -> bool {
    let mut runs = runs.iter().rev();
    runs.any(|(first, last)| (*first..=*last).contains(&number))
}

/// What did not arrive: the numbers between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gap {
    pub after: u64,
    pub before: u64,
}

impl Gap {
    const fn is_empty(self) -> bool {
        self.before <= self.after + 1
    }

    const fn contains(self, number: u64) -> bool {
        self.after < number && number < self.before
    }

    fn intersection(self, other: Self) -> Self {
        Self {
            after: self.after.max(other.after),
            before: self.before.min(other.before),
        }
    }
}

/// At most that many gaps: the oldest become one, so that nothing counts as arrived that may not have.
fn bounded(mut gaps: Vec<Gap>, most: usize) -> Vec<Gap> {
    let surplus = gaps.len().saturating_sub(most);
    if surplus > 0 {
        gaps[surplus].after = gaps[0].after;
        gaps.drain(..surplus);
    }
    gaps
}

/// What arrived of a stream: everything up to a number, but for what lies in gaps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ReceivedNumbers {
    last: u64,
    /// None of them empty.
    gaps: Vec<Gap>,
}

impl ReceivedNumbers {
    /// Everything up to a number.
    pub const fn up_to(last: u64) -> Self {
        Self {
            last,
            gaps: Vec::new(),
        }
    }

    pub fn with_gaps(last: u64, gaps: impl IntoIterator<Item = Gap>) -> Self {
        let gaps = gaps.into_iter().filter(|gap| !gap.is_empty()).collect();
        Self { last, gaps }
    }

    pub const fn last(&self) -> u64 {
        self.last
    }

    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn contains(&self, number: u64) -> bool {
        number <= self.last && !self.gaps.iter().any(|gap| gap.contains(number))
    }

    /// The part of it above a number.
    pub fn after(&self, number: u64) -> Self {
        // A gap in which it lies, or that begins with the next one, continues from what is left out.
        let reaches = |gap: &&Gap| gap.after <= number && number < gap.before;
        let around = self.gaps.iter().find(reaches);
        let begin = Gap {
            after: 0,
            before: around.map_or(number + 1, |gap| gap.before),
        };
        let later = self.gaps.iter().filter(|gap| gap.after > number);
        Self::with_gaps(self.last, [begin].into_iter().chain(later.copied()))
    }

    /// A number did not arrive after all.
    fn remove(&mut self, number: u64) {
        if !self.contains(number) {
            return;
        }
        let mut gap = Gap {
            after: number - 1,
            before: number + 1,
        };
        // Gaps next to it belong to it.
        self.gaps.retain(|other| {
            if other.before == number {
                gap.after = other.after;
            } else if other.after == number {
                gap.before = other.before;
            } else {
                return true;
            }
            false
        });
        let index = self.gaps.partition_point(|other| other.after < gap.after);
        self.gaps.insert(index, gap);
        self.gaps = bounded(std::mem::take(&mut self.gaps), GAPS);
    }

    /// What arrived here or there.
    fn union(&self, other: &Self) -> Self {
        let last = self.last.max(other.last);
        let gaps = self.gaps_to_the_end().flat_map(|ours| {
            let theirs = other.gaps_to_the_end();
            theirs.map(move |theirs| ours.intersection(theirs))
        });
        let gaps = gaps.filter(|gap| !gap.is_empty() && gap.after < last);
        Self {
            last,
            gaps: bounded(gaps.collect(), 2 * GAPS),
        }
    }

    /// What is beyond the last number did not arrive either.
    fn gaps_to_the_end(&self) -> impl Iterator<Item = Gap> {
        let end = Gap {
            after: self.last,
            before: u64::MAX,
        };
        self.gaps.iter().copied().chain([end])
    }
}

/// What arrived of each stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Marks(BTreeMap<MessageStream, ReceivedNumbers>);

impl Marks {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&MessageStream, &ReceivedNumbers)> {
        self.0.iter()
    }

    /// Whether a message arrived.
    pub fn contain(&self, id: MessageId) -> bool {
        let received = self.0.get(&id.stream_id());
        received.is_some_and(|received| received.contains(id.number))
    }

    /// A message did not arrive after all.
    pub fn remove(&mut self, id: MessageId) {
        if let Some(received) = self.0.get_mut(&id.stream_id()) {
            received.remove(id.number);
        }
    }

    /// Whether this message arrived, or a later one of its stream.
    pub fn reach(&self, id: MessageId) -> bool {
        let received = self.0.get(&id.stream_id());
        received.is_some_and(|received| id.number <= received.last)
    }

    /// What arrived where either of these are from.
    pub fn union(&self, other: &Self) -> Self {
        let none = ReceivedNumbers::default();
        let streams = self.0.keys().chain(other.0.keys());
        let both = streams.map(|stream| {
            let [ours, theirs] = [self, other].map(|it| it.0.get(stream).unwrap_or(&none));
            (*stream, ours.union(theirs))
        });
        Self(both.collect())
    }
}

impl FromIterator<(MessageStream, ReceivedNumbers)> for Marks {
    fn from_iter<T: IntoIterator<Item = (MessageStream, ReceivedNumbers)>>(items: T) -> Self {
        Self(items.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u64) -> MessageId {
        MessageId {
            node: 1,
            incarnation: 2,
            stream: 3,
            number,
        }
    }

    /// What a session that moves would take along.
    fn published(mark: &Mark) -> Marks {
        Marks::from_iter([(id(0).stream_id(), mark.received())])
    }

    #[test]
    fn received_numbers_are_known_one_by_one_until_all_older_ones_have_arrived() {
        let at = Instant::from_millis;
        let mut mark = Mark::new(at(0));
        for (now, number) in [(1, 50), (2, 51), (3, 7), (40_000, 52), (40_001, 60)] {
            mark.note(at(now), number);
        }
        for (number, has) in [(6, false), (7, true), (8, false), (51, true), (55, false)] {
            assert_eq!(mark.has(number), has, "{number}");
        }
        mark.restart(at(50_000));
        assert_eq!((mark.last, mark.has(60), mark.has(61)), (60, false, false));
        assert_eq!(
            mark.received(),
            ReceivedNumbers::up_to(60),
            "nothing has arrived since"
        );
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
    fn what_came_after_a_number_is_what_came_but_for_what_is_up_to_it() {
        let gap = |after, before| Gap { after, before };
        let received = ReceivedNumbers::with_gaps(30, [gap(4, 8), gap(10, 12), gap(20, 25)]);
        for number in 0..=31 {
            let after = received.after(number);
            for id in 1..=32 {
                let expected = id > number && received.contains(id);
                assert_eq!(after.contains(id), expected, "{id} after {number}");
            }
        }
    }

    #[test]
    fn numbers_that_did_not_arrive_after_all_are_removed_and_no_others() {
        let gap = |after, before| Gap { after, before };
        let whole = ReceivedNumbers::with_gaps(12, [gap(4, 6), gap(8, 10)]);
        for order in [[3, 7, 6, 12], [6, 12, 7, 3], [12, 3, 7, 5]] {
            let mut received = whole.clone();
            order.iter().for_each(|number| received.remove(*number));
            for number in 1..=13 {
                let expected = whole.contains(number) && !order.contains(&number);
                assert_eq!(received.contains(number), expected, "{number} {order:?}");
                for id in 1..=13 {
                    let is_after = id > number && received.contains(id);
                    assert_eq!(
                        received.after(number).contains(id),
                        is_after,
                        "{id} {number}"
                    );
                }
            }
        }
        let mut received = ReceivedNumbers::up_to(1_000);
        let removed = (0..=GAPS as u64).map(|index| 1_000 - 2 * index);
        removed.clone().for_each(|number| received.remove(number));
        assert_eq!(received.gaps().len(), GAPS);
        assert!(removed.clone().all(|number| !received.contains(number)));
        assert!(received.contains(999) && received.contains(743));
    }

    #[test]
    fn what_did_not_come_while_a_node_was_out_is_known_elsewhere() {
        let at = Instant::from_millis;
        let mut mark = Mark::new(at(0));
        (5..8).for_each(|number| mark.note(at(1), number));
        mark.restart(at(2));
        (11..14).for_each(|number| mark.note(at(3), number));
        let marks = published(&mark);
        for (number, received) in [
            (7, true),
            (8, false),
            (10, false),
            (11, true),
            (13, true),
            (14, false),
        ] {
            assert_eq!(marks.contain(id(number)), received, "{number}");
        }
    }

    #[test]
    fn what_did_not_come_before_a_node_was_down_once_more_is_not_taken_for_received() {
        let at = Instant::from_millis;
        let mut mark = Mark::new(at(0));
        mark.note(at(40_000), 3);
        // Up again, and once more before what it had sent can have arrived.
        mark.restart(at(50_000));
        (7..9).for_each(|number| mark.note(at(50_001), number));
        mark.restart(at(50_002));
        mark.note(at(50_003), 12);
        let received = |mark: &Mark| -> Vec<u64> {
            let marks = published(mark);
            (1..=30).filter(|it| marks.contain(id(*it))).collect()
        };
        assert_eq!(received(&mark), [1, 2, 3, 7, 8, 12]);
        let since = |mark: &Mark, begun, last| -> Vec<u64> {
            let since = mark.received_since(at(begun), last);
            (1..=30).filter(|it| since.contains(*it)).collect()
        };
        assert_eq!(since(&mark, 50_003, 7), [8, 12]);
        // It was up again after that: what came then counts, whatever its number.
        assert_eq!(since(&mark, 50_001, 20), [12]);
        assert_eq!(since(&mark, 50_001, 7), [8, 12]);
        mark.note(at(90_000), 14);
        assert_eq!(received(&mark), [1, 2, 3, 7, 8, 12, 13, 14], "settled");
        mark.restart(at(100_000));
        // It was sent before, and comes again.
        mark.note(at(100_001), 13);
        (20..22).for_each(|number| mark.note(at(140_000), number));
        assert_eq!(received(&mark), [1, 2, 3, 7, 8, 12, 13, 14, 20, 21]);
    }

    #[test]
    fn a_node_that_is_up_again_may_not_know_yet_what_is_wanted_here() {
        let at = Instant::from_millis;
        let received = |marks: &Marks| -> Vec<u64> {
            (1..=20)
                .filter(|number| marks.contain(id(*number)))
                .collect()
        };
        let mut here = Mark::new(at(0));
        for number in [3, 4, 9, 6, 12] {
            here.note(at(1), number);
        }
        assert_eq!(
            received(&published(&here)),
            [3, 4, 6, 9, 12],
            "each for itself"
        );
        here.note(at(40_000), 15);
        assert_eq!(
            received(&published(&here)),
            (1..=15).collect::<Vec<_>>(),
            "settled"
        );
        let mut before = Mark::new(at(0));
        for number in [1, 2, 3, 9, 10, 11] {
            before.note(at(1), number);
        }
        let mut after = Mark::new(at(0));
        for number in [3, 5, 6, 13, 14, 18] {
            after.note(at(1), number);
        }
        let both = published(&before).union(&published(&after));
        assert_eq!(received(&both), [1, 2, 3, 5, 6, 9, 10, 11, 13, 14, 18]);
        assert_eq!(published(&after).union(&published(&before)), both);
        assert_eq!(both.union(&Marks::new()), both);
    }
}
