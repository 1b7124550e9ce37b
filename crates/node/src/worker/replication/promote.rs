//! Promotion of backups: of a node that is down, and of one that hands sessions over.

use std::{collections::BTreeSet, rc::Rc, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::server::{Ancestor, MessageId};

use super::{
    misrouted::deliver_pending,
    orphans::{identity_of, report_taken_over, void_backups},
    storing::write_whole,
};
use crate::{
    EventLevel, Now, SESSIONS_FAILED_OVER,
    marks::Marks,
    messages::{InterestChange, Merge, SessionState, ToHub},
    queue::{History, Moved},
    worker::{
        Worker,
        context::Context,
        expiry::restart_timers,
        state::{
            interests::Member,
            replica::{
                backup::{Backup, SourceKey, StreamPosition},
                pending::Pending,
            },
            role::{Event, Reason, Role, Switchover},
            sessions::{Session, SessionKey},
        },
    },
};

impl Worker {
    /// A node is down: its sessions whose backups are here fail over to this node. `publishes_wills`: this side declared the node down while it
    /// had quorum. Otherwise the wills may have been published or cancelled elsewhere since.
    pub(in super::super) fn handle_promote(
        &mut self,
        now: Now,
        node: NodeId,
        publishes_wills: bool,
    ) {
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
        let mut wills = Vec::new();
        for source in sources {
            let ended = self.sources.sources.remove(&source).unwrap_or_default();
            for key in ended.sessions.into_values() {
                promoted += self.lose_primary(now, key, &mut changes);
            }
            wills.push((source, ended.wills));
        }
        promoted += self.lose_successor(now, node, &mut changes);
        self.cx.announce(changes);
        self.report_failover(now, promoted, vec![("node", node.to_string())]);
        for (source, wills) in wills {
            if publishes_wills {
                self.publish_held_wills(now, source, &wills);
            } else {
                self.sources.forget_wills(&wills);
            }
        }
        self.sources.report_promoted(&mut self.cx);
    }

    /// `sessions` sessions failed over to this node: assigns messages that waited for members of their groups again, and logs it.
    pub(super) fn report_failover(
        &mut self,
        now: Now,
        sessions: usize,
        mut fields: Vec<(&'static str, String)>,
    ) {
        self.groups.reassign_unassigned(&mut self.cx, now);
        if sessions > 0 {
            fields.push(("sessions", sessions.to_string()));
            self.cx
                .event(EventLevel::Info, SESSIONS_FAILED_OVER, fields);
        }
    }

    /// Promotes a backup of a node that is down, and adopts the other backups. False: the session is here already.
    pub(super) fn fail_over(
        &mut self,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) -> bool {
        self.promote_first(now, key, true, changes)
    }

    fn promote_first(
        &mut self,
        now: Now,
        key: SessionKey,
        is_split: bool,
        changes: &mut Vec<InterestChange>,
    ) -> bool {
        let identity = identity_of(&self.cx, key);
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return false;
        };
        let backup = session.backup_mut();
        let members = backup.map(|backup| std::mem::take(&mut backup.replica_set));
        let members = members.unwrap_or_default();
        let has_failed_over = self.promote(now, key, is_split, changes);
        let has_backups = has_failed_over && self.cx.wanted_backups() > 0;
        if has_backups {
            self.primaries.adopt_backups(&mut self.cx, key, &members);
            self.primaries.backup_new(&mut self.cx, now, key);
        } else if let Some((uid, version)) = identity {
            // There is another session, or this node keeps no backups: nobody would replicate to these any more.
            void_backups(&mut self.cx, uid, version, &members);
        }
        has_failed_over
    }

    /// Backups of which newer ones were promoted here end. What they had of the session the newer primary had too, and has finished or sent; only
    /// what it had not named may be here alone. Once a round.
    pub(in super::super) fn end_superseded(&mut self, now: Now) {
        let mut changes = Vec::new();
        for (key, serial) in std::mem::take(&mut self.sources.superseded) {
            let Some(session) = self.cx.sessions.get_same(key, serial) else {
                continue;
            };
            thicket_session::reach!("worker/replication/promote: a backup is superseded");
            let client_id = Rc::clone(&session.client_id);
            let backup = session.backup_mut();
            let pending = backup.map(|backup| std::mem::take(&mut backup.pending));
            changes.extend(self.sources.drop_backup(&mut self.cx, key));
            let Some(here) = self.cx.sessions.find(&client_id) else {
                continue;
            };
            for Pending { delivery, .. } in pending.into_iter().flatten() {
                deliver_pending(&mut self.cx, now, here, &delivery.message);
            }
        }
        self.cx.announce(changes);
    }

    /// The primary still serves its sessions: the backups here date from before a partition.
    pub(in super::super) fn handle_drop_backups(&mut self, now: Now, node: NodeId) {
        let keys = self.sources.sources.keys();
        let sources: Vec<SourceKey> = keys.filter(|key| key.0 == node).copied().collect();
        for source in sources {
            let mut changes = Vec::new();
            self.end_source(now, source, &mut changes);
            self.cx.announce(changes);
        }
    }

    /// A primary hands a session over, and this node has applied all that it was sent. False: it does not take the session over.
    pub(in super::super) fn promote_handed_session(
        &mut self,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) -> bool {
        drop_will_of_connected(&mut self.cx, key);
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return false;
        };
        let client_id: Arc<str> = (*session.client_id).into();
        let Role::Backup(backup) = &mut session.role else {
            return false;
        };
        let (source, number) = (backup.source, backup.number);
        debug_assert!(
            !backup.is_learning && !backup.lacks_messages(),
            "only a backup that has all of a session takes it over"
        );
        let history = backup.history.take().and_then(|it| History::decode(&it));
        debug_assert!(
            history.is_some(),
            "its former primary says what had arrived there"
        );
        if let Some(history) = &history {
            // What had arrived there and was not named in the stream is none of its messages.
            let marks = &history.marks;
            backup
                .pending
                .retain(|pending| !marks.contain(pending.delivery.message.id()));
            for (uid, accepted) in &history.accepted {
                session.accepted.insert_before(*uid, *accepted);
            }
        }
        if let Some(source) = self.sources.sources.get_mut(&source) {
            source.sessions.remove(&number);
        }
        if !self.promote_first(now, key, false, changes) {
            let from = source.0;
            self.cx
                .send_to_hub(ToHub::HandoverRefused { client_id, from });
            return false;
        }
        if let Some(history) = history {
            self.primaries.set_history(&mut self.cx, now, key, history);
        }
        true
    }

    /// The primary is up, and may lack messages that are here: both have the session until the primary has merged them.
    pub(super) fn promote_as_branch(
        &mut self,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) {
        drop_will_of_connected(&mut self.cx, key);
        if self.promote(now, key, true, changes) {
            self.primaries.backup_new(&mut self.cx, now, key);
            report_taken_over(&mut self.cx, key, SessionState::Branch);
        }
    }

    /// Promotes a backup. `is_split`: its primary may be up in another partition, and serve the session too. False: there is a session of its client
    /// identifier already. The promoted session has no backups yet.
    fn promote(
        &mut self,
        now: Now,
        key: SessionKey,
        is_split: bool,
        changes: &mut Vec<InterestChange>,
    ) -> bool {
        let Some(client_id) = self.cx.sessions.get(key).map(|it| Rc::clone(&it.client_id)) else {
            return false;
        };
        self.end_if_over(now, &client_id);
        if let Some(here) = self.cx.sessions.find(&client_id) {
            if self
                .cx
                .sessions
                .get(here)
                .is_none_or(Session::is_in_service)
            {
                self.give_up_backup(now, key, here, is_split, changes);
                return false;
            }
            // The session here was handed over, and the backup has more.
            if let Some(session) = self.remove_session(here, SessionState::Gone) {
                self.groups
                    .pass_shared_on(&mut self.cx, now, &session.outbound);
            }
        }
        self.cx.sessions.promote(key);
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return false;
        };
        if !session.become_primary(now, is_split, &mut self.cx.arrivals.unblocked) {
            return false;
        }
        for (filter, subscribed) in &session.subscriptions {
            if filter.is_shared() {
                let member = Member::away(subscribed.subscription);
                changes.extend(self.cx.interests.subscribe(key, filter, member));
            } else {
                self.sources.subscriptions -= 1;
            }
        }
        restart_timers(&mut self.cx, now, key);
        write_whole(&mut self.cx, now, key);
        self.cx.report_session(&client_id, SessionState::Waiting);
        true
    }

    /// A session is in service here already, `here`. If it is a branch, promoted from the backup of another primary, it merges what is only in this
    /// backup: its primary is down, and no other node may have that.
    fn give_up_backup(
        &mut self,
        now: Now,
        key: SessionKey,
        here: SessionKey,
        is_split: bool,
        changes: &mut Vec<InterestChange>,
    ) {
        let session = self.cx.sessions.get(here);
        let may_merge = session.is_some_and(|it| it.role.is_primary() && it.merging.is_none());
        if !(is_split && may_merge) {
            changes.extend(self.sources.drop_backup(&mut self.cx, key));
            return;
        }
        let (own, place) = (self.cx.config.node, self.cx.worker_of_node());
        let epoch = session.map(|it| it.epoch).unwrap_or_default();
        let Some(mut backup) = self.cx.sessions.remove(key) else {
            return;
        };
        thicket_session::reach!(
            "worker/replication/promote: a backup is merged into a branch here"
        );
        backup.become_primary(now, true, &mut self.cx.arrivals.unblocked);
        let source_epoch = backup.epoch;
        let merge = Merge {
            node: own,
            // Above both: backups of either are out of date.
            epoch: epoch.max(source_epoch).next_merge(),
            source_epoch,
        };
        let reason = Reason::Branch(None);
        backup
            .role
            .change(Event::Asked(Switchover { to: own, reason }));
        let snapshot = backup.snapshot(place, now.instant);
        let moved = Moved {
            marks: Marks::new(),
            accepted: backup.accepted.iter().map(|(uid, it)| (uid, *it)).collect(),
            queue: {
                let queue = backup.outbound.queue_from(0);
                queue.map(|(_, delivery)| delivery.clone()).collect()
            },
        };
        self.merge_own_branch(now, here, snapshot, merge, moved);
        changes.extend(self.sources.end_interests(&mut self.cx, key, &backup));
    }
}

