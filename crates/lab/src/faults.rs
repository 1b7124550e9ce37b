//! Injects the faults of the time line while messages are published.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::error::LabError;
use crate::scenario::{Action, Fault};
use crate::testbed::Testbed;
use crate::topology::changed;
use crate::units::Signed;
use crate::usage::Usage;

/// Interval between checks of the clock and of the load.
const PAUSE: Duration = Duration::from_millis(5);
/// Interval between checks of brokers that start.
const LOOK: Duration = Duration::from_millis(50);

/// A fault requested by another thread, with the channel for the answer.
pub type Wanted = (Fault, Sender<Result<(), String>>);

/// The result of a time line.
#[derive(Debug, Default)]
pub struct Followed {
    /// When each fault was injected, in seconds from the start.
    pub done: Vec<(f64, String)>,
    /// Seconds that brokers took to start and join.
    pub joined_s: Vec<f64>,
    /// What of the time line did not happen, each with the reason.
    pub missed: Vec<String>,
    /// CPU of the brokers meanwhile.
    pub usage: Option<Usage>,
    /// Why the time line ended before the load, if it did.
    pub error: Option<LabError>,
}

/// A time line with what it acts on.
#[allow(missing_debug_implementations, reason = "it holds functions")]
pub struct TimeLine<'a> {
    /// Its faults.
    pub faults: &'a [Fault],
    /// The network.
    pub testbed: &'a mut Testbed,
    /// The brokers.
    pub cluster: &'a mut Cluster,
    /// Faults requested by other threads.
    pub orders: &'a Receiver<Wanted>,
    /// Whether the load has ended.
    pub stop: &'a dyn Fn() -> bool,
    /// Whether the user interrupts: nothing is injected any more then, and nothing is started.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl TimeLine<'_> {
    /// Injects each fault when it is due, and those requested meanwhile, until the load has ended, the user interrupts or an error occurs.
    pub fn follow(&mut self) -> Followed {
        let mut followed = Followed::default();
        let mut usage = Usage::begin(cpu_s(self.testbed));
        followed.error = self.follow_until(&mut usage, &mut followed).err();
        followed.usage = Some(usage);
        followed
    }

    fn follow_until(&mut self, usage: &mut Usage, followed: &mut Followed) -> Result<(), LabError> {
        let start = Instant::now();
        let mut due: Vec<&Fault> = self.faults.iter().collect();
        due.sort_by(|a, b| a.at_s.value().total_cmp(&b.at_s.value()));
        let mut due = due.into_iter().peekable();
        let mut starting: Vec<usize> = Vec::new();
        let mut looked = start;
        while !(self.stop)() {
            if (self.interrupted)() {
                return Err(LabError::Interrupted);
            }
            if let Ok((fault, answer)) = self.orders.try_recv() {
                let done = apply(&fault, self.testbed, self.cluster);
                followed.note(start, fault.describe());
                // A requester that does not wait for the answer has ended.
                let _ = answer.send(done.map_err(|error| error.to_string()));
            }
            match due.next_if(|fault| is_due(fault, start, usage.busiest_percent())) {
                Some(fault) => {
                    apply(fault, self.testbed, self.cluster)?;
                    if fault.action == Action::Join {
                        starting.extend(site_of(fault, self.testbed));
                    }
                    followed.note(start, fault.describe());
                }
                None => std::thread::sleep(PAUSE),
            }
            usage.look(|| cpu_s(self.testbed));
            if !starting.is_empty() && looked.elapsed() >= LOOK {
                looked = Instant::now();
                starting = self.let_join(starting, start, followed)?;
            }
        }
        let ended_s = start.elapsed().as_secs_f64();
        followed.missed = due.map(|fault| missed(fault, ended_s)).collect();
        let late = starting.into_iter().map(|site| {
            let name = &self.testbed.topology.sites[site];
            format!("the broker of {name} was not ready when the load ended, after {ended_s:.1} s")
        });
        followed.missed.extend(late);
        Ok(())
    }

    /// Lets those of the starting brokers join that are ready; returns the others.
    fn let_join(
        &mut self,
        starting: Vec<usize>,
        start: Instant,
        followed: &mut Followed,
    ) -> Result<Vec<usize>, LabError> {
        let mut waiting = Vec::new();
        for site in starting {
            if self.cluster.look(self.testbed, site)?.is_none() {
                waiting.push(site);
                continue;
            }
            self.cluster.join(self.testbed, site)?;
            let name = &self.testbed.topology.sites[site];
            let took_s = self.cluster.since_start_s(site);
            followed.joined_s.push(took_s);
            followed.note(
                start,
                format!("{name} is ready, {took_s:.2} s after its start"),
            );
        }
        Ok(waiting)
    }
}

