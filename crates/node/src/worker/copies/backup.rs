//! The backup's side: shadows of sessions that live on other nodes, and what becomes of them when their node is out.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::{NodeId, record::PublicationId};
use thicket_session::{
    server::{
        Delivery, JournalEntries, JournalEntry, Message, MessageId, Publication, RecoveredSession,
        StoredMessage, StoredSession, decode_subscription,
    },
    time::Instant,
    topic::SubscriptionFilter,
};

use super::Progress;
use crate::{
    EventLevel, Now, Peer,
    mail::{Content, InterestChange, SessionState},
    worker::{
        SessionKey, Worker, interests::Member, journal::instant_of, recover::apply_entry,
        sessions::Session, timers::Timer,
    },
};

/// A message that the owner named and that did not come by itself in this time is asked for.
const PATIENCE: Duration = Duration::from_millis(100);
/// A message that the owner does not come to in this time, it will not: it left it out without a word.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Sequences asked for at once.
const ASKED: usize = 1_000;

/// A worker of another node.
pub(in super::super) type SourceKey = (NodeId, u8);

/// What a backup holds of a session.
#[derive(Debug)]
pub(in super::super) struct Shadow {
    source: SourceKey,
    /// In the owner's stream.
    number: u64,
    stored: StoredSession,
    held: RecoveredSession,
    /// Messages that came and of which the owner has not spoken, in the order they came.
    pending: VecDeque<Pending>,
    /// Messages that came.
    arrivals: u64,
    /// How many of them had come when all that was sent before the owner told the whole session had.
    mark: u64,
    /// Messages that the owner named and that have not come.
    awaited: BTreeMap<MessageId, Awaited>,
    /// Messages that the owner passed over, or told whole, and that have not come; some never will.
    passed: BTreeMap<MessageId, Instant>,
}

#[derive(Debug)]
struct Pending {
    arrival: u64,
    since: Instant,
    delivery: Delivery,
}

#[derive(Debug)]
struct Awaited {
    sequence: u64,
    since: Instant,
    /// The client may have it under a packet identifier that must not go to another message: this position is not held before.
    blocks: Option<u64>,
    is_asked: bool,
}

/// A position of a source's stream that waits for one message less.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Unblocked {
    source: SourceKey,
    position: u64,
}

/// One worker of another node that has copies here.
#[derive(Debug, Default)]
struct Source {
    stream: u64,
    position: u64,
    /// What the owner was told.
    told: Progress,
    held: u64,
    sessions: HashMap<u64, SessionKey>,
    unacknowledged: VecDeque<Unacknowledged>,
    /// Sessions that were told whole, with the positions, until a barrier is behind them.
    wholes: Vec<(u64, u64)>,
    /// The number of a barrier that has begun, and up to which position it counts.
    barrier: Option<(u64, u64)>,
    /// Up to which position all barriers are passed.
    passed: u64,
    /// Positions with the number of messages that must come before they are held.
    blocked: BTreeMap<u64, u32>,
}

/// A record that is not held yet.
#[derive(Debug)]
struct Unacknowledged {
    position: u64,
    /// Interests that must be applied everywhere first.
    interests: u64,
    /// A session was told whole: what was on its way here then must have come first.
    has_whole: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(in super::super) struct Sources {
    sources: BTreeMap<SourceKey, Source>,
    /// Their filters, which are not this worker's own.
    subscriptions: usize,
    /// A message that an owner named has not come.
    lacks: bool,
    /// When the copies are looked at next.
    timer_at: Option<Instant>,
}

impl Sources {
    pub const fn subscriptions(&self) -> usize {
        self.subscriptions
    }
}

impl Shadow {
    /// A message came. The position that waits for it no longer.
    pub fn take(&mut self, now: Instant, delivery: Delivery) -> Option<Unblocked> {
        let id = delivery.message.id();
        if let Some(awaited) = self.awaited.remove(&id) {
            self.held.resolve(awaited.sequence, &delivery.message);
            return self.unblocked(awaited);
        }
        if self.passed.remove(&id).is_none() {
            self.arrivals += 1;
            self.pending.push_back(Pending {
                arrival: self.arrivals,
                since: now,
                delivery,
            });
        }
        None
    }

    const fn unblocked(&self, awaited: Awaited) -> Option<Unblocked> {
        match awaited.blocks {
            Some(position) => Some(Unblocked {
                source: self.source,
                position,
            }),
            None => None,
        }
    }

