//! QoS 2 from a client to us: no second delivery until the client has released the identifier.
//!
//! | state \ event | PUBLISH | condition met | PUBREL |
//! | --- | --- | --- | --- |
//! | free | accept it, `Received` | - | refuse: identifier not found |
//! | received (conditions open) | nothing: the PUBREC follows | PUBREC, `Held` | refuse: identifier not found |
//! | orphaned (received on an earlier connection) | `Received`; without DUP as a new one if another node may have the session too | `Held`, no PUBREC | refuse: identifier not found |
//! | interrupted (received before the node stopped, or by a node that was cut off) | accept it again, `Received`; without DUP as a new one | - | refuse: identifier not found |
//! | held | PUBREC again, no delivery | - | PUBCOMP, free |
//! | split (held when a partition began) | PUBREC again, no delivery; without DUP as a new one | - | PUBCOMP, free |
//!
//! Each publication has a generation, never repeated in a session: with the session it identifies the publication for ever, so that a node that
//! received it before the publisher's node stopped recognises it (rule 10 between nodes).

use std::collections::{BTreeMap, btree_map::Entry};

use thicket_mqtt::PacketId;

/// What to do with a QoS 2 PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboundPublish {
    /// Deliver it, answer PUBREC when its conditions are met.
    Deliver {
        /// Of the publication.
        generation: u32,
        /// Some destinations may have received it already, before the node stopped.
        is_repeated: bool,
    },
    /// Seen, not yet answered: the PUBREC comes with the first one's conditions.
    Wait,
    /// Seen and answered: PUBREC again, no second delivery [MQTT-4.3.3-10].
    AnswerAgain,
}

/// The state of a publication whose identifier is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Received,
    /// Its connection has ended, and the client has not sent it again: nobody waits for a PUBREC.
    Orphaned,
    /// The node stopped before its conditions were met.
    Interrupted,
    Held,
    /// Held when another node began to have the session too: its client may have released it there.
    Split,
}

/// A publication of a session that was stored or that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboundId {
    /// Its identifier.
    pub packet_id: PacketId,
    /// Its generation.
    pub generation: u32,
    /// PUBREC was due or sent; else its conditions were not all met.
    pub is_held: bool,
    /// That was before another node began to have the session too.
    pub is_split: bool,
}

impl InboundId {
    /// Its state, as in a snapshot or a journal. Versions without split sessions check only that it is not 0.
    #[must_use]
    pub const fn state_bits(self) -> u8 {
        self.is_held as u8 | (self.is_split as u8) << 1
    }

    /// `state_bits`: the result of that function.
    #[must_use]
    pub const fn new(packet_id: PacketId, generation: u32, state_bits: u8) -> Self {
        Self {
            packet_id,
            generation,
            is_held: state_bits != 0,
            is_split: state_bits & 2 != 0,
        }
    }
}

/// The packet identifiers of QoS 2 messages that a client has sent and not yet released.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inbound {
    ids: BTreeMap<PacketId, (State, u32)>,
    generation: u32,
    /// Another node may have the session too: the next publication that is new begins a new range of generations.
    is_branched: bool,
    /// Some are [`State::Split`], or were [`State::Orphaned`] when others began to be.
    has_split: bool,
    /// Another node had the session too: a client that is connected here since then may have left for there long ago.
    was_merged: bool,
}

/// How far generations jump when another node may have the session too. Two nodes that both have it, in a partition, then never give different
/// publications the same generation.
pub const GENERATIONS_OF_A_BRANCH: u32 = 1 << 20;
/// The generations of a branch are this far ahead of those of the other one.
const BRANCH_AHEAD: i32 = (GENERATIONS_OF_A_BRANCH / 2) as i32;

