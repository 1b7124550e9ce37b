//! Records of acknowledged messages, and of deliveries to each subscriber.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_mqtt::Qos;

use super::CrashResult;

/// Bytes of a payload that identify its message: publisher and number.
pub(super) const STAMP: usize = 16;

/// Length of a step of the timeline.
pub(super) const TENTH_S: f64 = 0.1;
/// Most changes of the number of connections kept.
const MAX_CHANGES: usize = 1_000_000;
/// Most steps kept: a day.
const MAX_TENTHS: usize = 864_000;

/// Messages of one QoS, summed over subscribers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Acknowledged to their publishers, once for each subscriber.
    pub acknowledged: u64,
    /// Delivered at least once, whether acknowledged or not.
    pub delivered: u64,
    /// Acknowledged, but not delivered.
    pub missed: u64,
    /// Repeated deliveries.
    pub doubled: u64,
}

/// All counts, shared by all clients.
#[derive(Debug)]
pub(super) struct Ledger {
    qos: Vec<Qos>,
    /// By publisher: whether the message of that number was acknowledged.
    acknowledged: Vec<Mutex<Vec<bool>>>,
    /// By subscriber and publisher: how often the message of that number arrived, at most 255.
    received: Vec<Mutex<Vec<Vec<u8>>>>,
    /// By subscriber: messages in each tenth of a second since the start.
    rates: Vec<Mutex<Vec<u32>>>,
    /// Clients connected after each change, with its time in seconds since the start.
    connections: Mutex<Vec<(f64, u32)>>,
    began: Instant,
    /// Deliveries of all kinds, to detect that no more arrive.
    receipts: AtomicU64,
    in_service: AtomicUsize,
    redirects: AtomicU64,
}

impl Ledger {
    pub fn new(qos: Vec<Qos>, subscribers: usize) -> Self {
        let publishers = qos.len();
        Self {
            acknowledged: (0..publishers).map(|_| Mutex::default()).collect(),
            received: (0..subscribers)
                .map(|_| Mutex::new(vec![Vec::new(); publishers]))
                .collect(),
            rates: (0..subscribers).map(|_| Mutex::default()).collect(),
            connections: Mutex::default(),
            began: Instant::now(),
            receipts: AtomicU64::new(0),
            in_service: AtomicUsize::new(0),
            redirects: AtomicU64::new(0),
            qos,
        }
    }

    /// A subscriber is subscribed.
    pub fn enter_service(&self) {
        self.in_service.fetch_add(1, Ordering::Relaxed);
    }

    pub fn in_service(&self) -> usize {
        self.in_service.load(Ordering::Relaxed)
    }

    /// A client is connected, until the value is dropped.
    pub fn connected(&self) -> Connected<'_> {
        self.note_connections(|before| before + 1);
        Connected(self)
    }

    fn note_connections(&self, change: impl Fn(u32) -> u32) {
        let mut all = lock(&self.connections);
        let before = all.last().map_or(0, |(_, count)| *count);
        // The last one is kept up to date, so that later counts are right.
        if all.len() == MAX_CHANGES {
            all.pop();
        }
        // The clock is read under the lock: times rise.
        all.push((self.now_s(), change(before)));
    }

    /// Counts a redirection of a client.
    pub fn count_redirect(&self) {
        self.redirects.fetch_add(1, Ordering::Relaxed);
    }

    /// A publisher has received the acknowledgement of a message.
    pub fn acknowledge(&self, publisher: usize, number: u64) {
        let mut all = lock(&self.acknowledged[publisher]);
        let number = number as usize;
        if all.len() <= number {
            all.resize(number + 1, false);
        }
        all[number] = true;
    }

    /// Counts a message to a subscriber; messages of other runs are ignored.
    pub fn receive(&self, subscriber: usize, payload: &[u8]) {
        let Some((publisher, number)) = read_stamp(payload) else {
            return;
        };
        let mut all = lock(&self.received[subscriber]);
        let Some(counts) = all.get_mut(publisher) else {
            return;
        };
        if counts.len() <= number {
            counts.resize(number + 1, 0);
        }
        counts[number] = counts[number].saturating_add(1);
        self.receipts.fetch_add(1, Ordering::Relaxed);
        let tenth = (self.now_s() / TENTH_S) as usize;
        let mut rates = lock(&self.rates[subscriber]);
        // A run is bounded by its load; at most a day of tenths is kept.
        if tenth < MAX_TENTHS {
            if rates.len() <= tenth {
                rates.resize(tenth + 1, 0);
            }
            rates[tenth] += 1;
        }
    }

    /// Seconds since the start.
    pub fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Waits until nothing is missing, or nothing has arrived for `quiet`, or `most` has passed.
    pub fn drain(&self, quiet: Duration, most: Duration) {
        let began = Instant::now();
        let (mut seen, mut changed) = (u64::MAX, began);
        while began.elapsed() < most && changed.elapsed() < quiet {
            let receipts = self.receipts.load(Ordering::Relaxed);
            if receipts != seen {
                (seen, changed) = (receipts, Instant::now());
            } else if self.missing() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn missing(&self) -> u64 {
        let mut result = CrashResult::default();
        self.add_up(&mut result);
        result.qos_1.missed + result.qos_2.missed
    }

    pub fn add_up(&self, result: &mut CrashResult) {
        for received in &self.received {
            let received = lock(received);
            let (mut missed, mut doubled) = (0, 0);
            for (publisher, counts) in received.iter().enumerate() {
                let tally = tally(&lock(&self.acknowledged[publisher]), counts);
                missed += tally.missed;
                doubled += tally.doubled;
                match self.qos[publisher] {
                    Qos::ExactlyOnce => result.qos_2.add(tally),
                    Qos::AtLeastOnce | Qos::AtMostOnce => result.qos_1.add(tally),
                }
            }
            result.missed_by.push(missed);
            result.doubled_by.push(doubled);
        }
        result.redirects = self.redirects.load(Ordering::Relaxed);
        result.connections.clone_from(&lock(&self.connections));
        result.tenths_by = self.rates.iter().map(|rates| lock(rates).clone()).collect();
    }
}

/// A client that is connected.
#[derive(Debug)]
pub(super) struct Connected<'a>(&'a Ledger);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.note_connections(|before| before.saturating_sub(1));
    }
}

