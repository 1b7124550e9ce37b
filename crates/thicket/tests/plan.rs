//! `thicket plan` from the outside: arguments in, objects out.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use thicket_bench::report::chart::PALETTE;

fn thicket(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thicket"))
        .arg("plan")
        .args(arguments)
        // Only the message is of interest, and finding the lines of a backtrace takes long.
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the binary of this package runs")
}

/// Standard output of a run that must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = thicket(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    printed(arguments)
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect()
}

/// Standard error of a run that must fail.
fn complaint(arguments: &[&str]) -> String {
    let output = thicket(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("messages are UTF-8")
}

/// A file of its own for each test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thicket-plan-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("the temporary directory takes files");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("temporary paths are UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn close(found: &Value, expected: f64) -> bool {
    found
        .as_f64()
        .is_some_and(|found| (found - expected).abs() <= 1e-6 * expected.abs())
}

#[test]
fn model_prints_one_object_a_cluster_size_as_computed_separately() {
    // Values from a separate program that sums the binomial of Eq. 7 term by term.
    let social = [
        "model",
        "--scenario",
        "social",
        "--topics",
        "5000",
        "--subscribers",
        "5000",
        "--subscriptions",
        "10",
        "--alpha",
        "1.13",
        "--brokers",
        "8,20",
        "--json",
    ];
    let iot = [
        "model",
        "--scenario",
        "iot",
        "--topics",
        "1000",
        "--subscribers",
        "1000",
        "--depth",
        "4",
        "--fanout",
        "10",
        "--levels",
        "0,0.03,0.3,0.67",
        "--brokers",
        "8",
        "--rate",
        "2",
        "--json",
    ];
    let cases = [
        (
            &social[..],
            vec![
                [
                    8.0,
                    5000.0,
                    50000.0,
                    9797.140477875,
                    2.9594280955750,
                    1.1959428095575,
                ],
                [
                    20.0,
                    5000.0,
                    50000.0,
                    14548.555361208,
                    3.9097110722416,
                    1.2909711072241,
                ],
            ],
        ),
        (
            &iot[..],
            vec![[
                8.0,
                2000.0,
                13340.0,
                7920.274379377,
                4.960137189688,
                1.593723716595,
            ]],
        ),
    ];
    let keys = [
        "brokers",
        "external_in",
        "external_out",
        "internal",
        "routing_overhead",
        "forwarding_overhead",
    ];
    for (arguments, expected) in cases {
        let found = objects(arguments);
        assert_eq!(found.len(), expected.len());
        for (object, values) in found.iter().zip(expected) {
            assert_eq!(object.as_object().map(serde_json::Map::len), Some(6));
            for (key, value) in keys.iter().zip(values) {
                assert!(
                    close(&object[key], value),
                    "{key}: {object}, expected {value}"
                );
            }
        }
    }
}

#[test]
fn model_adds_the_decision_space_exactly_when_sessions_are_given() {
    let rows = objects(&[
        "model",
        "--brokers",
        "8,20",
        "--subscriptions",
        "40",
        "--max-sessions",
        "40",
        "--json",
    ]);
    // Sessions enough for all: 8^40 and 20^40.
    assert_eq!(
        rows[0]["decision_space"],
        "1329227995784915872903807060280344576"
    );
    assert_eq!(
        rows[1]["decision_space"],
        format!("{}{}", 1_u64 << 40, "0".repeat(40))
    );
}

