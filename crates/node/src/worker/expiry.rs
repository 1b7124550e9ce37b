//! How long a session is to outlive its connection, when it ends without one, and when its will is published.

use thicket_mqtt::{Connect, ProtocolVersion};

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

/// Session Expiry Interval in seconds; older clients specify only whether the session ends with the connection.
pub(super) fn granted_expiry(cx: &Context, connect: &Connect<'_>) -> u32 {
    let maximum = cx.config.limits.session_expiry_maximum;
    match connect.version {
        ProtocolVersion::V5 => connect.session_expiry_interval.unwrap_or(0).min(maximum),
        ProtocolVersion::V31 | ProtocolVersion::V311 if connect.clean_start => 0,
        ProtocolVersion::V31 | ProtocolVersion::V311 => maximum,
    }
}
