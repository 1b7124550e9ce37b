//! The model and the simulator: `model`, `simulate` and `size`.

use thicket_bench::report::chart::PALETTE;

use super::{Scratch, close, complaint, objects, printed};

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
