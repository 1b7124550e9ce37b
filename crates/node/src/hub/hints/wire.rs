//! Messages between hubs about nodes that are down. Little-endian, as in [`control`](super::super::control).

use thicket_overlay::NodeId;

use super::super::{
    control::RetainedRecord,
    wire::{Reader, put_bytes, put_u64},
};

/// A set of nodes each of which has a backup of some sessions, ascending.
pub(in super::super) type Backups = Vec<NodeId>;

/// A message between hubs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum HintMessage<'a> {
    /// All persistent sessions of mine that subscribe to something have their backups: each at one of these sets of nodes. `None`: one of them has
    /// none.
    Covered(Option<Vec<Backups>>),
    /// A node is down, and its sessions fail over to this one as far as their backups are here.
    TookOver { node: NodeId },
    /// Keep these for a node that is down, as I do.
    Keep {
        target: NodeId,
        hints: Vec<Carried<'a>>,
    },
    /// They are kept here up to this serial; or that is over the limit.
    Kept {
        target: NodeId,
        upto: u64,
        is_full: bool,
    },
    /// What I asked to be kept for a node is no longer needed, up to this serial.
    Done { target: NodeId, upto: u64 },
    /// To the node that was down: these are for sessions of yours.
    Hinted { hints: Vec<Carried<'a>> },
    /// Its answer: they are accepted up to this serial.
    HintsAccepted { upto: u64 },
}

/// A message that is kept, with its serial at the node that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Carried<'a> {
    pub serial: u64,
    /// Its origin and its record, which has its number there and the expiry that is left.
    pub message: RetainedRecord<'a>,
}

/// The kinds below: no other message between hubs has one of them.
#[cfg(test)]
pub(in super::super) const KINDS: std::ops::RangeInclusive<u8> =
    kind::COVERED..=kind::HINTS_ACCEPTED;

mod kind {
    pub(super) const COVERED: u8 = 60;
    pub(super) const TOOK_OVER: u8 = 61;
    pub(super) const KEEP: u8 = 62;
    pub(super) const KEPT: u8 = 63;
    pub(super) const DONE: u8 = 64;
    pub(super) const HINTED: u8 = 65;
    pub(super) const HINTS_ACCEPTED: u8 = 66;
}

impl HintMessage<'_> {
    /// Kind and payload.
    pub fn encode(&self) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Self::Covered(sets) => {
                out.push(u8::from(sets.is_some()));
                for set in sets.iter().flatten() {
                    put_u64(&mut out, set.len() as u64);
                    set.iter().for_each(|node| put_u64(&mut out, node.0));
                }
                kind::COVERED
            }
            Self::TookOver { node } => {
                put_u64(&mut out, node.0);
                kind::TOOK_OVER
            }
            Self::Keep { target, hints } => {
                put_u64(&mut out, target.0);
                put_hints(&mut out, hints);
                kind::KEEP
            }
            Self::Kept {
                target,
                upto,
                is_full,
            } => {
                put_u64(&mut out, target.0);
                put_u64(&mut out, *upto);
                out.push(u8::from(*is_full));
                kind::KEPT
            }
            Self::Done { target, upto } => {
                put_u64(&mut out, target.0);
                put_u64(&mut out, *upto);
                kind::DONE
            }
            Self::Hinted { hints } => {
                put_hints(&mut out, hints);
                kind::HINTED
            }
            Self::HintsAccepted { upto } => {
                put_u64(&mut out, *upto);
                kind::HINTS_ACCEPTED
            }
        };
        (kind, out)
    }
}

impl<'a> HintMessage<'a> {
    /// The message of a kind and payload; `None`: malformed, or of another kind.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let message = match kind {
            kind::COVERED => {
                let is_whole = reader.flag()?;
                let sets = reader.rest_of(backups)?;
                Self::Covered(is_whole.then_some(sets))
            }
            kind::TOOK_OVER => Self::TookOver {
                node: NodeId(reader.u64()?),
            },
            kind::KEEP => Self::Keep {
                target: NodeId(reader.u64()?),
                hints: reader.rest_of(carried)?,
            },
            kind::KEPT => Self::Kept {
                target: NodeId(reader.u64()?),
                upto: reader.u64()?,
                is_full: reader.flag()?,
            },
            kind::DONE => Self::Done {
                target: NodeId(reader.u64()?),
                upto: reader.u64()?,
            },
            kind::HINTED => Self::Hinted {
                hints: reader.rest_of(carried)?,
            },
            kind::HINTS_ACCEPTED => Self::HintsAccepted {
                upto: reader.u64()?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

fn put_hints(out: &mut Vec<u8>, hints: &[Carried<'_>]) {
    for Carried { serial, message } in hints {
        put_u64(out, *serial);
        put_u64(out, message.origin.node.0);
        put_u64(out, message.origin.incarnation.0);
        put_u64(out, u64::from(message.origin.stream.0));
        put_bytes(out, message.record);
    }
}

fn carried<'a>(reader: &mut Reader<'a>) -> Option<Carried<'a>> {
    Some(Carried {
        serial: reader.u64()?,
        message: reader.retained()?,
    })
}

fn backups(reader: &mut Reader<'_>) -> Option<Backups> {
    let count = reader.u64()?;
    (0..count).map(|_| Some(NodeId(reader.u64()?))).collect()
}

#[cfg(test)]
mod tests {
    use thicket_overlay::{Incarnation, StreamId};

    use super::*;
    use crate::messages::Origin;

    fn messages() -> Vec<HintMessage<'static>> {
        let carried = |serial, record| Carried {
            serial,
            message: RetainedRecord {
                origin: Origin {
                    node: NodeId(1),
                    incarnation: Incarnation(2),
                    stream: StreamId(3),
                },
                record,
            },
        };
        let hints = vec![carried(7, &b"record"[..]), carried(8, b"")];
        let target = NodeId(9);
        vec![
            HintMessage::Covered(None),
            HintMessage::Covered(Some(Vec::new())),
            HintMessage::Covered(Some(vec![vec![NodeId(1), NodeId(2)], vec![NodeId(3)]])),
            HintMessage::TookOver { node: target },
            HintMessage::Keep {
                target,
                hints: hints.clone(),
            },
            HintMessage::Kept {
                target,
                upto: 8,
                is_full: true,
            },
            HintMessage::Done { target, upto: 8 },
            HintMessage::Hinted { hints },
            HintMessage::HintsAccepted { upto: 8 },
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_written_and_no_other() {
        for message in messages() {
            let (kind, mut payload) = message.encode();
            assert_eq!(HintMessage::decode(kind, &payload), Some(message.clone()));
            payload.push(0);
            assert_eq!(
                HintMessage::decode(kind, &payload),
                None,
                "{message:?} and a byte"
            );
            assert_eq!(HintMessage::decode(kind, &payload[..0]), shortest(kind));
        }
        assert_eq!(HintMessage::decode(200, &[]), None);
        let lie = [&[1][..], &u64::MAX.to_le_bytes()].concat();
        assert_eq!(
            HintMessage::decode(kind::COVERED, &lie),
            None,
            "a claimed length"
        );
    }

    /// A list may be empty.
    fn shortest(kind: u8) -> Option<HintMessage<'static>> {
        let hints = Vec::new();
        (kind == kind::HINTED).then_some(HintMessage::Hinted { hints })
    }
}
