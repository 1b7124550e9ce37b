//! The backup's side: it applies the records of primaries' streams, and reports its progress.

use std::rc::Rc;

use thicket_mqtt::Qos;
use thicket_overlay::NodeId;
use thicket_session::{
    server::{
        Delivery, Generations, Held, JournalEntries, JournalEntry, Message, MessageId, PlainAppend,
        StoredMessage, StoredSession, Subscribed, decode_subscription,
    },
    topic::SubscriptionFilter,
};

use super::state::{Source, Sources, Unacknowledged};
use crate::{
    EventLevel, Now,
    messages::{Adopted, BackupReport, InterestChange, ReplicationStream, ToHub, ToWorker},
    queue::History,
    worker::{
        Worker,
        context::Context,
        recover::apply_entry,
        state::{
            barriers::Behind,
            interests::Member,
            replica::{
                backup::{Awaited, Backup, SourceKey, StreamPosition},
                stream::Progress,
            },
            role::Role,
            seen::{AcceptedPublications, Named},
            sessions::{Session, SessionKey},
        },
    },
};

/// A record that is being read.
#[derive(Debug)]
struct Reading {
    at: StreamPosition,
    last: Option<Rc<Message>>,
    /// Of the last message.
    publication: Option<Named>,
    changes: Vec<InterestChange>,
    /// Messages that must arrive before the position is applied.
    blocks: u32,
    unblocked: Vec<StreamPosition>,
    /// Sessions whose full sync this record ends.
    full_syncs: Vec<u64>,
    /// A message that was named has not arrived.
    lacks: bool,
    /// Sessions of earlier primaries that this one adopts.
    adopted: Vec<Adopted>,
    /// Those of them that it has fully synced, or that have ended.
    replaced: Vec<u128>,
    /// The session of the last entry about messages: mostly that of the next entry too.
    found: Option<(u64, SessionKey)>,
}

impl Reading {
    /// The session accepted a message that this node receives itself.
    #[inline]
    fn apply_plain_append(
        &mut self,
        now: Now,
        (backup, accepted): (&mut Backup, &mut AcceptedPublications),
        append: &PlainAppend,
        placeholder: &Rc<Message>,
    ) {
        let known = backup.take_pending(append.reference);
        if let Some(awaited) = backup.take_awaited(append.sequence) {
            self.unblocked.extend(awaited.blocks);
        }
        let has_received = known.is_some();
        if let Some(message) = &known {
            accepted.note(message);
        }
        let message = known.unwrap_or_else(|| Rc::clone(placeholder));
        backup.held.note_time(now.instant);
        backup.held.handle_plain_append(append, message);
        if !has_received {
            let is_given = append.packet_id.is_some() && append.qos == Qos::ExactlyOnce;
            self.await_message(now, backup, append.reference, append.sequence, is_given);
        }
    }

    /// The session accepted a message that has not arrived. `is_given`: its client may have it under an identifier that must not be used for another
    /// one.
    fn await_message(
        &mut self,
        now: Now,
        backup: &mut Backup,
        id: MessageId,
        sequence: u64,
        is_given: bool,
    ) {
        let awaited = Awaited {
            since: now.instant,
            blocks: is_given.then_some(self.at),
            is_asked: false,
        };
        self.blocks += u32::from(is_given);
        backup.awaited.insert((id, sequence), awaited);
        self.lacks = true;
    }
}

impl Worker {
    /// A record of a primary's stream.
    pub(in super::super) fn handle_replicated(
        &mut self,
        now: Now,
        from: NodeId,
        stream: ReplicationStream,
        position: u64,
        record: &[u8],
    ) {
        let (source, stream) = ((from, stream.worker), stream.id);
        let known = self.sources.sources.entry(source).or_default();
        let mut changes = Vec::new();
        if known.stream != stream {
            if position != 1 {
                // Of a stream that has ended.
                return;
            }
            self.end_source(now, source, &mut changes);
            let begun = Source {
                stream,
                ..Source::default()
            };
            self.sources.sources.insert(source, begun);
        } else if position != known.position + 1 {
            return;
        }
        let at = StreamPosition {
            source,
            stream,
            position,
        };
        self.sources.apply(&mut self.cx, now, at, record, changes);
    }

