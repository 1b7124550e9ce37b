//! Scenarios in virtual time: the same figures for the same seed, what links do to messages, faults, and refusals with line and key.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thicket_lab::links::Backend;
use thicket_lab::results::{Results, Run};
use thicket_lab::run::Options;
use thicket_lab::scenario::Scenario;
use thicket_lab::simulated::Playable;

const TEXT: &str = r#"
title = "Two subscribers at another site"
network = { sites = 3, link = { rtt_ms = 20 } }
system = [{ name = "mesh", driver = "thicket" }, { name = "topic", driver = "thicket", settings = { routing = "topic" } }]
workload = { pattern = "fan-out", subscribers = 2, qos = 1, rate_per_s = 20, messages = 20, placement = "locality-0" }
phases = { control_s = 10 }
"#;

/// Plays a scenario and reads what it wrote.
fn play(text: &str) -> Results {
    play_until(text, &Arc::default())
}

/// The same, until the flag is set.
fn play_until(text: &str, interrupted: &Arc<AtomicBool>) -> Results {
    let folder = tempfile::tempdir().unwrap();
    play_into(text, interrupted, folder.path())
}

/// The same, with its files in a folder.
fn play_into(text: &str, interrupted: &Arc<AtomicBool>, folder: &Path) -> Results {
    let (scenario, cells) = Scenario::parse(text).unwrap();
    let options = Options {
        program: Path::new("thicket"),
        commit: Some("0123456789ab"),
        backend: Backend::Wire,
        folder,
        interrupted,
        say: &|_| {},
    };
    let playable = Playable::check(Path::new("t.toml"), text, &scenario, &cells).unwrap();
    playable.run(&options).unwrap();
    Results::load(folder).unwrap()
}

/// The same, of a scenario whose runs must be valid.
fn play_well(text: &str) -> Vec<Run> {
    let results = play(text);
    for run in &results.runs {
        assert!(run.valid, "{}: {:?}", run.system, run.invalid);
    }
    results.runs
}

#[test]
fn the_same_seed_gives_the_same_figures_and_links_take_their_time() {
    let runs = play_well(TEXT);
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run.metrics["delivered_messages"], 40.0);
        assert_eq!(run.metrics["lost_messages"], 0.0);
        let delay = run.metrics["delay_mean_ms"];
        assert!((10.0..=12.0).contains(&delay), "{delay}");
        // The publisher waits for the other site to have the message, and for its answer.
        let acknowledgement = run.metrics["acknowledgement_p50_ms"];
        assert!(
            (20.0..=23.0).contains(&acknowledgement),
            "{acknowledgement}"
        );
        assert!(run.metrics["publish_traffic_bytes"] > 20.0 * 64.0);
        assert!(run.metrics["control_traffic_bytes_per_s"] > 0.0);
        assert_eq!(run.phases.len(), 3);
    }
    assert_eq!(runs, play_well(TEXT));
    let other = play_well(&TEXT.replace("title =", "seed = 2\ntitle ="));
    assert_ne!(runs, other);
}

#[test]
fn questions_about_cpu_are_left_out_and_named() {
    let text = TEXT.replace(
        "workload =",
        "brokers = { cpus = 1 }\nmeasure = { kind = \"throughput\" }\nworkload =",
    );
    let results = play(&text);
    assert!(results.valid);
    assert_eq!(results.environment.backend, "simulated");
    assert_eq!(results.environment.commit.as_deref(), Some("0123456789ab"));
    let named = results.left_out.join("\n");
    for word in ["CPU and memory", "brokers:", "throughput"] {
        assert!(named.contains(word), "{word}: {named}");
    }
    let metrics = &results.runs[0].metrics;
    assert!(
        !metrics
            .keys()
            .any(|name| name.contains("cpu") || name.contains("sustainable"))
    );
    assert!(metrics.contains_key("subscriptions_traffic_bytes"));
}

