//! A message on its way to its recipients, and the packets that it becomes.

use std::{rc::Rc, sync::Arc};

use thicket_mqtt::{PacketId, Publish, Qos};
use thicket_overlay::record::PublicationId;
use thicket_session::{
    server::{MatchedIdentifiers, Message, MessageId},
    time::Instant,
};

use super::{seen::Named, session_key::SessionKey};

/// A message that was published before, without the flag Retain.
pub(in crate::worker) fn publish_again(message: &Message, now: Instant) -> Publish<'_> {
    Publish {
        retain: false,
        message_expiry_interval: message.expiry_left(now),
        ..message.publish()
    }
}

/// A message on its way to recipients.
#[derive(Debug)]
pub(in crate::worker) struct Outgoing<'a> {
    pub publish: &'a Publish<'a>,
    pub id: MessageId,
    pub expires_at: Option<Instant>,
    /// The shared subscription it goes to a member of.
    pub group: Option<Arc<str>>,
    /// Made when the first recipient has to keep it.
    pub message: Option<Rc<Message>>,
    /// For QoS 2 of a persistent publisher.
    publication: Option<&'a PublicationId>,
    /// Of that publication.
    checksum: u16,
    /// It arrived before, so only sessions that did not accept it then accept it now.
    pub is_seen: bool,
    /// Nodes with backups of the sessions that get it do not receive it by themselves.
    pub bypasses_backups: bool,
    /// It is in the record of this round.
    pub is_journaled: bool,
    /// The streams whose record of this round has it whole, a bit each.
    pub copied: u64,
    /// Those of them that must have applied it before the message is acknowledged.
    pub waits_for: u64,
    /// Sessions that accepted it and are not replicated to another node yet: rarely any.
    pub unreplicated: Option<Box<Unreplicated>>,
}

/// Sessions, with their serials, that no other node has been sent yet.
#[derive(Debug, Default)]
pub(in crate::worker) struct Unreplicated {
    pub sessions: Vec<(SessionKey, u64)>,
}

impl<'a> Outgoing<'a> {
    #[inline]
    pub fn new(publish: &'a Publish<'a>, expires_at: Option<Instant>) -> Self {
        Self {
            publish,
            id: MessageId::default(),
            expires_at,
            group: None,
            message: None,
            publication: None,
            checksum: 0,
            is_seen: false,
            bypasses_backups: false,
            is_journaled: false,
            copied: 0,
            waits_for: 0,
            unreplicated: None,
        }
    }

    /// `id`: if it is a publication that may be sent again.
    #[inline]
    pub fn set_publication(&mut self, id: Option<&'a PublicationId>) {
        self.publication = id;
        let (topic, payload) = (self.publish.topic, self.publish.payload);
        self.checksum = id.map_or(0, |id| Named::new(*id, topic, payload).checksum);
    }

    /// The publication that it is, if it may be sent again.
    #[inline]
    pub fn named(&self) -> Option<Named> {
        let (id, checksum) = (*self.publication?, self.checksum);
        Some(Named { id, checksum })
    }

    /// The same by its identity alone.
    #[inline]
    pub const fn publication(&self) -> Option<&'a PublicationId> {
        self.publication
    }

    /// The shared subscription it goes to a member of.
    pub fn group(&self) -> Option<Arc<str>> {
        self.group.clone()
    }

    /// The message as it is kept.
    pub fn message(&mut self) -> Rc<Message> {
        let publication = self
            .publication
            .map(|id| (id.session, id.packet_id, id.generation));
        // Most have none, and a message is large enough that moving it once more shows.
        let make = || match publication {
            None => Rc::new(Message::new(self.id, self.publish, self.expires_at)),
            Some(_) => {
                let message = Message::new(self.id, self.publish, self.expires_at);
                Rc::new(message.with_publication(publication))
            }
        };
        Rc::clone(self.message.get_or_insert_with(make))
    }
}

/// How one recipient gets a message.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Form<'a> {
    pub qos: Qos,
    pub retain: bool,
    pub dup: bool,
    pub packet_id: Option<PacketId>,
    pub identifiers: &'a MatchedIdentifiers,
}

/// The current message as encoded for each kind of recipient so far.
#[derive(Debug, Default)]
pub(in crate::worker) struct Scratch {
    pub bytes: Vec<u8>,
    /// By version, QoS and RETAIN.
    pub variants: [Option<Variant>; 12],
    pub is_shared: bool,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Variant {
    pub start: usize,
    pub end: usize,
    /// Of the packet identifier, from `start`.
    pub packet_id_at: usize,
}

impl Scratch {
    /// Begins another message; with a single recipient nothing is kept.
    #[inline]
    pub fn begin(&mut self, recipients: usize) {
        self.is_shared = recipients > 1;
        if self.is_shared {
            self.bytes.clear();
            self.variants = [None; 12];
        }
    }
}
