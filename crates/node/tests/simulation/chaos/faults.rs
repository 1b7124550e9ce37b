//! What happens to nodes, to their clocks and to the network between them.

use super::plan::Fault;
use super::run::{ENDING_MILLIS, FORK_MILLIS, MOVING_MILLIS, Run, STEP_MILLIS};
use thicket_simulation::{World, net::Parting};

/// How long a node stands still, ms: from, to. Hellos go every 300 ms, a node is down after 1 s, a handshake may take 5 s.
const PAUSES: [(u64, u64); 6] = [
    (50, 700),
    (700, 1_300),
    (950, 1_050),
    (1_300, 3_000),
    (3_000, 6_000),
    (6_000, LONGEST_PAUSE_MILLIS),
];
/// The longest of them.
pub const LONGEST_PAUSE_MILLIS: u64 = 12_000;

/// So long a link may be missing after the network is well again, ms: until somebody notices that it is silent, a dial that was under way
/// fails, and the longest wait before the next one is over.
const MISSING_MILLIS: u64 = 9_500;

/// How a fault ends.
#[derive(Debug, Clone)]
pub enum Cure {
    /// By itself.
    Nothing,
    /// These nodes are linked again.
    Heal(Vec<(usize, usize)>),
    /// The node is started again.
    Start(usize),
    /// The node has memory again.
    Memory(usize),
    /// The node is not drained any more.
    EndDrain(usize),
}

/// A node that is being drained.
#[derive(Debug)]
pub struct Drain {
    node: usize,
    next_step_at: u64,
    /// Nothing is left there.
    is_done: bool,
}

/// Interval between two steps of a drain, ms.
const DRAIN_STEP_MILLIS: u64 = 100;
/// A node that is stopped is back after this, ms.
const RESTART_MILLIS: u64 = 500;

impl Run {
    /// One of the plan's faults begins, if what is promised holds when it does.
    pub fn begin_fault(&mut self) -> super::checks::Verdict {
        let fault = *self.random.pick(self.plan.faults);
        let node = self.random.below(self.plan.nodes as u64) as usize;
        let (from, to) = *self.random.pick(&PAUSES);
        let millis = self.random.between(from, to);
        let is_free = if self.faults.is_empty() {
            self.faults_begun = 0;
            self.is_settled() && self.world.is_covered()
        } else {
            let count = if self.plan.chains {
                self.faults.len()
            } else {
                self.faults_begun
            };
            count < self.plan.overlap && self.may_overlap(fault)
        };
        let is_second_drain = fault == Fault::Drain && self.drain.is_some();
        if !is_free || is_second_drain || self.world.nodes[node].machines.is_none() {
            return Ok(());
        }
        self.faults_begun += 1;
        if let Some(log) = &mut self.log {
            let now = self.world.net.now;
            log.push(format!("{now:>8} node {node}: {fault:?} for {millis} ms"));
        }
        let cure = match fault {
            Fault::Pause => {
                self.world.net.pause(node, millis);
                self.tokens.paused_until[node] = self.world.net.now + millis;
                Cure::Nothing
            }
            Fault::Busy => {
                let threads = self.world.threads(node).max(1);
                let thread = self.random.below(threads as u64) as usize;
                self.world.keep_busy(node, thread, millis);
                Cure::Nothing
            }
            Fault::Freeze => {
                self.world.freeze(node, millis);
                self.keep_wall_clock(node, millis);
                Cure::Nothing
            }
            Fault::OneWay => self.part_from_some(node, Parting::OneWay { from: node }),
            Fault::BlackHole => self.part_from_some(node, Parting::Vanish),
            Fault::HalfOpen => {
                if let Cure::Heal(pairs) = self.part_from_some(node, Parting::Vanish) {
                    for (one, other) in pairs {
                        self.world.net.heal(one, other);
                    }
                }
                Cure::Nothing
            }
            Fault::StalledDisk => {
                self.world.stall_disk(node, millis);
                Cure::Nothing
            }
            Fault::ShortOfMemory => {
                self.set_short_of_memory(node, true);
                Cure::Memory(node)
            }
            Fault::FailedDisk => {
                let writes = self.random.below(6);
                self.world.nodes[node].disk.fail_after(writes);
                self.pass(20)?;
                self.end(node)?;
                Cure::Start(node)
            }
            Fault::Kill => {
                self.end(node)?;
                Cure::Start(node)
            }
            Fault::Drain => {
                self.drain = Some(Drain {
                    node,
                    next_step_at: self.world.net.now,
                    is_done: false,
                });
                Cure::EndDrain(node)
            }
            Fault::PowerLoss => {
                self.note_end_of(node)?;
                self.ledger.kills.push(self.world.net.now);
                self.world.lose_power(node);
                Cure::Start(node)
            }
        };
        let until = self.world.net.now + millis;
        if matches!(fault, Fault::OneWay | Fault::BlackHole | Fault::HalfOpen) {
            self.faults.push((until + MISSING_MILLIS, Cure::Nothing));
        }
        self.faults.push((until, cure));
        Ok(())
    }

