//! Copies that become the sessions: of a node that is out, and of one that is drained.

use std::rc::Rc;

use thicket_overlay::NodeId;
use thicket_session::server::Epoch;

use super::{
    pending::Pending,
    shadow::{Shadow, SourceKey},
};
use crate::{
    EventLevel, Now, Peer,
    mail::{Content, InterestChange, SessionState},
    worker::{SessionKey, Worker, interests::Member, sessions::Session},
};

impl Worker {
    /// A node is out: its sessions go on here, as far as their copies are here. Unless that is news, its clients' wills do not go out: it
    /// told them to another node when it did not see this one any more, and they may be called off since.
    pub(in super::super) fn handle_promote(&mut self, now: Now, node: NodeId, is_news: bool) {
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
                promoted += self.lose_owner(now, key, &mut changes);
            }
            wills.push((source, ended.wills));
        }
        promoted += self.lose_successor(now, node, &mut changes);
        self.announce(changes);
        self.tell_gone_on(now, promoted, vec![("node", node.to_string())]);
        for (source, wills) in wills {
            if is_news {
                self.publish_held_wills(now, source, &wills);
            } else {
                self.forget_wills(&wills);
            }
        }
        self.tell_promoted();
    }

    /// So many sessions go on here: messages that waited for members of their groups are given out again, and the log says so.
    pub(super) fn tell_gone_on(
        &mut self,
        now: Now,
        sessions: usize,
        mut fields: Vec<(&'static str, String)>,
    ) {
        self.choose_for_homeless(now);
        if sessions > 0 {
            fields.push(("sessions", sessions.to_string()));
            self.event(
                EventLevel::Info,
                "sessions of a node that is out go on here",
                fields,
            );
        }
    }

    /// A copy of a node that is out becomes the session, and the nodes with other copies are told. False: there is one already.
    pub(super) fn go_on(
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
        let identity = self.identity_of(key);
        let Some(session) = self.sessions.get_mut(key) else {
            return false;
        };
        let shadow = session.shadow.as_deref_mut();
        let members = shadow.map(|shadow| std::mem::take(&mut shadow.members));
        let members = members.unwrap_or_default();
        let has_gone_on = self.promote(now, key, is_split, changes);
        let has_copies = has_gone_on && self.wanted_copies() > 0;
        if has_copies {
            self.adopt_copies(key, &members);
            self.copy_new(now, key);
        } else if let Some((uid, epoch)) = identity {
            // There is another session, or this node lets its sessions have no copies: nobody would tell these anything any more.
            self.void_copies(uid, epoch, &members);
        }
        has_gone_on
    }

    /// The owner goes on with its sessions: what is here was told before it was out of sight.
    pub(in super::super) fn handle_drop_copies(&mut self, now: Now, node: NodeId) {
        let keys = self.sources.sources.keys();
        let sources: Vec<SourceKey> = keys.filter(|key| key.0 == node).copied().collect();
        for source in sources {
            let mut changes = Vec::new();
            self.end_source(now, source, &mut changes);
            self.announce(changes);
        }
    }

    /// Its owner, which is drained, hands a session over.
    pub(super) fn go_on_with(
        &mut self,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) {
        self.take_over_copy(now, key, false, changes);
    }

    /// Its owner lives, and may lack messages that are here: both have the session until it has taken them in.
    pub(super) fn go_on_beside(
        &mut self,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) {
        self.take_over_copy(now, key, true, changes);
    }

    fn take_over_copy(
        &mut self,
        now: Now,
        key: SessionKey,
        is_split: bool,
        changes: &mut Vec<InterestChange>,
    ) {
        let session = self.sessions.get_mut(key);
        if let Some(shadow) = session.and_then(|session| session.shadow.as_mut())
            && shadow.stored.disconnected_at_ms.is_none()
        {
            // Its client is sent away, or is where it was: that is no death.
            shadow.stored.will = None;
        }
        let client_id = self.sessions.get(key).map(|it| Rc::clone(&it.client_id));
        let has_gone_on = if is_split {
            let has_gone_on = self.promote(now, key, is_split, changes);
            if has_gone_on {
                self.copy_new(now, key);
            }
            has_gone_on
        } else {
            self.promote_first(now, key, is_split, changes)
        };
        if let Some(client_id) = client_id
            && has_gone_on
        {
            if let Some(session) = self.sessions.get_mut(key).filter(|_| !is_split) {
                session.epoch = session.epoch.handed_over();
            }
            let epoch = self
                .sessions
                .get(key)
                .map_or(Epoch::NONE, |session| session.epoch);
            let client_id = (*client_id).into();
            let taken_over = Content::TakenOver {
                client_id,
                epoch,
                is_beside: is_split,
            };
            self.mail_after_records(Peer::Hub, taken_over);
        }
    }

    /// A shadow becomes the session. `is_split`: its owner may live, out of sight, and go on with it too. False: there is one of its
    /// client identifier already. It has no copies yet.
    fn promote(
        &mut self,
        now: Now,
        key: SessionKey,
        is_split: bool,
        changes: &mut Vec<InterestChange>,
    ) -> bool {
        let Some(client_id) = self.sessions.get(key).map(|it| Rc::clone(&it.client_id)) else {
            return false;
        };
        if let Some(here) = self.sessions.find(&client_id) {
            let is_in_service =
                |it: &Session| !it.awaits_queue && (it.let_go_at.is_none() || it.is_contested);
            if self.sessions.get(here).is_none_or(is_in_service) {
                changes.extend(self.drop_shadow(key));
                return false;
            }
            // It was on its way here, and its queue went down with its node; or it was on its way there, and the copy has more.
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
            source,
            is_learning,
            stored,
            mut held,
            mut pending,
            awaited,
            ..
        } = *shadow;
        for awaited in awaited.into_values() {
            // Nobody who published it was told that it had been taken.
            held.handle_dropped(awaited.sequence);
        }
        // Its publisher sent it again, and the owner would have passed it over.
        pending.retain(|pending| !pending.is_repeated);
        let mut known: Vec<_> = held.messages().filter(|id| id.number > 0).collect();
        held.restore(&mut session.outbound, &mut session.inbound);
        if is_split {
            known.sort_unstable();
            let unheard = pending.iter().map(|it| it.delivery.message.id());
            session.split_off(source.0, known, unheard.collect(), is_learning);
        }
        for Pending { delivery, .. } in pending {
            if session.outbound.enqueue(delivery).is_err() {
                session.dropped_messages += 1;
                self.traffic.dropped_messages += 1;
            }
        }
        session.taken.go_on();
        session.revive(now, stored);
        session.epoch = session.epoch.promoted();
        for (filter, subscription) in session.subscriptions.clone() {
            if filter.is_shared() {
                let member = Member::away(subscription);
                changes.extend(self.interests.subscribe(key, &filter, member));
            } else {
                self.sources.subscriptions -= 1;
            }
        }
        self.restart_timers(now, key);
        self.write_anew(now, key);
        self.tell_session(&client_id, SessionState::Waiting);
        true
    }
}
