//! Messages as records, and records as messages.

use std::time::Duration;

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::record::{PublicationId, Record};
use thicket_session::{
    server::{MessageId, MessageStream, seconds_left},
    time::Instant,
};

use crate::{Now, messages::Origin};

/// The identity of a message.
#[inline]
pub(in crate::worker) const fn message_id(origin: Origin, number: u64) -> MessageId {
    MessageId {
        node: origin.node.0,
        incarnation: origin.incarnation.0,
        stream: origin.stream.0 as u8,
        number,
    }
}

/// The record of a message.
#[inline]
pub(in crate::worker) fn record_of<'a>(
    publish: &Publish<'a>,
    number: u64,
    qos: Qos,
    publication: Option<&PublicationId>,
) -> Record<'a> {
    Record {
        number,
        qos,
        retain: publish.retain,
        expiry_left_ms: publish
            .message_expiry_interval
            .map(|seconds| u64::from(seconds) * 1000),
        publication: publication.copied(),
        topic: publish.topic,
        properties: publish.properties,
        payload: publish.payload,
        ..Record::default()
    }
}

/// The message of a record, and when it expires.
#[inline]
pub(in crate::worker) fn publish_of<'a>(
    record: &Record<'a>,
    now: Now,
) -> (Publish<'a>, Option<Instant>) {
    let expires_at = record
        .expiry_left_ms
        .map(|ms| now.instant + Duration::from_millis(ms));
    let publish = Publish {
        qos: record.qos,
        retain: record.retain,
        message_expiry_interval: expires_at.map(|at| seconds_left(at, now.instant)),
        properties: record.properties,
        ..Publish::new(record.topic, record.payload)
    };
    (publish, expires_at)
}

/// The stream of messages with an origin.
#[inline]
pub(in crate::worker) const fn stream_of(origin: Origin) -> MessageStream {
    MessageStream {
        node: origin.node.0,
        incarnation: origin.incarnation.0,
        stream: origin.stream.0 as u8,
    }
}
