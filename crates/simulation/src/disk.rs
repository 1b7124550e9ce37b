//! The data that a node stored: values, and a log for each worker.

use std::collections::BTreeMap;

use thicket_node::{Hub, Keyspace, LogStatus, Now, Stored, Unstored, Worker};

/// Bytes of a segment.
const SEGMENT: u64 = 2048;

/// One log: records by segment.
#[derive(Debug, Default)]
struct Log {
    segments: BTreeMap<u64, Vec<Vec<u8>>>,
}

/// A disk that keeps everything written to it.
#[derive(Debug)]
pub struct Disk {
    values: BTreeMap<(Keyspace, Vec<u8>), Vec<u8>>,
    logs: BTreeMap<u8, Log>,
    /// Bytes that each log may still take.
    pub space: u64,
    /// Segments removed so far.
    pub removed_segments: u64,
    /// Writes until the power fails: the values of a round are one, its record is another.
    left: Option<u64>,
    /// No write completes before this time.
    stalled_until: u64,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            logs: BTreeMap::new(),
            space: u64::MAX,
            removed_segments: 0,
            left: None,
            stalled_until: 0,
        }
    }
}

impl Disk {
    /// The power fails after this many writes: later ones are lost.
    pub fn fail_after(&mut self, writes: u64) {
        self.left = Some(writes);
    }

    /// No write completes before `at`, in the time of the world.
    pub fn stall_until(&mut self, at: u64) {
        self.stalled_until = at;
    }

    /// When a write that begins now completes, if not at once.
    pub(crate) fn stalled_until(&self, now: u64) -> Option<u64> {
        (self.stalled_until > now).then_some(self.stalled_until)
    }

    /// Whether the power has failed, so that its node does nothing more.
    pub fn has_failed(&self) -> bool {
        self.left == Some(0)
    }

    /// Restores the power.
    pub fn repair(&mut self) {
        self.left = None;
        self.stalled_until = 0;
    }

    /// Whether there is still power for a write.
    fn may_write(&mut self) -> bool {
        let Some(left) = &mut self.left else {
            return true;
        };
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    /// Stores a round before any of its output may leave; all of it is on the disk unless the power fails.
    pub fn store(&mut self, log: u8, unstored: &Unstored<'_>) -> LogStatus {
        if !unstored.record.is_empty() && self.may_write() {
            self.store_record(log, unstored);
        }
        if !unstored.operations.is_empty() && self.may_write() {
            self.store_values(unstored);
        }
        self.status(log)
    }

    fn store_values(&mut self, unstored: &Unstored<'_>) {
        for operation in unstored.operations {
            let key = (operation.keyspace, operation.key.clone());
            match &operation.value {
                Some(value) => self.values.insert(key, value.clone()),
                None => self.values.remove(&key),
            };
        }
    }

    fn store_record(&mut self, log: u8, unstored: &Unstored<'_>) {
        let needed = unstored.record.len() as u64;
        assert!(
            needed <= self.space,
            "the node does not write more than the disk has space for"
        );
        if self.space < u64::MAX {
            self.space -= needed;
        }
        let current = self.status(log).segment;
        let segments = &mut self.logs.entry(log).or_default().segments;
        segments
            .entry(current)
            .or_default()
            .push(unstored.record.to_vec());
    }

    /// How full a log is.
    pub fn status(&self, log: u8) -> LogStatus {
        let bytes_of =
            |records: &Vec<Vec<u8>>| records.iter().map(|it| it.len() as u64).sum::<u64>();
        let segments = self.logs.get(&log).map(|log| &log.segments);
        let last = segments.and_then(BTreeMap::last_key_value);
        let segment = last.map_or(0, |(number, records)| {
            number + u64::from(bytes_of(records) >= SEGMENT)
        });
        LogStatus {
            segment,
            bytes: segments.map_or(0, |it| it.values().map(bytes_of).sum()),
            space: self.space,
            is_short: false,
            values_space: self.space,
        }
    }

    /// Removes the segments of a log before this one.
    pub fn remove_before(&mut self, log: u8, segment: u64) {
        let log = self.logs.entry(log).or_default();
        let kept = log.segments.split_off(&segment);
        self.removed_segments += log.segments.len() as u64;
        log.segments = kept;
    }

    /// Passes everything stored to workers and hub that start.
    pub fn recover(&mut self, now: Now, workers: &mut [Worker], hub: &mut Hub) {
        let count = workers.len();
        for ((keyspace, key), value) in &self.values {
            let stored = Stored::Value {
                keyspace: *keyspace,
                key,
                value,
            };
            let result = match keyspace {
                Keyspace::Retained | Keyspace::Members => hub.recover(now, stored),
                Keyspace::Sessions | Keyspace::Subscriptions => {
                    workers[usize::from(key[0]) % count].recover(now, stored)
                }
            };
            result.expect("written by us");
        }
        for (log, records) in &self.logs {
            for record in records.segments.values().flatten() {
                let stored = Stored::Record { log: *log, record };
                workers[usize::from(*log) % count]
                    .recover(now, stored)
                    .expect("written by us");
            }
        }
        for (index, worker) in workers.iter_mut().enumerate() {
            worker.finish_recovery(now);
            if let Some(unstored) = worker.unstored(now) {
                let status = self.store(index as u8, &unstored);
                worker.handle_stored(status);
            }
        }
        // The data of workers that no longer exist has been stored again by others.
        self.logs.retain(|log, _| usize::from(*log) < count);
    }
}
