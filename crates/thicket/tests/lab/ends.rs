//! How a lab ends: by a signal, or because a process of it is gone. What it has measured is kept, and nothing is left behind.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thicket_lab::janitor;
use thicket_lab::links::Backend;
use thicket_lab::results::Results;

use super::{SCENARIO, end, figure, lab, start, turn, up, wait_for};

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
        // On a busy machine frames are late, and the run is listed among those that are not valid.
        let of_complete = match complete.valid {
            true => "complete: mesh, messages = 10, repeat 1",
            false => "mesh, messages = 10, repeat 1: ",
        };
        for line in [of_complete, "mesh, messages = 100000, repeat 1: cut short"] {
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
fn a_broker_that_dies_is_started_anew_for_the_next_cell() {
    let Some(folder) = turn() else { return };
    let sweep = "seconds = 4\n[[sweep]]\nkey = \"workload.qos\"\nvalues = [0, 1]\n";
    let scenario = SCENARIO.replace("qos = 1\n", "");
    let mut child = start(folder.path(), &format!("{scenario}{sweep}"));
    let broker = || {
        children_of(child.id()).into_iter().find(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = command.split(|&byte| byte == 0);
            words.any(|word| word == b"broker") && words.any(|word| word == b"s2")
        })
    };
    let first = loop {
        match broker() {
            Some(pid) => break pid,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // Its cluster forms, and clients connect.
    std::thread::sleep(Duration::from_millis(2500));
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    child.wait().unwrap();
    let results = Results::load(&folder.path().join("out")).unwrap();
    let [first, second] = &results.runs[..] else {
        panic!("{:?}", results.runs);
    };
    let died = |reason: &String| reason.contains("mesh at s2 was ended by signal 9");
    assert!(first.invalid.iter().any(died), "{:?}", first.invalid);
    assert!(!second.invalid.iter().any(died), "{:?}", second.invalid);
    assert_eq!(second.metrics["lost_messages"], 0.0);
}

#[test]
fn a_broker_that_is_alive_is_not_started_again_by_hand() {
    let Some(folder) = turn() else { return };
    let mut child = up(folder.path());
    let number = child.id().to_string();
    let socket = janitor::socket(child.id());
    wait_for(&mut child, || socket.exists());
    let restart = || {
        lab(&["broker", "restart", "s2", "--lab", &number])
            .output()
            .unwrap()
    };
    let refused = restart();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    let killed = lab(&["broker", "kill", "s2", "--lab", &number]).status();
    let again = restart();
    end(&child, Signal::TERM);
    child.wait().unwrap();
    assert!(
        !refused.status.success() && words.contains("mesh at s2 is alive"),
        "{words}"
    );
    assert!(killed.unwrap().success() && again.status.success());
}

/// Ends a lab that has load, with brokers that are to die and to be started, and returns its results. It may not take as long as what is left of the load.
/// A busy machine is slow to start the load: then once more, with more time until the end.
fn interrupt_in_load(folder: &Path, scenario: &str, load_began: Duration) -> Results {
    let not_begun = "interrupted: 0 of 1 runs complete, 0 cut short, 1 not begun";
    for attempt in 1.. {
        let folder = folder.join(attempt.to_string());
        std::fs::create_dir(&folder).unwrap();
        let results = interrupt_after(&folder, scenario, load_began * attempt);
        if attempt == 5 || results.ended_early.as_deref() != Some(not_begun) {
            assert_eq!(
                results.ended_early.as_deref(),
                Some("interrupted: 0 of 1 runs complete, 1 cut short, 0 not begun")
            );
            assert!(results.runs[0].is_cut_short());
            return results;
        }
    }
    unreachable!("an attempt is the last one");
}

fn interrupt_after(folder: &Path, scenario: &str, load_began: Duration) -> Results {
    let mut child = start(folder, scenario);
    let out = folder.join("out");
    wait_for(&mut child, || {
        out.join("brokers/mesh-c0-r1/s3/output.log").is_file()
    });
    std::thread::sleep(load_began);
    end(&child, Signal::INT);
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if asked.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("the lab goes on a minute after its end was asked for");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(!status.success());
    assert!(!janitor::found().iter().any(|&(lab, _)| lab == child.id()));
    Results::load(&out).unwrap()
}

#[test]
fn an_interrupted_lab_injects_no_more_faults_and_ends() {
    let Some(folder) = turn() else { return };
    let faults: String = [("kill", 0.5), ("restart", 1.0), ("kill", 4.0)]
        .map(|(what, at_s)| format!("[[fault]]\nat_s = {at_s}\ndo = \"{what}\"\nsite = \"s2\"\n"))
        .concat();
    let scenario = format!("{SCENARIO}seconds = 300\n{faults}");
    let results = interrupt_in_load(folder.path(), &scenario, Duration::from_secs(3));
    assert!(results.runs[0].samples.is_some(), "what came is kept");
}

#[test]
fn an_interrupted_lab_in_which_a_broker_died_starts_it_no_more() {
    let Some(folder) = turn() else { return };
    let death = "[measure]\nkind = \"crash\"\nsite = \"s2\"\nbefore_s = 0.1\nafter_s = 300\n";
    // Once before the death or just after it, and once while its clients are elsewhere.
    for (name, load_began) in [("early", 1), ("late", 4)] {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let scenario = SCENARIO.replace("subscribers = 6\n", "");
        let scenario = format!("{scenario}{death}");
        interrupt_in_load(&folder, &scenario, Duration::from_secs(load_began));
    }
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

/// The children of a process, of all its threads.
fn children_of(process: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.into_iter().flatten().filter_map(Result::ok);
    let children =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: String = children.collect();
    let pids = children.split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// The link process of a lab, once brokers have formed their cluster and clients send.
fn started_fabric(folder: &Path, lab: &Child) -> Pid {
    let fabric_of = |lab: u32| {
        let is_fabric = |pid: &i32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.ends_with(b"fabric\0")
        };
        children_of(lab).into_iter().find(is_fabric)
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
fn a_run_whose_link_process_was_stopped_is_invalid() {
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
    let is_of_it = |reason: &String| reason.starts_with("the link process woke up ");
    assert!(reasons.iter().any(is_of_it), "{reasons:?}");
}
