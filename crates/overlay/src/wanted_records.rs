//! Records of which other nodes have a later version than this node, and the link over which each is requested.
//!
//! Nodes announce which versions of records they have; a node that lacks one requests it from a single neighbour. When a node joins, or all start, it
//! receives each record about once, not once over each link. If the link of a request ends, another neighbour that has the record is asked.

use std::collections::{BTreeMap, BTreeSet};

use thicket_session::time::Instant;

use crate::identity::{LinkId, NodeId};
use crate::record_versions::RecordAge;

/// A record that this node lacks in its latest version.
#[derive(Debug)]
struct Wanted {
    /// Since when this node has waited for the record; set if the neighbour had it when the link began. Until it arrives, for a limited time, this
    /// node does not count as ready.
    awaited_since: Option<Instant>,
    /// The version that each neighbour has, by link.
    offers: BTreeMap<LinkId, RecordAge>,
    asked: Option<LinkId>,
}

/// The wanted records, by node.
#[derive(Debug)]
pub(crate) struct WantedRecords {
    wanted: BTreeMap<NodeId, Wanted>,
    /// The records that may have to be requested.
    unasked: BTreeSet<NodeId>,
    maximum: usize,
}

impl WantedRecords {
    /// For at most `maximum` nodes; offers of further nodes are ignored, as the view cannot hold them.
    pub(crate) const fn new(maximum: usize) -> Self {
        Self {
            wanted: BTreeMap::new(),
            unasked: BTreeSet::new(),
            maximum,
        }
    }

    /// The neighbour at the other end of `link` has this version, which is later than the one here. `awaited_since`: set if it had it when the link
    /// began.
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

    /// A version of a record has arrived over a link.
    pub(crate) fn came(&mut self, node: NodeId, age: RecordAge, link: LinkId) {
        let Some(wanted) = self.wanted.get_mut(&node) else {
            return;
        };
        wanted.offers.retain(|_, offered| *offered > age);
        wanted.asked.take_if(|asked| *asked == link);
        self.review(node);
    }

    /// A link has ended: what was requested over it is requested over another one.
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

    /// Decides again whether the record of this node must be requested.
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

    /// Whether `ask` may have a request to make.
    pub(crate) fn has_unasked(&self) -> bool {
        !self.unasked.is_empty()
    }

    /// The records to request, by link; each record is requested once. `comes_by_itself`: the link over which a node sends this version of its own
    /// record unasked. Such a record is requested only if it was offered over that same link.
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

    /// The latest instant at which a link that is up began with records that are still missing; they are waited for a limited time from then on.
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
