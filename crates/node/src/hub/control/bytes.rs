//! Messages between hubs as bytes.

use thicket_overlay::{Incarnation, NodeId, StreamId};
use thicket_placement::MoveReason;
use thicket_session::server::Epoch;

use super::{
    FetchAnswer, Grant, Message, Part, PlacementOrder, RefusedNumbers, Registrable, Registration,
    Released, RetainedRecord,
    activity::{put_activity, read_activity},
    load::{put_state, put_topics, read_state, read_topics},
    placements::{
        put_asked, put_follows, put_payer, put_placement, read_asked, read_follows, read_payer,
        read_placement,
    },
};
use crate::{
    RebalanceError, RebalanceWish, RedirectionReason,
    hub::{
        members::Membership,
        wire::{Reader, put_bytes, put_one_of, put_u64},
    },
    messages::{BackupReport, MisroutedMessage, Origin, Purpose, ReplicationStream},
};

/// Those of `hints::wire` are different.
mod kind {
    pub(super) const CLAIM: u8 = 1;
    pub(super) const CLAIM_GRANTED: u8 = 2;
    pub(super) const CLAIM_DEFERRED: u8 = 3;
    pub(super) const REGISTER: u8 = 4;
    pub(super) const REGISTER_END: u8 = 5;
    pub(super) const RELEASE: u8 = 6;
    pub(super) const OWNED: u8 = 7;
    pub(super) const EVICT: u8 = 8;
    pub(super) const FETCH: u8 = 9;
    pub(super) const FETCHED: u8 = 10;
    pub(super) const FETCH_QUEUE: u8 = 11;
    pub(super) const NOT_FETCHED: u8 = 12;
    pub(super) const CANCEL_SWITCHOVER: u8 = 13;
    pub(super) const RETAINED_DIGEST: u8 = 14;
    pub(super) const RETAINED: u8 = 15;
    pub(super) const REGISTER_ASKED: u8 = 16;
    pub(super) const BARRIER: u8 = 18;
    pub(super) const BARRIER_DONE: u8 = 19;
    pub(super) const CONTESTED: u8 = 40;
    pub(super) const MERGE: u8 = 41;
    pub(super) const REFUSED: u8 = 30;
    pub(super) const REFUSAL_NOTED: u8 = 31;
    pub(super) const MEMBERS_REFUSED: u8 = 32;
    pub(super) const REPLICATE: u8 = 20;
    pub(super) const BACKUPS_HELD: u8 = 21;
    pub(super) const BACKUPS_MISSING: u8 = 22;
    pub(super) const MEMBERS: u8 = 50;
    pub(super) const SETTINGS: u8 = 51;
    pub(super) const CLOCK: u8 = 52;
    pub(super) const STATE: u8 = 80;
    pub(super) const TOPICS: u8 = 82;
    pub(super) const PLACE: u8 = 83;
    pub(super) const PLACE_DONE: u8 = 84;
    pub(super) const PLACEMENT: u8 = 85;
    pub(super) const UNPLACED: u8 = 86;
    pub(super) const UNPLACE: u8 = 87;
    pub(super) const MOVED: u8 = 88;
    pub(super) const ACTIVITY_REQUESTED: u8 = 89;
    pub(super) const ACTIVITY: u8 = 90;
    pub(super) const MOVES_ORDERED: u8 = 91;
    pub(super) const REBALANCE_ASKED: u8 = 92;
    pub(super) const REBALANCE_ANSWERED: u8 = 93;
    pub(super) const REBALANCE_REFUSED: u8 = 94;
    pub(super) const MISROUTED: u8 = 95;
}

