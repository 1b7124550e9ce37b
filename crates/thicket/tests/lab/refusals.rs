//! What the commands check, refuse and list before anything runs.

use std::path::Path;
use std::process::Stdio;

use thicket_lab::links::Backend;

use super::{SCENARIO, lab, turn};

#[test]
fn a_verification_refuses_numbers_that_it_cannot_use() {
    for arguments in [
        ["--probes", "0"],
        ["--probes", "99999999999"],
        ["--tcp", "0"],
        ["--tcp", "nan"],
        ["--tcp", "inf"],
    ] {
        let mut command = lab(&["verify", "no-such-file.toml"]);
        let output = command.args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        let expected = format!("{} {}: expected", arguments[0], arguments[1]);
        let error = error.replace("NaN", "nan");
        assert!(error.contains(&expected), "{arguments:?}: {error}");
    }
}

#[test]
fn a_back_end_that_the_kernel_lacks_is_refused_before_anything_is_written() {
    let Some(folder) = turn() else { return };
    if Backend::choose() == Backend::Netem {
        eprintln!("skipped: this machine has netem, or cannot run the lab");
        return;
    }
    let (file, out) = (
        folder.path().join("scenario.toml"),
        folder.path().join("out"),
    );
    std::fs::write(&file, format!("{SCENARIO}messages = 4\n")).unwrap();
    let mut command = lab(&["run", "--backend", "netem", "--out"]);
    let output = command.arg(&out).arg(file).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("does not take netem") && error.contains("--backend wire"),
        "{error}"
    );
    assert!(!out.exists());
}

#[test]
fn a_reader_that_wants_no_more_is_no_error() {
    let mut child = lab(&["drivers"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_scenario_with_a_mistake_is_refused_with_its_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, SCENARIO.replace("subscribers", "subscribrs")).unwrap();
    let output = lab(&["check", file.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        text.contains("line 9") && text.contains("subscribrs"),
        "{text}"
    );
}

#[test]
fn a_setting_that_no_node_would_start_with_is_refused_before_the_first_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    let out = folder.path().join("out");
    let (file_name, out_name) = (file.to_str().unwrap(), out.to_str().unwrap());
    let system = "name = \"mesh\", driver = \"thicket\"";
    for (keys, expected) in [
        (
            "settings = { routing = \"x\" }",
            "system.settings.routing of mesh: routing = \"x\": expected mesh, topic, tree or flood",
        ),
        (
            "settings = { workers = -1 }",
            "system.settings.workers of mesh: --workers -1: ",
        ),
        (
            "args = [\"--partition\", \"both\"]",
            "system.args of mesh: --partition both: expected one of serve, majority, majority-without-data",
        ),
        (
            "args = [\"--bakups\", \"1\"]",
            "system.args of mesh: unexpected argument '--bakups'",
        ),
    ] {
        let text = SCENARIO.replace(system, &format!("{system}, {keys}"));
        std::fs::write(&file, text + "messages = 10\n").unwrap();
        for words in [
            &["check", file_name][..],
            &["run", file_name, "--out", out_name],
        ] {
            // A variable of the user's is not the scenario's fault.
            let output = lab(words).env("THICKET_BACKUPS", "x").output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            let expected = format!("scenario.toml: line 5, {expected}");
            assert!(
                !output.status.success() && error.contains(&expected),
                "{words:?}: {error}"
            );
        }
        assert!(!out.exists());
    }
}

#[test]
fn cores_that_the_machine_does_not_have_are_refused_before_the_first_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    let out = folder.path().join("out");
    let text = SCENARIO.replace("cpus = 1", "cores = [\"1022-1023\"]");
    std::fs::write(&file, text + "messages = 10\n").unwrap();
    let (file, out_name) = (file.to_str().unwrap(), out.to_str().unwrap());
    // It may be for another machine.
    let output = lab(&["check", file]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for words in [&["run", file, "--out", out_name][..], &["up", file]] {
        let output = lab(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let expected = "brokers.cores.0: \"1022-1023\", but the cores of this machine are 0";
        assert!(
            !output.status.success() && error.contains(expected),
            "{words:?}: {error}"
        );
    }
    assert!(!out.exists());
}

#[test]
fn drivers_are_listed_in_two_columns() {
    let output = lab(&["drivers"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let start = |line: &str| {
        let name = line.find(' ').unwrap_or_default();
        name + line[name..]
            .find(|letter| letter != ' ')
            .unwrap_or_default()
    };
    let starts: Vec<usize> = text.lines().map(start).collect();
    assert!(starts.len() > 2, "{text}");
    assert!(starts.iter().all(|at| *at == starts[0]), "{text}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, format!("{SCENARIO}messages = 10\n")).unwrap();
    let file = file.to_str().unwrap();
    let below = format!("{file}/below");
    for (words, expected) in [
        (
            &["run", file, "--backend", "simulated", "--out", file][..],
            format!("cannot make the folder {file}: "),
        ),
        (
            &["run", file, "--backend", "simulated", "--out", &below],
            format!("cannot make the folder {below}: "),
        ),
        (
            &["export", file, "--kubernetes", &below],
            format!("cannot make the folder {below}: "),
        ),
        (
            &["collect", file, "--out", &below],
            format!("cannot make the folder {below}: "),
        ),
    ] {
        let output = lab(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains(&expected),
            "{words:?}: {error}"
        );
    }
}

#[test]
fn every_scenario_of_the_project_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The data of the papers has a folder of its own.
        if path.is_dir() {
            continue;
        }
        let output = lab(&["check", path.to_str().unwrap()]).output().unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        names.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    for name in [
        "border-fig4-6",
        "border-fig7-8",
        "overlays-fig6-7",
        "overlays-fig8",
        "overlays-fig9",
    ] {
        let small = format!("{name}-small");
        assert!(
            names.iter().any(|other| other == name) && names.contains(&small),
            "{name}"
        );
    }
}
