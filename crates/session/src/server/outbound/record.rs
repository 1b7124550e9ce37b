//! The record of what a session has finished while another replica may still hold it.

use super::{Delivery, Outbound, State};
use crate::server::{FinishedMessages, FinishedRange};

#[derive(Debug, Default)]
pub(super) struct Record {
    all: FinishedMessages,
    /// Of these, what its caller has not written to a journal yet.
    unwritten: Vec<FinishedRange>,
}

impl Outbound {
    /// Another replica may exist that does not follow: from now on what is finished is recorded. Returns whether it was not
    /// recorded before.
    pub fn record_finished(&mut self) -> bool {
        let is_new = self.record.is_none();
        self.record.get_or_insert_default();
        is_new
    }

    /// No other replica needs the record. Returns whether there was one.
    pub fn forget_finished(&mut self) -> bool {
        self.record.take().is_some()
    }

    /// What was finished since it is recorded; `None`: nothing is recorded.
    #[must_use]
    pub fn finished(&self) -> Option<&FinishedMessages> {
        self.record.as_deref().map(|record| &record.all)
    }

    /// Whether a message was finished, as far as that was recorded.
    #[must_use]
    pub fn has_finished(&self, delivery: &Delivery) -> bool {
        let is_among = |finished: &FinishedMessages| {
            finished.contains(delivery.message.id(), delivery.group.as_ref())
        };
        self.finished().is_some_and(is_among)
    }

    /// What another replica has finished is finished here too. Whatever of it is held here is the caller's to end.
    pub fn add_finished(&mut self, finished: &FinishedMessages) {
        if !finished.is_empty() {
            self.record.get_or_insert_default().all.extend(finished);
        }
    }

    /// At most so many ranges are kept; see [`FinishedMessages::give_up_beyond`].
    pub fn bound_finished(&mut self, most: usize) -> usize {
        let record = self.record.as_deref_mut();
        record.map_or(0, |record| record.all.give_up_beyond(most))
    }

    /// What was finished since this was called last, for a journal.
    pub fn take_finished(&mut self) -> Vec<FinishedRange> {
        let record = self.record.as_deref_mut();
        record.map_or_else(Vec::new, |record| std::mem::take(&mut record.unwritten))
    }

    /// Whether [`Self::take_finished`] returns anything.
    #[must_use]
    pub fn has_unwritten_finished(&self) -> bool {
        let record = self.record.as_deref();
        record.is_some_and(|record| !record.unwritten.is_empty())
    }

    /// A message is no longer in this state, and is owed to the client no more.
    #[inline]
    pub(super) fn note_left(&mut self, state: &State) {
        if self.record.is_none() {
            return;
        }
        match state {
            State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                self.note_finished(delivery);
            }
            State::Free
            | State::AwaitPuback(None)
            | State::AwaitPubrec(None)
            | State::AwaitPubcomp => {}
        }
    }

    #[inline]
    pub(super) fn note_finished(&mut self, delivery: &Delivery) {
        let Some(record) = &mut self.record else {
            return;
        };
        if delivery.message.id().number > 0 {
            let range = FinishedRange::of(delivery.message.id(), delivery.group.clone());
            record.all.insert(range.clone());
            record.unwritten.push(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use thicket_mqtt::{PacketId, Publish, Qos};

    use super::*;
    use crate::{
        server::{MatchedIdentifiers, Message, MessageId, OutboundLimits, Started},
        time::Instant,
    };

    fn delivery(number: u64, qos: Qos, expires_at: Option<Instant>) -> Delivery {
        let id = MessageId {
            node: 1,
            incarnation: 1,
            stream: 0,
            number,
        };
        Delivery {
            message: Rc::new(Message::new(id, &Publish::new("a", b""), expires_at)),
            qos,
            retain: false,
            identifiers: MatchedIdentifiers::None,
            group: None,
        }
    }

    /// Numbers of what was finished, in order.
    fn numbers(ranges: impl IntoIterator<Item = FinishedRange>) -> Vec<u64> {
        let range = |it: FinishedRange| it.first.number..it.first.number + it.count;
        ranges.into_iter().flat_map(range).collect()
    }

    #[test]
    fn what_leaves_a_session_is_recorded_from_when_that_is_asked_for_until_it_is_forgotten() {
        let limits = OutboundLimits {
            messages: 10,
            bytes: 10_000,
        };
        let now = Instant::from_millis(1_000);
        let mut outbound = Outbound::new(limits, true);
        let queue = [
            (1, Qos::AtLeastOnce, None),
            (2, Qos::AtLeastOnce, None),
            (3, Qos::ExactlyOnce, None),
            (4, Qos::ExactlyOnce, None),
            (5, Qos::AtMostOnce, None),
            (6, Qos::AtLeastOnce, Some(now)),
            (7, Qos::AtLeastOnce, None),
        ];
        for (number, qos, expires_at) in queue {
            let queued = outbound.enqueue(delivery(number, qos, expires_at));
            assert_eq!(queued, Ok(()));
        }
        let mut identifiers = Vec::new();
        for _ in 0..4 {
            if let Some(Started::Publish { packet_id, .. }) = outbound.pull(now, 4) {
                identifiers.extend(packet_id);
            }
        }
        let [one, two, three, four] = identifiers[..] else {
            panic!("the window has four: {identifiers:?}");
        };
        outbound.handle_puback(one);
        assert!(outbound.finished().is_none(), "nobody asked for it");
        assert!(outbound.record_finished() && !outbound.record_finished());
        outbound.handle_puback(two);
        // PUBREC finishes a message, whatever comes after it.
        outbound.handle_pubrec(three, false);
        outbound.handle_pubcomp(three);
        outbound.handle_pubrec(four, true);
        while outbound.pull(now, 4).is_some() {}
        let finished = outbound.finished().map(|all| numbers(all.iter()));
        assert_eq!(finished, Some(vec![2, 3, 4, 5, 6]));
        assert_eq!(numbers(outbound.take_finished()), [2, 3, 4, 5, 6]);
        assert!(!outbound.has_unwritten_finished());
        assert!(outbound.has_finished(&delivery(5, Qos::AtMostOnce, None)));
        assert!(!outbound.has_finished(&delivery(7, Qos::AtLeastOnce, None)));
        assert!(outbound.forget_finished() && outbound.finished().is_none());
        outbound.handle_puback(PacketId::new(5).expect("not zero"));
        assert!(outbound.finished().is_none());
    }
}
