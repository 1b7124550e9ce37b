//! The queue of a session on its way to another node, with how far its streams had come where it leaves.
//!
//! Everything that matched the session up to those numbers has come there and stands in the queue, is in flight, or was delivered:
//! whatever of it comes to the new node as well, because others there want it too, is no message for this session any more.

use std::collections::BTreeMap;

use thicket_session::{
    server::{Delivery, MessageId, decode_queue, encode_queue},
    time::Instant,
};

/// The last number of each stream: node, incarnation, worker.
pub(crate) type Marks = BTreeMap<(u64, u64, u8), u64>;

/// Bytes of one mark.
const MARK_BYTES: usize = 25;

/// The stream of a message.
pub(crate) const fn stream_of(id: MessageId) -> (u64, u64, u8) {
    (id.node, id.incarnation, id.stream)
}

/// Marks and queue as bytes.
pub(crate) fn encode<'a>(
    marks: &Marks,
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
    bytes.extend_from_slice(&encode_queue(queue, now));
    bytes
}

/// No marks, no queue: of a session that cannot be asked any more.
pub(crate) fn empty() -> Vec<u8> {
    encode(&Marks::new(), [], Instant::default())
}

/// What `encode` wrote; `None` if it is something else.
pub(crate) fn decode(bytes: &[u8], now: Instant) -> Option<(Marks, Vec<Delivery>)> {
    let (count, rest) = bytes.split_first_chunk()?;
    let len = (u32::from_le_bytes(*count) as usize).checked_mul(MARK_BYTES)?;
    let (marks, queue) = rest.split_at_checked(len)?;
    let (marks, _) = marks.as_chunks::<MARK_BYTES>();
    let mark = |bytes: &[u8; MARK_BYTES]| {
        let number = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        Some(((number(0)?, number(8)?, bytes[16]), number(17)?))
    };
    let marks = marks.iter().map(mark).collect::<Option<Marks>>()?;
    Some((marks, decode_queue(queue, now).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_written_and_cut_bytes_are_refused() {
        let marks = Marks::from([((1, 2, 3), 4), ((u64::MAX, 0, 255), u64::MAX)]);
        let bytes = encode(&marks, [], Instant::default());
        let (read, queue) = decode(&bytes, Instant::default()).expect("whole");
        assert_eq!((read, queue.len()), (marks, 0));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], Instant::default()).is_none(), "{len}");
        }
    }
}
