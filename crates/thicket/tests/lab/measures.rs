//! What a run measures, and the commands on a network that is up.

use std::time::Duration;

use rustix::process::Signal;

use super::{SCENARIO, end, figure, lab, run, run_scenario, turn, up};

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
            "driver = \"thicket\", args = [\"--partition\", \"majority-without-data\"] }",
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
fn clients_use_tls_and_websocket_and_both() {
    let Some(folder) = turn() else { return };
    let sweep =
        |key: &str| format!("[[sweep]]\nkey = \"workload.{key}\"\nvalues = [false, true]\n");
    let both = sweep("tls") + &sweep("websocket");
    let (_, results) = run(folder.path(), &format!("messages = 20\n{both}"));
    assert_eq!(figure(&results, "delivered_messages"), [120.0; 4]);
    assert_eq!(figure(&results, "lost_messages"), [0.0; 4]);
}

#[test]
fn a_command_beside_a_broker_reaches_its_api() {
    let Some(folder) = turn() else { return };
    let mut up = up(folder.path());
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
