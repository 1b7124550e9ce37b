//! Retained messages that a connection is still to get, and which messages to be retained sessions got last: so that none comes twice, and none
//! before an older one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thicket_mqtt::Publish;
use thicket_overlay::record::PublicationId;
use thicket_session::{retained::RetainedCursor, server::MessageId, topic::SubscriptionFilter};

use crate::Remembered;

/// The subscriptions whose retained messages a connection gets, one after the other. How far each of them has come is in the session, which outlives
/// this.
#[derive(Debug, Default)]
pub(in crate::worker) struct ReplayLine {
    /// Some of them may have ended meanwhile.
    pub turns: VecDeque<ReplayTurn>,
    /// The number of the page that is on its way to the first of them.
    pub page: Option<u64>,
    /// Where its next page begins; `None`: where the session says.
    pub next: Option<RetainedCursor>,
    /// The client's window was full: the next page waits for half of it, and is not one for each acknowledgement.
    pub was_full: bool,
}

#[derive(Debug, Clone)]
pub(in crate::worker) struct ReplayTurn {
    pub filter: SubscriptionFilter,
    /// Its client was away after it had begun: what was published at QoS 0 meanwhile did not come.
    pub is_resumed: bool,
}

impl ReplayLine {
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The page that is on its way does not count, and the next one begins where the session says.
    pub fn void_page(&mut self) {
        self.page = None;
        self.next = None;
    }
}

/// Topics remembered of one session while it gets retained messages; twice as many at most.
const OVERTAKEN_TOPICS: usize = 2048;

/// Their bytes; twice as many at most, and one topic.
const OVERTAKEN_BYTES: usize = 512 * 1024;

/// Topics on which a message to be retained reached a session that is still to get retained messages: it would get the message twice, or an older one
/// behind it. What another worker publishes may come here before the hub has kept it. The last ones are remembered.
#[derive(Debug, Default)]
pub(in crate::worker) struct Overtaken(Option<Topics>);

#[derive(Debug, Default)]
struct Topics {
    recent: BTreeSet<Box<str>>,
    older: BTreeSet<Box<str>>,
    /// Of the recent ones.
    bytes: usize,
    /// How often the recent ones became the older ones since a page was requested.
    turns: u32,
}

impl Topics {
    fn has(&self, topic: &str) -> bool {
        self.recent.contains(topic) || self.older.contains(topic)
    }
}

impl Overtaken {
    /// What comes from now on is noted.
    pub fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    pub fn end(&mut self) {
        self.0 = None;
    }

    /// What came until now does not count.
    pub fn clear(&mut self) {
        if self.0.is_some() {
            self.0 = Some(Topics::default());
        }
    }

    pub fn begin_page(&mut self) {
        if let Some(known) = &mut self.0 {
            known.turns = 0;
        }
    }

    /// Whether some that came since a page was requested are forgotten: the page may have an older message of one of them.
    pub fn is_partial(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.turns > 1)
    }

    pub fn note(&mut self, topic: &str) {
        let Some(known) = self.0.as_mut().filter(|it| !it.has(topic)) else {
            return;
        };
        if known.recent.len() >= OVERTAKEN_TOPICS || known.bytes >= OVERTAKEN_BYTES {
            known.older = std::mem::take(&mut known.recent);
            known.bytes = 0;
            known.turns += 1;
        }
        known.bytes += topic.len();
        known.recent.insert(topic.into());
    }

    pub fn has(&self, topic: &str) -> bool {
        self.0.as_ref().is_some_and(|known| known.has(topic))
    }
}

/// Topics of which the last message is remembered; twice as many at most.
const LAST_TOPICS: usize = 5_000;

/// Their bytes; twice as many at most, and one topic.
const LAST_TOPIC_BYTES: usize = 1024 * 1024;

/// The last message to be retained that sessions of this worker got, of the topics that were written last.
#[derive(Debug, Default)]
pub(in crate::worker) struct LastRetained {
    recent: BTreeMap<Box<str>, LastMessage>,
    older: BTreeMap<Box<str>, LastMessage>,
    /// Of the topics of each.
    recent_bytes: usize,
    older_bytes: usize,
}

/// What distinguishes a message from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum LastMessage {
    /// The number of a removal is not kept.
    Removal,
    Message {
        id: MessageId,
        /// The same whichever node receives it again.
        publication: Option<PublicationId>,
    },
}

impl LastMessage {
    pub const fn of(
        publish: &Publish<'_>,
        id: MessageId,
        publication: Option<PublicationId>,
    ) -> Self {
        if publish.payload.is_empty() {
            Self::Removal
        } else {
            Self::Message { id, publication }
        }
    }

    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Message { publication, .. },
                Self::Message {
                    publication: of, ..
                },
            ) if publication.is_some() => publication == of,
            _ => self == other,
        }
    }
}

impl LastRetained {
    pub fn note(
        &mut self,
        publish: &Publish<'_>,
        id: MessageId,
        publication: Option<&PublicationId>,
    ) {
        let last = LastMessage::of(publish, id, publication.copied());
        if let Some(known) = self.recent.get_mut(publish.topic) {
            *known = last;
            return;
        }
        if self.recent.len() >= LAST_TOPICS || self.recent_bytes >= LAST_TOPIC_BYTES {
            self.older = std::mem::take(&mut self.recent);
            self.older_bytes = std::mem::take(&mut self.recent_bytes);
        }
        self.recent_bytes += publish.topic.len();
        self.recent.insert(publish.topic.into(), last);
    }

    /// The topics whose last message is remembered.
    pub fn remembered(&self) -> Remembered {
        let topics = self.recent.len() + self.older.len();
        let entries = topics * size_of::<(Box<str>, LastMessage)>();
        Remembered::new("last messages to be retained", topics, 2 * LAST_TOPICS)
            .with_bytes(self.recent_bytes + self.older_bytes + entries)
    }

    /// Whether sessions here got another message of the topic last, as far as that is remembered.
    pub fn is_older_than_last(&self, topic: &str, message: LastMessage) -> bool {
        let recent = self.recent.get(topic);
        let last = recent.or_else(|| self.older.get(topic));
        last.is_some_and(|last| !last.is_same(message))
    }
}
