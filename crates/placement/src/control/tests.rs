use super::*;

fn control(nodes: &[u64]) -> ControlPlane {
    ControlPlane::new(&nodes.iter().copied().collect(), 1.1).unwrap()
}

fn asked(client_id: &str, publish: &[&str], subscribe: &[&str], max_sessions: usize) -> Asked {
    let wanted = |filter: &&str| Wanted {
        filter: (*filter).to_owned(),
        best: None,
        rate: None,
    };
    Asked {
        client_id: client_id.to_owned(),
        publish: publish
            .iter()
            .map(|it| ((*it).to_owned(), Some(1.0)))
            .collect(),
        subscribe: subscribe.iter().map(wanted).collect(),
        max_sessions,
        home: None,
    }
}

fn place(control: &mut ControlPlane, asked: &Asked) -> Placement {
    control.place(asked).unwrap().swap_remove(0)
}

fn node_of<'a>(placement: &'a Placement, topic: &str) -> &'a PlacedSession {
    let has = |session: &&PlacedSession| {
        let mut all = session.publish.iter().chain(&session.subscribe);
        all.any(|(name, _)| name == topic)
    };
    placement.sessions.iter().find(has).expect("it is placed")
}

#[test]
fn topics_that_no_client_has_any_more_are_forgotten() {
    let mut control = control(&[1, 2]);
    control.place(&asked("stays", &["common"], &[], 1)).unwrap();
    for round in 0..100 {
        let (one, other) = (format!("a/{round}"), format!("b/{round}/+"));
        control
            .place(&asked("changes", &[&one, "common"], &[&other], 2))
            .unwrap();
        assert_eq!(control.topic_count(), 3, "{round}");
    }
    assert_eq!(control.cluster().topic_count(), 5, "numbers are used again");
    assert!(control.remove("changes"));
    assert_eq!(control.topic_count(), 1);
    let placed = control
        .place(&asked("late", &["a/7"], &["common"], 2))
        .unwrap();
    let late = placed.iter().find(|it| it.client_id == "late").unwrap();
    let topics: Vec<_> = late
        .sessions
        .iter()
        .flat_map(|it| it.publish.iter().chain(&it.subscribe))
        .map(|it| it.0.as_str())
        .collect();
    assert_eq!(topics.len(), 2, "{topics:?}");
}

#[test]
fn a_subscriber_comes_where_its_topics_are_published() {
    let mut control = control(&[10, 20, 30]);
    for number in 0..6 {
        let topic = format!("t{number}");
        place(
            &mut control,
            &asked(&format!("p{number}"), &[&topic], &[], 1),
        );
    }
    let placement = place(&mut control, &asked("s", &[], &["t0", "t1", "t2"], 4));
    assert!(placement.sessions.len() <= 4);
    assert_eq!(placement.sessions[0].number, 1);
    assert_eq!(control.cluster().internal(), 0.0, "{placement:?}");
}

#[test]
fn a_client_that_may_have_more_sessions_than_before_is_placed_anew() {
    let mut control = control(&[1, 2, 3]);
    let topics = ["a", "b", "c"];
    for topic in topics {
        place(&mut control, &asked(&format!("p{topic}"), &[topic], &[], 1));
        place(&mut control, &asked(&format!("s{topic}"), &[], &[topic], 1));
    }
    let with = |control: &mut ControlPlane, count| {
        place(control, &asked("x", &[], &topics, count))
            .sessions
            .len()
    };
    assert_eq!(with(&mut control, 1), 1);
    assert_eq!(with(&mut control, 4), 3);
    assert_eq!(control.cluster().internal(), 0.0);
    // Fewer again: what is over the limit moves, the rest stays.
    assert_eq!(with(&mut control, 2), 2);
}

#[test]
fn a_further_session_never_has_the_name_of_another_client() {
    let mut control = control(&[1, 2, 3]);
    let topics = ["t1", "t2", "t3"];
    for (name, topic) in ["c~2", "a", "b"].into_iter().zip(topics) {
        place(&mut control, &asked(name, &[topic], &[], 1));
    }
    let placement = place(&mut control, &asked("c", &[], &topics, 3));
    let numbers: Vec<u16> = placement.sessions.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [1, 3, 4], "{placement:?}");
    let refused = control.place(&asked("c~3", &["t"], &[], 1)).unwrap_err();
    assert_eq!(refused.parameter, "client_id");
    // That of no session, and the client that was there before.
    for name in ["c~2", "c~5", "c~x", "d~2"] {
        control.place(&asked(name, &["t"], &[], 1)).unwrap();
    }
}

