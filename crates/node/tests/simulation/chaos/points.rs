//! Kills at named points of the code: right after a node has reached one, before anything else happens.
//!
//! A point is taken once in a run, so that those which are reached all the time leave others their turn.

use std::collections::{BTreeMap, BTreeSet};

use super::run::{MOVING_MILLIS, Run};
use thicket_simulation::random::Random;

/// A node that was killed is back in this time, ms.
const DOWN_MILLIS: u64 = 800;

/// What was reached, and who was killed for it.
#[derive(Debug)]
pub struct Points {
    random: Random,
    /// How often each point was reached.
    known: BTreeMap<&'static str, u64>,
    used: BTreeSet<&'static str>,
    /// The node that was killed last.
    last: Option<usize>,
    /// When killed nodes are started again.
    down: Vec<(u64, usize)>,
    /// Nodes that were killed since every session had its backups.
    killed: u8,
    /// When the first of them was.
    killed_at: u64,
    pub is_armed: bool,
}

impl Points {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed.rotate_left(16)),
            known: BTreeMap::new(),
            used: BTreeSet::new(),
            last: None,
            down: Vec::new(),
            killed: 0,
            killed_at: 0,
            is_armed: false,
        }
    }
}

impl Run {
    /// A machine of this node has done something: it is killed if that was a point where it is to be.
    pub fn kill_at_point(&mut self, node: usize) -> super::checks::Verdict {
        let new = thicket_session::reached::new_since(&mut self.points.known);
        let is_unused = |point: &&'static str| !self.points.used.contains(point);
        let Some(point) = new.into_iter().find(is_unused) else {
            return Ok(());
        };
        let is_up = self.world.nodes[node].machines.is_some();
        if !self.points.is_armed
            || !is_up
            || !self.may_kill(node)
            || !self.points.random.chance(1, 2)
        {
            return Ok(());
        }
        self.points.used.insert(point);
        self.points.last = Some(node);
        if self.points.killed == 0 {
            self.points.killed_at = self.world.net.now;
        }
        self.points.killed += 1;
        if let Some(log) = &mut self.log {
            log.push(format!(
                "{:>8} node {node} is at {point:?}",
                self.world.net.now
            ));
        }
        self.end(node)?;
        let until = self.world.net.now + self.points.random.below(DOWN_MILLIS);
        self.points.down.push((until, node));
        Ok(())
    }

    /// Whether what is promised permits this node to be killed.
    fn may_kill(&mut self, node: usize) -> bool {
        if self.plan.kills {
            // Another node than the last one is killed only when every session has its backups again: else a client may find no session.
            let is_same = self.points.last == Some(node);
            return self.points.down.is_empty() && (is_same || self.world.is_covered());
        }
        let is_failover = !self.points.down.is_empty();
        if is_failover {
            // Later a session may have moved to a node where nobody has all of it yet.
            let is_soon = self.world.net.now < self.points.killed_at + MOVING_MILLIS / 10;
            return is_soon && self.points.killed < self.plan.backups;
        }
        let is_covered = self.world.is_covered();
        if is_covered {
            self.points.killed = 0;
        }
        is_covered
    }

    /// Starts the nodes that have been down for long enough, or all.
    pub fn start_killed(&mut self, has_been_long: impl Fn(u64) -> bool) {
        let down = std::mem::take(&mut self.points.down);
        let (due, other) = down
            .into_iter()
            .partition(|(until, _)| has_been_long(*until));
        self.points.down = other;
        let due: Vec<(u64, usize)> = due;
        for (_, node) in due {
            self.start(node);
        }
    }
}
