//! Which backups the sessions here have, as sent to other nodes so that they can keep messages while this node is down (rule 5 between nodes; the
//! hub's `hints` describes hinted handoff).

use std::{collections::BTreeSet, time::Duration};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use super::{
    context::Context,
    state::{sessions::SessionKey, timers::Timer},
};
use crate::{MAXIMUM_BACKUPS, Now, messages::ToHub};

/// Time between checks whether all sessions have their backups: at first, and at most.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(10);

/// Who has backups of the sessions here, as last sent to the hub.
#[derive(Debug)]
pub(super) struct Covers {
    /// Sets of nodes of which each session with subscriptions has one; `None`: a session has no backup.
    reported: Option<BTreeSet<Vec<NodeId>>>,
    /// What was sent may be more than there is.
    is_stale: bool,
    /// When that was checked last, and the time until the next check.
    looked_at: Instant,
    pause: Duration,
    timer_at: Option<Instant>,
}

impl Default for Covers {
    fn default() -> Self {
        Self {
            reported: Some(BTreeSet::new()),
            is_stale: false,
            looked_at: Instant::default(),
            pause: SOON,
            timer_at: None,
        }
    }
}

impl Covers {
    /// A session that other nodes keep messages for unless it has its backup: reported at once if it has none.
    pub(super) fn note_uncovered(&mut self, cx: &mut Context, key: SessionKey) {
        let lacks = cx.sessions.get(key).is_some_and(|session| {
            session.is_persistent()
                && !session.subscriptions.is_empty()
                && !session.stored.has_complete_backup()
        });
        if lacks {
            self.have_uncovered(cx);
        }
    }

    /// A session has no backup.
    pub(super) fn have_uncovered(&mut self, cx: &mut Context) {
        self.is_stale = true;
        self.pause = SOON;
        if self.reported.take().is_some() {
            cx.send_to_hub(ToHub::Covered(None));
        }
    }

    /// The set of nodes that are up has changed.
    pub(super) const fn look_for_uncovered(&mut self) {
        self.is_stale = true;
        self.pause = SOON;
    }

    /// Sessions that had no backups have them now.
    pub(super) const fn have_covered(&mut self) {
        self.pause = SOON;
    }

    /// A node receives a full sync of a session: it is to have backups from now on.
    pub(super) fn backups_go_to(&mut self, cx: &mut Context, node: NodeId) {
        if let Some(reported) = &mut self.reported
            && reported.insert(vec![node])
        {
            let sets = reported.iter().cloned().collect();
            cx.send_to_hub(ToHub::Covered(Some(sets)));
        }
    }

    /// Checks whether all sessions have their backups, if that may have changed. Once a round.
    pub(super) fn review(&mut self, cx: &mut Context, now: Now) {
        if !self.is_stale {
            return;
        }
        let due = self.looked_at + self.pause;
        if now.instant < due {
            if self.timer_at.is_none_or(|at| at <= now.instant || at > due) {
                self.timer_at = Some(due);
                cx.timers.set(due, Timer::Round);
            }
            return;
        }
        thicket_session::reach!("time SOON");
        self.looked_at = now.instant;
        self.pause = (self.pause * 2).min(LATER);
        if self.pause == LATER {
            thicket_session::reach!("time LATER");
        }
        self.timer_at = Some(now.instant + self.pause);
        let Some(sets) = find_covers(cx) else {
            let next = now.instant + self.pause;
            cx.timers.set(next, Timer::Round);
            if self.reported.take().is_some() {
                cx.send_to_hub(ToHub::Covered(None));
            }
            return;
        };
        self.is_stale = false;
        if self.reported.as_ref() != Some(&sets) {
            let reported = sets.iter().cloned().collect();
            self.reported = Some(sets);
            cx.send_to_hub(ToHub::Covered(Some(reported)));
        }
    }
}

/// Which nodes have backups; `None`: a session that subscribes to something has none.
fn find_covers(cx: &Context) -> Option<BTreeSet<Vec<NodeId>>> {
    let mut sets = BTreeSet::new();
    let sessions = cx.sessions.iter().map(|(_, session)| session);
    for session in sessions.filter(|it| it.is_persistent()) {
        let backups = session.stored.backups;
        // One that subscribes to nothing may do so at any time, and has its backup already.
        if backups.complete().next().is_some() {
            sets.insert(backups.complete_streams());
        } else if !session.subscriptions.is_empty() {
            return None;
        }
    }
    let nodes = |streams: [Option<u8>; MAXIMUM_BACKUPS as usize]| {
        let streams = streams.into_iter().flatten();
        let nodes = streams.filter_map(|index| cx.journal.streams.node_of(index));
        let mut nodes: Vec<NodeId> = nodes.collect();
        nodes.sort_unstable();
        nodes
    };
    Some(sets.into_iter().map(nodes).collect())
}