#[test]
fn a_client_has_no_more_sessions_than_it_may_and_at_least_one() {
    let mut control = control(&[1, 2, 3, 4]);
    let topics: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    for (number, topic) in topics.iter().enumerate() {
        place(
            &mut control,
            &asked(&format!("p{number}"), &[topic], &[], 1),
        );
    }
    for max_sessions in [4, 2, 1] {
        let placement = place(&mut control, &asked("s", &[], &topics, max_sessions));
        assert!(placement.sessions.len() <= max_sessions);
        let all = placement.sessions.iter().map(|it| it.subscribe.len());
        assert_eq!(all.sum::<usize>(), 40);
    }
    let placement = place(&mut control, &asked("idle", &[], &[], 4));
    assert_eq!(placement.sessions.len(), 1);
}

#[test]
fn asking_again_keeps_what_stays_with_its_session_and_number() {
    let mut control = control(&[1, 2, 3]);
    for (client, topic) in [("a", "x"), ("b", "y"), ("c", "z")] {
        place(&mut control, &asked(client, &[topic], &[], 1));
    }
    let first = place(&mut control, &asked("s", &[], &["x", "y"], 4));
    let again = place(&mut control, &asked("s", &[], &["x", "y"], 4));
    assert_eq!(first, again);
    let more = place(&mut control, &asked("s", &[], &["y", "z", "x"], 4));
    for topic in ["x", "y"] {
        let (before, after) = (node_of(&first, topic), node_of(&more, topic));
        assert_eq!((before.node, before.number), (after.node, after.number));
    }
    assert!(control.remove("s") && !control.remove("s"));
    assert_eq!(control.placement("s"), None);
}

#[test]
fn a_filter_with_wildcards_stays_whole_where_it_is_best() {
    let mut control = control(&[1, 2, 3]);
    let mut asked = asked("s", &[], &["site/+/t", "other"], 2);
    asked.subscribe[0].best = Some(3);
    let placement = place(&mut control, &asked);
    assert_eq!(node_of(&placement, "site/+/t").node, 3);
}

#[test]
fn a_subscriber_comes_where_clients_that_are_not_placed_publish_its_topics() {
    let mut control = control(&[1, 2, 3]);
    let topics = ["x", "y", "z"];
    let published_at = |asked: &mut Asked| {
        for (wanted, node) in asked.subscribe.iter_mut().zip([3, 1, 2]) {
            wanted.best = Some(node);
            wanted.rate = Some(50.0);
        }
    };
    let mut many = asked("many", &[], &topics, 4);
    published_at(&mut many);
    let placement = place(&mut control, &many);
    let nodes = topics.map(|topic| node_of(&placement, topic).node);
    assert_eq!(nodes, [3, 1, 2]);
    // Nodes with loads that differ, within gamma.
    for (node, count) in [(1, 107), (2, 100), (3, 93)] {
        let names: Vec<String> = (0..count).map(|it| format!("{node}/{it}")).collect();
        let client = seen(&format!("load-{node}"), node, &names, &names);
        control.restore(&client).unwrap();
    }
    let mut one = asked("one", &[], &["u"], 1);
    one.subscribe[0].best = Some(1);
    let placement = place(&mut control, &one);
    assert_eq!(node_of(&placement, "u").node, 1, "the load matters less");
    // Where it is subscribed to, it is as well.
    let elsewhere = seen("elsewhere", 3, &[], &["v".to_owned()]);
    control.restore(&elsewhere).unwrap();
    let mut late = asked("late", &[], &["v"], 1);
    late.subscribe[0].best = Some(1);
    let placement = place(&mut control, &late);
    assert_eq!(node_of(&placement, "v").node, 3);
    // A publisher that is placed follows: its place counts.
    place(&mut control, &near(2, asked("p", &["w"], &[], 1)));
    let at = only_node_of(&control, "p");
    let mut last = asked("last", &[], &["w"], 1);
    last.subscribe[0].best = Some(at % 3 + 1);
    let placement = place(&mut control, &last);
    let publisher = control.placement("p").unwrap();
    assert_eq!(node_of(&placement, "w").node, node_of(publisher, "w").node);
}

