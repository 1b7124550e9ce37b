//! What a scenario requires of the drivers of its systems: known before anything is built.

use std::path::Path;

use crate::driver::{Brokers, Driver, Peer, fill, text_of};
use crate::error::LabError;
use crate::scenario::{
    Action, Attach, Cell, Fault, Layers, Limits, Measure, Reach, Scenario, Sweep, System, in_cell,
    with_line,
};

/// Reads the command line of a node, from the word `broker` on, as our own program would, and says what is wrong with it.
pub type ReadLine<'a> = &'a dyn Fn(&[String]) -> Result<(), String>;

/// The drivers of a scenario's systems, in their order. Refuses, with line and key, what a system cannot do in one of the cells: a fault at a site where it
/// has no broker, TLS without a driver that knows it, a setting that its driver does not have, a value that a node would not start with.
pub fn check(
    file: &Path,
    text: &str,
    scenario: &Scenario,
    cells: &[Cell],
    read_line: ReadLine<'_>,
) -> Result<Vec<Driver>, LabError> {
    let refuse = |reason: String| LabError::Scenario {
        file: file.to_owned(),
        reason: with_line(text, reason),
    };
    let drivers = scenario.systems.iter().map(Driver::of);
    let drivers: Vec<Driver> = drivers.collect::<Result<_, _>>().map_err(refuse)?;
    for (system, driver) in scenario.systems.iter().zip(&drivers) {
        check_system(scenario, system, driver).map_err(refuse)?;
        check_own(system, driver, read_line).map_err(refuse)?;
    }
    let names: Vec<&String> = scenario.systems.iter().map(|system| &system.name).collect();
    let sweeps: Vec<&Sweep> = scenario.sweeps.iter().collect();
    for cell in cells {
        let in_cell = |reason: String| match &sweeps[..] {
            [] => refuse(reason),
            sweeps => refuse(in_cell(sweeps, &cell.parameters, &reason)),
        };
        let played = (cell.scenario.systems.iter()).filter(|system| names.contains(&&system.name));
        for system in played {
            let driver = Driver::of(system).map_err(in_cell)?;
            check_system(&cell.scenario, system, &driver).map_err(in_cell)?;
            if !scenario.systems.contains(system) {
                check_own(system, &driver, read_line).map_err(in_cell)?;
            }
        }
    }
    Ok(drivers)
}

/// Refuses, with line and key, cores of brokers that this machine does not have. A scenario may be written for another one, so only what runs it asks.
pub fn check_cores(
    file: &Path,
    text: &str,
    scenario: &Scenario,
    cells: &[Cell],
) -> Result<(), LabError> {
    let in_cells = cells.iter().map(|cell| &cell.scenario.brokers);
    let mut all = std::iter::once(&scenario.brokers).chain(in_cells);
    all.try_for_each(Limits::check_machine)
        .map_err(|reason| LabError::Scenario {
            file: file.to_owned(),
            reason: with_line(text, reason),
        })
}

fn check_system(scenario: &Scenario, system: &System, driver: &Driver) -> Result<(), String> {
    let System {
        name, driver: kind, ..
    } = system;
    let sites = scenario.network.names()?;
    let lacks = driver.lacks(scenario.workload.layers());
    if let (Some(key), true) = (lacks, driver.brokers != Brokers::External) {
        return Err(format!(
            "workload.{key}: the driver {kind} of system {name} does not say how its brokers listen for that"
        ));
    }
    if system.attach == Attach::Dispatcher && driver.dispatcher.is_none() {
        return Err(format!(
            "system.attach of {name}: the driver {kind} has no dispatcher"
        ));
    }
    if driver.brokers == Brokers::External {
        if system.addresses.len() != sites.len() {
            return Err(format!(
                "system.addresses of {name}: {}, expected {}, one a site",
                system.addresses.len(),
                sites.len()
            ));
        }
        let what = match scenario.measure {
            Measure::Crash { .. } => Some("measure.kind"),
            _ if !scenario.faults.is_empty() => Some("fault.0.do"),
            _ => None,
        };
        if let Some(key) = what {
            return Err(format!(
                "{key}: the brokers of system {name} run already, the lab cannot disturb them or their links"
            ));
        }
    }
    for (number, fault) in scenario.faults.iter().enumerate() {
        let at = format!("fault.{number}.");
        let refused = |reason| format!("{at}{reason}");
        if !fault.is_drawn() {
            check_fault(fault, &sites, system, driver).map_err(refused)?;
            continue;
        }
        let named = fault.sites.iter();
        let all = sites.iter().filter(|_| fault.sites.is_empty());
        for site in named.chain(all) {
            let here = Fault {
                site: Some(site.clone()),
                ..fault.clone()
            };
            check_fault(&here, &sites, system, driver).map_err(refused)?;
        }
    }
    if let Measure::Crash { site, .. } = &scenario.measure
        && !has_broker(site, &sites, driver)
    {
        return Err(format!("measure.site: {}", no_broker(site, system)));
    }
    Ok(())
}