#[test]
fn each_question_that_stays_open_is_named_and_has_no_figure() {
    let load = "workload = { pattern = \"pair\", publishers = 2, rate_per_s = 20, messages = 20 }";
    let of = |parts: &str| {
        format!("title = \"t\"\nsystem = [{{ name = \"mesh\", driver = \"thicket\" }}]\n{parts}\n")
    };
    let plain = of(&format!("network = {{ sites = 2 }}\n{load}"));
    let always = play(&plain).left_out;
    assert_eq!(always.len(), 1, "{always:?}");
    let sites = "network = { sites = 2 }\n";
    let with = |keys: &str| {
        format!(
            "{sites}{}",
            load.replace("messages", &format!("{keys}, messages"))
        )
    };
    let cases = [
        (
            format!("{sites}{load}\nbrokers = {{ cores = [\"0\"] }}"),
            "brokers",
        ),
        (
            format!("network = {{ sites = 2, link = {{ queue_packets = 5 }} }}\n{load}"),
            "queue_packets",
        ),
        (with("user = \"meter\""), "workload.user"),
        (with("tls = true"), "workload.tls"),
        (with("websocket = true"), "workload.websocket"),
        (
            format!(
                "{sites}{load}\nfault = [{{ at_s = 0.5, do = \"cut\", link = [\"s1\", \"s2\"], when_cpu_percent = 50 }}]"
            ),
            "when_cpu_percent",
        ),
        (
            format!(
                "{sites}workload = {{ pattern = \"pair\", publishers = 2 }}\nmeasure = {{ kind = \"connections\", count = 5, hold_s = 1 }}"
            ),
            "measure.kind = connections",
        ),
        (
            format!(
                "{sites}workload = {{ pattern = \"pair\", placement = \"random\", rate_per_s = 20, seconds = 1 }}\nmeasure = {{ kind = \"placement\" }}"
            ),
            "measure.kind = placement",
        ),
        (
            format!(
                "{sites}workload = {{ pattern = \"pair\" }}\nmeasure = {{ kind = \"arrivals\", publishers = 2, heavy_at = 1, rate_per_s = 5, heavy_rate_per_s = 9, every_s = 1, hold_s = 4 }}"
            ),
            "measure.kind = arrivals",
        ),
    ];
    for (parts, key) in cases {
        let mut text = of(&parts);
        if key.ends_with("placement") {
            text = text.replace("\"thicket\"", "\"thicket\", attach = \"random\"");
        }
        let results = play(&text);
        assert!(results.valid, "{key}: {:?}", results.runs[0].invalid);
        let named = &results.left_out[1..];
        assert!(
            named.len() == 1 && named[0].contains(key),
            "{key}: {named:?}"
        );
        for name in results.runs[0].metrics.keys() {
            let is_of_cpu = ["cpu", "memory", "connects_per_s", "msgs_apart", "internal"];
            let answers = is_of_cpu.iter().any(|word| name.contains(word));
            assert!(!answers, "{key}: {name}");
        }
    }
}

#[test]
fn a_narrow_link_takes_as_long_as_its_rate_says() {
    let text = TEXT
        .replace("rtt_ms = 20", "rtt_ms = 20, bandwidth_mbit = 10")
        .replace("qos = 1", "payload_bytes = 100000")
        .replace(
            "rate_per_s = 20, messages = 20",
            "rate_per_s = 2, messages = 5",
        );
    for run in play_well(&text) {
        // 80 ms at 10 Mbit/s, 4.5 % of headers, 10 ms of delay.
        let delay = run.metrics["delay_mean_ms"];
        assert!((93.0..98.0).contains(&delay), "{}: {delay}", run.system);
    }
}

