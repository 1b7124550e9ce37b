//! The lab with real namespaces. Where those cannot be had, every test says so and ends.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use thicket_lab::janitor;
use thicket_lab::links::Backend;
use thicket_lab::results::Results;
use thicket_lab::testbed::check_machine;

/// One network at a time: two of them on a small machine would measure each other.
static TURN: Mutex<()> = Mutex::new(());

/// The only lab of these tests while it lives, with a folder of its own.
struct Turn {
    folder: TempDir,
    _only: MutexGuard<'static, ()>,
}

impl Turn {
    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Waits until no other test has a lab. `None` where this machine cannot run one: the test says so and ends.
fn turn() -> Option<Turn> {
    if let Err(error) = check_machine() {
        eprintln!("skipped: {error}");
        return None;
    }
    Some(Turn {
        _only: TURN.lock().unwrap_or_else(PoisonError::into_inner),
        folder: tempfile::tempdir().unwrap(),
    })
}

const SCENARIO: &str = r#"
title = "A test"
network = { sites = 3, link = { rtt_ms = 4, bandwidth_mbit = 10 } }
brokers = { cpus = 1, memory_mib = 512 }
system = [{ name = "mesh", driver = "thicket" }]
phases = { control_s = 0.1, settle_s = 0.1 }
[workload]
pattern = "fan-out"
subscribers = 6
qos = 1
rate_per_s = 50
"#;

fn lab(arguments: &[&str]) -> Command {
    // A lab ignores SIGHUP if `nohup` started it, and so would one that tests start under `nohup`.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_thicket")]);
    command.arg("lab").args(arguments).stdin(Stdio::null());
    command
}

/// Runs `SCENARIO` with `addition` to its end.
fn run(folder: &Path, addition: &str) -> (Output, Results) {
    run_scenario(folder, &format!("{SCENARIO}{addition}"))
}

fn run_scenario(folder: &Path, scenario: &str) -> (Output, Results) {
    let file = folder.join("scenario.toml");
    let out = folder.join("out");
    std::fs::write(&file, scenario).unwrap();
    let output = lab(&[
        "run",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ])
    .output()
    .unwrap();
    let results = Results::load(&out)
        .unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&output.stderr)));
    (output, results)
}

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

fn figure(results: &Results, name: &str) -> Vec<f64> {
    let runs = results.runs.iter();
    runs.map(|run| {
        *run.metrics
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {:?}", run.invalid))
    })
    .collect()
}

#[test]
fn publications_cross_links_only_where_subscribers_are_elsewhere_and_all_of_them_arrive() {
    let Some(folder) = turn() else { return };
    let addition = "messages = 40\npayload_bytes = 2000\n[[sweep]]\nkey = \"workload.placement\"\nvalues = [\"locality-100\", \"locality-0\"]\n";
    let (output, results) = run(folder.path(), addition);
    assert_eq!(results.ended_early, None, "{output:?}");
    assert_eq!(figure(&results, "delivered_messages"), [240.0, 240.0]);
    assert_eq!(figure(&results, "lost_messages"), [0.0, 0.0]);
    let bytes = figure(&results, "publish_traffic_bytes");
    // 40 messages of 2000 bytes cross one link once, however many subscribers there are.
    assert!(bytes[0] < 40.0 * 2000.0, "{bytes:?}");
    assert!((80_000.0..200_000.0).contains(&bytes[1]), "{bytes:?}");
    let used = &results.runs[1].phases[2];
    assert_eq!((used.name.as_str(), used.links.len()), ("publish", 3));
    for name in [
        "results.json",
        "runs.csv",
        "report.html",
        "samples/mesh-c1-r1.csv",
    ] {
        assert!(folder.path().join("out").join(name).is_file(), "{name}");
    }
    let samples =
        std::fs::read_to_string(folder.path().join("out/samples/mesh-c1-r1.csv")).unwrap();
    assert_eq!(samples.lines().count(), 241);
}

#[test]
fn nothing_acknowledged_is_lost_while_a_site_is_cut_off_and_healed() {
    let Some(folder) = turn() else { return };
    let addition = "seconds = 3\nplacement = { sites = { publishers = \"s1\", subscribers = \"s3\" } }
[[fault]]\nat_s = 0.5\ndo = \"partition\"\nsites = [\"s3\"]\n[[fault]]\nat_s = 1.2\ndo = \"heal\"\n";
    let (_, results) = run(folder.path(), &addition.replace("phases", ""));
    let run = &results.runs[0];
    let faults: Vec<&str> = run.faults.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(faults, ["partition s3 from the others", "heal all links"]);
    assert_eq!(
        figure(&results, "lost_messages"),
        [0.0],
        "{:?}",
        run.metrics
    );
    assert!(run.metrics.contains_key("longest_silence_s"));
}

