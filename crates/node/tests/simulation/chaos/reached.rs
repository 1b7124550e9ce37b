//! Which rare branches of the protocol the plans reach, and which constants of time they cross.
//!
//! A branch is named in the code by `thicket_session::reach!`. A constant of time is one that is declared as a `Duration`, or a field of
//! `overlay::Timing`; where it has passed, the code says `reach!("time NAME")`, with the file's path before the name if two have it.

use std::{collections::BTreeMap, fs, path::Path};

use thicket_overlay::routing::RoutingMode;

use super::{plan::Plan, run::Run};

/// Seeds of each plan that are played at most, until everything is reached.
const MOST_SEEDS: u64 = 40;

/// What no plan reaches, or only one run in hundreds, and why that is so, or what reaches it instead.
const NOT_REACHED: [(&str, &str); 36] = [
    (
        "time restart_grace",
        "nodes of plans do not wait for each other: scenarios/restarts: a_node_waits_for_the_other_members_for_a_bounded_time",
    ),
    (
        "hub/placements: the strategy gives its memory back",
        "placements hold for ten minutes",
    ),
    (
        "worker/replication: a backup has moved to level loads",
        "no plan has so many messages: scenarios/backups",
    ),
    (
        "hub/ownership/own_branches: a branch of another worker is merged",
        "nodes of plans have equally many workers: scenarios/merging",
    ),
    (
        "worker/publish: a refused publication came again",
        "scenarios/cluster: a_publisher_that_is_back_before_its_message_is_refused_receives_the_refusal",
    ),
    ("time LONGEST_WAIT", "no run lasts so long"),
    (
        "time ARRIVED",
        "few runs: scenarios/relocation: a_publisher_does_not_overtake_what_it_sent_to_be_retained_without_acknowledgement",
    ),
    (
        "time connect_timeout",
        "few runs: scenarios/keep_alive: a_connection_without_a_whole_connect_is_closed_in_time",
    ),
    (
        "time hub/ownership/claims TIMEOUT",
        "few runs: scenarios/durability: a_client_whose_session_is_on_a_node_with_a_stalled_disk_is_answered_in_time_and_loses_nothing",
    ),
    (
        "time JOINING",
        "few runs: scenarios/cluster: a_node_that_stands_still_while_it_joins_does_not_keep_sessions_of_the_others_from_beginning",
    ),
    (
        "time hub/ownership/relocations TIMEOUT",
        "workers of plans always say where a connection is that was to move",
    ),
    (
        "time hub/mod REST",
        "no time-out: how long a hub may reuse the deadline it has computed",
    ),
    (
        "time RESUMED",
        "no time-out: the age from which a pause explains nothing any more",
    ),
    (
        "time BETWEEN_MARKS",
        "no time-out: how finely it is kept since when messages wait",
    ),
    (
        "time LOOKED",
        "no plan has `redirect = \"topics\"`: scenarios/learned",
    ),
    (
        "time REFUSED_FOR",
        "no plan has `redirect = \"topics\"`: scenarios/learned",
    ),
    (
        "time RENEWED",
        "no plan has `redirect = \"topics\"`: scenarios/learned",
    ),
    ("time advertisement_life", "an hour: overlay/advertisements"),
    (
        "overlay/rounds: a link takes too little",
        "64 MiB of control: no run sends so much",
    ),
    (
        "worker/replication: a backup is too far behind",
        "more than any run sends",
    ),
    (
        "worker/merge: a branch that a clean start has ended",
        "clients of plans with branches never start clean: scenarios/merging",
    ),
    (
        "hub/claims: the session's node is not in sight",
        "seen by no plan so far",
    ),
    (
        "hub: a message goes to all workers, unmatched",
        "no plan has thousands of filters that match a topic: scenarios/limits",
    ),
    ("time LEASE", "ten minutes: tests/interop/test_placement.py"),
    (
        "time hub/placing/placements/mod TIMEOUT",
        "no plan places clients: tests/interop/test_placement.py",
    ),
    (
        "time worker/state/places REST",
        "no plan has clients that follow topics: tests/interop/test_placement.py",
    ),
    ("time FOLLOWED", "hub/redirection/decisions, tests"),
    (
        "time KNOWN_FOR",
        "an hour: hub/redirection/decisions, tests",
    ),
    (
        "time hub/placing/rebalance/mod TIMEOUT",
        "a node that does not answer for so long is down before",
    ),
    (
        "time KEPT",
        "no plan has operators: tests/interop/test_rebalancing.py",
    ),
    (
        "worker/quota: a new session is refused, as memory is short",
        "clients of plans seldom begin a session just then: tests/interop/test_hostile_sessions.py",
    ),
    (
        "time JUST_CONNECTED",
        "no plan has as many connections as there may be: tests/interop/test_hostile_scarcity.py",
    ),
    (
        "time GIVEN_UP_EVERY",
        "no plan has packets that are never whole: tests/interop/test_hostile_scarcity.py",
    ),
    (
        "time LEFT_ALONE",
        "an hour: hub/redirection/decisions, tests",
    ),
    ("time LOGGED_EVERY", "an hour: hub/clocks, tests"),
    (
        "time EXPIRED_TOGETHER",
        "no time-out: how long what has expired waits for more: scenarios/limits",
    ),
];

