//! What recorded clients would gain elsewhere: `replay` and `advise`.

use serde_json::Value;

use super::{Scratch, complaint, objects, printed};

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
    let foreign = Scratch::new(
        "foreign-node",
        "{\"cluster\":{\"nodes\":[\"a\"]}}\n{\"client\":\"c\",\"publish\":[\"t\"],\"nodes\":{\"t\":\"b\"}}\n",
    );
    let unknown = Scratch::new("unknown-key", "{\"cluster\":{\"node\":[\"a\"]}}\n");
    for (arguments, expected) in [
        (vec![bare.path()], "nodes: must be named"),
        (vec![foreign.path()], "nodes: must name a node"),
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
