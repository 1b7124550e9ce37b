//! `thicket ctl explain client C`: why a client is where it is, in words.

use thicket_bench::report::render;
use thicket_broker::api::NodeEntry;
use thicket_broker::api::cluster::ClientPage;
use thicket_broker::api::redirection::{ClientExplanationEntry, RankedNodeEntry};

use super::overlay::round_trip;
use super::view::nothing;

/// Why a client is where it is. `found`: the sessions of its identifier on all nodes.
pub fn client(client: &ClientExplanationEntry, found: &ClientPage, nodes: &[NodeEntry]) -> String {
    let name = |id: &str| {
        let node = nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| id.to_owned(), |node| node.name.clone())
    };
    let place = place(client, found);
    let policy = match &client.policy {
        Some(policy) if is_by_topics(client) => {
            format!("redirection by topics, then by load with policy {policy}")
        }
        // The answer does not say whether the node goes by topics too.
        Some(policy) => format!("redirection is on, loads are compared by policy {policy}"),
        None => "redirection is off".to_owned(),
    };
    let decision = match &client.decision {
        None => "no decision about it on this node".to_owned(),
        Some(decision) => match &decision.to {
            Some(to) if decision.reason == "refused" => {
                format!("refused: its topics are at {}", name(to))
            }
            Some(to) => format!("sent to {}: {}", name(to), reason(&decision.reason)),
            None => format!("served: {}", reason(&decision.reason)),
        },
    };
    let mut text = format!("{}: {place}\n{policy}\n{decision}\n", client.client_id);
    if let Some(last) = &client.moved {
        let outcome = match last.outcome.as_str() {
            "followed" => "it followed",
            "ignored" => "it came back instead",
            _ => "this node does not know whether it followed",
        };
        text.push_str(&format!(
            "moved from {} to {} at {}: {}; {outcome}\n",
            name(&last.from),
            name(&last.to),
            clock(last.at_ms),
            reason(&last.reason)
        ));
    }
    if let Some((of, number)) = client.placed_client_id.as_ref().zip(client.placed_session) {
        text.push_str(&format!("placed: session {number} of {of}\n\n"));
        let sessions = client.placed_sessions.iter();
        let rows = sessions.map(|session| vec![session.client_id.clone(), name(&session.node)]);
        text.push_str(&render(&["SESSION", "NODE"], &rows.collect::<Vec<_>>()));
    }
    if let Some(learned) = &client.learned {
        text.push_str(&format!(
            "learned: publishes to {}, receives {}; {} {}; refused {} times since it was served\n",
            some_of(&learned.publish),
            some_of(&learned.subscribe),
            if learned.refused > 0 {
                "should connect to"
            } else {
                "was last at"
            },
            name(&learned.node),
            learned.refused
        ));
    }
    if !client.nodes.is_empty() {
        text.push('\n');
        text.push_str(&ranked(&client.nodes, name));
    }
    text
}

/// Whether what the node answers about a client is there only with `redirect = "topics"`.
fn is_by_topics(client: &ClientExplanationEntry) -> bool {
    let of_topics = ["topics", "refused", "refused_enough"];
    let decision = client.decision.as_ref();
    client.learned.is_some()
        || decision.is_some_and(|decision| of_topics.contains(&decision.reason.as_str()))
}

/// Nodes by name, with their loads, and how far they are from the node that answers.
fn ranked(nodes: &[RankedNodeEntry], name: impl Fn(&str) -> String) -> String {
    let row = |node: &RankedNodeEntry| {
        let rtt = node.round_trip_ms.map(round_trip);
        vec![
            name(&node.id),
            format!("{:.2}", node.score),
            node.site.clone().unwrap_or_else(nothing),
            rtt.unwrap_or_else(nothing),
            node.price_per_gb.to_string(),
            format!("{:.1}", node.message_cost),
        ]
    };
    let head = ["NODE", "LOAD", "SITE", "RTT", "PRICE/GB", "MESSAGE COST"];
    let mut rows: Vec<_> = nodes.iter().map(row).collect();
    rows.sort();
    render(&head, &rows)
}

