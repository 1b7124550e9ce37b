//! Which nodes hold a session's copies, and how they come to have all of it.

use thicket_overlay::{NodeId, NodeSlot, WireVersion, rendezvous_by_weight};
use thicket_session::{server::encode_subscription, topic::TopicFilter};

use super::{
    Level, Progress, Release, StoredAs, Streams,
    held_at::{Copy, Stage},
};
use crate::{
    Now,
    worker::{
        SessionKey, Worker,
        journal::{write_messages, write_taken},
        sessions::Session,
    },
};

/// Filters that are looked at when a backup is chosen.
const FILTERS: usize = 16;
/// Bytes of one round's record, beyond which sessions are told anew in the next one.
pub(super) const RECORD_BYTES: usize = 256 * 1024;

/// Tells the nodes that hold copies of a session who they are: the first one that is up goes on with it when its owner is out. Says
/// nothing where there is one copy at most: it needs no order.
pub(super) fn write_members(streams: &mut Streams, stored: StoredAs, backups: u8) {
    if backups < 2 && stored.copies.len() < 2 {
        return;
    }
    let nodes = stored.copies.iter();
    let nodes = nodes.filter_map(|copy| streams.node_of(copy.stream));
    let nodes: Vec<u64> = nodes.map(|node| node.0).collect();
    streams.each(stored.copies, |stream| {
        if stream.wire >= WireVersion::V5 {
            stream.writer.members(stored.number, &nodes);
        }
    });
}

impl Worker {
    /// How many nodes are to have all of a session: all that are up, if they are fewer than it is to have copies (rule 6).
    pub(super) fn wanted_copies(&self) -> usize {
        let nodes = &self.owned.nodes;
        let all_know_members = nodes.iter().all(|up| up.wire >= WireVersion::V5);
        // Nodes that do not know of others would all go on with a session.
        let most = if all_know_members { u8::MAX } else { 1 };
        usize::from(self.config.backups.min(most)).min(nodes.len())
    }

    /// Sessions without all their copies are told to backups, as fast as they take them; of those that end with their connections the
    /// wills.
    pub(super) fn tell_uncopied(&mut self) {
        let wanted = self.wanted_copies();
        if wanted == 0 {
            self.owned.to_tell.clear();
            return;
        }
        let lacks = |session: &Session| {
            let is_told = session.stored.copies.told().count() >= wanted;
            if session.is_persistent() {
                !session.awaits_queue && !is_told
            } else {
                session.has_untold_will()
            }
        };
        self.owned.to_tell = self
            .sessions
            .iter()
            .filter(|(_, session)| lacks(session))
            .map(|(key, session)| (key, session.serial))
            .collect();
    }

    /// A session that is new to this worker: backups are told at once if there is nothing to tell, else in its turn.
    pub(in super::super) fn copy_new(&mut self, now: Now, key: SessionKey) {
        self.note_uncovered(key);
        if self.wanted_copies() == 0 {
            return;
        }
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        if session.subscriptions.is_empty() && session.outbound.is_empty() {
            self.tell_missing(now, key, &[]);
        } else {
            self.owned.to_tell.push_back((key, session.serial));
        }
    }

