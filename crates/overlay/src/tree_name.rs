//! How the origin names the tree for a copy (rule 21), and the header of a batch on a tree.
//!
//! ```text
//! batch  version u8 | flags u8 (1: the name follows) | alias varint | [root u64, count varint, members u64*]
//!        | origin varint (its place among the members) | incarnation varint | stream varint | low varint | hops u8
//!        | remaining destinations: a bit for each member, the first in bit 0 of the first byte | records to the end
//! record a record as in any batch, and if it has a number, for each remaining destination a gap varint
//! ```
//!
//! The gap is how far before the record's number the one lies that the destination must deliver first; 0: none. Copies of one stream may take
//! different paths, yet are delivered in order.
//!
//! A name is sent once for each link and direction and has an alias from then on. Alias 0 with a name restarts the table.

use std::sync::Arc;

use crate::identity::{Incarnation, NodeId, StreamId};
use crate::record::{Record, age_expiry, outline};
use crate::wire::{Reader, WireError, put_varint};

/// The version at the start of every batch on a tree.
pub(crate) const TREE_BATCH_VERSION: u8 = 1;

const HAS_NAME: u8 = 1;

/// At most this many names sent on one link, and members in all of them; then the table restarts.
const MAXIMUM_ALIASES: usize = 4096;
const MAXIMUM_MEMBERS: usize = 128 * 1024;

/// The nodes of a tree and its root: what every node needs to compute it from its view.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TreeName {
    pub(crate) root: NodeId,
    /// Ascending, each once; the origin is among them.
    pub(crate) members: Vec<NodeId>,
}

impl TreeName {
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.members.binary_search(&node).ok()
    }
}

/// A set of the members of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MemberSet(Vec<u8>);

impl MemberSet {
    pub(crate) fn of(name: &TreeName, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut bits = vec![0; name.members.len().div_ceil(8)];
        for place in nodes.into_iter().filter_map(|node| name.place(node)) {
            bits[place / 8] |= 1 << (place % 8);
        }
        Self(bits)
    }

    /// The nodes in it, ascending.
    pub(crate) fn nodes<'a>(&'a self, name: &'a TreeName) -> impl Iterator<Item = NodeId> + 'a {
        let has = |place: usize| {
            self.0
                .get(place / 8)
                .is_some_and(|byte| byte >> (place % 8) & 1 == 1)
        };
        let members = name.members.iter().enumerate();
        members
            .filter(move |(place, _)| has(*place))
            .map(|(_, node)| *node)
    }
}

/// The header before the records of a batch on a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeHeader {
    pub(crate) name: Arc<TreeName>,
    pub(crate) origin: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) stream: StreamId,
    /// As in a direct batch: lower numbers are never resent.
    pub(crate) low: u64,
    /// Links that it has crossed before this one.
    pub(crate) hops: u8,
    pub(crate) remaining: MemberSet,
}

impl TreeHeader {
    /// Whether a record with the header `other` may join a batch with this header: everything except `low` is equal.
    pub(crate) fn joins(&self, other: &Self) -> bool {
        let key = |header: &Self| {
            (
                header.origin,
                header.incarnation,
                header.stream,
                header.hops,
            )
        };
        key(self) == key(other) && self.remaining == other.remaining && self.name == other.name
    }

    /// Appends the header; a name that was not sent on the link before is included.
    pub(crate) fn encode(&self, said: &mut Aliases, out: &mut Vec<u8>) {
        let (alias, is_new) = said.say(&self.name);
        out.extend_from_slice(&[TREE_BATCH_VERSION, if is_new { HAS_NAME } else { 0 }]);
        put_varint(out, alias as u64);
        if is_new {
            out.extend_from_slice(&self.name.root.0.to_le_bytes());
            put_varint(out, self.name.members.len() as u64);
            for member in &self.name.members {
                out.extend_from_slice(&member.0.to_le_bytes());
            }
        }
        put_varint(out, self.name.place(self.origin).unwrap_or(0) as u64);
        put_varint(out, self.incarnation.0);
        put_varint(out, u64::from(self.stream.0));
        put_varint(out, self.low);
        out.push(self.hops);
        out.extend_from_slice(&self.remaining.0);
    }

