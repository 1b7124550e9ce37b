//! When a session without connection ends, and when its will is published.

use super::{
    context::Context,
    state::{sessions::SessionKey, timers::Timer},
};
use crate::Now;

/// Expiry and will of a session without connection.
pub(super) fn restart_timers(cx: &mut Context, now: Now, key: SessionKey) {
    let Some(session) = cx.sessions.get(key) else {
        return;
    };
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