/// Checks the values of settings and the arguments of nodes of our own program.
fn check_own(system: &System, driver: &Driver, read_line: ReadLine<'_>) -> Result<(), String> {
    if !driver.is_own(system) {
        return Ok(());
    }
    let name = &system.name;
    let start = driver.start_words(Layers::default(), Reach::default());
    // The first word is the program.
    let [_, command, ..] = &start[..] else {
        return Ok(());
    };
    for (setting, value) in &system.settings {
        let Some(flag) = driver.flag_of(setting) else {
            continue;
        };
        let line = [command.clone(), format!("{flag}={}", text_of(value))];
        read_line(&line)
            .map_err(|reason| format!("system.settings.{setting} of {name}: {reason}"))?;
    }
    let own = Peer {
        site: "s1".to_owned(),
        index: 1,
        address: "10.1.0.2".to_owned(),
    };
    let nowhere = Path::new("");
    let all = std::slice::from_ref(&own);
    let places = driver.places(system, nowhere, nowhere, &own, all, nowhere);
    let start = start.iter().skip(1).map(|word| fill(word, &places));
    let line: Vec<String> = start.chain(system.args.iter().cloned()).collect();
    let key = if system.args.is_empty() {
        "driver"
    } else {
        "args"
    };
    read_line(&line).map_err(|reason| format!("system.{key} of {name}: {reason}"))
}

/// The reason begins with the fault's key.
fn check_fault(
    fault: &Fault,
    sites: &[String],
    system: &System,
    driver: &Driver,
) -> Result<(), String> {
    if !fault.is_of_broker() {
        return Ok(());
    }
    let site = fault.site.as_deref().unwrap_or_default();
    if !has_broker(site, sites, driver) {
        return Err(format!("site: {}", no_broker(site, system)));
    }
    if fault.action == Action::StallDisk && driver.disk.is_none() {
        return Err(format!(
            "do: the driver {} of system {} does not say how its brokers store, so their disks do not matter",
            system.driver, system.name
        ));
    }
    if fault.action == Action::Drain && driver.drain.is_empty() {
        return Err(format!(
            "do: brokers of the driver {} of system {} cannot be drained",
            system.driver, system.name
        ));
    }
    Ok(())
}

fn has_broker(site: &str, sites: &[String], driver: &Driver) -> bool {
    let place = sites.iter().position(|name| name == site);
    place.is_some_and(|place| place < driver.brokers.count(sites.len()))
}