impl Inbound {
    /// A QoS 2 PUBLISH arrived; `dup`: its client marks it as sent before.
    pub fn handle_publish(&mut self, id: PacketId, dup: bool) -> InboundPublish {
        self.begin_range(id, dup);
        if !dup && self.has_split {
            // Its client has sent everything again that it had under way: what it left out is released.
            let is_released = |state| matches!(state, State::Split | State::Orphaned);
            self.ids.retain(|_, (state, _)| !is_released(*state));
            self.has_split = false;
        }
        match self.ids.get_mut(&id) {
            None => self.take(id, dup),
            Some((State::Interrupted, _)) if !dup => self.take(id, false),
            Some((state @ State::Interrupted, generation)) => {
                *state = State::Received;
                InboundPublish::Deliver {
                    generation: *generation,
                    is_repeated: true,
                }
            }
            Some((state @ (State::Received | State::Orphaned), _)) => {
                *state = State::Received;
                InboundPublish::Wait
            }
            Some((state @ (State::Held | State::Split), _)) => {
                // It was sent again, so it is not released.
                *state = State::Held;
                InboundPublish::AnswerAgain
            }
        }
    }

    /// Begins a range of generations if this PUBLISH needs one: it is new, and another node may have the session too. Whoever may be promoted next must
    /// know of the range before the publication is sent to others, to give it the same generation when its client sends it again.
    pub fn begin_range(&mut self, id: PacketId, dup: bool) -> bool {
        if !self.is_branched || dup {
            return false;
        }
        let is_known = match self.ids.get(&id) {
            Some((State::Received | State::Held, _)) => true,
            Some((State::Split | State::Orphaned, _)) => !self.has_split,
            Some((State::Interrupted, _)) | None => false,
        };
        if !is_known {
            self.generation = self.generation.wrapping_add(GENERATIONS_OF_A_BRANCH);
            self.is_branched = false;
        }
        !is_known
    }

    /// One that is unknown here though its client sent it before was perhaps accepted by a node that had the session before us: as a client sends
    /// again in the order of its first sending, it has the same generation here.
    fn take(&mut self, id: PacketId, is_repeated: bool) -> InboundPublish {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        self.ids.insert(id, (State::Received, generation));
        InboundPublish::Deliver {
            generation,
            is_repeated,
        }
    }

    /// Another node may have the session too: generations jump. What its client sends again first keeps its generations.
    pub fn branch(&mut self) {
        self.branch_names();
        self.split();
    }

    /// Likewise for a session that has moved since then: what its client releases is received where the session is.
    pub const fn branch_names(&mut self) {
        self.is_branched = true;
    }

    /// The node was started again. While it was down its client may have released at another node what it had sent here.
    pub fn handle_restart(&mut self) {
        self.split();
    }

    /// Another node may have the session too, or had it: what the client releases there is received here later, or never.
    fn split(&mut self) {
        for (state, _) in self.ids.values_mut() {
            if *state == State::Held {
                *state = State::Split;
            }
            self.has_split |= matches!(state, State::Split | State::Orphaned);
        }
    }

    /// Merges the state of another node that had the session too: identifiers that are free here, and generations that it has given. What both held
    /// when they were split is free when it is free in one of them. `is_whole`: the other one has forgotten nothing; `is_last_here`: the client was
    /// not connected there after it was connected here.
    pub fn merge(
        &mut self,
        theirs: &[InboundId],
        generation: u32,
        is_whole: bool,
        is_last_here: bool,
    ) {
        let is_there = |packet_id| theirs.iter().any(|id| id.packet_id == packet_id);
        if is_whole {
            self.ids
                .retain(|id, (state, _)| *state != State::Split || is_there(*id));
        }
        // What is not finished there and has its generation here too was sent again here: it is in use, or released.
        let is_newer = |id: &InboundId| id.generation.wrapping_sub(self.generation) as i32 > 0;
        // Its client has published something new here since they were split, and before that sent everything again that it had under way: what is not
        // here is released.
        let is_ahead = self.generation.wrapping_sub(generation) as i32 >= BRANCH_AHEAD;
        let is_outdone = is_last_here && is_ahead;
        let is_taken =
            |id: &&InboundId| !id.is_split && ((id.is_held && !is_outdone) || is_newer(id));
        let taken: Vec<InboundId> = theirs.iter().filter(is_taken).copied().collect();
        for id in taken {
            // Its client may have released it here.
            self.has_split |= id.is_held;
            let state = if id.is_held {
                State::Split
            } else {
                State::Interrupted
            };
            self.ids
                .entry(id.packet_id)
                .or_insert((state, id.generation));
        }
        if (generation.wrapping_sub(self.generation) as i32) > 0 {
            self.generation = generation;
        }
        self.was_merged = true;
    }

