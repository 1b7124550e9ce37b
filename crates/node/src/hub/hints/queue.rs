//! The messages kept for one node that is down: those this node is responsible for, and those it keeps for other responsible nodes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use thicket_overlay::{
    NodeId,
    record::{Record, age_expiry},
};
use thicket_session::time::Instant;

use crate::messages::Origin;

/// What a message costs beside its record, about.
const OVERHEAD: u64 = 96;

/// Where a message is besides this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nowhere yet.
    Unassigned,
    /// This node was asked to keep it.
    Asked(NodeId),
    /// This node has confirmed that it keeps it.
    Held(NodeId),
    /// There is no other node, or it is over the limit there.
    Alone,
    /// On this node only: the node that is down may not want it.
    Speculative,
}

/// A message for a node that is down.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    /// Rises; of the node that is responsible for it.
    pub serial: u64,
    pub origin: Origin,
    /// In the origin's stream.
    pub number: u64,
    /// As it was encoded at `since`.
    pub record: Rc<[u8]>,
    pub since: Instant,
    pub expires_at: Option<Instant>,
    pub holder: Holder,
    /// Its publisher gets no acknowledgement before another node keeps it too.
    pub is_awaited: bool,
}

impl Hint {
    /// What it counts towards the limits.
    pub fn cost(&self) -> u64 {
        self.record.len() as u64 + OVERHEAD
    }

    /// The same for a node for which no publisher waits.
    pub const fn not_awaited(mut self, holder: Holder) -> Self {
        self.holder = holder;
        self.is_awaited = false;
        self
    }

    /// The identity of the message.
    pub const fn name(&self) -> (Origin, u64) {
        (self.origin, self.number)
    }

    pub fn topic(&self) -> Option<&str> {
        let record = Record::decode(&self.record).ok();
        record.map(|(record, _)| record.topic)
    }

    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Its record with the expiry that is left.
    pub fn aged(&self, now: Instant) -> Vec<u8> {
        let mut record = self.record.to_vec();
        let waited = now.since(self.since).as_millis();
        age_expiry(&mut record, u64::try_from(waited).unwrap_or(u64::MAX));
        record
    }
}

/// All that is kept for one node.
#[derive(Debug, Default)]
pub(super) struct HintQueue {
    /// Those this node is responsible for, by serial.
    own: VecDeque<Hint>,
    /// No second holder is wanted for any of `own` before this serial.
    wanted_from: u64,
    /// Those of others, by the responsible node.
    kept: BTreeMap<NodeId, VecDeque<Hint>>,
    /// Nodes that were asked to keep some of `own`.
    holders: BTreeSet<NodeId>,
    bytes: u64,
    /// The last serial that was sent to the node since it is back; `None`: it is down, or has not announced its interests yet.
    sent: Option<u64>,
    /// A message was dropped over the limit, and none has been accepted since.
    pub is_overrun: bool,
}

impl HintQueue {
    pub fn len(&self) -> usize {
        self.own.len() + self.kept.values().map(VecDeque::len).sum::<usize>()
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.kept.is_empty()
    }

    pub fn push(&mut self, hint: Hint) {
        self.bytes += hint.cost();
        self.own.push_back(hint);
    }

    /// Keeps one that another node is responsible for.
    pub fn keep(&mut self, from: NodeId, hint: Hint) {
        self.bytes += hint.cost();
        self.kept.entry(from).or_default().push_back(hint);
    }

    /// The responsible node no longer needs these.
    pub fn forget_kept(&mut self, from: NodeId, upto: u64) {
        let Some(kept) = self.kept.get_mut(&from) else {
            return;
        };
        while let Some(done) = kept.pop_front_if(|hint| hint.serial <= upto) {
            self.bytes -= done.cost();
        }
        if kept.is_empty() {
            self.kept.remove(&from);
        }
    }

    /// The responsible node is down: this one is responsible now.
    pub fn inherit(&mut self, from: NodeId, last_serial: &mut u64) {
        for mut hint in self.kept.remove(&from).unwrap_or_default() {
            *last_serial += 1;
            hint.serial = *last_serial;
            hint.holder = Holder::Unassigned;
            self.own.push_back(hint);
        }
    }

    /// What a node was to keep is lost, or may be.
    pub fn lose_holder(&mut self, node: NodeId) {
        self.holders.remove(&node);
        let lost =
            |hint: &&mut Hint| [Holder::Asked(node), Holder::Held(node)].contains(&hint.holder);
        for hint in self.own.iter_mut().filter(lost) {
            hint.holder = Holder::Unassigned;
        }
        self.wanted_from = 0;
    }

    /// Another node may keep what only this one has.
    pub fn seek_holders(&mut self) {
        for hint in self.own.iter_mut().filter(|it| it.holder == Holder::Alone) {
            hint.holder = Holder::Unassigned;
        }
        self.wanted_from = 0;
    }

