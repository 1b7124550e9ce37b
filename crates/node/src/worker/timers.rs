//! Deadlines with names. A timer that fires late, twice or for something gone is harmless: its handler compares with the state.

use super::{
    Worker, close::handle_connect_timeout, expiry::handle_message_expiry, rights::watch_grants,
    state::timers::Timer,
};
use crate::Now;

impl Worker {
    /// Timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Now) {
        if self.cx.has_left() {
            self.resume_left(now);
        }
        // Thousands of sessions or messages may expire at once.
        self.cx.effort.begin_turn();
        while !self.cx.effort.is_over()
            && let Some(timer) = self.cx.timers.pop_due(now.instant)
        {
            match timer {
                Timer::Connect { connection, serial } => {
                    handle_connect_timeout(&mut self.cx, connection, serial)
                }
                Timer::KeepAlive { connection, serial } => {
                    self.handle_keep_alive(now, connection, serial)
                }
                Timer::GrantEnd => watch_grants(&mut self.cx, now),
                Timer::WillDelay { session, serial } => self.handle_will_due(now, session, serial),
                Timer::SessionExpiry { session, serial } => {
                    self.handle_expiry(now, session, serial)
                }
                Timer::MessageExpiry { session, serial } => {
                    handle_message_expiry(&mut self.cx, now, session, serial)
                }
                Timer::RecoveredWills => {
                    thicket_session::reach!("time WILL_GRACE");
                    self.publish_recovered_wills(now, None);
                }
                Timer::Backups => self.sources.check_backups(&mut self.cx, now),
                Timer::Successors => self.promote_overdue_orphans(now),
                // The end of the round checks.
                Timer::Round => {}
                Timer::GroupGrace => self.groups.forget_absent_members(&mut self.cx, now),
            }
        }
    }
}
