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
    let name = fault.site.clone().unwrap_or_default();
    let site = testbed
        .topology
        .sites
        .iter()
        .position(|site| *site == name)
        .unwrap_or(0);
    let own_links = testbed.topology.links_around(std::slice::from_ref(&name));
    let named = fault
        .link
        .as_ref()
        .and_then(|[a, b]| testbed.topology.link_between(a, b));
    let all = || (0..testbed.topology.links.len()).collect();
    let links: Vec<usize> = named.map_or_else(all, |link| vec![link]);
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
        Action::Cut => testbed.links.cut(&links)?,
        Action::Heal => testbed.links.heal(&links)?,
        Action::Slow => {
            if let (Some(link), Some(settings)) = (named, &fault.to) {
                let shape = changed(settings, &testbed.links.now(link));
                testbed.links.set(&[(link, shape)])?;
            }
        }
        Action::Partition => {
            let around = testbed.topology.links_around(&fault.sites);
            testbed.links.cut(&around)?;
        }
    }
    Ok(())
}
