//! A worker that starts with what was stored before its node stopped.
//!
//! Values first, then the records of the logs in order, then `finish_recovery`. Sessions are as if their clients had disconnected now, or at the time
//! in the store. Sessions of a log that is not this worker's (there are fewer workers now) are stored again in its own; the shell removes the other
//! log when that is stored.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
    time::Duration,
};

use thicket_session::{
    server::{
        JournalEntries, JournalEntry, JournalError, Message, RecoveredSession, SnapshotError,
        StoredMessage, StoredSession, Subscribed, decode_subscription,
    },
    topic::SubscriptionFilter,
};

use super::{
    checkpoint::Checkpoints,
    context::Context,
    expiry::restart_timers,
    replication::Primaries,
    state::{
        interests::Member,
        role::{Handed, Role},
        seen::{AcceptedPublications, Named, publication_id},
        sessions::Session,
        timers::Timer,
    },
};
use crate::{
    Keyspace, Now, RecoverError, Stored,
    journal::hexadecimal,
    messages::{InterestChange, SessionState},
};

/// A will that was due while the node was down is published this long after it is back, when the sessions that subscribe to it are too.
const WILL_GRACE: Duration = Duration::from_secs(1);

/// One session of a log, by the log and its number there.
type StoredKey = (u8, u64);

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    sessions: BTreeMap<StoredKey, Recovering>,
    /// Wills that were being published.
    wills: BTreeMap<StoredKey, StoredSession>,
    /// Messages with names, of the log that is being read.
    named: HashMap<u64, Rc<Message>>,
    /// The last message of the record that is being read.
    last: Option<Rc<Message>>,
    /// Its publication, if it is one that may be sent again.
    last_publication: Option<Named>,
    log: u8,
}

#[derive(Debug)]
struct Recovering {
    stored: StoredSession,
    subscriptions: Vec<(SubscriptionFilter, Subscribed)>,
    held: RecoveredSession,
    accepted: AcceptedPublications,
    is_handed: bool,
}

impl Primaries {
    fn recover_session(
        &mut self,
        cx: &mut Context,
        now: Now,
        (log, number): StoredKey,
        recovering: Recovering,
        changes: &mut Vec<InterestChange>,
    ) {
        let stored = recovering.stored;
        let serial = cx.serial();
        let limits = &cx.config.limits;
        let client_id: Rc<str> = stored.client_id.as_str().into();
        let mut session = Session::new(
            serial,
            client_id,
            stored.uid,
            stored.expiry_interval,
            limits,
        );
        let mut held = recovering.held;
        session.touch_all(held.take_touched());
        held.restore(&mut session.outbound, &mut session.inbound);
        // Times are not stored: all that waits has waited since now at the latest.
        session.outbound.note_time(now.instant);
        session.subscriptions = recovering.subscriptions.into_iter().collect();
        session.accepted = recovering.accepted;
        let next = session.outbound.next_sequence();
        if recovering.is_handed {
            let switchover = None;
            let from = next;
            session.role = Role::Handed(Handed { switchover, from });
        }
        let is_disconnected = stored.disconnected_at.is_some();
        let client_id = stored.client_id.clone();
        session.revive(now, stored);
        session.is_interrupted = true;
        session.inbound.handle_restart();
        let is_ours = log == cx.journal.log();
        if is_ours {
            cx.journal.pass_number(number);
            session.stored.number = number;
        }
        let subscriptions = session.subscriptions.clone();
        let key = cx.sessions.insert(session);
        for (filter, subscribed) in subscriptions {
            let member = Member::away(subscribed.subscription);
            changes.extend(cx.interests.subscribe(key, &filter, member));
            if !is_ours {
                let filter = filter.to_string();
                let key = [&[log], &number.to_be_bytes()[..], filter.as_bytes()].concat();
                cx.journal.remove_key(Keyspace::Subscriptions, key);
            }
        }
        restart_timers(cx, now, key);
        cx.report_session(&client_id, SessionState::Waiting);
        if !is_ours {
            cx.journal.remove_session(log, number);
        }
        if !is_ours {
            // Stored again, under its own number.
            self.store_whole(cx, now, key);
        } else if !is_disconnected {
            self.store_session(cx, now, key);
        }
    }
}