impl Followed {
    fn note(&mut self, start: Instant, what: String) {
        self.done.push((start.elapsed().as_secs_f64(), what));
    }
}

/// Whether a fault is due when the busiest broker uses this much CPU.
fn is_due(fault: &Fault, start: Instant, percent: f64) -> bool {
    let threshold = fault.when_cpu_percent;
    fault.at_s.value() <= start.elapsed().as_secs_f64()
        && threshold.is_none_or(|threshold| percent >= threshold.value())
}

/// Why a fault did not happen; the load ended after `ended_s`.
pub fn missed(fault: &Fault, ended_s: f64) -> String {
    let what = fault.describe();
    let at_s = fault.at_s.value();
    match fault.when_cpu_percent {
        Some(percent) if at_s <= ended_s => format!(
            "a fault did not happen ({what}): no broker used {} % of a core until the load ended, after {ended_s:.1} s",
            percent.value()
        ),
        _ => format!(
            "a fault did not happen ({what}): it was due at {at_s} s, and the load ended after {ended_s:.1} s"
        ),
    }
}

fn cpu_s(testbed: &Testbed) -> Vec<f64> {
    testbed.used().iter().map(|used| used.cpu_s).collect()
}

fn site_of(fault: &Fault, testbed: &Testbed) -> Option<usize> {
    let name = fault.site.as_ref()?;
    testbed.topology.sites.iter().position(|site| site == name)
}

/// Injects one fault now.
pub fn apply(fault: &Fault, testbed: &mut Testbed, cluster: &mut Cluster) -> Result<(), LabError> {
    let Some(name) = &fault.site else {
        return apply_to_links(fault, testbed);
    };
    let Some(site) = site_of(fault, testbed) else {
        return Err(LabError::Machine(format!("there is no site {name}")));
    };
    if fault.is_of_broker() {
        cluster.check_broker(site)?;
    }
    match fault.action {
        Action::Kill => cluster.kill(testbed, site),
        Action::PowerOff => {
            testbed.links.cut(&fault.cuts(&testbed.topology))?;
            cluster.kill(testbed, site);
        }
        Action::Pause => testbed.signal(site, Signal::STOP),
        Action::Resume => testbed.signal(site, Signal::CONT),
        Action::Restart => {
            let own_links = testbed.topology.links_around(std::slice::from_ref(name));
            testbed.links.heal(&own_links)?;
            cluster.start_one(testbed, site)?;
        }
        Action::Join => cluster.start_one(testbed, site)?,
        Action::Drain => cluster.drain(testbed, site)?,
        Action::StallDisk => cluster.stall_disk(site, true)?,
        Action::FreeDisk => cluster.stall_disk(site, false)?,
        Action::ClockJump => {
            let ahead_s = fault.by_s.map_or(0.0, Signed::value);
            cluster.set_clock(site, (1e9 * ahead_s) as i64)?;
        }
        Action::Cut | Action::Heal | Action::Partition | Action::Slow => {
            apply_to_links(fault, testbed)?;
        }
    }
    Ok(())
}

/// Injects a fault of links now; one of brokers does nothing.
pub fn apply_to_links(fault: &Fault, testbed: &mut Testbed) -> Result<(), LabError> {
    let topology = &testbed.topology;
    let named = fault
        .link
        .as_ref()
        .and_then(|[a, b]| topology.link_between(a, b));
    let links: Vec<usize> =
        named.map_or_else(|| (0..topology.links.len()).collect(), |link| vec![link]);
    match (fault.action, named, &fault.to) {
        (Action::Cut | Action::Partition, ..) => testbed.links.cut(&fault.cuts(topology)),
        (Action::Heal, ..) => testbed.links.heal(&links),
        (Action::Slow, Some(link), Some(settings)) => {
            let ways = testbed.links.now(link);
            let ways = ways.map(|before| changed(settings, &before));
            testbed.links.set(&[(link, ways)])
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_did_not_happen_says_why() {
        let mut fault = Fault::of_site(Action::Kill, "s2");
        fault.at_s = 5.0.try_into().unwrap();
        let text = missed(&fault, 2.0);
        assert!(text.contains("kill the broker of s2"), "{text}");
        assert!(text.ends_with("it was due at 5 s, and the load ended after 2.0 s"));
        fault.when_cpu_percent = Some(70.0.try_into().unwrap());
        let text = missed(&fault, 6.0);
        assert!(text.contains("no broker used 70 % of a core"), "{text}");
    }
}