#[test]
fn publications_come_as_a_poisson_process_if_asked() {
    let gaps = |arrivals: &str| -> Vec<f64> {
        let text = TEXT
            .replace("rate_per_s = 20", &format!("{arrivals}rate_per_s = 20"))
            .replace("subscribers = 2", "subscribers = 1")
            .replace("messages = 20", "messages = 400");
        let folder = tempfile::tempdir().unwrap();
        let results = play_into(&text, &Arc::default(), folder.path());
        let samples = results.runs[0].samples.clone().unwrap();
        let csv = std::fs::read_to_string(folder.path().join(samples)).unwrap();
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let sent = header.iter().position(|name| name.starts_with("sent"));
        let sent: Vec<f64> = lines
            .map(|line| line[sent.unwrap()].parse().unwrap())
            .collect();
        sent.windows(2).map(|two| two[1] - two[0]).collect()
    };
    let variation = |gaps: &[f64]| {
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        (variance / gaps.len() as f64).sqrt() / mean
    };
    assert!(variation(&gaps("")) < 0.05);
    let poisson = variation(&gaps("arrivals = \"poisson\", "));
    assert!((0.85..1.15).contains(&poisson), "{poisson}");
}

#[test]
fn persistent_sessions_are_replicated_between_nodes() {
    let bytes = |text: &str| play_well(text)[0].metrics["publish_own_link_bytes"];
    let plain = bytes(TEXT);
    let persistent = bytes(&TEXT.replace("qos = 1", "qos = 1, persistent = true"));
    assert!(persistent > 1.2 * plain, "{persistent}, {plain}");
}

#[test]
fn a_message_without_number_and_time_is_refused_with_its_line() {
    let text = TEXT.replace("qos = 1", "qos = 1, payload_bytes = 4");
    let (scenario, cells) = Scenario::parse(&text).unwrap();
    let refused = Playable::check(Path::new("t.toml"), &text, &scenario, &cells);
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("t.toml: line 5, workload.payload_bytes: 4 is below 16"),
        "{error}"
    );
}

#[test]
fn messages_have_the_delays_of_the_links_law() {
    let text = TEXT
        .replace(
            "rtt_ms = 20",
            "delay = { law = \"uniform\", min_ms = 5, max_ms = 45 }",
        )
        .replace("messages = 20", "messages = 400")
        .replace("qos = 1, ", "");
    for run in play_well(&text) {
        let metrics = &run.metrics;
        let [mean, median, least_of_the_last] =
            ["delay_mean_ms", "delay_p50_ms", "delay_p99_ms"].map(|name| metrics[name]);
        // 800 arrivals, two at a time over one link: the standard error of the mean is 0.6 ms.
        assert!((23.0..27.5).contains(&mean), "{}: {mean}", run.system);
        assert!((21.0..29.0).contains(&median), "{}: {median}", run.system);
        assert!((43.0..=47.0).contains(&least_of_the_last), "{}", run.system);
        assert!(metrics["delay_max_ms"] <= 47.0, "{}", run.system);
    }
}

#[test]
fn a_closed_loop_has_its_window_on_the_way() {
    let text = TEXT.replace("rate_per_s = 20, messages = 20", "window = 2, seconds = 2");
    for run in play_well(&text) {
        // Two messages every 10 to 12 ms.
        let rate = run.metrics["published_msgs_per_s"];
        assert!((160.0..=200.0).contains(&rate), "{}: {rate}", run.system);
        assert_eq!(run.metrics["lost_messages"], 0.0);
    }
}

#[test]
fn a_fault_that_does_not_happen_is_a_warning() {
    let text = TEXT.replace(
        "rate_per_s = 20, messages = 20",
        "window = 2, messages = 20",
    ) + "fault = [{ at_s = 100, do = \"kill\", site = \"s3\" }]\n";
    for run in play_well(&text) {
        assert!(run.faults.is_empty());
        let warning = run.warnings.last().unwrap();
        assert!(warning.contains("kill the broker of s3"), "{warning}");
    }
}

#[test]
fn nodes_report_their_convergence_and_repair() {
    let fault = "fault = [{ at_s = 1, do = \"power-off\", site = \"s3\" }]\n";
    let text = TEXT.replace("messages = 20", "seconds = 5");
    for run in play_well(&text) {
        assert!(run.metrics["converged_max_s"] > 0.0);
        assert!(!run.metrics.contains_key("repaired_max_s"));
    }
    for run in play_well(&format!("{text}{fault}")) {
        assert!(run.metrics["repaired_max_s"] > 0.0);
    }
}