#[test]
fn a_broker_that_refuses_is_a_result_and_its_clients_connect_again() {
    let Some(folder) = turn() else { return };
    let scenario = SCENARIO
        .replace(
            "driver = \"thicket\" }",
            "driver = \"thicket\", args = [\"--partition\", \"majority\"] }",
        )
        .replace(
            "pattern = \"fan-out\"\nsubscribers = 6",
            "pattern = \"pair\"\npublishers = 3\npersistent = true",
        );
    let addition =
        "seconds = 6\n[[fault]]\nat_s = 0.5\ndo = \"partition\"\nsites = [\"s3\"]\nfor_s = 2.5\n";
    let (output, results) = run_scenario(folder.path(), &format!("{scenario}{addition}"));
    let run = &results.runs[0];
    // A busy machine may make it invalid, a broker that closes connections does not.
    let is_of_connection = |it: &String| it.contains("connect");
    assert!(
        !run.invalid.iter().any(is_of_connection),
        "{:?} {output:?}",
        run.invalid
    );
    // A publisher is at the site that is cut off.
    let count = |name: &str| run.metrics.get(name).copied().unwrap_or_default();
    assert!(count("closed_connections") >= 1.0, "{:?}", run.metrics);
    assert!(count("refused_connections") >= 1.0, "{:?}", run.metrics);
    assert_eq!(count("lost_messages"), 0.0, "{:?}", run.metrics);
    let says = |it: &String| it.contains("clients connected again");
    assert!(run.warnings.iter().any(says), "{:?}", run.warnings);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(!run.valid || table.contains("CLOSED"), "{table}");
}

#[test]
fn an_acknowledgement_takes_as_long_as_the_way_to_the_backup_and_back() {
    let Some(folder) = turn() else { return };
    let addition = "messages = 40\npersistent = true\nplacement = { sites = { publishers = \"s1\", subscribers = \"s1\" } }\n";
    let (output, results) = run(folder.path(), addition);
    // Each link has a round trip of 4 ms, less half a millisecond of what frames may be early.
    let fastest = figure(&results, "acknowledgement_p50_ms")[0];
    assert!(fastest > 3.0, "{:?}", results.runs[0].metrics);
    let table = String::from_utf8_lossy(&output.stdout);
    // A run that the machine disturbed is in no table and no figure.
    let is_valid = results.runs[0].valid;
    assert!(!is_valid || table.contains("ACK P99"), "{table}");
    let out = folder.path().join("out");
    let kept =
        std::fs::read_to_string(out.join("samples/mesh-c0-r1.acknowledgements.csv")).unwrap();
    assert_eq!(kept.lines().count(), 41);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(!is_valid || page.contains("Time until a publisher has PUBACK or PUBCOMP"));
}

#[test]
fn a_command_beside_a_broker_reaches_its_api() {
    let Some(folder) = turn() else { return };
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, format!("{SCENARIO}messages = 1\n")).unwrap();
    let mut up = lab(&["up", file.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let number = up.id().to_string();
    let ask = |more: &[&str]| {
        let mut command = lab(&["exec", "--lab", &number, "s2"]);
        command
            .args(more)
            .args(["--", env!("CARGO_BIN_EXE_thicket"), "ctl", "nodes"]);
        command.output().unwrap()
    };
    let mut answer = ask(&["--broker"]);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !answer.status.success() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        answer = ask(&["--broker"]);
    }
    let nodes = String::from_utf8_lossy(&answer.stdout).into_owned();
    let beside_clients = ask(&[]);
    end(&up, Signal::INT);
    up.wait().unwrap();
    assert!(answer.status.success(), "{answer:?}");
    assert!(nodes.contains("s2"), "{nodes}");
    assert!(!beside_clients.status.success(), "{beside_clients:?}");
}

