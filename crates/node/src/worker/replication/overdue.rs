//! What is overdue at a backup: messages that the primary has named and that have not arrived, and messages that have arrived and that the primary does
//! not name.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use thicket_session::time::Instant;

use super::state::Sources;
use crate::{
    Now,
    messages::{BackupReport, ToHub},
    worker::{
        context::Context,
        state::{
            replica::backup::{ADOPTION_TIMEOUT, SourceKey},
            timers::Timer,
        },
    },
};

/// A message that the primary named and that did not arrive by itself in this time is requested.
const REQUEST_DELAY: Duration = Duration::from_millis(100);
/// A message that the primary does not name in this time is forgotten: the primary left it out silently.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Sequences requested at once.
const ASKED: usize = 1_000;
/// Messages, and bytes of them, that are sent to primaries at once: these look for the session of each.
const SENT_AT_ONCE: (usize, u64) = (64, 1024 * 1024);

impl Sources {
    /// Sets the next check of the backups: soon if one lacks a message, else now and then.
    pub(super) fn watch_backups(&mut self, cx: &mut Context, now: Now) {
        let wait = if self.lacks {
            REQUEST_DELAY
        } else {
            ADOPTION_TIMEOUT
        };
        let at = now.instant + wait;
        if cx.sessions.backups() > 0 && self.timer_at.is_none_or(|set| at < set) {
            self.timer_at = Some(at);
            cx.timers.set(at, Timer::Backups);
        }
    }

    /// Requests from primaries what did not arrive, sends them what they do not name and may not have, and forgets it in the end.
    pub(in super::super) fn check_backups(&mut self, cx: &mut Context, now: Now) {
        if self.timer_at.is_none_or(|at| at > now.instant) {
            // A stale timer: a nearer one was set after it.
            return;
        }
        self.timer_at = None;
        self.lacks = false;
        self.orphans.forget_replaced(now.instant);
        let since = |at: Instant, time: Duration| at + time <= now.instant;
        let mut requests: BTreeMap<SourceKey, Vec<(u64, u64)>> = BTreeMap::new();
        let (mut alone, mut bytes) = (Vec::new(), 0);
        for backup in cx.sessions.backups_mut() {
            for pending in backup.pending.iter_mut() {
                if pending.send_at > now.instant {
                    continue;
                }
                if alone.len() >= SENT_AT_ONCE.0 || bytes >= SENT_AT_ONCE.1 {
                    self.lacks = true;
                    break;
                }
                // After 2, 4, 8 and 16 seconds: the primary may only be slow.
                pending.send_at = now.instant + now.instant.since(pending.since);
                let message = Rc::clone(&pending.delivery.message);
                bytes += message.cost();
                alone.push((backup.source, backup.number, message));
            }
            backup.pending.retain(|pending| {
                let is_over = since(pending.since, FORGOTTEN);
                if is_over {
                    thicket_session::reach!("time FORGOTTEN");
                }
                !is_over
            });
            backup.passed.retain(|_, at| !since(*at, FORGOTTEN));
            let missing = backup.awaited.iter_mut().filter(|(_, it)| !it.is_asked);
            for ((_, sequence), awaited) in missing {
                let asked = requests.entry(backup.source).or_default();
                if since(awaited.since, REQUEST_DELAY) && asked.len() < ASKED {
                    thicket_session::reach!("time REQUEST_DELAY");
                    awaited.is_asked = true;
                    asked.push((backup.number, *sequence));
                } else {
                    self.lacks = true;
                }
            }
        }
        for (source, number, message) in alone {
            self.send_misrouted(cx, now, source, number, &message);
        }
        for ((to, worker), missing) in requests {
            let source = self.sources.get(&(to, worker));
            if let (Some(source), false) = (source, missing.is_empty()) {
                let stream = source.stream(worker);
                let report = BackupReport::Missing(missing);
                cx.send_to_hub(ToHub::BackupReport { to, stream, report });
            }
        }
        self.watch_backups(cx, now);
    }
}