/// Where the code lies.
const SOURCES: [&str; 3] = ["../node/src", "../overlay/src", "../session/src/server"];

/// Everything reached by runs of every plan, as many as it takes to reach what is wanted.
fn play_until_reached(wanted: &[&String]) -> BTreeMap<&'static str, u64> {
    let _ = thicket_session::reached::take();
    let mut reached = BTreeMap::new();
    for seed in 0..MOST_SEEDS {
        for (_, plan) in Plan::ALL {
            let routing = RoutingMode::ALL[(seed % 4) as usize];
            // By threes, as half of the runs are of clusters that are young, or have clocks that are set. Whether promises are kept is the
            // business of other tests.
            let _ = Run::new(plan, routing, 8 + 3 * seed).play();
        }
        for (point, count) in thicket_session::reached::take() {
            *reached.entry(point).or_default() += count;
        }
        let is_missing = |point: &&&String| !reached.contains_key(point.as_str());
        if wanted
            .iter()
            .filter(is_missing)
            .all(|point| excuse(point).is_some())
        {
            break;
        }
    }
    reached
}

fn excuse(point: &str) -> Option<&'static str> {
    let found = NOT_REACHED.iter().find(|(name, _)| *name == point);
    found.map(|(_, why)| *why)
}

fn files(under: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(under).expect("a folder of ours") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("readable");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let name = path.with_extension("").display().to_string();
            let name = name.split("/src/").last().unwrap_or_default().to_owned();
            found.push((name, code.to_owned()));
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in SOURCES {
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            &mut found,
        );
    }
    found.sort();
    found
}

/// Names between `before` and `after` in a file.
fn names<'a>(code: &'a str, before: &'a str, after: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = code.split(before).skip(1);
    parts.filter_map(move |part| {
        let name = part.split(after).next()?;
        let is_name = part.contains(after) && !name.contains('\n');
        is_name.then_some(name)
    })
}

/// Constants of time, as their points are named.
fn constants(sources: &[(String, String)]) -> Vec<String> {
    let mut constants: Vec<(String, String)> = Vec::new();
    for (file, code) in sources {
        for name in names(code, "const ", ": Duration") {
            constants.push((file.clone(), name.into()));
        }
        if file == "config" {
            for name in names(code, "    pub ", ": Duration") {
                constants.push((file.clone(), name.into()));
            }
        }
    }
    let is_unique = |name: &str| constants.iter().filter(|(_, other)| other == name).count() == 1;
    let named = constants.iter().map(|(file, name)| match is_unique(name) {
        true => format!("time {name}"),
        false => format!("time {file} {name}"),
    });
    named.collect()
}

#[test]
fn every_rare_branch_is_reached_and_every_constant_of_time_is_crossed() {
    let sources = sources();
    let marked =
        |code: &str| -> Vec<String> { names(code, "reach!(\"", "\")").map(Into::into).collect() };
    let points: Vec<String> = sources.iter().flat_map(|(_, code)| marked(code)).collect();
    let constants = constants(&sources);
    assert!(constants.len() > 30, "constants are found: {constants:?}");
    let mut wanted: Vec<&String> = points.iter().chain(&constants).collect();
    wanted.sort();
    wanted.dedup();
    let is_gone = |(name, _): &&(&str, &str)| !wanted.iter().any(|point| point == name);
    assert_eq!(NOT_REACHED.iter().find(is_gone), None, "it is no more");
    let unmarked = constants.iter().filter(|it| !points.contains(it));
    let unmarked: Vec<&String> = unmarked.filter(|it| excuse(it).is_none()).collect();
    assert!(
        unmarked.is_empty(),
        "no reach! says that they passed: {unmarked:?}"
    );
    let reached = play_until_reached(&wanted);
    let mut missing = Vec::new();
    for point in wanted {
        let count = reached.get(point.as_str()).copied().unwrap_or(0);
        let why = excuse(point).filter(|_| count == 0);
        println!(
            "{count:>9} {point}{}",
            why.map_or(String::new(), |why| format!(" ({why})"))
        );
        if count == 0 && why.is_none() {
            missing.push(point);
        }
    }
    assert!(missing.is_empty(), "never reached: {missing:?}");
}