    /// The client has connected. `is_split`: meanwhile it may have been connected to another node that has the session too.
    pub fn handle_connected(&mut self, is_split: bool) {
        if is_split || std::mem::take(&mut self.was_merged) {
            self.split();
        }
    }

    /// The conditions of the message are met. Returns whether PUBREC is to be sent: false if nobody waits for it, as a client whose connection ended
    /// sends the message again and is answered then; a PUBREC unasked for would arrive twice.
    pub fn handle_met(&mut self, id: PacketId) -> bool {
        match self.ids.get_mut(&id) {
            Some((state @ (State::Received | State::Orphaned), _)) => {
                let is_awaited = *state == State::Received;
                *state = State::Held;
                is_awaited
            }
            Some((State::Held | State::Split | State::Interrupted, _)) | None => false,
        }
    }

    /// The connection ended.
    pub fn handle_disconnected(&mut self) {
        for (state, _) in self.ids.values_mut() {
            if *state == State::Received {
                *state = State::Orphaned;
            }
        }
    }

    /// The nodes that would report that the conditions of an orphaned message are met cannot be asked: it is accepted again when it is sent again.
    pub fn interrupt(&mut self) {
        for (state, _) in self.ids.values_mut() {
            if *state == State::Orphaned {
                *state = State::Interrupted;
            }
        }
    }

    /// The message was refused, and its client is informed by a PUBREC >= 0x80: the identifier is free again [MQTT-4.3.3-9].
    pub fn handle_refused(&mut self, id: PacketId) {
        self.ids.remove(&id);
    }

    /// The message was refused, and its client is not informed: it is accepted again when it is sent again, under its identity, as some nodes have it
    /// already. Returns whether its client has sent it again and waits for an answer.
    pub fn handle_undelivered_refusal(&mut self, id: PacketId) -> bool {
        match self.ids.get_mut(&id) {
            Some((state @ (State::Received | State::Orphaned), _)) => {
                std::mem::replace(state, State::Interrupted) == State::Received
            }
            Some(_) | None => false,
        }
    }

    /// PUBREL was received. True: PUBCOMP with success; false: with Packet Identifier not found.
    pub fn handle_pubrel(&mut self, id: PacketId) -> bool {
        match self.ids.entry(id) {
            Entry::Occupied(entry) if matches!(entry.get().0, State::Held | State::Split) => {
                entry.remove();
                true
            }
            Entry::Occupied(_) | Entry::Vacant(_) => false,
        }
    }

    /// The publication of an identifier in use.
    #[must_use]
    pub fn find(&self, packet_id: PacketId) -> Option<InboundId> {
        let (state, generation) = self.ids.get(&packet_id)?;
        Some(InboundId {
            packet_id,
            generation: *generation,
            is_held: matches!(state, State::Held | State::Split),
            is_split: *state == State::Split,
        })
    }

