//! Records on their way from links to workers.

use thicket_overlay::Delivery;

use crate::{
    hub::state::interests::Interests,
    messages::{NumberRuns, push_number},
};

/// Messages of one read from a link, sorted by worker as they come: decoded once, copied once.
#[derive(Debug, Default)]
pub(in crate::hub) struct Arrivals {
    /// By worker: batches of one origin each, in order.
    pub records: Vec<Vec<(thicket_overlay::Origin, Vec<u8>)>>,
    /// By worker: bytes of the last batch, which the next one is likely to need too.
    pub expected: Vec<usize>,
    /// What is owed to the overlay for them, by runs of one origin.
    pub runs: Vec<Run>,
    /// Messages with numbers are checked one by one: another node may have kept a copy.
    pub checks_hints: bool,
    /// The first message that must be handled by itself, such as retained ones or ones for shared subscriptions, and all behind it.
    pub late: Vec<(thicket_overlay::Origin, u32)>,
    pub late_bytes: Vec<u8>,
}

/// Messages of one origin in a row.
#[derive(Debug)]
pub(in crate::hub) struct Run {
    pub origin: thicket_overlay::Origin,
    /// Bytes of those without numbers.
    pub released: u64,
    /// Numbers without a recipient here.
    pub unwanted: NumberRuns,
    /// Numbers in a row that more than one worker has to admit, with how many.
    pub several: Vec<((u64, u64), u32)>,
}

impl Run {
    pub const fn new(origin: thicket_overlay::Origin) -> Self {
        Self {
            origin,
            released: 0,
            unwanted: Vec::new(),
            several: Vec::new(),
        }
    }

    /// Notes what is owed for a message that goes to this many workers.
    pub fn note(&mut self, number: u64, len: usize, recipients: usize) {
        match (number, recipients) {
            (0, _) => self.released += len as u64,
            (_, 0) => push_number(&mut self.unwanted, number),
            (_, 1) => {}
            (_, recipients) => match self.several.last_mut() {
                Some(((_, last), workers))
                    if *last + 1 == number && *workers == recipients as u32 =>
                {
                    *last = number;
                }
                Some(_) | None => self.several.push(((number, number), recipients as u32)),
            },
        }
    }
}

impl Arrivals {
    pub fn new(workers: u8) -> Self {
        let workers = usize::from(workers);
        Self {
            records: vec![Vec::new(); workers],
            expected: vec![0; workers],
            ..Self::default()
        }
    }

    pub fn take(&mut self, interests: &mut Interests, delivery: &Delivery<'_>) {
        let (record, bytes) = (delivery.record, delivery.bytes);
        let may_be_known = self.checks_hints && record.number > 0;
        let is_late = record.retain || !record.shared.is_empty() || may_be_known;
        if is_late || !self.late.is_empty() {
            self.late_bytes.extend_from_slice(bytes);
            self.late.push((delivery.origin, bytes.len() as u32));
            return;
        }
        let route = interests.route(record.topic);
        for worker in &route.plain {
            let index = usize::from(worker.0);
            let batches = &mut self.records[index];
            match batches.last_mut() {
                Some((origin, batch)) if *origin == delivery.origin => {
                    batch.extend_from_slice(bytes);
                }
                Some(_) | None => {
                    let mut batch = Vec::with_capacity(self.expected[index].max(bytes.len()));
                    batch.extend_from_slice(bytes);
                    batches.push((delivery.origin, batch));
                }
            }
        }
        if self.runs.last().map(|run| run.origin) != Some(delivery.origin) {
            self.runs.push(Run::new(delivery.origin));
        }
        if let Some(run) = self.runs.last_mut() {
            run.note(record.number, bytes.len(), route.plain.len());
        }
    }

    pub fn clear(&mut self) {
        self.late.clear();
        self.late_bytes.clear();
    }
}