    /// The owner has come to a message: it is pending no more.
    fn take_pending(&mut self, id: MessageId) -> Option<Rc<Message>> {
        let is_it = |pending: &Pending| pending.delivery.message.id() == id;
        let index = self.pending.iter().position(is_it)?;
        Some(self.pending.remove(index)?.delivery.message)
    }

    fn take_awaited(&mut self, sequence: u64) -> Option<Awaited> {
        let has = |(_, awaited): &(&MessageId, &Awaited)| awaited.sequence == sequence;
        let id = *self.awaited.iter().find(has)?.0;
        self.awaited.remove(&id)
    }
}

impl Source {
    /// The last position that lacks no message which its client may have.
    fn applied(&self) -> u64 {
        let blocked = self.blocked.keys().next();
        blocked.map_or(self.position, |position| position - 1)
    }

    /// Moves on past all that is held. False: a barrier is wanted first.
    fn advance(&mut self, settled: u64) -> bool {
        let applied = self.applied();
        while let Some(front) = self.unacknowledged.front() {
            if front.interests > settled || front.position > applied {
                return true;
            }
            if front.has_whole && front.position > self.passed {
                return false;
            }
            self.held = front.position;
            self.unacknowledged.pop_front();
        }
        true
    }

    /// The last position whose interests are applied everywhere.
    fn settled_position(&self, settled: u64) -> Option<u64> {
        let applied = self.unacknowledged.iter();
        let applied = applied.take_while(|record| record.interests <= settled);
        applied.last().map(|record| record.position)
    }
}

/// A record that is being read.
#[derive(Debug)]
struct Reading {
    source: SourceKey,
    position: u64,
    last: Option<Rc<Message>>,
    /// Of the last message.
    publication: Option<Publication>,
    changes: Vec<InterestChange>,
    /// Messages that must come before the position is held.
    blocks: u32,
    unblocked: Vec<Unblocked>,
    /// Sessions told whole.
    wholes: Vec<u64>,
    /// A message that was named has not come.
    lacks: bool,
}

impl Worker {
    /// A record of an owner's stream.
    pub(in super::super) fn handle_copied(
        &mut self,
        now: Now,
        source: SourceKey,
        stream: u64,
        position: u64,
        record: &[u8],
    ) {
        let known = self.sources.sources.entry(source).or_default();
        let mut changes = Vec::new();
        if known.stream != stream {
            if position != 1 {
                // Of a stream that has ended.
                return;
            }
            changes = self.drop_source(source);
            let begun = Source {
                stream,
                ..Source::default()
            };
            self.sources.sources.insert(source, begun);
        } else if position != known.position + 1 {
            return;
        }
        let mut reading = Reading {
            source,
            position,
            last: None,
            publication: None,
            changes,
            blocks: 0,
            unblocked: Vec::new(),
            wholes: Vec::new(),
            lacks: false,
        };
        if let Err(error) = self.read_copies(now, &mut reading, record) {
            let fields = vec![("node", source.0.to_string()), ("error", error)];
            self.event(
                EventLevel::Error,
                "unreadable copies of another node",
                fields,
            );
            return;
        }
        let Reading {
            changes,
            blocks,
            unblocked,
            wholes,
            lacks,
            ..
        } = reading;
        let has_changed = !changes.is_empty();
        self.announce(changes);
        let waits_for = if has_changed { self.announced() } else { 0 };
        if let Some(known) = self.sources.sources.get_mut(&source) {
            known.position = position;
            known.unacknowledged.push_back(Unacknowledged {
                position,
                interests: waits_for,
                has_whole: !wholes.is_empty(),
            });
            known
                .wholes
                .extend(wholes.iter().map(|number| (position, *number)));
            if blocks > 0 {
                *known.blocked.entry(position).or_default() += blocks;
            }
        }
        self.unblocked.extend(unblocked);
        self.sources.lacks |= lacks;
        self.watch_copies(now);
    }

