//! Messages that arrived at a backup and that its primary has not named.

use std::{collections::VecDeque, rc::Rc};

use thicket_session::{
    server::{Delivery, Message, MessageId},
    time::Instant,
};

use super::backup::ADOPTION_TIMEOUT;

/// A message that arrived.
#[derive(Debug)]
pub(in crate::worker) struct Pending {
    /// Its number in the order of arrival.
    pub arrival: u64,
    pub since: Instant,
    pub delivery: Delivery,
    /// The message's number: to find it without a look at the message.
    number: u64,
    /// A QoS 2 publication that this worker received before, though perhaps not for this session.
    pub is_seen: bool,
    /// When the backup sends it to the primary, which it may not have reached.
    pub send_at: Instant,
}

impl Pending {
    #[inline(always)]
    pub fn new(arrival: u64, since: Instant, delivery: Delivery, is_seen: bool) -> Self {
        Self {
            arrival,
            since,
            number: delivery.message.id().number,
            delivery,
            is_seen,
            send_at: since + ADOPTION_TIMEOUT,
        }
    }
}

/// All of them. The primary names the messages of one origin in the order of their numbers, but may interleave origins in another order than the
/// messages arrived here: so each origin has a queue of its own.
#[derive(Debug, Default)]
pub(in crate::worker) struct Pendings {
    queues: Vec<Queue>,
    len: usize,
    bytes: u64,
}

/// Messages of one origin, ascending by number.
#[derive(Debug)]
struct Queue {
    /// An identity of one of them, without the number.
    origin: MessageId,
    messages: VecDeque<Pending>,
}

/// What all messages of an origin have in common.
const fn origin_of(id: MessageId) -> MessageId {
    MessageId { number: 0, ..id }
}

impl Pendings {
    fn find(&self, origin: MessageId) -> Option<usize> {
        self.queues.iter().position(|queue| queue.origin == origin)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// What they take, in bytes, as a queue counts it.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of them, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        let queues = self.queues.iter_mut();
        queues.flat_map(|queue| &mut queue.messages)
    }

    /// A message arrived. Its arrival is above those of all that are here.
    #[inline(always)]
    pub fn push(&mut self, pending: Pending) {
        self.len += 1;
        self.bytes += pending.delivery.message.cost();
        let messages = self.queue_of(pending.delivery.message.id());
        let is_last = messages
            .back()
            .is_none_or(|last| last.number <= pending.number);
        if is_last {
            messages.push_back(pending);
        } else {
            let at = messages.partition_point(|other| other.number <= pending.number);
            messages.insert(at, pending);
        }
    }

    fn queue_of(&mut self, id: MessageId) -> &mut VecDeque<Pending> {
        let index = self.find(origin_of(id)).unwrap_or_else(|| {
            self.queues.push(Queue {
                origin: origin_of(id),
                messages: VecDeque::new(),
            });
            self.queues.len() - 1
        });
        &mut self.queues[index].messages
    }

    /// Whether a message is here.
    pub fn has(&self, id: MessageId) -> bool {
        let messages = self.find(origin_of(id)).map(|at| &self.queues[at].messages);
        messages.is_some_and(|all| {
            let at = all.partition_point(|other| other.number < id.number);
            all.get(at).is_some_and(|found| found.number == id.number)
        })
    }

    /// Removes a message that the primary's stream has reached.
    #[inline]
    pub fn take(&mut self, id: MessageId) -> Option<Rc<Message>> {
        let index = self.find(origin_of(id))?;
        let messages = &mut self.queues[index].messages;
        let at = match messages.front() {
            Some(first) if first.number == id.number => 0,
            Some(_) | None => messages.partition_point(|other| other.number < id.number),
        };
        let is_found = messages
            .get(at)
            .is_some_and(|found| found.number == id.number);
        let taken = match at {
            _ if !is_found => None,
            0 => messages.pop_front().map(|it| it.delivery.message),
            at => messages.remove(at).map(|it| it.delivery.message),
        };
        if messages.is_empty() && self.queues.len() > ORIGINS {
            self.queues.swap_remove(index);
        }
        if let Some(message) = &taken {
            self.len -= 1;
            self.bytes -= message.cost();
        }
        taken
    }

