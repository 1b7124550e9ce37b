//! A thread that stood still, with `partition = "majority"`: others may have promoted its sessions
//! meanwhile, and what waits unread in its sockets may have been sent again there. So it accepts
//! nothing of QoS 1 and 2, as without quorum, until its hub has said that this node still counts.

use std::{sync::Arc, time::Duration};

use thicket_session::time::Instant;

use super::Worker;
use crate::{
    Now,
    messages::{Cluster, ToHub},
};

impl Worker {
    /// Detects that this thread stood still, before anything that waited is handled.
    pub(super) fn note_time(&mut self, now: Now) {
        let before = self.breath.replace(now.instant);
        let silent = now.instant.since(before.unwrap_or(now.instant));
        if self.lease().is_none_or(|lease| silent < lease) {
            return;
        }
        thicket_session::reach!("worker/pause: a thread stood still");
        if !self.cx.cluster.is_minority {
            let cluster = Cluster {
                is_minority: true,
                ..(*self.cx.cluster).clone()
            };
            self.handle_cluster(now, Arc::new(cluster));
        }
        self.cx.send_to_hub(ToHub::StoodStill);
    }

    /// Within this time other nodes cannot have promoted its sessions; none: no other nodes, or
    /// both sides of a partition serve.
    fn lease(&self) -> Option<Duration> {
        let cluster = &self.cx.cluster;
        cluster.lease.filter(|_| !cluster.members.is_empty())
    }

    /// Rounds are due so often that a longer time without one shows that the thread stood still.
    pub(super) fn next_breath(&self) -> Option<Instant> {
        Some(self.breath? + self.lease()? / 2)
    }
}