    fn read_copies(
        &mut self,
        now: Now,
        reading: &mut Reading,
        record: &[u8],
    ) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        for entry in JournalEntries::new(record).map_err(|error| text(&error))? {
            let entry = entry.map_err(|error| text(&error))?;
            match &entry {
                JournalEntry::Message(message) => {
                    reading.publication = message.publication;
                    reading.last = Some(message_of(now, message));
                }
                JournalEntry::Value { session, value } => {
                    let stored = StoredSession::decode(value).map_err(|error| text(&error))?;
                    self.shadow_session(reading.source, *session, stored);
                }
                JournalEntry::Subscribed { session, value } => {
                    let (filter, subscription) =
                        decode_subscription(value).map_err(|error| text(&error))?;
                    self.shadow_subscribes(reading, *session, filter, subscription);
                }
                JournalEntry::Unsubscribed { session, filter } => {
                    let filter = SubscriptionFilter::parse(filter).map_err(|error| text(&error))?;
                    self.shadow_unsubscribes(reading, *session, &filter);
                }
                JournalEntry::Ended { session } => {
                    let source = self.sources.sources.get_mut(&reading.source);
                    if let Some(key) = source.and_then(|it| it.sessions.remove(session)) {
                        let changes = self.drop_shadow(key);
                        reading.changes.extend(changes);
                    }
                }
                JournalEntry::Taken {
                    session,
                    publication,
                } => self.shadow_took(reading.source, *session, *publication),
                JournalEntry::Handed { session } => {
                    let source = self.sources.sources.get_mut(&reading.source);
                    if let Some(key) = source.and_then(|it| it.sessions.remove(session)) {
                        self.go_on_with(now, key, &mut reading.changes);
                    }
                }
                JournalEntry::Whole { session } => reading.wholes.push(*session),
                entry => {
                    if let (JournalEntry::Append(append), Some(publication)) =
                        (entry, reading.publication)
                        && append.reference.is_none()
                    {
                        self.shadow_took(reading.source, append.session, publication);
                    }
                    self.read_entry(now, reading, entry);
                }
            }
        }
        Ok(())
    }

    /// Sent again, the publication is none of the session's messages.
    fn shadow_took(&mut self, source: SourceKey, number: u64, publication: Publication) {
        let source = self.sources.sources.get(&source);
        let key = source.and_then(|it| it.sessions.get(&number)).copied();
        if let Some(session) = key.and_then(|key| self.sessions.get_mut(key)) {
            let (session_uid, packet_id, generation) = publication;
            session.taken.insert_before(PublicationId {
                session: session_uid,
                packet_id,
                generation,
            });
        }
    }

    fn shadow_mut(&mut self, source: SourceKey, number: u64) -> Option<&mut Shadow> {
        let key = *self.sources.sources.get(&source)?.sessions.get(&number)?;
        self.sessions.get_mut(key)?.shadow.as_deref_mut()
    }

    /// An entry about the messages of one session.
    fn read_entry(&mut self, now: Now, reading: &mut Reading, entry: &JournalEntry<'_>) {
        let placeholder = Rc::clone(&self.placeholder);
        let number = entry.session().unwrap_or_default();
        let (position, last) = (reading.position, reading.last.clone());
        let Some(shadow) = self.shadow_mut(reading.source, number) else {
            return;
        };
        match entry {
            JournalEntry::Passed { message, .. } => {
                if shadow.take_pending(*message).is_none() {
                    shadow.passed.insert(*message, now.instant);
                }
            }
            JournalEntry::Covered { .. } => {
                let mark = shadow.mark;
                shadow.pending.retain(|pending| pending.arrival > mark);
            }
            JournalEntry::Append(append) => {
                let is_given = append.packet_id.is_some() && append.qos == Qos::ExactlyOnce;
                let known = match append.reference {
                    Some(id) => shadow.take_pending(id),
                    None => {
                        if let Some(message) = &last
                            && append.group.is_none()
                            && message.id().number > 0
                            && shadow.take_pending(message.id()).is_none()
                        {
                            shadow.passed.insert(message.id(), now.instant);
                        }
                        last
                    }
                };
                if let Some(awaited) = shadow.take_awaited(append.sequence) {
                    reading.unblocked.extend(shadow.unblocked(awaited));
                }
                let message = known.unwrap_or(placeholder);
                shadow.held.handle_append(append, &message);
                if let (Some(id), true) = (append.reference, message.topic().is_empty()) {
                    let awaited = Awaited {
                        sequence: append.sequence,
                        since: now.instant,
                        blocks: is_given.then_some(position),
                        is_asked: false,
                    };
                    reading.blocks += u32::from(is_given);
                    shadow.awaited.insert(id, awaited);
                    reading.lacks = true;
                }
            }
            JournalEntry::Assign { sequence, .. } => {
                let has = |awaited: &&mut Awaited| awaited.sequence == *sequence;
                if let Some(awaited) = shadow.awaited.values_mut().find(has)
                    && awaited.blocks.is_none()
                {
                    awaited.blocks = Some(position);
                    reading.blocks += 1;
                }
                apply_entry(&mut shadow.held, entry);
            }
            JournalEntry::Dropped { sequence, .. } => {
                if let Some(awaited) = shadow.take_awaited(*sequence) {
                    reading.unblocked.extend(shadow.unblocked(awaited));
                }
                apply_entry(&mut shadow.held, entry);
            }
            entry => apply_entry(&mut shadow.held, entry),
        }
    }