#[test]
fn settings_of_a_system_are_swept() {
    let sweep =
        "sweep = [{ key = \"system.mesh.settings.routing\", values = [\"flood\", \"topic\"] }]\n";
    let runs = play_well(&format!("{TEXT}{sweep}"));
    let sent = |of: usize| runs[of].metrics["publish_own_link_messages"];
    // Two cells of two systems: the first system of the second cell routes as the second system.
    assert_eq!(sent(2), sent(3));
    assert!(sent(0) > sent(2), "{} and {}", sent(0), sent(2));
}

#[test]
fn the_faults_of_a_time_line_happen_and_are_repaired() {
    let text = include_str!("../../../scenarios/faults-small.toml");
    for run in play_well(text) {
        for name in ["lost_messages", "duplicated_messages"] {
            assert_eq!(run.metrics[name], 0.0, "{}: {name}", run.system);
        }
        let told: Vec<&str> = run.faults.iter().map(|(_, what)| what.as_str()).collect();
        let ready = told.iter().any(|what| what.starts_with("s4 is ready"));
        assert!(ready, "{told:?}");
        assert!(run.faults.len() >= 12, "{told:?}");
        assert!(run.metrics["longest_silence_s"] > 0.1);
        assert!(run.metrics["relinked_max_s"] > 0.0);
    }
}

#[test]
fn random_deaths_stalled_disks_and_clocks_that_jump_happen_at_the_same_times_again() {
    let text = include_str!("../../../scenarios/faults-random-small.toml");
    let runs = play_well(text);
    let again = play_well(text);
    for (run, again) in runs.iter().zip(&again) {
        assert_eq!((&run.faults, &run.metrics), (&again.faults, &again.metrics));
        assert_eq!(run.metrics["lost_messages"], 0.0, "{:?}", run.faults);
        for what in [
            "kill the broker",
            "restart the broker",
            "stall the disk",
            "free the disk",
            "3600 s ahead",
            "the clock of",
        ] {
            let happened = run.faults.iter().any(|(_, fault)| fault.contains(what));
            assert!(happened, "{what}: {:?}", run.faults);
        }
    }
    let times = |run: &Run| run.faults.clone();
    let other = play_well(&text.replacen("repeats = 1", "repeats = 1\nseed = 2", 1));
    assert_ne!(times(&runs[0]), times(&other[0]));
}

#[test]
fn acknowledgements_wait_for_a_disk_that_stalls() {
    let load = "workload = { pattern = \"pair\", publishers = 1, qos = 1, rate_per_s = 50, seconds = 6, persistent = true, placement = \"locality-100\" }";
    let text = TEXT
        .lines()
        .map(|line| {
            if line.starts_with("workload") {
                load
            } else {
                line
            }
        })
        .collect::<Vec<_>>()
        .join("\n");
    let silence = |fault: &str| {
        let text = format!("{text}\n[[fault]]\nat_s = 2\nsite = \"s1\"\n{fault}\n");
        let runs = play_well(&text);
        assert_eq!(runs[0].metrics["lost_messages"], 0.0, "{fault}");
        runs[0].metrics["longest_silence_s"]
    };
    let stalled = silence("do = \"stall-disk\"\nfor_s = 1.5");
    assert!((1.4..2.0).contains(&stalled), "{stalled}");
    let jumped = silence("do = \"clock-jump\"\nby_s = -3600\nfor_s = 1");
    assert!(jumped < 0.2, "{jumped}");
}

#[test]
fn clients_reconnect_when_a_broker_dies_and_nothing_acknowledged_is_lost() {
    let text = include_str!("../../../scenarios/comparison-m5-small.toml");
    for how in ["kill", "power-off", "drain"] {
        let text = text.replace("site = \"s2\"", &format!("site = \"s2\"\nhow = \"{how}\""));
        for run in play_well(&text) {
            assert_eq!(run.metrics["lost_messages"], 0.0, "{how}");
            assert_eq!(run.metrics["sessions_lost"], 0.0, "{how}");
            assert!(run.metrics["acknowledged_messages"] > 2.0 * 500.0, "{how}");
            assert!(run.metrics["reconnect_max_ms"] > 0.0, "{how}");
        }
    }
}

