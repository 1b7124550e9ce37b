//! What hubs say to each other besides what the overlay says for them: claims of client identifiers, sessions that move, retained
//! messages. Little-endian, lengths before what they count.

use thicket_overlay::{Incarnation, NodeId, StreamId, record::HybridTime};
use thicket_placement::{Asked, MoveReason, Placement};
use thicket_session::server::Epoch;

use super::{
    members::Membership,
    placing::{
        Follows, ToldTopics, put_asked, put_follows, put_habits, put_placement, put_state,
        put_topics, read_asked, read_follows, read_habits, read_placement, read_state, read_topics,
    },
    refusals::RefusedNumbers,
};
use crate::{
    NodeState, RebalanceError, RebalanceWish, RedirectionReason,
    mail::{ClientHabits, Origin, Purpose},
};

/// A message between hubs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message<'a> {
    /// To the registrar: who may have this client identifier? `view`: by the nodes the asker sees.
    Claim {
        request: u64,
        view: u64,
        client_id: &'a str,
    },
    /// From the registrar: it is yours; the session is at `source`, if there is one elsewhere.
    ClaimGranted {
        request: u64,
        epoch: Epoch,
        source: Option<NodeId>,
        client_id: &'a str,
    },
    /// From the registrar: ask again later.
    ClaimDeferred { request: u64, client_id: &'a str },
    /// From a registrar that begins anew: register what falls to me.
    RegisterAsked { round: u64 },
    /// To the registrar: these client identifiers have their sessions here. `is_first`: what was registered before is void.
    Register {
        round: u64,
        is_first: bool,
        sessions: Vec<Registration<'a>>,
    },
    /// To the registrar: that was all, by this view.
    RegisterEnd { round: u64, view: u64 },
    /// To the registrar: the session has ended here.
    Release { client_id: &'a str },
    /// To the registrar: what was claimed is not wanted any more, and there is no session here.
    Unclaimed { client_id: &'a str },
    /// To the registrar: the session is here now.
    Owned { client_id: &'a str, epoch: Epoch },
    /// From the registrar: another node has the client identifier with a higher epoch.
    Evict { client_id: &'a str, epoch: Epoch },
    /// To the registrar that evicts: what the session has here is nowhere else.
    Contested { client_id: &'a str },
    /// From the registrar, as if it had been claimed: take in what the session has at `source`, where it was last claimed with
    /// `source_epoch`.
    Merge {
        epoch: Epoch,
        source: NodeId,
        source_epoch: Epoch,
        client_id: &'a str,
    },
    /// To the node that has a session: hand it over to me, or tell me what your branch of it has.
    Fetch {
        request: u64,
        client_id: &'a str,
        purpose: Purpose,
    },
    /// The answer, unless the session is handed over: there is none; or, `is_elsewhere`, a third node is to have it.
    NotFetched { request: u64, is_elsewhere: bool },
    /// Part of what a branch has, and after `Drain` of its queue.
    Fetched { request: u64, part: Part<'a> },
    /// Everybody sends the messages of a branch here now: send its queue.
    Drain { request: u64 },
    /// To everybody who may have sent messages to a session that leaves: say when all that is on its way to me has been taken here.
    Barrier { request: u64 },
    /// The answer.
    BarrierDone { request: u64 },
    /// I do not want the session any more, or did not take it over: keep it.
    TakeBack { client_id: &'a str },
    /// A fingerprint of all retained messages.
    RetainedDigest {
        digest: u64,
        /// It answers a digest that differed: the other node tells all if it has not yet, and answers no more.
        is_answer: bool,
    },
    /// Retained messages (an empty payload: removed), each a record with its time, and the node that published it.
    Retained { messages: Vec<RetainedRecord<'a>> },
    /// There is no room here for these messages of yours.
    Refused(RefusedNumbers),
    /// I know: acknowledge them now.
    RefusalNoted(RefusedNumbers),
    /// Part of a record of a worker's stream of backups.
    Replicate {
        backup: BackupPosition,
        part: Part<'a>,
    },
    /// A worker's stream is applied here up to the position, and held up to another one.
    BackupsHeld { backup: BackupPosition, held: u64 },
    /// Messages that a worker's stream named have not come here: numbers of sessions with sequences.
    BackupsWanted {
        worker: u8,
        stream: u64,
        wanted: Vec<(u64, u64)>,
    },
    /// All nodes that ever joined.
    Members(Vec<Membership<'a>>),
    /// Keys and values that must be the same on all nodes.
    Settings(Vec<(&'a str, &'a str)>),
    /// What I have to do, and where clients reach me.
    State(NodeState),
    /// How often my clients publish to which topics.
    Topics {
        /// What was told before is void.
        is_first: bool,
        topics: ToldTopics<'a>,
    },
    /// To the placer: where should this client be?
    Place { request: u64, asked: Asked },
    /// To the placer: this client is to be placed no more.
    Unplace { request: u64, client_id: &'a str },
    /// From the placer, behind the placement: that is it, or what is wrong with the request (empty: nothing).
    PlaceDone { request: u64, problem: &'a str },
    /// From the placer: this client is to be there.
    Placement {
        placement: Placement,
        follows: Follows,
    },
    /// A client is placed no more.
    Unplaced { client_id: &'a str },
    /// I have sent this client to that node, and why.
    Moved {
        to: NodeId,
        reason: RedirectionReason,
        client_id: &'a str,
    },
    /// From the rebalancer: what do your clients do, those from this cursor on?
    HabitsAsked { round: u64, cursor: u64 },
    /// To the rebalancer: some of them; `next`: the cursor of the others, `u64::MAX` if there are none.
    Habits {
        round: u64,
        next: u64,
        clients: Vec<ClientHabits>,
    },
    /// From the rebalancer: these clients of yours should be at another node.
    MovesOrdered {
        to: NodeId,
        reason: MoveReason,
        clients: Vec<&'a str>,
    },
    /// To the rebalancer: an operator asks.
    RebalanceAsked { request: u64, wish: RebalanceWish },
    /// From the rebalancer: the answer, a [`crate::RebalanceReport`] as JSON.
    RebalanceTold { request: u64, report: String },
    /// From the rebalancer: there is none.
    RebalanceRefused { request: u64, error: RebalanceError },
}

/// A position of the stream of backups of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BackupPosition {
    pub worker: u8,
    pub stream: u64,
    pub position: u64,
}

/// A client identifier that a node has, or is about to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Registration<'a> {
    pub client_id: &'a str,
    pub epoch: Epoch,
    /// Granted, and still being fetched or opened: others wait until that is done.
    pub is_claim: bool,
    /// Its client is connected.
    pub is_connected: bool,
}

/// A retained message with where it came from: its record has its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetainedRecord<'a> {
    pub origin: Origin,
    pub record: &'a [u8],
}

/// Part of something too long for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub bytes: &'a [u8],
    pub is_last: bool,
}

/// Bytes of a part.
pub(super) const PART_BYTES: usize = 256 * 1024;

/// Those of `hints::wire` are others.
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
    pub(super) const DRAIN: u8 = 11;
    pub(super) const NOT_FETCHED: u8 = 12;
    pub(super) const TAKE_BACK: u8 = 13;
    pub(super) const RETAINED_DIGEST: u8 = 14;
    pub(super) const RETAINED: u8 = 15;
    pub(super) const REGISTER_ASKED: u8 = 16;
    pub(super) const UNCLAIMED: u8 = 17;
    pub(super) const BARRIER: u8 = 18;
    pub(super) const BARRIER_DONE: u8 = 19;
    pub(super) const CONTESTED: u8 = 40;
    pub(super) const MERGE: u8 = 41;
    pub(super) const REFUSED: u8 = 30;
    pub(super) const REFUSAL_NOTED: u8 = 31;
    pub(super) const REPLICATE: u8 = 20;
    pub(super) const COPIES_HELD: u8 = 21;
    pub(super) const COPIES_WANTED: u8 = 22;
    pub(super) const MEMBERS: u8 = 50;
    pub(super) const SETTINGS: u8 = 51;
    pub(super) const STATE: u8 = 80;
    pub(super) const TOPICS: u8 = 82;
    pub(super) const PLACE: u8 = 83;
    pub(super) const PLACE_DONE: u8 = 84;
    pub(super) const PLACEMENT: u8 = 85;
    pub(super) const UNPLACED: u8 = 86;
    pub(super) const UNPLACE: u8 = 87;
    pub(super) const MOVED: u8 = 88;
    pub(super) const HABITS_ASKED: u8 = 89;
    pub(super) const HABITS: u8 = 90;
    pub(super) const MOVES_ORDERED: u8 = 91;
    pub(super) const REBALANCE_ASKED: u8 = 92;
    pub(super) const REBALANCE_TOLD: u8 = 93;
    pub(super) const REBALANCE_REFUSED: u8 = 94;
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
            Self::ClaimGranted {
                request,
                epoch,
                source,
                client_id,
            } => {
                put_u64(&mut out, *request);
                put_u64(&mut out, epoch.bits());
                out.push(u8::from(source.is_some()));
                put_u64(&mut out, source.map_or(0, |node| node.0));
                put_bytes(&mut out, client_id.as_bytes());
                kind::CLAIM_GRANTED
            }
            Self::ClaimDeferred { request, client_id } => {
                put_u64(&mut out, *request);
                put_bytes(&mut out, client_id.as_bytes());
                kind::CLAIM_DEFERRED
            }
            Self::RegisterAsked { round } => {
                put_u64(&mut out, *round);
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
                    out.push(u8::from(session.is_claim) | u8::from(session.is_connected) << 1);
                }
                kind::REGISTER
            }
            Self::RegisterEnd { round, view } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *view);
                kind::REGISTER_END
            }
            Self::Release { client_id } => {
                put_bytes(&mut out, client_id.as_bytes());
                kind::RELEASE
            }
            Self::Unclaimed { client_id } => {
                put_bytes(&mut out, client_id.as_bytes());
                kind::UNCLAIMED
            }
            Self::Owned { client_id, epoch } => {
                put_identified(&mut out, client_id, *epoch, kind::OWNED)
            }
            Self::Evict { client_id, epoch } => {
                put_identified(&mut out, client_id, *epoch, kind::EVICT)
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
            Self::NotFetched {
                request,
                is_elsewhere,
            } => {
                put_u64(&mut out, *request);
                out.push(u8::from(*is_elsewhere));
                kind::NOT_FETCHED
            }
            Self::Fetched { request, part } => put_part(&mut out, *request, *part, kind::FETCHED),
            Self::Drain { request } => {
                put_u64(&mut out, *request);
                kind::DRAIN
            }
            Self::Barrier { request } => {
                put_u64(&mut out, *request);
                kind::BARRIER
            }
            Self::BarrierDone { request } => {
                put_u64(&mut out, *request);
                kind::BARRIER_DONE
            }
            Self::TakeBack { client_id } => {
                put_bytes(&mut out, client_id.as_bytes());
                kind::TAKE_BACK
            }
            Self::Replicate { backup, part } => {
                put_position(&mut out, *backup);
                put_part(&mut out, 0, *part, kind::REPLICATE)
            }
            Self::BackupsHeld { backup, held } => {
                put_position(&mut out, *backup);
                put_u64(&mut out, *held);
                kind::COPIES_HELD
            }
            Self::BackupsWanted {
                worker,
                stream,
                wanted,
            } => {
                out.push(*worker);
                put_u64(&mut out, *stream);
                for (session, sequence) in wanted {
                    put_u64(&mut out, *session);
                    put_u64(&mut out, *sequence);
                }
                kind::COPIES_WANTED
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
            Self::Place { request, asked } => {
                put_u64(&mut out, *request);
                put_asked(&mut out, asked);
                kind::PLACE
            }
            Self::Unplace { request, client_id } => {
                put_u64(&mut out, *request);
                put_bytes(&mut out, client_id.as_bytes());
                kind::UNPLACE
            }
            Self::PlaceDone { request, problem } => {
                put_u64(&mut out, *request);
                put_bytes(&mut out, problem.as_bytes());
                kind::PLACE_DONE
            }
            Self::Placement { placement, follows } => {
                put_follows(&mut out, *follows);
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
            Self::HabitsAsked { round, cursor } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *cursor);
                kind::HABITS_ASKED
            }
            Self::Habits {
                round,
                next,
                clients,
            } => {
                put_u64(&mut out, *round);
                put_u64(&mut out, *next);
                put_habits(&mut out, clients);
                kind::HABITS
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
            Self::RebalanceTold { request, report } => {
                put_u64(&mut out, *request);
                put_bytes(&mut out, report.as_bytes());
                kind::REBALANCE_TOLD
            }
            Self::RebalanceRefused { request, error } => {
                put_u64(&mut out, *request);
                put_one_of(&mut out, &RebalanceError::ALL, error);
                kind::REBALANCE_REFUSED
            }
            Self::RetainedDigest { digest, is_answer } => {
                put_u64(&mut out, *digest);
                out.push(u8::from(*is_answer));
                kind::RETAINED_DIGEST
            }
            Self::Retained { messages } => {
                for RetainedRecord { origin, record } in messages {
                    put_u64(&mut out, origin.node.0);
                    put_u64(&mut out, origin.incarnation.0);
                    put_u64(&mut out, u64::from(origin.stream.0));
                    put_bytes(&mut out, record);
                }
                kind::RETAINED
            }
            Self::Refused(numbers) => put_numbers(&mut out, numbers, kind::REFUSED),
            Self::RefusalNoted(numbers) => put_numbers(&mut out, numbers, kind::REFUSAL_NOTED),
        };
        (kind, out)
    }
}

impl<'a> Message<'a> {
    /// The message of a kind and payload; `None`: malformed, or of a kind this version does not know.
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
                let node = NodeId(reader.u64()?);
                Self::ClaimGranted {
                    request,
                    epoch,
                    source: has_source.then_some(node),
                    client_id: reader.text()?,
                }
            }
            kind::CLAIM_DEFERRED => Self::ClaimDeferred {
                request: reader.u64()?,
                client_id: reader.text()?,
            },
            kind::REGISTER_ASKED => Self::RegisterAsked {
                round: reader.u64()?,
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
            },
            kind::UNCLAIMED => Self::Unclaimed {
                client_id: reader.text()?,
            },
            kind::OWNED => Self::Owned {
                client_id: reader.text()?,
                epoch: reader.epoch()?,
            },
            kind::EVICT => Self::Evict {
                client_id: reader.text()?,
                epoch: reader.epoch()?,
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
                part: reader.part()?,
            },
            kind::DRAIN => Self::Drain {
                request: reader.u64()?,
            },
            kind::NOT_FETCHED => Self::NotFetched {
                request: reader.u64()?,
                is_elsewhere: reader.u8()? != 0,
            },
            kind::BARRIER => Self::Barrier {
                request: reader.u64()?,
            },
            kind::BARRIER_DONE => Self::BarrierDone {
                request: reader.u64()?,
            },
            kind::TAKE_BACK => Self::TakeBack {
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
            kind::REFUSAL_NOTED => Self::RefusalNoted(reader.numbers()?),
            kind::REPLICATE => {
                let backup = reader.position()?;
                // No request.
                reader.u64()?;
                Self::Replicate {
                    backup,
                    part: reader.part()?,
                }
            }
            kind::COPIES_HELD => Self::BackupsHeld {
                backup: reader.position()?,
                held: reader.u64()?,
            },
            kind::COPIES_WANTED => Self::BackupsWanted {
                worker: reader.u8()?,
                stream: reader.u64()?,
                wanted: reader.rest_of(|reader| Some((reader.u64()?, reader.u64()?)))?,
            },
            kind::SETTINGS => Self::Settings(reader.rest_of(|it| Some((it.text()?, it.text()?)))?),
            kind::MEMBERS => Self::Members(reader.rest_of(Reader::membership)?),
            kind::STATE => Self::State(read_state(&mut reader)?),
            kind::TOPICS => {
                let (is_first, topics) = read_topics(&mut reader)?;
                Self::Topics { is_first, topics }
            }
            kind::PLACE => Self::Place {
                request: reader.u64()?,
                asked: read_asked(&mut reader)?,
            },
            kind::UNPLACE => Self::Unplace {
                request: reader.u64()?,
                client_id: reader.text()?,
            },
            kind::PLACE_DONE => Self::PlaceDone {
                request: reader.u64()?,
                problem: reader.text()?,
            },
            kind::PLACEMENT => Self::Placement {
                follows: read_follows(&mut reader)?,
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
            kind::HABITS_ASKED => Self::HabitsAsked {
                round: reader.u64()?,
                cursor: reader.u64()?,
            },
            kind::HABITS => Self::Habits {
                round: reader.u64()?,
                next: reader.u64()?,
                clients: read_habits(&mut reader)?,
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
            kind::REBALANCE_TOLD => Self::RebalanceTold {
                request: reader.u64()?,
                report: reader.text()?.to_owned(),
            },
            kind::REBALANCE_REFUSED => Self::RebalanceRefused {
                request: reader.u64()?,
                error: reader.one_of(&RebalanceError::ALL)?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

/// The place in a list of one that is in it.
fn put_one_of<T: PartialEq>(out: &mut Vec<u8>, all: &[T], one: &T) {
    let place = all.iter().position(|it| it == one);
    out.push(
        place
            .and_then(|it| u8::try_from(it).ok())
            .unwrap_or(u8::MAX),
    );
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_position(out: &mut Vec<u8>, backup: BackupPosition) {
    out.push(backup.worker);
    put_u64(out, backup.stream);
    put_u64(out, backup.position);
}

fn put_identified(out: &mut Vec<u8>, client_id: &str, epoch: Epoch, kind: u8) -> u8 {
    put_bytes(out, client_id.as_bytes());
    put_u64(out, epoch.bits());
    kind
}

fn put_part(out: &mut Vec<u8>, request: u64, part: Part<'_>, kind: u8) -> u8 {
    put_u64(out, request);
    out.push(u8::from(part.is_last));
    put_bytes(out, part.bytes);
    kind
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

/// What is left of a payload that is being read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn epoch(&mut self) -> Option<Epoch> {
        self.u64().map(Epoch::from_bits)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// One of a list, by its place.
    fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.u8()?)).cloned()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn part(&mut self) -> Option<Part<'a>> {
        let flags = self.u8().filter(|flags| *flags < 2)?;
        Some(Part {
            is_last: flags != 0,
            bytes: self.bytes()?,
        })
    }

    fn position(&mut self) -> Option<BackupPosition> {
        Some(BackupPosition {
            worker: self.u8()?,
            stream: self.u64()?,
            position: self.u64()?,
        })
    }

    fn registration(&mut self) -> Option<Registration<'a>> {
        let (client_id, epoch) = (self.text()?, self.epoch()?);
        let flags = self.u8().filter(|flags| *flags < 4)?;
        Some(Registration {
            client_id,
            epoch,
            is_claim: flags & 1 != 0,
            is_connected: flags & 2 != 0,
        })
    }

    fn membership(&mut self) -> Option<Membership<'a>> {
        Some(Membership {
            node: NodeId(self.u64()?),
            changes: self.u64()?,
            name: self.text()?,
        })
    }

    pub(super) fn retained(&mut self) -> Option<RetainedRecord<'a>> {
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

    /// Items until the end.
    pub(super) fn rest_of<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            items.push(item(self)?);
        }
        Some(items)
    }
}

/// The order of writes of a topic: the last one wins, ties go to the higher node (rule 17).
pub(super) type WriteTime = (HybridTime, NodeId);

#[cfg(test)]
mod tests {
    use super::{super::hints::HINT_KINDS, *};

    fn retained(node: u64, record: &[u8]) -> RetainedRecord<'_> {
        let origin = Origin {
            node: NodeId(node),
            incarnation: Incarnation(3),
            stream: StreamId(4),
        };
        RetainedRecord { origin, record }
    }

    fn refused() -> RefusedNumbers {
        RefusedNumbers {
            incarnation: Incarnation(5),
            stream: StreamId(6),
            runs: vec![(1, 3), (7, 7)],
        }
    }

    fn registration(client_id: &str, epoch: u64) -> Registration<'_> {
        Registration {
            client_id,
            epoch: Epoch::from_bits(epoch),
            is_claim: epoch == 1,
            is_connected: epoch == 2,
        }
    }

    fn membership(node: u64, name: &str) -> Membership<'_> {
        Membership {
            node: NodeId(node),
            changes: 3,
            name,
        }
    }

    fn state() -> NodeState {
        let rates = |first| crate::Rates {
            in_messages: first,
            in_bytes: first + 1,
            out_messages: first + 2,
            out_bytes: first + 3,
        };
        let address = |transport, topic_prefix: &str| crate::ClientAddress {
            likeness: crate::ListenerLikeness {
                transport,
                topic_prefix: topic_prefix.into(),
            },
            address: "host:1".into(),
        };
        NodeState {
            load: crate::NodeLoad {
                cpu_permille: Some(500),
                external: rates(1),
                internal: rates(5),
                connections: 9,
                memory_bytes: Some(10),
                memory_limit_bytes: Some(11),
                is_draining: true,
                is_full: true,
            },
            addresses: vec![
                address(crate::ClientTransport::Tcp, ""),
                address(crate::ClientTransport::Wss, "tenant/"),
            ],
            http_address: Some("host:2".into()),
        }
    }

    fn asked() -> Asked {
        let wanted = |best, rate| thicket_placement::Wanted {
            filter: "a/+".to_owned(),
            best,
            rate,
        };
        Asked {
            client_id: "c".to_owned(),
            publish: vec![("x".to_owned(), Some(2.5)), ("y".to_owned(), None)],
            subscribe: vec![wanted(Some(7), None), wanted(None, Some(1.0))],
            max_sessions: 4,
        }
    }

    fn placement() -> Placement {
        let session = |number, node| thicket_placement::PlacedSession {
            number,
            node,
            publish: vec![("x".to_owned(), 2.5)],
            subscribe: vec![("y".to_owned(), 1.0), ("z".to_owned(), 0.0)],
        };
        Placement {
            client_id: "c".to_owned(),
            sessions: vec![session(1, 5), session(2, 6)],
        }
    }

    fn messages() -> Vec<Message<'static>> {
        let part = Part {
            bytes: b"part",
            is_last: true,
        };
        let backup = BackupPosition {
            worker: 1,
            stream: 2,
            position: 3,
        };
        vec![
            Message::Claim {
                request: 1,
                view: 2,
                client_id: "c",
            },
            Message::ClaimGranted {
                request: 1,
                epoch: Epoch::from_bits(9),
                source: Some(NodeId(4)),
                client_id: "c",
            },
            Message::ClaimGranted {
                request: 1,
                epoch: Epoch::from_bits(9),
                source: None,
                client_id: "c",
            },
            Message::ClaimDeferred {
                request: 3,
                client_id: "c",
            },
            Message::RegisterAsked { round: 4 },
            Message::Register {
                round: 4,
                is_first: true,
                sessions: vec![registration("a", 1), registration("b", 2)],
            },
            Message::RegisterEnd { round: 4, view: 5 },
            Message::Release { client_id: "c" },
            Message::Unclaimed { client_id: "c" },
            Message::Owned {
                client_id: "c",
                epoch: Epoch::from_bits(6),
            },
            Message::Evict {
                client_id: "c",
                epoch: Epoch::from_bits(7),
            },
            Message::Fetch {
                request: 8,
                client_id: "c",
                purpose: Purpose::Merge,
            },
            Message::Contested { client_id: "c" },
            Message::Merge {
                epoch: Epoch::from_bits(12),
                source: NodeId(4),
                source_epoch: Epoch::from_bits(10),
                client_id: "c",
            },
            Message::Fetched { request: 8, part },
            Message::Drain { request: 8 },
            Message::NotFetched {
                request: 8,
                is_elsewhere: true,
            },
            Message::TakeBack { client_id: "c" },
            Message::Barrier { request: 8 },
            Message::BarrierDone { request: 8 },
            Message::RetainedDigest {
                digest: 10,
                is_answer: true,
            },
            Message::Retained {
                messages: vec![retained(1, b"record"), retained(2, b"")],
            },
            Message::Refused(refused()),
            Message::RefusalNoted(refused()),
            Message::Replicate { backup, part },
            Message::BackupsHeld { backup, held: 1 },
            Message::BackupsWanted {
                worker: 1,
                stream: 2,
                wanted: vec![(3, 4), (5, 6)],
            },
            Message::Members(vec![membership(1, "north"), membership(2, "")]),
            Message::Settings(vec![("routing", "mesh"), ("name", "")]),
            Message::Place {
                request: 1,
                asked: asked(),
            },
            Message::PlaceDone {
                request: 1,
                problem: "rate",
            },
            Message::Placement {
                follows: Follows::Subscribers,
                placement: placement(),
            },
            Message::Placement {
                follows: Follows::Request { max_sessions: 0 },
                placement: placement(),
            },
            Message::Placement {
                follows: Follows::Request { max_sessions: 4 },
                placement: placement(),
            },
            Message::Placement {
                follows: Follows::Habits { refused: 3 },
                placement: placement(),
            },
            Message::Unplaced { client_id: "c" },
            Message::Unplace {
                request: 1,
                client_id: "c",
            },
            Message::Topics {
                is_first: true,
                topics: vec![("a/b", 1024), ("c", 0)],
            },
            Message::State(NodeState::default()),
            Message::State(state()),
            Message::Moved {
                to: NodeId(5),
                reason: RedirectionReason::Rebalanced,
                client_id: "c",
            },
            Message::HabitsAsked {
                round: 3,
                cursor: 1 << 32 | 7,
            },
            Message::Habits {
                round: 3,
                next: u64::MAX,
                clients: vec![ClientHabits {
                    client_id: "c".into(),
                    can_move: true,
                    millis_per_s: 1_500,
                    publishes: vec![("a/b".into(), 900)],
                    filters: vec!["a/+".into(), "b".into()],
                }],
            },
            Message::MovesOrdered {
                to: NodeId(5),
                reason: MoveReason::Topics,
                clients: vec!["c", "d"],
            },
            Message::RebalanceAsked {
                request: 4,
                wish: RebalanceWish::DryRun,
            },
            Message::RebalanceTold {
                request: 4,
                report: "{}".into(),
            },
            Message::RebalanceRefused {
                request: 4,
                error: RebalanceError::Moving,
            },
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for message in messages() {
            let (kind, payload) = message.encode();
            assert!(!HINT_KINDS.contains(&kind), "{kind} is that of a hint");
            assert_eq!(Message::decode(kind, &payload), Some(message));
        }
    }

    #[test]
    fn shortened_and_lengthened_messages_and_unknown_kinds_are_refused() {
        for message in messages() {
            let (kind, mut payload) = message.encode();
            let is_list = matches!(
                message,
                Message::Register { .. }
                    | Message::Retained { .. }
                    | Message::Refused(_)
                    | Message::RefusalNoted(_)
                    | Message::BackupsWanted { .. }
                    | Message::Members(_)
                    | Message::Settings(_)
                    | Message::State(_)
                    | Message::Topics { .. }
                    | Message::Place { .. }
                    | Message::Placement { .. }
                    | Message::Habits { .. }
                    | Message::MovesOrdered { .. }
            );
            for len in 0..payload.len() {
                let shorter = Message::decode(kind, &payload[..len]);
                assert!(shorter.is_none() || is_list, "{message:?} cut to {len}");
            }
            payload.push(0);
            assert_eq!(
                Message::decode(kind, &payload),
                None,
                "{message:?} and a byte"
            );
            assert_eq!(Message::decode(200, &payload), None);
        }
    }
}
