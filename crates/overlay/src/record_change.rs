//! The difference between two versions of a node's record. A record lists all links of its node; a change only those that changed.

use crate::identity::{Incarnation, NodeId};
use crate::record_versions::RecordAge;
use crate::routing::ListedLink;
use crate::view::NodeRecord;
use crate::wire::{Reader, WireError, ascending, incarnation, put_varint};

/// The change from one version of a record to a later one of the same process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordChange {
    pub(crate) node: NodeId,
    incarnation: Incarnation,
    process: u64,
    /// The version that it starts from.
    from: u64,
    /// The version that it leads to.
    to: u64,
    /// Clients, subscriptions, interest version, capability, roots, rate: as in the record.
    numbers: [u64; 6],
    /// Ascending.
    lost: Vec<NodeId>,
    /// Links that are new, were replaced, or have another RTT; ascending by node.
    changed: Vec<ListedLink>,
}

impl RecordChange {
    /// `None` if `after` is not a later version of `before`, or if something differs that never changes within a process.
    pub(crate) fn between(before: &NodeRecord, after: &NodeRecord) -> Option<Self> {
        let lasting = |it: &NodeRecord| (it.node, it.incarnation, it.process, it.routing);
        let is_later = lasting(before) == lasting(after)
            && (&before.name, &before.address) == (&after.name, &after.address)
            && before.version < after.version;
        if !is_later {
            return None;
        }
        let lost = before.links.iter().map(|link| link.node);
        let changed = after.links.iter();
        let changed = changed.filter(|link| before.link(link.node) != Some(*link));
        Some(Self {
            node: after.node,
            incarnation: after.incarnation,
            process: after.process,
            from: before.version,
            to: after.version,
            numbers: numbers(after),
            lost: lost.filter(|node| !after.lists(*node)).collect(),
            changed: changed.copied().collect(),
        })
    }

    /// The age of the record after the change.
    pub(crate) const fn age(&self) -> RecordAge {
        RecordAge {
            incarnation: self.incarnation,
            process: self.process,
            version: self.to,
        }
    }

    /// The record after the change; `None` if `before` is not the version that it starts from.
    pub(crate) fn apply(&self, before: &NodeRecord) -> Option<NodeRecord> {
        let changes = RecordAge {
            version: self.from,
            ..self.age()
        };
        if (before.node, before.age()) != (self.node, changes) {
            return None;
        }
        let is_kept = |node: NodeId| {
            let is_changed = self.changed.binary_search_by_key(&node, |link| link.node);
            is_changed.is_err() && self.lost.binary_search(&node).is_err()
        };
        let kept = before.links.iter().filter(|link| is_kept(link.node));
        let mut links: Vec<ListedLink> = kept.chain(&self.changed).copied().collect();
        links.sort_unstable_by_key(|link| link.node);
        let [
            clients,
            subscriptions,
            interest_version,
            capability,
            roots,
            rate,
        ] = self.numbers;
        Some(NodeRecord {
            version: self.to,
            clients,
            subscriptions,
            interest_version,
            capability,
            roots,
            rate,
            links: links.into(),
            name: before.name.clone(),
            address: before.address.clone(),
            ..*before
        })
    }