#[test]
fn bad_input_is_refused_with_the_parameter_and_its_rule() {
    let cases: [(&[&str], &str); 15] = [
        (
            &["model", "--alpha", "-1"],
            "alpha: must be a number of at least 0, not -1",
        ),
        (
            &["model", "--topics", "5", "--subscriptions", "6"],
            "subscriptions: must be at most the number of topics, 5, not 6",
        ),
        (
            &["model", "--brokers", "0"],
            "brokers: must be at least 1, not 0",
        ),
        (
            &["model", "--rate", "-1"],
            "rate: must be a number of messages per second, at least 0, not -1",
        ),
        (
            &["model", "--scenario", "iot", "--levels", "0,0.5,0.4"],
            "levels: must sum to 1, not 0.9",
        ),
        (
            &[
                "model",
                "--scenario",
                "iot",
                "--depth",
                "3",
                "--levels",
                "0.5,0.5",
            ],
            "levels: must be one probability for each of 3 levels, not 2",
        ),
        (
            &["simulate", "--gamma", "0.9"],
            "gamma: must be at least 1, not 0.9",
        ),
        (
            &["simulate", "--max-sessions", "0"],
            "max-sessions: must be at least 1, not 0",
        ),
        (
            &["simulate", "--seeds", "0"],
            "seeds: must be 1 to 100000, not 0",
        ),
        (
            &["size", "--seeds", "99999999999"],
            "seeds: must be 1 to 100000, not 99999999999",
        ),
        (
            &["simulate", "--subscribers", "99999999999"],
            "subscribers: must be at most 10000000, not 99999999999",
        ),
        (
            &["model", "--topics", "99999999999"],
            "topics: must be at most 10000000, not 99999999999",
        ),
        (
            &["simulate", "--figure", "9"],
            "figure: must be 7, 8 or 10 to 21",
        ),
        (
            &["simulate", "--ties", "random"],
            "ties: must be least-loaded or lowest-index, not random",
        ),
        (
            &["size", "--capacity", "-5"],
            "capacity: must be above 0, in units of work per second, not -5",
        ),
    ];
    for (arguments, expected) in cases {
        let found = complaint(arguments);
        assert!(found.contains(expected), "{arguments:?}: {found}");
    }
    let found = complaint(&["simulate", "--strategy", "fastest"]);
    assert!(
        found.contains("--strategy") && found.contains("must be random, round-robin"),
        "{found}"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none/x");
    let path = path.to_str().unwrap();
    let error = complaint(&["choose", "--config", path]);
    assert!(error.contains(&format!("cannot write {path}: ")), "{error}");
}

#[test]
fn a_line_that_cannot_be_read_is_named_with_its_number() {
    let cases = [
        ("{\"client\":\"a\"}\nnot json\n", "line 2"),
        ("\n{\"publish\":[\"t\"]}\n", "line 2"),
        (
            "{\"client\":\"a\",\"topic\":[\"t\"]}\n",
            "unknown field `topic`",
        ),
        (
            "{\"client\":\"a\",\"publish\":[\"t\"],\"rates\":[1,2,3]}\n",
            "rates: must be one number for each topic",
        ),
        (
            "{\"client\":\"a\",\"publish\":[\"t\"],\"rates\":{\"t\":-1}}\n",
            "rates: must be a number of messages per second",
        ),
        (
            "{\"client\":\"a\",\"publish\":[\"t/#\"]}\n",
            "publish: must be topic names",
        ),
        (
            "{\"client\":\"a\",\"leave\":true}\n",
            "leave: must name a client that is there",
        ),
    ];
    for (index, (content, expected)) in cases.into_iter().enumerate() {
        let file = Scratch::new(&format!("bad-{index}"), content);
        let found = complaint(&["replay", file.path(), "--json"]);
        assert!(found.contains(expected), "{content}: {found}");
        assert!(found.contains("line "), "{content}: {found}");
    }
    assert!(
        complaint(&["replay", "/nonexistent.jsonl"]).contains("cannot read /nonexistent.jsonl")
    );
}

const FIGURE_9: &str = r#"{"client":"tennis publisher","publish":["tennis"],"subscribe":[]}
{"client":"tennis subscriber","publish":[],"subscribe":["tennis"]}
{"client":"baseball publisher","publish":["baseball"]}
{"client":"baseball subscriber","subscribe":["baseball"]}
{"client":"fan of both","subscribe":["tennis","baseball"]}
"#;

#[test]
fn replay_of_figure_9_puts_the_fan_at_both_brokers_and_ends_without_internal_traffic() {
    let file = Scratch::new("figure-9", FIGURE_9);
    for strategy in ["multi-session", "thicket", "optimum"] {
        let rows = objects(&[
            "replay",
            file.path(),
            "--json",
            "--brokers",
            "2",
            "--max-sessions",
            "2",
            "--strategy",
            strategy,
        ]);
        assert_eq!(rows.len(), 6, "{strategy}");
        let fan = &rows[4];
        assert_eq!(fan["client"], "fan of both");
        assert_ne!(fan["brokers"]["tennis"], fan["brokers"]["baseball"]);
        let end = rows[5].as_object().expect("an object");
        let keys: Vec<&str> = end.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "external_in",
                "external_out",
                "forwarding_overhead",
                "internal",
                "jain",
                "routing_overhead"
            ]
        );
        assert_eq!(rows[5]["internal"], 0.0);
        assert_eq!(rows[5]["external_out"], 4.0);
        assert_eq!(rows[5]["routing_overhead"], 1.0);
    }
}

