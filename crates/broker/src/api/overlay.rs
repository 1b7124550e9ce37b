//! The answers about view, trees and paths. A node is given by its name; where two share a name, by its identity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thicket_overlay::{Explanation, LinkCounters, NodeId, OverlayCounters, Overview, OverviewTree};
use utoipa::ToSchema;

/// `GET /v1/overlay`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Overlay)]
pub struct OverlayEntry {
    /// The node that answers.
    pub node: String,
    /// The phase of the overlay at this node: `discovery`, `creation` or `runtime`.
    pub state: String,
    /// The routing mode of this node: `mesh`, `topic`, `tree` or `flood`.
    pub routing: String,
    /// How roots of trees are elected: by `capacity`, `balance` or `delay`.
    pub root_policy: String,
    /// All nodes that this one can reach, itself included.
    pub nodes: Vec<OverlayNodeEntry>,
    /// The links between them, of which both ends tell.
    pub links: Vec<OverlayLinkEntry>,
    /// The tree of all nodes (ORT).
    pub tree: TreeEntry,
    /// The topic trees that this node has named, without the tree of all nodes.
    pub topic_trees: Vec<TreeEntry>,
    /// How many topic trees this node knows, including those over which it only relays.
    pub topic_tree_count: usize,
    /// Bytes of memory that they take at this node, about.
    pub topic_tree_bytes: usize,
    /// How many topics other nodes have advertised (SRT).
    pub advertised_topics: usize,
    /// What has happened since this node started.
    pub counters: OverlayCountersEntry,
    /// What the links of this node have carried, by the node at the other end.
    pub traffic: Vec<LinkTrafficEntry>,
}

/// A node of the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverlayNode)]
pub struct OverlayNodeEntry {
    /// The name that it is configured with.
    pub name: String,
    /// Its identity, hexadecimal.
    pub id: String,
    /// HOST:PORT where other nodes dial it.
    pub address: String,
    /// Its capability: alpha times free CPU plus beta times free memory, in percent.
    pub capability: u64,
    /// How many topic trees it is the root of.
    pub roots: u64,
    /// How many clients are connected to it.
    pub clients: u64,
    /// Messages a second that its clients publish.
    pub rate_msgs_per_s: u64,
    /// Its routing mode; none: it has not told.
    #[schema(required)]
    pub routing: Option<String>,
    /// The next node towards it, if it has no link with the one that answers.
    #[schema(required)]
    pub via: Option<String>,
}

/// A link of the view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverlayLink)]
pub struct OverlayLinkEntry {
    /// Both ends.
    pub nodes: [String; 2],
    /// Round trip in milliseconds, as the nodes publish it: in steps; 0 below one millisecond, and until it is measured.
    pub rtt_ms: f64,
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tree)]
pub struct TreeEntry {
    /// Its root.
    pub root: String,
    /// All nodes in it.
    pub nodes: Vec<String>,
    /// Its links; of each, the node nearer to the root first.
    pub edges: Vec<[String; 2]>,
    /// How many topics there are whose last publication from the node that answers went over it.
    pub topics: usize,
}

/// What has happened in the overlay since the node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverlayCounters)]
pub struct OverlayCountersEntry {
    /// How often another root of the tree of all nodes was elected.
    pub elections: u64,
    /// Milliseconds from the start of the node to the first tree of all reachable nodes on which they agreed; 0 before that.
    pub convergence_ms: u64,
    /// How many nodes were lost and repaired: trees were computed without them.
    pub repairs: u64,
    /// Milliseconds that the last repair took.
    pub last_repair_ms: u64,
    /// Milliseconds that all repairs took together.
    pub repair_ms: u64,
    /// How many sets of nodes got no tree of their own, because the number of trees is at its limit: the tree of all nodes is used.
    pub refused_trees: u64,
    /// How many hellos were answered within 1, 3, 10, 30, 100, 300, 1000 and 10,000 ms, each beyond the one before.
    pub round_trips: [u64; 8],
    /// How many hellos were answered.
    pub round_trip_count: u64,
    /// Microseconds that their round trips took together.
    pub round_trip_us: u64,
    /// How many handshakes were refused: of strangers, other clusters or versions, without proof, or with an identity that is in use.
    pub refused_links: u64,
    /// How many records of nodes came that were known already, or older.
    pub repeated_records: u64,
    /// How many records came that name the node that answers, and were not written by it.
    pub altered_records: u64,
    /// Messages of other nodes that could not be read: dropped, and refused to their publishers.
    #[serde(default)]
    pub unreadable_messages: u64,
    /// Messages of other nodes that this one relayed over trees.
    pub relayed_messages: u64,
    /// Their bytes.
    pub relayed_bytes: u64,
    /// Messages of QoS 0 of other nodes that were not relayed, because the next link was over its limit.
    pub relay_drops: u64,
    /// Messages that were not relayed because this node knew no path, or should not have received them; their origin sends them again.
    pub relay_misses: u64,
    /// How many tunnels were opened to nodes without a link.
    pub tunnels: u64,
}