    /// With fewer backups than faults at a time, one of these is that a node is drained, and no fault.
    fn may_overlap(&self, fault: Fault) -> bool {
        let is_drain = |(_, cure): &(u64, Cure)| matches!(cure, Cure::EndDrain(_));
        self.plan.backups as usize >= self.plan.overlap
            || fault == Fault::Drain
            || self.faults.iter().all(is_drain)
    }

    /// Parts a node from one other, or from all.
    fn part_from_some(&mut self, node: usize, parting: Parting) -> Cure {
        let mut others: Vec<usize> = (0..self.plan.nodes).filter(|it| *it != node).collect();
        if self.random.chance(1, 2) {
            others = vec![*self.random.pick(&others)];
        }
        others.retain(|other| self.world.net.parting(node, *other).is_none());
        for other in &others {
            self.world.net.part(node, *other, parting);
        }
        Cure::Heal(others.into_iter().map(|other| (node, other)).collect())
    }

    /// Ends the faults that are to be over at `now`.
    pub fn cure_faults(&mut self, now: u64) {
        let is_over = |fault: &mut (u64, Cure)| fault.0 <= now;
        let over: Vec<(u64, Cure)> = self.faults.extract_if(.., is_over).collect();
        for (_, cure) in over {
            if let Some(log) = &mut self.log {
                let now = self.world.net.now;
                log.push(format!("{now:>8} over: {cure:?}"));
            }
            match cure {
                Cure::Nothing => {}
                Cure::Heal(pairs) => {
                    for (one, other) in pairs {
                        self.world.net.heal(one, other);
                    }
                }
                Cure::Start(node) => self.start(node),
                Cure::Memory(node) => self.set_short_of_memory(node, false),
                Cure::EndDrain(node) => self.end_drain(node),
            }
        }
    }

    /// Takes the next step of a drain, if it is due.
    pub fn step_drain(&mut self) {
        let now = self.world.net.now;
        if let Some(drain) = &mut self.drain
            && drain.next_step_at <= now
            && !self.world.net.is_paused(drain.node)
            && self.world.nodes[drain.node].machines.is_some()
        {
            drain.next_step_at = now + DRAIN_STEP_MILLIS;
            let left = self.world.nodes[drain.node].drain(&mut self.world.net);
            drain.is_done = left == thicket_node::Drained::default();
        }
    }

    /// A node where nothing is left may be stopped and started again, as for an upgrade; else the drain is undone.
    fn end_drain(&mut self, node: usize) {
        let Some(drain) = self.drain.take_if(|drain| drain.node == node) else {
            return;
        };
        if drain.is_done && !self.world.net.is_paused(node) && self.random.chance(1, 2) {
            self.world.stop(node);
            let back_at = self.world.net.now + RESTART_MILLIS;
            self.faults.push((back_at, Cure::Start(node)));
        } else {
            self.world.nodes[node].end_drain(&mut self.world.net);
        }
    }

    fn set_short_of_memory(&mut self, node: usize, is_short: bool) {
        let now = self.world.nodes[node].clock(&self.world.net);
        let machines = self.world.nodes[node].machines.iter_mut();
        for worker in machines.flat_map(|machines| &mut machines.workers) {
            worker.operate(now).set_short_of_memory(is_short);
        }
    }

    /// A node stands still for a while.
    pub fn pause(&mut self) {
        let node = self.random.below(self.plan.nodes as u64) as usize;
        let (from, to) = *self.random.pick(&PAUSES);
        let millis = self.random.between(from, to);
        let is_any_paused = (0..self.plan.nodes).any(|node| self.world.net.is_paused(node));
        if is_any_paused || !self.is_settled() || !self.world.is_covered() {
            return;
        }
        self.world.net.pause(node, millis);
        self.tokens.paused_until[node] = self.world.net.now + millis;
        if let Some(log) = &mut self.log {
            let now = self.world.net.now;
            log.push(format!("{now:>8} node {node} stands still for {millis} ms"));
        }
    }