#[test]
fn replay_says_what_the_death_of_each_broker_leads_to() {
    let file = Scratch::new("deaths", FIGURE_9);
    let replay = [
        "replay",
        file.path(),
        "--brokers",
        "2",
        "--max-sessions",
        "2",
        "--deaths",
    ];
    let rows = objects(&[&replay[..], &["--json"]].concat());
    assert_eq!(rows.len(), 8, "five arrivals, a summary, two deaths");
    for (at, name) in [(6, "broker 0"), (7, "broker 1")] {
        let death = &rows[at];
        assert_eq!(death["death_of"], name);
        assert_eq!(
            death["sessions"], 3,
            "a publisher, a subscriber, a session of the fan"
        );
        assert_eq!(
            (&death["internal"], &death["above_gamma"]),
            (&0.0.into(), &0.into())
        );
        assert_eq!(death["busiest_over_mean"], 1.0, "one broker is left");
    }
    let table = printed(&replay);
    assert!(
        table.contains("death_of  sessions  busiest_over_mean"),
        "{table}"
    );
    let alone = objects(&[
        "replay",
        file.path(),
        "--json",
        "--brokers",
        "1",
        "--deaths",
    ]);
    assert_eq!(alone.len(), 6, "nothing is left");
}

#[test]
fn replay_takes_rates_by_name_or_in_order_and_lets_clients_leave_and_change() {
    let content = r#"{"client":"p","publish":["a","b"],"rates":[2,3]}
{"client":"q","publish":["c"],"rates":{"c":5}}
{"client":"s","subscribe":["a","c"]}
{"client":"s","subscribe":["a","b"]}
{"client":"q","leave":true}
"#;
    let file = Scratch::new("changes", content);
    let rows = objects(&["replay", file.path(), "--json", "--brokers", "1"]);
    assert_eq!(rows[3]["brokers"], serde_json::json!({"a": 0, "b": 0}));
    assert_eq!(rows[5]["external_in"], 5.0);
    assert_eq!(rows[5]["external_out"], 5.0);
}

const CROSSED: &str = r#"{"cluster":{"nodes":["a","b"],"message_bytes":1000}}
{"client":"p1","publish":["t/1"],"rates":{"t/1":500},"nodes":{"t/1":"a"}}
{"client":"s1","subscribe":["t/1"],"nodes":{"t/1":"b"}}
{"client":"p2","publish":["t/2"],"rates":{"t/2":500},"nodes":{"t/2":"b"}}
{"client":"s2","subscribe":["t/2"],"nodes":{"t/2":"a"}}
"#;

#[test]
fn advise_says_what_each_change_moves_and_gains_and_what_it_costs() {
    let file = Scratch::new("crossed", CROSSED);
    let advise = ["advise", file.path(), "--price-per-gb", "0.1"];
    let json = [&advise[..], &["--json"]].concat();
    let rows = objects(&json);
    let changes: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["change"].as_str())
        .collect();
    let plain = ["rebalance", "add", "remove a", "remove b"];
    let by_price = plain.map(|change| format!("{change}, by price"));
    let all = ["now"].into_iter().chain(plain);
    let all: Vec<&str> = all.chain(by_price.iter().map(String::as_str)).collect();
    assert_eq!(changes, all);
    // Each node: 500 from clients, 500 from the other one, 500 to clients, 500 to the other one, at weights 3 and 1.
    assert_eq!(rows[0]["cpu_busiest_percent"], 20.0);
    assert_eq!(rows[0]["internal_msgs_per_s"], 1000.0);
    assert_eq!(rows[0]["egress_a_month"], 259.2);
    assert_eq!(rows[1]["moves"], 2);
    assert_eq!(rows[1]["cpu_busiest_percent"], 10.0);
    assert_eq!(rows[1]["internal_change_percent"], -100.0);
    assert_eq!(rows[1]["egress_a_month"], 0.0);
    assert_eq!(rows[3]["cpu_busiest_percent"], 20.0);
    let shown = objects(&[&json[..], &["--show", "rebalance"]].concat());
    assert_eq!(shown.len(), 2);
    let one_site = objects(&[&json[..], &["--site", "a=x", "--site", "b=x"]].concat());
    assert_eq!(one_site[0]["egress_a_month"], 0.0);
    let deaths = objects(&[&json[..], &["--deaths"]].concat());
    assert_eq!(deaths[1]["change"], "death of a");
    assert_eq!(deaths[1]["nodes"][0]["cpu_percent"], 20.0);
    assert_eq!(deaths[1]["internal_msgs_per_s"], 0.0);
    assert_eq!((deaths.len(), &deaths[1]["moves"]), (3, &2.into()));
    let table = printed(&advise);
    let head: Vec<&str> = table.split_whitespace().take(3).collect();
    assert_eq!(head, ["change", "node_count", "moves"]);
}

