//! `thicket ctl overlay` and `thicket ctl explain`: view, trees and paths.

use std::fmt::Write;

use thicket_bench::report::render;
use thicket_broker::api::overlay::{ExplanationEntry, OverlayEntry, TreeEntry};

use crate::counted;

/// View, links and trees as tables.
pub fn overview(entry: &OverlayEntry) -> String {
    let mut text = format!(
        "{} is in state {}, routes by {}, elects by {}\n\n",
        entry.node, entry.state, entry.routing, entry.root_policy
    );
    let node = |node: &thicket_broker::api::overlay::OverlayNodeEntry| {
        let root = if node.name == entry.tree.root {
            "root"
        } else {
            ""
        };
        vec![
            node.name.clone(),
            node.address.clone(),
            root.to_owned(),
            node.capability.to_string(),
            node.roots.to_string(),
            node.clients.to_string(),
            node.rate_msgs_per_s.to_string(),
            node.routing.clone().unwrap_or_else(|| "?".into()),
            node.via.clone().unwrap_or_else(|| "-".into()),
        ]
    };
    let mut rows: Vec<_> = entry.nodes.iter().map(node).collect();
    rows.sort();
    let head = [
        "NODE",
        "ADDRESS",
        "ORT",
        "CAPABILITY",
        "ROOTS",
        "CLIENTS",
        "MSGS/S",
        "ROUTING",
        "VIA",
    ];
    text.push_str(&render(&head, &rows));
    let mut rows: Vec<_> = entry
        .links
        .iter()
        .map(|link| {
            let mut row = link.nodes.to_vec();
            row.sort();
            row.push(round_trip(link.rtt_ms));
            row
        })
        .collect();
    rows.sort();
    let _ = write!(text, "\n{}", render(&["LINK", "WITH", "RTT"], &rows));
    let topics = |tree: &TreeEntry| counted(tree.topics, "topic");
    let _ = write!(
        text,
        "\nORT, {}\n{}",
        topics(&entry.tree),
        branches(&entry.tree)
    );
    for tree in &entry.topic_trees {
        let _ = write!(
            text,
            "\nt-ORT of {}, {}\n{}",
            sorted(&tree.nodes).join(", "),
            topics(tree),
            branches(tree)
        );
    }
    let counters = &entry.counters;
    let _ = writeln!(
        text,
        "\ntrees of topics here: {}; {}; converged after {} ms; {} lost, the last repair took {} ms",
        entry.topic_tree_count,
        counted(counters.elections, "election"),
        counters.convergence_ms,
        counted(counters.repairs, "node"),
        counters.last_repair_ms
    );
    text
}

/// As names of nodes are listed: the API has them in the order of identifiers.
fn sorted<T: Ord + Clone>(items: &[T]) -> Vec<T> {
    let mut items = items.to_vec();
    items.sort();
    items
}

/// A tree, one level deeper for each link.
fn branches(tree: &TreeEntry) -> String {
    let mut text = String::new();
    let edges = sorted(&tree.edges);
    let mut open = vec![(tree.root.as_str(), 0)];
    while let Some((node, depth)) = open.pop() {
        let _ = writeln!(text, "{:indent$}{node}", "", indent = 2 + depth * 2);
        // Edges are few, and a tree has no loop.
        let below = edges.iter().rev().filter(|[above, _]| above == node);
        open.extend(below.map(|[_, below]| (below.as_str(), depth + 1)));
    }
    text
}

/// The links, those of the tree in bold, for Graphviz.
pub fn dot(entry: &OverlayEntry, explanation: Option<&ExplanationEntry>) -> String {
    let mut text = String::from("graph overlay {\n");
    for node in &entry.nodes {
        let is_root = node.name == entry.tree.root;
        let is_interested =
            explanation.is_some_and(|explanation| explanation.interested.contains(&node.name));
        let shape = if is_root { "doublecircle" } else { "circle" };
        let style = if is_interested { ", style=filled" } else { "" };
        let _ = writeln!(text, "  {} [shape={shape}{style}];", quoted(&node.name));
    }
    let hops: Vec<[&String; 2]> = match explanation {
        Some(explanation) => {
            let paths = explanation
                .routes
                .iter()
                .filter(|route| route.from == explanation.node)
                .flat_map(|route| &route.paths);
            paths
                .flat_map(|path| path.iter().zip(path.iter().skip(1)).map(|(a, b)| [a, b]))
                .collect()
        }
        None => entry.tree.edges.iter().map(|[a, b]| [a, b]).collect(),
    };
    for link in &entry.links {
        let [a, b] = &link.nodes;
        let is_used = hops
            .iter()
            .any(|[from, to]| (*from == a && *to == b) || (*from == b && *to == a));
        let style = if is_used {
            ", style=bold"
        } else {
            ", style=dotted"
        };
        let _ = writeln!(
            text,
            "  {} -- {} [label=\"{}\"{style}];",
            quoted(a),
            quoted(b),
            round_trip(link.rtt_ms)
        );
    }
    text.push_str("}\n");
    text
}

