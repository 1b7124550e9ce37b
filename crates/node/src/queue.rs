//! What goes with a session to another node: the positions of its streams where it leaves; of a branch that is merged there also its queue and the
//! publications it accepted last.
//!
//! Everything that matched the session up to those positions has arrived there and is in the queue, is in flight, or was delivered. If it reaches the
//! new node too, because of other recipients there, it is no message for this session any more.

use std::collections::BTreeMap;

use thicket_mqtt::PacketId;
use thicket_session::{
    server::{Branch, Delivery, Generations, InboundId, MessageStream, decode_queue, encode_queue},
    time::Instant,
};

use crate::marks::{GAPS, Gap, Marks, ReceivedNumbers};

/// Bytes of one mark.
const MARK_BYTES: usize = 25;
/// Bytes of an identifier of a client.
const INBOUND_BYTES: usize = 7;
/// What a session accepted, by publisher; of one perhaps several times.
type AcceptedByPublisher = Vec<(u128, Generations)>;

/// In the incarnation: this number is an end of a gap. No node has been up so often.
const OF_GAPS: u64 = 1 << 63;

/// The keys under which the ends of a gap are written.
const fn gap_ends(of: MessageStream, index: usize) -> [MessageStream; 2] {
    let incarnation = of.incarnation | OF_GAPS | (index as u64) << 48;
    let after = MessageStream { incarnation, ..of };
    let before = MessageStream {
        stream: of.stream | 1 << 7,
        ..after
    };
    [after, before]
}

/// Marks as they are written: the last number of each stream, and the ends of its gaps.
fn numbers(marks: &Marks) -> Vec<(MessageStream, u64)> {
    let mut numbers = Vec::new();
    for (stream, received) in marks.iter() {
        numbers.push((*stream, received.last()));
        for (index, gap) in received.gaps().iter().enumerate() {
            numbers.extend(
                gap_ends(*stream, index)
                    .into_iter()
                    .zip([gap.after, gap.before]),
            );
        }
    }
    numbers
}

/// Reads what `numbers` wrote.
fn read_numbers(numbers: &BTreeMap<MessageStream, u64>) -> Marks {
    let streams = numbers
        .iter()
        .filter(|(stream, _)| stream.incarnation & OF_GAPS == 0);
    let received = streams.map(|(stream, last)| {
        let gaps = (0..=2 * GAPS).map_while(|index| {
            let [after, before] = gap_ends(*stream, index).map(|end| numbers.get(&end).copied());
            let (after, before) = after.zip(before)?;
            Some(Gap { after, before })
        });
        (*stream, ReceivedNumbers::with_gaps(*last, gaps))
    });
    received.collect()
}

