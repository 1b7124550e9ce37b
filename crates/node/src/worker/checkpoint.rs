//! Rewrites what is still needed, so that old segments of the log can be deleted.
//!
//! A checkpoint goes over all sessions, a bounded amount a round, and writes what they hold behind what is written meanwhile. Entries are named by
//! session and sequence, so the order among sessions does not matter and what is written twice is harmless. When it is complete, no segment before
//! the one it began in is needed.

use thicket_session::server::{FinishedMessages, Generations, Held};

use super::{
    context::Context,
    state::{
        journal::{
            write_accepted, write_counters, write_finished, write_held, write_message,
            write_touched,
        },
        sessions::SessionKey,
    },
};
use crate::{Now, WorkerOutput};

/// Bytes written for a checkpoint in one round.
const BYTES_PER_ROUND: usize = 1024 * 1024;

/// On a disk that is short of space, the log is checked once per this many status reports, which come at least every ten milliseconds. A check is
/// expensive: only a walk over all sessions shows whether a queue has been emptied.
const SHORT_LOOKS: u32 = 100;

/// What a session accepted of one publisher.
const PUBLISHER_BYTES: u64 = 16 + Generations::LEN as u64 + 12;

/// A range of finished messages.
const RANGE_BYTES: u64 = 12;

/// A checkpoint under way.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// The segment it began in.
    segment: u64,
    /// The session it is at.
    next: u32,
    /// The message of that session it is at; 0: not begun.
    sequence: u64,
    /// Names below this were given before it began.
    first_name: u64,
}

/// When the log was last checked.
#[derive(Debug)]
pub(super) struct Checkpoints {
    current: Option<Checkpoint>,
    next_name: u64,
    /// The log is checked again when it has this many bytes,
    look_at: u64,
    /// or, on a disk that is short of space, after this many status reports.
    look_in: u32,
    /// The segment the last one ended in.
    ended_in: u64,
}

impl Checkpoints {
    pub const fn new(small_log_bytes: u64) -> Self {
        Self {
            current: None,
            next_name: 1,
            look_at: small_log_bytes,
            look_in: 0,
            ended_in: 0,
        }
    }

    /// Names up to this one were found in the log.
    pub fn pass_name(&mut self, name: u64) {
        self.next_name = self.next_name.max(name + 1);
    }

    /// Begins a checkpoint if the log is at least twice what is needed of it, or if it is nearly full and anything can be gained. On a disk that is
    /// short of space only if what is needed is sure to fit: it is needed twice until the checkpoint is complete.
    pub(super) fn begin_if_worthwhile(&mut self, cx: &Context) {
        let status = cx.journal.status();
        let may_gain = status.segment > self.ended_in;
        let is_full = cx.journal.is_full() && may_gain;
        self.look_in = self.look_in.saturating_sub(1);
        let is_due = if status.is_short {
            may_gain && self.look_in == 0
        } else {
            status.bytes >= self.look_at || is_full
        };
        if self.current.is_some() || !is_due {
            return;
        }
        let live = live_bytes(cx);
        self.look_at = (2 * live).max(live + cx.config.small_log_bytes);
        self.look_in = SHORT_LOOKS;
        let is_large = status.bytes >= self.look_at && !status.is_short;
        let fits = live < status.space / 2;
        if !(is_large || (is_full || status.is_short) && fits) {
            return;
        }
        self.current = Some(Checkpoint {
            segment: status.segment,
            next: 0,
            sequence: 0,
            first_name: self.next_name,
        });
    }

    /// Whether another round is wanted soon.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// Writes the next part of a checkpoint into the record of this round.
    pub(super) fn advance(&mut self, cx: &mut Context, now: Now) {
        let Some(mut checkpoint) = self.current.take() else {
            return;
        };
        let space = cx.journal.status().space as usize / 2;
        let enough = cx.journal.writer.len() + BYTES_PER_ROUND.min(space);
        if checkpoint.next == 0 && checkpoint.sequence == 0 {
            for (uid, generations) in cx.arrivals.seen.iter() {
                cx.journal.writer.seen(uid, generations);
            }
        }
        while cx.journal.writer.len() < enough {
            if checkpoint.next as usize >= cx.sessions.slots() {
                // Its last part is in the record of this round, which is stored before the order is carried out.
                let segment = checkpoint.segment;
                cx.outputs
                    .push_back(WorkerOutput::RemoveLogBefore { segment });
                self.ended_in = cx.journal.status().segment;
                return;
            }
            self.write_session(cx, now, &mut checkpoint, enough);
        }
        self.current = Some(checkpoint);
    }

    /// Writes of one session what fits; moves on to the next one when it is complete.
    fn write_session(
        &mut self,
        cx: &mut Context,
        now: Now,
        checkpoint: &mut Checkpoint,
        enough: usize,
    ) {
        let key = SessionKey(checkpoint.next);
        let Some(session) = cx
            .sessions
            .get(key)
            .filter(|session| session.stored.is_some())
        else {
            checkpoint.next += 1;
            checkpoint.sequence = 0;
            return;
        };
        let writer = &mut cx.journal.writer;
        if checkpoint.sequence == 0 {
            if session.role.handed().is_some() && !session.role.is_branch() {
                writer.handed(session.stored.number);
            }
            write_counters(writer, session);
            write_finished(writer, session);
            write_touched(writer, session);
            write_accepted(writer, session);
        }
        for held in session.outbound.held_from(checkpoint.sequence) {
            if writer.len() >= enough {
                checkpoint.sequence = held.sequence();
                return;
            }
            let name = match &held {
                Held::Queued { delivery, .. } | Held::InFlight { delivery, .. }
                    if std::rc::Rc::strong_count(&delivery.message) > 1 =>
                {
                    let message = &delivery.message;
                    if message.stored_name() < checkpoint.first_name {
                        message.set_stored_name(self.next_name);
                        self.next_name += 1;
                        write_message(writer, now, message, message.stored_name());
                    }
                    message.stored_name()
                }
                Held::Queued { .. } | Held::InFlight { .. } | Held::Received { .. } => 0,
            };
            write_held(writer, now, session.stored.number, &held, name);
        }
        checkpoint.next += 1;
        checkpoint.sequence = 0;
    }
}

/// What the sessions hold, an overestimate: a message that several hold counts for each.
fn live_bytes(cx: &Context) -> u64 {
    let stored = cx
        .sessions
        .iter()
        .filter(|(_, session)| session.stored.is_some());
    stored
        .map(|(_, session)| {
            let held = session.outbound.queued_bytes() + session.outbound.in_flight_bytes();
            let finished = session.outbound.finished();
            let ranges = finished.map_or(0, FinishedMessages::ranges) as u64;
            let publishers = session.accepted.publishers() as u64;
            128 + held + PUBLISHER_BYTES * publishers + RANGE_BYTES * ranges
        })
        .sum::<u64>()
        + PUBLISHER_BYTES * cx.arrivals.seen.publishers() as u64
}