    /// The primary begins a new stream. It may lack messages that arrived only here while other nodes were partitioned from it: a backup that holds
    /// such messages is promoted as a session of its own, until the primary has merged it.
    pub(super) fn end_source(
        &mut self,
        now: Now,
        source: SourceKey,
        changes: &mut Vec<InterestChange>,
    ) {
        let ended = self.sources.sources.remove(&source).unwrap_or_default();
        self.sources.forget_wills(&ended.wills);
        for key in ended.sessions.into_values() {
            let session = self.cx.sessions.get_mut(key);
            let backup = session.and_then(|session| session.backup_mut());
            if backup.is_some_and(|backup| !backup.pending.is_empty()) {
                self.promote_as_branch(now, key, changes);
            } else {
                changes.extend(self.sources.drop_backup(&mut self.cx, key));
            }
        }
        let adopted = ended.adopted.into_values().collect();
        self.end_adopted(now, source, adopted, changes);
    }
}

impl Sources {
    /// Applies the next record of a stream. `changes`: of interests, which the end of an earlier stream caused.
    fn apply(
        &mut self,
        cx: &mut Context,
        now: Now,
        at: StreamPosition,
        record: &[u8],
        changes: Vec<InterestChange>,
    ) {
        let StreamPosition {
            source, position, ..
        } = at;
        let mut reading = Reading {
            at,
            last: None,
            publication: None,
            changes,
            blocks: 0,
            unblocked: Vec::new(),
            full_syncs: Vec::new(),
            lacks: false,
            adopted: Vec::new(),
            replaced: Vec::new(),
            found: None,
        };
        if let Err(error) = self.read_backups(cx, now, &mut reading, record) {
            let fields = vec![("node", source.0.to_string()), ("error", error)];
            cx.event(
                EventLevel::Error,
                "a replication record of another node is unreadable",
                fields,
            );
            return;
        }
        let Reading {
            changes,
            blocks,
            unblocked,
            full_syncs,
            lacks,
            adopted,
            replaced,
            ..
        } = reading;
        if !adopted.is_empty() || !replaced.is_empty() {
            cx.send_to_workers(|| ToWorker::Adoptions {
                by: source,
                adopted: adopted.clone(),
                replaced: replaced.clone(),
            });
            self.report_promoted(cx);
        }
        let has_changed = !changes.is_empty();
        cx.announce(changes);
        let waits_for = if has_changed { cx.gates.announced() } else { 0 };
        if let Some(known) = self.sources.get_mut(&source) {
            known.position = position;
            known.unacknowledged.push_back(Unacknowledged {
                position,
                interests: waits_for,
                has_full_sync: !full_syncs.is_empty(),
            });
            known
                .full_syncs
                .extend(full_syncs.iter().map(|number| (position, *number)));
            if blocks > 0 {
                *known.blocked.entry(position).or_default() += blocks;
            }
        }
        cx.arrivals.unblocked.extend(unblocked);
        self.lacks |= lacks;
        self.watch_backups(cx, now);
    }