    fn shadow_session(&mut self, source: SourceKey, number: u64, stored: StoredSession) {
        if let Some(shadow) = self.shadow_mut(source, number) {
            shadow.stored = stored;
            return;
        }
        let serial = self.serial();
        let client_id: Rc<str> = stored.client_id.as_str().into();
        let limits = &self.config.limits;
        let mut session = Session::new(
            serial,
            client_id,
            stored.uid,
            stored.expiry_interval,
            limits,
        );
        session.shadow = Some(Box::new(Shadow {
            source,
            number,
            stored,
            held: RecoveredSession::default(),
            pending: VecDeque::new(),
            arrivals: 0,
            mark: 0,
            awaited: BTreeMap::new(),
            passed: BTreeMap::new(),
        }));
        let key = self.sessions.insert_shadow(session);
        if let Some(known) = self.sources.sources.get_mut(&source) {
            known.sessions.insert(number, key);
        }
    }

    fn shadow_subscribes(
        &mut self,
        reading: &mut Reading,
        number: u64,
        filter: SubscriptionFilter,
        subscription: thicket_session::server::Subscription,
    ) {
        let source = self.sources.sources.get(&reading.source);
        let Some(key) = source.and_then(|it| it.sessions.get(&number)).copied() else {
            return;
        };
        // Backups are no members of a group (rule 16).
        if !filter.is_shared() {
            let member = Member {
                subscription,
                persistent: true,
                connected: false,
            };
            let change = self.interests.subscribe(key, &filter, member);
            reading.changes.extend(change);
        }
        if let Some(session) = self.sessions.get_mut(key)
            && session
                .subscriptions
                .insert(filter.clone(), subscription)
                .is_none()
            && !filter.is_shared()
        {
            self.sources.subscriptions += 1;
        }
    }

    fn shadow_unsubscribes(
        &mut self,
        reading: &mut Reading,
        number: u64,
        filter: &SubscriptionFilter,
    ) {
        let source = self.sources.sources.get(&reading.source);
        let Some(key) = source.and_then(|it| it.sessions.get(&number)).copied() else {
            return;
        };
        if !filter.is_shared() {
            let change = self.interests.unsubscribe(key, filter);
            reading.changes.extend(change);
        }
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let was_there = session.subscriptions.remove(filter).is_some();
        self.sources.subscriptions -= usize::from(was_there && !filter.is_shared());
        if let Some(shadow) = &mut session.shadow {
            // The owner does not speak of what it no longer takes.
            let subscriptions = &session.subscriptions;
            let is_wanted = |topic: &str| {
                let plain = subscriptions.keys().filter(|filter| !filter.is_shared());
                plain.into_iter().any(|filter| filter.filter.matches(topic))
            };
            shadow
                .pending
                .retain(|pending| is_wanted(pending.delivery.message.topic()));
        }
    }

    fn drop_shadow(&mut self, key: SessionKey) -> Vec<InterestChange> {
        let mut changes = Vec::new();
        let Some(mut session) = self.sessions.remove(key) else {
            return changes;
        };
        if let Some(shadow) = session.shadow.take() {
            let awaited = shadow.awaited.into_values();
            self.unblocked.extend(awaited.filter_map(|it| {
                Some(Unblocked {
                    source: shadow.source,
                    position: it.blocks?,
                })
            }));
        }
        for filter in session.subscriptions.keys() {
            if !filter.is_shared() {
                changes.extend(self.interests.unsubscribe(key, filter));
                self.sources.subscriptions -= 1;
            }
        }
        changes
    }

    fn drop_source(&mut self, source: SourceKey) -> Vec<InterestChange> {
        let dropped = self.sources.sources.remove(&source).unwrap_or_default();
        let sessions = dropped.sessions.into_values();
        sessions.flat_map(|key| self.drop_shadow(key)).collect()
    }

