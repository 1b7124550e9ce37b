//! Retained messages as they are stored: one value a topic, also for a topic whose message was removed a while ago.
//!
//! ```text
//! value  version u8 | origin node u64 | incarnation u64 | stream u16 | expires at u64, 0: never | record
//! ```

use thicket_overlay::{Incarnation, NodeId, StreamId, record::Record};

use crate::{Keyspace, Now, StoreOperation, messages::Origin};

/// Version of the format.
pub(in crate::hub) const VERSION: u8 = 1;

/// What must be stored of this round.
#[derive(Debug)]
pub(in crate::hub) struct RetainedStore {
    pub is_on: bool,
    pub is_paused: bool,
    pub operations: Vec<StoreOperation>,
    /// Free capacity, bytes.
    pub space: u64,
}

/// A retained message, or a removal if its payload is empty.
#[derive(Debug)]
pub(in crate::hub) struct StoredRetained<'a> {
    pub origin: Origin,
    pub expires_at_ms: Option<u64>,
    pub record: Record<'a>,
}

impl RetainedStore {
    pub const fn new(is_on: bool) -> Self {
        Self {
            is_on,
            is_paused: false,
            operations: Vec::new(),
            space: u64::MAX,
        }
    }

    /// What is kept from here on was stored before. What is forgotten meanwhile is removed nevertheless.
    pub const fn pause(&mut self) {
        self.is_paused = true;
    }

    pub const fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Whether what is kept was stored before.
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether another message is over the limit.
    pub const fn is_full_for(&self, bytes: usize) -> bool {
        self.is_on && self.space < bytes as u64 + 1024
    }

    pub fn put(&mut self, now: Now, origin: Origin, record: &Record<'_>) {
        if !self.is_on || self.is_paused {
            return;
        }
        let wall = now.wall.as_unix_millis();
        let expires_at = record.expiry_left_ms.map_or(0, |left| wall + left.max(1));
        let mut value = vec![VERSION];
        value.extend_from_slice(&origin.node.0.to_le_bytes());
        value.extend_from_slice(&origin.incarnation.0.to_le_bytes());
        value.extend_from_slice(&origin.stream.0.to_le_bytes());
        value.extend_from_slice(&expires_at.to_le_bytes());
        record.encode(&mut value);
        self.change(record.topic, Some(value));
    }

    pub fn remove(&mut self, topic: &str) {
        if self.is_on {
            self.change(topic, None);
        }
    }

    /// Another value of the hub.
    pub fn keep(&mut self, keyspace: Keyspace, key: Vec<u8>, value: Vec<u8>) {
        if self.is_on {
            self.operations.push(StoreOperation {
                keyspace,
                key,
                value: Some(value),
            });
        }
    }

    #[cfg(test)]
    pub fn take_operations(&mut self) -> Vec<StoreOperation> {
        std::mem::take(&mut self.operations)
    }

    pub fn change(&mut self, topic: &str, value: Option<Vec<u8>>) {
        self.operations.push(StoreOperation {
            keyspace: Keyspace::Retained,
            key: topic.as_bytes().to_vec(),
            value,
        });
    }
}

impl<'a> StoredRetained<'a> {
    pub fn decode(value: &'a [u8]) -> Result<Self, String> {
        let (version, rest) = value.split_first().ok_or("it is empty")?;
        if *version != VERSION {
            return Err(format!("version {version} is not known"));
        }
        let (head, rest) = rest.split_first_chunk::<26>().ok_or("it ends early")?;
        let number = |at: usize| {
            let (bytes, _) = head[at..].split_first_chunk().expect("within the head");
            u64::from_le_bytes(*bytes)
        };
        let (record, _) = Record::decode(rest).map_err(|error| error.to_string())?;
        let expires_at = number(18);
        Ok(Self {
            origin: Origin {
                node: NodeId(number(0)),
                incarnation: Incarnation(number(8)),
                stream: StreamId(u16::from_le_bytes([head[16], head[17]])),
            },
            expires_at_ms: (expires_at > 0).then_some(expires_at),
            record,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_session::time::{Instant, WallClock};

    #[test]
    fn a_stored_message_is_read_as_it_was_written_and_cut_bytes_are_refused() {
        let now = Now {
            instant: Instant::from_millis(5),
            wall: WallClock::from_unix_millis(1000),
        };
        let origin = Origin {
            node: NodeId(7),
            incarnation: Incarnation(8),
            stream: StreamId(9),
        };
        let record = Record {
            topic: "a/b",
            payload: b"x",
            expiry_left_ms: Some(500),
            ..Record::default()
        };
        let mut store = RetainedStore::new(true);
        store.put(now, origin, &record);
        let value = store.operations[0].value.as_deref().expect("put");
        let read = StoredRetained::decode(value).expect("just written");
        assert_eq!((read.origin, read.expires_at_ms), (origin, Some(1500)));
        assert_eq!((read.record.topic, read.record.payload), ("a/b", &b"x"[..]));
        for len in 0..value.len() {
            assert!(StoredRetained::decode(&value[..len]).is_err(), "{len}");
        }
    }
}