    /// Reads the header of a batch; returns it with the records after it.
    pub(crate) fn decode<'a>(
        bytes: &'a [u8],
        heard: &mut Aliases,
    ) -> Result<(Self, &'a [u8]), WireError> {
        let mut reader = Reader::new(bytes);
        let value = |field, value| WireError::Value { field, value };
        let (version, flags) = (reader.u8()?, reader.u8()?);
        if version != TREE_BATCH_VERSION {
            return Err(value("tree batch version", version.into()));
        }
        if flags & !HAS_NAME != 0 {
            return Err(value("tree batch flags", flags.into()));
        }
        let alias = reader.varint()?;
        if flags == HAS_NAME {
            heard.note_received(alias, decode_name(&mut reader)?)?;
        }
        let name = usize::try_from(alias)
            .ok()
            .and_then(|alias| heard.names.get(alias));
        let name = Arc::clone(name.ok_or_else(|| value("tree alias", alias))?);
        let origin = reader.varint()?;
        let place = usize::try_from(origin)
            .ok()
            .and_then(|place| name.members.get(place));
        let origin = *place.ok_or_else(|| value("tree origin", origin))?;
        let incarnation = Incarnation(reader.varint()?);
        let stream = reader.varint()?;
        let stream = StreamId(u16::try_from(stream).map_err(|_| value("tree stream", stream))?);
        let (low, hops) = (reader.varint()?, reader.u8()?);
        let bits = reader.take(name.members.len().div_ceil(8))?;
        let beyond = (name.members.len()..bits.len() * 8)
            .any(|place| bits[place / 8] >> (place % 8) & 1 == 1);
        if beyond {
            return Err(value(
                "remaining destinations beyond",
                name.members.len() as u64,
            ));
        }
        let header = Self {
            remaining: MemberSet(bits.to_vec()),
            name,
            origin,
            incarnation,
            stream,
            low,
            hops,
        };
        Ok((header, reader.rest()))
    }
}

fn decode_name(reader: &mut Reader<'_>) -> Result<TreeName, WireError> {
    let root = NodeId(reader.u64()?);
    let count = reader.varint()?;
    // Each member takes eight bytes of input, so the list grows no faster than the bytes that arrived.
    let mut members: Vec<NodeId> = Vec::new();
    for _ in 0..count {
        let member = NodeId(reader.u64()?);
        if members.last().is_some_and(|last| *last >= member) {
            return Err(WireError::Value {
                field: "tree member order",
                value: member.0,
            });
        }
        members.push(member);
    }
    Ok(TreeName { root, members })
}

/// The names sent, or received, on one link.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    names: Vec<Arc<TreeName>>,
    /// The members of all names.
    members: usize,
    /// Place of a name in `names`; only for names sent.
    places: std::collections::BTreeMap<Arc<TreeName>, usize>,
}

impl Aliases {
    /// The alias, and whether the name must be included.
    fn say(&mut self, name: &Arc<TreeName>) -> (usize, bool) {
        if let Some(alias) = self.places.get(name) {
            return (*alias, false);
        }
        if self.is_full_for(name) {
            *self = Self::default();
        }
        let alias = self.names.len();
        self.members += name.members.len();
        self.names.push(Arc::clone(name));
        self.places.insert(Arc::clone(name), alias);
        (alias, true)
    }

    /// Whether another name would exceed the limits. A single name is bounded by its packet.
    fn is_full_for(&self, name: &TreeName) -> bool {
        let members = self.members + name.members.len();
        self.names.len() >= MAXIMUM_ALIASES || (members > MAXIMUM_MEMBERS && !self.names.is_empty())
    }

    fn note_received(&mut self, alias: u64, name: TreeName) -> Result<(), WireError> {
        if alias == 0 {
            *self = Self::default();
        }
        if alias != self.names.len() as u64 || self.is_full_for(&name) {
            return Err(WireError::Value {
                field: "tree alias",
                value: alias,
            });
        }
        self.members += name.members.len();
        self.names.push(Arc::new(name));
        Ok(())
    }
}

/// Records for one link that share a header, not yet written.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) header: TreeHeader,
    pub(crate) records: Vec<u8>,
}

impl OpenBatch {
    /// Appends a record and its gaps; those without a number have none.
    pub(crate) fn push(&mut self, record: &[u8], gaps: &[u64]) {
        self.records.extend_from_slice(record);
        for gap in gaps {
            put_varint(&mut self.records, *gap);
        }
    }
}

/// A record of a batch on a tree.
#[derive(Debug)]
pub(crate) struct TreeRecord<'a> {
    /// Only its number, if it cannot be read.
    pub(crate) record: Record<'a>,
    /// Why it cannot be read: each destination refuses it.
    pub(crate) problem: Option<WireError>,
    /// As encoded.
    pub(crate) bytes: &'a [u8],
    /// For each remaining destination, ascending; none for a record without a number.
    pub(crate) gaps: Vec<u64>,
}

/// Lowers the remaining expiry of all records of a batch by `elapsed_ms`, the time they waited here.
pub(crate) fn age_records(
    bytes: &mut [u8],
    destinations: usize,
    elapsed_ms: u64,
) -> Result<(), WireError> {
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        age_expiry(rest, elapsed_ms);
        let Some((number, len)) = outline(rest) else {
            Record::decode(rest)?;
            return Ok(());
        };
        let mut reader = Reader::new(rest);
        reader.take(len)?;
        for _ in 0..if number > 0 { destinations } else { 0 } {
            reader.varint()?;
        }
        at += rest.len() - reader.rest().len();
    }
    Ok(())
}