#[test]
fn a_lab_that_is_killed_leaves_nothing_behind() {
    let Some(folder) = turn() else { return };
    let mut child = start(folder.path(), &format!("{SCENARIO}seconds = 600\n"));
    let out = folder.path().join("out");
    let pid = child.id();
    wait_for(&mut child, || {
        out.join("brokers/mesh-c0-r1/s3/output.log").is_file()
    });
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")));
    let children: String = children.map_while(Result::ok).collect();
    assert!(children.split_whitespace().count() > 3, "{children}");
    child.kill().unwrap();
    child.wait().unwrap();
    // Its janitor does it, in its own time.
    let runs = |process: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    for process in children.split_whitespace() {
        while runs(process) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    while janitor::found().iter().any(|&(lab, _)| lab == pid) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn two_may_clean_up_after_the_same_lab_at_once() {
    let Some(_folder) = turn() else { return };
    // No process has such a number.
    let lab = 4_194_305;
    for _ in 0..5 {
        for name in 0..10 {
            let name = format!("thicket-{lab}-r{name}");
            let added = Command::new("ip").args(["netns", "add", &name]).status();
            assert!(added.unwrap().success());
        }
        let clean = || std::thread::spawn(move || janitor::clean(&[lab]));
        for cleaner in [clean(), clean()] {
            cleaner.join().unwrap().unwrap();
        }
        assert!(janitor::found().iter().all(|&(found, _)| found != lab));
    }
}

#[test]
fn an_interrupted_lab_keeps_what_it_measured_and_cleans_up() {
    let Some(folder) = turn() else { return };
    let sweep = "[[sweep]]\nkey = \"workload.messages\"\nvalues = [10, 100000, 20]\n";
    let mut with_samples = 0;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = folder.path().join(format!("{signal:?}"));
        std::fs::create_dir(&folder).unwrap();
        let mut child = start(&folder, &format!("{SCENARIO}messages = 1\n{sweep}"));
        let out = folder.join("out");
        wait_for(&mut child, || out.join("results.json").is_file());
        // The next run begins, and soon its load.
        std::thread::sleep(Duration::from_millis(1500));
        end(&child, signal);
        let status = child.wait().unwrap();
        let results = Results::load(&out).unwrap();
        assert!(!status.success() && !results.valid);
        assert_eq!(
            results.ended_early.as_deref(),
            Some("interrupted: 1 of 3 runs complete, 1 cut short, 1 not begun"),
            "{signal:?}"
        );
        let [complete, cut] = &results.runs[..] else {
            panic!("{signal:?}: {:?}", results.runs);
        };
        assert_eq!(complete.metrics["delivered_messages"], 60.0);
        assert!(cut.is_cut_short() && !cut.valid, "{signal:?}: {cut:?}");
        with_samples += usize::from(cut.samples.is_some());
        let page = std::fs::read_to_string(out.join("report.html")).unwrap();
        for line in [
            "complete: mesh, messages = 10, repeat 1",
            "mesh, messages = 100000, repeat 1: cut short",
        ] {
            assert!(page.contains(line), "{signal:?}: no {line} in {page}");
        }
        assert!(!janitor::found().iter().any(|&(lab, _)| lab == child.id()));
    }
    // A busy machine may be slow to start the load of one.
    assert!(with_samples > 0, "what had come until then is kept");
}

#[test]
fn a_lab_that_is_interrupted_while_its_brokers_start_does_not_wait_for_them() {
    let Some(folder) = turn() else { return };
    let driver = folder.path().join("never.toml");
    // They listen nowhere, and an hour is longer than this test may take.
    let words = "about = \"x\"\nprogram = \"sleep\"\nstart = [\"{program}\", \"3600\"]\npatience_s = 3600\n";
    std::fs::write(&driver, words).unwrap();
    let by = format!("driver = {driver:?}");
    let scenario = SCENARIO.replace("driver = \"thicket\"", &by);
    let (file, out) = (
        folder.path().join("scenario.toml"),
        folder.path().join("out"),
    );
    std::fs::write(&file, format!("{scenario}messages = 1\n")).unwrap();
    let [file, out] = [&file, &out].map(|path| path.to_str().unwrap());
    for arguments in [&["run", file, "--out", out][..], &["up", file]] {
        let mut child = lab(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let own = janitor::folder(child.id());
        let of_run = Path::new(out).join("brokers/mesh-c0-r1");
        wait_for(&mut child, || {
            let mut folders = [&own, &of_run].into_iter();
            folders.any(|folder| folder.join("s3/output.log").is_file())
        });
        end(&child, Signal::TERM);
        assert!(!child.wait().unwrap().success(), "{arguments:?}");
        let is_left = janitor::found().iter().any(|&(lab, _)| lab == child.id());
        assert!(!is_left && !own.exists(), "{arguments:?}");
        // The next lab is not to be taken for this one.
        std::fs::remove_dir_all(&of_run).unwrap_or_default();
    }
    let early = Results::load(Path::new(out)).unwrap().ended_early;
    let expected = "interrupted: 0 of 1 runs complete, 0 cut short, 1 not begun";
    assert_eq!(early.as_deref(), Some(expected));
}

#[test]
fn a_lab_whose_terminal_is_closed_writes_its_report() {
    let Some(folder) = turn() else { return };
    std::fs::write(
        folder.path().join("scenario.toml"),
        format!("repeats = 3{SCENARIO}messages = 10\n"),
    )
    .unwrap();
    let mut command = lab(&["run", "scenario.toml", "--out", "out"]);
    command.current_dir(folder.path());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nobody reads what it says from here on.
    drop((child.stdout.take(), child.stderr.take()));
    let out = folder.path().join("out");
    wait_for(&mut child, || out.join("results.json").is_file());
    end(&child, Signal::HUP);
    child.wait().unwrap();
    let early = Results::load(&out).unwrap().ended_early.unwrap_or_default();
    assert!(early.starts_with("interrupted: "), "{early}");
    assert!(out.join("report.html").is_file());
}

/// Starts a run of a scenario into `folder`.
fn start(folder: &Path, scenario: &str) -> Child {
    let file = folder.join("scenario.toml");
    std::fs::write(&file, scenario).unwrap();
    let out = folder.join("out");
    lab(&[
        "run",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "-q",
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::null())
    .spawn()
    .unwrap()
}

#[test]
fn finished_runs_of_a_lab_that_is_killed_are_kept() {
    let Some(folder) = turn() else { return };
    let mut child = start(
        folder.path(),
        &format!("repeats = 2{SCENARIO}messages = 10\n"),
    );
    let out = folder.path().join("out");
    wait_for(&mut child, || out.join("results.json").is_file());
    child.kill().unwrap();
    child.wait().unwrap();
    let results = Results::load(&out).unwrap();
    assert_eq!(figure(&results, "delivered_messages"), [60.0]);
    assert!(!results.valid && results.ended_early.is_some());
    while janitor::found().iter().any(|&(lab, _)| lab == child.id()) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The link process of a lab, once brokers have formed their cluster and clients send.
fn started_fabric(folder: &Path, lab: &Child) -> Pid {
    let fabric_of = |lab: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{lab}/task")).ok()?;
        let children = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
        let children: String = children.collect();
        let mut children = children.split_whitespace();
        let is_fabric = |pid: &&str| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.ends_with(b"fabric\0")
        };
        children.find(is_fabric)?.parse::<i32>().ok()
    };
    let started = folder.join("out/brokers/mesh-c0-r1/s3/output.log");
    while !started.is_file() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Brokers form their cluster and clients connect meanwhile.
    std::thread::sleep(Duration::from_millis(1500));
    let fabric = fabric_of(lab.id()).expect("a lab has a link process");
    Pid::from_raw(fabric).unwrap()
}

#[test]
fn a_run_whose_link_process_dies_is_kept_as_invalid_and_the_next_goes_on() {
    let Some(folder) = turn() else { return };
    let mut child = start(
        folder.path(),
        &format!("repeats = 2{SCENARIO}seconds = 1\n"),
    );
    let fabric = started_fabric(folder.path(), &child);
    kill_process(fabric, Signal::KILL).unwrap();
    child.wait().unwrap();
    let results = Results::load(&folder.path().join("out")).unwrap();
    assert_eq!(results.ended_early, None);
    assert_eq!(results.runs.len(), 2);
    assert!(!results.runs[0].valid && results.runs[1].metrics["lost_messages"] == 0.0);
    let reasons = &results.runs[0].invalid;
    let ended = reasons
        .iter()
        .filter(|reason| reason.contains("link process"));
    assert_eq!(
        ended.collect::<Vec<_>>(),
        ["link process: it has ended"],
        "{reasons:?}"
    );
}

#[test]
fn a_run_whose_link_process_stood_still_is_invalid() {
    let Some(folder) = turn() else { return };
    if Backend::choose() == Backend::Netem {
        eprintln!("skipped: the kernel delays frames, and no process");
        return;
    }
    let mut child = start(
        folder.path(),
        &format!("{SCENARIO}placement = \"locality-0\"\nseconds = 4\n"),
    );
    let fabric = started_fabric(folder.path(), &child);
    // Again and again, so that it is in the run wherever that is.
    while child.try_wait().unwrap().is_none() {
        for (signal, then_ms) in [(Signal::STOP, 300), (Signal::CONT, 700)] {
            let _ = kill_process(fabric, signal);
            std::thread::sleep(Duration::from_millis(then_ms));
        }
    }
    let results = Results::load(&folder.path().join("out")).unwrap();
    let reasons = &results.runs[0].invalid;
    let is_of_it = |reason: &String| reason.starts_with("the link process stood still for");
    assert!(reasons.iter().any(is_of_it), "{reasons:?}");
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
            "system.args of mesh: --partition both: expected one of serve, majority",
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

fn end(lab: &Child, signal: Signal) {
    let pid = Pid::from_raw(lab.id() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits for something that the lab does, while the lab lives.
fn wait_for(child: &mut Child, done: impl Fn() -> bool) {
    while !done() {
        assert_eq!(child.try_wait().unwrap(), None, "the lab has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn clients_use_tls_and_websocket_and_both() {
    let Some(folder) = turn() else { return };
    let sweep =
        |key: &str| format!("[[sweep]]\nkey = \"workload.{key}\"\nvalues = [false, true]\n");
    let both = sweep("tls") + &sweep("websocket");
    let (_, results) = run(folder.path(), &format!("messages = 20\n{both}"));
    assert_eq!(figure(&results, "delivered_messages"), [120.0; 4]);
    assert_eq!(figure(&results, "lost_messages"), [0.0; 4]);
}

/// What the lab asks of `kubectl`, answered from folders: a pod's results are in that of its namespace.
const KUBECTL: &str = r#"#!/bin/sh
namespace=$2
case "$3" in
get)
    if [ -e "$CLUSTER/$namespace-runs" ]; then echo "load-x "; else echo "load-x 0"; fi
    ;;
exec)
    [ "$4 $5 $6 $7" = "load-x -c keep --" ] || exit 1
    shift 7
    case "$1" in
    tar) exec tar -c -C "$CLUSTER/$namespace" . ;;
    touch) touch "$CLUSTER/$namespace-$(basename "$2")" ;;
    esac
    ;;
*) exit 1 ;;
esac
"#;

#[test]
fn results_of_jobs_are_brought_into_one_folder_once_all_have_ended() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = format!(
        "{}messages = 10\n",
        SCENARIO
            .replace("brokers =", "# brokers =")
            .replace("driver = \"thicket\" }", "driver = \"thicket\" }, { name = \"topic\", driver = \"thicket\", settings = { routing = \"topic\" } }")
    );
    let file = at("scenario.toml");
    std::fs::write(&file, text).unwrap();
    let words = |path: &Path| path.to_str().unwrap().to_owned();
    let (file, exported) = (words(&file), words(&at("exported")));
    let run = |arguments: &[&str]| {
        let path = format!("{}:{}", words(&at("bin")), std::env::var("PATH").unwrap());
        let mut command = lab(arguments);
        command.env("PATH", path).env("CLUSTER", at("cluster"));
        command.output().unwrap()
    };
    let image = ["--image", "thicket=thicket:1"];
    let export = [&["export", &file, "--kubernetes", &exported][..], &image].concat();
    assert!(run(&export).status.success());
    for system in ["mesh", "topic"] {
        let results = words(&at(&format!("cluster/thicket-{system}-n0")));
        let play = ["run", &file, "--backend", "simulated", "--only", system];
        let played = run(&[&play[..], &["--out", &results]].concat());
        assert!(played.status.success(), "{played:?}");
    }
    std::fs::create_dir(at("bin")).unwrap();
    std::fs::write(at("bin/kubectl"), KUBECTL).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(at("bin/kubectl"), executable).unwrap();
    let collect = |out: &str| run(&["collect", &exported, "--out", &words(&at(out))]);
    let runs = at("cluster/thicket-topic-n0-runs");
    std::fs::write(&runs, "").unwrap();
    let refused = collect("early");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        error.contains("thicket-topic-n0: its load still runs"),
        "{error}"
    );
    std::fs::remove_file(&runs).unwrap();
    let collected = collect("all");
    assert!(collected.status.success(), "{collected:?}");
    let results = Results::load(&at("all")).unwrap();
    let systems: Vec<&str> = results.runs.iter().map(|run| run.system.as_str()).collect();
    assert_eq!(systems, ["mesh", "topic"]);
    for run in &results.runs {
        assert_eq!(run.metrics["delivered_messages"], 60.0);
        let samples = std::fs::read_to_string(at("all").join(run.samples.as_ref().unwrap()));
        assert_eq!(samples.unwrap().lines().count(), 61);
        // The job may end now.
        assert!(at(&format!("cluster/thicket-{}-n0-collected", run.system)).exists());
    }
}
