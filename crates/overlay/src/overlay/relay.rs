//! Batches received over trees: what is for this node is delivered in the order of its origin, the rest is passed on.

use std::collections::{BTreeMap, BTreeSet};

use thicket_session::time::Instant;

use super::Overlay;
use super::forwarding::RefusedRecord;
use super::messages::{Deliver, LinkError};
use super::trees::Hop;
use crate::identity::{LinkId, NodeId, NodeSlot, Origin};
use crate::inbound::Arrival;
use crate::interface::Delivery;
use crate::record::{Record, outline};
use crate::tree_name::{MemberSet, TreeHeader, TreeRecord, age_records, read_records};
use crate::trees::NamedTree;
use crate::tunnel::MAXIMUM_HOPS;
use crate::wire::WireError;

/// Batches without a path that are kept, and their bytes.
const MAXIMUM_HELD: usize = 1024;
const MAXIMUM_HELD_BYTES: usize = 1024 * 1024;

/// A batch with destinations to which no path is known.
#[derive(Debug)]
pub(super) struct Held {
    since: Instant,
    until: Instant,
    header: TreeHeader,
    missed: Vec<NodeId>,
    records: Vec<u8>,
}

#[cfg(test)]
impl Held {
    /// Bytes of its records.
    pub(super) const fn len(&self) -> usize {
        self.records.len()
    }
}

/// A batch of another node that is passed on.
struct Batch<'a> {
    header: &'a TreeHeader,
    /// Its records, as received and decoded.
    bytes: &'a [u8],
    records: &'a [TreeRecord<'a>],
    /// The neighbour it came from, unless it was held here.
    from: Option<NodeId>,
    since: Instant,
    /// How long it may wait for a path.
    until: Instant,
}