impl Message<'_> {
    /// Kind and payload.
    pub fn encode(&self) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Self::Claim {
                request,
                view,
                client_id,
            } => {
                put_u64(&mut out, *request);
                put_u64(&mut out, *view);
                put_bytes(&mut out, client_id.as_bytes());
                kind::CLAIM
            }
            Self::ClaimAnswered {
                request,
                grant,
                client_id,
            } => {
                put_u64(&mut out, *request);
                let kind = match grant {
                    Some(Grant { epoch, source }) => {
                        put_u64(&mut out, epoch.bits());
                        out.push(u8::from(source.is_some()));
                        put_u64(&mut out, source.map_or(0, |node| node.0));
                        kind::CLAIM_GRANTED
                    }
                    None => kind::CLAIM_DEFERRED,
                };
                put_bytes(&mut out, client_id.as_bytes());
                kind
            }
            Self::Clock { unix_ms } => {
                put_u64(&mut out, *unix_ms);
                kind::CLOCK
            }
            Self::RegisterAsked { round, unix_ms } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *unix_ms);
                kind::REGISTER_ASKED
            }
            Self::Register {
                round,
                is_first,
                sessions,
            } => {
                put_u64(&mut out, *round);
                out.push(u8::from(*is_first));
                for session in sessions {
                    put_bytes(&mut out, session.client_id.as_bytes());
                    put_u64(&mut out, session.epoch.bits());
                    out.push(match session.state {
                        Registrable::Waiting => 0,
                        Registrable::Claimed => 1,
                        Registrable::Connected => 2,
                        Registrable::Ended => 4,
                    });
                }
                kind::REGISTER
            }
            Self::RegisterEnd { round, view } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *view);
                kind::REGISTER_END
            }
            Self::Release { client_id, release } => {
                put_bytes(&mut out, client_id.as_bytes());
                out.push(match release {
                    Released::Gone => 0,
                    Released::Unclaimed => 1,
                    Released::Ended => 2,
                });
                kind::RELEASE
            }
            Self::Owned { client_id, epoch } => {
                put_identified(&mut out, client_id, *epoch, kind::OWNED)
            }
            Self::Evict {
                client_id,
                epoch,
                has_ended,
            } => {
                let kind = put_identified(&mut out, client_id, *epoch, kind::EVICT);
                out.push(u8::from(*has_ended));
                kind
            }
            Self::Contested { client_id } => {
                put_bytes(&mut out, client_id.as_bytes());
                kind::CONTESTED
            }
            Self::Merge {
                epoch,
                source,
                source_epoch,
                client_id,
            } => {
                put_u64(&mut out, epoch.bits());
                put_u64(&mut out, source.0);
                put_u64(&mut out, source_epoch.bits());
                put_bytes(&mut out, client_id.as_bytes());
                kind::MERGE
            }
            Self::Fetch {
                request,
                client_id,
                purpose,
            } => {
                put_u64(&mut out, *request);
                out.push(*purpose as u8);
                put_bytes(&mut out, client_id.as_bytes());
                kind::FETCH
            }
            Self::Fetched { request, answer } => {
                put_u64(&mut out, *request);
                match answer {
                    FetchAnswer::Part(part) => {
                        put_part(&mut out, *part);
                        kind::FETCHED
                    }
                    FetchAnswer::Gone | FetchAnswer::Elsewhere => {
                        out.push(u8::from(*answer == FetchAnswer::Elsewhere));
                        kind::NOT_FETCHED
                    }
                }
            }
            Self::FetchQueue { request } => {
                put_u64(&mut out, *request);
                kind::FETCH_QUEUE
            }
            Self::Barrier { request } => {
                put_u64(&mut out, *request);
                kind::BARRIER
            }
            Self::BarrierDone { request } => {
                put_u64(&mut out, *request);
                kind::BARRIER_DONE
            }
            Self::CancelSwitchover { client_id } => {
                put_bytes(&mut out, client_id.as_bytes());
                kind::CANCEL_SWITCHOVER
            }
            Self::Replicate {
                stream,
                position,
                part,
            } => {
                put_stream(&mut out, *stream);
                put_u64(&mut out, *position);
                // No request. The next version of the wire leaves it out.
                put_u64(&mut out, 0);
                put_part(&mut out, *part);
                kind::REPLICATE
            }
            Self::BackupReport { stream, report } => {
                put_stream(&mut out, *stream);
                put_report(&mut out, report)
            }
            Self::Settings(settings) => {
                for (key, value) in settings {
                    put_bytes(&mut out, key.as_bytes());
                    put_bytes(&mut out, value.as_bytes());
                }
                kind::SETTINGS
            }
            Self::Members(members) => {
                for member in members {
                    put_u64(&mut out, member.node.0);
                    put_u64(&mut out, member.changes);
                    put_bytes(&mut out, member.name.as_bytes());
                }
                kind::MEMBERS
            }
            Self::State(state) => {
                put_state(&mut out, state);
                kind::STATE
            }
            Self::Topics { is_first, topics } => {
                put_topics(&mut out, *is_first, topics);
                kind::TOPICS
            }
            Self::Place { request, order } => {
                put_u64(&mut out, *request);
                match order {
                    PlacementOrder::Place { asked, payer } => {
                        put_payer(&mut out, payer.as_deref());
                        put_asked(&mut out, asked);
                        kind::PLACE
                    }
                    PlacementOrder::Remove(client_id) => {
                        put_bytes(&mut out, client_id.as_bytes());
                        kind::UNPLACE
                    }
                }
            }
            Self::PlaceDone { request, problem } => {
                put_u64(&mut out, *request);
                put_bytes(&mut out, problem.as_bytes());
                kind::PLACE_DONE
            }
            Self::Placement {
                placement,
                follows,
                payer,
            } => {
                put_follows(&mut out, *follows);
                put_payer(&mut out, payer.as_deref());
                put_placement(&mut out, placement);
                kind::PLACEMENT
            }
            Self::Unplaced { client_id } => {
                put_bytes(&mut out, client_id.as_bytes());
                kind::UNPLACED
            }
            Self::Moved {
                to,
                reason,
                client_id,
            } => {
                put_u64(&mut out, to.0);
                put_one_of(&mut out, &RedirectionReason::ALL, reason);
                put_bytes(&mut out, client_id.as_bytes());
                kind::MOVED
            }
            Self::ActivityRequested { round, cursor } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *cursor);
                kind::ACTIVITY_REQUESTED
            }
            Self::Activity {
                round,
                next,
                clients,
            } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *next);
                put_activity(&mut out, clients);
                kind::ACTIVITY
            }
            Self::MovesOrdered {
                to,
                reason,
                clients,
            } => {
                put_u64(&mut out, to.0);
                put_one_of(&mut out, &MoveReason::ALL, reason);
                for client in clients {
                    put_bytes(&mut out, client.as_bytes());
                }
                kind::MOVES_ORDERED
            }
            Self::RebalanceAsked { request, wish } => {
                put_u64(&mut out, *request);
                put_one_of(&mut out, &RebalanceWish::ALL, wish);
                kind::REBALANCE_ASKED
            }
            Self::RebalanceAnswered { request, answer } => {
                put_u64(&mut out, *request);
                match answer {
                    Ok(report) => {
                        put_bytes(&mut out, report.as_bytes());
                        kind::REBALANCE_ANSWERED
                    }
                    Err(error) => {
                        put_one_of(&mut out, &RebalanceError::ALL, error);
                        kind::REBALANCE_REFUSED
                    }
                }
            }
            Self::RetainedDigest { digest, is_answer } => {
                put_u64(&mut out, *digest);
                out.push(u8::from(*is_answer));
                kind::RETAINED_DIGEST
            }
            Self::Retained { messages } => {
                for RetainedRecord { origin, record } in messages {
                    put_record(&mut out, *origin, record);
                }
                kind::RETAINED
            }
            Self::Refused(numbers) => put_numbers(&mut out, numbers, kind::REFUSED),
            Self::MembersRefused(numbers) => put_numbers(&mut out, numbers, kind::MEMBERS_REFUSED),
            Self::RefusalNoted(numbers) => put_numbers(&mut out, numbers, kind::REFUSAL_NOTED),
        };
        (kind, out)
    }
}

