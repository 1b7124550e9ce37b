//! What this node knows of view, trees and paths, for display.

use std::collections::{BTreeMap, BTreeSet};

use super::Overlay;
use crate::identity::{NodeId, NodeSlot};
use crate::interest::{InterestKey, Sharing};
use crate::overview::{
    ExplainedRoute, Explanation, OverlayState, Overview, OverviewNode, OverviewTree,
};
use crate::routing::{HOP_COST, RoutingMode, Tree};
use crate::trees::NamedTree;

impl Overlay {
    /// The view and the trees.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let topology = self.trees.topology();
        let nodes = topology.nodes().iter().map(|node| {
            let record = self.view.record(node.node);
            let has_link = node.node == self.config.node
                || topology.link(self.config.node, node.node).is_some();
            OverviewNode {
                node: node.node,
                name: node.name.clone(),
                address: node.address.clone(),
                capability: node.capability,
                roots: node.roots,
                clients: node.clients,
                rate: node.rate,
                routing: record
                    .and_then(|record| RoutingMode::from_code(record.routing))
                    .map(RoutingMode::name),
                via: self.trees.hop_towards(node.node).filter(|_| !has_link),
            }
        });
        let topics = self.advertisements.topics_by_tree();
        Overview {
            own: self.config.node,
            state: self.state(),
            routing: self.config.routing.mode.name(),
            root_policy: self.config.routing.root_policy.name(),
            nodes: nodes.collect(),
            links: topology
                .links()
                .map(|(a, b, cost)| (a, b, cost.saturating_sub(HOP_COST)))
                .collect(),
            single: overview_of(self.trees.single(), &topics),
            trees: self
                .trees
                .named()
                .map(|named| overview_of(named, &topics))
                .collect(),
            tree_count: self.trees.len(),
            tree_bytes: self.trees.bytes(),
            advertised: self.advertisements.len(),
        }
    }

    /// The phase that this node is in.
    #[must_use]
    pub fn state(&self) -> OverlayState {
        if self.peers.iter().all(crate::peer::Peer::is_down) {
            OverlayState::Discovery
        } else if self.is_ready() {
            OverlayState::Runtime
        } else {
            OverlayState::Creation
        }
    }

    /// Where a publication to `topic` goes from each node, and why.
    #[must_use]
    pub fn explain(&self, topic: &str) -> Explanation {
        let filters = self.interests_in(topic);
        let interested: BTreeSet<NodeId> = filters.iter().map(|(node, _)| *node).collect();
        let own = self.config.node;
        let nodes = self.trees.topology().nodes().iter().map(|node| node.node);
        let routes: Vec<_> = nodes
            .map(|from| self.route_from(from, &interested))
            .collect();
        let from_here = routes
            .iter()
            .filter(|route| route.from == own)
            .flat_map(|route| &route.paths);
        let prt: BTreeSet<NodeId> = from_here.filter_map(|path| path.get(1).copied()).collect();
        let publishers = self.advertisements.publishers(topic);
        let towards = |node: &NodeId| Some((*node, self.trees.single().tree.next_hop(own, *node)?));
        Explanation {
            topic: topic.to_owned(),
            routing: self.config.routing.mode.name(),
            interested: interested.iter().copied().collect(),
            filters,
            routes,
            prt: prt.into_iter().collect(),
            srt: publishers.iter().filter_map(towards).collect(),
        }
    }

    /// The filters that match a topic, with the nodes that have them as interests.
    fn interests_in(&self, topic: &str) -> Vec<(NodeId, String)> {
        let matches = |key: &&InterestKey| key.filter.matches(topic);
        let own = self
            .own_interests
            .keys()
            .filter(matches)
            .map(|key| (self.config.node, written(key)));
        let others = self
            .peers
            .iter()
            .filter(|peer| !peer.is_down())
            .flat_map(|peer| {
                peer.interests
                    .keys()
                    .filter(matches)
                    .map(|key| (peer.node, written(key)))
            });
        let mut all: Vec<_> = own.chain(others).collect();
        all.sort();
        all
    }

    fn route_from(&self, from: NodeId, interested: &BTreeSet<NodeId>) -> ExplainedRoute {
        let topology = self.trees.topology();
        let everyone: Vec<NodeId> = topology.nodes().iter().map(|node| node.node).collect();
        let destinations: Vec<NodeId> = interested
            .iter()
            .copied()
            .filter(|node| *node != from)
            .collect();
        let single = || self.trees.single().tree.clone();
        let (tree, is_tree, why) = match self.config.routing.mode {
            RoutingMode::Mesh => (
                Tree::spanning(topology, from, &everyone),
                false,
                "mesh: straight to each interested node, round a missing link by the best way",
            ),
            RoutingMode::Tree => (
                single(),
                true,
                "tree: the one tree, only branches with an interested node",
            ),
            RoutingMode::Flood => (single(), true, "flood: the one tree, to every node"),
            RoutingMode::Topic => {
                let mut members: Vec<NodeId> = destinations.iter().copied().chain([from]).collect();
                members.sort_unstable();
                match self.trees.preview(&members) {
                    Some(tree) if members.len() < everyone.len() => (
                        tree,
                        true,
                        "topic: the tree of the interested nodes and the publisher's",
                    ),
                    Some(_) => (
                        single(),
                        true,
                        "topic: every node is interested, so the tree of all",
                    ),
                    None => (
                        single(),
                        true,
                        "topic: the interested nodes have no path to each other without other nodes, so the tree of all",
                    ),
                }
            }
        };
        let paths = destinations.iter().filter_map(|to| path(&tree, from, *to));
        ExplainedRoute {
            from,
            root: is_tree.then(|| tree.root()),
            paths: paths.collect(),
            why: if destinations.is_empty() {
                "no other node is interested"
            } else {
                why
            },
        }
    }

    /// The nodes with an interest that matches `topic`, without this one.
    #[must_use]
    pub fn interested_in(&self, topic: &str) -> Vec<NodeSlot> {
        let own = self.config.node;
        let nodes: BTreeSet<NodeId> = self
            .interests_in(topic)
            .into_iter()
            .map(|(node, _)| node)
            .filter(|node| *node != own)
            .collect();
        nodes
            .into_iter()
            .filter_map(|node| self.slots.get(&node).copied())
            .collect()
    }
}

fn written(key: &InterestKey) -> String {
    match &key.sharing {
        Sharing::Plain => key.filter.to_string(),
        Sharing::Group(group) => format!("$share/{group}/{}", key.filter),
    }
}

fn overview_of(named: &NamedTree, topics: &BTreeMap<&[NodeId], usize>) -> OverviewTree {
    let tree = &named.tree;
    let topics = topics.get(&*named.name.members);
    OverviewTree {
        topics: topics.copied().unwrap_or(0),
        root: tree.root(),
        nodes: tree.nodes(),
        edges: tree.edges().collect(),
    }
}

fn path(tree: &Tree, from: NodeId, to: NodeId) -> Option<Vec<NodeId>> {
    let mut path = vec![from];
    let mut at = from;
    while at != to {
        at = tree.next_hop(at, to)?;
        path.push(at);
    }
    Some(path)
}
