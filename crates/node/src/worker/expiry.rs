//! How long a session is to outlive its connection, when it ends without one, and when its will is published; messages that expire in its queue.

use std::time::Duration;

use thicket_mqtt::{Connect, ProtocolVersion};

use super::{
    context::Context,
    state::{
        journal::Journal,
        sessions::{Session, SessionKey},
        timers::{Timer, Timers},
    },
};
use crate::{Now, Traffic, work::EXPIRED};

/// Messages of a queue are dropped this long after the first of them has expired, together with those that have expired by then.
const EXPIRED_TOGETHER: Duration = Duration::from_secs(1);

/// Expiry of a session without connection, of its will, and of the messages that wait for it.
pub(super) fn restart_timers(cx: &mut Context, now: Now, key: SessionKey) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    session.messages_expire_at = None;
    watch_queue(&mut cx.timers, now, key, session);
    let serial = session.serial;
    if let Some(due) = session.expires_at() {
        cx.timers.set(
            due.max(now.instant),
            Timer::SessionExpiry {
                session: key,
                serial,
            },
        );
    }
    if let Some(due) = session.will_due {
        cx.timers.set(
            due.max(now.instant),
            Timer::WillDelay {
                session: key,
                serial,
            },
        );
    }
}

/// A timer for the messages that expire in the queue of a session.
pub(super) fn watch_queue(timers: &mut Timers, now: Now, key: SessionKey, session: &mut Session) {
    let Some(next) = session.outbound.next_expiry() else {
        return;
    };
    let due = next.max(now.instant) + EXPIRED_TOGETHER;
    if session.messages_expire_at.is_some_and(|at| at <= due) {
        return;
    }
    session.messages_expire_at = Some(due);
    let serial = session.serial;
    let session = key;
    timers.set(due, Timer::MessageExpiry { session, serial });
}

/// Messages that have expired in the queue of a session give their memory, and their part of the log, back.
pub(super) fn handle_message_expiry(cx: &mut Context, now: Now, key: SessionKey, serial: u64) {
    let Some(session) = cx.sessions.get_same(key, serial) else {
        return;
    };
    // An earlier timer may have been set since.
    if session.messages_expire_at.is_none_or(|at| at > now.instant) {
        return;
    }
    while drop_expired(&mut cx.journal, &mut cx.traffic, now, session) {
        cx.effort.spend(EXPIRED);
        if cx.effort.is_over() {
            // The rest has the next round.
            let session = key;
            let timer = Timer::MessageExpiry { session, serial };
            return cx.timers.set(now.instant, timer);
        }
    }
    session.messages_expire_at = None;
    // The queue of one that moves to another node is that node's.
    if !session.role.is_frozen() {
        watch_queue(&mut cx.timers, now, key, session);
    }
}

/// Drops a message that has expired while it waited. False: there is none.
fn drop_expired(
    journal: &mut Journal,
    traffic: &mut Traffic,
    now: Now,
    session: &mut Session,
) -> bool {
    if session.role.is_frozen() {
        return false;
    }
    let Some(sequence) = session.outbound.drop_expired(now.instant) else {
        return false;
    };
    journal.dropped(session.stored, sequence);
    traffic.expired_messages += 1;
    true
}

/// Whether the queue of a session can accept a message of this cost. What has expired takes no other message's place [MQTT-3.3.2-5].
pub(super) fn queue_has_capacity(
    journal: &mut Journal,
    traffic: &mut Traffic,
    now: Now,
    session: &mut Session,
    cost: u64,
) -> bool {
    while !session.outbound.has_capacity(cost) {
        if !drop_expired(journal, traffic, now, session) {
            return false;
        }
    }
    true
}

/// Session Expiry Interval in seconds; older clients specify only whether the session ends with the connection.
pub(super) fn granted_expiry(cx: &Context, connect: &Connect<'_>) -> u32 {
    let maximum = cx.config.limits.session_expiry_maximum;
    match connect.version {
        ProtocolVersion::V5 => connect.session_expiry_interval.unwrap_or(0).min(maximum),
        ProtocolVersion::V31 | ProtocolVersion::V311 if connect.clean_start => 0,
        ProtocolVersion::V31 | ProtocolVersion::V311 => maximum,
    }
}
