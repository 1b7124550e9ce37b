//! What arrived, and up to where, of the streams of messages.

use std::{collections::BTreeMap, rc::Rc};

use thicket_session::{
    server::{MessageId, MessageStream},
    time::Instant,
};

use super::{
    outgoing::Outgoing, replica::backup::StreamPosition, retained::LastRetained, seen::Seen,
};
use crate::marks::Mark;

/// What has arrived at this worker.
#[derive(Debug, Default)]
pub(in crate::worker) struct Arrivals {
    /// Positions that the streams of others have reached here.
    pub marks: BTreeMap<MessageStream, Mark>,
    /// The same for all sessions that arrive before the next message does.
    pub begun: Option<Rc<Begun>>,
    /// QoS 2 publications of persistent publishers.
    pub seen: Seen,
    pub last_retained: LastRetained,
    /// Positions of the streams of primaries that waited for a message.
    pub unblocked: Vec<StreamPosition>,
}

impl Arrivals {
    /// A message arrived. Returns whether it is a publication that arrived before.
    #[inline]
    pub fn note(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let named = outgoing.named();
        named.is_some_and(|named| !self.seen.insert(named))
    }
}

/// The positions of all streams when a session, or its backup, arrived at this worker.
#[derive(Debug)]
pub(in crate::worker) struct Begun {
    pub at: Instant,
    /// This worker's own stream included.
    pub last: BTreeMap<MessageStream, u64>,
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
