//! Versions of records: the two ends of a new link compare theirs, and a node announces those of records that changed, so that each record is sent
//! only to nodes that lack it (anti-entropy as in Scuttlebutt).

use crate::identity::{Incarnation, NodeId};
use crate::view::NodeRecord;
use crate::wire::{Reader, WireError, ascending, incarnation, put_varint};

/// Orders the versions of a node's record. Two processes with the same incarnation (a clock went back) must not count as versions of each other: all
/// nodes keep the record of the same process, and the other process raises its incarnation above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordAge {
    pub(crate) incarnation: Incarnation,
    pub(crate) process: u64,
    pub(crate) version: u64,
}

impl RecordAge {
    /// Older than any record: stands for a missing one.
    pub(crate) const NONE: Self = Self {
        incarnation: Incarnation(0),
        process: 0,
        version: 0,
    };
}

/// Why versions of records are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The sender has these versions and requests newer ones.
    Wanted,
    /// All versions that the sender has.
    All,
    /// The sender has these versions now, and they may be requested from it. Not before wire version 12.
    News,
}

/// Versions of records, ascending by node, each node once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordVersions {
    pub(crate) purpose: Purpose,
    pub(crate) versions: Vec<(NodeId, RecordAge)>,
}

impl RecordVersions {
    /// The versions of all records of a node.
    pub(crate) fn of<'a>(records: impl Iterator<Item = &'a NodeRecord>) -> Self {
        Self {
            purpose: Purpose::All,
            versions: records.map(|record| (record.node, record.age())).collect(),
        }
    }

    /// The sender has these versions, or none, and requests later ones.
    pub(crate) fn wanting(known: impl Iterator<Item = (NodeId, Option<RecordAge>)>) -> Self {
        let age =
            |(node, known): (NodeId, Option<RecordAge>)| (node, known.unwrap_or(RecordAge::NONE));
        Self {
            purpose: Purpose::Wanted,
            versions: known.map(age).collect(),
        }
    }

    /// The sender has these versions now.
    pub(crate) const fn news(versions: Vec<(NodeId, RecordAge)>) -> Self {
        Self {
            purpose: Purpose::News,
            versions,
        }
    }

    /// Whether this record should be sent to the sender of the versions.
    pub(crate) fn lacks(&self, record: &NodeRecord) -> bool {
        let at = self
            .versions
            .binary_search_by_key(&record.node, |(node, _)| *node);
        match at {
            Ok(at) => self.versions[at].1 < record.age(),
            Err(_) => self.purpose == Purpose::All,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.purpose {
            Purpose::Wanted => 0,
            Purpose::All => 1,
            Purpose::News => 2,
        });
        for (node, age) in &self.versions {
            out.extend_from_slice(&node.0.to_le_bytes());
            put_varint(out, age.incarnation.0);
            out.extend_from_slice(&age.process.to_le_bytes());
            put_varint(out, age.version);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let purpose = match reader.u8()? {
            0 => Purpose::Wanted,
            1 => Purpose::All,
            2 => Purpose::News,
            value => {
                return Err(WireError::Value {
                    field: "purpose of versions",
                    value: value.into(),
                });
            }
        };
        let mut versions: Vec<(NodeId, RecordAge)> = Vec::new();
        while !reader.is_empty() {
            let node = NodeId(reader.u64()?);
            let age = RecordAge {
                incarnation: incarnation(reader.varint()?)?,
                process: reader.u64()?,
                version: reader.varint()?,
            };
            ascending("order of versions", versions.last().map(|it| it.0), node)?;
            versions.push((node, age));
        }
        Ok(Self { purpose, versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::record;

    #[test]
    fn a_node_lacks_what_is_newer_and_what_it_does_not_name() {
        let known = RecordVersions::of([record(1, 2, 5, &[]), record(3, 1, 9, &[])].iter());
        for (name, other, is_lacking) in [
            ("the same", record(1, 2, 5, &[]), false),
            ("older", record(1, 2, 4, &[]), false),
            ("newer", record(1, 2, 6, &[]), true),
            ("a later incarnation", record(3, 2, 1, &[]), true),
            ("unknown", record(2, 1, 1, &[]), true),
        ] {
            assert_eq!(known.lacks(&other), is_lacking, "{name}");
        }
        let wanting = RecordVersions::wanting([(NodeId(4), None)].into_iter());
        assert!(wanting.lacks(&record(4, 1, 1, &[])));
        assert!(!wanting.lacks(&record(5, 1, 1, &[])), "not asked for");
    }

    #[test]
    fn versions_out_of_order_are_malformed() {
        let mut bytes = Vec::new();
        let swapped = RecordVersions::of([record(2, 1, 1, &[]), record(1, 1, 1, &[])].iter());
        swapped.encode(&mut bytes);
        let error = RecordVersions::decode(&mut Reader::new(&bytes));
        assert!(matches!(
            error,
            Err(WireError::Value {
                field: "order of versions",
                value: 1
            })
        ));
    }
}
