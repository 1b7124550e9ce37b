//! The view: one versioned record for each node, written only by that node and flooded on change (rule 1).
//!
//! The highest (incarnation, version) of a node wins. A link exists if both ends list it; the view is the component of this node. Which version of
//! which node's interests a node has applied is *not* in the records: acknowledgements are sent directly to the node that has the interests, because
//! a record would be flooded to all nodes at every change of any interest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::identity::{Incarnation, NodeId};
use crate::record_versions::RecordAge;
use crate::routing::{ListedLink, Topology, TopologyNode};
use crate::wire::{Reader, WireError, ascending, incarnation, put_bytes, put_varint, varint_len};

/// Maximum length of a record, so that the maximum number of records takes little memory: 4,000 links and a name still fit.
const MAXIMUM_RECORD_BYTES: usize = 64 * 1024;

/// The record in which a node describes itself to all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Rises with every change, within the incarnation.
    pub(crate) version: u64,
    /// Random for each start of the program.
    pub(crate) process: u64,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) clients: u64,
    pub(crate) subscriptions: u64,
    /// Version of its interests when the record was written.
    pub(crate) interest_version: u64,
    /// C = alpha L + beta M, in steps (Overlays 4.2.1).
    pub(crate) capability: u64,
    /// Number of trees that it is the root of, coarse (R of Overlays 4.2.2).
    pub(crate) roots: u64,
    /// Messages per second it originates for other nodes, coarse.
    pub(crate) rate: u64,
    /// How it routes, see [`RoutingMode::code`](crate::RoutingMode).
    pub(crate) routing: u8,
    /// Links that are up, ascending by node.
    pub(crate) links: Arc<[ListedLink]>,
}

impl NodeRecord {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        put_varint(out, self.version);
        out.extend_from_slice(&self.process.to_le_bytes());
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.address.as_bytes());
        for number in [
            self.clients,
            self.subscriptions,
            self.interest_version,
            self.capability,
            self.roots,
            self.rate,
        ] {
            put_varint(out, number);
        }
        out.push(self.routing);
        put_varint(out, self.links.len() as u64);
        for link in self.links.iter() {
            out.extend_from_slice(&link.node.0.to_le_bytes());
            put_varint(out, u64::from(link.rtt));
        }
        for link in self.links.iter() {
            put_varint(out, u64::from(link.epoch));
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let len = reader.rest().len();
        if len > MAXIMUM_RECORD_BYTES {
            return Err(WireError::Value {
                field: "record length",
                value: len as u64,
            });
        }
        let mut record = Self {
            node: NodeId(reader.u64()?),
            incarnation: incarnation(reader.u64()?)?,
            version: reader.varint()?,
            process: reader.u64()?,
            name: reader.str("name")?.to_owned(),
            address: reader.str("address")?.to_owned(),
            clients: reader.varint()?,
            subscriptions: reader.varint()?,
            interest_version: reader.varint()?,
            capability: reader.varint()?,
            roots: reader.varint()?,
            rate: reader.varint()?,
            routing: reader.u8()?,
            links: Arc::default(),
        };
        // Each link takes at least nine bytes of input, so the list grows no faster than the bytes that arrived.
        let mut links: Vec<ListedLink> = Vec::new();
        for _ in 0..reader.varint()? {
            let node = NodeId(reader.u64()?);
            let rtt = reader.number("rtt")?;
            ascending("link order", links.last().map(|before| before.node), node)?;
            links.push(ListedLink::first(node, rtt));
        }
        for link in &mut links {
            link.epoch = reader.number("link epoch")?;
        }
        record.links = links.into();
        Ok(record)
    }

    /// Whether it is short enough to be sent as a whole record.
    pub(crate) fn is_sendable(&self) -> bool {
        // The maximum length of everything except text and links.
        const REST_BYTES: usize = 128;
        let links = self.links.iter();
        let links = links.map(|it| 8 + varint_len(it.rtt.into()) + varint_len(it.epoch.into()));
        let text = self.name.len() + self.address.len();
        REST_BYTES + text + links.sum::<usize>() <= MAXIMUM_RECORD_BYTES
    }

    /// The nodes with which a link has ended or has been replaced.
    pub(crate) fn links_lost_since(&self, before: &Self) -> Vec<NodeId> {
        let is_lost = |link: &&ListedLink| {
            let now = self.link(link.node);
            now.is_none_or(|now| now.epoch != link.epoch)
        };
        let lost = before.links.iter().filter(is_lost);
        lost.map(|link| link.node).collect()
    }

    pub(crate) const fn age(&self) -> RecordAge {
        RecordAge {
            incarnation: self.incarnation,
            process: self.process,
            version: self.version,
        }
    }

    /// The values that elections and paths use.
    fn as_topology(&self) -> TopologyNode {
        TopologyNode {
            node: self.node,
            name: self.name.clone(),
            address: self.address.clone(),
            capability: self.capability,
            roots: self.roots,
            clients: self.clients,
            rate: self.rate,
            links: Arc::clone(&self.links),
        }
    }

    /// Whether both are of one process, with the same address and the same links.
    pub(crate) fn differs_in_numbers_only(&self, other: &Self) -> bool {
        let identity = |it: &Self| (it.node, it.incarnation, it.process);
        identity(self) == identity(other)
            && (&self.name, &self.address) == (&other.name, &other.address)
            && self.links == other.links
    }

    /// Whether it lists a link with the node.
    pub(crate) fn lists(&self, node: NodeId) -> bool {
        self.link(node).is_some()
    }

    /// Its link with a node.
    pub(crate) fn link(&self, node: NodeId) -> Option<&ListedLink> {
        let at = self.links.binary_search_by_key(&node, |link| link.node);
        Some(&self.links[at.ok()?])
    }
}