/// Which node has the session of a client.
fn place(client: &ClientExplanationEntry, found: &ClientPage) -> String {
    let mut elsewhere: Vec<&str> = found.clients.iter().map(|it| it.node.as_str()).collect();
    elsewhere.sort_unstable();
    elsewhere.dedup();
    let mut text = match &elsewhere[..] {
        _ if client.is_here => return "its session is on this node".to_owned(),
        [] => "no node has a session of this client".to_owned(),
        [node] => format!("its session is on {node}, which knows more of it: --node {node}"),
        several => format!(
            "users with this identifier have sessions on {}",
            several.join(", ")
        ),
    };
    for missing in &found.unanswered {
        text.push_str(&format!(
            "; {} did not answer: {}",
            missing.node, missing.why
        ));
    }
    text
}

/// The first of these topics, and how many more there are.
fn some_of(topics: &[String]) -> String {
    const SHOWN: usize = 3;
    match topics.len() {
        0 => "nothing".to_owned(),
        count if count <= SHOWN => topics.join(", "),
        count => format!("{} and {} more", topics[..SHOWN].join(", "), count - SHOWN),
    }
}

/// Time of day, UTC.
fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1000 % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

fn reason(word: &str) -> &str {
    match word {
        "rebalanced" => "by the rebalancer",
        "topics" => "its topics are there",
        "load" | "moved" => "that node had less load",
        "drained" => "this node is drained",
        "balanced" => "no node had less load by the required margin",
        "came_redirected" => "it was redirected already",
        "does_not_follow" => "it came back instead of following",
        "placed" => "its topics are here",
        "refused_enough" => "its topics are elsewhere, but it was refused often enough",
        "version" => "before MQTT 5.0 there is no Server Reference",
        "no_address" => "no other node has a listener like the one it came in at",
        "budget" => "the limit of redirections in that second was reached",
        "unsure" => "this node did not know the load of the others",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use thicket_broker::api::redirection::DecisionEntry;

    use super::*;

    #[test]
    fn nodes_are_listed_by_name() {
        let node = |id: &str| RankedNodeEntry {
            id: id.into(),
            score: 0.0,
            site: None,
            round_trip_ms: None,
            price_per_gb: 0.0,
            message_cost: 1.0,
        };
        // Identifiers come in another order than names.
        let nodes = ["1c", "2a", "3b"].map(node);
        let text = ranked(&nodes, |id| format!("node-{}", &id[1..]));
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(names, ["NODE", "node-a", "node-b", "node-c"]);
    }

    #[test]
    fn an_explanation_says_by_what_a_client_is_redirected() {
        let explanation = |policy: Option<&str>, reason: &str| ClientExplanationEntry {
            client_id: "c".into(),
            is_here: true,
            placed_client_id: None,
            placed_session: None,
            placed_sessions: Vec::new(),
            learned: None,
            policy: policy.map(str::to_owned),
            decision: Some(DecisionEntry {
                at_ms: 0,
                redirected: true,
                reason: reason.into(),
                to: Some("n".into()),
            }),
            moved: None,
            nodes: Vec::new(),
        };
        let found = ClientPage {
            clients: Vec::new(),
            next: None,
            unanswered: Vec::new(),
        };
        for (policy, reason, expected) in [
            (
                Some("combined"),
                "topics",
                "redirection by topics, then by load with policy combined",
            ),
            (
                Some("combined"),
                "load",
                "redirection is on, loads are compared by policy combined",
            ),
            (None, "drained", "redirection is off"),
        ] {
            let text = client(&explanation(policy, reason), &found, &[]);
            assert_eq!(text.lines().nth(1), Some(expected), "{text}");
        }
    }
}