#[test]
fn a_subscriber_goes_to_publishers_that_were_only_seen_and_others_follow_it() {
    for is_only_seen in [true, false] {
        let mut control = control(&[1, 2, 3]);
        // Node 1 has most load, within gamma.
        for (node, count) in [(1, 109), (2, 106), (3, 85)] {
            let names: Vec<String> = (0..count).map(|it| format!("{node}/{it}")).collect();
            let load = seen(&format!("load-{node}"), node, &names, &names);
            control.restore(&load).unwrap();
        }
        let publisher = seen("p", 1, &["t".to_owned()], &[]);
        if is_only_seen {
            control.restore_seen(&publisher).unwrap();
        } else {
            control.restore(&publisher).unwrap();
        }
        let changed = control.place(&asked("s", &[], &["t"], 1)).unwrap();
        let node = changed[0].sessions[0].node;
        let follows = changed.iter().any(|it| it.client_id == "p");
        assert_eq!(
            (node, follows),
            if is_only_seen { (1, false) } else { (3, true) }
        );
        assert_eq!(control.cluster().internal(), 0.0);
    }
}

#[test]
fn a_publisher_that_follows_has_no_more_sessions_than_it_asked_for() {
    let mut control = control(&[1, 2, 3]);
    for number in 0..90 {
        let topic = format!("idle/{number}");
        place(&mut control, &asked(&topic, &[&topic], &[], 1));
    }
    for topics in [["a", "b"], ["c", "d"], ["e", "f"]] {
        place(&mut control, &asked(topics[0], &topics, &[], 1));
    }
    // Two sessions at three nodes: `a` costs least where it is not published, if its publisher followed.
    let subscriber = asked("s", &[], &["a", "c", "d", "e", "f"], 2);
    let placement = place(&mut control, &subscriber);
    assert_eq!(placement.sessions.len(), 2);
    let publisher = control.placement("a").unwrap();
    let node = |topic| node_of(&placement, topic).node;
    assert_ne!(node("a"), node_of(publisher, "b").node);
    assert_eq!(publisher.sessions.len(), 1, "{publisher:?}");
    // One that may have two sessions follows.
    place(&mut control, &asked("a", &["a", "b"], &[], 2));
    assert!(control.remove("s"));
    control.place(&subscriber).unwrap();
    assert_eq!(control.placement("a").unwrap().sessions.len(), 2);
    assert_eq!(control.cluster().internal(), 0.0);
}

#[test]
fn whoever_takes_over_goes_on_from_the_placements_it_knows() {
    let mut first = control(&[1, 2, 3]);
    let mut known = BTreeMap::new();
    for number in 0..9 {
        let topic = format!("t{}", number % 3);
        let ask = asked(&format!("c{number}"), &[&topic], &[&topic], 2);
        for placement in first.place(&ask).unwrap() {
            known.insert(placement.client_id.clone(), placement);
        }
    }
    // A node is gone: what was there is placed again when it is asked for, the rest stays.
    let mut second = control(&[1, 3]);
    for placement in known.values() {
        second.restore(placement).unwrap();
    }
    for number in 0..9 {
        let topic = format!("t{}", number % 3);
        let name = format!("c{number}");
        let before = &known[&name];
        let after = place(&mut second, &asked(&name, &[&topic], &[&topic], 2));
        let was = node_of(before, &topic).node;
        let is = node_of(&after, &topic).node;
        assert!(is == was || was == 2, "{before:?} -> {after:?}");
        assert_eq!(after.sessions[0].number, 1);
    }
    assert!(second.cluster().internal() <= 4.0, "scattered it is 12");
}

/// One session at a node with these topics, a message a second of each.
fn seen(client_id: &str, node: u64, publish: &[String], subscribe: &[String]) -> Placement {
    let rated = |all: &[String]| all.iter().map(|it| (it.clone(), 1.0)).collect();
    let session = PlacedSession {
        number: 1,
        node,
        publish: rated(publish),
        subscribe: rated(subscribe),
    };
    Placement {
        client_id: client_id.to_owned(),
        sessions: vec![session],
    }
}

