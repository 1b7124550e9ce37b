//! What a worker knows as the primary of its sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use super::{leveling::Leveling, pending_wills::PendingWills, shares::Shares};
use crate::{
    marks::SETTLED,
    messages::MisroutedMessage,
    worker::{context::Context, hints::Covers, state::session_key::SessionKey},
};

/// A worker's state as primary.
#[derive(Debug, Default)]
pub(in crate::worker) struct Primaries {
    /// The sets of backups as last sent to other nodes, which keep messages for the sessions by them (hinted handoff).
    pub covers: Covers,
    pub(in super::super) shares: Shares,
    pub(in super::super) leveling: Leveling,
    /// Sessions that wait for a full sync to a backup, with their serials.
    pub(in super::super) to_sync: VecDeque<(SessionKey, u64)>,
    /// Sessions that wait for a full sync to the nodes that are to be their primaries, with their serials.
    pub learners: Vec<(SessionKey, u64)>,
    /// Sessions that failed over or moved here, with their serials, by nodes that have backups of them and are not reachable yet.
    pub(in super::super) to_adopt: BTreeMap<NodeId, BTreeSet<(SessionKey, u64)>>,
    pub(in super::super) pending_wills: PendingWills,
    /// Messages of this round that reached only backups, with the stream of each backup.
    pub(in super::super) misrouted: Vec<(u8, MisroutedMessage)>,
    /// Nodes that were declared down: what was sent to them before is void, though they may not have noticed that they were down.
    pub(in super::super) void: BTreeSet<NodeId>,
    /// The other nodes that belong to the cluster, up or down.
    members: BTreeSet<NodeId>,
    /// One of them has been down.
    was_partitioned: bool,
    /// Since when all of them are up; `None`: some are down.
    whole_since: Option<Instant>,
}

impl Primaries {
    /// Whether nodes are down, or were until a moment ago (`SETTLED`), so that another one may have sessions that are here.
    pub fn is_partitioned(&self, now: Instant) -> bool {
        let is_settled = |since: Instant| since + SETTLED <= now;
        self.was_partitioned && !self.whole_since.is_some_and(is_settled)
    }

    /// Whether all nodes are up that belong to the cluster.
    pub fn is_whole(&self, cx: &Context) -> bool {
        cx.cluster.up.len() == self.members.len()
    }

    /// The nodes that are up have changed, or those that belong to the cluster.
    pub(in super::super) fn see(
        &mut self,
        cx: &Context,
        now: Instant,
        mut members: BTreeSet<NodeId>,
    ) {
        members.extend(cx.cluster.up.iter().map(|up| up.node));
        // They will not come back.
        for node in self.members.difference(&members) {
            self.void.remove(node);
            self.to_adopt.remove(node);
        }
        self.members = members;
        let is_whole = self.is_whole(cx);
        self.was_partitioned |= !is_whole;
        self.whole_since = self.whole_since.or(Some(now)).filter(|_| is_whole);
    }

    /// Other nodes may have had sessions that are here until now, though none was down.
    pub(in super::super) const fn note_partition(&mut self, now: Instant) {
        self.was_partitioned = true;
        if self.whole_since.is_some() {
            self.whole_since = Some(now);
        }
    }
}