    /// A node is gone from one moment to the next, and back after a while with what it stored.
    pub fn kill(&mut self) -> super::checks::Verdict {
        let node = self.random.below(self.plan.nodes as u64) as usize;
        self.end(node)?;
        let mut killed = vec![node];
        for _ in 1..self.plan.backups {
            let next = self.random.below(self.plan.nodes as u64) as usize;
            if !killed.contains(&next) && self.random.chance(2, 3) {
                if self.random.chance(1, 2) {
                    let millis = self.random.below(MOVING_MILLIS / 10);
                    self.pass(millis)?;
                }
                self.end(next)?;
                killed.push(next);
            }
        }
        let millis = self.random.below(800);
        self.pass(millis)?;
        if self.plan.sets_clocks && self.clocks.chance(1, 4) {
            self.set_clock(node);
        }
        for node in killed {
            self.start(node);
        }
        Ok(())
    }

    pub fn end(&mut self, node: usize) -> super::checks::Verdict {
        self.note_end_of(node)?;
        self.ledger.kills.push(self.world.net.now);
        self.world.kill(node);
        self.drain.take_if(|drain| drain.node == node);
        Ok(())
    }

    /// All nodes are gone at once, some in the middle of what they store; back with what they stored, one after the other. Clients
    /// come when the nodes are linked again.
    pub fn black_out(&mut self) -> super::checks::Verdict {
        for node in 0..self.plan.nodes {
            if self.random.chance(1, 2) {
                self.world.nodes[node].disk.fail_after(self.random.below(6));
            }
        }
        let millis = self.random.below(10);
        self.pass(millis)?;
        self.ledger.kills.push(self.world.net.now);
        for node in 0..self.plan.nodes {
            self.note_end_of(node)?;
            self.world.kill(node);
        }
        self.pass(10)?;
        for node in 0..self.plan.nodes {
            self.start(node);
            let millis = self.random.below(300);
            self.pass(millis)?;
        }
        for _ in 0..100 {
            if self.world.is_whole() {
                return Ok(());
            }
            self.pass(100)?;
        }
        Err("the nodes find each other after a loss of power".into())
    }

    /// A node is killed while nodes are partitioned, and started again.
    pub fn restart_partitioned(&mut self) -> super::checks::Verdict {
        let node = self.random.below(self.plan.nodes as u64) as usize;
        // The others may not have noticed the partition yet.
        self.note_disturbed();
        self.end(node)?;
        let millis = self.random.below(3_000);
        self.pass(millis)?;
        self.start(node);
        Ok(())
    }

    /// All nodes stop, in order or not, when every session has its backups. They boot in any order while clients go on.
    pub fn boot_apart(&mut self) -> super::checks::Verdict {
        if !self.is_settled() || !self.world.is_covered() {
            return Ok(());
        }
        let stop = *self
            .random
            .pick(&[World::stop, World::kill, World::lose_power]);
        self.ledger.kills.push(self.world.net.now);
        self.note_disturbed();
        for node in 0..self.plan.nodes {
            self.note_end_of(node)?;
            stop(&mut self.world, node);
        }
        self.pass(500)?;
        let mut order: Vec<usize> = (0..self.plan.nodes).collect();
        self.random.shuffle(&mut order);
        if let Some(log) = &mut self.log {
            log.push(format!("{:>8} nodes boot: {order:?}", self.world.net.now));
        }
        let (from, to) = *self.random.pick(&PAUSES);
        for node in order {
            self.start(node);
            let until = self.world.net.now + self.random.between(from, to);
            while self.world.net.now < until {
                self.act();
                let millis = self.random.below(4 * self.plan.pause);
                self.pass(millis)?;
            }
        }
        Ok(())
    }

    /// A node's wall clock is set back or forward; its monotonic one goes on.
    pub fn set_clock(&mut self, node: usize) {
        let ahead = &mut self.world.nodes[node].spec.wall_ahead;
        let step = self.clocks.below(2 * STEP_MILLIS + 1);
        *ahead = (*ahead + step)
            .saturating_sub(STEP_MILLIS)
            .min(2 * STEP_MILLIS + self.apart);
        self.note_clock_set(node);
        if let Some(log) = &mut self.log {
            let (now, ahead) = (self.world.net.now, self.world.nodes[node].spec.wall_ahead);
            log.push(format!(
                "{now:>8} node {node} has its clock set to {ahead} ms ahead"
            ));
        }
    }