impl Tally {
    const fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.delivered += other.delivered;
        self.missed += other.missed;
        self.doubled += other.doubled;
    }
}

fn tally(acknowledged: &[bool], counts: &[u8]) -> Tally {
    let mut tally = Tally::default();
    for number in 0..acknowledged.len().max(counts.len()) {
        let was_acknowledged = acknowledged.get(number).copied().unwrap_or(false);
        let count = counts.get(number).copied().unwrap_or(0);
        tally.acknowledged += u64::from(was_acknowledged);
        tally.delivered += u64::from(count > 0);
        tally.missed += u64::from(was_acknowledged && count == 0);
        tally.doubled += u64::from(count.saturating_sub(1));
    }
    tally
}

/// Writes publisher and number of a message to the start of its payload.
pub(super) fn write_stamp(payload: &mut [u8], publisher: usize, number: u64) {
    payload[..8].copy_from_slice(&(publisher as u64).to_le_bytes());
    payload[8..STAMP].copy_from_slice(&number.to_le_bytes());
}

fn read_stamp(payload: &[u8]) -> Option<(usize, usize)> {
    let (publisher, rest) = payload.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk::<8>()?;
    // A number that no run reaches would only waste memory.
    let number = usize::try_from(u64::from_le_bytes(*number)).ok()?;
    let publisher = usize::try_from(u64::from_le_bytes(*publisher)).ok()?;
    (number < 1 << 32).then_some((publisher, number))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_counted_against_what_was_acknowledged_and_doubles_beyond_the_first() {
        let ledger = Ledger::new(vec![Qos::AtLeastOnce, Qos::ExactlyOnce], 2);
        let receive = |subscriber, publisher, number| {
            let mut payload = [0; 20];
            write_stamp(&mut payload, publisher, number);
            ledger.receive(subscriber, &payload);
        };
        for (publisher, number) in [(0, 0), (0, 1), (1, 0)] {
            ledger.acknowledge(publisher, number);
        }
        // One has all, one of them twice, and one that was never acknowledged; the other lacks one of QoS 1.
        for (subscriber, publisher, number) in [
            (0, 0, 0),
            (0, 0, 1),
            (0, 0, 1),
            (0, 0, 2),
            (0, 1, 0),
            (1, 0, 0),
            (1, 1, 0),
            (1, 1, 0),
        ] {
            receive(subscriber, publisher, number);
        }
        ledger.receive(0, b"not ours");
        receive(0, 7, 0);
        let mut result = CrashResult::default();
        ledger.add_up(&mut result);
        assert_eq!(
            result.qos_1,
            Tally {
                acknowledged: 4,
                delivered: 4,
                missed: 1,
                doubled: 1
            }
        );
        assert_eq!(
            result.qos_2,
            Tally {
                acknowledged: 2,
                delivered: 2,
                missed: 0,
                doubled: 1
            }
        );
        assert_eq!(
            (result.missed_by, result.doubled_by),
            (vec![0, 1], vec![1, 1])
        );
    }
}