#[test]
fn a_node_is_better_for_a_client_where_it_saves_messages_and_has_capacity() {
    let mut control = control(&[1, 2, 3]);
    let topic = |name: &str| vec![name.to_owned()];
    for (name, node) in [("x", 2), ("y", 1), ("z", 3)] {
        let publisher = seen(&format!("publishes-{name}"), node, &topic(name), &[]);
        control.restore(&publisher).unwrap();
        let subscriber = seen(&format!("wants-{name}"), node, &[], &topic(name));
        control.restore(&subscriber).unwrap();
    }
    control.restore(&seen("c", 1, &[], &topic("x"))).unwrap();
    let internal = control.cluster().internal();
    // One other subscriber: (1 + 1)^-0.3.
    for at in [1, 3] {
        let better = control.better_node("c", at).unwrap();
        assert!(
            better.node == 2 && (0.81..0.82).contains(&better.saves),
            "{better:?}"
        );
    }
    assert_eq!(control.better_node("c", 2), None, "it is the best");
    assert_eq!(control.better_node("unknown", 1), None);
    assert_eq!(
        control.cluster().internal(),
        internal,
        "nothing has changed"
    );
    for more in 0..3 {
        let crowd = seen(&format!("crowd-{more}"), 2, &[], &topic("x"));
        control.restore(&crowd).unwrap();
    }
    assert_eq!(control.better_node("c", 1), None, "node 2 is above gamma");
    let silent = seen("silent", 1, &topic("nobody wants it"), &[]);
    control.restore(&silent).unwrap();
    assert_eq!(control.better_node("silent", 2), None, "nothing to save");
}

/// Clients connect again one after the other, each to nodes drawn at random: a node that has a better one refuses it, up to a limit. Messages
/// between nodes before and after, and the mean number of refusals of a client.
fn come_back(clients: &[Placement], refusals: u32, rounds: u32) -> (f64, f64, f64) {
    let mut control = control(&[1, 2, 3, 4]);
    let mut random = crate::Random::new(1, 0);
    let mut draw = || 1 + random.below(4) as u64;
    for client in clients {
        let mut client = client.clone();
        client.sessions[0].node = draw();
        control.restore(&client).unwrap();
    }
    let before = control.cluster().internal();
    let mut refused = 0;
    for _ in 0..rounds {
        for client in clients {
            let mut left = refusals;
            let mut node = draw();
            while left > 0 && control.better_node(&client.client_id, node).is_some() {
                (left, node, refused) = (left - 1, draw(), refused + 1);
            }
            let mut client = client.clone();
            client.sessions[0].node = node;
            control.restore(&client).unwrap();
        }
    }
    let came = f64::from(rounds) * clients.len() as f64;
    let after = control.cluster().internal();
    (before, after, f64::from(refused) / came)
}

#[test]
fn clients_that_are_refused_where_they_cost_much_halve_the_traffic_between_nodes() {
    let mut random = crate::Random::new(2, 0);
    let mut clients: Vec<Placement> = (0..400)
        .map(|topic| seen(&format!("p{topic}"), 1, &[format!("{topic}")], &[]))
        .collect();
    clients.extend((0..400).map(|topic| seen(&format!("s{topic}"), 1, &[], &[format!("{topic}")])));
    random.shuffle(&mut clients);
    let (before, never, none) = come_back(&clients, 0, 2);
    assert!(never > 0.9 * before && none == 0.0, "{before} {never}");
    let (before, after, refused) = come_back(&clients, 8, 2);
    assert!(after < 0.5 * before && refused < 3.0, "{after} {refused}");
    // The social network of Fig. 22.
    let mut shares = crate::zipf(1000, 1.13);
    for index in 1..shares.len() {
        shares[index] += shares[index - 1];
    }
    let mut draw = || {
        let unit = random.unit();
        shares.iter().position(|share| unit < *share).unwrap_or(999)
    };
    let mut clients: Vec<Placement> = (0..1000)
        .map(|topic| seen(&format!("p{topic}"), 1, &[format!("{topic}")], &[]))
        .collect();
    clients.extend((0..100).map(|subscriber| {
        let mut wanted = BTreeSet::new();
        while wanted.len() < 10 {
            wanted.insert(draw().to_string());
        }
        let wanted: Vec<String> = wanted.into_iter().collect();
        seen(&format!("s{subscriber}"), 1, &[], &wanted)
    }));
    random.shuffle(&mut clients);
    let (before, after, refused) = come_back(&clients, 12, 2);
    assert!(
        after < 0.55 * before && refused < 1.0,
        "{before} {after} {refused}"
    );
}

