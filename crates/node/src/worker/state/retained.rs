//! Which messages to be retained sessions got last: so that none comes twice, and none before an older one.

use std::collections::{BTreeMap, BTreeSet};

use thicket_mqtt::Publish;
use thicket_overlay::record::PublicationId;
use thicket_session::server::MessageId;

use crate::Remembered;

/// Topics remembered of one session while it subscribes.
const OVERTAKEN_TOPICS: usize = 4096;

/// Topics on which a message to be retained reached a session between its SUBSCRIBE and the retained messages for it. The hub may have kept the
/// message before it was asked for the position of the retained messages: the session would get it twice, or an older one behind it.
#[derive(Debug, Default)]
pub(in crate::worker) struct Overtaken(Option<BTreeSet<Box<str>>>);

impl Overtaken {
    /// A SUBSCRIBE arrived. What came before it does not count, unless another one still waits for its retained messages.
    pub fn begin(&mut self, is_first: bool) {
        if is_first {
            self.0 = None;
        }
        self.0.get_or_insert_default();
    }

    pub fn end(&mut self) {
        self.0 = None;
    }

    pub fn note(&mut self, topic: &str) {
        if let Some(topics) = self.0.as_mut().filter(|it| it.len() < OVERTAKEN_TOPICS) {
            topics.insert(topic.into());
        }
    }

    pub fn has(&self, topic: &str) -> bool {
        self.0.as_ref().is_some_and(|topics| topics.contains(topic))
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
