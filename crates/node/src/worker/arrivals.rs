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
    marks::{Came, Mark, Marks},
    messages::Origin,
};

impl Context {
    /// A session, or a backup of one, arrived here from elsewhere.
    pub(super) fn note_begun(&mut self, now: Now, key: SessionKey) {
        let own = self.own_stream();
        let last = self.debts.pending.next_number() - 1;
        let is_same = |begun: &&Rc<Begun>| begun.last.get(&own) == Some(&last);
        let begun = self.arrivals.begun.as_ref().filter(is_same).cloned();
        let begun = begun.unwrap_or_else(|| Rc::new(self.come_by_now(now)));
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
        let came = self.arrivals.marks.iter();
        let came = came.map(|(stream, mark)| (*stream, mark.came()));
        let own = Came::up_to(self.debts.pending.next_number() - 1);
        came.chain([(self.own_stream(), own)]).collect()
    }

    /// The positions of all streams.
    pub(super) fn come_by_now(&self, now: Now) -> Begun {
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
        let since = streams.iter().map(|(stream, came)| {
            let is_up_since = |mark: &Mark| mark.up_since() >= begun.at;
            let came = match begun.last.get(stream) {
                Some(last) if !marks.get(stream).is_some_and(is_up_since) => came.after(*last),
                Some(_) | None => came.clone(),
            };
            (*stream, came)
        });
        since.collect::<Marks>().union(&self.marks)
    }

    /// Whether a message reached the session at the worker with this stream, or where it was before. `streams`: what reached that worker, from other
    /// workers of its node too: nothing comes here that nobody here wants.
    pub fn has_come(
        &self,
        id: MessageId,
        own: MessageStream,
        streams: &BTreeMap<MessageStream, Mark>,
    ) -> bool {
        let mark = streams.get(&id.stream_id());
        let came = |mark: &Mark| mark.has(id.number) || mark.had(id.number);
        let has_come = id.stream_id() == own || mark.is_some_and(came);
        let came_since = |begun: &Rc<Begun>| begun.is_before(id, mark);
        let came_before = self.marks.contain(id);
        let has_come_since = has_come && self.begun.as_ref().is_none_or(came_since);
        id.is_sent() && (came_before || has_come_since)
    }
}

/// A message arrived otherwise than in the stream of its origin.
pub(super) fn note_late(cx: &mut Context, now: Now, origin: Origin, number: u64) {
    let stream = stream_of(origin);
    let new = || Mark::new(now.instant);
    let mark = cx.arrivals.marks.entry(stream).or_insert_with(new);
    mark.note_late(number);
}
