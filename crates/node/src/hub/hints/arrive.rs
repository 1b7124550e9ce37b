//! The side of the node that was down: messages that others kept for it go to its workers, once, and are acknowledged when those have them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use thicket_overlay::{
    Known, NodeId,
    record::{Record, age_expiry},
};

use super::{
    super::{Hub, retained::WriteOrder},
    wire::{Carried, HintMessage},
};
use crate::{
    Now,
    hub::hints::arrivals::{Batch, Early, Name},
    messages::{NumberRuns, Origin, Way, push_number},
};

impl Hub {
    /// Messages that another node kept for this one.
    pub(super) fn handle_hinted(&mut self, now: Now, from: NodeId, hints: &[Carried<'_>]) {
        if !self.cx.is_ready {
            // The workers may not all have announced their interests.
            let own = |it: &Carried<'_>| (it.serial, it.message.origin, it.message.record.to_vec());
            let hints = hints.iter().map(own).collect();
            let at = now.instant;
            self.hints.arrivals.early.push(Early { from, at, hints });
            return;
        }
        let hints = hints.iter();
        let hints = hints.map(|it| (it.serial, it.message.origin, it.message.record));
        self.take_hinted(now, from, hints);
    }

    /// Clients are served from now on.
    pub(in super::super) fn take_early_hints(&mut self, now: Now) {
        for mut early in std::mem::take(&mut self.hints.arrivals.early) {
            let waited = now.instant.since(early.at).as_millis() as u64;
            for (_, _, record) in &mut early.hints {
                age_expiry(record, waited);
            }
            let hints = early.hints.iter();
            let hints = hints.map(|(serial, origin, record)| (*serial, *origin, &**record));
            self.take_hinted(now, early.from, hints);
        }
    }

    fn take_hinted<'a>(
        &mut self,
        now: Now,
        from: NodeId,
        hints: impl Iterator<Item = (u64, Origin, &'a [u8])>,
    ) {
        let mut batch = Batch {
            from,
            upto: 0,
            open: BTreeSet::new(),
        };
        for (serial, origin, bytes) in hints {
            batch.upto = serial;
            let Ok((record, _)) = Record::decode(bytes) else {
                continue;
            };
            let name = (origin, record.number);
            if self.hints.arrivals.note(name) {
                self.hints.arrivals.last_at = Some(now.instant);
                match self.has_received(origin, record.number) {
                    Known::No => self.give_hint(now, origin, &record, bytes),
                    Known::UnderWay => {
                        self.hints.arrivals.doubled.insert(name);
                    }
                    Known::Admitted => {}
                }
            }
            let arrivals = &self.hints.arrivals;
            if arrivals.under_way.contains_key(&name) || arrivals.doubled.contains(&name) {
                batch.open.insert(name);
            }
        }
        self.hints.arrivals.batches.push_back(batch);
        self.answer_hints();
    }

    /// Whether a message arrived from its origin itself, before the two declared each other down.
    fn has_received(&self, origin: Origin, number: u64) -> Known {
        self.cx
            .overlay
            .slot_of(origin.node)
            .map_or(Known::No, |slot| {
                let origin = thicket_overlay::Origin {
                    slot,
                    incarnation: origin.incarnation,
                    stream: origin.stream,
                };
                self.cx.overlay.knows(origin, number)
            })
    }

    /// Delivers to the workers with matching subscriptions; retained messages may have arrived when the nodes compared theirs.
    fn give_hint(&mut self, now: Now, origin: Origin, record: &Record<'_>, bytes: &[u8]) {
        let is_known =
            record.retain && self.retained.observe(now, origin, record) == WriteOrder::Known;
        let recipients = if is_known {
            0
        } else {
            self.deliver_single(origin, record.topic, bytes, Way::Hint)
        };
        if recipients > 0 {
            let name = (origin, record.number);
            self.hints.arrivals.under_way.insert(name, recipients);
        }
    }

    /// A worker has accepted messages, or refused them over its limit. Returns those that were not kept for this node by others; `None`: all of them.
    pub(in super::super) fn settle_hints(
        &mut self,
        origin: Origin,
        numbers: &NumberRuns,
    ) -> Option<NumberRuns> {
        let arrivals = &mut self.hints.arrivals;
        if arrivals.under_way.is_empty() {
            return None;
        }
        let mut others = NumberRuns::new();
        for number in numbers.iter().flat_map(|(from, to)| *from..=*to) {
            let name = (origin, number);
            if let Some(recipients) = arrivals.under_way.get_mut(&name) {
                *recipients -= 1;
                if *recipients == 0 {
                    arrivals.under_way.remove(&name);
                    arrivals.close(name);
                }
                continue;
            }
            push_number(&mut others, number);
        }
        self.answer_hints();
        Some(others)
    }

    /// These messages arrived from their origin and are admitted here: acknowledges them to the nodes that kept them.
    pub(in super::super) fn settle_doubles(
        &mut self,
        origin: Origin,
        numbers: RangeInclusive<u64>,
    ) {
        let arrivals = &mut self.hints.arrivals;
        if arrivals.doubled.is_empty() {
            return;
        }
        let names = (origin, *numbers.start())..=(origin, *numbers.end());
        let taken: Vec<Name> = arrivals.doubled.range(names).copied().collect();
        for name in &taken {
            arrivals.doubled.remove(name);
            arrivals.close(*name);
        }
        if !taken.is_empty() {
            self.answer_hints();
        }
    }

    /// Acknowledges accepted batches, for each node in order.
    fn answer_hints(&mut self) {
        let mut open: BTreeSet<NodeId> = BTreeSet::new();
        let mut answers = Vec::new();
        self.hints.arrivals.batches.retain(|batch| {
            let is_done = batch.open.is_empty() && !open.contains(&batch.from);
            if is_done {
                answers.push((batch.from, batch.upto));
            } else {
                open.insert(batch.from);
            }
            !is_done
        });
        for (from, upto) in answers {
            self.send_hint_message(from, &HintMessage::HintsAccepted { upto });
        }
    }
}
