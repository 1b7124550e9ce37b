//! QoS 2 publications of persistent publishers that arrived here: distinguishes a publication that is sent again after its node stopped from a new
//! one (rule 10 between nodes).
//!
//! A publication is identified by the number of its publisher's session, its generation; as two nodes may give one generation to two publications, also
//! by a checksum of its content (`Generations` of crate `session`).

use std::collections::{BTreeMap, VecDeque};

use thicket_overlay::{fnv1a, record::PublicationId};
use thicket_session::server::{GENERATIONS_OF_A_BRANCH, Generations, Message, Publication};

use crate::Remembered;

/// Publishers remembered.
const PUBLISHERS: usize = 10_000;
/// Bytes at each end of a payload that its checksum covers.
const CHECKED_BYTES: usize = 64;

/// A publication by its identity and its content.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Named {
    pub id: PublicationId,
    /// Of packet identifier, topic and payload; 0: unknown.
    pub checksum: u16,
}

impl Named {
    pub fn new(id: PublicationId, topic: &str, payload: &[u8]) -> Self {
        let checksum = checksum(id.packet_id, topic, payload);
        Self { id, checksum }
    }

    /// Nothing but this one of its publisher.
    pub const fn alone(&self) -> Generations {
        Generations::of_one(self.id.generation, self.checksum)
    }

    /// The publication of a message, if it may be sent again.
    pub fn of(message: &Message) -> Option<Self> {
        let id = publication_id(message.publication()?);
        Some(Self::new(id, message.topic(), message.payload()))
    }
}

impl From<PublicationId> for Named {
    fn from(id: PublicationId) -> Self {
        Self { id, checksum: 0 }
    }
}

/// A publication's identity as in a record.
pub(in crate::worker) fn publication_id(
    (session, packet_id, generation): Publication,
) -> PublicationId {
    PublicationId {
        session,
        packet_id,
        generation,
    }
}

/// Not 0, and the same on every machine.
fn checksum(packet_id: u16, topic: &str, payload: &[u8]) -> u16 {
    let (begin, rest) = payload.split_at(payload.len().min(CHECKED_BYTES));
    let end = &rest[rest.len().saturating_sub(CHECKED_BYTES)..];
    let lengths = [topic.len() as u64, payload.len() as u64];
    let bytes = packet_id
        .to_le_bytes()
        .into_iter()
        .chain(lengths.into_iter().flat_map(u64::to_le_bytes))
        .chain(topic.bytes())
        .chain(begin.iter().chain(end).copied());
    let sum = fnv1a(bytes);
    let folded = sum ^ (sum >> 16) ^ (sum >> 32) ^ (sum >> 48);
    u16::max(folded as u16, 1)
}

/// A publisher's session, and which branch of it: what was under way when generations jumped may be sent again after it.
type Publisher = (u128, u32);

const fn publisher(uid: u128, generation: u32) -> Publisher {
    (uid, generation / GENERATIONS_OF_A_BRANCH)
}

/// What arrived from all publishers.
#[derive(Debug)]
pub(in crate::worker) struct Seen {
    maximum: usize,
    publishers: BTreeMap<Publisher, Generations>,
    /// The one that arrived first is forgotten first.
    order: VecDeque<Publisher>,
}

impl Default for Seen {
    fn default() -> Self {
        Self::with_maximum(PUBLISHERS)
    }
}

