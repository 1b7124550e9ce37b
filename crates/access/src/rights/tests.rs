use super::*;

fn rights_of(rules: &[&str], user_name: Option<&str>, client_id: &str) -> Rights {
    let rules: Vec<Rule> = rules
        .iter()
        .map(|text| Rule::parse(text, true).expect(text))
        .collect();
    Rights::bind(
        &rules,
        Client {
            user_name,
            client_id,
        },
    )
}

#[test]
fn a_topic_is_allowed_by_a_rule_and_by_nothing_else() {
    // Rules, topic, may publish, may receive.
    type Case = (
        &'static str,
        &'static [&'static str],
        &'static str,
        bool,
        bool,
    );
    let cases: &[Case] = &[
        ("no rules", &[], "a", false, false),
        ("read", &["read a/#"], "a/b", false, true),
        ("write", &["write a/#"], "a/b", true, false),
        ("both by name", &["readwrite a/#"], "a/b", true, true),
        ("both by silence", &["a/#"], "a/b", true, true),
        ("another topic", &["a/#"], "b", false, false),
        (
            "a denial beats an earlier allowance",
            &["#", "deny a/secret"],
            "a/secret",
            false,
            false,
        ),
        (
            "a denial beats a later, narrower allowance",
            &["deny a/#", "readwrite a/b"],
            "a/b",
            false,
            false,
        ),
        (
            "a denial of one direction leaves the other",
            &["#", "deny write a/#"],
            "a/b",
            false,
            true,
        ),
        ("all is not $SYS", &["#"], "$SYS/load", false, false),
        ("$SYS by name", &["read $SYS/#"], "$SYS/load", false, true),
        (
            "a filter with blanks",
            &["read my topic/+"],
            "my topic/x",
            false,
            true,
        ),
        (
            "a topic called like a word of access",
            &["reading"],
            "reading",
            true,
            true,
        ),
        ("user name", &["%u/up"], "ann/up", true, true),
        ("client identifier", &["c/%c/#"], "c/dev-1/x", true, true),
        ("both in one level", &["%u-%c/#"], "ann-dev-1/x", true, true),
        ("somebody else's", &["%u/up"], "bob/up", false, false),
    ];
    for (name, rules, topic, publish, receive) in cases {
        let rights = rights_of(rules, Some("ann"), "dev-1");
        assert_eq!(rights.may_publish(topic), *publish, "{name}: publish");
        assert_eq!(rights.may_receive(topic), *receive, "{name}: receive");
    }
}

#[test]
fn a_name_with_wildcards_or_slashes_never_widens_a_rule() {
    for bad in ["+", "#", "a/b", "", "ann+", "x\0"] {
        let rights = rights_of(&["home/%u/#"], Some(bad), "dev-1");
        for topic in ["home/ann/x", "home/a/b/x", "home/+/x", "home//x", "home/x"] {
            assert!(!rights.may_publish(topic), "{bad:?} and {topic}");
        }
        let rights = rights_of(&["home/%c/#"], Some("ann"), bad);
        assert!(!rights.may_receive("home/ann/x"), "{bad:?} as client");
        // A denial that cannot be filled in denies for all.
        let rights = rights_of(&["#", "deny home/x-%u/#"], Some(bad), "dev-1");
        assert!(!rights.may_receive("home/x-ann/x"), "{bad:?} denied");
        assert!(rights.may_receive("garden/x"), "{bad:?} elsewhere");
    }
    assert!(!rights_of(&["home/%u"], None, "dev-1").may_publish("home/"));
}

#[test]
fn a_name_that_begins_with_a_dollar_gives_no_right_to_topics_of_the_broker() {
    for (rule, topic) in [
        ("read %c/#", "$SYS/broker/uptime"),
        ("read %u/#", "$SYS/broker/uptime"),
        ("%c%u/#", "$SYS$SYS/x"),
        ("%c", "$SYS"),
    ] {
        let rights = rights_of(&[rule], Some("$SYS"), "$SYS");
        assert!(!rights.may_receive(topic), "{rule}");
        assert_ne!(rights.may_subscribe(topic), Reach::All, "{rule}");
    }
    // Behind another character it is a name like others.
    assert!(rights_of(&["read of/%c/#"], None, "$SYS").may_receive("of/$SYS/x"));
    assert!(!rights_of(&["#", "deny %c/#"], None, "$SYS").may_receive("a"));
}