impl Session {
    /// Restores what was stored of it; its client is not connected.
    pub(super) fn revive(&mut self, now: Now, stored: StoredSession) {
        let disconnected_at = stored.disconnected_at.unwrap_or(now.instant);
        self.disconnected_at = Some(disconnected_at.min(now.instant));
        self.epoch = stored.epoch;
        self.set_expiry(stored.expiry_interval);
        if let Some(will) = stored.will {
            let delay = Duration::from_secs(will.delay_interval.into());
            let due = stored.will_due.unwrap_or(now.instant + delay);
            self.will_due = Some(due.max(now.instant + WILL_GRACE));
            self.will = Some(will.into());
        }
    }
}

impl Recovery {
    /// Reads a value or a record that was stored before the node stopped.
    pub(super) fn read(
        &mut self,
        cx: &mut Context,
        checkpoints: &mut Checkpoints,
        now: Now,
        stored: Stored<'_>,
    ) -> Result<(), RecoverError> {
        match stored {
            Stored::Value {
                keyspace,
                key,
                value,
            } => self
                .take_value(now, keyspace, key, value)
                .map_err(|problem| RecoverError::Value {
                    keyspace,
                    key: hexadecimal(key),
                    problem,
                }),
            Stored::Record { log, record } => self
                .take_record(cx, checkpoints, now, log, record)
                .map_err(|error| RecoverError::Record {
                    log,
                    problem: error.to_string(),
                }),
        }
    }

    /// All was read: the sessions are here, and their interests are announced.
    pub(super) fn finish(self, cx: &mut Context, primaries: &mut Primaries, now: Now) {
        let mut changes = Vec::new();
        for ((log, number), recovering) in self.sessions {
            primaries.recover_session(cx, now, (log, number), recovering, &mut changes);
        }
        if !self.wills.is_empty() {
            cx.timers
                .set(now.instant + WILL_GRACE, Timer::RecoveredWills);
        }
        for (place, stored) in self.wills {
            primaries.recover_will(cx, now, place, stored);
        }
        primaries.covers.look_for_uncovered();
        // `is_settled` waits for the answer; the hub takes it as the end of the recovery.
        cx.announce_all(changes);
    }

    fn take_value(
        &mut self,
        now: Now,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), String> {
        let place = key.split_first_chunk::<9>().map(|(place, _)| {
            let (number, _) = place[1..]
                .split_first_chunk()
                .expect("eight bytes are left");
            (place[0], u64::from_be_bytes(*number))
        });
        let place = place.ok_or("its key is too short")?;
        let problem = |error: SnapshotError| error.to_string();
        match keyspace {
            Keyspace::Sessions => {
                let stored = StoredSession::decode(value, now.times_of_day()).map_err(problem)?;
                if stored.expiry_interval == 0 {
                    self.wills.insert(place, stored);
                    return Ok(());
                }
                let recovering = Recovering {
                    stored,
                    subscriptions: Vec::new(),
                    held: RecoveredSession::default(),
                    accepted: AcceptedPublications::default(),
                    is_handed: false,
                };
                self.sessions.insert(place, recovering);
            }
            Keyspace::Subscriptions => {
                let subscribed = decode_subscription(value).map_err(problem)?;
                // A subscription without its session is impossible: they are removed together.
                if let Some(recovering) = self.sessions.get_mut(&place) {
                    recovering.subscriptions.push(subscribed);
                }
            }
            Keyspace::Retained | Keyspace::Members => return Err("it is not a worker's".into()),
        }
        Ok(())
    }

    fn take_record(
        &mut self,
        cx: &mut Context,
        checkpoints: &mut Checkpoints,
        now: Now,
        log: u8,
        record: &[u8],
    ) -> Result<(), JournalError> {
        if self.log != log {
            self.named.clear();
            self.log = log;
        }
        self.last = None;
        self.last_publication = None;
        for entry in JournalEntries::new(now.times_of_day(), record)? {
            match entry? {
                JournalEntry::Message(message) => {
                    checkpoints.pass_name(message.name);
                    self.take_message(&message);
                    if let Some(publication) = self.last_publication {
                        cx.arrivals.seen.insert(publication);
                    }
                }
                JournalEntry::Noted {
                    publication,
                    checksum,
                } => {
                    let id = publication_id(publication);
                    cx.arrivals.seen.insert(Named { id, checksum });
                }
                JournalEntry::Seen { uid, generations } => {
                    cx.arrivals.seen.restore(uid, *generations);
                }
                entry => {
                    if log == cx.journal.log()
                        && let Some(number) = entry.session()
                    {
                        // Entries of a session that has ended must not become those of another one.
                        cx.journal.pass_number(number);
                    }
                    self.take_entry(log, &entry)?;
                }
            }
        }
        Ok(())
    }