/// What the links with one node carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LinkTraffic)]
pub struct LinkTrafficEntry {
    /// The node at the other end.
    pub node: String,
    /// Publications sent to it.
    pub data_out_messages: u64,
    /// The PUBLISH packets that they were sent in.
    pub data_out_batches: u64,
    /// Bytes of these packets.
    pub data_out_bytes: u64,
    /// Publications received from it.
    pub data_in_messages: u64,
    /// Bytes of the packets that they were received in.
    pub data_in_bytes: u64,
    /// Bytes sent to it that are not publications.
    pub control_out_bytes: u64,
    /// Bytes received from it that are not publications.
    pub control_in_bytes: u64,
    /// Publications sent to it again.
    pub resent_messages: u64,
    /// Publications received from it that had been received before; they were discarded.
    pub duplicate_messages: u64,
    /// How many links were ended because the node broke a rule of the protocol.
    pub refused: u64,
}

/// `GET /v1/explain?topic=T`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Explanation)]
pub struct ExplanationEntry {
    /// The topic that was asked for.
    pub topic: String,
    /// The node that answers.
    pub node: String,
    /// The routing mode of this node: `mesh`, `topic`, `tree` or `flood`.
    pub routing: String,
    /// Nodes with a filter that matches.
    pub interested: Vec<String>,
    /// The filters that match.
    pub interests: Vec<InterestEntry>,
    /// The paths of a publication, by the node where it is published.
    pub routes: Vec<RouteEntry>,
    /// Neighbours to which this node sends publications on the topic (PRT).
    pub prt: Vec<String>,
    /// Nodes that have advertised the topic, and the neighbour towards each (SRT).
    pub srt: Vec<[String; 2]>,
}

/// A filter that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Interest)]
pub struct InterestEntry {
    /// The node that has subscribers with it.
    pub node: String,
    /// The topic filter.
    pub filter: String,
}

/// The paths from one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Route)]
pub struct RouteEntry {
    /// The node where a publication is published.
    pub from: String,
    /// The root of the tree that is used; none: no tree is, messages go over the links with the destinations.
    #[schema(required)]
    pub root: Option<String>,
    /// The nodes on the path to each interested node, both ends included.
    pub paths: Vec<Vec<String>>,
    /// Why this tree is used, in words.
    pub why: String,
}

/// The names of nodes for people.
struct Names(BTreeMap<NodeId, String>);

impl Names {
    fn of(overview: &Overview) -> Self {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for node in &overview.nodes {
            *count.entry(&node.name).or_default() += 1;
        }
        let unique = |name: &str| count.get(name).is_some_and(|count| *count == 1);
        let named = overview.nodes.iter().filter(|node| unique(&node.name));
        Self(named.map(|node| (node.node, node.name.clone())).collect())
    }

    fn name(&self, node: NodeId) -> String {
        self.0
            .get(&node)
            .cloned()
            .unwrap_or_else(|| node.to_string())
    }

    fn all<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> Vec<String> {
        nodes.into_iter().map(|node| self.name(*node)).collect()
    }

    fn tree(&self, tree: &OverviewTree) -> TreeEntry {
        let edge = |(above, below): &(NodeId, NodeId)| [self.name(*above), self.name(*below)];
        TreeEntry {
            root: self.name(tree.root),
            nodes: self.all(&tree.nodes),
            edges: tree.edges.iter().map(edge).collect(),
            topics: tree.topics,
        }
    }
}