/// A message, and its origin.
fn put_record(out: &mut Vec<u8>, origin: Origin, record: &[u8]) {
    put_u64(out, origin.node.0);
    put_u64(out, origin.incarnation.0);
    put_u64(out, u64::from(origin.stream.0));
    put_bytes(out, record);
}

impl<'a> Message<'a> {
    /// The message of a kind and payload; `None`: malformed, or of a kind that this version does not have.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let message = match kind {
            kind::CLAIM => Self::Claim {
                request: reader.u64()?,
                view: reader.u64()?,
                client_id: reader.text()?,
            },
            kind::CLAIM_GRANTED => {
                let (request, epoch) = (reader.u64()?, reader.epoch()?);
                let has_source = reader.flag()?;
                let source = Some(NodeId(reader.u64()?)).filter(|_| has_source);
                Self::ClaimAnswered {
                    request,
                    grant: Some(Grant { epoch, source }),
                    client_id: reader.text()?,
                }
            }
            kind::CLAIM_DEFERRED => Self::ClaimAnswered {
                request: reader.u64()?,
                grant: None,
                client_id: reader.text()?,
            },
            kind::REGISTER_ASKED => Self::RegisterAsked {
                round: reader.u64()?,
                unix_ms: reader.u64()?,
            },
            kind::REGISTER => Self::Register {
                round: reader.u64()?,
                is_first: reader.flag()?,
                sessions: reader.rest_of(Reader::registration)?,
            },
            kind::REGISTER_END => Self::RegisterEnd {
                round: reader.u64()?,
                view: reader.u64()?,
            },
            kind::RELEASE => Self::Release {
                client_id: reader.text()?,
                release: match reader.u8()? {
                    0 => Released::Gone,
                    1 => Released::Unclaimed,
                    2 => Released::Ended,
                    _ => return None,
                },
            },
            kind::OWNED => Self::Owned {
                client_id: reader.text()?,
                epoch: reader.epoch()?,
            },
            kind::EVICT => Self::Evict {
                client_id: reader.text()?,
                epoch: reader.epoch()?,
                has_ended: reader.flag()?,
            },
            kind::FETCH => {
                let (request, purpose) = (reader.u64()?, reader.u8()?);
                Self::Fetch {
                    request,
                    client_id: reader.text()?,
                    purpose: *Purpose::ALL.get(usize::from(purpose))?,
                }
            }
            kind::CONTESTED => Self::Contested {
                client_id: reader.text()?,
            },
            kind::MERGE => Self::Merge {
                epoch: reader.epoch()?,
                source: NodeId(reader.u64()?),
                source_epoch: reader.epoch()?,
                client_id: reader.text()?,
            },
            kind::FETCHED => Self::Fetched {
                request: reader.u64()?,
                answer: FetchAnswer::Part(reader.part()?),
            },
            kind::FETCH_QUEUE => Self::FetchQueue {
                request: reader.u64()?,
            },
            kind::NOT_FETCHED => Self::Fetched {
                request: reader.u64()?,
                answer: if reader.flag()? {
                    FetchAnswer::Elsewhere
                } else {
                    FetchAnswer::Gone
                },
            },
            kind::BARRIER => Self::Barrier {
                request: reader.u64()?,
            },
            kind::BARRIER_DONE => Self::BarrierDone {
                request: reader.u64()?,
            },
            kind::CANCEL_SWITCHOVER => Self::CancelSwitchover {
                client_id: reader.text()?,
            },
            kind::RETAINED_DIGEST => Self::RetainedDigest {
                digest: reader.u64()?,
                is_answer: reader.u8()? != 0,
            },
            kind::RETAINED => Self::Retained {
                messages: reader.rest_of(Reader::retained)?,
            },
            kind::REFUSED => Self::Refused(reader.numbers()?),
            kind::MEMBERS_REFUSED => Self::MembersRefused(reader.numbers()?),
            kind::REFUSAL_NOTED => Self::RefusalNoted(reader.numbers()?),
            kind::REPLICATE => {
                let (stream, position) = (reader.stream()?, reader.u64()?);
                // No request.
                reader.u64()?;
                Self::Replicate {
                    stream,
                    position,
                    part: reader.part()?,
                }
            }
            kind::BACKUPS_HELD | kind::BACKUPS_MISSING | kind::MISROUTED => Self::BackupReport {
                stream: reader.stream()?,
                report: reader.report(kind)?,
            },
            kind::SETTINGS => Self::Settings(reader.rest_of(|it| Some((it.text()?, it.text()?)))?),
            kind::CLOCK => Self::Clock {
                unix_ms: reader.u64()?,
            },
            kind::MEMBERS => Self::Members(reader.rest_of(Reader::membership)?),
            kind::STATE => Self::State(read_state(&mut reader)?),
            kind::TOPICS => {
                let (is_first, topics) = read_topics(&mut reader)?;
                Self::Topics { is_first, topics }
            }
            kind::PLACE => Self::Place {
                request: reader.u64()?,
                order: PlacementOrder::Place {
                    payer: read_payer(&mut reader)?,
                    asked: read_asked(&mut reader)?,
                },
            },
            kind::UNPLACE => Self::Place {
                request: reader.u64()?,
                order: PlacementOrder::Remove(reader.text()?.to_owned()),
            },
            kind::PLACE_DONE => Self::PlaceDone {
                request: reader.u64()?,
                problem: reader.text()?,
            },
            kind::PLACEMENT => Self::Placement {
                follows: read_follows(&mut reader)?,
                payer: read_payer(&mut reader)?,
                placement: read_placement(&mut reader)?,
            },
            kind::UNPLACED => Self::Unplaced {
                client_id: reader.text()?,
            },
            kind::MOVED => Self::Moved {
                to: NodeId(reader.u64()?),
                reason: reader.one_of(&RedirectionReason::ALL)?,
                client_id: reader.text()?,
            },
            kind::ACTIVITY_REQUESTED => Self::ActivityRequested {
                round: reader.u64()?,
                cursor: reader.u64()?,
            },
            kind::ACTIVITY => Self::Activity {
                round: reader.u64()?,
                next: reader.u64()?,
                clients: read_activity(&mut reader)?,
            },
            kind::MOVES_ORDERED => Self::MovesOrdered {
                to: NodeId(reader.u64()?),
                reason: reader.one_of(&MoveReason::ALL)?,
                clients: reader.rest_of(Reader::text)?,
            },
            kind::REBALANCE_ASKED => Self::RebalanceAsked {
                request: reader.u64()?,
                wish: reader.one_of(&RebalanceWish::ALL)?,
            },
            kind::REBALANCE_ANSWERED => Self::RebalanceAnswered {
                request: reader.u64()?,
                answer: Ok(reader.text()?.to_owned()),
            },
            kind::REBALANCE_REFUSED => Self::RebalanceAnswered {
                request: reader.u64()?,
                answer: Err(reader.one_of(&RebalanceError::ALL)?),
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

fn put_stream(out: &mut Vec<u8>, stream: ReplicationStream) {
    out.push(stream.worker);
    put_u64(out, stream.id);
}

fn put_report(out: &mut Vec<u8>, report: &BackupReport) -> u8 {
    match report {
        BackupReport::Held { applied, held } => {
            put_u64(out, *applied);
            put_u64(out, *held);
            kind::BACKUPS_HELD
        }
        BackupReport::Missing(missing) => {
            for (session, sequence) in missing {
                put_u64(out, *session);
                put_u64(out, *sequence);
            }
            kind::BACKUPS_MISSING
        }
        BackupReport::Misrouted(misrouted) => {
            put_u64(out, misrouted.session);
            put_record(out, misrouted.origin, &misrouted.bytes);
            kind::MISROUTED
        }
    }
}

fn put_identified(out: &mut Vec<u8>, client_id: &str, epoch: Epoch, kind: u8) -> u8 {
    put_bytes(out, client_id.as_bytes());
    put_u64(out, epoch.bits());
    kind
}

fn put_part(out: &mut Vec<u8>, part: Part<'_>) {
    out.push(u8::from(part.is_last));
    put_bytes(out, part.bytes);
}

fn put_numbers(out: &mut Vec<u8>, numbers: &RefusedNumbers, kind: u8) -> u8 {
    put_u64(out, numbers.incarnation.0);
    put_u64(out, u64::from(numbers.stream.0));
    for (from, to) in &numbers.runs {
        put_u64(out, *from);
        put_u64(out, *to);
    }
    kind
}

impl<'a> Reader<'a> {
    fn epoch(&mut self) -> Option<Epoch> {
        self.u64().map(Epoch::from_bits)
    }

    fn part(&mut self) -> Option<Part<'a>> {
        let flags = self.u8().filter(|flags| *flags < 2)?;
        Some(Part {
            is_last: flags != 0,
            bytes: self.bytes()?,
        })
    }

    fn stream(&mut self) -> Option<ReplicationStream> {
        let (worker, id) = (self.u8()?, self.u64()?);
        Some(ReplicationStream { worker, id })
    }

    fn report(&mut self, kind: u8) -> Option<BackupReport> {
        match kind {
            kind::BACKUPS_HELD => Some(BackupReport::Held {
                applied: self.u64()?,
                held: self.u64()?,
            }),
            kind::BACKUPS_MISSING => {
                let missing = self.rest_of(|reader| Some((reader.u64()?, reader.u64()?)))?;
                Some(BackupReport::Missing(missing))
            }
            _ => {
                let session = self.u64()?;
                let RetainedRecord { origin, record } = self.retained()?;
                Some(BackupReport::Misrouted(MisroutedMessage {
                    session,
                    origin,
                    bytes: record.to_vec(),
                }))
            }
        }
    }

    fn registration(&mut self) -> Option<Registration<'a>> {
        let (client_id, epoch) = (self.text()?, self.epoch()?);
        let state = match self.u8()? {
            0 => Registrable::Waiting,
            1 => Registrable::Claimed,
            2 => Registrable::Connected,
            4 => Registrable::Ended,
            _ => return None,
        };
        Some(Registration {
            client_id,
            epoch,
            state,
        })
    }

    fn membership(&mut self) -> Option<Membership<'a>> {
        Some(Membership {
            node: NodeId(self.u64()?),
            changes: self.u64()?,
            name: self.text()?,
        })
    }

    pub(in crate::hub) fn retained(&mut self) -> Option<RetainedRecord<'a>> {
        let node = NodeId(self.u64()?);
        let incarnation = Incarnation(self.u64()?);
        let stream = StreamId(u16::try_from(self.u64()?).ok()?);
        let origin = Origin {
            node,
            incarnation,
            stream,
        };
        let record = self.bytes()?;
        Some(RetainedRecord { origin, record })
    }

    fn numbers(&mut self) -> Option<RefusedNumbers> {
        Some(RefusedNumbers {
            incarnation: Incarnation(self.u64()?),
            stream: StreamId(u16::try_from(self.u64()?).ok()?),
            runs: self.rest_of(|reader| Some((reader.u64()?, reader.u64()?)))?,
        })
    }
}

#[cfg(test)]
mod tests;
