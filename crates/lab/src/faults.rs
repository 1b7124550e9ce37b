//! The time line of faults, followed while messages are published.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::error::LabError;
use crate::scenario::{Action, Fault};
use crate::testbed::Testbed;
use crate::topology::changed;

/// Between two looks at the clock and at the load.
const PAUSE: Duration = Duration::from_millis(5);

/// Does each fault when it is due, until `stop`. Answers when each was done, in seconds from now.
///
/// An interruption kills the brokers, which ends the load at once.
pub fn follow(
    faults: &[Fault],
    testbed: &mut Testbed,
    cluster: &mut Cluster,
    stop: &dyn Fn() -> bool,
    interrupted: &dyn Fn() -> bool,
) -> Result<Vec<(f64, String)>, LabError> {
    let start = Instant::now();
    let mut due: Vec<&Fault> = faults.iter().collect();
    due.sort_by(|a, b| a.at_s.value().total_cmp(&b.at_s.value()));
    let mut due = due.into_iter().peekable();
    let mut done = Vec::new();
    while !stop() {
        if interrupted() {
            (0..testbed.sites.len()).for_each(|site| cluster.kill(testbed, site));
        }
        let now_s = start.elapsed().as_secs_f64();
        match due.next_if(|fault| fault.at_s.value() <= now_s) {
            Some(fault) => {
                apply(fault, testbed, cluster)?;
                done.push((start.elapsed().as_secs_f64(), fault.describe()));
            }
            None => std::thread::sleep(PAUSE),
        }
    }
    Ok(done)
}

/// Does one fault now.
pub fn apply(fault: &Fault, testbed: &mut Testbed, cluster: &mut Cluster) -> Result<(), LabError> {
    let Some(name) = &fault.site else {
        return apply_to_links(fault, testbed);
    };
    let sites = &testbed.topology.sites;
    let Some(site) = sites.iter().position(|site| site == name) else {
        return Err(LabError::Machine(format!("there is no site {name}")));
    };
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
        Action::Cut | Action::Heal | Action::Partition | Action::Slow => {
            apply_to_links(fault, testbed)?;
        }
    }
    Ok(())
}

/// Does a fault of links now; one of brokers does nothing.
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