    /// Those that no other node has yet, up to about `maximum` bytes.
    pub fn unheld(&mut self, maximum: usize) -> Vec<&mut Hint> {
        let mut bytes = 0;
        let is_unassigned = |hint: &Hint| hint.holder == Holder::Unassigned;
        let wanted_from = self.wanted_from;
        let held = self.own.partition_point(|hint| hint.serial < wanted_from);
        let first = self.own.range(held..).position(is_unassigned);
        let Some(first) = first.map(|after| held + after) else {
            self.wanted_from = self.last() + 1;
            return Vec::new();
        };
        self.wanted_from = self.own[first].serial;
        let unheld = self.own.range_mut(first..);
        unheld
            .filter(|hint| is_unassigned(hint))
            .take_while(|hint| {
                let has_capacity = bytes < maximum;
                bytes += hint.record.len();
                has_capacity
            })
            .collect()
    }

    /// These could not be sent.
    pub fn want_again(&mut self, serials: &[u64]) {
        let unannounced = |hint: &&mut Hint| serials.contains(&hint.serial);
        for hint in self.own.iter_mut().filter(unannounced) {
            hint.holder = Holder::Unassigned;
        }
        self.wanted_from = 0;
    }

    /// A node was asked to keep some.
    pub fn note_holder(&mut self, node: NodeId) {
        self.holders.insert(node);
    }

    /// Nodes that keep some of these.
    pub fn holders(&self) -> Vec<NodeId> {
        self.holders.iter().copied().collect()
    }

    /// A node answered for what it was sent up to a serial: passes each to `settle`.
    pub fn answered(
        &mut self,
        node: NodeId,
        upto: u64,
        holder: Holder,
        mut settle: impl FnMut(&mut Hint),
    ) {
        let announced =
            |hint: &&mut Hint| hint.serial <= upto && hint.holder == Holder::Asked(node);
        for hint in self.own.iter_mut().filter(announced) {
            hint.holder = holder;
            settle(hint);
        }
    }

    /// The node is back and has announced its interests.
    pub fn open(&mut self) {
        self.sent.get_or_insert(0);
    }

    /// What it was sent and did not acknowledge is sent again when it is back.
    pub const fn close(&mut self) {
        self.sent = None;
    }

    pub const fn is_open(&self) -> bool {
        self.sent.is_some()
    }

    /// The next ones to send, about `maximum` bytes of them, while less than `window` bytes are unacknowledged.
    pub fn take_next(&mut self, maximum: usize, window: usize) -> Vec<&Hint> {
        let Some(sent) = &mut self.sent else {
            return Vec::new();
        };
        let first = self.own.partition_point(|hint| hint.serial <= *sent);
        let len = |hint: &Hint| hint.record.len();
        if self.own.range(..first).map(len).sum::<usize>() >= window {
            return Vec::new();
        }
        let mut bytes = 0;
        let next = self.own.range(first..).take_while(|hint| {
            let has_capacity = bytes < maximum;
            bytes += len(hint);
            has_capacity
        });
        let next: Vec<&Hint> = next.collect();
        if let Some(last) = next.last() {
            *sent = last.serial;
        }
        next
    }

    /// What `take_next` returned from this serial on could not be sent.
    pub fn send_again_from(&mut self, serial: u64) {
        if let Some(sent) = &mut self.sent {
            *sent = serial - 1;
        }
    }

    /// Removes those up to a serial: the node has them.
    pub fn taken(&mut self, upto: u64) -> Vec<Hint> {
        let mut taken = Vec::new();
        while let Some(hint) = self.own.pop_front_if(|hint| hint.serial <= upto) {
            self.bytes -= hint.cost();
            taken.push(hint);
        }
        taken
    }

    /// Whether nothing up to a serial is left.
    pub fn has_delivered(&self, upto: u64) -> bool {
        self.own.front().is_none_or(|hint| hint.serial > upto)
    }

    /// The last serial of those that wait for the node.
    pub fn last(&self) -> u64 {
        self.own.back().map_or(0, |hint| hint.serial)
    }

    /// The node was expected and is not back.
    pub fn forget_speculative(&mut self) {
        let bytes = &mut self.bytes;
        self.own.retain(|hint| {
            let stays = hint.holder != Holder::Speculative;
            *bytes -= if stays { 0 } else { hint.cost() };
            stays
        });
    }

    /// Removes one that is refused to its publisher.
    pub fn remove(&mut self, serial: u64) -> Option<Hint> {
        let at = self.own.binary_search_by_key(&serial, |hint| hint.serial);
        let hint = self.own.remove(at.ok()?)?;
        self.bytes -= hint.cost();
        Some(hint)
    }