#[test]
fn a_filter_is_reached_wholly_in_part_or_not_at_all() {
    let cases: &[(&str, &[&str], &str, Reach)] = &[
        ("the same", &["read a/#"], "a/#", Reach::All),
        ("inside", &["read a/#"], "a/+/c", Reach::All),
        ("wider", &["read a/#"], "#", Reach::Part),
        ("across", &["read a/+"], "+/b", Reach::Part),
        ("apart", &["read a/#"], "b/#", Reach::Nothing),
        ("write only", &["write a/#"], "a/#", Reach::Nothing),
        (
            "with a hole",
            &["read a/#", "deny a/secret"],
            "a/+",
            Reach::Part,
        ),
        (
            "the hole",
            &["read a/#", "deny a/secret/#"],
            "a/secret/x",
            Reach::Nothing,
        ),
        (
            "the hole is for writing",
            &["read a/#", "deny write a/secret"],
            "a/+",
            Reach::All,
        ),
        (
            "a hole elsewhere",
            &["read #", "deny b/#"],
            "a/#",
            Reach::All,
        ),
        (
            "all that is allowed is denied",
            &["read a/b", "deny a/+"],
            "#",
            Reach::Nothing,
        ),
    ];
    for (name, rules, filter, expected) in cases {
        let rights = rights_of(rules, Some("ann"), "dev-1");
        assert_eq!(rights.may_subscribe(filter), *expected, "{name}");
    }
}

#[test]
fn a_rule_that_is_none_is_refused_with_what_was_expected() {
    let cases = [
        ("", "expected a topic filter, found the end"),
        ("read", "expected a topic filter, found the end"),
        ("deny write ", "expected a topic filter, found the end"),
        ("read a/#/b", "expected a topic filter, found \"a/#/b\""),
        ("write a+", "expected a topic filter, found \"a+\""),
    ];
    for (text, expected) in cases {
        let error = Rule::parse(text, false).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn outside_patterns_percent_signs_mean_themselves() {
    let rule = Rule::parse("read %u/x", false).expect("a rule");
    let client = Client {
        user_name: Some("ann"),
        client_id: "c",
    };
    let rights = Rights::bind([&rule], client);
    assert!(rights.may_receive("%u/x"));
    assert!(!rights.may_receive("ann/x"));
}

#[test]
fn the_cache_answers_as_the_rights_do_and_stays_bounded() {
    let rights = Arc::new(rights_of(&["write a/+", "read b/+"], None, "c"));
    let mut cached = CachedRights::new(Arc::clone(&rights));
    for round in 0..3 {
        for number in 0..500 {
            for topic in [format!("a/{number}"), format!("b/{number}")] {
                assert_eq!(
                    cached.may_publish(&topic),
                    rights.may_publish(&topic),
                    "{topic} in round {round}"
                );
                assert_eq!(cached.may_receive(&topic), rights.may_receive(&topic));
            }
        }
    }
    assert!(cached.verdicts.len() <= CACHED_TOPICS);
    let long = format!("a/{}", "x".repeat(CACHED_TOPIC_BYTES));
    assert!(cached.may_publish(&long));
    assert!(!cached.verdicts.contains_key(&*long));
}

#[test]
fn a_mistyped_word_of_access_is_refused() {
    for text in [
        "den home/safe/#",
        "wirte x/%c",
        "denyread home/#",
        "deny redwrite a",
        "my topic/+",
    ] {
        let refused = Rule::parse(text, true);
        assert!(
            matches!(refused, Err(RuleError::UnknownAccess { .. })),
            "{text}: {refused:?}"
        );
    }
    for text in [
        "readwrite my topic/+",
        "my/to pic",
        "deny my/to pic",
        "home/#",
        "read",
        "%u x/y",
    ] {
        let parsed = Rule::parse(text, true);
        assert_eq!(parsed.is_ok(), text != "read", "{text}: {parsed:?}");
    }
}