    /// Identifiers in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no identifier is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether only the client has anything left to do: PUBREC was due or sent for all that is in use, in one place.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.ids.values().all(|(state, _)| *state == State::Held)
    }

    /// Of the last publication accepted.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Identifiers in use, ascending. A session that moves takes all of them along as held, because the node it leaves finishes what it has accepted;
    /// but what an earlier stop of the node interrupted is finished by no node. `follows`: its client is connecting there; otherwise another session
    /// merges what is new to it.
    pub fn moving(&self, follows: bool) -> impl Iterator<Item = InboundId> + '_ {
        let ids = self.ids_with(|state| state != State::Interrupted);
        let splits = follows && self.was_merged;
        ids.map(move |id| InboundId {
            is_split: id.is_split || (id.is_held && splits),
            ..id
        })
    }

    /// Identifiers in use, ascending, for a store: if the node stops now, what is not held is interrupted.
    pub fn stored(&self) -> impl Iterator<Item = InboundId> + '_ {
        self.ids_with(|state| matches!(state, State::Held | State::Split))
    }

    fn ids_with(&self, is_held: fn(State) -> bool) -> impl Iterator<Item = InboundId> {
        self.ids
            .iter()
            .map(move |(packet_id, (state, generation))| InboundId {
                packet_id: *packet_id,
                generation: *generation,
                is_held: is_held(*state),
                is_split: *state == State::Split,
            })
    }

    /// Restores what a session that moved or was stored brings along.
    #[must_use]
    pub fn restore(ids: impl IntoIterator<Item = InboundId>, generation: u32) -> Self {
        let state = |id: InboundId| (id.packet_id, (state_of(id), id.generation));
        let ids: BTreeMap<_, _> = ids.into_iter().map(state).collect();
        Self {
            has_split: ids.values().any(|(state, _)| *state == State::Split),
            ids,
            generation,
            is_branched: false,
            was_merged: false,
        }
    }
}