fn no_broker(site: &str, system: &System) -> String {
    format!("system {} has no broker at {site}", system.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"title = "t"
[network]
sites = 3
[[system]]
name = "mesh"
driver = "thicket"
[[system]]
name = "single"
driver = "mosquitto"
[workload]
pattern = "fan-out"
rate_per_s = 10
seconds = 3
"#;

    fn checked(text: &str) -> Result<Vec<Driver>, String> {
        let (scenario, cells) = Scenario::parse(text)?;
        let bad = |word: &&String| word.contains("bad");
        let read_line = |line: &[String]| match line.iter().find(bad) {
            Some(word) => Err(format!("{word} in {} words after {}", line.len(), line[0])),
            None => Ok(()),
        };
        check(Path::new("t.toml"), text, &scenario, &cells, &read_line)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn values_that_a_node_would_not_start_with_are_refused() {
        let system = "driver = \"thicket\"";
        let with = |keys: &str| TEXT.replace(system, &format!("{system}\n{keys}"));
        for (keys, expected) in [
            (
                "settings = { workers = 2, routing = \"bad\" }",
                "t.toml: line 7, system.settings.routing of mesh: --routing=bad in 2 words after broker",
            ),
            (
                "settings.log_level = \"bad\"",
                "t.toml: line 7, system.settings.log_level of mesh: --log-level=bad",
            ),
            (
                "args = [\"--backups\", \"bad\"]",
                "t.toml: line 7, system.args of mesh: bad in ",
            ),
        ] {
            let error = checked(&with(keys)).unwrap_err();
            assert!(error.contains(expected), "{keys}: {error}");
            // Only that program knows what it accepts.
            checked(&with(&format!("{keys}\nprogram = \"another\""))).unwrap();
        }
        let swept = format!(
            "{TEXT}[[sweep]]\nkey = \"system.mesh.settings.routing\"\nvalues = [\"mesh\", \"bad\"]\n"
        );
        let error = checked(&swept).unwrap_err();
        let expected = "sweep.0.values: with system.mesh.settings.routing = bad: system.settings.routing of mesh: ";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_a_system_cannot_do_is_refused_with_file_line_and_key() {
        assert_eq!(checked(TEXT).unwrap().len(), 2);
        let crash = "[measure]\nkind = \"crash\"\nsite = \"s2\"\n";
        for (addition, expected) in [
            (
                "[[fault]]\ndo = \"pause\"\nsite = \"s2\"\n",
                "t.toml: line 16, fault.0.site: system single has no broker at s2",
            ),
            (
                "[[fault]]\ndo = \"kill\"\nsite = \"s3\"\n",
                "t.toml: line 16, fault.0.site: system single has no broker at s3",
            ),
            (
                "[[fault]]\ndo = \"drain\"\nsite = \"s1\"\n",
                "t.toml: line 15, fault.0.do: brokers of the driver mosquitto",
            ),
            (
                crash,
                "t.toml: line 16, measure.site: system single has no broker at s2",
            ),
            (
                "[[system]]\nname = \"x\"\ndriver = \"moskito\"\n",
                "t.toml: line 16, system.driver of x: moskito is none of thicket, ",
            ),
            (
                "[[system]]\nname = \"x\"\ndriver = \"thicket\"\nsettings = { rout = 1 }\n",
                "t.toml: line 17, system.settings.rout of x: ",
            ),
            (
                "[[system]]\nname = \"x\"\ndriver = \"external\"\naddresses = [\"localhost:1883\"]\n",
                "t.toml: line 17, system.addresses of x: 1, expected 3",
            ),
        ] {
            let text = match addition {
                _ if addition == crash => TEXT.replace("seconds = 3\n", "\n") + addition,
                _ => format!("{TEXT}{addition}"),
            };
            let error = checked(&text).unwrap_err();
            assert!(error.contains(expected), "{addition}: {error}");
        }
    }

    #[test]
    fn what_clients_have_over_tcp_is_what_the_driver_knows() {
        for (keys, expected) in [
            (
                "websocket = true",
                "line 12, workload.websocket: the driver vernemq of system single",
            ),
            (
                "tls = true\nwebsocket = true",
                "line 12, workload.tls: the driver vernemq of system single",
            ),
        ] {
            let text = TEXT
                .replace("mosquitto", "vernemq")
                .replace("rate_per_s", &format!("{keys}\nrate_per_s"));
            let error = checked(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
            for knows in ["mosquitto", "rabbitmq", "hivemq", "thicket"] {
                checked(&text.replace("vernemq", knows)).unwrap();
            }
        }
    }

    #[test]
    fn faults_of_drawn_sites_need_a_broker_at_each_of_them() {
        let drawn = |more: &str| {
            checked(&format!(
                "{TEXT}[[fault]]\ndo = \"pause\"\nfor_s = 1\nevery_s = 1\n{more}"
            ))
        };
        let error = drawn("").unwrap_err();
        assert!(
            error.contains("fault.0.site: system single has no broker at s2"),
            "{error}"
        );
        drawn("sites = [\"s1\"]\n").unwrap();
        let stall = "[[fault]]\ndo = \"stall-disk\"\nfor_s = 1\nsite = \"s1\"\n";
        let error = checked(&format!("{TEXT}{stall}")).unwrap_err();
        let expected =
            "fault.0.do: the driver mosquitto of system single does not say how its brokers store";
        assert!(error.contains(expected), "{error}");
        checked(&format!("{TEXT}{stall}").replace("mosquitto", "thicket")).unwrap();
    }

    #[test]
    fn a_swept_fault_is_checked_in_every_cell() {
        let text = format!(
            "{TEXT}[[fault]]\ndo = \"kill\"\nsite = \"s1\"\n[[sweep]]\nkey = \"fault.0.site\"\nvalues = [\"s1\", \"s2\"]\n"
        );
        let error = checked(&text).unwrap_err();
        let expected = "line 19, sweep.0.values: with fault.0.site = s2: fault.0.site: system single has no broker at s2";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_fault_that_no_sweep_changes_is_refused_by_its_own_line() {
        let text = format!(
            "{TEXT}[[fault]]\ndo = \"kill\"\nsite = \"s2\"\n[[sweep]]\nkey = \"workload.qos\"\nvalues = [0, 1]\n"
        );
        let error = checked(&text).unwrap_err();
        assert!(error.contains("line 16, fault.0.site: "), "{error}");
    }
}