    fn note_end_of(&mut self, node: usize) -> super::checks::Verdict {
        let now = self.world.net.now;
        for client in 0..self.plan.clients {
            self.note(client)?;
            if self.plan.dies {
                self.note_wills_of(client, node);
                continue;
            }
            if self.ledger.records[client].is_persistent {
                self.note_wills_of(client, node);
            }
            let is_here = self.world.clients[client].node == node;
            let record = &mut self.ledger.records[client];
            let was_connected = self.world.clients[client].is_connected() && record.dropped > 0;
            if is_here && was_connected && !record.is_persistent {
                // The will of a session that ends with its connection is not stored.
                record.dropped -= 1;
                record.uncertain += 1;
            }
        }
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>8} node {node} is killed"));
        }
        Ok(())
    }

    /// A node is about to die: notes whose wills their holders may publish although they were published already, or cancelled.
    fn note_wills_of(&mut self, client: usize, node: usize) {
        let since = self.world.net.now.saturating_sub(ENDING_MILLIS);
        let is_late = |ending: &&(usize, usize, u64)| {
            (ending.0, ending.1) == (client, node) && ending.2 >= since
        };
        let late = self.ledger.endings.iter().filter(is_late).count();
        let is_connected = self.world.clients[client].is_connected();
        let record = &mut self.ledger.records[client];
        // It may be about to be taken over, or the node may have noticed a cut before the client does.
        let is_leaving = record.connecting_at.is_some() || (record.is_cut && is_connected);
        record.uncertain += late + usize::from(is_leaving && record.served_by == node);
    }

    /// A node is cut off from all others, as one that dies when every session has its backup and nothing is on its way; or it is back.
    pub fn part_or_heal(&mut self) -> super::checks::Verdict {
        let partings = self.world.net.partings();
        if partings.is_empty() {
            self.pass(500)?;
        }
        let node = self.random.below(self.plan.nodes as u64) as usize;
        let parting = *self.random.pick(&[Parting::Held, Parting::Cut]);
        if partings.is_empty() && self.world.is_covered() {
            for other in (0..self.plan.nodes).filter(|other| *other != node) {
                self.world.net.part(node, other, parting);
            }
        }
        for (one, other) in &partings {
            self.world.net.heal(*one, *other);
        }
        if let Some(log) = &mut self.log {
            let now = self.world.net.now;
            log.push(format!(
                "{now:>8} node {node} is cut off, or all are healed: {partings:?}"
            ));
        }
        Ok(())
    }

    /// The nodes fall into two sides that do not see each other; or they are one again.
    pub fn part_into_sides(&mut self) {
        let partings = self.world.net.partings();
        for (one, other) in &partings {
            self.world.net.heal(*one, *other);
        }
        let nodes = self.plan.nodes;
        let side = self.random.between(1, (1 << nodes) - 2);
        let parting = *self.random.pick(&[Parting::Held, Parting::Cut]);
        if partings.is_empty() && self.is_settled() && self.world.is_covered() {
            let is_there = |node: &usize| side & (1 << node) != 0;
            for one in (0..nodes).filter(is_there) {
                for other in (0..nodes).filter(|node| !is_there(node)) {
                    self.world.net.part(one, other, parting);
                }
            }
        }
        if let Some(log) = &mut self.log {
            let (now, partings) = (self.world.net.now, self.world.net.partings());
            log.push(format!("{now:>8} parted are {partings:?}"));
        }
    }

    /// Whether all nodes have seen each other for a while.
    pub fn is_settled(&self) -> bool {
        let now = self.world.net.now;
        let is_over =
            |(_, end): &(u64, Option<u64>)| end.is_some_and(|end| end + FORK_MILLIS < now);
        let is_calm = self.faults.is_empty() && self.world.net.partings().is_empty();
        self.ledger.disturbed.iter().all(is_over) && is_calm
    }

    pub fn act_on_network(&mut self) {
        let links = self.world.net.links();
        let partings = self.world.net.partings();
        match self.random.below(10) {
            0..6 if self.plan.cuts_links && !links.is_empty() => {
                self.world.cut_link(*self.random.pick(&links));
            }
            6..8 if self.plan.parts && !self.plan.majority && self.may_part() => {
                let one = self.random.below(self.plan.nodes as u64) as usize;
                let step = self.random.between(1, self.plan.nodes as u64 - 1) as usize;
                let other = (one + step) % self.plan.nodes;
                let parting = if self.random.chance(1, 2) {
                    Parting::Held
                } else {
                    Parting::Cut
                };
                self.world.net.part(one, other, parting);
            }
            8..10 if !partings.is_empty() && !self.plan.majority => {
                let (one, other) = *self.random.pick(&partings);
                self.world.net.heal(one, other);
            }
            _ => {}
        }
    }

    /// Whether what is promised across a partition holds when nodes are partitioned now.
    fn may_part(&self) -> bool {
        !self.plan.splits || (self.is_settled() && self.world.is_covered())
    }
}
