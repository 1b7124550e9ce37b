//! Trees over random clusters: any view gives every node the same tree, loop-free, spanning exactly its nodes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use thicket_overlay::NodeId;
use thicket_overlay::routing::{
    ListedLink, RootPolicy, RootWeights, Topology, TopologyNode, Tree, elect,
};

/// A cluster of 2 to 50 nodes: RTTs, capabilities and the like at random; a part of the links missing; sometimes two halves.
fn clusters() -> impl Strategy<Value = Vec<TopologyNode>> {
    let of_node = (0_u64..200, 0_u64..9, 0_u64..50, 0_u64..100, 0_u8..6);
    (2_usize..=50, 0_u32..100, any::<bool>(), any::<u64>()).prop_flat_map(
        move |(count, missing, is_parted, seed)| {
            proptest::collection::vec(of_node.clone(), count)
                .prop_map(move |nodes| cluster(&nodes, missing, is_parted, seed))
        },
    )
}

fn cluster(
    nodes: &[(u64, u64, u64, u64, u8)],
    missing: u32,
    is_parted: bool,
    seed: u64,
) -> Vec<TopologyNode> {
    let count = nodes.len() as u64;
    // The same for both ends, and different from pair to pair.
    let dice = |a: u64, b: u64| {
        let pair = a.min(b) * 64 + a.max(b);
        (pair ^ seed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
            .wrapping_mul(0xBF58_476D_1CE4_E5B9)
            >> 33
    };
    let is_linked = |a: u64, b: u64| {
        let is_apart = is_parted && (a < count / 2) != (b < count / 2);
        a != b && !is_apart && (dice(a, b) % 100) as u32 >= missing
    };
    let node = |(index, &(capability, roots, clients, rate, address)): (
        usize,
        &(u64, u64, u64, u64, u8),
    )| {
        let own = index as u64;
        let linked = (0..count).filter(|other| is_linked(own, *other));
        TopologyNode {
            node: NodeId(own * 7),
            name: format!("node-{own}"),
            // Some addresses are the same by mistake.
            address: format!("10.0.0.{address}:1883"),
            capability,
            roots,
            clients,
            rate,
            links: linked
                .map(|other| ListedLink::first(NodeId(other * 7), (dice(other, own) % 400) as u32))
                .collect(),
        }
    };
    nodes.iter().enumerate().map(node).collect()
}

/// What reaches what over `links`, the plain way.
fn reached(from: NodeId, members: &BTreeSet<NodeId>, topology: &Topology) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::from([from]);
    loop {
        let more: Vec<_> = topology
            .links()
            .flat_map(|(a, b, _)| [(a, b), (b, a)])
            .filter(|(a, b)| found.contains(a) && members.contains(b) && !found.contains(b))
            .map(|(_, b)| b)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The cost of the best way to the root over members, the plain way (Bellman and Ford).
fn costs(root: NodeId, members: &BTreeSet<NodeId>, topology: &Topology) -> BTreeMap<NodeId, u32> {
    let mut costs = BTreeMap::from([(root, 0)]);
    for _ in 0..members.len() {
        for (a, b, cost) in topology
            .links()
            .flat_map(|(a, b, cost)| [(a, b, cost), (b, a, cost)])
        {
            if members.contains(&a)
                && members.contains(&b)
                && let Some(whole) = costs.get(&a).map(|before| before + cost)
                && costs.get(&b).is_none_or(|known| whole < *known)
            {
                costs.insert(b, whole);
            }
        }
    }
    costs
}

/// Follows a copy with its remaining destinations from hop to hop, as nodes do; who is asked to deliver it, in order.
fn deliver(
    tree: &Tree,
    from: NodeId,
    remaining: &BTreeSet<NodeId>,
    delivered: &mut Vec<NodeId>,
    copies: &mut usize,
) {
    let mut branches: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
    for destination in remaining {
        let hop = tree.next_hop(from, *destination).expect("on the tree");
        branches.entry(hop).or_default().insert(*destination);
    }
    for (hop, mut rest) in branches {
        *copies += 1;
        if rest.remove(&hop) {
            delivered.push(hop);
        }
        deliver(tree, hop, &rest, delivered, copies);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_node_computes_the_same_loop_free_tree_over_exactly_its_nodes(
        nodes in clusters(), chosen in any::<u64>(), which in 0_usize..50, policy in 0_usize..3, is_all in any::<bool>(),
    ) {
        let policy = RootPolicy::ALL[policy];
        let whole = Topology::new(nodes.clone());
        let own = nodes[which % nodes.len()].node;
        let component = whole.component(own);
        let members: Vec<NodeId> = component.nodes().iter().map(|node| node.node)
            .filter(|node| is_all || *node == own || chosen >> (node.0 / 7 % 64) & 1 == 1).collect();
        let weights = RootWeights::default();
        let root = elect(&component, &members, policy, weights, |_| 0).expect("own is a member");
        let tree = Tree::spanning(&component, root, &members);

        // Another node of the component heard of the others in another order.
        let other = component.nodes()[chosen as usize % component.nodes().len()].node;
        let mut reversed = nodes;
        reversed.reverse();
        let seen_by_other = Topology::new(reversed).component(other);
        prop_assert_eq!(elect(&seen_by_other, &members, policy, weights, |_| 0), Some(root));
        prop_assert_eq!(&Tree::spanning(&seen_by_other, root, &members), &tree);

        // It spans what the root reaches over members: nothing else, and all of it where the members hang together.
        let set: BTreeSet<_> = members.iter().copied().collect();
        let spanned: BTreeSet<_> = tree.nodes().into_iter().collect();
        prop_assert_eq!(&spanned, &reached(root, &set, &component));
        prop_assert_eq!(tree.edges().count() + 1, spanned.len(), "one link less than nodes: no loop");
        for (above, below) in tree.edges() {
            prop_assert!(component.link(above, below).is_some(), "edges are links");
        }
        let best = costs(root, &set, &component);
        for node in &spanned {
            prop_assert_eq!(tree.path_cost(*node), best.get(node).copied(), "the best way to the root");
        }

        // A copy reaches each destination once, and nobody sends more copies than there are links in the tree.
        let from = members[which % members.len()];
        if spanned.contains(&from) {
            let destinations: BTreeSet<_> = spanned.iter().copied().filter(|node| *node != from).collect();
            let (mut delivered, mut copies) = (Vec::new(), 0);
            deliver(&tree, from, &destinations, &mut delivered, &mut copies);
            delivered.sort_unstable();
            prop_assert_eq!(delivered, destinations.iter().copied().collect::<Vec<_>>(), "each once");
            prop_assert_eq!(copies, destinations.len(), "one copy a link of the tree");
        }
    }
}

proptest! {
    #[test]
    fn copies_that_meet_different_trees_on_their_way_still_reach_each_destination_at_most_once(
        before in clusters(), after in any::<u64>(), chosen in any::<u64>(), late in any::<u64>(),
    ) {
        // Every second node has heard of changed RTTs, the others have not.
        let nodes = before.len();
        let changed: Vec<_> = before.iter().cloned().map(|mut node| {
            for link in std::sync::Arc::make_mut(&mut node.links) {
                link.rtt = (link.rtt ^ (after >> ((link.node.0 + node.node.0) % 50)) as u32) % 400;
            }
            node
        }).collect();
        let views = [Topology::new(before), Topology::new(changed)];
        let origin = NodeId((chosen as usize % nodes) as u64 * 7);
        let members: Vec<_> = views[0].component(origin).nodes().iter().map(|node| node.node).collect();
        let root = members[late as usize % members.len()];
        let trees = [Tree::spanning(&views[0], root, &members), Tree::spanning(&views[1], root, &members)];
        let tree_of = |node: NodeId| &trees[(late >> (node.0 / 7)) as usize & 1];

        let mut open = vec![(origin, members.iter().copied().filter(|node| *node != origin).collect::<Vec<_>>(), 0)];
        let mut delivered = BTreeSet::new();
        while let Some((at, remaining, hops)) = open.pop() {
            // Past the limit the rest goes straight, so nothing goes round for ever.
            if hops > 2 * nodes {
                for node in remaining {
                    prop_assert!(delivered.insert(node), "twice at {}", node);
                }
                continue;
            }
            let mut branches: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
            for node in remaining {
                branches.entry(tree_of(at).next_hop(at, node).expect("on the tree")).or_default().push(node);
            }
            for (hop, rest) in branches {
                if rest.contains(&hop) {
                    prop_assert!(delivered.insert(hop), "twice at {}", hop);
                }
                let rest: Vec<_> = rest.into_iter().filter(|node| *node != hop).collect();
                if !rest.is_empty() {
                    open.push((hop, rest, hops + 1));
                }
            }
        }
        prop_assert_eq!(delivered.len(), members.len() - 1, "all of them");
    }
}