impl Seen {
    /// For up to `maximum` publishers.
    pub const fn with_maximum(maximum: usize) -> Self {
        Self {
            maximum,
            publishers: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Whether a publication is among them.
    pub fn contains(&self, named: Named) -> bool {
        let publisher = publisher(named.id.session, named.id.generation);
        let seen = self.publishers.get(&publisher);
        seen.is_some_and(|it| it.contains(named.id.generation, named.checksum))
    }

    /// Whether nothing of its publisher was forgotten because of the limit.
    fn is_whole_for(&self, id: PublicationId) -> bool {
        let publisher = publisher(id.session, id.generation);
        self.order.len() < self.maximum || self.publishers.contains_key(&publisher)
    }

    fn merge(&mut self, uid: u128, generations: Generations) {
        let publisher = publisher(uid, generations.highest());
        match self.publishers.get_mut(&publisher) {
            Some(known) => known.merge(generations),
            None => self.remember(publisher, generations),
        }
    }

    /// Notes a publication; whether it is new.
    pub fn insert(&mut self, named: Named) -> bool {
        let publisher = publisher(named.id.session, named.id.generation);
        if let Some(generations) = self.publishers.get_mut(&publisher) {
            return generations.insert(named.id.generation, named.checksum);
        }
        self.remember(publisher, named.alone());
        true
    }

    /// Puts back what a store kept.
    pub fn restore(&mut self, uid: u128, generations: Generations) {
        self.put(publisher(uid, generations.highest()), generations);
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

    /// Number of publishers; of one perhaps several branches.
    pub fn publishers(&self) -> usize {
        self.publishers.len()
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

/// Publications that one session accepted.
#[derive(Debug)]
pub(in crate::worker) struct AcceptedPublications {
    here: Seen,
    /// Those it accepted where it was before: sent again, they arrive here for the first time.
    before: Seen,
}

impl Default for AcceptedPublications {
    fn default() -> Self {
        Self {
            here: Seen::with_maximum(Self::PUBLISHERS),
            before: Seen::with_maximum(Self::PUBLISHERS),
        }
    }
}

impl AcceptedPublications {
    /// Publishers remembered of a session.
    const PUBLISHERS: usize = 64;

    /// Notes a publication; whether it is new to the session.
    pub fn insert(&mut self, named: Named) -> bool {
        if self.before.contains(named) {
            return false;
        }
        self.here.insert(named);
        true
    }

    /// The session accepted a message.
    #[inline]
    pub fn note(&mut self, message: &Message) {
        if let Some(named) = Named::of(message) {
            self.insert(named);
        }
    }

    /// The same of a publication that others here have seen before; false as well if that is unknown.
    pub fn insert_again(&mut self, named: Named) -> bool {
        let is_known = self.before.is_whole_for(named.id) && self.here.is_whole_for(named.id);
        is_known && !self.before.contains(named) && self.here.insert(named)
    }

    /// Publishers remembered; of one perhaps several times.
    pub fn publishers(&self) -> usize {
        self.before.order.len() + self.here.order.len()
    }

    /// What it accepted of one publisher where the session was before.
    pub fn insert_before(&mut self, uid: u128, generations: Generations) {
        self.before.merge(uid, generations);
    }

    /// The session was promoted here: what it accepted so far is not new any more.
    pub fn continue_generations(&mut self) {
        let here = Seen::with_maximum(Self::PUBLISHERS);
        for (uid, generations) in std::mem::replace(&mut self.here, here).iter() {
            self.before.merge(uid, *generations);
        }
    }

    /// All that it accepted, by publisher; of one perhaps several times.
    pub fn iter(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.iter_before().chain(self.iter_here())
    }

    /// What it accepted where the session was before, or before it was read from disk.
    pub fn iter_before(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.before.iter()
    }

    /// What it accepted since then.
    pub fn iter_here(&self) -> impl Iterator<Item = (u128, &Generations)> {
        self.here.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A publication of a session.
    fn of(session: u128, generation: u32) -> Named {
        let id = PublicationId {
            session,
            packet_id: 1,
            generation,
        };
        Named::new(id, "a", b"")
    }

    fn id(generation: u32) -> Named {
        of(1, generation)
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
        let mut accepted = AcceptedPublications::default();
        accepted.insert(id(3));
        accepted.insert(id(GENERATIONS_OF_A_BRANCH + 5));
        accepted.continue_generations();
        let mut moved = AcceptedPublications::default();
        for (uid, generations) in accepted.iter() {
            moved.insert_before(uid, *generations);
        }
        let known = [(2, true), (3, false), (GENERATIONS_OF_A_BRANCH + 5, false)];
        for (generation, is_new) in known {
            assert_eq!(moved.insert(id(generation)), is_new, "{generation}");
        }
    }

    #[test]
    fn what_a_session_took_elsewhere_is_not_new() {
        let mut accepted = AcceptedPublications::default();
        assert!(accepted.insert(id(1)));
        assert!(accepted.insert(id(1)), "the worker tells those apart");
        accepted.continue_generations();
        accepted.insert_before(1, Generations::of_one(900, 0));
        for (generation, is_new) in [(1, false), (2, true), (900, false), (901, true)] {
            assert_eq!(accepted.insert(id(generation)), is_new, "{generation}");
        }
        assert_eq!(accepted.iter().count(), 2);
    }

    #[test]
    fn what_others_have_seen_is_new_to_a_session_that_surely_did_not_take_it() {
        let mut accepted = AcceptedPublications::default();
        accepted.insert_before(1, Generations::of_one(5, 0));
        accepted.insert(id(7));
        for (generation, is_new) in [(5, false), (6, true), (6, false), (7, false)] {
            assert_eq!(
                accepted.insert_again(id(generation)),
                is_new,
                "{generation}"
            );
        }
        for session in 2..=AcceptedPublications::PUBLISHERS as u128 + 1 {
            accepted.insert(of(session, 1));
        }
        assert!(!accepted.insert_again(id(8)), "its publisher was forgotten");
    }

    #[test]
    fn publishers_are_bounded_and_the_first_is_forgotten_first() {
        let mut seen = Seen::default();
        for session in 0..=PUBLISHERS as u128 {
            seen.insert(of(session, 1));
        }
        assert_eq!(seen.iter().count(), PUBLISHERS);
        assert!(seen.insert(of(0, 1)));
        assert!(!seen.insert(of(5, 1)));
    }

    #[test]
    fn two_publications_of_one_generation_are_told_apart_by_what_they_say() {
        let named = |packet_id, topic: &str, payload: &[u8]| {
            let id = PublicationId {
                session: 1,
                packet_id,
                generation: 40,
            };
            Named::new(id, topic, payload)
        };
        let known = named(1, "a/b", b"on");
        let long = [b'x'; 3 * CHECKED_BYTES];
        let mut longer = long;
        longer[CHECKED_BYTES - 1] = b'y';
        let others = [
            named(2, "a/b", b"on"),
            named(1, "a/c", b"on"),
            named(1, "a/b", b"off"),
            named(1, "a/b", &long),
            named(1, "a/b", &longer),
            named(1, "a/b", &long[1..]),
        ];
        for other in others {
            let mut seen = Seen::default();
            assert!(seen.insert(known) && !seen.insert(known));
            assert!(seen.insert(other), "{other:?}");
            assert!(!seen.insert(other), "{other:?} again");
            assert!(
                !seen.insert(other.id.into()),
                "its content is not known, so it may be the same"
            );
            let mut accepted = AcceptedPublications::default();
            accepted.insert(known);
            accepted.continue_generations();
            assert!(
                !accepted.insert(known) && accepted.insert(other),
                "{other:?}"
            );
        }
    }
}