    /// A session that holds nothing yet subscribes: its copies go where the topics are wanted already.
    pub(in super::super) fn choose_backup_again(
        &mut self,
        now: Now,
        key: SessionKey,
        filters: &[TopicFilter],
    ) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let (stored, wanted) = (session.stored, self.wanted_copies());
        if self.owned.nodes.len() <= wanted
            || stored.copies.covered().count() != wanted
            || !session.subscriptions.is_empty()
            || !session.outbound.is_empty()
        {
            return;
        }
        let mut best = Vec::new();
        while best.len() < wanted
            && let Some(node) = self.backup_of(&session.client_id, filters, &best)
        {
            best.push(node);
        }
        let is_worse = |stream: u8| {
            let node = self.journal.streams.node_of(stream);
            node.is_none_or(|node| !best.contains(&node))
        };
        let worse: Vec<u8> = (stored.copies.iter())
            .map(|copy| copy.stream)
            .filter(|stream| is_worse(*stream))
            .collect();
        for from in worse {
            self.move_copy(now, key, from, filters);
        }
    }

    /// Another node has a session's copy, which holds nothing yet, instead of the one of a stream.
    fn move_copy(&mut self, now: Now, key: SessionKey, from: u8, filters: &[TopicFilter]) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let (stored, connection) = (session.stored, session.connection);
        session.stored.copies.remove(from);
        let Some(stream) = self.journal.streams.get_mut(from) else {
            return;
        };
        let former = Release::Former {
            session: key,
            stream: stream.id,
            number: stored.number,
        };
        self.tell_missing(now, key, filters);
        // What waited for the one waits for the other, which has it before the one drops it: this node may die in between.
        let copies = self.sessions.get(key).map(|it| it.stored.copies);
        let is_new = |copy: &Copy| !stored.copies.has(copy.stream);
        let new = copies.unwrap_or_default().iter().find(is_new);
        let new =
            new.and_then(|copy| Some((copy.stream, self.journal.streams.get_mut(copy.stream)?)));
        let Some((to, stream)) = new else {
            self.release(former, from, Progress::END);
            return;
        };
        stream.wait(Level::Applied, former);
        if let Some(id) = connection
            && let Some(connection) = self
                .connections
                .get_mut(id.0 as usize)
                .and_then(Option::as_deref_mut)
            && connection.out.move_holds(from, to, stream.position())
        {
            stream.wait(Level::Applied, Release::Output(id, connection.serial));
        }
    }

    /// The node that is to hold a copy, beside others: where most of the filters are wanted already; of several one by lot, the more
    /// likely the more it can take, and always the same for a client identifier.
    pub(super) fn backup_of(
        &self,
        client_id: &str,
        filters: &[TopicFilter],
        others: &[NodeId],
    ) -> Option<NodeId> {
        let wanted = |slot: NodeSlot| {
            let is_wanted = |filter: &&TopicFilter| self.interests.is_wanted_by(slot, filter);
            filters.iter().take(FILTERS).filter(is_wanted).count()
        };
        let counted: Vec<(usize, NodeId)> = self
            .owned
            .nodes
            .iter()
            .filter(|up| !others.contains(&up.node))
            .map(|up| (wanted(up.slot), up.node))
            .collect();
        let most = counted.iter().map(|(count, _)| *count).max()?;
        let capability = |node: NodeId| {
            let known = self.owned.capabilities.iter();
            let known = known.copied().find(|(of, _)| *of == node);
            known.unwrap_or((node, 0))
        };
        let best: Vec<(NodeId, u64)> = counted
            .iter()
            .filter(|(count, _)| *count == most)
            .map(|(_, node)| capability(*node))
            .collect();
        rendezvous_by_weight(client_id, &best)
    }

    /// Tells a session whole to as many nodes as lack it, those that have what an earlier owner told them first. Not on a side that does
    /// not serve: others may have gone on with it, and what they are sent does not come here, so that no copy would have all of it.
    pub(super) fn tell_missing(&mut self, now: Now, key: SessionKey, filters: &[TopicFilter]) {
        if self.is_minority {
            // All are told when it serves again.
            return;
        }
        let wanted = self.wanted_copies();
        let mut has_changed = false;
        while let Some(session) = self.sessions.get(key) {
            let copies = session.stored.copies;
            if copies.told().count() >= wanted {
                break;
            }
            let index = copies.first_adopted().or_else(|| {
                let node = self.next_backup(key, filters)?;
                self.stream_to(node)
            });
            let Some(index) = index else {
                break;
            };
            self.tell_whole(now, key, index);
            has_changed = true;
        }
        if let Some(session) = self.sessions.get(key).filter(|_| has_changed) {
            write_members(
                &mut self.journal.streams,
                session.stored,
                self.config.backups,
            );
        }
    }

    /// What an earlier owner told to more nodes than are to have copies here ends when as many as are to have all of the session.
    pub(super) fn end_spare_copies(&mut self, key: SessionKey) {
        let wanted = self.wanted_copies();
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.stored.copies.covered().count() < wanted {
            return;
        }
        while let Some(index) = session.stored.copies.first_adopted() {
            session.stored.copies.remove(index);
            if let Some(stream) = self.journal.streams.get_mut(index) {
                stream.writer.ended(session.stored.number);
            }
        }
    }

    fn next_backup(&self, key: SessionKey, filters: &[TopicFilter]) -> Option<NodeId> {
        let session = self.sessions.get(key)?;
        let copies = session.stored.copies.iter();
        let others = copies.filter_map(|copy| self.journal.streams.node_of(copy.stream));
        let others: Vec<NodeId> = others.collect();
        if !filters.is_empty() {
            return self.backup_of(&session.client_id, filters, &others);
        }
        let held = session.subscriptions.keys().take(FILTERS);
        let held: Vec<TopicFilter> = held.map(|filter| filter.filter.clone()).collect();
        self.backup_of(&session.client_id, &held, &others)
    }

    /// Tells a node the whole of a session.
    fn tell_whole(&mut self, now: Now, key: SessionKey, index: u8) {
        if let Some(node) = self.journal.streams.node_of(index) {
            self.copies_go_to(node);
        }
        self.journal.write_done();
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.stored.number == 0 {
            session.stored.number = self.journal.next_number();
        }
        let is_empty = session.subscriptions.is_empty() && session.outbound.is_empty();
        let is_known = session.stored.copies.has(index);
        let stage = if is_empty && !is_known {
            Stage::Covered
        } else {
            Stage::Learning
        };
        session.stored.copies.set(index, stage);
        let number = session.stored.number;
        let Some(stream) = self.journal.streams.get_mut(index) else {
            return;
        };
        stream.writer.value(number, &session.value(now).encode());
        for (filter, subscription) in &session.subscriptions {
            stream
                .writer
                .subscribed(number, &encode_subscription(filter, subscription));
        }
        write_taken(&mut stream.writer, session);
        write_messages(&mut stream.writer, now, session);
        if stage == Stage::Learning {
            stream.writer.whole(number);
            stream.wait(Level::Held, Release::Learned(key, number));
        } else {
            stream.note_covered();
        }
    }
}