fn encode_marks(marks: &Marks) -> Vec<u8> {
    let mut bytes = Vec::new();
    let numbers = numbers(marks);
    bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    for (stream, number) in numbers {
        bytes.extend_from_slice(&stream.node.to_le_bytes());
        bytes.extend_from_slice(&stream.incarnation.to_le_bytes());
        bytes.push(stream.stream);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Marks, publications and queue as bytes.
pub(crate) fn encode<'a>(
    marks: &Marks,
    accepted: impl IntoIterator<Item = (u128, &'a Generations)>,
    queue: impl IntoIterator<Item = &'a Delivery>,
    now: Instant,
) -> Vec<u8> {
    let mut bytes = encode_marks(marks);
    encode_accepted(&mut bytes, accepted);
    bytes.extend_from_slice(&encode_queue(queue, now));
    bytes
}

fn encode_accepted<'a>(
    bytes: &mut Vec<u8>,
    accepted: impl IntoIterator<Item = (u128, &'a Generations)>,
) {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for (uid, accepted) in accepted {
        bytes.extend_from_slice(&uid.to_le_bytes());
        accepted.encode(bytes);
        count += 1;
    }
    bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
}

/// Reads what `encode_accepted` wrote, and returns what is behind it.
fn decode_accepted(bytes: &[u8]) -> Option<(AcceptedByPublisher, &[u8])> {
    let (count, mut rest) = bytes.split_first_chunk()?;
    let mut all = AcceptedByPublisher::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (uid, bytes) = rest.split_first_chunk()?;
        let (accepted, behind) = Generations::decode(bytes)?;
        all.push((u128::from_le_bytes(*uid), accepted));
        rest = behind;
    }
    Some((all, rest))
}

/// No marks, no queue: of a session that is no longer known.
pub(crate) fn empty() -> Vec<u8> {
    encode(&Marks::new(), [], [], Instant::default())
}

/// What `encode` wrote.
#[derive(Debug, PartialEq)]
pub(crate) struct Moved {
    pub marks: Marks,
    /// By publisher.
    pub accepted: AcceptedByPublisher,
    pub queue: Vec<Delivery>,
}

/// What `encode` wrote; `None` if it is something else.
pub(crate) fn decode(bytes: &[u8], now: Instant) -> Option<Moved> {
    let (marks, rest) = decode_marks(bytes)?;
    let (accepted, queue) = decode_accepted(rest)?;
    Some(Moved {
        marks,
        accepted,
        queue: decode_queue(queue, now).ok()?,
    })
}

/// Reads what `encode_marks` wrote, and returns what is behind it.
fn decode_marks(bytes: &[u8]) -> Option<(Marks, &[u8])> {
    let (marks, rest) = items::<MARK_BYTES>(bytes)?;
    let mark = |bytes: &[u8; MARK_BYTES]| {
        let number = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let stream = MessageStream {
            node: number(0)?,
            incarnation: number(8)?,
            stream: bytes[16],
        };
        Some((stream, number(17)?))
    };
    let numbers = marks.iter().map(mark).collect::<Option<_>>()?;
    Some((read_numbers(&numbers), rest))
}

/// What goes with a session that is handed over beside the state of its backups.
#[derive(Debug, PartialEq)]
pub(crate) struct History {
    /// The positions of its streams.
    pub marks: Marks,
    /// Publications it accepted, by publisher: also at QoS 0, which is not replicated to its backups.
    pub accepted: AcceptedByPublisher,
    /// Identifiers of its client that are in use, and the last generation, where none of them is under way any more.
    pub inbound: Option<(Vec<InboundId>, u32)>,
    /// What differs from a branch that another node may have.
    pub branch: Option<Branch>,
}

impl History {
    /// Only what arrived.
    pub const fn of_marks(marks: Marks) -> Self {
        Self {
            marks,
            accepted: AcceptedByPublisher::new(),
            inbound: None,
            branch: None,
        }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = encode_marks(&self.marks);
        encode_accepted(&mut bytes, self.accepted.iter().map(|(uid, it)| (*uid, it)));
        bytes.push(u8::from(self.inbound.is_some()));
        if let Some((ids, generation)) = &self.inbound {
            bytes.extend_from_slice(&generation.to_le_bytes());
            bytes.extend_from_slice(&(ids.len() as u32).to_le_bytes());
            for id in ids {
                bytes.extend_from_slice(&id.packet_id.value().to_le_bytes());
                bytes.extend_from_slice(&id.generation.to_le_bytes());
                bytes.push(id.state_bits());
            }
        }
        let branch = self.branch.as_ref().map(Branch::encode);
        bytes.extend_from_slice(&branch.unwrap_or_default());
        bytes
    }

    /// What `encode` wrote; `None` if it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (marks, rest) = decode_marks(bytes)?;
        let (accepted, rest) = decode_accepted(rest)?;
        let (inbound, rest) = match rest.split_first()? {
            (0, rest) => (None, rest),
            (_, rest) => {
                let (generation, rest) = rest.split_first_chunk()?;
                let (ids, rest) = items::<INBOUND_BYTES>(rest)?;
                let ids = ids.iter().map(|id| {
                    let packet_id = PacketId::new(u16::from_le_bytes([id[0], id[1]]))?;
                    let generation = u32::from_le_bytes(*id[2..].first_chunk()?);
                    Some(InboundId::new(packet_id, generation, id[6]))
                });
                let ids = ids.collect::<Option<Vec<_>>>()?;
                (Some((ids, u32::from_le_bytes(*generation))), rest)
            }
        };
        let branch = if rest.is_empty() {
            None
        } else {
            Some(Branch::decode(rest).ok()?)
        };
        Some(Self {
            marks,
            accepted,
            inbound,
            branch,
        })
    }
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
        let stream = |node, incarnation, stream| MessageStream {
            node,
            incarnation,
            stream,
        };
        let gaps = [(2, 4), (5, 9)].map(|(after, before)| Gap { after, before });
        let marks = Marks::from_iter([
            (stream(1, 2, 3), ReceivedNumbers::with_gaps(12, gaps)),
            (stream(u64::MAX, 0, 127), ReceivedNumbers::up_to(u64::MAX)),
        ]);
        let accepted = vec![(u128::MAX - 1, Generations::of_one(3, 4))];
        let pairs = accepted.iter().map(|(uid, accepted)| (*uid, accepted));
        let bytes = encode(&marks, pairs, [], Instant::default());
        let history = History {
            marks: marks.clone(),
            accepted: accepted.clone(),
            inbound: Some((
                vec![InboundId::new(PacketId::new(7).expect("not 0"), 9, 1)],
                11,
            )),
            branch: Some(Branch {
                is_partial: true,
                ..Branch::default()
            }),
        };
        assert_eq!(History::decode(&history.encode()).as_ref(), Some(&history));
        let plain = History {
            inbound: None,
            branch: None,
            ..history
        };
        assert_eq!(History::decode(&plain.encode()), Some(plain));
        let moved = Moved {
            marks: marks.clone(),
            accepted,
            queue: Vec::new(),
        };
        assert_eq!(decode(&bytes, Instant::default()), Some(moved));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], Instant::default()).is_none(), "{len}");
        }
    }
}
