//! Which messages have reached a session at this worker: those that arrived for others here before the session did are none of them.

use std::{collections::BTreeMap, rc::Rc};

use thicket_session::{
    server::{MessageId, MessageStream},
    time::Instant,
};

use super::{
    SessionKey, context::Context, deliver::Outgoing, replication::Unblocked,
    retained::LastRetained, seen::Seen, sessions::Session,
};
use crate::{
    Now,
    marks::{Came, Mark, Marks},
};

/// What has arrived at this worker.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Positions that the streams of others have reached here.
    pub marks: BTreeMap<MessageStream, Mark>,
    /// The same for all sessions that arrive before the next message does.
    pub begun: Option<Rc<Begun>>,
    /// QoS 2 publications of persistent publishers.
    pub seen: Seen,
    pub last_retained: LastRetained,
    /// Positions of the streams of primaries that waited for a message.
    pub unblocked: Vec<Unblocked>,
}

impl Arrivals {
    /// A message arrived. Returns whether it is a publication that arrived before.
    pub fn note(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let named = outgoing.named();
        named.is_some_and(|named| !self.seen.insert(named))
    }
}

/// The positions of all streams when a session, or its backup, arrived at this worker.
#[derive(Debug)]
pub(super) struct Begun {
    at: Instant,
    /// This worker's own stream included.
    last: BTreeMap<MessageStream, u64>,
}

impl Begun {
    /// Whether a message that arrived at the worker came later.
    pub fn is_before(&self, id: MessageId, mark: Option<&Mark>) -> bool {
        let last = self.last.get(&id.stream_id()).copied().unwrap_or(0);
        // What a mark contains arrived since its node is up, but for what it lists as from before.
        let is_up_since = |mark: &Mark| {
            mark.up_since() >= self.at && (mark.has(id.number) || !mark.had(id.number))
        };
        id.number > last || mark.is_some_and(is_up_since)
    }
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_others_had_kept_came_before_a_session_that_begins_after_it() {
        let id = |number| MessageId {
            node: 1,
            incarnation: 1,
            stream: 0,
            number,
        };
        let start = Instant::from_millis(0);
        let mut mark = Mark::new(start);
        mark.note(start, 12);
        mark.note_late(42);
        let at = start + Duration::from_secs(1);
        let begun = Begun {
            at,
            last: BTreeMap::from([(id(0).stream_id(), mark.highest())]),
        };
        mark.note(at, 43);
        for (number, is_later) in [(12, false), (42, false), (43, true)] {
            assert_eq!(
                begun.is_before(id(number), Some(&mark)),
                is_later,
                "{number}"
            );
        }
        // The node was down meanwhile: what it has sent since then came later, whatever its number.
        mark.restart(at + Duration::from_secs(1));
        mark.note(at + Duration::from_secs(2), 41);
        for (number, is_later) in [(12, false), (41, true), (42, false)] {
            assert_eq!(
                begun.is_before(id(number), Some(&mark)),
                is_later,
                "{number}"
            );
        }
    }
}