/// Refuses numbers below the lowest one that the origin may still send.
fn check_low(low: u64, records: &[TreeRecord<'_>]) -> Result<(), WireError> {
    let mut numbers = records.iter().map(|record| record.record.number);
    match numbers.find(|number| *number > 0 && *number < low) {
        Some(value) => Err(WireError::Value {
            field: "number below those sent again",
            value,
        }),
        None => Ok(()),
    }
}

impl Overlay {
    /// A batch on a tree, from a neighbour: for this node, for others, or both.
    pub(super) fn on_tree_batch(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        id: LinkId,
        payload: &[u8],
        deliver: Deliver<'_>,
    ) -> Result<(), LinkError> {
        let own = self.config.node;
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        let (header, bytes) = TreeHeader::decode(payload, &mut link.aliases_received)?;
        let nodes: Vec<NodeId> = header.remaining.nodes(&header.name).collect();
        let records = read_records(bytes, nodes.len())?;
        check_low(header.low, &records)?;
        let from = self.peer_mut(slot).map(|peer| {
            peer.counters.data_in_messages += records.len() as u64;
            peer.node
        });
        if header.origin == own {
            // Only a faulty node sends us our own messages.
            self.counters.relay_misses += records.len() as u64;
            return Ok(());
        }
        if let Some(place) = nodes.iter().position(|node| *node == own) {
            self.take_from_tree(now, &header, &records, place, deliver);
        }
        let rest: Vec<_> = nodes.into_iter().filter(|node| *node != own).collect();
        if !rest.is_empty() {
            let until = now + self.config.timing.resend_after;
            let batch = Batch {
                header: &header,
                bytes,
                records: &records,
                from,
                since: now,
                until,
            };
            self.relay(&batch, &rest);
        }
        Ok(())
    }

    /// Delivers the new messages of a batch, each after those that precede it.
    fn take_from_tree(
        &mut self,
        now: Instant,
        header: &TreeHeader,
        records: &[TreeRecord<'_>],
        place: usize,
        deliver: Deliver<'_>,
    ) {
        let maximum_ranges = self.config.limits.window_ranges;
        let slot = self.slots.get(&header.origin).copied();
        let found = slot.and_then(|slot| Some((slot, self.peer_mut(slot)?)));
        // Messages of a former process of the origin must not be delivered after those of the current one.
        let Some((slot, peer)) = found
            .filter(|(_, peer)| !peer.is_down() && header.incarnation >= peer.first_incarnation)
        else {
            self.counters.relay_misses += 1;
            return;
        };
        let (incarnation, stream) = (header.incarnation, header.stream);
        if peer
            .inbound
            .start_batch(incarnation, stream, header.low, maximum_ranges)
            .is_err()
        {
            peer.counters.refused += 1;
            return;
        }
        let origin = Origin {
            slot,
            incarnation,
            stream,
        };
        let mut refused = Vec::new();
        for TreeRecord {
            record,
            problem,
            bytes,
            gaps,
        } in records
        {
            let gap = gaps.get(place).copied().unwrap_or(0);
            match peer.inbound.arrive_over_tree(
                now,
                (incarnation, stream),
                record.number,
                gap,
                bytes,
            ) {
                Arrival::New => match problem {
                    Some(error) => refused.push(RefusedRecord {
                        number: record.number,
                        len: bytes.len(),
                        error: error.clone(),
                    }),
                    None => deliver(Delivery {
                        origin,
                        record,
                        bytes,
                    }),
                },
                Arrival::Waits => {}
                Arrival::Known => peer.counters.duplicates += 1,
                Arrival::OverLimit => peer.counters.dropped += 1,
            }
            while let Some(bytes) = peer.inbound.take_next(now, (incarnation, stream)) {
                match (Record::decode(&bytes), outline(&bytes)) {
                    (Ok((record, _)), _) => deliver(Delivery {
                        origin,
                        record: &record,
                        bytes: &bytes,
                    }),
                    (Err(error), Some((number, len))) => {
                        refused.push(RefusedRecord { number, len, error });
                    }
                    (Err(_), None) => {}
                }
            }
        }
        self.refuse_records(origin, refused);
    }

    /// The next hop of a copy that came from `from`. It is not sent back there, nor along trees beyond the hop limit: the views then differ, and the
    /// direct link is better.
    fn next_for(
        &self,
        tree: &NamedTree,
        node: NodeId,
        hops: u8,
        from: Option<NodeId>,
    ) -> Option<Hop> {
        let by_tree = self.hop_by(tree, node).filter(|_| hops < MAXIMUM_HOPS);
        let goes_back = |(slot, _): &Hop| self.peer(*slot).map(|peer| peer.node) == from;
        let onward = by_tree.filter(|hop| !goes_back(hop));
        onward.or_else(|| self.link_up(node)).or(by_tree)
    }

    /// No path is known to these nodes: the batch is kept for the next view, for a limited time and within a limit (rule 20).
    fn hold(&mut self, batch: &Batch<'_>, missed: Vec<NodeId>) {
        let before = self.held.len();
        self.held.retain(|held| batch.since < held.until);
        self.counters.relay_misses += (before - self.held.len()) as u64;
        let held: usize = self.held.iter().map(|held| held.records.len()).sum();
        if held + batch.bytes.len() > MAXIMUM_HELD_BYTES || self.held.len() >= MAXIMUM_HELD {
            self.counters.relay_misses += 1;
            return;
        }
        self.held.push(Held {
            since: batch.since,
            until: batch.until,
            header: batch.header.clone(),
            missed,
            records: batch.bytes.to_vec(),
        });
    }

    /// The view has changed: held batches may have a path now.
    pub(super) fn relay_held(&mut self, now: Instant) {
        for mut held in std::mem::take(&mut self.held) {
            let count = held.header.remaining.nodes(&held.header.name).count();
            let waited = now.since(held.since).as_millis();
            let waited = u64::try_from(waited).unwrap_or(u64::MAX);
            let aged = age_records(&mut held.records, count, waited);
            match aged.and_then(|()| read_records(&held.records, count)) {
                Ok(records) if now < held.until => {
                    let batch = Batch {
                        header: &held.header,
                        bytes: &held.records,
                        records: &records,
                        from: None,
                        since: now,
                        until: held.until,
                    };
                    self.relay(&batch, &held.missed);
                }
                Ok(_) | Err(_) => self.counters.relay_misses += 1,
            }
        }
    }

    /// Passes a batch on. Numbered messages never wait here and are not dropped over a limit: their origins' windows bound them. Unnumbered ones may
    /// be dropped.
    fn relay(&mut self, batch: &Batch<'_>, rest: &[NodeId]) {
        let header = batch.header;
        let tree = self.trees.of_name(&header.name);
        let mut branches: BTreeMap<Hop, BTreeSet<NodeId>> = BTreeMap::new();
        let mut missed = Vec::new();
        for node in rest {
            match self.next_for(&tree, *node, header.hops, batch.from) {
                Some(hop) => drop(branches.entry(hop).or_default().insert(*node)),
                None => missed.push(*node),
            }
        }
        if !missed.is_empty() {
            self.hold(batch, missed);
        }
        for (hop, nodes) in branches {
            let before = header.remaining.nodes(&header.name).enumerate();
            let places: Vec<usize> = before
                .filter(|(_, node)| nodes.contains(node))
                .map(|(place, _)| place)
                .collect();
            let onward = TreeHeader {
                hops: header.hops.saturating_add(1),
                remaining: MemberSet::of(&header.name, nodes),
                ..header.clone()
            };
            for TreeRecord {
                record,
                bytes,
                gaps,
                ..
            } in batch.records
            {
                if record.number == 0 && self.is_congested(hop.1) {
                    self.counters.relay_drops += 1;
                    continue;
                }
                let gaps: Vec<u64> = places
                    .iter()
                    .filter_map(|place| gaps.get(*place).copied())
                    .collect();
                self.append(hop, onward.clone(), bytes, &gaps);
                self.counters.relayed_messages += 1;
                self.counters.relayed_bytes += bytes.len() as u64;
            }
        }
    }
}