    /// Keeps only those for which `is_kept` is true.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Pending) -> bool) {
        let (mut len, mut bytes) = (0, 0);
        for queue in &mut self.queues {
            queue.messages.retain(|pending| {
                let is_kept = is_kept(pending);
                if is_kept {
                    len += 1;
                    bytes += pending.delivery.message.cost();
                }
                is_kept
            });
        }
        (self.len, self.bytes) = (len, bytes);
        self.queues.retain(|queue| !queue.messages.is_empty());
    }
}

/// Queues that are kept when they are empty: those of the origins that continue to send.
const ORIGINS: usize = 8;

impl IntoIterator for Pendings {
    type Item = Pending;
    type IntoIter = std::vec::IntoIter<Pending>;

    /// In the order of arrival.
    fn into_iter(self) -> Self::IntoIter {
        let queues = self.queues.into_iter();
        let mut all: Vec<_> = queues.flat_map(|queue| queue.messages).collect();
        all.sort_by_key(|pending| pending.arrival);
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use thicket_mqtt::{Publish, Qos};
    use thicket_session::server::MatchedIdentifiers;

    use super::*;

    fn id((stream, number): (u8, u64)) -> MessageId {
        MessageId {
            node: 7,
            incarnation: 1,
            stream,
            number,
        }
    }

    fn pendings(came: &[(u8, u64)]) -> Pendings {
        let mut pendings = Pendings::default();
        for (arrival, which) in (1..).zip(came) {
            let publish = Publish::new("a", b"");
            let delivery = Delivery {
                message: Rc::new(Message::new(id(*which), &publish, None)),
                qos: Qos::AtLeastOnce,
                retain: false,
                identifiers: MatchedIdentifiers::None,
                group: None,
            };
            pendings.push(Pending::new(arrival, Instant::default(), delivery, false));
        }
        pendings
    }

    fn left(pendings: Pendings) -> Vec<(u8, u64)> {
        let of = |pending: &Pending| {
            let id = pending.delivery.message.id();
            (id.stream, id.number)
        };
        let all: Vec<_> = pendings.into_iter().collect();
        all.iter().map(of).collect()
    }

    #[test]
    fn what_the_primary_comes_to_is_taken_and_the_rest_stays_in_the_order_it_came() {
        let came = [(0, 5), (1, 2), (0, 6), (0, 3), (1, 9), (2, 1)];
        for (name, taken, expected) in [
            ("nothing", &[][..], &came[..]),
            (
                "in the order of each origin",
                &[(1, 2), (0, 3), (0, 5), (1, 9)],
                &[(0, 6), (2, 1)],
            ),
            (
                "in any order",
                &[(1, 9), (0, 6), (0, 5)],
                &[(1, 2), (0, 3), (2, 1)],
            ),
            ("all", &came, &[]),
        ] {
            let mut pendings = pendings(&came);
            for which in taken {
                let found = pendings.take(id(*which)).map(|message| message.id());
                assert_eq!(found, Some(id(*which)), "{name}");
                assert!(pendings.take(id(*which)).is_none(), "{name}, twice");
            }
            assert_eq!(left(pendings), expected, "{name}");
        }
    }

    #[test]
    fn what_never_came_is_not_found_and_what_is_not_kept_is_gone() {
        let mut pendings = pendings(&[(0, 5), (1, 2), (0, 6)]);
        for which in [(0, 4), (0, 7), (1, 5), (3, 5)] {
            assert!(pendings.take(id(which)).is_none(), "{which:?}");
        }
        let bytes = pendings.bytes();
        assert!(pendings.len() == 3 && bytes > 0, "{pendings:?}");
        pendings.retain(|pending| pending.arrival > 1);
        assert_eq!((pendings.len(), pendings.bytes()), (2, bytes / 3 * 2));
        assert_eq!(left(pendings), [(1, 2), (0, 6)]);
    }
}