#[test]
fn a_client_whose_broker_dies_under_plain_load_makes_the_run_invalid() {
    let text = format!("{TEXT}fault = [{{ at_s = 0.5, do = \"kill\", site = \"s2\" }}]\n");
    let results = play(&text);
    assert!(!results.valid);
    let reason = &results.runs[0].invalid[0];
    assert!(reason.contains("at s2 lost its connection"), "{reason}");
}

#[test]
fn what_cannot_be_played_is_refused_with_line_and_key() {
    const FILE: &str = r#"
title = "t"
network = { sites = 2 }
[[system]]
name = "good"
driver = "thicket"
[[system]]
name = "other"
driver = "thicket"
[workload]
pattern = "pair"
rate_per_s = 1
messages = 1
"#;
    for (to, expected) in [
        ("driver = \"mosquitto\"", "line 9, system.driver of other"),
        (
            "driver = \"thicket\"\nprogram = \"/usr/bin/thicket\"",
            "line 10, system.program of other: the simulated back end has the nodes of this program",
        ),
        (
            "driver = \"thicket\"\nargs = [\"--ack\", \"sent\"]",
            "line 10, system.args of other",
        ),
        (
            "driver = \"thicket\"\nargs = [\"--backups\", \"0\", \"--partition\"]",
            "of arguments it knows --backups 0 to 3 and --partition serve|majority|majority-without-data, not --partition",
        ),
        (
            "driver = \"thicket\"\nsettings = { workers = 0 }",
            "line 10, system.settings.workers of other",
        ),
        (
            "driver = \"thicket\"\nsettings = { routing = \"maze\" }",
            "line 10, system.settings.routing of other",
        ),
    ] {
        let named = format!("name = \"other\"\n{to}");
        let text = FILE.replace("name = \"other\"\ndriver = \"thicket\"", &named);
        let (mut scenario, cells) = Scenario::parse(&text).unwrap();
        let check = |scenario: &Scenario| {
            Playable::check(Path::new("t.toml"), &text, scenario, &cells)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let reason = check(&scenario).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
        // The other systems of the same file can be played.
        scenario.systems.retain(|system| system.name == "good");
        check(&scenario).unwrap();
    }
}

#[test]
fn an_interruption_ends_a_run_that_would_take_long() {
    let interrupted = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&interrupted);
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        later.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let text = TEXT.replace("messages = 20", "seconds = 100_000_000");
    let results = play_until(&text, &interrupted);
    let early = results.ended_early.unwrap_or_default();
    assert_eq!(
        early,
        "interrupted: 0 of 2 runs complete, 1 cut short, 1 not begun"
    );
    assert!(results.runs[0].is_cut_short() && !results.valid);
}

#[test]
fn what_a_site_without_a_majority_refuses_is_a_result() {
    let text = r#"
title = "A site is cut off"
network = { sites = 3, link = { rtt_ms = 10 } }
system = [{ name = "majority", driver = "thicket", args = ["--partition", "majority-without-data"] }]
workload = { pattern = "pair", publishers = 3, mqtt = "5", qos = 1, persistent = true, rate_per_s = 30, seconds = 10 }
fault = [{ at_s = 2, do = "partition", sites = ["s3"], for_s = 4 }]
"#;
    let runs = play_well(text);
    let metrics = &runs[0].metrics;
    assert!(metrics["refused_messages"] > 0.0, "{metrics:?}");
    assert_eq!(metrics["lost_messages"], 0.0, "{metrics:?}");
    // Some were delivered at the site, and refused as their publisher's node was without a majority by then.
    let (expected, published) = (metrics["expected_messages"], metrics["published_messages"]);
    assert!(expected >= published - metrics["refused_messages"] && expected < published);
}