const fn state_of(id: InboundId) -> State {
    if id.is_split {
        State::Split
    } else if id.is_held {
        State::Held
    } else {
        State::Interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).expect("not zero")
    }

    /// One row a pair of the table in the module's documentation.
    #[test]
    fn every_pair_of_state_and_event_is_answered_as_the_table_says() {
        let free = Inbound::default;
        let received = || {
            let mut inbound = Inbound::default();
            inbound.handle_publish(id(7), false);
            inbound
        };
        let interrupted = || {
            let ids = [InboundId {
                packet_id: id(7),
                generation: 4,
                is_held: false,
                is_split: false,
            }];
            Inbound::restore(ids, 9)
        };
        let deliver = |generation, is_repeated| InboundPublish::Deliver {
            generation,
            is_repeated,
        };
        let orphaned = || {
            let mut inbound = received();
            inbound.handle_disconnected();
            inbound
        };
        let held = || {
            let mut inbound = received();
            inbound.handle_met(id(7));
            inbound
        };
        assert_eq!(
            free().handle_publish(id(7), false),
            deliver(1, false),
            "free, PUBLISH"
        );
        assert_eq!(
            interrupted().handle_publish(id(7), true),
            deliver(4, true),
            "interrupted, PUBLISH with DUP"
        );
        assert_eq!(
            interrupted().handle_publish(id(7), false),
            deliver(10, false),
            "interrupted, PUBLISH without DUP"
        );
        assert!(
            !interrupted().handle_met(id(7)),
            "interrupted, condition met"
        );
        assert!(!interrupted().handle_pubrel(id(7)), "interrupted, PUBREL");
        let split = || {
            let mut inbound = held();
            inbound.handle_connected(true);
            inbound
        };
        assert_eq!(
            split().handle_publish(id(7), true),
            InboundPublish::AnswerAgain,
            "split, PUBLISH with DUP"
        );
        assert_eq!(
            split().handle_publish(id(7), false),
            deliver(2, false),
            "split, PUBLISH without DUP"
        );
        let mut named = split();
        named.handle_publish(id(7), true);
        named.handle_publish(id(8), false);
        assert_eq!(
            named.handle_publish(id(7), true),
            InboundPublish::AnswerAgain,
            "split, PUBLISH with DUP, then another one"
        );
        assert!(!split().handle_met(id(7)), "split, condition met");
        assert!(split().handle_pubrel(id(7)), "split, PUBREL");
        assert_eq!(
            received().handle_publish(id(7), false),
            InboundPublish::Wait,
            "received, PUBLISH"
        );
        assert_eq!(
            held().handle_publish(id(7), false),
            InboundPublish::AnswerAgain,
            "held, PUBLISH"
        );
        assert_eq!(
            orphaned().handle_publish(id(7), false),
            InboundPublish::Wait,
            "orphaned, PUBLISH"
        );
        assert!(!orphaned().handle_met(id(7)), "orphaned, condition met");
        assert!(!orphaned().handle_pubrel(id(7)), "orphaned, PUBREL");
        assert!(!free().handle_met(id(7)), "free, condition met");
        assert!(received().handle_met(id(7)), "received, condition met");
        assert!(!held().handle_met(id(7)), "held, condition met");
        assert!(!free().handle_pubrel(id(7)), "free, PUBREL");
        assert!(!received().handle_pubrel(id(7)), "received, PUBREL");
        assert!(held().handle_pubrel(id(7)), "held, PUBREL");
    }

    #[test]
    fn what_is_orphaned_can_be_interrupted_and_comes_again_as_the_same_publication() {
        let mut inbound = Inbound::default();
        for number in 1..=3 {
            inbound.handle_publish(id(number), false);
        }
        inbound.handle_met(id(1));
        inbound.handle_disconnected();
        inbound.handle_publish(id(3), true);
        inbound.interrupt();
        let cases = [
            ("held", 1, InboundPublish::AnswerAgain),
            (
                "orphaned",
                2,
                InboundPublish::Deliver {
                    generation: 2,
                    is_repeated: true,
                },
            ),
            ("received again", 3, InboundPublish::Wait),
        ];
        for (name, number, expected) in cases {
            let answer = inbound.handle_publish(id(number), true);
            assert_eq!(answer, expected, "{name}");
        }
    }

    #[test]
    fn after_pubrel_the_same_identifier_is_a_new_message_of_a_new_generation() {
        let mut inbound = Inbound::default();
        inbound.handle_publish(id(1), false);
        inbound.handle_met(id(1));
        let generation = inbound.generation();
        assert!(inbound.handle_pubrel(id(1)));
        assert!(matches!(
            inbound.handle_publish(id(1), false),
            InboundPublish::Deliver { generation: next, is_repeated: false } if next != generation
        ));
    }

    #[test]
    fn after_a_refusal_the_same_identifier_is_a_new_message() {
        let mut inbound = Inbound::default();
        inbound.handle_publish(id(1), false);
        inbound.handle_refused(id(1));
        assert!(matches!(
            inbound.handle_publish(id(1), false),
            InboundPublish::Deliver { generation: 2, .. }
        ));
    }

    #[test]
    fn after_a_refusal_that_its_client_did_not_hear_of_the_same_message_is_taken_again_under_its_name()
     {
        let mut inbound = Inbound::default();
        inbound.handle_publish(id(1), false);
        inbound.handle_disconnected();
        assert!(!inbound.handle_undelivered_refusal(id(1)), "nobody waits");
        assert_eq!(
            inbound.handle_publish(id(1), true),
            InboundPublish::Deliver {
                generation: 1,
                is_repeated: true
            }
        );
        assert!(
            inbound.handle_undelivered_refusal(id(1)),
            "its client waits"
        );
        let stored: Vec<InboundId> = inbound.stored().collect();
        assert!(!stored[0].is_held, "a store takes it for unfinished");
    }

    #[test]
    fn what_a_branch_holds_from_before_is_released_if_its_client_has_published_elsewhere_since() {
        let theirs = [InboundId::new(id(7), 6, 1)];
        for (is_last_here, answer) in [
            (
                true,
                InboundPublish::Deliver {
                    generation: 8 + GENERATIONS_OF_A_BRANCH,
                    is_repeated: true,
                },
            ),
            (false, InboundPublish::AnswerAgain),
        ] {
            let mut inbound = Inbound::restore([], 6);
            inbound.branch();
            inbound.handle_publish(id(1), false);
            inbound.merge(&theirs, 6, true, is_last_here);
            assert_eq!(inbound.handle_publish(id(7), true), answer);
        }
    }

    #[test]
    fn two_nodes_that_have_a_session_give_no_generation_twice_but_for_what_comes_again() {
        let mut here = Inbound::restore([], 40);
        let mut there = here.clone();
        there.branch();
        let generation =
            |inbound: &mut Inbound, value, dup| match inbound.handle_publish(id(value), dup) {
                InboundPublish::Deliver { generation, .. } => generation,
                other => panic!("{other:?}"),
            };
        assert_eq!(generation(&mut there, 1, true), 41, "sent here before");
        assert_eq!(generation(&mut here, 1, false), 41);
        let ours: Vec<u32> = (2..9).map(|id| generation(&mut here, id, false)).collect();
        let theirs: Vec<u32> = (2..9).map(|id| generation(&mut there, id, false)).collect();
        assert!(ours.iter().all(|generation| !theirs.contains(generation)));
    }

    #[test]
    fn a_backup_that_has_the_start_of_a_range_gives_the_first_publication_in_it_the_same_generation()
     {
        let mut promoted = Inbound::restore([], 40);
        promoted.branch();
        assert!(!promoted.begin_range(id(1), true), "sent before");
        assert!(promoted.begin_range(id(1), false));
        let mut backup = Inbound::restore([], promoted.generation());
        assert!(!promoted.begin_range(id(1), false), "it has begun");
        let expected = |is_repeated| InboundPublish::Deliver {
            generation: 41 + GENERATIONS_OF_A_BRANCH,
            is_repeated,
        };
        assert_eq!(promoted.handle_publish(id(1), false), expected(false));
        assert!(!promoted.begin_range(id(2), false), "one range a branch");
        backup.branch();
        assert_eq!(backup.handle_publish(id(1), true), expected(true));
    }

    #[test]
    fn what_was_released_elsewhere_is_free_when_the_client_is_back_after_a_merge() {
        let mut inbound = Inbound::default();
        for value in [1, 2] {
            inbound.handle_publish(id(value), false);
        }
        inbound.handle_met(id(1));
        inbound.handle_disconnected();
        inbound.merge(&[], 7, true, true);
        assert!(inbound.moving(true).all(|it| it.is_split));
        assert!(inbound.moving(false).all(|it| !it.is_split));
        inbound.handle_connected(false);
        for (value, generation) in [(1, 8), (2, 9)] {
            let expected = InboundPublish::Deliver {
                generation,
                is_repeated: false,
            };
            assert_eq!(inbound.handle_publish(id(value), false), expected);
        }
    }

    #[test]
    fn a_merged_session_knows_the_identifiers_of_both_and_goes_on_above_them() {
        let known = |value, generation, bits| InboundId::new(id(value), generation, bits);
        let mut inbound = Inbound::restore([known(1, 5, 1), known(3, 4, 3), known(4, 3, 3)], 5);
        let theirs = [
            known(1, 70, 0),
            known(2, 71, 1),
            known(4, 3, 3),
            known(5, 2, 3),
            // Not finished there: released here meanwhile, or unknown here.
            known(6, 5, 0),
            known(7, 72, 0),
        ];
        inbound.merge(&theirs, 80, true, true);
        let expected = [
            known(1, 5, 1),
            known(2, 71, 3),
            known(4, 3, 3),
            known(7, 72, 0),
        ];
        assert_eq!(inbound.moving(false).collect::<Vec<_>>(), expected);
        assert_eq!(inbound.generation(), 80);
        inbound.merge(&[], 7, false, true);
        assert_eq!(inbound.generation(), 80);
        assert_eq!(inbound.len(), 4, "the other one may have forgotten them");
    }

    #[test]
    fn a_branch_that_moved_names_what_is_new_otherwise_than_the_other_one() {
        let mut moved = Inbound::restore([], 5);
        moved.branch_names();
        for (packet_id, dup, expected) in [
            (1, true, 6),
            (2, false, 7 + GENERATIONS_OF_A_BRANCH),
            (3, false, 8 + GENERATIONS_OF_A_BRANCH),
        ] {
            let InboundPublish::Deliver { generation, .. } =
                moved.handle_publish(id(packet_id), dup)
            else {
                panic!("{packet_id} is new");
            };
            assert_eq!(generation, expected, "{packet_id}");
        }
    }
}
