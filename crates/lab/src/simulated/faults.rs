//! The time line of faults in virtual time.

use thicket_node::Drained;

use super::network::SimulatedLab;
use crate::faults::missed;
use crate::scenario::{Action, Fault};
use crate::topology::changed;
use crate::units::Signed;

/// Interval between checks of nodes that drain, join or relink, ms.
const LOOK: u64 = 20;

/// Faults with their times.
#[derive(Debug, Default)]
pub(super) struct TimeLine {
    /// Latest first, with due times.
    to_come: Vec<(u64, Fault)>,
    start: u64,
    /// Sites whose nodes drain.
    draining: Vec<usize>,
    /// Sites that join, and since when.
    joining: Vec<(usize, u64)>,
    /// Since when nodes can relink after a repair.
    healing: Option<u64>,
    looks_at: u64,
    /// When each fault was injected, in seconds from the start.
    pub done: Vec<(f64, String)>,
    /// Seconds that nodes took to join.
    pub joined_s: Vec<f64>,
    /// Seconds until all running nodes had a link between any two that are not partitioned, after each repair.
    pub relinked_s: Vec<f64>,
}

impl TimeLine {
    pub fn new(faults: &[Fault], start: u64) -> Self {
        let at = |fault: &Fault| start + (1e3 * fault.at_s.value()).round() as u64;
        let mut to_come: Vec<(u64, Fault)> = faults.iter().map(|it| (at(it), it.clone())).collect();
        to_come.sort_by_key(|(at, _)| *at);
        to_come.reverse();
        Self {
            to_come,
            start,
            ..Self::default()
        }
    }

    /// When there is something to do next.
    pub fn next_at(&self) -> u64 {
        let fault = self.to_come.last().map_or(u64::MAX, |(at, _)| *at);
        let waits = self.healing.is_some() || !self.draining.is_empty() || !self.joining.is_empty();
        if waits {
            fault.min(self.looks_at)
        } else {
            fault
        }
    }

    /// Faults that did not happen until the load ended.
    pub fn missed(&self, now: u64) -> Vec<String> {
        let ended_s = (now - self.start) as f64 / 1e3;
        let left = self.to_come.iter().rev();
        left.map(|(_, fault)| {
            missed(
                &Fault {
                    when_cpu_percent: None,
                    ..fault.clone()
                },
                ended_s,
            )
        })
        .collect()
    }

    /// Whether a node is still draining.
    pub const fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Does what is due.
    pub fn act(&mut self, lab: &mut SimulatedLab) {
        let now = lab.world.net.now;
        while let Some((_, fault)) = self.to_come.pop_if(|(at, _)| *at <= now) {
            self.apply(&fault, lab);
            self.note(now, fault.describe());
        }
        if now >= self.looks_at {
            self.looks_at = now + LOOK;
            self.look(lab);
        }
    }

    /// Injects one fault now.
    pub fn apply(&mut self, fault: &Fault, lab: &mut SimulatedLab) {
        let now = lab.world.net.now;
        let site = fault.site.as_deref().and_then(|name| lab.site(name));
        let named = (fault.link.as_ref()).and_then(|[a, b]| lab.topology.link_between(a, b));
        let all = 0..lab.topology.links.len();
        match (fault.action, site) {
            (Action::Kill, Some(site)) => lab.world.kill(site),
            (Action::PowerOff, Some(site)) => lab.world.lose_power(site),
            (Action::Pause, Some(site)) => lab.world.pause(site),
            (Action::Resume, Some(site)) => {
                lab.world.resume(site);
                self.healing = Some(now);
            }
            (Action::Restart | Action::Join, Some(site)) => {
                let name = lab.topology.sites[site].clone();
                lab.heal_links(lab.topology.links_around(&[name]));
                lab.world.start(site);
                self.joining.push((site, now));
            }
            (Action::Drain, Some(site)) => self.draining.push(site),
            (Action::StallDisk, Some(site)) => {
                let free = self.to_come.iter().rev().find(|(_, later)| {
                    later.action == Action::FreeDisk && later.site == fault.site
                });
                // The scenario was checked: each has its end.
                let until = free.map_or(now, |(at, _)| *at);
                lab.world.stall_disk(site, until - now);
            }
            // It is free at this time by itself.
            (Action::FreeDisk, Some(_)) => {}
            (Action::ClockJump, Some(site)) => {
                let ahead = fault.by_s.map_or(0.0, Signed::value);
                lab.set_clock(site, (1e3 * ahead).round() as i64);
            }
            (Action::Cut | Action::Partition, _) => lab.cut_links(fault.cuts(&lab.topology)),
            (Action::Heal, _) => {
                match named {
                    Some(link) => lab.heal_links([link]),
                    None => lab.heal_links(all),
                }
                self.healing = Some(now);
            }
            (Action::Slow, _) => {
                if let (Some(link), Some(to)) = (named, &fault.to) {
                    let shape = changed(to, lab.shape(link));
                    lab.set_link(link, &shape);
                }
            }
            // The scenario was checked: faults of a site name one.
            (
                Action::Kill
                | Action::PowerOff
                | Action::Pause
                | Action::Resume
                | Action::Restart
                | Action::Join
                | Action::Drain
                | Action::StallDisk
                | Action::FreeDisk
                | Action::ClockJump,
                None,
            ) => {}
        }
    }

    /// Continues draining, and checks which nodes have joined and relinked.
    fn look(&mut self, lab: &mut SimulatedLab) {
        let now = lab.world.net.now;
        self.draining.retain(|site| {
            let runs = lab.world.nodes[*site].machines.is_some();
            runs && lab.world.nodes[*site].drain(&mut lab.world.net) != Drained::default()
        });
        let joining = std::mem::take(&mut self.joining);
        let (ready, joining) =
            (joining.into_iter()).partition(|(site, _)| lab.world.is_ready(*site));
        self.joining = joining;
        for (site, since) in ready {
            let took_s = (now - since) as f64 / 1e3;
            self.joined_s.push(took_s);
            let name = &lab.topology.sites[site];
            let what = format!("{name} is ready, {took_s:.2} s after its start");
            self.note(now, what);
        }
        if let Some(since) = self.healing.take_if(|_| lab.world.is_meshed()) {
            let took_s = (now - since) as f64 / 1e3;
            self.relinked_s.push(took_s);
            let what = format!("all nodes that run are linked, {took_s:.2} s after the repair");
            self.note(now, what);
        }
    }

    fn note(&mut self, now: u64, what: String) {
        self.done.push(((now - self.start) as f64 / 1e3, what));
    }
}
