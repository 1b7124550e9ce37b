//! Which messages have reached a session. Messages that arrived at this worker for other sessions, before this one did, do not count.

use std::{collections::BTreeMap, rc::Rc};

use thicket_session::server::{MessageId, MessageStream};

use super::{
    context::Context,
    state::{
        arrivals::Begun,
        records::stream_of,
        sessions::{Session, SessionKey},
    },
};
use crate::{
    Now,
    marks::{Mark, Marks, ReceivedNumbers},
    messages::Origin,
};

impl Context {
    /// A session, or a backup of one, arrived here from elsewhere.
    pub(super) fn note_begun(&mut self, now: Now, key: SessionKey) {
        let own = self.own_stream();
        let last = self.debts.pending.next_number() - 1;
        let is_same = |begun: &&Rc<Begun>| begun.last.get(&own) == Some(&last);
        let begun = self.arrivals.begun.as_ref().filter(is_same).cloned();
        let begun = begun.unwrap_or_else(|| Rc::new(self.received_so_far(now)));
        if let Some(session) = self.sessions.get_mut(key) {
            session.begun = Some(Rc::clone(&begun));
        }
        self.arrivals.begun = Some(begun);
    }

    /// What has reached a session: where it was before, and since it is at this worker. What arrived here before that, for others, is none of it.
    pub(super) fn marks_of_session(&self, session: &Session) -> Marks {
        session.marks_with(&self.marks_of_streams(), &self.arrivals.marks)
    }

    /// Positions that all streams have reached here.
    pub(super) fn marks_of_streams(&self) -> Marks {
        let received = self.arrivals.marks.iter();
        let received = received.map(|(stream, mark)| (*stream, mark.received()));
        let own = ReceivedNumbers::up_to(self.debts.pending.next_number() - 1);
        received.chain([(self.own_stream(), own)]).collect()
    }

    /// The positions of all streams.
    pub(super) fn received_so_far(&self, now: Now) -> Begun {
        let own = (self.own_stream(), self.debts.pending.next_number() - 1);
        let marks = self.arrivals.marks.iter();
        let marks = marks.map(|(stream, mark)| (*stream, mark.highest()));
        Begun {
            at: now.instant,
            last: marks.chain([own]).collect(),
        }
    }
}

impl Session {
    /// See [`Context::marks_of_session`]. `streams`: what reached its worker, by `marks`.
    pub fn marks_with(&self, streams: &Marks, marks: &BTreeMap<MessageStream, Mark>) -> Marks {
        let Some(begun) = &self.begun else {
            return streams.union(&self.marks);
        };
        let since = streams.iter().map(|(stream, received)| {
            let since = match (begun.last.get(stream), marks.get(stream)) {
                (Some(last), Some(mark)) => mark.received_since(begun.at, *last),
                (Some(last), None) => received.after(*last),
                (None, _) => received.clone(),
            };
            (*stream, since)
        });
        since.collect::<Marks>().union(&self.marks)
    }

    /// Whether a message reached the session at the worker with this stream, or where it was before. `streams`: what reached that worker, from other
    /// workers of its node too: nothing comes here that nobody here wants.
    pub fn has_received(
        &self,
        id: MessageId,
        own: MessageStream,
        streams: &BTreeMap<MessageStream, Mark>,
    ) -> bool {
        let mark = streams.get(&id.stream_id());
        let received = |mark: &Mark| mark.has(id.number) || mark.had(id.number);
        let has_received = id.stream_id() == own || mark.is_some_and(received);
        let received_since = |begun: &Rc<Begun>| begun.is_before(id, mark);
        let received_before = self.marks.contain(id);
        let has_received_since = has_received && self.begun.as_ref().is_none_or(received_since);
        id.is_sent() && (received_before || has_received_since)
    }
}

/// A message arrived otherwise than in the stream of its origin.
pub(super) fn note_late(cx: &mut Context, now: Now, origin: Origin, number: u64) {
    let stream = stream_of(origin);
    let new = || Mark::new(now.instant);
    let mark = cx.arrivals.marks.entry(stream).or_insert_with(new);
    mark.note_late(number);
}
