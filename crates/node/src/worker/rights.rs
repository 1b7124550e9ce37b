//! What a session's client may do: checked at PUBLISH and SUBSCRIBE, where messages are routed, and again when rights change.
//!
//! A session without rights may do everything, at the price of one comparison. With rights, a PUBLISH costs a look-up in a small cache. A delivery
//! costs nothing: the cached route of a topic leaves out sessions that may not read it, and only sessions with a subscription that reaches beyond
//! what they may read (`is_checked`) are checked when it is computed.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use thicket_access::{Grant, Policy, Review, Rights};
use thicket_mqtt::ReasonCode;
use thicket_session::time::WallClock;

use super::{
    Worker,
    context::Context,
    refusal::Refusal,
    state::{
        interests::Route,
        sessions::{Cause, SessionKey},
        timers::Timer,
    },
};
use crate::{ConnectionId, EventLevel, Now, messages::peer_text};

/// Why a client is sent away whose grant has ended.
const EXPIRED: &str = "its token or certificate has expired";

impl Context {
    /// Where messages of `topic` go, with the sessions that may read it.
    pub(super) fn route(&mut self, topic: &str) -> Rc<Route> {
        let sessions = &self.sessions;
        // Called only when the route is not cached.
        let route = self.interests.route(topic, &|session| {
            sessions
                .get(session)
                .is_none_or(|session| session.may_receive(topic))
        });
        self.effort.spend(1 + self.interests.take_steps());
        route
    }
}

impl Worker {
    /// Users or rights were read again.
    pub(super) fn handle_reloaded(&mut self, now: Now, policy: &Policy) {
        self.relocations.reloads += 1;
        let reviews: Vec<(SessionKey, Review)> = self
            .cx
            .sessions
            .iter()
            .filter_map(|(key, session)| {
                let review = policy.review(session.grant.as_deref()?);
                (review != Review::Same).then_some((key, review))
            })
            .collect();
        for (key, review) in reviews {
            match review {
                Review::Same => {}
                Review::Changed(grant) => {
                    set_grant(&mut self.cx, key, Some(grant));
                    self.primaries.review_will(&mut self.cx, now, key);
                }
                Review::Ended => self.end_grant(now, key),
            }
        }
    }

    /// The client of a session may not be here any more. Its session, if it outlives the connection, gets nothing until a client that may connects.
    fn end_grant(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.cx.sessions.get(key) else {
            return;
        };
        if let Some(id) = session.connection {
            let refusal = Refusal::new(
                ReasonCode::NotAuthorized,
                "the user is gone or its password has changed",
            );
            self.dismiss(now, id, &refusal);
        }
        set_rights(&mut self.cx, key, Some(Arc::default()));
    }

    /// Ends a connection that broke no rule.
    fn dismiss(&mut self, now: Now, id: ConnectionId, refusal: &Refusal) {
        let session = self.cx.session_at(id);
        let client_id = session.map(|session| session.client_id.to_string());
        let peer = self.cx.connections.get(id).map(|it| peer_text(it.peer));
        let fields = vec![
            ("client_id", client_id.unwrap_or_default()),
            ("peer", peer.unwrap_or_default()),
            ("reason", refusal.reason.clone()),
        ];
        self.cx.event(EventLevel::Info, "client sent away", fields);
        self.cx.disconnect(id, refusal.reason_code, &refusal.reason);
        self.detach(now, id, Cause::Closed);
    }

    /// Ends the connections whose grants have ended: before anything else, as a node that stood still may have read what their clients sent since.
    #[inline]
    pub(super) fn end_grants(&mut self, now: Now) {
        if self.cx.grant_ends.are_due(now.wall) {
            self.end_due_grants(now);
        }
    }

    #[cold]
    fn end_due_grants(&mut self, now: Now) {
        // Thousands may end at once.
        self.cx.effort.begin_turn();
        while !self.cx.effort.is_over()
            && let Some((id, serial)) = self.cx.grant_ends.pop_due(now.wall)
        {
            // It may have been renewed meanwhile.
            let has_ended = grant_end(&self.cx, id).is_some_and(|at| at <= now.wall);
            if self.cx.connections.is_same(id, serial) && has_ended {
                thicket_session::reach!("worker/rights: the rights of a client have ended");
                let refusal = Refusal::new(ReasonCode::MaximumConnectTime, EXPIRED);
                self.dismiss(now, id, &refusal);
            }
        }
        watch_grants(&mut self.cx, now);
    }
}

/// Why the client of a session may not publish to `topic`, if it may not; counted.
#[inline]
pub(super) fn refuse_publish(cx: &mut Context, key: SessionKey, topic: &str) -> Option<ReasonCode> {
    if cx.have_rights {
        refuse_by_rights(cx, key, topic)
    } else {
        None
    }
}

#[inline(never)]
fn refuse_by_rights(cx: &mut Context, key: SessionKey, topic: &str) -> Option<ReasonCode> {
    let session = cx.sessions.get_mut(key)?;
    if session.may_publish(topic) {
        return None;
    }
    cx.traffic.refused_messages += 1;
    Some(ReasonCode::NotAuthorized)
}

/// What a session's client was granted, now that it has connected or the files have changed.
pub(super) fn set_grant(cx: &mut Context, key: SessionKey, grant: Option<Arc<Grant>>) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let rights = grant.as_ref().and_then(|grant| grant.rights.clone());
    session.grant = grant;
    set_rights(cx, key, rights);
}

fn set_rights(cx: &mut Context, key: SessionKey, rights: Option<Arc<Rights>>) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let present = session.rights.as_ref().map(|rights| rights.cached.rights());
    if present == rights.as_ref() {
        return;
    }
    cx.have_rights |= rights.is_some();
    session.set_rights(rights);
    let subscriptions = std::mem::take(&mut session.subscriptions);
    let (kept, lost): (BTreeMap<_, _>, BTreeMap<_, _>) = subscriptions
        .into_iter()
        .partition(|(filter, _)| session.keeps(filter));
    session.subscriptions = kept;
    let stored = session.stored;
    let mut changes = Vec::new();
    for filter in lost.keys() {
        cx.journal.subscription(stored, filter, None);
        changes.extend(cx.interests.unsubscribe(key, filter));
    }
    cx.interests.touch();
    cx.announce(changes);
}

/// A grant that ends is to be noticed.
pub(super) fn watch_grant(cx: &mut Context, now: Now, id: ConnectionId, serial: u64) {
    if let Some(at) = grant_end(cx, id) {
        cx.grant_ends.set(at, id, serial);
        watch_grants(cx, now);
    }
}

/// Sets the timer for the next grant that ends.
pub(super) fn watch_grants(cx: &mut Context, now: Now) {
    if let Some(at) = cx.grant_ends.wake_at(now) {
        cx.timers.set(at, Timer::GrantEnd);
    }
}

/// Why a client is not served though it was admitted: its grant has ended while its session was fetched, or failed over.
pub(super) fn refuses_ended(now: Now, grant: Option<&Grant>) -> Option<Refusal> {
    let has_ended = end_of(grant?)? <= now.wall;
    has_ended.then(|| Refusal::new(ReasonCode::BadUserNameOrPassword, EXPIRED))
}

/// When the grant of a connection in service ends.
fn grant_end(cx: &Context, id: ConnectionId) -> Option<WallClock> {
    let session = cx.sessions.get(cx.connections.session_of(id)?)?;
    end_of(session.grant.as_ref()?)
}

fn end_of(grant: &Grant) -> Option<WallClock> {
    let at_s = grant.expires_at_s?;
    Some(WallClock::from_unix_millis(at_s.saturating_mul(1000)))
}