    fn take_message(&mut self, stored: &StoredMessage<'_>) {
        let message = Message::new(stored.id, &stored.publish, stored.expires_at);
        let message = Rc::new(message.with_publication(stored.publication));
        if stored.name > 0 {
            self.named.insert(stored.name, Rc::clone(&message));
        }
        self.last_publication = Named::of(&message);
        self.last = Some(message);
    }

    fn take_entry(&mut self, log: u8, entry: &JournalEntry<'_>) -> Result<(), JournalError> {
        let number = entry.session().unwrap_or_default();
        match entry {
            JournalEntry::Append(append) => {
                let message = match append.message {
                    0 => self.last.as_ref(),
                    name => self.named.get(&name),
                };
                let message = message.ok_or(JournalError::Malformed("message of an append"))?;
                if let Some(recovering) = self.sessions.get_mut(&(log, number)) {
                    recovering.held.handle_append(append, message);
                    if let Some(named) = self.last_publication.filter(|_| append.message == 0) {
                        let taken = named.alone();
                        recovering.accepted.insert_before(named.id.session, taken);
                    }
                }
            }
            JournalEntry::Accepted {
                uid, generations, ..
            } => {
                if let Some(recovering) = self.sessions.get_mut(&(log, number)) {
                    recovering.accepted.insert_before(*uid, **generations);
                }
            }
            JournalEntry::Handed { .. } => {
                if let Some(recovering) = self.sessions.get_mut(&(log, number)) {
                    recovering.is_handed = true;
                }
            }
            // It has no value.
            JournalEntry::Ended { .. } => {}
            JournalEntry::Value { .. }
            | JournalEntry::Subscribed { .. }
            | JournalEntry::Unsubscribed { .. }
            | JournalEntry::Whole { .. }
            | JournalEntry::Covered { .. }
            | JournalEntry::Members { .. }
            | JournalEntry::Adopted { .. }
            | JournalEntry::Left { .. }
            | JournalEntry::History { .. }
            | JournalEntry::Passed { .. } => {
                return Err(JournalError::Malformed("an entry for other nodes"));
            }
            entry => {
                if let Some(held) = held_by(&mut self.sessions, log, number) {
                    apply_entry(held, entry);
                }
            }
        }
        Ok(())
    }
}

/// An entry about one session that carries no message.
pub(super) fn apply_entry(held: &mut RecoveredSession, entry: &JournalEntry<'_>) {
    match *entry {
        JournalEntry::Assign {
            sequence,
            packet_id,
            ..
        } => held.handle_assign(sequence, packet_id),
        JournalEntry::Done {
            packet_id, count, ..
        } => held.handle_done(packet_id, count),
        JournalEntry::Received {
            sequence,
            packet_id,
            ..
        } => held.handle_received(sequence, packet_id),
        JournalEntry::Dropped { sequence, .. } => held.handle_dropped(sequence),
        JournalEntry::Inbound { id, .. } => held.handle_inbound(id),
        JournalEntry::Released { packet_id, .. } => held.handle_released(packet_id),
        JournalEntry::Finished { ref range, .. } => held.handle_finished((**range).clone()),
        JournalEntry::Forgotten { .. } => held.handle_forgotten(),
        JournalEntry::Touched { filter, .. } => {
            // It was valid when its client sent it.
            if let Ok(filter) = SubscriptionFilter::parse(filter) {
                held.handle_touched(filter);
            }
        }
        JournalEntry::Session {
            next_sequence,
            next_packet_id,
            inbound_generation,
            ..
        } => held.handle_session(next_sequence, next_packet_id, inbound_generation),
        JournalEntry::Message(_)
        | JournalEntry::Append(_)
        | JournalEntry::Run(_)
        | JournalEntry::Seen { .. }
        | JournalEntry::Noted { .. }
        | JournalEntry::Value { .. }
        | JournalEntry::Subscribed { .. }
        | JournalEntry::Unsubscribed { .. }
        | JournalEntry::Ended { .. }
        | JournalEntry::Whole { .. }
        | JournalEntry::Covered { .. }
        | JournalEntry::Handed { .. }
        | JournalEntry::Members { .. }
        | JournalEntry::Adopted { .. }
        | JournalEntry::Left { .. }
        | JournalEntry::History { .. }
        | JournalEntry::Accepted { .. }
        | JournalEntry::Passed { .. } => debug_assert!(false, "looked at by the caller"),
    }
}

fn held_by(
    sessions: &mut BTreeMap<StoredKey, Recovering>,
    log: u8,
    number: u64,
) -> Option<&mut RecoveredSession> {
    Some(&mut sessions.get_mut(&(log, number))?.held)
}
