//! A cluster with clients that do what chance tells them, and with a network that does its worst.

use thicket_mqtt::Qos;
use thicket_overlay::routing::RoutingMode;

use super::{ledger::Ledger, plan::Plan};
use thicket_simulation::{World, net::Wake, random::Random};

/// A session that moves has no backup for less than this.
pub const MOVING_MILLIS: u64 = 1_000;
/// Within this time after a partition has healed, the branches of a session are merged.
pub const FORK_MILLIS: u64 = 3_000;
/// What follows from the end of a connection is done everywhere in this time.
pub const ENDING_MILLIS: u64 = 1_000;
/// Longest step of a clock. Clocks that are set stay within two steps of the earliest time.
pub const STEP_MILLIS: u64 = 3_600_000;
/// Longer than any time-out in the nodes but keep-alives and expiries.
const AGED_MILLIS: u64 = 40_000;
/// How much faster or slower than time clocks go, millionths: far more than any quartz.
pub const DRIFT_PPM: i64 = 20_000;

/// A run under way.
#[derive(Debug)]
pub struct Run {
    pub world: World,
    pub ledger: Ledger,
    /// What the checks permitted.
    pub excuses: super::checks::Excuses,
    pub plan: Plan,
    pub routing: RoutingMode,
    /// Chooses the next action. Separate from the random numbers of the world, so that the actions of a seed stay the same when the code of the nodes
    /// changes.
    pub random: Random,
    /// When and how clocks are set: apart from all else, so that the rest of a run is the same without it.
    pub clocks: Random,
    /// How far the wall clocks of nodes are apart at most, ms.
    pub apart: u64,
    pub downs: u64,
    /// Nothing happens before the cluster is older than every time-out in the nodes.
    pub is_aged: bool,
    /// Who hears all wills; does nothing else.
    pub watcher: usize,
    /// Faults that are not over, with when they are.
    pub faults: Vec<(u64, super::faults::Cure)>,
    /// How many have begun since all were over and every session was covered.
    pub faults_begun: usize,
    /// The node that is being drained.
    pub drain: Option<super::faults::Drain>,
    /// Every session has been covered since the last death.
    pub was_covered: bool,
    /// When the nodes last measured what they have to do.
    pub measured_at: u64,
    /// Of each node, in thousandths.
    pub cpu: Vec<u16>,
    /// Where nodes are killed.
    pub points: super::points::Points,
    /// The tokens of clients.
    pub tokens: super::tokens::Tokens,
    /// What clients did and heard, if somebody wants to read it.
    pub log: Option<Vec<String>>,
}

impl Run {
    /// The whole run; what is broken.
    pub fn play(&mut self) -> super::checks::Verdict {
        self.wait_until_whole()?;
        self.connect(self.watcher);
        for client in 0..self.plan.clients {
            self.connect(client);
        }
        self.pass(2_000)?;
        self.subscribe_to(self.watcher, "will/#", Qos::ExactlyOnce);
        self.pass(if self.is_aged { AGED_MILLIS } else { 2_000 })?;
        self.world.net.weather = self.plan.weather;
        self.points.is_armed = true;
        for _ in 0..self.plan.actions {
            self.was_covered |= self.plan.dies && self.world.is_covered();
            if self.plan.kills && !self.plan.at_points && self.random.chance(1, 40) {
                self.kill()?;
            }
            if self.plan.dies
                && !self.plan.at_points
                && self.random.chance(1, 40)
                && self.was_covered
                && self.world.is_whole()
            {
                self.was_covered = false;
                self.kill()?;
            }
            if self.plan.sides && self.random.chance(1, 30) {
                self.part_into_sides();
            }
            if self.plan.pauses && self.random.chance(1, 30) {
                self.pause();
            }
            if !self.plan.faults.is_empty() {
                self.cure_faults(self.world.net.now);
                self.step_drain();
                if self.random.chance(1, 30) {
                    self.begin_fault()?;
                }
            }
            if self.plan.majority && self.plan.parts && self.random.chance(1, 30) {
                self.part_or_heal()?;
            }
            if self.plan.blacks_out && self.random.chance(1, 40) {
                self.black_out()?;
            }
            if self.plan.restarts_partitioned
                && !self.world.net.partings().is_empty()
                && self.random.chance(1, 30)
            {
                self.restart_partitioned()?;
            }
            if self.plan.boots_apart && self.random.chance(1, 40) {
                self.boot_apart()?;
            }
            if self.plan.sets_clocks && self.clocks.chance(1, 40) {
                let node = self.clocks.below(self.plan.nodes as u64) as usize;
                self.set_clock(node);
            }
            if self.plan.redirects {
                self.follow_redirections();
                self.measure_loads();
            }
            self.act();
            let millis = self.random.below(self.plan.pause);
            self.pass(millis)?;
        }
        self.points.is_armed = false;
        self.start_killed(|_| true);
        self.come_to_rest()?;
        self.check_rest()?;
        super::checks::check(&self.ledger, self.routing, &mut self.excuses)
    }

    fn wait_until_whole(&mut self) -> super::checks::Verdict {
        self.ledger.disturbed.push((0, None));
        for _ in 0..100 {
            self.pass(300)?;
            if self.ledger.disturbed.iter().all(|(_, end)| end.is_some()) {
                return Ok(());
            }
        }
        Err("the nodes find each other".into())
    }

    /// Lets time pass and notes what clients are told.
    pub fn pass(&mut self, millis: u64) -> super::checks::Verdict {
        let until = self.world.net.now + millis;
        while let Some(wake) = self.world.step(until) {
            let now = self.world.net.now;
            self.start_killed(|until| until <= now);
            match wake {
                Wake::Client(client) => self.note(client)?,
                Wake::Shell(node, _) => {
                    self.note_downs();
                    if self.plan.at_points {
                        self.kill_at_point(node)?;
                    }
                }
                Wake::Tester(_) | Wake::Dials | Wake::Nobody => {}
            }
        }
        self.world.net.now = self.world.net.now.max(until);
        let mut nodes = self.world.nodes.iter();
        let are_up = !self.ledger.forgets_interests || nodes.all(|node| node.machines.is_some());
        let whole = are_up && self.world.is_whole();
        let now = self.world.net.now;
        if let Some((_, end @ None)) = self.ledger.disturbed.last_mut()
            && whole
        {
            *end = Some(now + 500);
        }
        self.check_tokens()?;
        super::checks::check_bounds(self)
    }

    fn note_downs(&mut self) {
        if self.plan.dies || self.plan.blacks_out {
            // What is promised holds when nodes die one at a time, and when all lose their power.
            return;
        }
        let downs = self.world.nodes.iter().map(|node| node.downs).sum();
        if downs > self.downs {
            self.downs = downs;
            self.note_disturbed();
        }
    }

    /// Not all nodes are linked from now on.
    pub fn note_disturbed(&mut self) {
        if !matches!(self.ledger.disturbed.last(), Some((_, None))) {
            self.ledger.disturbed.push((self.world.net.now, None));
        }
    }

    pub fn say(&mut self, client: usize, what: impl FnOnce() -> String) {
        let now = self.world.net.now;
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>8} client-{client} {}", what()));
        }
    }
}