#[test]
fn publishers_of_a_topic_that_do_not_know_their_rates_do_not_double_it() {
    let mut control = control(&[1, 2, 3]);
    let mut unknown = asked("p0", &["t"], &[], 1);
    unknown.publish[0].1 = None;
    for number in 0..30 {
        unknown.client_id = format!("p{number}");
        control.place(&unknown).unwrap();
        control.place(&unknown).unwrap();
    }
    assert_eq!(control.cluster().total_load(Dimension::Input), 30.0);
}

#[test]
fn a_rate_that_is_none_is_refused_by_its_name() {
    let mut control = control(&[1]);
    let mut bad = asked("c", &["t"], &[], 1);
    bad.publish[0].1 = Some(f64::NAN);
    let error = control.place(&bad).unwrap_err().to_string();
    assert!(error.contains("rate"), "{error}");
    assert_eq!(control.placement("c"), None);
}

/// Nodes 1 and 2 are at one site, 3 and 4 at another one, 20 messages away.
fn two_sites() -> ControlPlane {
    let mut control = control(&[1, 2, 3, 4]);
    let site = |node: u64| (node - 1) / 2;
    let cost = |from, to| if site(from) == site(to) { 1.0 } else { 20.0 };
    control.set_costs(cost).unwrap();
    // Enough load everywhere that one client more is fair.
    for number in 0..40 {
        let topic = format!("load/{number}");
        let load = asked(&format!("load-{number}"), &[&topic], &[&topic], 1);
        control.place(&load).unwrap();
    }
    control
}

fn near(home: u64, asked: Asked) -> Asked {
    Asked {
        home: Some(home),
        ..asked
    }
}

fn only_node_of(control: &ControlPlane, client_id: &str) -> u64 {
    control.placement(client_id).unwrap().sessions[0].node
}

#[test]
fn a_client_stays_at_the_site_where_it_asks_and_goes_to_its_topics_within_it() {
    let mut control = two_sites();
    let there = near(3, asked("there", &["t"], &["t"], 1));
    control.place(&there).unwrap();
    assert_eq!(
        only_node_of(&control, "there"),
        3,
        "no other node is nearer"
    );
    control
        .place(&near(1, asked("here", &[], &["t"], 1)))
        .unwrap();
    assert_eq!(
        only_node_of(&control, "here"),
        1,
        "one copy comes from the other site"
    );
    // Node 1 has the topic now, and is as near as node 2 to any client that asks there.
    control
        .place(&near(2, asked("beside", &[], &["t"], 1)))
        .unwrap();
    assert!([1, 2].contains(&only_node_of(&control, "beside")));
    // It asks again, at a node far away.
    control
        .place(&near(4, asked("here", &[], &["t", "u"], 4)))
        .unwrap();
    let nodes = control.placement("here").unwrap().sessions.iter();
    assert!(nodes.map(|session| session.node).all(|node| node < 3));
    // A client that asks from nowhere goes to its topic, as before.
    control.place(&asked("anywhere", &[], &["t"], 1)).unwrap();
    assert_ne!(only_node_of(&control, "anywhere"), 4, "nobody has it there");
}

#[test]
fn a_filter_with_wildcards_goes_to_what_it_matches_only_within_the_site() {
    let mut control = two_sites();
    let wild = |client_id: &str, home, best| {
        let mut wild = near(home, asked(client_id, &[], &["w/#"], 1));
        wild.subscribe[0].best = Some(best);
        wild
    };
    control.place(&wild("far", 1, 4)).unwrap();
    assert!(only_node_of(&control, "far") < 3);
    control.place(&wild("near", 1, 2)).unwrap();
    assert_eq!(only_node_of(&control, "near"), 2);
}

/// Three nodes with as much load each, in messages a second, and a dashboard of `filter`. Where the dashboard is.
fn dashboard(filter: &str, load: u32) -> (ControlPlane, u64) {
    let mut control = control(&[1, 2, 3]);
    for number in 0..load {
        let name = format!("load-{number}");
        let topic = [format!("load/{number}")];
        let node = u64::from(number % 3) + 1;
        control.restore(&seen(&name, node, &topic, &topic)).unwrap();
    }
    let dash = place(&mut control, &asked("dash", &[], &[filter], 4));
    (control, dash.sessions[0].node)
}

fn input_of(control: &ControlPlane) -> (Vec<f64>, f64) {
    let input = control.cluster().loads(Dimension::Input).to_vec();
    let mean = input.iter().sum::<f64>() / input.len() as f64;
    (input, mean)
}