    /// Tells owners how far their streams are held. Once a round.
    pub(in super::super) fn acknowledge_copies(&mut self) {
        if self.sources.sources.is_empty() {
            return;
        }
        for Unblocked { source, position } in std::mem::take(&mut self.unblocked) {
            if let Some(known) = self.sources.sources.get_mut(&source)
                && let Some(count) = known.blocked.get_mut(&position)
            {
                *count -= 1;
                if *count == 0 {
                    known.blocked.remove(&position);
                }
            }
        }
        let settled = self.settled();
        let mut mail = Vec::new();
        for (&(to, worker), source) in &mut self.sources.sources {
            if !source.advance(settled)
                && source.barrier.is_none()
                && let Some(until) = source.settled_position(settled)
            {
                let barrier = self.owned.next_barrier();
                source.barrier = Some((barrier, until));
                mail.push(Content::CopyBarrier { barrier });
            }
            let progress = Progress {
                applied: source.applied(),
                held: source.held,
            };
            if progress != source.told {
                source.told = progress;
                mail.push(Content::CopiesHeld {
                    to,
                    worker,
                    stream: source.stream,
                    applied: progress.applied,
                    held: progress.held,
                });
            }
        }
        if !mail.is_empty() {
            let origin = self.origin();
            self.batches.seal(origin, &mut self.outputs);
        }
        for content in mail {
            self.mail(Peer::Hub, content);
        }
    }

    /// All that was on its way here when a barrier began has come.
    pub(super) fn backup_barrier_passed(&mut self, barrier: u64) {
        let is_it = |source: &Source| source.barrier.is_some_and(|(number, _)| number == barrier);
        let Some(source) = self.sources.sources.values_mut().find(|it| is_it(it)) else {
            return;
        };
        let Some((_, until)) = source.barrier.take() else {
            return;
        };
        source.passed = until;
        let wholes: Vec<(u64, u64)> = source
            .wholes
            .extract_if(.., |(position, _)| *position <= until)
            .collect();
        let keys = wholes
            .iter()
            .filter_map(|(_, number)| source.sessions.get(number));
        for key in keys {
            if let Some(shadow) = self
                .sessions
                .get_mut(*key)
                .and_then(|it| it.shadow.as_mut())
            {
                shadow.mark = shadow.arrivals;
            }
        }
    }

    /// Copies are looked at again: soon if one lacks a message, else now and then.
    fn watch_copies(&mut self, now: Now) {
        let wait = if self.sources.lacks {
            PATIENCE
        } else {
            FORGOTTEN / 3
        };
        let at = now.instant + wait;
        if self.sessions.shadows() > 0 && self.sources.timer_at.is_none_or(|set| at < set) {
            self.sources.timer_at = Some(at);
            self.timers.set(at, Timer::Copies);
        }
    }

    /// Asks owners for what did not come, forgets what they will not speak of.
    pub(in super::super) fn check_copies(&mut self, now: Now) {
        if self.sources.timer_at.is_none_or(|at| at > now.instant) {
            // One that was set before a nearer one.
            return;
        }
        self.sources.timer_at = None;
        self.sources.lacks = false;
        let since = |at: Instant, patience: Duration| at + patience <= now.instant;
        let mut wanted: BTreeMap<SourceKey, Vec<(u64, u64)>> = BTreeMap::new();
        for shadow in self.sessions.shadows_mut() {
            let is_forgotten = |pending: &mut Pending| since(pending.since, FORGOTTEN);
            while shadow.pending.pop_front_if(is_forgotten).is_some() {}
            shadow.passed.retain(|_, at| !since(*at, FORGOTTEN));
            for awaited in shadow.awaited.values_mut().filter(|it| !it.is_asked) {
                let asked = wanted.entry(shadow.source).or_default();
                if since(awaited.since, PATIENCE) && asked.len() < ASKED {
                    awaited.is_asked = true;
                    asked.push((shadow.number, awaited.sequence));
                } else {
                    self.sources.lacks = true;
                }
            }
        }
        for ((to, worker), wanted) in wanted {
            let stream = self.sources.sources.get(&(to, worker)).map(|it| it.stream);
            if let (Some(stream), false) = (stream, wanted.is_empty()) {
                let content = Content::CopiesWanted {
                    to,
                    worker,
                    stream,
                    wanted,
                };
                self.mail(Peer::Hub, content);
            }
        }
        self.watch_copies(now);
    }