#[test]
fn replay_says_what_a_month_of_traffic_between_sites_costs_before_and_after() {
    let file = Scratch::new("crossed-replay", CROSSED);
    let replay = ["replay", file.path(), "--json"];
    let summary = |more: &[&str]| {
        let mut rows = objects(&[&replay[..], more].concat());
        rows.pop().expect("a summary")
    };
    assert!(summary(&[]).get("egress_a_month").is_none());
    let priced = summary(&["--price-per-gb", "0.1"]);
    assert_eq!(priced["egress_a_month_now"], 259.2);
    assert_eq!(priced["egress_a_month"], 0.0);
    assert_eq!(priced["by_price"]["egress_a_month"], 0.0);
    // At one site there is nothing to pay.
    let one_site = ["--price-per-gb", "0.1", "--site", "a=x", "--site", "b=x"];
    assert_eq!(summary(&one_site)["egress_a_month_now"], 0.0);
    // A broker more than there are nodes is a site of its own.
    let more = summary(&["--price-per-gb", "0.1", "--brokers", "3"]);
    assert_eq!(more["egress_a_month_now"], 259.2);
    let bare = Scratch::new("bare-replay", FIGURE_9);
    let found = complaint(&["replay", bare.path(), "--site-cost", "10"]);
    assert!(found.contains("nodes: must be named"), "{found}");
    let text = DASHBOARD.replace(",\"nodes\":{\"t/+\":\"n1\"}", "");
    let partly = Scratch::new("partly-located", &text);
    let priced = ["replay", partly.path(), "--json", "--price-per-gb", "1"];
    let rows = objects(&[&priced[..], &["--message-bytes", "100"]].concat());
    let summary = rows.last().expect("a summary");
    assert_eq!(
        summary["egress_a_month_now"],
        Value::Null,
        "it is not known"
    );
    assert!(summary["egress_a_month"].is_number());
}

#[test]
fn replay_by_price_keeps_traffic_at_its_site() {
    let mut text = String::from(
        "{\"cluster\":{\"nodes\":[\"a\",\"b\",\"c\",\"d\"],\"message_bytes\":1000,\
         \"sites\":{\"a\":\"x\",\"b\":\"x\",\"c\":\"y\",\"d\":\"y\"}}}\n",
    );
    for number in 0..40 {
        text.push_str(&format!(
            "{{\"client\":\"p{number}\",\"publish\":[\"t/{number}\"],\"rates\":{{\"t/{number}\":10}}}}\n"
        ));
    }
    for number in 0..40 {
        let topics: Vec<String> = (0..6)
            .map(|it| format!("\"t/{}\"", (number * (7 + it) + it) % 40))
            .collect();
        let topics: std::collections::BTreeSet<String> = topics.into_iter().collect();
        let topics: Vec<String> = topics.into_iter().collect();
        text.push_str(&format!(
            "{{\"client\":\"s{number}\",\"subscribe\":[{}]}}\n",
            topics.join(",")
        ));
    }
    let file = Scratch::new("two-sites", &text);
    let arguments = ["--json", "--max-sessions", "2", "--price-per-gb", "0.1"];
    let rows = objects(&[&["replay", file.path()], &arguments[..]].concat());
    let summary = rows.last().expect("a summary");
    let plain = summary["egress_a_month"].as_f64().expect("a number");
    let by_price = summary["by_price"]["egress_a_month"].as_f64();
    let by_price = by_price.expect("a number");
    assert!(by_price < plain, "{summary}");
}

/// A dashboard of all topics at one node, and a publisher at each.
const DASHBOARD: &str = r#"{"cluster":{"nodes":["n1","n2"]}}
{"client":"dash","subscribe":["t/+"],"nodes":{"t/+":"n1"}}
{"client":"p1","publish":["t/1"],"nodes":{"t/1":"n1"}}
{"client":"p2","publish":["t/2"],"nodes":{"t/2":"n2"}}
"#;

