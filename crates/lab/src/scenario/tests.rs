use super::*;

const SMALL: &str = r#"
title = "t"
[network]
sites = 3
shape = "full-mesh"
link = { rtt_ms = 5 }
[[system]]
name = "mesh"
driver = "thicket"
[workload]
pattern = "fan-out"
rate_per_s = 10
messages = 20
"#;

#[test]
fn a_small_scenario_has_defaults_for_the_rest() {
    let (scenario, cells) = Scenario::parse(SMALL).unwrap();
    assert_eq!((scenario.repeats, cells.len()), (1, 1));
    assert_eq!(scenario.network.names().unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(scenario.phases.control_s.value(), 1.0);
}

#[test]
fn errors_show_the_line_and_the_key() {
    for (from, to, line, key) in [
        ("sites = 3", "sitez = 3", "line 4", "sitez"),
        (
            "sites = 3",
            "sites = 3\nlater = [\"s2\", \"s9\"]",
            "line 5",
            "network.later.1: there is no site s9",
        ),
        ("rtt_ms = 5", "rtt_ms = -5", "line 6", "-5 is not a number"),
        ("full-mesh", "cube", "line 5", "cube"),
        ("fan-out", "fan-over", "line 11", "fan-over"),
        (
            "messages = 20",
            "messages = \"many\"",
            "line 13",
            "messages",
        ),
    ] {
        let error = Scenario::parse(&SMALL.replace(from, to)).unwrap_err();
        assert!(error.contains(line) && error.contains(key), "{to}: {error}");
    }
}

#[test]
fn errors_in_a_measurement_show_the_line_of_their_key() {
    let with = |keys: &str| format!("{SMALL}[measure]\n{keys}\n");
    for (keys, expected) in [
        ("kind = \"thruput\"", "line 15"),
        ("kind = \"throughput\"\nprecision = -1", "line 16"),
        ("kind = \"throughput\"\nstep_s = \"x\"", "line 16"),
        ("kind = \"connections\"\ncount = -1", "line 16"),
        ("kind = \"connections\"\ncuont = 1", "line 16"),
        (
            "kind = \"connections\"\ncount = 1\nstep_s = 1",
            "line 17, measure.step_s: kind = \"connections\" does not use it, it has count, hold_s",
        ),
        (
            "kind = \"placement\"\nsite = \"s1\"",
            "line 16, measure.site: kind = \"placement\" does not use it, it has no other keys",
        ),
        (
            "kind = \"connections\"",
            "line 14, measure.count: it is missing",
        ),
        ("kind = \"crash\"", "line 14, measure.site: it is missing"),
        (
            "kind = \"arrivals\"\nhold_s = 0",
            "line 16, measure.hold_s: 0 is not a number above 0",
        ),
        (
            "kind = \"arrivals\"\ntypes = [{ count = 1, rate_per_s = 0 }]",
            "line 16",
        ),
    ] {
        let error = Scenario::parse(&with(keys)).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    }
    let (scenario, _) = Scenario::parse(&with("kind = \"throughput\"")).unwrap();
    // Results have scenarios as JSON, and read them again.
    let json = serde_json::to_string(&scenario.measure).unwrap();
    assert_eq!(
        serde_json::from_str::<Measure>(&json).unwrap(),
        scenario.measure
    );
}

#[test]
fn numbers_that_nothing_can_have_are_refused_at_once() {
    let of = |pattern: &str, keys: &str| {
        SMALL
            .replace("fan-out", pattern)
            .replace("messages = 20", &format!("messages = 20\n{keys}"))
    };
    for (text, expected) in [
        (
            SMALL.replace("sites = 3", "sites = 99999999999"),
            "line 4, network.sites: 99999999999 is not from 1 to 1000",
        ),
        (
            of("fan-out", "publishers = 0"),
            "line 14, workload.publishers: publishers must be at least 1",
        ),
        (
            of("fan-out", "publishers = 99999999999"),
            "line 14, workload.publishers: ",
        ),
        (
            of("fan-out", "subscribers = 99999999999"),
            "line 14, workload.subscribers: ",
        ),
        (
            of("pair", "publishers = 0"),
            "line 14, workload.publishers: ",
        ),
        (
            of("social", "topics = 99999999999"),
            "line 14, workload.topics: ",
        ),
        (of("social", "alpha = nan"), "line 14, workload.alpha: "),
        (of("social", "alpha = -1"), "line 14, workload.alpha: "),
        (
            of("social", "topics_per_subscriber = 2000"),
            "line 14, workload.topics_per_subscriber: ",
        ),
        (
            of("iot", "depth = 99999999999"),
            "line 14, workload.depth: ",
        ),
        (of("iot", "fan_out = 100000"), "line 14, workload.fan_out: "),
        (of("iot", "levels = [1, 2]"), "line 14, workload.levels: "),
        (of("iot", "alpha = inf"), "line 14, workload.alpha: "),
        (
            of("shared", "members = 99999999"),
            "line 14, workload.members: ",
        ),
        (
            of("fan-out", "payload_bytes = 99999999999"),
            "line 14, workload.payload_bytes: ",
        ),
        (
            SMALL.replace("messages = 20", "messages = 0"),
            "line 13, workload.messages: 0 is no load",
        ),
        (
            SMALL.replace("rate_per_s = 10", "rate_per_s = 1e-300"),
            "line 12",
        ),
        (
            format!("{SMALL}[brokers]\nmemory_mib = 0\n"),
            "line 15, brokers.memory_mib: 0 is not from 1",
        ),
        (
            format!("{SMALL}[brokers]\nmemory_mib = 9223372036854775807\n"),
            "line 15, brokers.memory_mib: ",
        ),
    ] {
        let error = Scenario::parse(&text).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_delay_has_a_law_with_its_parameters() {
    let with = |link: &str| SMALL.replace("{ rtt_ms = 5 }", link);
    let uniform = "{ delay = { law = \"uniform\", min_ms = 5, max_ms = 15 } }";
    let (scenario, cells) = Scenario::parse(&with(uniform)).unwrap();
    let text = scenario.explain(&cells);
    let expected =
        "s1 - s2  RTT 20.00 ms on average, each way uniform from 5 to 15 ms for every packet";
    assert!(text.contains(expected), "{text}");
    let once = with(&uniform.replace("max_ms", "drawn = \"per-link\", max_ms"));
    let (scenario, cells) = Scenario::parse(&once).unwrap();
    assert!(!scenario.explain(&cells).contains("for every packet"));
    for (link, expected) in [
        (
            "{ delay = { law = \"uniform\", min_ms = 5 } }",
            "line 6, network.link.delay.max_ms: it is missing, uniform needs min_ms and max_ms",
        ),
        (
            "{ delay = { law = \"uniform\", min_ms = 5, max_ms = 5 } }",
            "network.link.delay.max_ms: 5 is not above min_ms, 5",
        ),
        (
            "{ delay = { law = \"normal\", mean_ms = 5, sd_ms = 1, shape = 2 } }",
            "network.link.delay.shape: normal does not use it, only mean_ms and sd_ms",
        ),
        (
            "{ delay = { law = \"log-normal\", mean_ms = 0, sd_ms = 1 } }",
            "network.link.delay.mean_ms: 0 has no logarithm",
        ),
        (
            "{ delay = { law = \"pareto\", min_ms = 5, shape = 1 } }",
            "network.link.delay.shape: 1 is not above 1, so the delay has no mean",
        ),
        ("{ delay = { law = \"cauchy\" } }", "line 6"),
        (
            "{ rtt_ms = 5, delay = { law = \"pareto\", min_ms = 5, shape = 2 } }",
            "line 6, network.link: rtt_ms and delay say the same thing twice",
        ),
    ] {
        let error = Scenario::parse(&with(link)).unwrap_err();
        assert!(error.contains(expected), "{link}: {error}");
    }
    let slow = "[[fault]]\nat_s = 1\ndo = \"slow\"\nlink = [\"s1\", \"s2\"]\n";
    for (to, expected) in [
        ("{ rtt_ms = 5, one_way_ms = 2 }", "fault.0.to: rtt_ms and"),
        (
            "{ delay = { law = \"uniform\", min_ms = 5, max_ms = 6, drawn = \"per-link\" } }",
            "fault.0.to.delay.drawn: per-link",
        ),
    ] {
        let error = Scenario::parse(&format!("{SMALL}{slow}to = {to}\n")).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn values_of_a_sweep_may_move_several_keys_together() {
    let sweep = "[[sweep]]\nkey = \"workload.rate_per_s\"\nvalues = [10, 20]\nwith = { \"workload.messages\" = [5, 9] }\n";
    let (_, cells) = Scenario::parse(&format!("{SMALL}{sweep}")).unwrap();
    let seen: Vec<_> = cells
        .iter()
        .map(|cell| cell.scenario.workload.messages)
        .collect();
    assert_eq!(seen, [Some(5), Some(9)]);
    assert_eq!(cells[0].parameters.len(), 1);
}

#[test]
fn what_no_single_key_shows_is_refused_too() {
    for (addition, expected) in [
        (
            "[[system]]\nname = \"mesh\"\ndriver = \"thicket\"\n",
            "comes twice",
        ),
        (
            "[[fault]]\nat_s = 1\ndo = \"kill\"\nsite = \"s9\"\n",
            "line 17, fault.0.site: there is no site s9, only s1, s2, s3",
        ),
        (
            "[[fault]]\nat_s = 1\ndo = \"heal\"\n[[fault]]\ndo = \"kill\"\nsite = \"s2\"\nlink = [\"s1\", \"s2\"]\n",
            "line 20, fault.1.link: kill does not use it, only site",
        ),
        (
            "[[fault]]\nat_s = 100\ndo = \"heal\"\n",
            "line 15, fault.0.at_s: 100 is after the end of the load, which takes 2 s",
        ),
        (
            "[[sweep]]\nkey = \"workload.qos\"\nvalues = [0]\n[[sweep]]\nkey = \"workload.qos\"\nvalues = [1]\n",
            "line 18, sweep.1.key: workload.qos is swept twice",
        ),
        (
            "[[sweep]]\nkey = \"repeats\"\nvalues = [1, 2]\n",
            "line 15, sweep.0.key: repeats is the same in all cells",
        ),
        (
            "[[sweep]]\nkey = \"fault.3.at_s\"\nvalues = [1, 2]\n",
            "line 15, sweep.0.key: fault.3.at_s: ",
        ),
        (
            "[[fault]]\nat_s = 1\ndo = \"cut\"\nlink = [\"s1\", \"s1\"]\n",
            "no link",
        ),
        (
            "[[sweep]]\nkey = \"workload.quality\"\nvalues = [1]\n",
            "quality",
        ),
        (
            "[[sweep]]\nkey = \"workload.qos\"\nvalues = []\n",
            "line 16, sweep.0.values: there are none",
        ),
        (
            "[[sweep]]\nkey = \"workload.payload_bytes\"\nvalues = [64]\n[[sweep]]\nkey = \"workload.qos\"\nvalues = [0, 3]\n",
            "line 19, sweep.1.values: with workload.payload_bytes = 64, workload.qos = 3: workload.qos: 3",
        ),
        // Of several sweeps the one that is to blame, whatever words the reason has.
        (
            "[[sweep]]\nkey = \"workload.placement\"\nvalues = [\"locality-0\"]\n[[sweep]]\nkey = \"workload.quality\"\nvalues = [0]\n",
            "line 19, sweep.1.values: with workload.placement = locality-0, workload.quality = 0: unknown field `quality`",
        ),
        (
            "[[sweep]]\nkey = \"workload.payload_bytes\"\nvalues = [64]\n[[sweep]]\nkey = \"network.link.rtt_ms\"\nvalues = [0, -1]\n",
            "line 19, sweep.1.values: with workload.payload_bytes = 64, network.link.rtt_ms = -1: -1 is not",
        ),
        (
            "[[sweep]]\nkey = \"system.mush.settings.routing\"\nvalues = [\"topic\"]\n",
            "line 16, sweep.0.values: with system.mush.settings.routing = topic: there is no system mush",
        ),
        (
            "[[sweep]]\nkey = \"workload.qos\"\nvalues = [1, 0, 1]\n",
            "line 16, sweep.0.values: 1 comes twice",
        ),
        (
            "[[sweep]]\nkey = \"workload.qos\"\nvalues = [0, 1]\nwith = { \"workload.messages\" = [5] }\n",
            "line 17, sweep.0.with: workload.messages has 1 values, expected 2",
        ),
        ("[measure]\nkind = \"crash\"\nsite = \"s7\"\n", "s7"),
        ("[phases]\ncontrol_s = -1\n", "line 15"),
        (
            "[[network.links]]\nbetween = [\"s1\", \"s2\"]\n[[network.links]]\nbetween = [\"s2\", \"s1\"]\n",
            "line 17, network.links.1.between: s2 and s1 have the link of network.links.0, and not another one",
        ),
        (
            "[[network.links]]\nbetween = [\"s1\", \"s9\"]\n",
            "line 15, network.links.0.between: there is no site s9",
        ),
        (
            "[[fault]]\nat_s = 1\ndo = \"join\"\nsite = \"s2\"\n",
            "network.later",
        ),
    ] {
        let error = Scenario::parse(&format!("{SMALL}{addition}")).unwrap_err();
        assert!(error.contains(expected), "{addition}: {error}");
    }
}

#[test]
fn a_key_that_nothing_uses_is_refused() {
    let crash = SMALL.replace("messages = 20\n", "")
        + "[measure]\nkind = \"crash\"\nsite = \"s2\"\n[[sweep]]\nkey = \"workload.qos\"\nvalues = [1, 2]\n";
    Scenario::parse(&crash).unwrap();
    for (text, from, to, expected) in [
        (
            SMALL,
            "rate_per_s",
            "topics = 5\nrate_per_s",
            "line 12, workload.topics: the pattern does not use it, only publishers, subscribers",
        ),
        (
            &crash,
            "rate_per_s",
            "publishers = 5\nsubscribers = 50\nrate_per_s",
            "line 12, workload.publishers: measure.kind = \"crash\" has a publisher",
        ),
        (
            &crash,
            "rate_per_s",
            "placement = \"random\"\nrate_per_s",
            "line 12, workload.placement: ",
        ),
        (&crash, "fan-out", "pair", "line 11, workload.pattern: "),
        (
            &crash,
            "[[sweep]]",
            "[[fault]]\ndo = \"heal\"\n[[sweep]]",
            "fault: measure.kind",
        ),
    ] {
        let error = Scenario::parse(&text.replace(from, to)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_workload_has_the_options_of_the_load_generator() {
    use thicket_bench::generator::{Arrivals, Load, Node};
    use thicket_bench::workload::Workload as Plan;
    let text = SMALL.replace(
            "pattern = \"fan-out\"",
            "pattern = \"iot\"\ndepth = 3\nlevels = [0, 1, 3]\narrivals = \"log-normal\"\nvariation = 0.7\npersistent = true\nuser = \"u\"\nredirect = \"ignore\"\npayload_bytes = 4",
        );
    let (scenario, cells) = Scenario::parse(&text).unwrap();
    let names = scenario.network.names().unwrap();
    let nodes: Vec<Node> = names
        .iter()
        .map(|_| Node::resolve("127.0.0.1").unwrap())
        .collect();
    let clients = clients(&scenario, &names, &nodes, "p", 1);
    let Plan::Iot {
        level_probabilities,
        ..
    } = &clients.workload
    else {
        panic!("{:?}", clients.workload);
    };
    assert_eq!(level_probabilities, &[0.0, 1.0, 3.0]);
    assert!(clients.persistent);
    assert_eq!(clients.login.unwrap().0, "u");
    assert_eq!(clients.redirect, thicket_bench::arrivals::Redirect::Ignore);
    assert_eq!(clients.payload_len, 4);
    let arrivals = Arrivals::LogNormal {
        coefficient_of_variation: 0.7,
    };
    let load = Load::Open {
        rate_per_s: 10.0,
        arrivals,
    };
    assert_eq!(scenario.workload.load(), load);
    let words = scenario.explain(&cells);
    for expected in ["log-normal gaps (variation 0.7)", "user name u", "persist"] {
        assert!(words.contains(expected), "{words}");
    }
}

#[test]
fn a_load_has_threads_and_a_search_its_tolerances() {
    let head =
        "title = \"t\"\nnetwork = { sites = 2 }\n[[system]]\nname = \"x\"\ndriver = \"thicket\"\n";
    let parse = |rest: &str| Scenario::parse(&format!("{head}{rest}\n"));
    let pair = "[workload]\npattern = \"pair\"\npublishers = 4\nthreads = 2\n";
    let search = "[measure]\nkind = \"throughput\"\n";
    let (scenario, cells) = parse(&format!(
        "{pair}{search}tolerance_per_s = 0\ntolerance_percent = 0.5"
    ))
    .unwrap();
    assert_eq!(scenario.workload.threads(), 2);
    let words = scenario.explain(&cells);
    for expected in ["2 threads", "within 0 messages/s or 0.5 %"] {
        assert!(words.contains(expected), "{words}");
    }
    let load = "rate_per_s = 1\nseconds = 1\n";
    for (rest, expected) in [
        (
            pair.replace("= 2", "= 5") + load,
            "line 9, workload.threads: 5 is not from 1 to 4",
        ),
        (
            pair.replace("= 2", "= 0") + load,
            "workload.threads: 0 is not from 1 to 4",
        ),
        (
            pair.replace("pair", "fan-out") + load,
            "workload.threads: only the pattern pair",
        ),
        (
            pair.to_owned() + "[measure]\nkind = \"connections\"\ncount = 3",
            "workload.threads: only a load",
        ),
        (
            format!("{pair}{search}below_mean_ms = 2\ntolerance_percent = 1"),
            "line 13, measure.tolerance_percent: with below_mean_ms",
        ),
    ] {
        let error = parse(&rest).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn clients_are_spread_over_named_sites() {
    use thicket_bench::generator::Node;
    let with = |publishers: &str, subscribers: &str| {
        let sites = format!("{{ publishers = {publishers}, subscribers = {subscribers} }}");
        SMALL.replace(
            "messages = 20",
            &format!("messages = 20\nplacement = {{ sites = {sites} }}"),
        )
    };
    let text = with("\"s2\"", "[\"s3\", \"s1\", \"s3\"]");
    let (scenario, cells) = Scenario::parse(&text).unwrap();
    let words = scenario.explain(&cells);
    let expected = "publishers at s2, subscribers at s3, s1, s3 in turn";
    assert!(words.contains(expected), "{words}");
    let names = scenario.network.names().unwrap();
    let node = |name: &String| Node {
        name: name.clone(),
        ..Node::resolve("127.0.0.1").unwrap()
    };
    let nodes: Vec<Node> = names.iter().map(node).collect();
    let clients = clients(&scenario, &names, &nodes, "p", 1);
    let count = clients.nodes.len();
    let (publishers, subscribers) =
        thicket_bench::workload::attach(clients.attachment, count, 2, 6, 1);
    let at = |node: &usize| clients.nodes[*node].name.as_str();
    let sites: Vec<&str> = publishers.iter().chain(&subscribers).map(at).collect();
    assert_eq!(sites, ["s2", "s2", "s3", "s1", "s3", "s3", "s1", "s3"]);
    for (publishers, subscribers, expected) in [
        (
            "\"s1\"",
            "[\"s2\", \"s9\"]",
            "line 14, workload.placement.sites.subscribers: there is no site s9",
        ),
        ("[]", "\"s2\"", "one site at least"),
        ("5", "\"s2\"", "a list of such names"),
    ] {
        let error = Scenario::parse(&with(publishers, subscribers)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let later =
        with("\"s1\"", "[\"s2\", \"s3\"]").replace("sites = 3\n", "sites = 3\nlater = [\"s3\"]\n");
    let error = Scenario::parse(&later).unwrap_err();
    assert!(error.contains("s3 has no broker at first"), "{error}");
}

#[test]
fn options_that_contradict_each_other_are_refused_with_line_and_key() {
    for (from, to, expected) in [
        (
            "rate_per_s = 10",
            "window = 5\narrivals = \"poisson\"",
            "line 13, workload.arrivals: only a load at rate_per_s",
        ),
        (
            "rate_per_s = 10",
            "rate_per_s = 10\nvariation = 0.5",
            "line 13, workload.variation: only log-normal",
        ),
        (
            "\"fan-out\"",
            "\"fan-out\"\nlevels = [1, 1]",
            "line 12, workload.levels: the pattern does not use it",
        ),
        (
            "\"fan-out\"",
            "\"iot\"\nlevels = [1, 1]",
            "line 12, workload.levels: 2 level probabilities for a tree of 4 levels",
        ),
        (
            "\"fan-out\"",
            "\"iot\"\nalpha = 1\ndepth = 2\nlevels = [1, 1]",
            "line 14, workload.levels: alpha says the same",
        ),
        (
            "messages = 20",
            "persistent = true\n[measure]\nkind = \"crash\"\nsite = \"s2\"",
            "line 13, workload.persistent: measure.kind = \"crash\"",
        ),
    ] {
        let error = Scenario::parse(&SMALL.replace(from, to)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_report_has_figures_that_are_known() {
    let text = |name: &str| format!("report = [\"delay_mean_ms\", \"{name}\"]{SMALL}");
    Scenario::parse(&text("lost_messages")).unwrap();
    let error = Scenario::parse(&text("delay")).unwrap_err();
    assert!(
        error.starts_with("line 1, report.1: delay is none of "),
        "{error}"
    );
}

#[test]
fn brokers_have_lists_of_cores_in_turn() {
    let text = SMALL.replace(
        "[[system]]",
        "[brokers]\ncores = [\"0\", \"1-2,4\"]\n[[system]]",
    );
    let limits = Scenario::parse(&text).unwrap().0.brokers;
    assert_eq!(limits.cores_of(2), Some(vec![0]));
    assert_eq!(limits.cores_of(3), Some(vec![1, 2, 4]));
    assert_eq!(Limits::default().cores_of(0), None);
    let error = Scenario::parse(&text.replace("1-2,4", "2-1")).unwrap_err();
    assert!(error.starts_with("line 8, brokers.cores.1: "), "{error}");
}

#[test]
fn keys_of_systems_and_faults_are_swept_by_place_by_name_or_all_at_once() {
    let text = format!(
        "{SMALL}[[fault]]\nat_s = 1\ndo = \"heal\"\n[[sweep]]\nkey = \"KEY\"\nvalues = VALUES\n"
    );
    let cells = |key: &str, values: &str| {
        let text = text.replace("KEY", key).replace("VALUES", values);
        Scenario::parse(&text).unwrap().1
    };
    for key in [
        "system.0.settings.routing",
        "system.mesh.settings.routing",
        "system.settings.routing",
    ] {
        let cells = cells(key, "[\"mesh\", \"topic\"]");
        let routing = &cells[1].scenario.systems[0].settings["routing"];
        assert_eq!(routing.as_str(), Some("topic"), "{key}");
    }
    let cells = cells("fault.0.at_s", "[0.5, 1.5]");
    assert_eq!(cells[1].scenario.faults[0].at_s.value(), 1.5);
}

#[test]
fn publishers_of_several_types_arrive_in_their_order() {
    let with = |keys: &str| {
        let text = SMALL.replace("rate_per_s = 10\nmessages = 20\n", "payload_bytes = 600\n");
        format!("{text}[measure]\nkind = \"arrivals\"\n{keys}\n")
    };
    let types = "types = [{ count = 2, rate_per_s = 5 }, { count = 1, rate_per_s = 50, payload_bytes = 20 }]";
    let (scenario, cells) = Scenario::parse(&with(types)).unwrap();
    let arriving = |scenario: &Scenario, seed| -> Vec<(f64, usize)> {
        let all = scenario.measure.arriving(600, seed).unwrap();
        all.iter()
            .map(|it| (it.rate_per_s, it.payload_len))
            .collect()
    };
    let given = [(5.0, 600), (5.0, 600), (50.0, 20)];
    assert_eq!(arriving(&scenario, 1), given);
    let words = scenario.explain(&cells);
    let expected = "publishers arrive, 2 of 5, 1 of 50 messages/s, 5 s apart";
    assert!(words.contains(expected), "{words}");
    let drawn = with(&format!("order = \"random\"\n{types}"));
    let (scenario, _) = Scenario::parse(&drawn).unwrap();
    assert!((1..20).any(|seed| arriving(&scenario, seed) != given));
    let heavy = with("publishers = 3\nrate_per_s = 5\nheavy_rate_per_s = 50\nheavy_at = 2");
    let (scenario, cells) = Scenario::parse(&heavy).unwrap();
    let rates = [(5.0, 600), (50.0, 600), (5.0, 600)];
    assert_eq!(arriving(&scenario, 1), rates);
    let words = scenario.explain(&cells);
    let expected = "3 publishers of 5 messages/s arrive, number 2 with 50, 5 s apart";
    assert!(words.contains(expected), "{words}");
    for (keys, expected) in [
        (
            format!("heavy_at = 1\n{types}"),
            "line 15, measure.heavy_at: measure.types say who arrives",
        ),
        (String::new(), "measure.heavy_at: it is missing"),
        ("heavy_at = 11".to_owned(), "11 is not from 1 to 10"),
        (
            "heavy_at = 1\norder = \"random\"".to_owned(),
            "line 16, measure.order: only types",
        ),
        (
            "types = [{ count = 0, rate_per_s = 5 }]".to_owned(),
            "line 15, measure.types: publishers are not from 1",
        ),
    ] {
        let error = Scenario::parse(&with(&keys)).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    }
}

const PLACED: &str = r#"
title = "t"
network = { sites = 2 }
measure = { kind = "placement" }
system = [{ name = "a", driver = "thicket", attach = "placed", max_sessions = 2 }, { name = "b", driver = "thicket", attach = "random" }]
workload = { pattern = "social", topics = 4, subscribers = 2, topics_per_subscriber = 2, alpha = 1, rate_per_s = 4, seconds = 1, placement = "random" }
"#;

#[test]
fn a_measurement_of_placement_says_how_clients_find_their_node() {
    let (scenario, cells) = Scenario::parse(PLACED).unwrap();
    let text = scenario.explain(&cells);
    assert!(text.contains("up to 2 sessions"), "{text}");
    assert!(text.contains("stay at the broker of their site"), "{text}");
    for (from, to, expected) in [
        (
            "max_sessions = 2",
            "max_sessions = 17",
            "17 is not from 1 to 16",
        ),
        (
            "attach = \"random\"",
            "max_sessions = 2",
            "max_sessions of b",
        ),
        ("attach = \"random\"", "refusals = 1", "refusals of b"),
        (
            ", attach = \"random\"",
            "",
            "system.attach of b: round-robin",
        ),
        ("attach = \"random\"", "attach = \"local\"", "pattern pair"),
        (
            "\"thicket\", attach = \"random\"",
            "\"mosquitto\", attach = \"random\"",
            "system.driver of b",
        ),
        (", placement = \"random\"", "", "workload.placement"),
        ("seconds = 1", "messages = 1", "workload.rate_per_s"),
        ("seconds = 1", "seconds = 1, qos = 1", "workload.qos"),
        (
            "seconds = 1",
            "seconds = 1, arrivals = \"poisson\"",
            "workload.arrivals: with measure.kind = placement",
        ),
        (
            "measure = { kind = \"placement\" }",
            "",
            "it is for measure.kind",
        ),
    ] {
        let error = Scenario::parse(&PLACED.replace(from, to)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn an_unknown_key_of_the_workload_is_refused_with_the_parameters_of_its_pattern() {
    for (pattern, key, expected) in [
        (
            "pair",
            "pairs",
            "line 5, workload.pairs: unknown key; the parameters of the pattern pair are publishers, the number of pairs; of every load: payload_bytes,",
        ),
        (
            "social",
            "filters",
            "workload.filters: unknown key; the parameters of the pattern social are topics, publishers, subscribers, topics_per_subscriber, alpha;",
        ),
    ] {
        let text = format!(
            "title = \"t\"\nnetwork = {{ sites = 2 }}\nsystem = [{{ name = \"a\", driver = \"thicket\" }}]\n[workload]\n{key} = 6\npattern = \"{pattern}\"\n"
        );
        let error = Scenario::parse(&text).expect_err(key);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_clients_say_reaches_the_load_generator() {
    let keys = "subscribers = 3\nqos = 1\nsubscriber_qos = 0\nretain = true\nkeep_alive_s = 30\nconnects_per_s = 50\ntopic = \"{run}/a/{n}\"\n\
                will = { payload_bytes = 20, qos = 1 }\npayload = { law = \"uniform\", min_bytes = 50, max_bytes = 99 }";
    let text = SMALL.replace("messages = 20", &format!("messages = 20\n{keys}"));
    let (scenario, _) = Scenario::parse(&text).unwrap();
    let of = |seed| super::clients(&scenario, &[], &[], &super::prefix(3, 12), seed);
    let clients = of(1);
    assert_eq!(clients.plan().unwrap().topics, ["l0003-012/a/0"]);
    assert_eq!(clients.subscriptions_qos() as u8, 0);
    assert!(clients.retain && clients.will.as_ref().unwrap().payload_len == 20);
    assert_eq!(
        (clients.keep_alive_s, clients.connects_per_s),
        (30, Some(50.0))
    );
    let sizes: Vec<usize> = (0..500)
        .map(|number| clients.payload_of(0, number))
        .collect();
    assert!(sizes.iter().all(|size| (50..=99).contains(size)));
    assert_eq!(
        (clients.payload_len, sizes[0]),
        (99, of(1).payload_of(0, 0))
    );
}

#[test]
fn what_clients_cannot_say_is_refused_with_its_key() {
    for (keys, expected) in [
        (
            "topic = \"a/{topic}\"",
            "workload.topic: '{' is not allowed",
        ),
        (
            "publishers = 2\ntopic = \"dst/mqtt/\"",
            "workload.topic: \"dst/mqtt/\" is the same for all topics",
        ),
        (
            "topic = \"dst/mqtt/\"\nretain = true",
            "workload.topic: what retained messages",
        ),
        (
            "subscriber_qos = 3",
            "workload.subscriber_qos: 3 is not 0, 1 or 2",
        ),
        (
            "will = { payload_bytes = 70000 }",
            "workload.will.payload_bytes: 70000 is above",
        ),
        (
            "keep_alive_s = 1",
            "workload.keep_alive_s: 1 is not above phases.settle_s",
        ),
        (
            "payload_bytes = 9\npayload = { law = \"uniform\", min_bytes = 50, max_bytes = 99 }",
            "workload.payload_bytes: payload says the same thing",
        ),
        (
            "retain = true\n[measure]\nkind = \"connections\"\ncount = 1",
            "workload.retain: only a load",
        ),
    ] {
        let text = SMALL.replace("messages = 20", &format!("messages = 20\n{keys}"));
        let text = text.replace("[[system]]", "[phases]\nsettle_s = 2\n[[system]]");
        let error = Scenario::parse(&text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let text = SMALL.replace("fan-out", "social").replace(
        "messages = 20",
        "messages = 20\ntopics = 3\ntopics_per_subscriber = 1\npublishers = 9\npayload_bytes = 8",
    );
    let error = Scenario::parse(&text).unwrap_err();
    assert!(
        error.contains("workload.payload_bytes: 8 is below 16, and publishers of one topic"),
        "{error}"
    );
}

#[test]
fn a_random_network_has_no_more_links_than_there_are_pairs() {
    let with = |extra: usize| {
        let random = format!("shape = \"random\"\nextra_links = {extra}");
        SMALL.replace("shape = \"full-mesh\"", &random)
    };
    Scenario::parse(&with(1)).unwrap();
    let error = Scenario::parse(&with(2)).unwrap_err();
    let expected = "line 6, network.extra_links: 2 is more than 1, what a tree of 3 sites leaves";
    assert_eq!(error, expected);
}
