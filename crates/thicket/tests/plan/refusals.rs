//! Input that is refused, with the parameter, the file or the line in the message.

use super::{Scratch, complaint};

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
