//! `thicket bench` as a user calls it, against a relay of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const THICKET: &str = env!("CARGO_BIN_EXE_thicket");

/// A relay in a process of its own; ended when dropped.
struct Relay {
    child: Child,
    address: String,
}

impl Relay {
    fn start() -> Self {
        let mut child = Command::new(THICKET)
            .args(["bench", "relay", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.split([' ', ',']).nth(3).unwrap().to_owned();
        Self { child, address }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(THICKET)
        .arg("bench")
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn run_counts_exactly_and_writes_a_report() {
    let relay = Relay::start();
    let report =
        std::env::temp_dir().join(format!("thicket-bench-report-{}.html", std::process::id()));
    let path = report.display().to_string();
    let pid = relay.pid();
    let arguments = [
        "run",
        &relay.address,
        "--publishers",
        "5",
        "--messages",
        "1000",
        "--pid",
        &pid,
    ];
    let outcomes = json(&bench(
        &[
            &arguments[..],
            &["--qos", "2", "--mqtt", "5", "--json", "--report", &path],
        ]
        .concat(),
    ));
    let counts = &outcomes[0]["counts"];
    for (name, expected) in [
        ("published", 1000),
        ("delivered", 1000),
        ("lost", 0),
        ("duplicated", 0),
        ("reordered", 0),
    ] {
        assert_eq!(counts[name], expected, "{name}");
    }
    assert!(outcomes[0]["broker"]["memory"]["rss_kib"].as_u64().unwrap() > 0);
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("pair 5/5") && html.contains("<svg"));
    std::fs::remove_file(report).unwrap();

    let table = bench(&[&arguments[..], &["--quiet", "--repeats", "2"]].concat());
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(
        text.contains("95 % confidence") && text.contains("CPU of the broker"),
        "{text}"
    );
}

#[test]
fn latency_mst_and_conns_give_their_figures() {
    let relay = Relay::start();
    let short = [
        "--publishers",
        "4",
        "--warm-up",
        "0.1",
        "--step-seconds",
        "0.3",
        "--json",
    ];
    let rates = json(&bench(
        &[
            &["latency", &relay.address, "--rates", "200,400"],
            &short[..],
        ]
        .concat(),
    ));
    assert_eq!(rates.as_array().unwrap().len(), 2);
    assert_eq!(rates[1][0], 400.0);
    assert!(rates[1][1]["latency"]["p50_us"].as_f64().unwrap() > 0.0);

    // No broker answers within a nanosecond: the search must say that nothing is sustainable, and end.
    let limit = ["--from", "16", "--mean-latency-ms", "0.000001"];
    let nothing = json(&bench(
        &[&["mst", &relay.address], &limit[..], &short[..]].concat(),
    ));
    assert_eq!(nothing["mst_per_s"]["mean"], 0.0);
    assert_eq!(nothing["searches"][0]["steps"].as_array().unwrap().len(), 5);

    let costs = json(&bench(&[
        "conns",
        &relay.address,
        "-n",
        "200",
        "--hold",
        "0",
        "--pid",
        &relay.pid(),
        "--json",
    ]));
    assert_eq!(costs[0]["connections"], 200);
    assert!(costs[0]["bytes_each"].is_number());
}

#[test]
fn start_measures_until_a_message_came_back() {
    let command = [THICKET, "bench", "relay", "--listen", "127.0.0.1:{port}"];
    let starts = json(&bench(
        &[&["start", "--repeats", "2", "--json"], &command[..]].concat(),
    ));
    assert_eq!(starts.as_array().unwrap().len(), 2);
    for start in starts.as_array().unwrap() {
        let (open, back) = (
            start["open_port_s"].as_f64().unwrap(),
            start["round_trip_s"].as_f64().unwrap(),
        );
        assert!(open > 0.0 && back >= open, "{start}");
    }
}

#[test]
fn compare_goes_on_when_a_broker_fails_and_tells_why() {
    let short = [
        "--repeats",
        "1",
        "--seconds",
        "0.2",
        "--warm-up",
        "0.1",
        "--workloads",
        "W6",
        "--quiet",
    ];
    let output = bench(&[&["compare", "--node", "/bin/false"], &short[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "W6 pair 10/10",
        "W6 node: failed: node ended at once",
        "Ratio to relay",
    ] {
        assert!(
            text.contains(words),
            "{words} in\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn mistakes_are_told_in_words() {
    let relay = Relay::start();
    for (arguments, words) in [
        (
            &["run", "127.0.0.1:1"][..],
            "cannot connect to 127.0.0.1:1: ",
        ),
        (
            &["run", "no-such-host.invalid"],
            "no-such-host.invalid is no address of a broker",
        ),
        (
            &["run", "--attach", "locality-0"],
            "locality-0 puts publishers and subscribers on two nodes, but there is one",
        ),
        (
            &["compare", "--workloads", "W0"],
            "the workloads are W1, W2",
        ),
        (
            &["run", &relay.address, "--window", "0"],
            "a window of 0 lets nothing out",
        ),
    ] {
        let output = bench(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && told.contains(words),
            "{arguments:?}: {told}"
        );
    }
}

#[test]
fn crash_kills_a_node_of_its_own_and_misses_nothing() {
    let arguments = [
        "crash", "--spawn", "1", "--before", "0.3", "--after", "0.5", "--settle", "0", "--rate",
        "400", "--qos", "both", "--json", "--quiet",
    ];
    let results = json(&bench(&arguments));
    let result = &results["repeats"][0];
    assert_eq!(result["kills"], 1);
    assert_eq!(result["sessions_lost"], 0);
    for qos in ["qos_1", "qos_2"] {
        assert!(result[qos]["acknowledged"].as_u64() > Some(0), "{result}");
        assert_eq!(result[qos]["missed"], 0, "{result}");
    }
    assert_eq!(result["qos_2"]["doubled"], 0, "{result}");
    // Both subscribers lost their connections and came back.
    let reconnects = result["reconnect_ms"].as_array().map(Vec::len);
    assert_eq!(reconnects, Some(2), "{result}");
}

#[test]
fn crash_stalls_a_disk_and_sets_a_clock_and_misses_nothing() {
    for fault in [&["--stall-disk"][..], &["--clock-jump", "3600"]] {
        let scenario =
            "crash --spawn 2 --before 0.3 --down 0.5 --after 0.3 --settle 0 --rate 200 --json -q";
        let scenario = scenario.split(' ').chain(fault.iter().copied());
        let all: Vec<&str> = scenario.chain(["--", "--sync", "commit"]).collect();
        let result = json(&bench(&all));
        let run = &result["repeats"][0];
        assert_eq!(run["kills"], 1, "{fault:?}");
        assert!(run["qos_1"]["acknowledged"].as_u64().unwrap() > 0);
        assert_eq!(run["qos_1"]["missed"], 0, "{fault:?}");
        assert_eq!(run["sessions_lost"], 0, "{fault:?}");
    }
}

#[test]
fn crash_says_which_commands_it_lacks() {
    let cases: [(&[&str], &str); 4] = [
        (&[], "`--spawn N`"),
        (
            &["127.0.0.1:1,127.0.0.1:2", "--kill-cmd", "true"],
            "found 1 and 0",
        ),
        (&["--spawn", "1", "--rate", "0"], "--rate"),
        (
            &[
                "127.0.0.1:1",
                "--kill-cmd",
                "a",
                "--start-cmd",
                "b",
                "--",
                "--workers",
            ],
            "`--spawn` starts",
        ),
    ];
    for (arguments, expected) in cases {
        let all: Vec<&str> = ["crash"].iter().chain(arguments).copied().collect();
        let output = bench(&all);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && words.contains(expected),
            "{all:?}: {words}"
        );
    }
}