#[test]
fn advise_never_splits_a_filter_with_wildcards() {
    let file = Scratch::new("dashboard", DASHBOARD);
    for change in ["rebalance", "add", "remove n1", "remove n2"] {
        let moves = objects(&["advise", file.path(), "--json", "--show", change]);
        for moved in moves.iter().filter(|row| row["client"] == "dash") {
            let topics = moved["topics"].as_array().expect("topics");
            assert_eq!(topics.len(), 2, "{change}: {moved}");
        }
    }
}

#[test]
fn replay_gives_each_client_the_sessions_of_its_line_and_keeps_filters_whole() {
    let lines = r#"{"client":"p1","publish":["t/1"]}
{"client":"s1","subscribe":["t/1"]}
{"client":"p2","publish":["t/2"]}
{"client":"s2","subscribe":["t/2"]}
{"client":"plain","subscribe":["t/1","t/2"],"max_sessions":1}
{"client":"dash","subscribe":["t/+"]}
"#;
    let file = Scratch::new("own-sessions", lines);
    let brokers_of = |client: &str, flags: &[&str]| {
        let arguments = [&["replay", file.path(), "--brokers", "2", "--json"], flags].concat();
        let rows = objects(&arguments);
        let row = rows.iter().find(|row| row["client"] == client);
        let brokers = row.expect("a row")["brokers"].as_object().expect("brokers");
        let brokers: std::collections::BTreeSet<u64> = brokers
            .values()
            .filter_map(|broker| broker.as_u64())
            .collect();
        brokers.len()
    };
    assert_eq!(brokers_of("plain", &[]), 1);
    assert_eq!(brokers_of("plain", &["--max-sessions", "2"]), 2);
    assert_eq!(brokers_of("dash", &["--max-sessions", "2"]), 1);
    let footnote_3 = ["--strategy", "multi-session", "--max-sessions", "2"];
    assert_eq!(brokers_of("dash", &footnote_3), 2);
}

#[test]
fn advise_refuses_what_it_cannot_know_by_its_name() {
    let file = Scratch::new("crossed-too", CROSSED);
    let bare = Scratch::new("no-nodes", FIGURE_9);
    let stray = Scratch::new(
        "stray-node",
        "{\"cluster\":{\"nodes\":[\"a\"]}}\n{\"client\":\"c\",\"publish\":[\"t\"],\"nodes\":{\"t\":\"b\"}}\n",
    );
    let unknown = Scratch::new("unknown-key", "{\"cluster\":{\"node\":[\"a\"]}}\n");
    for (arguments, expected) in [
        (vec![bare.path()], "nodes: must be named"),
        (vec![stray.path()], "nodes: must name a node"),
        (vec![unknown.path()], "unknown field `node`"),
        (
            vec![file.path(), "--capacity", "0"],
            "capacity: must be a number above 0",
        ),
        (
            vec![file.path(), "--show", "x"],
            "show: must be one of now, rebalance",
        ),
        (
            vec![file.path(), "--message-bytes", "9"],
            "price-per-gb: must be given",
        ),
        (
            vec![file.path(), "--price-per-gb", "1", "--site", "c=x"],
            "site: must be of one of a, b",
        ),
        (vec![file.path(), "--site", "a"], "expected NODE=SITE"),
        (vec![file.path(), "--anonymous=nodes"], "--anonymous"),
        (vec![], "FILE.jsonl"),
    ] {
        let found = complaint(&[&["advise"], &arguments[..]].concat());
        assert!(found.contains(expected), "{arguments:?}: {found}");
    }
}

#[test]
fn a_recording_without_names_is_the_same_to_the_planner() {
    let file = Scratch::new("named", CROSSED);
    let hidden = Scratch::new("hidden", "");
    let advise = ["advise", "--json", "--show", "rebalance"];
    let saved = ["--anonymous=all", "--save", hidden.path()];
    assert_eq!(
        objects(&[&advise[..], &[file.path()], &saved].concat()).len(),
        2
    );
    assert_eq!(objects(&[&advise[..], &[hidden.path()]].concat()).len(), 2);
    let text = std::fs::read_to_string(hidden.path()).expect("it was written");
    assert!(!text.contains("t/1") && !text.contains("s1"), "{text}");
    let replayed = objects(&["replay", hidden.path(), "--json"]);
    assert_eq!(replayed.last().expect("a summary")["internal"], 0.0);
}

const SMALL: [&str; 13] = [
    "simulate",
    "--topics",
    "60",
    "--subscribers",
    "60",
    "--subscriptions",
    "4",
    "--brokers",
    "2,5",
    "--seeds",
    "3",
    "--order",
    "random",
];

