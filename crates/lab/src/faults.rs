//! Injects the faults of the time line while messages are published.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::error::LabError;
use crate::scenario::{Action, Fault};
use crate::testbed::Testbed;
use crate::topology::changed;

/// Interval between checks of the clock and of the load.
const PAUSE: Duration = Duration::from_millis(5);
/// Interval between checks of brokers that start.
const LOOK: Duration = Duration::from_millis(50);
/// The time over which CPU usage is averaged.
const CPU_OVER: Duration = Duration::from_secs(2);

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
    /// Why the time line ended before the load, if it did.
    pub error: Option<LabError>,
}

/// Injects each fault when it is due, and those requested meanwhile, until `stop` or an error.
///
/// An interruption kills the brokers, which ends the load at once.
pub fn follow(
    faults: &[Fault],
    testbed: &mut Testbed,
    cluster: &mut Cluster,
    orders: &Receiver<Wanted>,
    stop: &dyn Fn() -> bool,
    interrupted: &dyn Fn() -> bool,
) -> Followed {
    let mut followed = Followed::default();
    let ended = follow_until(
        faults,
        testbed,
        cluster,
        orders,
        stop,
        interrupted,
        &mut followed,
    );
    followed.error = ended.err();
    followed
}

fn follow_until(
    faults: &[Fault],
    testbed: &mut Testbed,
    cluster: &mut Cluster,
    orders: &Receiver<Wanted>,
    stop: &dyn Fn() -> bool,
    interrupted: &dyn Fn() -> bool,
    followed: &mut Followed,
) -> Result<(), LabError> {
    let start = Instant::now();
    let mut due: Vec<&Fault> = faults.iter().collect();
    due.sort_by(|a, b| a.at_s.value().total_cmp(&b.at_s.value()));
    let mut due = due.into_iter().peekable();
    let mut load = Busiest::new(testbed);
    let mut starting: Vec<usize> = Vec::new();
    let mut looked = start;
    while !stop() {
        if interrupted() {
            (0..testbed.sites.len()).for_each(|site| cluster.kill(testbed, site));
        }
        if let Ok((fault, answer)) = orders.try_recv() {
            let done = apply(&fault, testbed, cluster);
            let at_s = start.elapsed().as_secs_f64();
            followed.done.push((at_s, fault.describe()));
            // A requester that does not wait for the answer has ended.
            let _ = answer.send(done.map_err(|error| error.to_string()));
        }
        let now_s = start.elapsed().as_secs_f64();
        let is_due = |fault: &&Fault| {
            let enough = |percent| load.percent >= percent;
            fault.at_s.value() <= now_s
                && fault
                    .when_cpu_percent
                    .is_none_or(|percent| enough(percent.value()))
        };
        match due.next_if(is_due) {
            Some(fault) => {
                apply(fault, testbed, cluster)?;
                if fault.action == Action::Join {
                    starting.extend(site_of(fault, testbed));
                }
                let at_s = start.elapsed().as_secs_f64();
                followed.done.push((at_s, fault.describe()));
            }
            None => std::thread::sleep(PAUSE),
        }
        load.look(testbed);
        if !starting.is_empty() && looked.elapsed() >= LOOK {
            looked = Instant::now();
            let mut waiting = Vec::new();
            for site in starting {
                match cluster.look(testbed, site)? {
                    None => waiting.push(site),
                    Some(_) => {
                        cluster.join(testbed, site)?;
                        let name = &testbed.topology.sites[site];
                        let took_s = cluster.since_start_s(site);
                        followed.joined_s.push(took_s);
                        let what = format!("{name} is ready, {took_s:.2} s after its start");
                        let at_s = start.elapsed().as_secs_f64();
                        followed.done.push((at_s, what));
                    }
                }
            }
            starting = waiting;
        }
    }
    let ended_s = start.elapsed().as_secs_f64();
    followed.missed = due.map(|fault| missed(fault, ended_s)).collect();
    let late = starting.into_iter().map(|site| {
        let name = &testbed.topology.sites[site];
        format!("the broker of {name} was not ready when the load ended, after {ended_s:.1} s")
    });
    followed.missed.extend(late);
    Ok(())
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

/// The CPU usage of the busiest broker, in percent of a core.
struct Busiest {
    at: Instant,
    used: Vec<f64>,
    percent: f64,
}

impl Busiest {
    fn new(testbed: &Testbed) -> Self {
        Self {
            at: Instant::now(),
            used: cpu_s(testbed),
            percent: 0.0,
        }
    }

    fn look(&mut self, testbed: &Testbed) {
        let elapsed = self.at.elapsed();
        if elapsed < CPU_OVER {
            return;
        }
        let used = cpu_s(testbed);
        let each = used.iter().zip(&self.used).map(|(now, then)| now - then);
        self.percent = 100.0 * each.fold(0.0, f64::max) / elapsed.as_secs_f64();
        (self.at, self.used) = (Instant::now(), used);
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
    let own_links = testbed.topology.links_around(std::slice::from_ref(name));
    match fault.action {
        Action::Kill => cluster.kill(testbed, site),
        Action::PowerOff => {
            testbed.links.cut(&own_links)?;
            cluster.kill(testbed, site);
        }
        Action::Pause => testbed.signal(site, Signal::STOP),
        Action::Resume => testbed.signal(site, Signal::CONT),
        Action::Restart => {
            testbed.links.heal(&own_links)?;
            cluster.start_one(testbed, site)?;
        }
        Action::Join => cluster.start_one(testbed, site)?,
        Action::Drain => cluster.drain(testbed, site)?,
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
        (Action::Cut, ..) => testbed.links.cut(&links),
        (Action::Heal, ..) => testbed.links.heal(&links),
        (Action::Slow, Some(link), Some(settings)) => {
            let shape = changed(settings, &testbed.links.now(link));
            testbed.links.set(&[(link, shape)])
        }
        (Action::Partition, ..) => {
            let around = topology.links_around(&fault.sites);
            testbed.links.cut(&around)
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
