//! QoS 2 publications of persistent publishers that came here: whoever sends one again after its node stopped is told apart
//! from whoever sends a new one (rule 10 between nodes).

use std::collections::{BTreeMap, VecDeque};

use crate::Remembered;
use thicket_overlay::record::PublicationId;
use thicket_session::server::{GENERATIONS_OF_A_BRANCH, Message, SEEN_WORDS};

/// Publishers remembered.
const PUBLISHERS: usize = 10_000;
const WORD_BITS: u32 = u128::BITS;

/// The last generations of one publisher: more than a client may have without PUBREC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generations {
    pub highest: u32,
    /// Bit `n`: `highest - n` was seen.
    pub bits: [u128; SEEN_WORDS],
}

impl Generations {
    /// One generation.
    pub const fn new(generation: u32) -> Self {
        let mut bits = [0; SEEN_WORDS];
        bits[0] = 1;
        Self {
            highest: generation,
            bits,
        }
    }

    /// Whether it is new.
    fn insert(&mut self, generation: u32) -> bool {
        let ahead = generation.wrapping_sub(self.highest) as i32;
        if ahead > 0 {
            self.shift(ahead.unsigned_abs());
            self.highest = generation;
            self.bits[0] |= 1;
            return true;
        }
        let behind = ahead.unsigned_abs();
        let Some(word) = self.bits.get_mut((behind / WORD_BITS) as usize) else {
            // Farther back than what can still be sent again.
            return true;
        };
        let bit = 1 << (behind % WORD_BITS);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn contains(&self, generation: u32) -> bool {
        let behind = self.highest.wrapping_sub(generation);
        let word = self.bits.get((behind / WORD_BITS) as usize);
        word.is_some_and(|word| word & (1 << (behind % WORD_BITS)) != 0)
    }

    /// What either has.
    fn merge(&mut self, mut other: Self) {
        if other.highest.wrapping_sub(self.highest) as i32 > 0 {
            std::mem::swap(self, &mut other);
        }
        other.shift(self.highest.wrapping_sub(other.highest));
        for (word, other) in self.bits.iter_mut().zip(other.bits) {
            *word |= other;
        }
    }

    fn shift(&mut self, count: u32) {
        let (words, bits) = ((count / WORD_BITS) as usize, count % WORD_BITS);
        for index in (0..SEEN_WORDS).rev() {
            let from = |index: usize| self.bits.get(index).copied().unwrap_or(0);
            let low = index.checked_sub(words).map_or(0, from);
            let lower = index.checked_sub(words + 1).map_or(0, from);
            self.bits[index] = match bits {
                0 => low,
                bits => low << bits | lower >> (WORD_BITS - bits),
            };
        }
    }
}

/// A publisher's session, and which branch of it: what was under way when generations jumped may come again after it.
type Publisher = (u128, u32);

const fn publisher(uid: u128, generation: u32) -> Publisher {
    (uid, generation / GENERATIONS_OF_A_BRANCH)
}

/// What came from all publishers.
#[derive(Debug)]
pub(super) struct Seen {
    maximum: usize,
    publishers: BTreeMap<Publisher, Generations>,
    /// The one that came first is forgotten first.
    order: VecDeque<Publisher>,
}

impl Default for Seen {
    fn default() -> Self {
        Self::with_maximum(PUBLISHERS)
    }
}

impl Seen {
    /// Of so many publishers.
    pub const fn with_maximum(maximum: usize) -> Self {
        Self {
            maximum,
            publishers: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    fn contains(&self, id: PublicationId) -> bool {
        let seen = self.publishers.get(&publisher(id.session, id.generation));
        seen.is_some_and(|it| it.contains(id.generation))
    }

    /// Whether nothing of its publisher was forgotten for want of room.
    fn is_whole_for(&self, id: PublicationId) -> bool {
        let publisher = publisher(id.session, id.generation);
        self.order.len() < self.maximum || self.publishers.contains_key(&publisher)
    }

    fn merge(&mut self, uid: u128, generations: Generations) {
        let publisher = publisher(uid, generations.highest);
        match self.publishers.get_mut(&publisher) {
            Some(known) => known.merge(generations),
            None => self.remember(publisher, generations),
        }
    }

    /// Notes a publication; whether it is new.
    pub fn insert(&mut self, id: PublicationId) -> bool {
        let publisher = publisher(id.session, id.generation);
        if let Some(generations) = self.publishers.get_mut(&publisher) {
            return generations.insert(id.generation);
        }
        self.remember(publisher, Generations::new(id.generation));
        true
    }

    /// Puts back what a store kept.
    pub fn restore(&mut self, uid: u128, generations: Generations) {
        self.put(publisher(uid, generations.highest), generations);
    }

    fn put(&mut self, publisher: Publisher, generations: Generations) {
        if self.publishers.insert(publisher, generations).is_none() {
            self.order.push_back(publisher);
        }
    }

    fn remember(&mut self, publisher: Publisher, generations: Generations) {
        if self.order.len() >= self.maximum
            && let Some(oldest) = self.order.pop_front()
        {
            self.publishers.remove(&oldest);
        }
        self.put(publisher, generations);
    }

    /// The publishers that are remembered.
    pub fn remembered(&self) -> Remembered {
        const BYTES: usize = size_of::<Generations>() + 2 * size_of::<Publisher>();
        Remembered::new("publishers at QoS 2", self.publishers.len(), self.maximum)
            .with_bytes(self.publishers.len() * BYTES)
    }

    /// All of them: of one publisher as often as it has branches.
    pub fn iter(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.publishers
            .iter()
            .map(|((uid, _), generations)| (*uid, generations))
    }
}

/// Publications that one session took.
#[derive(Debug)]
pub(super) struct Taken {
    here: Seen,
    /// Those it took where it was before: sent again, they come here for the first time.
    before: Seen,
}

impl Default for Taken {
    fn default() -> Self {
        Self {
            here: Seen::with_maximum(Self::PUBLISHERS),
            before: Seen::with_maximum(Self::PUBLISHERS),
        }
    }
}

impl Taken {
    /// Publishers remembered of a session.
    const PUBLISHERS: usize = 64;

    /// Notes a publication; whether it is new to the session.
    pub fn insert(&mut self, id: PublicationId) -> bool {
        if self.before.contains(id) {
            return false;
        }
        self.here.insert(id);
        true
    }

    /// The session took a message.
    #[inline]
    pub fn note(&mut self, message: &Message) {
        if let Some((session, packet_id, generation)) = message.publication() {
            self.insert(PublicationId {
                session,
                packet_id,
                generation,
            });
        }
    }

    /// The same of a publication that others here have seen before; false as well if nobody can say.
    pub fn insert_again(&mut self, id: PublicationId) -> bool {
        let is_known = self.before.is_whole_for(id) && self.here.is_whole_for(id);
        is_known && !self.before.contains(id) && self.here.insert(id)
    }

    /// Publishers remembered; of one perhaps several times.
    pub fn publishers(&self) -> usize {
        self.before.order.len() + self.here.order.len()
    }

    /// What it took of one publisher where the session was before.
    pub fn insert_before(&mut self, uid: u128, generations: Generations) {
        self.before.merge(uid, generations);
    }

    /// The session goes on here: what it took so far is not new any more.
    pub fn go_on(&mut self) {
        let here = Seen::with_maximum(Self::PUBLISHERS);
        for (uid, generations) in std::mem::replace(&mut self.here, here).iter() {
            self.before.merge(uid, *generations);
        }
    }

    /// All that it took, by publisher; of one perhaps several times.
    pub fn iter(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.iter_before().chain(self.iter_here())
    }

    /// What it took where the session was before, or before it was read from disk.
    pub fn iter_before(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.before.iter()
    }

    /// What it took since then.
    pub fn iter_here(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.here.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn id(generation: u32) -> PublicationId {
        PublicationId {
            session: 1,
            packet_id: 1,
            generation,
        }
    }

    #[test]
    fn a_generation_is_new_once_within_the_window() {
        let mut seen = Seen::default();
        let mut naive = BTreeSet::new();
        let steps: [u32; 14] = [5, 6, 5, 9, 7, 7, 133, 132, 9, 6, 500, 133, 900, 901];
        for generation in steps {
            let expected = naive.insert(generation);
            assert_eq!(seen.insert(id(generation)), expected, "{generation}");
        }
    }

    #[test]
    fn generations_go_on_past_the_highest_number() {
        let mut seen = Seen::default();
        assert!(seen.insert(id(u32::MAX)));
        assert!(seen.insert(id(0)));
        assert!(!seen.insert(id(u32::MAX)));
        assert!(!seen.insert(id(0)));
    }

    #[test]
    fn what_was_under_way_when_generations_jumped_is_known_after_it() {
        let mut taken = Taken::default();
        taken.insert(id(3));
        taken.insert(id(GENERATIONS_OF_A_BRANCH + 5));
        taken.go_on();
        let mut moved = Taken::default();
        for (uid, generations) in taken.iter() {
            moved.insert_before(uid, *generations);
        }
        let known = [(2, true), (3, false), (GENERATIONS_OF_A_BRANCH + 5, false)];
        for (generation, is_new) in known {
            assert_eq!(moved.insert(id(generation)), is_new, "{generation}");
        }
    }

    #[test]
    fn what_a_session_took_elsewhere_is_not_new() {
        let mut taken = Taken::default();
        assert!(taken.insert(id(1)));
        assert!(taken.insert(id(1)), "the worker tells those apart");
        taken.go_on();
        taken.insert_before(1, Generations::new(900));
        for (generation, is_new) in [(1, false), (2, true), (900, false), (901, true)] {
            assert_eq!(taken.insert(id(generation)), is_new, "{generation}");
        }
        assert_eq!(taken.iter().count(), 2);
    }

    #[test]
    fn what_others_have_seen_is_new_to_a_session_that_surely_did_not_take_it() {
        let mut taken = Taken::default();
        taken.insert_before(1, Generations::new(5));
        taken.insert(id(7));
        for (generation, is_new) in [(5, false), (6, true), (6, false), (7, false)] {
            assert_eq!(taken.insert_again(id(generation)), is_new, "{generation}");
        }
        for session in 2..=Taken::PUBLISHERS as u128 + 1 {
            taken.insert(PublicationId { session, ..id(1) });
        }
        assert!(!taken.insert_again(id(8)), "its publisher was forgotten");
    }

    #[test]
    fn publishers_are_bounded_and_the_first_is_forgotten_first() {
        let mut seen = Seen::default();
        for session in 0..=PUBLISHERS as u128 {
            seen.insert(PublicationId { session, ..id(1) });
        }
        assert_eq!(seen.iter().count(), PUBLISHERS);
        assert!(seen.insert(PublicationId {
            session: 0,
            ..id(1)
        }));
        assert!(!seen.insert(PublicationId {
            session: 5,
            ..id(1)
        }));
    }
}
