//! The queue of a session on its way to another node, with how far its streams had come where it leaves, and the publications it
//! took there last.
//!
//! Everything that matched the session up to those numbers has come there and stands in the queue, is in flight, or was delivered:
//! whatever of it comes to the new node as well, because others there want it too, is no message for this session any more.

use std::collections::BTreeMap;

use thicket_session::{
    server::{Delivery, MessageId, SEEN_WORDS, decode_queue, encode_queue},
    time::Instant,
};

use crate::worker::Generations;

/// The last number of each stream: node, incarnation, worker.
pub(crate) type Marks = BTreeMap<(u64, u64, u8), u64>;

/// What came of a stream since its node is up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// The first number; `u64::MAX`: the node is out, or nothing came since it is up again.
    pub first: u64,
    /// The last number, whether the node was out meanwhile or not.
    pub last: u64,
}

impl Default for Mark {
    fn default() -> Self {
        Self {
            first: u64::MAX,
            last: 0,
        }
    }
}

impl Mark {
    /// A message came.
    pub fn note(&mut self, number: u64) {
        if self.first == u64::MAX {
            self.first = number;
        }
        self.last = self.last.max(number);
    }

    /// Whether a message that was sent here too has come, or is about to.
    pub const fn has(self, number: u64) -> bool {
        number >= self.first
    }
}

/// Bytes of one mark.
const MARK_BYTES: usize = 25;
/// Bytes of what was taken of one publisher.
const PUBLISHER_BYTES: usize = 20 + 16 * SEEN_WORDS;

/// The stream of a message.
pub(crate) const fn stream_of(id: MessageId) -> (u64, u64, u8) {
    (id.node, id.incarnation, id.stream)
}

/// Marks, publications and queue as bytes.
pub(crate) fn encode<'a>(
    marks: &Marks,
    taken: impl IntoIterator<Item = (u128, &'a Generations)>,
    queue: impl IntoIterator<Item = &'a Delivery>,
    now: Instant,
) -> Vec<u8> {
    let mut bytes = (marks.len() as u32).to_le_bytes().to_vec();
    for ((node, incarnation, stream), number) in marks {
        bytes.extend_from_slice(&node.to_le_bytes());
        bytes.extend_from_slice(&incarnation.to_le_bytes());
        bytes.push(*stream);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for (uid, taken) in taken {
        bytes.extend_from_slice(&uid.to_le_bytes());
        bytes.extend_from_slice(&taken.highest.to_le_bytes());
        for word in taken.bits {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        count += 1;
    }
    bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&encode_queue(queue, now));
    bytes
}

/// No marks, no queue: of a session that cannot be asked any more.
pub(crate) fn empty() -> Vec<u8> {
    encode(&Marks::new(), [], [], Instant::default())
}

/// What `encode` wrote.
#[derive(Debug, PartialEq)]
pub(crate) struct Moved {
    pub marks: Marks,
    /// By publisher.
    pub taken: Vec<(u128, Generations)>,
    pub queue: Vec<Delivery>,
}

/// What `encode` wrote; `None` if it is something else.
pub(crate) fn decode(bytes: &[u8], now: Instant) -> Option<Moved> {
    let (marks, rest) = items::<MARK_BYTES>(bytes)?;
    let (taken, queue) = items::<PUBLISHER_BYTES>(rest)?;
    let mark = |bytes: &[u8; MARK_BYTES]| {
        let number = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        Some(((number(0)?, number(8)?, bytes[16]), number(17)?))
    };
    let publisher = |bytes: &[u8; PUBLISHER_BYTES]| {
        let (words, _) = bytes[20..].as_chunks();
        let mut bits = [0; SEEN_WORDS];
        for (bits, word) in bits.iter_mut().zip(words) {
            *bits = u128::from_le_bytes(*word);
        }
        let highest = u32::from_le_bytes(*bytes[16..].first_chunk()?);
        let uid = u128::from_le_bytes(*bytes.first_chunk()?);
        Some((uid, Generations { highest, bits }))
    };
    Some(Moved {
        marks: marks.iter().map(mark).collect::<Option<Marks>>()?,
        taken: taken.iter().map(publisher).collect::<Option<Vec<_>>>()?,
        queue: decode_queue(queue, now).ok()?,
    })
}

/// Items of `N` bytes behind their count, and the rest.
fn items<const N: usize>(bytes: &[u8]) -> Option<(&[[u8; N]], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let len = (u32::from_le_bytes(*count) as usize).checked_mul(N)?;
    let (items, rest) = rest.split_at_checked(len)?;
    Some((items.as_chunks::<N>().0, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_written_and_cut_bytes_are_refused() {
        let marks = Marks::from([((1, 2, 3), 4), ((u64::MAX, 0, 255), u64::MAX)]);
        let taken = vec![(u128::MAX - 1, Generations::new(3))];
        let pairs = taken.iter().map(|(uid, taken)| (*uid, taken));
        let bytes = encode(&marks, pairs, [], Instant::default());
        let queue = Vec::new();
        let moved = Moved {
            marks,
            taken,
            queue,
        };
        assert_eq!(decode(&bytes, Instant::default()), Some(moved));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], Instant::default()).is_none(), "{len}");
        }
    }
}
