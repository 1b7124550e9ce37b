//! Records that others have in a later version than this node, and who is asked for each.
//!
//! Nodes say which versions of records they have; whoever lacks one asks a single node for it. When a node joins, or all start, each record
//! comes to it about once, not once over each link. If that link ends, another node that has the record is asked.

use std::collections::{BTreeMap, BTreeSet};

use thicket_session::time::Instant;

use crate::identity::{LinkId, NodeId};
use crate::record_versions::RecordAge;

/// A record that is wanted.
#[derive(Debug)]
struct Wanted {
    /// Since when a link is up only to the eye while this is missing: the node at its other end had it when the link began.
    awaited_since: Option<Instant>,
    /// Who has which version.
    offers: BTreeMap<LinkId, RecordAge>,
    asked: Option<LinkId>,
}

/// By node, the records that are wanted.
#[derive(Debug)]
pub(crate) struct WantedRecords {
    wanted: BTreeMap<NodeId, Wanted>,
    /// Those for which somebody may have to be asked.
    unasked: BTreeSet<NodeId>,
    maximum: usize,
}

impl WantedRecords {
    /// For `maximum` nodes; what is more is passed over, as the view has no place for it.
    pub(crate) const fn new(maximum: usize) -> Self {
        Self {
            wanted: BTreeMap::new(),
            unasked: BTreeSet::new(),
            maximum,
        }
    }

    /// The node at the other end of `link` has this version, later than the one here. `awaited_since`: if it had it when the link began.
    pub(crate) fn offer(
        &mut self,
        node: NodeId,
        age: RecordAge,
        link: LinkId,
        awaited_since: Option<Instant>,
    ) {
        if self.wanted.len() >= self.maximum && !self.wanted.contains_key(&node) {
            return;
        }
        let wanted = self.wanted.entry(node).or_insert_with(|| Wanted {
            awaited_since: None,
            offers: BTreeMap::new(),
            asked: None,
        });
        wanted.awaited_since = wanted.awaited_since.or(awaited_since);
        let offered = wanted.offers.entry(link).or_insert(age);
        *offered = age.max(*offered);
        if wanted.asked.is_none() {
            self.unasked.insert(node);
        }
    }

    /// A version of a record came over a link.
    pub(crate) fn came(&mut self, node: NodeId, age: RecordAge, link: LinkId) {
        let Some(wanted) = self.wanted.get_mut(&node) else {
            return;
        };
        wanted.offers.retain(|_, offered| *offered > age);
        wanted.asked.take_if(|asked| *asked == link);
        self.review(node);
    }

    /// A link ended: what was asked over it is asked elsewhere.
    pub(crate) fn forget_link(&mut self, link: LinkId) {
        let concerned = |(node, wanted): (&NodeId, &mut Wanted)| {
            wanted.asked.take_if(|asked| *asked == link);
            wanted.offers.remove(&link).map(|_| *node)
        };
        let nodes: Vec<_> = self.wanted.iter_mut().filter_map(concerned).collect();
        for node in nodes {
            self.review(node);
        }
    }

    /// Who is asked for the record of this node is to be looked at again.
    pub(crate) fn review(&mut self, node: NodeId) {
        let Some(wanted) = self.wanted.get(&node) else {
            return;
        };
        if wanted.offers.is_empty() {
            self.wanted.remove(&node);
            self.unasked.remove(&node);
        } else if wanted.asked.is_none() {
            self.unasked.insert(node);
        }
    }

    /// Whether `ask` has something to do.
    pub(crate) fn has_unasked(&self) -> bool {
        !self.unasked.is_empty()
    }

    /// Whom to ask for what, each node once. `comes_by_itself`: the link over which a node sends such a version of its record itself; it
    /// is not asked for, unless it was offered over that link.
    pub(crate) fn ask(
        &mut self,
        comes_by_itself: impl Fn(NodeId, RecordAge) -> Option<LinkId>,
    ) -> BTreeMap<LinkId, Vec<NodeId>> {
        let mut asked: BTreeMap<LinkId, Vec<NodeId>> = BTreeMap::new();
        for node in std::mem::take(&mut self.unasked) {
            let Some(wanted) = self.wanted.get_mut(&node) else {
                continue;
            };
            let latest = wanted.offers.values().max().copied();
            let link = match latest.and_then(|age| comes_by_itself(node, age)) {
                Some(own) => wanted.offers.contains_key(&own).then_some(own),
                None => wanted.offers.keys().next().copied(),
            };
            if let Some(link) = link {
                wanted.asked = Some(link);
                asked.entry(link).or_default().push(node);
            }
        }
        asked
    }