impl Session {
    /// The backup becomes the session, with all that has arrived for it. False: this is no backup. Adds to `unblocked` the stream positions that
    /// no longer wait for its messages.
    fn become_primary(
        &mut self,
        now: Now,
        is_split: bool,
        unblocked: &mut Vec<StreamPosition>,
    ) -> bool {
        let Some(Role::Backup(backup)) = self.role.change(Event::Promoted) else {
            return false;
        };
        let Backup {
            source,
            is_learning,
            number,
            stored,
            mut held,
            pending,
            awaited,
            ..
        } = *backup;
        for ((id, sequence), awaited) in awaited {
            // Its publisher has received no acknowledgement.
            held.handle_dropped(sequence);
            self.marks.remove(id);
            unblocked.extend(awaited.blocks);
        }
        let mut known: Vec<_> = held.messages().filter(|id| id.number > 0).collect();
        held.restore(&mut self.outbound, &mut self.inbound);
        self.outbound.note_time(now.instant);
        self.accepted.continue_generations();
        let mut pending: Vec<Pending> = pending.into_iter().collect();
        // Drops what its publisher sent again and the primary would have passed over.
        pending.retain(|it| self.is_new_message(&it.delivery, it.is_seen));
        if is_learning {
            // What it was sent with the full sync may still arrive by itself: others had kept it for this node.
            let arrived: BTreeSet<MessageId> =
                pending.iter().map(|it| it.delivery.message.id()).collect();
            let sent = known.iter().filter(|id| id.is_sent());
            self.imported
                .extend(sent.filter(|id| !arrived.contains(id)));
        }
        let from = Ancestor {
            node: source.0.0,
            worker: source.1,
            number,
        };
        if is_split {
            known.sort_unstable();
            let unnamed = pending.iter().map(|it| it.delivery.message.id());
            self.split_off(from, known, unnamed.collect(), is_learning);
        } else {
            self.ancestors.note(from);
        }
        for Pending { delivery, .. } in pending {
            self.outbound.enqueue_accepted(delivery);
        }
        self.revive(now, stored);
        self.epoch = if is_split {
            self.epoch.promoted()
        } else {
            self.epoch.handed_over()
        };
        true
    }
}

/// A client that was sent away, or is still connected to the primary, is not dead: its will is dropped.
fn drop_will_of_connected(cx: &mut Context, key: SessionKey) {
    let session = cx.sessions.get_mut(key);
    if let Some(backup) = session.and_then(|session| session.backup_mut())
        && backup.stored.disconnected_at.is_none()
    {
        backup.stored.will = None;
    }
}