    fn read_backups(
        &mut self,
        cx: &mut Context,
        now: Now,
        reading: &mut Reading,
        record: &[u8],
    ) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let entries =
            JournalEntries::new(now.times_of_day(), record).map_err(|error| text(&error))?;
        let times = entries.times();
        for entry in entries {
            let entry = entry.map_err(|error| text(&error))?;
            match &entry {
                JournalEntry::Message(message) => {
                    let whole = message_of(message);
                    reading.publication = Named::of(&whole);
                    reading.last = Some(whole);
                }
                JournalEntry::Value { session, value } => {
                    reading.found = None;
                    let stored =
                        StoredSession::decode(value, times).map_err(|error| text(&error))?;
                    if stored.expiry_interval > 0 {
                        self.backup_session(cx, now, reading.at.source, *session, stored);
                    } else {
                        self.hold_will(cx, reading.at.source, *session, stored);
                    }
                }
                JournalEntry::Subscribed { session, value } => {
                    let (filter, subscribed) =
                        decode_subscription(value).map_err(|error| text(&error))?;
                    self.backup_subscribes(cx, reading, *session, filter, subscribed);
                }
                JournalEntry::Unsubscribed { session, filter } => {
                    // How many levels it may have, the primary has checked.
                    let filter = SubscriptionFilter::parse_with_maximum_levels(filter, usize::MAX)
                        .map_err(|error| text(&error))?;
                    self.backup_unsubscribes(cx, reading, *session, &filter);
                }
                JournalEntry::Ended { session } => {
                    reading.found = None;
                    self.forget_will(reading.at.source, *session);
                    let source = self.sources.get_mut(&reading.at.source);
                    if let Some(key) = source.and_then(|it| it.sessions.remove(session)) {
                        let changes = self.drop_backup(cx, key);
                        reading.changes.extend(changes);
                    }
                    self.end_adopted_one(cx, now, reading, *session);
                }
                JournalEntry::Members { session, nodes } => {
                    if let Some(backup) = self.backup_mut(cx, reading.at.source, *session) {
                        backup.replica_set = nodes.iter().copied().map(NodeId).collect();
                    }
                }
                &JournalEntry::Adopted {
                    session: number,
                    uid,
                    epoch,
                } => {
                    if let Some(source) = self.sources.get_mut(&reading.at.source) {
                        source.adopted.insert(number, uid);
                    }
                    let adopted = Adopted { uid, number, epoch };
                    self.adopt(cx, now, reading.at.source, adopted, &mut reading.changes);
                    reading.adopted.push(adopted);
                }
                JournalEntry::Left { session } => {
                    reading.found = None;
                    let source = self.sources.get_mut(&reading.at.source);
                    if let Some(key) = source.and_then(|it| it.sessions.remove(session)) {
                        self.add_orphan(cx, now, key, &mut reading.changes);
                    }
                }
                JournalEntry::Accepted {
                    session,
                    uid,
                    generations,
                } => self.note_accepted(cx, reading.at.source, *session, *uid, **generations),
                JournalEntry::History { session, value } => {
                    if let Some(backup) = self.backup_mut(cx, reading.at.source, *session) {
                        backup.history = Some(value.to_vec());
                    }
                }
                JournalEntry::Handed { session } => {
                    let key = self.find(reading.at.source, *session);
                    let session = key.and_then(|key| cx.sessions.get_mut(key));
                    if let (Some(key), Some(session)) = (key, session) {
                        let serial = session.serial;
                        if let Some(backup) = session.backup_mut() {
                            backup.handed_at = Some(backup.held.next_sequence());
                        }
                        self.note_handed(key, serial);
                    }
                }
                JournalEntry::Whole { session } => {
                    reading.full_syncs.push(*session);
                    if let Some(backup) = self.backup_mut(cx, reading.at.source, *session) {
                        backup.is_learning = true;
                    }
                    let (by, number) = (reading.at.source, *session);
                    let known = self.sources.get(&by);
                    if let Some(uid) = known.and_then(|it| it.adopted.get(&number).copied()) {
                        self.replace_orphan(cx, now, by, number, uid, &mut reading.changes);
                    }
                }
                entry => {
                    if let (JournalEntry::Append(append), Some(publication)) =
                        (entry, reading.publication)
                        && append.reference.is_none()
                        && let Some(backup) = self.backup_mut(cx, reading.at.source, append.session)
                        && !backup.is_of_former(entry)
                    {
                        let uid = publication.id.session;
                        let taken = publication.alone();
                        self.note_accepted(cx, reading.at.source, append.session, uid, taken);
                    }
                    if let JournalEntry::Covered { session } = entry {
                        self.end_adopted_one(cx, now, reading, *session);
                    }
                    self.read_entry(cx, now, reading, entry);
                }
            }
        }
        Ok(())
    }

    /// A session that the primary adopted has a complete backup here, or has ended.
    fn end_adopted_one(&mut self, cx: &mut Context, now: Now, reading: &mut Reading, number: u64) {
        let source = self.sources.get_mut(&reading.at.source);
        if let Some(uid) = source.and_then(|it| it.adopted.remove(&number)) {
            self.end_orphan(cx, now, reading.at.source, uid, &mut reading.changes);
            reading.replaced.push(uid);
        }
    }

    /// When these publications are sent again, the session drops them as duplicates.
    fn note_accepted(
        &self,
        cx: &mut Context,
        source: SourceKey,
        number: u64,
        uid: u128,
        taken: Generations,
    ) {
        let key = self.find(source, number);
        if let Some(session) = key.and_then(|key| cx.sessions.get_mut(key)) {
            session.accepted.insert_before(uid, taken);
        }
    }

    fn backup_mut<'a>(
        &self,
        cx: &'a mut Context,
        source: SourceKey,
        number: u64,
    ) -> Option<&'a mut Backup> {
        let key = self.find(source, number)?;
        cx.sessions.get_mut(key)?.backup_mut()
    }

    /// An entry about the messages of one session.
    fn read_entry(
        &self,
        cx: &mut Context,
        now: Now,
        reading: &mut Reading,
        entry: &JournalEntry<'_>,
    ) {
        let number = entry.session().unwrap_or_default();
        let position = reading.at;
        let key = match reading.found {
            Some((found, key)) if found == number => Some(key),
            Some(_) | None => self.find(reading.at.source, number),
        };
        reading.found = key.map(|key| (number, key));
        let session = key.and_then(|key| cx.sessions.get_mut(key));
        let Some(session) = session else { return };
        let Role::Backup(backup) = &mut session.role else {
            return;
        };
        if backup.is_of_former(entry) {
            return;
        }
        match entry {
            JournalEntry::Passed { message, .. } => {
                if backup.take_pending(*message).is_none() {
                    backup.passed.insert(*message, now.instant);
                }
            }
            JournalEntry::Covered { .. } => {
                let mark = backup.mark;
                backup.is_learning = false;
                // Messages before the barrier are in the full sync, or the primary has finished them. If the primary sent what reached the session
                // there, other messages are kept.
                let history = backup.history.take().and_then(|it| History::decode(&it));
                let is_unknown = |id: MessageId| {
                    let reached = history.as_ref().map(|history| &history.marks);
                    id.is_sent() && reached.is_some_and(|reached| !reached.contain(id))
                };
                backup.pending.retain(|pending| {
                    pending.arrival > mark || is_unknown(pending.delivery.message.id())
                });
                // What the primary had finished before is not in the full sync: a branch from before that may have it, or receive it late.
                session.marks = history.map(|history| history.marks).unwrap_or_default();
            }
            JournalEntry::Run(run) => {
                let mut append = run.first;
                for _ in 0..run.count {
                    let backup = (&mut **backup, &mut session.accepted);
                    reading.apply_plain_append(now, backup, &append, &self.placeholder);
                    append = append.next();
                }
            }
            JournalEntry::Append(append) => {
                let known = match append.reference {
                    Some(id) => backup.take_pending(id),
                    None => {
                        let last = reading.last.clone();
                        if let Some(message) = &last
                            && append.group.is_none()
                            && message.id().is_sent()
                            && backup.take_pending(message.id()).is_none()
                        {
                            backup.passed.insert(message.id(), now.instant);
                        }
                        last
                    }
                };
                if let Some(awaited) = backup.take_awaited(append.sequence) {
                    reading.unblocked.extend(awaited.blocks);
                }
                if let Some(message) = &known {
                    session.accepted.note(message);
                }
                let message = known.unwrap_or_else(|| Rc::clone(&self.placeholder));
                backup.held.note_time(now.instant);
                backup.held.handle_append(append, &message);
                if let (Some(id), true) = (append.reference, !message.has_topic()) {
                    let is_given = append.packet_id.is_some() && append.qos == Qos::ExactlyOnce;
                    reading.await_message(now, backup, id, append.sequence, is_given);
                }
            }
            JournalEntry::Assign { sequence, .. } => {
                let mut awaited = backup.awaited.iter_mut();
                if let Some((_, awaited)) = awaited.find(|((_, of), _)| of == sequence)
                    && awaited.blocks.is_none()
                {
                    awaited.blocks = Some(position);
                    reading.blocks += 1;
                }
                apply_entry(&mut backup.held, entry);
            }
            JournalEntry::Dropped { sequence, .. } => {
                if let Some(awaited) = backup.take_awaited(*sequence) {
                    reading.unblocked.extend(awaited.blocks);
                }
                apply_entry(&mut backup.held, entry);
            }
            entry => apply_entry(&mut backup.held, entry),
        }
    }

    fn backup_session(
        &mut self,
        cx: &mut Context,
        now: Now,
        source: SourceKey,
        number: u64,
        stored: StoredSession,
    ) {
        if let Some(backup) = self.backup_mut(cx, source, number) {
            backup.stored = stored;
            return;
        }
        let serial = cx.serial();
        let client_id: Rc<str> = stored.client_id.as_str().into();
        let limits = &cx.config.limits;
        let mut session = Session::new(
            serial,
            client_id,
            stored.uid,
            stored.expiry_interval,
            limits,
        );
        let mut backup = Backup::new(source, number, stored);
        for delivery in accepted_since_handed(cx, source, &session) {
            backup.keep_pending(now.instant, delivery, false);
        }
        session.role = Role::Backup(Box::new(backup));
        let key = cx.sessions.insert_backup(session);
        cx.note_begun(now, key);
        if let Some(known) = self.sources.get_mut(&source) {
            known.sessions.insert(number, key);
        }
    }

    fn backup_subscribes(
        &mut self,
        cx: &mut Context,
        reading: &mut Reading,
        number: u64,
        filter: SubscriptionFilter,
        subscribed: Subscribed,
    ) {
        let Some(key) = self.find(reading.at.source, number) else {
            return;
        };
        // Backups are no members of a group (rule 16).
        if !filter.is_shared() {
            let member = Member::backup(subscribed.subscription);
            let change = cx.interests.subscribe(key, &filter, member);
            reading.changes.extend(change);
        }
        if let Some(session) = cx.sessions.get_mut(key)
            && session
                .subscriptions
                .insert(filter.clone(), subscribed)
                .is_none()
            && !filter.is_shared()
        {
            self.subscriptions += 1;
        }
    }

    fn backup_unsubscribes(
        &mut self,
        cx: &mut Context,
        reading: &mut Reading,
        number: u64,
        filter: &SubscriptionFilter,
    ) {
        let Some(key) = self.find(reading.at.source, number) else {
            return;
        };
        if !filter.is_shared() {
            let change = cx.interests.unsubscribe(key, filter);
            reading.changes.extend(change);
        }
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let was_there = session.subscriptions.remove(filter).is_some();
        self.subscriptions -= usize::from(was_there && !filter.is_shared());
        if let Role::Backup(backup) = &mut session.role {
            // The primary does not name what the session no longer receives.
            let subscriptions = &session.subscriptions;
            let is_wanted = |topic: &str| {
                let plain = subscriptions.keys().filter(|filter| !filter.is_shared());
                plain.into_iter().any(|filter| filter.filter.matches(topic))
            };
            backup
                .pending
                .retain(|pending| is_wanted(pending.delivery.message.topic()));
        }
    }

    pub(super) fn drop_backup(&mut self, cx: &mut Context, key: SessionKey) -> Vec<InterestChange> {
        let Some(session) = cx.sessions.remove(key) else {
            return Vec::new();
        };
        if let Role::Backup(backup) = &session.role {
            cx.arrivals.unblocked.extend(backup.blocked());
        }
        self.end_interests(cx, key, &session)
    }

    /// A backup is here no more: what its session subscribes to is sent here only if others want it.
    pub(super) fn end_interests(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        session: &Session,
    ) -> Vec<InterestChange> {
        let mut changes = Vec::new();
        for filter in session.subscriptions.keys() {
            if !filter.is_shared() {
                changes.extend(cx.interests.unsubscribe(key, filter));
                self.subscriptions -= 1;
            }
        }
        changes
    }

    /// Reports to primaries how far their streams are applied and held. Once a round.
    pub(in super::super) fn acknowledge_backups(&mut self, cx: &mut Context) {
        if self.sources.is_empty() {
            return;
        }
        for unblocked in std::mem::take(&mut cx.arrivals.unblocked) {
            let StreamPosition {
                source,
                stream,
                position,
            } = unblocked;
            if let Some(known) = self.sources.get_mut(&source)
                && known.stream == stream
                && let Some(count) = known.blocked.get_mut(&position)
            {
                *count -= 1;
                if *count == 0 {
                    known.blocked.remove(&position);
                }
            }
        }
        let settled = cx.gates.settled();
        let mut messages = Vec::new();
        let mut barriers = Vec::new();
        for (&key, source) in &mut self.sources {
            let (to, worker) = key;
            if !source.advance(settled)
                && !source.has_barrier
                && let Some(until) = source.settled_position(settled)
            {
                source.has_barrier = true;
                barriers.push(Behind::Synced {
                    source: key,
                    stream: source.stream,
                    until,
                });
            }
            let progress = Progress {
                applied: source.applied(),
                held: source.held,
            };
            if progress != source.reported {
                source.reported = progress;
                messages.push(ToHub::BackupReport {
                    to,
                    stream: source.stream(worker),
                    report: BackupReport::Held {
                        applied: progress.applied,
                        held: progress.held,
                    },
                });
            }
        }
        for behind in barriers {
            cx.begin_barrier(behind);
        }
        if !messages.is_empty() {
            cx.seal_records();
        }
        for content in messages {
            cx.send_to_hub(content);
        }
    }

    /// All that was on its way here when a stream was read up to a position has arrived: the full syncs up to there are held.
    pub(in super::super) fn hold_synced(
        &mut self,
        cx: &mut Context,
        source: SourceKey,
        stream: u64,
        until: u64,
    ) {
        let known = self.sources.get_mut(&source);
        let Some(source) = known.filter(|known| known.stream == stream) else {
            return;
        };
        source.has_barrier = false;
        source.passed = until;
        let full_syncs: Vec<(u64, u64)> = source
            .full_syncs
            .extract_if(.., |(position, _)| *position <= until)
            .collect();
        let keys = full_syncs
            .iter()
            .filter_map(|(_, number)| source.sessions.get(number));
        for key in keys {
            if let Some(backup) = cx.sessions.get_mut(*key).and_then(|it| it.backup_mut()) {
                backup.mark = backup.arrivals;
            }
        }
    }
}

fn message_of(stored: &StoredMessage<'_>) -> Rc<Message> {
    let message = Message::new(stored.id, &stored.publish, stored.expires_at);
    Rc::new(message.with_publication(stored.publication))
}

/// A primary sends a session back to the node that handed it over, and still has it: what that node has accepted since. The primary may die before it
/// has received these messages, and this node ends what it handed over.
fn accepted_since_handed(cx: &Context, by: SourceKey, session: &Session) -> Vec<Delivery> {
    let here = cx.sessions.find(&session.client_id);
    let here = here.and_then(|key| cx.sessions.get(key));
    let here = here.filter(|here| here.uid == session.uid && !here.role.is_branch());
    let Some(here) = here else {
        return Vec::new();
    };
    let handed = here.role.handed();
    let handed = handed.filter(|it| it.switchover.is_some_and(|it| it.to == by.0));
    let from = handed.map_or(u64::MAX, |handed| handed.from);
    let accepted = here.outbound.held_from(from).filter_map(|held| match held {
        Held::Queued { delivery, .. } => Some(delivery.clone()),
        Held::InFlight { .. } | Held::Received { .. } => None,
    });
    accepted
        .filter(|delivery| delivery.group.is_none() && delivery.message.id().is_sent())
        .collect()
}