    /// Whether it contains nothing that differs from `own`, the version after it.
    pub(crate) fn agrees_with(&self, own: &NodeRecord) -> bool {
        let is_there = |link: &ListedLink| own.link(link.node) == Some(link);
        self.age() == own.age()
            && self.numbers == numbers(own)
            && self.lost.iter().all(|node| !own.lists(*node))
            && self.changed.iter().all(is_there)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.0.to_le_bytes());
        put_varint(out, self.incarnation.0);
        out.extend_from_slice(&self.process.to_le_bytes());
        put_varint(out, self.from);
        put_varint(out, self.to);
        for number in self.numbers {
            put_varint(out, number);
        }
        put_varint(out, self.lost.len() as u64);
        for node in &self.lost {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
        put_varint(out, self.changed.len() as u64);
        for link in &self.changed {
            out.extend_from_slice(&link.node.0.to_le_bytes());
            put_varint(out, u64::from(link.rtt));
            put_varint(out, u64::from(link.epoch));
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut change = Self {
            node: NodeId(reader.u64()?),
            incarnation: incarnation(reader.varint()?)?,
            process: reader.u64()?,
            from: reader.varint()?,
            to: reader.varint()?,
            numbers: [0; 6],
            lost: Vec::new(),
            changed: Vec::new(),
        };
        if change.to <= change.from {
            return Err(WireError::Value {
                field: "version after a change",
                value: change.to,
            });
        }
        for number in &mut change.numbers {
            *number = reader.varint()?;
        }
        // Each entry takes at least eight bytes of input, so the lists grow no faster than the bytes that arrived.
        for _ in 0..reader.varint()? {
            let node = NodeId(reader.u64()?);
            ascending("lost link order", change.lost.last().copied(), node)?;
            change.lost.push(node);
        }
        for _ in 0..reader.varint()? {
            let node = NodeId(reader.u64()?);
            ascending(
                "changed link order",
                change.changed.last().map(|link| link.node),
                node,
            )?;
            let rtt = reader.number("rtt")?;
            let epoch = reader.number("link epoch")?;
            change.changed.push(ListedLink { node, rtt, epoch });
        }
        Ok(change)
    }
}

const fn numbers(record: &NodeRecord) -> [u64; 6] {
    [
        record.clients,
        record.subscriptions,
        record.interest_version,
        record.capability,
        record.roots,
        record.rate,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::record;

    fn later(before: &NodeRecord, links: &[(u64, u32, u32)]) -> NodeRecord {
        let link = |&(node, rtt, epoch): &(u64, u32, u32)| ListedLink {
            node: NodeId(node),
            rtt,
            epoch,
        };
        NodeRecord {
            version: before.version + 1,
            clients: 7,
            rate: 64,
            links: links.iter().map(link).collect(),
            ..before.clone()
        }
    }

    #[test]
    fn a_change_makes_the_later_record_of_the_earlier_one_and_of_no_other() {
        let before = record(1, 1, 4, &[2, 3, 4]);
        let cases = [
            ("numbers alone", vec![(2, 0, 1), (3, 0, 1), (4, 0, 1)], 0),
            ("a link lost", vec![(2, 0, 1), (4, 0, 1)], 8),
            ("all lost", vec![], 24),
            (
                "one more in front",
                vec![(1, 5, 1), (2, 0, 1), (3, 0, 1), (4, 0, 1)],
                10,
            ),
            ("another link", vec![(2, 0, 1), (3, 0, 2), (4, 0, 1)], 10),
            ("another RTT", vec![(2, 0, 1), (3, 9, 1), (4, 0, 1)], 10),
        ];
        for (name, links, bytes) in cases {
            let after = later(&before, &links);
            let change = RecordChange::between(&before, &after).expect(name);
            assert_eq!(change.apply(&before).as_ref(), Some(&after), "{name}");
            assert!(change.agrees_with(&after), "{name}");
            let mut encoded = Vec::new();
            change.encode(&mut encoded);
            assert_eq!(encoded.len(), 27 + bytes, "{name}");
            let decoded = RecordChange::decode(&mut Reader::new(&encoded));
            assert_eq!(decoded, Ok(change.clone()), "{name}");
            for (other, what) in [
                (record(1, 1, 3, &[2, 3, 4]), "an earlier version"),
                (record(1, 2, 4, &[2, 3, 4]), "another incarnation"),
                (record(2, 1, 4, &[2, 3, 4]), "another node"),
            ] {
                assert_eq!(change.apply(&other), None, "{name}, {what}");
            }
        }
    }

    #[test]
    fn there_is_no_change_between_processes_nor_back() {
        let before = record(1, 1, 4, &[2]);
        for (name, after) in [
            ("the same", before.clone()),
            ("an earlier version", record(1, 1, 3, &[2])),
            ("another incarnation", record(1, 2, 5, &[2])),
            (
                "another address",
                NodeRecord {
                    address: "b:1".into(),
                    ..later(&before, &[])
                },
            ),
        ] {
            assert_eq!(RecordChange::between(&before, &after), None, "{name}");
        }
    }

    #[test]
    fn an_altered_change_does_not_agree_with_what_its_node_says() {
        let before = record(1, 1, 4, &[2, 3]);
        let own = later(&before, &[(2, 0, 1), (4, 3, 1)]);
        for (name, altered) in [
            (
                "a link more",
                later(&before, &[(2, 0, 1), (4, 3, 1), (5, 0, 1)]),
            ),
            ("another RTT", later(&before, &[(2, 0, 1), (4, 4, 1)])),
            ("a link less", later(&before, &[(4, 3, 1)])),
            (
                "another number",
                NodeRecord {
                    capability: 200,
                    ..own.clone()
                },
            ),
        ] {
            let change = RecordChange::between(&before, &altered).expect(name);
            assert!(!change.agrees_with(&own), "{name}");
        }
    }
}
