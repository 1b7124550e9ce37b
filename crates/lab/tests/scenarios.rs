//! Every scenario in `scenarios/` and that of the documentation can be read, and their drivers are there.

use std::path::Path;

use thicket_lab::driver::Driver;
use thicket_lab::scenario::Scenario;

#[test]
fn every_scenario_can_be_read_with_its_drivers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let (scenario, cells) = Scenario::load(&path).unwrap();
        assert!(!cells.is_empty(), "{}", path.display());
        for system in &scenario.systems {
            Driver::load(system).unwrap();
        }
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn the_scenario_of_the_documentation_can_be_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("```toml\n").unwrap();
    let (text, _) = after.split_once("```").unwrap();
    let (scenario, cells) = Scenario::parse(text).unwrap();
    assert_eq!((scenario.faults.len(), cells.len()), (2, 3));
}