#[test]
fn publishers_go_to_a_node_with_a_filter_with_wildcards_that_matches() {
    let (mut control, dash) = dashboard("hall/+/power", 300);
    for number in 0..12 {
        let name = format!("p{number}");
        let (power, other) = (format!("hall/{number}/power"), format!("hall/{number}"));
        control.place(&asked(&name, &[&power], &[], 4)).unwrap();
        assert_eq!(only_node_of(&control, &name), dash, "{number}");
        let name = format!("unmatched-{number}");
        control.place(&asked(&name, &[&other], &[], 4)).unwrap();
    }
    let mut others = (0..12).map(|it| only_node_of(&control, &format!("unmatched-{it}")));
    assert!(others.any(|node| node != dash), "these go by load");
    // One that a client wants by its name goes there.
    let away = dash % 3 + 1;
    let wants = seen("wants", away, &[], &["hall/x/power".to_owned()]);
    control.restore(&wants).unwrap();
    control
        .place(&asked("x", &["hall/x/power"], &[], 4))
        .unwrap();
    assert_eq!(only_node_of(&control, "x"), away);
    // When the dashboard leaves, nothing attracts any more.
    assert!(control.remove("dash"));
    for number in 0..12 {
        let (name, topic) = (format!("q{number}"), format!("hall/q{number}/power"));
        control.place(&asked(&name, &[&topic], &[], 4)).unwrap();
    }
    let mut late = (0..12).map(|it| only_node_of(&control, &format!("q{it}")));
    assert!(late.any(|node| node != dash));
}

#[test]
fn a_dashboard_attracts_the_first_publishers_of_a_cluster_too() {
    let (mut control, dash) = dashboard("hall/+/power", 0);
    let mut at_dash = 0;
    for number in 0..60 {
        let (name, topic) = (format!("p{number}"), format!("hall/{number}/power"));
        control.place(&asked(&name, &[&topic], &[], 4)).unwrap();
        at_dash += u32::from(only_node_of(&control, &name) == dash);
    }
    // Gamma is 1.1, and the mean is 20.
    assert!((20..=22).contains(&at_dash), "{at_dash}");
}

#[test]
fn a_filter_that_matches_everything_pulls_no_node_above_gamma() {
    // With hardly any load, and a rate of the filter that is as high as that of all publishers.
    let (mut control, dash) = dashboard("#", 0);
    let mut wild = asked("dash", &[], &["#"], 4);
    wild.subscribe[0].rate = Some(600.0);
    control.place(&wild).unwrap();
    for number in 0..600 {
        let (name, topic) = (format!("p{number}"), format!("hall/{number}/power"));
        control.place(&asked(&name, &[&topic], &[], 4)).unwrap();
        let (input, mean) = input_of(&control);
        let at_dash = input[dash as usize - 1];
        // The first ones are more than a tenth each.
        assert!(at_dash <= (1.1 * mean).max(10.0), "{number}: {input:?}");
    }
    let (input, mean) = input_of(&control);
    let at_dash = input[dash as usize - 1];
    assert!(at_dash > 1.05 * mean, "it prefers that node: {input:?}");
    // Clients with several topics and one session.
    for number in 0..40 {
        let topics: Vec<String> = (0..30).map(|it| format!("one/{number}/{it}")).collect();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let name = format!("one-{number}");
        control.place(&asked(&name, &topics, &[], 1)).unwrap();
        let (input, mean) = input_of(&control);
        let at_dash = input[dash as usize - 1];
        assert!(at_dash <= 1.1 * mean, "{number}: {input:?}");
    }
    // One client with many topics.
    let topics: Vec<String> = (0..300).map(|it| format!("many/{it}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    control.place(&asked("many", &topics, &[], 4)).unwrap();
    let (input, mean) = input_of(&control);
    let at_dash = input[dash as usize - 1];
    assert!(at_dash <= 1.1 * mean, "{input:?}");
}

#[test]
fn a_client_that_was_learned_is_not_sent_to_another_site() {
    let mut control = two_sites();
    control
        .place(&near(3, asked("p", &["t"], &["t"], 1)))
        .unwrap();
    control.place(&asked("c", &[], &["t"], 1)).unwrap();
    assert_eq!(control.better_node("c", 1), None);
    control.set_costs(|_, _| 1.0).unwrap();
    assert_eq!(
        control.better_node("c", 1).map(|better| better.node),
        Some(3)
    );
    assert!(control.set_costs(|_, _| 0.5).is_err());
}
