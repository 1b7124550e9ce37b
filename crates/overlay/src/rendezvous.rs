//! The node responsible for a client id, computed locally: highest random weight.

use crate::identity::NodeId;

/// The node of `nodes` with the highest weight for `client_id`, `None` if there are no nodes. The result is the same on every machine and must never
/// change: nodes of different versions must agree. A node that joins or leaves moves only the clients it gains or loses.
///
/// Ties, which a 64-bit weight makes rare, go to the lower identity.
#[must_use]
pub fn rendezvous(client_id: &str, nodes: &[NodeId]) -> Option<NodeId> {
    let client = fnv1a(client_id.bytes());
    nodes
        .iter()
        .copied()
        .max_by_key(|node| (mix(client ^ mix(node.0)), std::cmp::Reverse(*node)))
}

/// The same, weighted: each node gets a share of the clients proportional to its weight. When a weight changes, no more clients move than necessary.
/// A node chooses for itself: others need not agree.
///
/// A weight of 0 counts as 1, so that there is always a result.
#[must_use]
pub fn rendezvous_by_weight(client_id: &str, nodes: &[(NodeId, u64)]) -> Option<NodeId> {
    let client = fnv1a(client_id.bytes());
    let score = |(node, weight): &(NodeId, u64)| {
        // In (0, 1): the fraction of a double has 53 bits.
        let drawn = ((mix(client ^ mix(node.0)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (*weight).max(1) as f64 / -drawn.ln()
    };
    let best = nodes.iter().max_by(|one, other| {
        let by_score = score(one).total_cmp(&score(other));
        by_score.then_with(|| other.0.cmp(&one.0))
    });
    best.map(|(node, _)| *node)
}

/// FNV-1a, 64 bits: the same on every machine.
#[must_use]
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64: every bit of the input changes about half of the output bits.
pub(crate) const fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<NodeId> {
        (1..=5).map(|number| NodeId(number * 0x1111)).collect()
    }

    #[test]
    fn known_choices_never_change() {
        // A change would split clusters of mixed versions.
        assert_eq!(
            fnv1a(*b"a"),
            0xaf63_dc4c_8601_ec8c,
            "published test vector of FNV-1a"
        );
        assert_eq!(
            mix(0),
            0xe220_a839_7b1d_cdaf,
            "first output of SplitMix64 for seed 0"
        );
        assert_eq!(rendezvous("anybody", &[]), None);
        assert_eq!(rendezvous("anybody", &[NodeId(7)]), Some(NodeId(7)));
    }

    #[test]
    fn the_order_of_nodes_does_not_matter_and_a_leaver_moves_only_its_own() {
        let (all, mut reversed) = (nodes(), nodes());
        reversed.reverse();
        let without_first = all.get(1..).expect("five nodes");
        let mut counts = [0_u32; 5];
        for number in 0..5000 {
            let client = format!("client-{number}");
            let chosen = rendezvous(&client, &all).expect("five nodes");
            assert_eq!(rendezvous(&client, &reversed), Some(chosen), "{client}");
            let rest = rendezvous(&client, without_first).expect("four nodes");
            assert!(
                chosen == NodeId(0x1111) || rest == chosen,
                "{client} moved without need"
            );
            counts[all
                .iter()
                .position(|node| *node == chosen)
                .expect("one of them")] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "uneven: {counts:?}"
        );
    }

    #[test]
    fn shares_follow_the_weights_and_a_change_moves_no_more_than_it_must() {
        let weighed = |last| {
            let weights = [1, 0, 3, 6, last];
            nodes().into_iter().zip(weights).collect::<Vec<_>>()
        };
        let choose = |number: u32, last| {
            rendezvous_by_weight(&format!("client-{number}"), &weighed(last)).expect("five nodes")
        };
        let mut counts = [0_u32; 5];
        for number in 0..11_000 {
            let chosen = choose(number, 0);
            let heavier = choose(number, 9);
            assert!(
                heavier == chosen || heavier == NodeId(0x5555),
                "{number} moved without need"
            );
            let at = nodes().iter().position(|node| *node == chosen);
            counts[at.expect("one of them")] += 1;
        }
        for (count, expected) in counts.into_iter().zip([917, 917, 2_750, 5_500, 917]) {
            assert!(count.abs_diff(expected) < 150, "{counts:?}");
        }
        let equal: Vec<_> = nodes().into_iter().map(|node| (node, 7)).collect();
        assert_eq!(rendezvous_by_weight("a", &equal), rendezvous("a", &nodes()));
        assert_eq!(rendezvous_by_weight("a", &[]), None);
    }
}