/// The result of applying a received record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordNews {
    /// Newer than the stored one: pass it on.
    Newer,
    /// Known already, or older.
    Old,
    /// The limit of nodes is reached.
    Full,
}

/// All records, of reachable nodes or not: those of nodes that are gone reveal a restart with a stale incarnation.
#[derive(Debug)]
pub(crate) struct View {
    own: NodeId,
    records: BTreeMap<NodeId, NodeRecord>,
    /// The values that elections and paths use.
    topology: Topology,
    maximum: usize,
}

impl View {
    pub(crate) fn new(own: NodeRecord, maximum: usize) -> Self {
        Self {
            own: own.node,
            topology: Topology::new([own.as_topology()]),
            records: BTreeMap::from([(own.node, own)]),
            maximum,
        }
    }

    pub(crate) fn own(&self) -> &NodeRecord {
        &self.records[&self.own]
    }

    /// Changes this node's own record.
    pub(crate) fn change_own(&mut self, change: impl FnOnce(&mut NodeRecord)) {
        let own = self.records.get_mut(&self.own);
        let own = own.expect("the own record is there from the start");
        change(own);
        self.topology.set(own.as_topology());
    }

    pub(crate) fn record(&self, node: NodeId) -> Option<&NodeRecord> {
        self.records.get(&node)
    }

    /// Every record, ascending by node.
    pub(crate) fn records(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.values()
    }

    /// Applies another node's record. If the table is full, the record of an unreachable node is removed.
    pub(crate) fn apply(&mut self, record: NodeRecord) -> RecordNews {
        let known = self.records.get(&record.node);
        if known.is_some_and(|known| known.age() >= record.age()) {
            return RecordNews::Old;
        }
        if known.is_none() && self.records.len() >= self.maximum {
            let component = self.component();
            let Some(gone) = self
                .records
                .keys()
                .find(|node| !component.contains(node))
                .copied()
            else {
                return RecordNews::Full;
            };
            self.records.remove(&gone);
            self.topology.remove(gone);
        }
        self.topology.set(record.as_topology());
        self.records.insert(record.node, record);
        RecordNews::Newer
    }

    /// Every record with the values that elections and paths use.
    pub(crate) const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The nodes that this one reaches over links that both ends list, this one included.
    pub(crate) fn component(&self) -> BTreeSet<NodeId> {
        let mut reached = BTreeSet::from([self.own]);
        let mut open = vec![self.own];
        while let Some(node) = open.pop() {
            if reached.len() == self.records.len() {
                break;
            }
            let record = self.records.get(&node).into_iter();
            for link in record.flat_map(|record| record.links.iter()) {
                let other = self.records.get(&link.node);
                let is_listed_by_both = other.is_some_and(|other| other.lists(node));
                if is_listed_by_both && reached.insert(link.node) {
                    open.push(link.node);
                }
            }
        }
        reached
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(node: u64, incarnation: u64, version: u64, links: &[u64]) -> NodeRecord {
        NodeRecord {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            version,
            process: 0,
            name: String::new(),
            address: String::new(),
            clients: 0,
            subscriptions: 0,
            interest_version: 0,
            capability: 0,
            roots: 0,
            rate: 0,
            routing: 0,
            links: links
                .iter()
                .map(|node| ListedLink::first(NodeId(*node), 0))
                .collect(),
        }
    }

    #[test]
    fn the_highest_incarnation_and_version_wins() {
        let mut view = View::new(record(1, 1, 1, &[]), 3);
        let cases = [
            ("first", record(2, 5, 5, &[]), RecordNews::Newer),
            ("again", record(2, 5, 5, &[]), RecordNews::Old),
            ("older version", record(2, 5, 4, &[]), RecordNews::Old),
            ("older incarnation", record(2, 4, 9, &[]), RecordNews::Old),
            ("newer version", record(2, 5, 6, &[]), RecordNews::Newer),
            ("newer incarnation", record(2, 6, 1, &[]), RecordNews::Newer),
            (
                "another process of the same incarnation",
                NodeRecord {
                    process: 7,
                    ..record(2, 6, 1, &[])
                },
                RecordNews::Newer,
            ),
            ("the former process", record(2, 6, 9, &[]), RecordNews::Old),
        ];
        for (name, record, news) in cases {
            assert_eq!(view.apply(record), news, "{name}");
        }
    }

    #[test]
    fn the_component_holds_what_links_listed_by_both_ends_reach() {
        let mut view = View::new(record(1, 1, 1, &[2, 3]), 9);
        for other in [
            record(2, 1, 1, &[1, 4]),
            record(3, 1, 1, &[]),
            record(4, 1, 1, &[2, 5]),
            record(6, 1, 1, &[1]),
        ] {
            view.apply(other);
        }
        assert_eq!(
            view.component(),
            BTreeSet::from([NodeId(1), NodeId(2), NodeId(4)])
        );
    }

    #[test]
    fn a_full_table_gives_up_the_unreachable_first_and_then_refuses() {
        let mut view = View::new(record(1, 1, 1, &[2]), 3);
        for (other, news) in [
            (record(2, 1, 1, &[1, 4]), RecordNews::Newer),
            (record(3, 1, 1, &[]), RecordNews::Newer),
            (record(4, 1, 1, &[2]), RecordNews::Newer),
            (record(5, 1, 1, &[]), RecordNews::Full),
        ] {
            assert_eq!(view.apply(other), news);
        }
        assert!(view.record(NodeId(3)).is_none());
    }
}
