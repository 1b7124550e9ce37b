//! Scenarios follow the papers that they name, and the documentation says where they depart.

use std::path::{Path, PathBuf};

use std::sync::Arc;

use thicket_lab::links::Backend;
use thicket_lab::papers::{BEGIN, figures, in_page, papers, problems, table, values, write};
use thicket_lab::run::Options;
use thicket_lab::scenario::Scenario;
use thicket_lab::simulated::Playable;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_scenario_follows_its_paper_or_has_a_reason() {
    let problems = problems(&root().join("scenarios")).unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_documentation_has_the_departures_as_they_are() {
    let page = std::fs::read_to_string(root().join("docs/lab.md")).unwrap();
    let table = table(&root().join("scenarios")).unwrap();
    let right = in_page(&page, &table).expect(BEGIN);
    assert!(
        page == right,
        "docs/lab.md is stale: `thicket lab papers --write docs/lab.md`"
    );
}

#[test]
fn a_departure_without_a_reason_and_a_reason_without_a_departure_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(root().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let change = |name: &str, from: &str, to: &str| {
        let path = folder.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    };
    change("overlays-fig6-7.toml", "publishers = 5", "publishers = 6");
    change("comparison-m2.toml", "cpus = 1", "cpus = 4");
    change("faults.toml", "title", "source = \"BORDER Fig. 99\"\ntitle");
    let found = problems(folder.path()).unwrap();
    for words in [
        "overlays-fig6-7: clients.publishers is 6, but 5 in the paper (Table 1)",
        "comparison-m2: it does not depart in brokers.cpus",
        "faults: no data of a paper has BORDER Fig. 99",
    ] {
        assert!(
            found.iter().any(|it| it.contains(words)),
            "{words}: {found:?}"
        );
    }
}

#[test]
fn every_parameter_of_a_paper_is_one_that_scenarios_can_have() {
    let folder = root().join("scenarios");
    for paper in papers().unwrap() {
        for experiment in &paper.experiments {
            for parameter in paper.parameters_of(experiment) {
                let has = experiment.files.iter().any(|file| {
                    let path = folder.join(format!("{}.toml", file.name));
                    let (_, cells) = Scenario::load(&path).unwrap();
                    values(&cells, &parameter.key) != ["none"]
                });
                let reasons = experiment.files.iter().flat_map(|file| &file.departs);
                let mut keys = reasons.filter_map(|it| it.key.as_ref());
                assert!(
                    has || keys.any(|key| *key == parameter.key),
                    "{} {}: no scenario has {}",
                    paper.key,
                    experiment.follows,
                    parameter.key
                );
            }
        }
    }
}

#[test]
fn figures_are_drawn_from_results_in_virtual_time_with_their_numbers() {
    let text = include_str!("../../../scenarios/overlays-fig8-small.toml");
    let (mut scenario, mut cells) = Scenario::parse(text).unwrap();
    scenario.systems.truncate(2);
    cells.truncate(2);
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        program: Path::new("thicket"),
        commit: None,
        backend: Backend::Wire,
        folder: folder.path(),
        interrupted: &Arc::default(),
        say: &|_| {},
    };
    let playable = Playable::check(Path::new("t.toml"), text, &scenario, &cells).unwrap();
    assert!(playable.run(&options).unwrap().valid);
    let [svg, csv] = write("overlays-fig8", folder.path()).unwrap();
    let (svg, csv) = (
        std::fs::read_to_string(svg).unwrap(),
        std::fs::read_to_string(csv).unwrap(),
    );
    // Two systems in two cells, each with both parts.
    assert_eq!(csv.lines().count(), 1 + 8, "{csv}");
    assert!(svg.contains("signalling") && svg.contains("publications"));
    let error = write("comparison-fig5", folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no valid run has What came to subscribers"),
        "{error}"
    );
}

#[test]
fn figures_have_names_of_their_own() {
    let mut names: Vec<String> = figures().unwrap().into_iter().map(|it| it.0).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert!(count > 15 && names.len() == count, "{names:?}");
}
