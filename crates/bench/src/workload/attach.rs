//! The distribution of clients over nodes.

use serde::Serialize;

use crate::random::Random;

/// The distribution of clients over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attachment {
    /// In turn, in the order of connecting: first the publishers, then the subscribers.
    RoundRobin,
    /// Each at a random node (Detti's random-attach).
    Random,
    /// All at the first node (BORDER IV-B, Overlays 6).
    Locality100,
    /// BORDER's interpretation of 50 %: one publisher site, the first node, and subscribers at random nodes.
    Locality50Border,
    /// Overlays' interpretation of 50 %: publishers and subscribers at random nodes. The same as `Random`.
    Locality50Overlays,
    /// All publishers at the first node, all subscribers at the second (BORDER IV-B, Overlays 6).
    Locality0,
    /// Publishers in turn over the first nodes, subscribers in turn over the rest.
    Apart {
        /// How many nodes are those of publishers; all of them leave none for subscribers, which are at the last one then.
        publisher_nodes: usize,
    },
}

/// The nodes of publishers and of subscribers, as indices below `nodes`.
///
/// With a single node every client is there.
#[must_use]
pub fn attach(
    how: Attachment,
    nodes: usize,
    publishers: usize,
    subscribers: usize,
    seed: u64,
) -> (Vec<usize>, Vec<usize>) {
    // Separate from the stream of the plan, so that another distribution leaves the topics unchanged.
    let mut random = Random::new(seed ^ 0x61_74_74_61_63_68);
    let nodes = nodes.max(1);
    let mut anywhere = |count: usize| (0..count).map(|_| random.below(nodes)).collect();
    match how {
        Attachment::RoundRobin => {
            let turn = |from: usize, count: usize| {
                (from..from + count).map(|client| client % nodes).collect()
            };
            (turn(0, publishers), turn(publishers, subscribers))
        }
        Attachment::Random | Attachment::Locality50Overlays => {
            (anywhere(publishers), anywhere(subscribers))
        }
        Attachment::Locality100 => (vec![0; publishers], vec![0; subscribers]),
        Attachment::Locality50Border => (vec![0; publishers], anywhere(subscribers)),
        Attachment::Locality0 => (vec![0; publishers], vec![1 % nodes; subscribers]),
        Attachment::Apart { publisher_nodes } => {
            let first = publisher_nodes.clamp(1, nodes);
            let others = (nodes - first).max(1);
            let publisher = |client: usize| client % first;
            let subscriber = |client: usize| nodes - others + client % others;
            (
                (0..publishers).map(publisher).collect(),
                (0..subscribers).map(subscriber).collect(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_as_named() {
        let fixed = |how, nodes| attach(how, nodes, 3, 4, 1);
        assert_eq!(
            fixed(Attachment::RoundRobin, 3),
            (vec![0, 1, 2], vec![0, 1, 2, 0])
        );
        assert_eq!(fixed(Attachment::Locality100, 3), (vec![0; 3], vec![0; 4]));
        assert_eq!(fixed(Attachment::Locality0, 3), (vec![0; 3], vec![1; 4]));
        let apart = |publisher_nodes| fixed(Attachment::Apart { publisher_nodes }, 5);
        assert_eq!(apart(2), (vec![0, 1, 0], vec![2, 3, 4, 2]));
        assert_eq!(apart(4), (vec![0, 1, 2], vec![4; 4]));
        for how in [
            Attachment::RoundRobin,
            Attachment::Random,
            Attachment::Locality50Border,
            Attachment::Locality0,
            Attachment::Apart { publisher_nodes: 1 },
        ] {
            assert_eq!(
                fixed(how, 1),
                (vec![0; 3], vec![0; 4]),
                "{how:?} on one node"
            );
        }
    }

    #[test]
    fn the_two_readings_of_50_percent_differ_in_the_publishers() {
        let (publishers, subscribers) = attach(Attachment::Locality50Border, 5, 500, 500, 1);
        assert_eq!(publishers, vec![0; 500]);
        let share = |clients: &[usize], node| clients.iter().filter(|&&at| at == node).count();
        assert!(
            (0..5).all(|node| (60..140).contains(&share(&subscribers, node))),
            "{subscribers:?}"
        );
        let (publishers, _) = attach(Attachment::Locality50Overlays, 5, 500, 500, 1);
        assert!(
            (0..5).all(|node| (60..140).contains(&share(&publishers, node))),
            "{publishers:?}"
        );
    }
}