    /// A node is out: its sessions go on here, as far as their copies are here.
    pub(in super::super) fn handle_promote(&mut self, now: Now, node: NodeId) {
        let of_node = |key: &&SourceKey| key.0 == node;
        let sources: Vec<SourceKey> = self
            .sources
            .sources
            .keys()
            .filter(of_node)
            .copied()
            .collect();
        let mut changes = Vec::new();
        let mut promoted = 0;
        for source in sources {
            let sessions = self
                .sources
                .sources
                .remove(&source)
                .unwrap_or_default()
                .sessions;
            // In the order of their numbers, whatever a map thinks.
            for key in sessions
                .into_iter()
                .collect::<BTreeMap<_, _>>()
                .into_values()
            {
                promoted += usize::from(self.promote(now, key, &mut changes));
            }
        }
        self.announce(changes);
        self.choose_for_homeless(now);
        if promoted > 0 {
            let fields = vec![
                ("node", node.to_string()),
                ("sessions", promoted.to_string()),
            ];
            self.event(
                EventLevel::Info,
                "sessions of a node that is out go on here",
                fields,
            );
        }
        self.mail_after_records(Peer::Hub, Content::Promoted { node });
    }

    /// Its owner, which is drained, hands a session over.
    fn go_on_with(&mut self, now: Now, key: SessionKey, changes: &mut Vec<InterestChange>) {
        let session = self.sessions.get_mut(key);
        if let Some(shadow) = session.and_then(|session| session.shadow.as_mut())
            && shadow.stored.disconnected_at_ms.is_none()
        {
            // Its client is sent away: that is no death.
            shadow.stored.will = None;
        }
        let client_id = self.sessions.get(key).map(|it| Rc::clone(&it.client_id));
        if let Some(client_id) = client_id
            && self.promote(now, key, changes)
        {
            let epoch = self.sessions.get(key).map_or(0, |session| session.epoch);
            let client_id = (*client_id).into();
            self.mail_after_records(Peer::Hub, Content::TakenOver { client_id, epoch });
        }
    }

    /// A shadow becomes the session. False: there is one of its client identifier already.
    fn promote(&mut self, now: Now, key: SessionKey, changes: &mut Vec<InterestChange>) -> bool {
        let Some(client_id) = self.sessions.get(key).map(|it| Rc::clone(&it.client_id)) else {
            return false;
        };
        if let Some(here) = self.sessions.find(&client_id) {
            if self.sessions.get(here).is_none_or(|it| !it.awaits_queue) {
                changes.extend(self.drop_shadow(key));
                return false;
            }
            // It was on its way here, and its queue went down with its node.
            if let Some(session) = self.remove_session(here) {
                self.pass_shared_on(now, &session.outbound);
            }
        }
        self.sessions.promote(key);
        let Some(session) = self.sessions.get_mut(key) else {
            return false;
        };
        let Some(shadow) = session.shadow.take() else {
            return false;
        };
        let Shadow {
            stored,
            mut held,
            pending,
            awaited,
            ..
        } = *shadow;
        for awaited in awaited.into_values() {
            // Nobody who published it was told that it had been taken.
            held.handle_dropped(awaited.sequence);
        }
        held.restore(&mut session.outbound, &mut session.inbound);
        for Pending { delivery, .. } in pending {
            if session.outbound.enqueue(delivery).is_err() {
                session.dropped_messages += 1;
                self.traffic.dropped_messages += 1;
            }
        }
        session.taken.go_on();
        session.revive(now, stored);
        session.epoch += 1;
        for (filter, subscription) in session.subscriptions.clone() {
            if filter.is_shared() {
                let member = Member {
                    subscription,
                    persistent: true,
                    connected: false,
                };
                changes.extend(self.interests.subscribe(key, &filter, member));
            } else {
                self.sources.subscriptions -= 1;
            }
        }
        self.restart_timers(now, key);
        self.store_anew(now, key);
        self.tell_session(&client_id, SessionState::Waiting);
        true
    }
}

fn message_of(now: Now, stored: &StoredMessage<'_>) -> Rc<Message> {
    let expires_at = stored.expires_at_ms.map(|at| instant_of(now, at));
    Rc::new(Message::new(stored.id, &stored.publish, expires_at))
}

/// Stands for a message that has not come.
pub(in super::super) fn placeholder() -> Rc<Message> {
    Rc::new(Message::new(
        MessageId::default(),
        &Publish::new("", b""),
        None,
    ))
}