    /// Since when the records are missing that links which are up began with, the latest of them; no longer than that are they waited for.
    pub(crate) fn awaited_since(&self) -> Option<Instant> {
        self.wanted.values().filter_map(|it| it.awaited_since).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::record;

    const NODE: NodeId = NodeId(7);

    fn age(version: u64) -> RecordAge {
        record(7, 1, version, &[]).age()
    }

    fn offered(offers: &[(u32, u64)]) -> WantedRecords {
        let mut wanted = WantedRecords::new(2);
        for (link, version) in offers {
            wanted.offer(NODE, age(*version), LinkId(*link), None);
        }
        wanted
    }

    fn ask(wanted: &mut WantedRecords) -> Vec<(u32, u64)> {
        let asked = wanted.ask(|_, _| None).into_iter();
        asked
            .flat_map(|(link, nodes)| nodes.into_iter().map(move |node| (link.0, node.0)))
            .collect()
    }

    #[test]
    fn one_of_those_that_have_a_record_is_asked_for_it_and_another_one_if_its_link_ends() {
        let mut wanted = offered(&[(1, 4), (2, 5), (3, 5)]);
        assert_eq!(ask(&mut wanted), [(1, 7)]);
        wanted.offer(NODE, age(5), LinkId(4), None);
        assert_eq!(ask(&mut wanted), [], "asked already");
        wanted.forget_link(LinkId(1));
        assert_eq!(ask(&mut wanted), [(2, 7)]);
        wanted.forget_link(LinkId(3));
        assert_eq!(ask(&mut wanted), [], "it was not asked");
        wanted.came(NODE, age(5), LinkId(9));
        wanted.forget_link(LinkId(2));
        assert_eq!(ask(&mut wanted), [], "it is here");
    }

    #[test]
    fn a_version_that_comes_before_the_one_offered_leaves_that_to_be_asked_for() {
        let mut wanted = offered(&[(1, 4), (2, 5)]);
        assert_eq!(ask(&mut wanted), [(1, 7)]);
        wanted.came(NODE, age(4), LinkId(1));
        assert_eq!(ask(&mut wanted), [(2, 7)]);
        wanted.came(NODE, age(3), LinkId(1));
        assert_eq!(ask(&mut wanted), [], "it is still asked");
        wanted.came(NODE, age(4), LinkId(2));
        assert_eq!(ask(&mut wanted), [(2, 7)], "it had that one then");
    }

    #[test]
    fn a_node_with_a_link_sends_its_record_itself_until_the_link_ends() {
        let mut wanted = offered(&[(1, 4)]);
        assert_eq!(wanted.ask(|_, _| Some(LinkId(9))), BTreeMap::new());
        wanted.review(NODE);
        assert_eq!(ask(&mut wanted), [(1, 7)]);
        let mut wanted = offered(&[(9, 4), (1, 4)]);
        let asked = wanted.ask(|_, _| Some(LinkId(9)));
        assert_eq!(
            asked,
            BTreeMap::from([(LinkId(9), vec![NODE])]),
            "what it changes is not here"
        );
    }

    #[test]
    fn what_links_began_with_is_awaited_and_no_more_nodes_than_the_view_has() {
        let mut wanted = offered(&[(1, 4)]);
        assert_eq!(wanted.awaited_since(), None);
        let at = Instant::from_millis(5);
        wanted.offer(NODE, age(4), LinkId(2), Some(at));
        assert_eq!(wanted.awaited_since(), Some(at));
        wanted.offer(NodeId(8), age(1), LinkId(1), None);
        wanted.offer(NodeId(9), age(1), LinkId(1), Some(Instant::from_millis(6)));
        assert_eq!(wanted.awaited_since(), Some(at), "too many");
        wanted.came(NODE, age(4), LinkId(1));
        assert_eq!(wanted.awaited_since(), None);
    }
}