    /// Removes what has expired. Returns those of this node's own.
    pub fn expire(&mut self, now: Instant) -> Vec<Hint> {
        let expired: Vec<Hint> = {
            let (expired, own) = std::mem::take(&mut self.own)
                .into_iter()
                .partition(|hint: &Hint| hint.is_expired(now));
            self.own = own;
            Vec::from_iter::<VecDeque<Hint>>(expired)
        };
        self.bytes -= expired.iter().map(Hint::cost).sum::<u64>();
        for kept in self.kept.values_mut() {
            let bytes = &mut self.bytes;
            kept.retain(|hint| {
                let is_expired = hint.is_expired(now);
                *bytes -= if is_expired { hint.cost() } else { 0 };
                !is_expired
            });
        }
        self.kept.retain(|_, kept| !kept.is_empty());
        expired
    }

    /// All that this node is responsible for, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Hint> {
        self.own.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_overlay::{Incarnation, StreamId};

    fn hint(serial: u64, expires_at: Option<u64>) -> Hint {
        Hint {
            serial,
            origin: Origin {
                node: NodeId(1),
                incarnation: Incarnation(1),
                stream: StreamId(0),
            },
            number: serial,
            record: Rc::from([0; 10]),
            since: Instant::default(),
            expires_at: expires_at.map(Instant::from_millis),
            holder: Holder::Unassigned,
            is_awaited: false,
        }
    }

    fn serials<'a>(hints: impl IntoIterator<Item = &'a Hint>) -> Vec<u64> {
        hints.into_iter().map(|hint| hint.serial).collect()
    }

    #[test]
    fn what_is_sent_goes_once_in_a_window_and_again_when_the_node_was_out_meanwhile() {
        let mut queue = HintQueue::default();
        (1..=5).for_each(|serial| queue.push(hint(serial, None)));
        assert_eq!(
            serials(queue.take_next(20, 30)),
            [] as [u64; 0],
            "it is down"
        );
        queue.open();
        assert_eq!(serials(queue.take_next(20, 30)), [1, 2]);
        assert_eq!(serials(queue.take_next(20, 30)), [3, 4]);
        assert_eq!(
            serials(queue.take_next(20, 30)),
            [] as [u64; 0],
            "the window"
        );
        assert_eq!(serials(&queue.taken(2)), [1, 2]);
        assert!(queue.has_delivered(2) && !queue.has_delivered(3));
        assert_eq!(serials(queue.take_next(20, 30)), [5]);
        queue.close();
        queue.open();
        assert_eq!(serials(queue.take_next(90, 90)), [3, 4, 5]);
        assert_eq!(serials(&queue.taken(9)), [3, 4, 5]);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn another_node_keeps_each_until_it_is_lost_and_others_are_asked() {
        let mut queue = HintQueue::default();
        (1..=3).for_each(|serial| queue.push(hint(serial, None)));
        for one in queue.unheld(20) {
            one.holder = Holder::Asked(NodeId(7));
        }
        let mut settled = Vec::new();
        queue.answered(NodeId(7), 9, Holder::Held(NodeId(7)), |it| {
            settled.push(it.serial)
        });
        assert_eq!(settled, [1, 2]);
        queue.lose_holder(NodeId(7));
        assert_eq!(queue.unheld(90).len(), 3);
        for one in queue.unheld(90) {
            one.holder = Holder::Alone;
        }
        assert_eq!(queue.unheld(90).len(), 0);
        queue.seek_holders();
        assert_eq!(queue.unheld(90).len(), 3);
    }

    #[test]
    fn what_another_node_answers_for_is_inherited_or_forgotten() {
        let mut queue = HintQueue::default();
        for serial in 1..=4 {
            let holder = Holder::Alone;
            let hint = hint(serial, None);
            queue.keep(NodeId(7), Hint { holder, ..hint });
        }
        assert!(queue.unheld(90).is_empty(), "another node answers for them");
        queue.forget_kept(NodeId(7), 2);
        queue.forget_kept(NodeId(8), 4);
        assert_eq!((queue.len(), queue.iter().count()), (2, 0));
        let mut last = 40;
        queue.inherit(NodeId(7), &mut last);
        assert_eq!((last, serials(queue.iter())), (42, vec![41, 42]));
        assert_eq!(queue.unheld(90).len(), 2, "nobody else has them now");
        assert!(queue.remove(41).is_some() && queue.remove(41).is_none());
        assert_eq!(queue.last(), 42);
    }

    #[test]
    fn what_has_expired_goes_and_gives_its_bytes_back() {
        let mut queue = HintQueue::default();
        for (serial, expires_at) in [(1, Some(10)), (2, None), (3, Some(20))] {
            queue.push(hint(serial, expires_at));
            queue.keep(NodeId(7), hint(serial, expires_at));
        }
        let cost = hint(1, None).cost();
        assert_eq!(serials(&queue.expire(Instant::from_millis(10))), [1]);
        assert_eq!((queue.len(), queue.bytes()), (4, 4 * cost));
        queue.expire(Instant::from_millis(30));
        assert_eq!((queue.len(), queue.bytes()), (2, 2 * cost));
    }
}