#[test]
fn simulate_prints_one_object_a_size_and_strategy_and_the_same_ones_again() {
    let arguments: Vec<&str> = SMALL.into_iter().chain(["--json"]).collect();
    let rows = objects(&arguments);
    let strategies = [
        "random",
        "round-robin",
        "least-loaded",
        "best-match",
        "multi-session",
        "thicket",
    ];
    assert_eq!(rows.len(), 2 * strategies.len());
    for (row, (brokers, strategy)) in rows.iter().zip(
        [2, 5]
            .iter()
            .flat_map(|brokers| strategies.map(|strategy| (brokers, strategy))),
    ) {
        assert_eq!(row["brokers"], *brokers);
        assert_eq!(row["strategy"], strategy);
        for measure in [
            "internal",
            "external_in",
            "external_out",
            "routing_overhead",
            "forwarding_overhead",
            "jain",
        ] {
            let statistic = &row[measure];
            assert!(
                statistic["mean"].is_f64() && statistic["sd"].is_f64(),
                "{measure}: {row}"
            );
            assert_eq!(statistic["n"], 3);
        }
        assert!(close(&row["external_out"]["mean"], 240.0));
    }
    assert_eq!(printed(&arguments), printed(&arguments));
}

#[test]
fn simulate_writes_csv_and_a_plot_with_markers_over_lines() {
    let plot = Scratch::new("plot.svg", "");
    let arguments: Vec<&str> = SMALL
        .into_iter()
        .chain(["--csv", "--plot", plot.path()])
        .collect();
    let csv = printed(&arguments);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 13);
    assert!(lines[0].starts_with("brokers,strategy,"));
    assert!(lines[0].contains(",routing_overhead_mean,routing_overhead_n,routing_overhead_sd,"));
    let columns = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| columns(line) == columns(lines[0])));
    let svg = std::fs::read_to_string(&plot.0).expect("the plot was written");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    // The strategies in two panes and once in the legend; the model's two sizes in each pane, and once in the legend.
    let count = |shape: &str, colour: &str| {
        let lines = svg.lines();
        lines
            .filter(|line| line.contains(shape) && line.contains(colour))
            .count()
    };
    for colour in &PALETTE[..6] {
        let colour = format!(
            "stroke=\"#{:02X}{:02X}{:02X}\"",
            colour.0, colour.1, colour.2
        );
        assert_eq!(count("<polyline", &colour), 3, "{colour}");
    }
    assert!(svg.matches("<polygon").count() > 0, "no band");
    assert_eq!(count("<circle", "stroke=\"#000000\""), 5);
}

#[test]
fn a_figure_takes_its_parameters_from_the_paper_and_refuses_others() {
    let rows = objects(&[
        "simulate",
        "--figure",
        "11",
        "--seeds",
        "1",
        "--strategy",
        "multi-session",
        "--json",
    ]);
    // Two curves over eight numbers of sessions, two over eight cluster sizes.
    assert_eq!(rows.len(), 32);
    for row in &rows {
        assert_eq!(row["figure"], 11);
        assert_eq!(row["topics"], 1000);
        let bound: f64 = row["choices_bound"]
            .as_str()
            .expect("a string")
            .parse()
            .expect("a number");
        assert!(row["choices"]["mean"].as_f64().expect("a number") <= bound);
    }
    for parameter in ["--topics", "--brokers", "--gamma", "--alpha"] {
        assert!(
            complaint(&["simulate", "--figure", "11", parameter, "5"])
                .contains("cannot be used with")
        );
    }
}

#[test]
fn size_needs_fewer_brokers_with_placement_and_no_fewer_than_linear_scaling() {
    let arguments = [
        "size",
        "--topics",
        "300",
        "--subscribers",
        "300",
        "--rate",
        "10",
        "--capacity",
        "5000",
        "--seeds",
        "1",
        "--json",
    ];
    let rows = objects(&arguments);
    let brokers = |key: &str| {
        rows[0][key]["brokers"]
            .as_u64()
            .expect("a number of brokers")
    };
    // 3 x 3000 received and 30000 sent: 39000 units a second.
    assert_eq!(brokers("linear"), 8);
    assert!(brokers("with_placement") >= 8);
    assert!(brokers("with_placement") < brokers("without_placement"));
    let heavier = ["--weight-received", "6", "--weight-sent", "2"];
    let doubled: Vec<&str> = arguments.into_iter().chain(heavier).collect();
    assert_eq!(objects(&doubled)[0]["linear"]["brokers"], 16);
}