/// Reads all records of a batch with this number of remaining destinations.
pub(crate) fn read_records(
    bytes: &[u8],
    destinations: usize,
) -> Result<Vec<TreeRecord<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut records = Vec::new();
    while !reader.is_empty() {
        let (record, len, problem) = match Record::decode(reader.rest()) {
            Ok((record, len)) => (record, len, None),
            Err(error) => {
                let Some((number, len)) = outline(reader.rest()) else {
                    return Err(error);
                };
                let record = Record {
                    number,
                    ..Record::default()
                };
                (record, len, Some(error))
            }
        };
        let bytes = reader.take(len)?;
        let count = if record.number > 0 { destinations } else { 0 };
        let mut gaps = Vec::with_capacity(count);
        for _ in 0..count {
            let gap = reader.varint()?;
            if gap >= record.number && gap > 0 {
                return Err(WireError::Value {
                    field: "gap before a record",
                    value: gap,
                });
            }
            gaps.push(gap);
        }
        records.push(TreeRecord {
            record,
            problem,
            bytes,
            gaps,
        });
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(root: u64, members: &[u64]) -> Arc<TreeName> {
        Arc::new(TreeName {
            root: NodeId(root),
            members: members.iter().copied().map(NodeId).collect(),
        })
    }

    fn header(name: &Arc<TreeName>, remaining: &[u64]) -> TreeHeader {
        TreeHeader {
            name: Arc::clone(name),
            origin: name.members[0],
            incarnation: Incarnation(1 << 40),
            stream: StreamId(3),
            low: 500,
            hops: 2,
            remaining: MemberSet::of(name, remaining.iter().copied().map(NodeId)),
        }
    }

    #[test]
    fn a_header_is_read_as_written_and_a_name_is_said_once() {
        let (first, second) = (name(3, &[1, 3, 9]), name(1, &[1, 2, 3, 4, 5, 6, 7, 8, 9]));
        let (mut said, mut heard) = (Aliases::default(), Aliases::default());
        let mut lengths = Vec::new();
        for (name, remaining) in [
            (&first, &[3, 9][..]),
            (&second, &[9]),
            (&first, &[]),
            (&second, &[2, 8, 9]),
        ] {
            let written = header(name, remaining);
            let mut bytes = Vec::new();
            written.encode(&mut said, &mut bytes);
            lengths.push(bytes.len());
            bytes.extend_from_slice(b"records");
            let (read, rest) = TreeHeader::decode(&bytes, &mut heard).expect("just written");
            assert_eq!((&read, rest), (&written, &b"records"[..]));
            let nodes: Vec<u64> = read
                .remaining
                .nodes(&read.name)
                .map(|node| node.0)
                .collect();
            assert_eq!(nodes, remaining);
        }
        assert_eq!(
            lengths,
            [48, 97, 15, 16],
            "15 bytes and one more for each eight members"
        );
    }

    #[test]
    fn a_full_table_of_names_begins_anew() {
        let (mut said, mut heard) = (Aliases::default(), Aliases::default());
        for number in 0..MAXIMUM_ALIASES as u64 + 10 {
            let mut bytes = Vec::new();
            let written = header(&name(number, &[number]), &[number]);
            written.encode(&mut said, &mut bytes);
            let (read, _) = TreeHeader::decode(&bytes, &mut heard).expect("just written");
            assert_eq!(read, written);
        }
        assert_eq!(heard.names.len(), 10);
    }

    #[test]
    fn records_that_waited_have_less_time_left() {
        let mut batch = OpenBatch {
            header: header(&name(1, &[1, 2, 3]), &[2, 3]),
            records: Vec::new(),
        };
        for (number, expiry_left_ms) in [
            (0, Some(5000)),
            (600, Some(700)),
            (601, None),
            (602, Some(100_000)),
        ] {
            let mut bytes = Vec::new();
            Record {
                number,
                expiry_left_ms,
                topic: "a",
                ..Record::default()
            }
            .encode(&mut bytes);
            let gaps: &[u64] = if number > 0 { &[300, 1] } else { &[] };
            batch.push(&bytes, gaps);
        }
        age_records(&mut batch.records, 2, 1000).expect("whole");
        let records = read_records(&batch.records, 2).expect("whole");
        let left: Vec<_> = records
            .iter()
            .map(|record| (record.record.number, record.record.expiry_left_ms))
            .collect();
        assert_eq!(
            left,
            [
                (0, Some(4000)),
                (600, Some(0)),
                (601, None),
                (602, Some(99_000))
            ]
        );
        batch.records.pop();
        assert!(age_records(&mut batch.records, 2, 1000).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in any::<Vec<u8>>(), prefix in any::<bool>()) {
            let mut heard = Aliases::default();
            let mut input = Vec::new();
            if prefix {
                header(&name(1, &[1, 2, 3]), &[2]).encode(&mut Aliases::default(), &mut input);
                input.truncate(bytes.len() % 40);
            }
            input.extend_from_slice(&bytes);
            if let Ok((header, rest)) = TreeHeader::decode(&input, &mut heard) {
                prop_assert!(rest.len() < input.len());
                prop_assert!(header.name.place(header.origin).is_some());
            }
        }
    }
}
