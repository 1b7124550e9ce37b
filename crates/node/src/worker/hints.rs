//! What other nodes need to keep messages for the sessions here while this node is down, and what they kept then (rule 5 between nodes; the hub's
//! `hints` describes hinted handoff).

use std::{collections::BTreeSet, time::Duration};

use thicket_overlay::{NodeId, record::Records};
use thicket_session::time::Instant;

use super::{SessionKey, Worker, forward::Way, timers::Timer};
use crate::{
    EventLevel, MAXIMUM_BACKUPS, Now, Peer,
    messages::{Origin, ToHub},
};

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

impl Worker {
    /// A session that other nodes keep messages for unless it has its backup: reported at once if it has none.
    pub(super) fn note_uncovered(&mut self, key: SessionKey) {
        let lacks = self.cx.sessions.get(key).is_some_and(|session| {
            session.is_persistent()
                && !session.subscriptions.is_empty()
                && !session.stored.is_covered()
        });
        if lacks {
            self.have_uncovered();
        }
    }

    /// A session has no backup.
    pub(super) fn have_uncovered(&mut self) {
        let covers = &mut self.primaries.covers;
        covers.is_stale = true;
        covers.pause = SOON;
        if covers.reported.take().is_some() {
            self.cx.send_to_hub(ToHub::Covered(None));
        }
    }

    /// The set of nodes that are up has changed.
    pub(super) const fn look_for_uncovered(&mut self) {
        self.primaries.covers.is_stale = true;
        self.primaries.covers.pause = SOON;
    }

    /// Sessions that had no backups have them now.
    pub(super) const fn have_covered(&mut self) {
        self.primaries.covers.pause = SOON;
    }

    /// A node receives a full sync of a session: it is to have backups from now on.
    pub(super) fn backups_go_to(&mut self, node: NodeId) {
        if let Some(reported) = &mut self.primaries.covers.reported
            && reported.insert(vec![node])
        {
            let sets = reported.iter().cloned().collect();
            self.cx.send_to_hub(ToHub::Covered(Some(sets)));
        }
    }

    /// Checks whether all sessions have their backups, if that may have changed. Once a round.
    pub(super) fn review_covers(&mut self, now: Now) {
        let covers = &mut self.primaries.covers;
        if !covers.is_stale {
            return;
        }
        let due = covers.looked_at + covers.pause;
        if now.instant < due {
            if covers
                .timer_at
                .is_none_or(|at| at <= now.instant || at > due)
            {
                covers.timer_at = Some(due);
                self.cx.timers.set(due, Timer::Round);
            }
            return;
        }
        thicket_session::reach!("time SOON");
        covers.looked_at = now.instant;
        covers.pause = (covers.pause * 2).min(LATER);
        if covers.pause == LATER {
            thicket_session::reach!("time LATER");
        }
        covers.timer_at = Some(now.instant + covers.pause);
        let Some(sets) = self.find_covers() else {
            let next = now.instant + self.primaries.covers.pause;
            self.cx.timers.set(next, Timer::Round);
            if self.primaries.covers.reported.take().is_some() {
                self.cx.send_to_hub(ToHub::Covered(None));
            }
            return;
        };
        self.primaries.covers.is_stale = false;
        if self.primaries.covers.reported.as_ref() != Some(&sets) {
            let reported = sets.iter().cloned().collect();
            self.primaries.covers.reported = Some(sets);
            self.cx.send_to_hub(ToHub::Covered(Some(reported)));
        }
    }

    /// Which nodes have backups; `None`: a session that subscribes to something has none.
    fn find_covers(&self) -> Option<BTreeSet<Vec<NodeId>>> {
        let mut sets = BTreeSet::new();
        let sessions = self.cx.sessions.iter().map(|(_, session)| session);
        for session in sessions.filter(|it| it.is_persistent()) {
            let backups = session.stored.backups;
            // One that subscribes to nothing may do so at any time, and has its backup already.
            if backups.covered().next().is_some() {
                sets.insert(backups.covered_by());
            } else if !session.subscriptions.is_empty() {
                return None;
            }
        }
        let nodes = |streams: [Option<u8>; MAXIMUM_BACKUPS as usize]| {
            let streams = streams.into_iter().flatten();
            let nodes = streams.filter_map(|index| self.cx.journal.streams.node_of(index));
            let mut nodes: Vec<NodeId> = nodes.collect();
            nodes.sort_unstable();
            nodes
        };
        Some(sets.into_iter().map(nodes).collect())
    }

    /// A message that other nodes kept while this node was down.
    pub(super) fn handle_hinted(&mut self, now: Now, origin: Origin, bytes: &[u8]) {
        for record in Records::new(bytes) {
            let Ok((record, _)) = record else {
                let message = "unreadable record that another node kept";
                return self.cx.event(EventLevel::Error, message, Vec::new());
            };
            if self.handle_record(now, Peer::Hub, origin, &record, Way::Hint) {
                self.note_late(now, origin, record.number);
            }
        }
        self.watch_hints(now);
    }
}