/// As nodes publish it: 0 below one millisecond.
pub(super) fn round_trip(ms: f64) -> String {
    if ms == 0.0 {
        "<1 ms".to_owned()
    } else {
        format!("{ms} ms")
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Where a publication goes from each node, and why.
pub fn explanation(entry: &ExplanationEntry) -> String {
    let mut text = format!("{} by {}\n", entry.topic, entry.routing);
    let list = |names: &[String]| {
        if names.is_empty() {
            "nobody".to_owned()
        } else {
            sorted(names).join(", ")
        }
    };
    let _ = writeln!(text, "interested: {}", list(&entry.interested));
    let mut interests: Vec<_> = entry.interests.iter().collect();
    interests.sort_by_key(|interest| (&interest.node, &interest.filter));
    for interest in interests {
        let _ = writeln!(text, "  {} wants {}", interest.node, interest.filter);
    }
    let mut routes: Vec<_> = entry.routes.iter().collect();
    routes.sort_by_key(|route| &route.from);
    for route in routes {
        let root = route
            .root
            .as_ref()
            .map_or(String::new(), |root| format!(" (root {root})"));
        let _ = writeln!(text, "from {}{root}: {}", route.from, route.why);
        for path in sorted(&route.paths) {
            let _ = writeln!(text, "  {}", path.join(" -> "));
        }
    }
    let _ = writeln!(text, "PRT of {}: {}", entry.node, list(&entry.prt));
    let srt: Vec<_> = sorted(&entry.srt)
        .iter()
        .map(|[publisher, hop]| format!("{publisher} over {hop}"))
        .collect();
    let _ = writeln!(text, "SRT of {}: {}", entry.node, list(&srt));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &str, edges: &[[&str; 2]]) -> TreeEntry {
        TreeEntry {
            root: root.into(),
            nodes: Vec::new(),
            edges: edges.iter().map(|edge| edge.map(str::to_owned)).collect(),
            topics: 0,
        }
    }

    #[test]
    fn a_round_trip_below_a_millisecond_is_not_shown_as_none() {
        assert_eq!(
            [0.0, 1.5, 40.0].map(round_trip),
            ["<1 ms", "1.5 ms", "40 ms"]
        );
    }

    #[test]
    fn nodes_of_an_explanation_are_listed_by_name() {
        use thicket_broker::api::overlay::{InterestEntry, RouteEntry};
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let interest = |node: &str| InterestEntry {
            node: node.into(),
            filter: "t".into(),
        };
        let route = |from: &str| RouteEntry {
            from: from.into(),
            root: None,
            paths: vec![names(&[from, "c"]), names(&[from, "a"])],
            why: "w".into(),
        };
        let entry = ExplanationEntry {
            topic: "t".into(),
            node: "c".into(),
            routing: "r".into(),
            interested: names(&["c", "a"]),
            interests: ["c", "a"].map(interest).into(),
            routes: ["d", "b"].map(route).into(),
            prt: names(&["c", "a"]),
            srt: vec![["d".into(), "a".into()], ["b".into(), "a".into()]],
        };
        assert_eq!(
            explanation(&entry),
            "t by r\ninterested: a, c\n  a wants t\n  c wants t\n\
             from b: w\n  b -> a\n  b -> c\nfrom d: w\n  d -> a\n  d -> c\n\
             PRT of c: a, c\nSRT of c: b over a, d over a\n"
        );
    }

    #[test]
    fn a_tree_is_indented_by_depth() {
        let tree = tree("a", &[["a", "d"], ["b", "c"], ["a", "b"]]);
        assert_eq!(branches(&tree), "  a\n    b\n      c\n    d\n");
    }
}