impl OverlayEntry {
    /// From the hub's reports.
    #[must_use]
    pub fn new(
        overview: &Overview,
        counters: &OverlayCounters,
        links: &[(String, LinkCounters)],
    ) -> Self {
        let names = Names::of(overview);
        let node = |node: &thicket_overlay::OverviewNode| OverlayNodeEntry {
            name: node.name.clone(),
            id: node.node.to_string(),
            address: node.address.clone(),
            capability: node.capability,
            roots: node.roots,
            clients: node.clients,
            rate_msgs_per_s: node.rate,
            routing: node.routing.map(str::to_owned),
            via: node.via.map(|via| names.name(via)),
        };
        let link = |(a, b, tenths): &(NodeId, NodeId, u32)| OverlayLinkEntry {
            nodes: [names.name(*a), names.name(*b)],
            rtt_ms: f64::from(*tenths) / 10.0,
        };
        Self {
            node: names.name(overview.own),
            state: overview.state.name().to_owned(),
            routing: overview.routing.to_owned(),
            root_policy: overview.root_policy.to_owned(),
            nodes: overview.nodes.iter().map(node).collect(),
            links: overview.links.iter().map(link).collect(),
            tree: names.tree(&overview.single),
            topic_trees: overview.trees.iter().map(|tree| names.tree(tree)).collect(),
            topic_tree_count: overview.tree_count,
            topic_tree_bytes: overview.tree_bytes,
            advertised_topics: overview.advertised,
            counters: OverlayCountersEntry {
                elections: counters.elections,
                convergence_ms: counters.convergence_ms,
                repairs: counters.repairs,
                last_repair_ms: counters.last_repair_ms,
                repair_ms: counters.repair_ms,
                refused_trees: counters.refused_trees,
                round_trips: counters.round_trips.within,
                round_trip_count: counters.round_trips.count,
                round_trip_us: counters.round_trips.sum_us,
                refused_links: counters.refused_links,
                repeated_records: counters.repeated_records,
                altered_records: counters.altered_records,
                unreadable_messages: counters.unreadable_messages,
                relayed_messages: counters.relayed_messages,
                relayed_bytes: counters.relayed_bytes,
                relay_drops: counters.relay_drops,
                relay_misses: counters.relay_misses,
                tunnels: counters.tunnels,
            },
            traffic: links
                .iter()
                .map(|(node, counters)| traffic(node, counters))
                .collect(),
        }
    }
}

fn traffic(node: &str, counters: &LinkCounters) -> LinkTrafficEntry {
    LinkTrafficEntry {
        node: node.to_owned(),
        data_out_messages: counters.data_out_messages,
        data_out_batches: counters.data_out_batches,
        data_out_bytes: counters.data_out_bytes,
        data_in_messages: counters.data_in_messages,
        data_in_bytes: counters.data_in_bytes,
        control_out_bytes: counters.control_out_bytes,
        control_in_bytes: counters.control_in_bytes,
        resent_messages: counters.resends,
        duplicate_messages: counters.duplicates,
        refused: counters.refused,
    }
}

impl ExplanationEntry {
    /// From the hub's reports.
    #[must_use]
    pub fn new(explanation: &Explanation, overview: &Overview) -> Self {
        let names = Names::of(overview);
        let interests = explanation
            .filters
            .iter()
            .map(|(node, filter)| InterestEntry {
                node: names.name(*node),
                filter: filter.clone(),
            });
        let routes = explanation.routes.iter().map(|route| RouteEntry {
            from: names.name(route.from),
            root: route.root.map(|root| names.name(root)),
            paths: route.paths.iter().map(|path| names.all(path)).collect(),
            why: route.why.to_owned(),
        });
        let towards =
            |(publisher, hop): &(NodeId, NodeId)| [names.name(*publisher), names.name(*hop)];
        Self {
            topic: explanation.topic.clone(),
            node: names.name(overview.own),
            routing: explanation.routing.to_owned(),
            interested: names.all(&explanation.interested),
            interests: interests.collect(),
            routes: routes.collect(),
            prt: names.all(&explanation.prt),
            srt: explanation.srt.iter().map(towards).collect(),
        }
    }
}

/// The topic name in a query string `topic=T`, percent-encoded or not; `None` if there is none, or it is not a valid topic name.
#[must_use]
pub fn topic_of_query(query: &str) -> Option<String> {
    let topic = text_of_query(query, "topic")?;
    let is_name = !topic.is_empty() && !topic.contains(['+', '#', '\0']);
    is_name.then_some(topic)
}

/// The value of a name in a query string; `None`: absent, or not text.
#[must_use]
pub fn text_of_query(query: &str, name: &str) -> Option<String> {
    let raw = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(hex, 16).ok()?);
                rest = rest.get(2..)?;
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Encodes a topic name as the value in a query string.
#[must_use]
pub fn query_of_topic(topic: &str) -> String {
    query_of_text("topic", topic)
}

/// Encodes a text as the value of a name in a query string.
#[must_use]
pub fn query_of_text(name: &str, topic: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/$".contains(&byte);
    topic.bytes().fold(format!("{name}="), |mut query, byte| {
        if plain(byte) {
            query.push(char::from(byte));
        } else {
            query.push_str(&format!("%{byte:02X}"));
        }
        query
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_in_a_query_are_read_as_written_and_what_is_no_name_is_refused() {
        for topic in ["a", "site/1/temp", "caf\u{e9} & more=%41", "/", "$SYS/x"] {
            assert_eq!(
                topic_of_query(&query_of_topic(topic)).as_deref(),
                Some(topic)
            );
        }
        assert_eq!(topic_of_query("x=1&topic=a/b").as_deref(), Some("a/b"));
        for query in [
            "",
            "topic=",
            "topic=a/+",
            "topic=%23",
            "topic=%4",
            "topic=%zz",
            "topic=%FF",
            "other=a",
        ] {
            assert_eq!(topic_of_query(query), None, "{query}");
        }
    }
}
