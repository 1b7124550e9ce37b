//! Recently sent messages: to recognise echoes from a broker of 3.1.1, where neither No Local nor a user property helps, and what comes round a ring
//! in which marks are lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use thicket_session::Instant;

/// A digest of topic and payload in 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest(u64);

/// Makes digests that cannot be forged without the seed.
#[derive(Debug)]
pub(super) struct Digester {
    seed: u64,
    constants: SharedSeed,
}

impl Digester {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            constants: SharedSeed::from_u64(seed),
        }
    }

    pub(super) fn digest(&self, topic: &str, payload: &[u8]) -> Digest {
        use std::hash::Hasher;
        let mut hasher = FoldHasher::with_seed(self.seed, &self.constants);
        hasher.write_usize(topic.len());
        hasher.write(topic.as_bytes());
        hasher.write(payload);
        Digest(hasher.finish())
    }
}

/// Sent messages, bounded in number and in time; the oldest are forgotten first.
///
/// The QoS is not part of it: an echo may arrive with a lower one. If somebody else publishes the same on the same topic at the same time, it makes
/// no difference which of the two is dropped as the echo.
#[derive(Debug)]
pub(super) struct Memory {
    maximum: usize,
    window: Duration,
    /// In the order they were sent.
    sent: VecDeque<(Instant, Digest)>,
    counts: BTreeMap<Digest, Count>,
}

#[derive(Debug, Default)]
struct Count {
    /// Entries in `sent`.
    sent: u32,
    /// Most echoes that may still come.
    echoes: u32,
}

impl Memory {
    pub(super) const fn new(maximum: usize, window: Duration) -> Self {
        Self {
            maximum,
            window,
            sent: VecDeque::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Remembers a sent message; `expects_echo` if our own subscription there matches it.
    pub(super) fn remember(&mut self, now: Instant, digest: Digest, expects_echo: bool) {
        self.forget_old(now);
        if self.window.is_zero() || self.maximum == 0 {
            return;
        }
        if self.sent.len() >= self.maximum {
            self.forget_first();
        }
        self.sent.push_back((now, digest));
        let count = self.counts.entry(digest).or_default();
        count.sent += 1;
        count.echoes += u32::from(expects_echo);
    }

    /// Whether a received message is the echo of a sent one. Each counts once.
    pub(super) fn take_echo(&mut self, now: Instant, digest: Digest) -> bool {
        self.forget_old(now);
        match self.counts.get_mut(&digest) {
            Some(count) if count.echoes > 0 => {
                count.echoes -= 1;
                true
            }
            Some(_) | None => false,
        }
    }

    /// How often the same message was sent recently.
    pub(super) fn count(&mut self, now: Instant, digest: Digest) -> u32 {
        self.forget_old(now);
        self.counts.get(&digest).map_or(0, |count| count.sent)
    }

    /// The connection is restored: echoes may have waited in the session meanwhile, so their time starts again.
    pub(super) fn refresh(&mut self, now: Instant) {
        for (at, _) in &mut self.sent {
            *at = now;
        }
    }

    /// The broker has lost the session, so no echo will come.
    pub(super) fn clear(&mut self) {
        self.sent.clear();
        self.counts.clear();
    }

    fn forget_old(&mut self, now: Instant) {
        while self
            .sent
            .front()
            .is_some_and(|(at, _)| now.since(*at) > self.window)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, digest)) = self.sent.pop_front() else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&digest) {
            count.sent -= 1;
            count.echoes = count.echoes.min(count.sent);
            if count.sent == 0 {
                self.counts.remove(&digest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn an_echo_is_known_once_for_each_time_it_was_sent() {
        let (digester, mut memory) = (Digester::new(1), Memory::new(10, Duration::from_secs(1)));
        let on = digester.digest("lamp", b"on");
        memory.remember(at(0), on, true);
        memory.remember(at(1), on, true);
        assert!(!memory.take_echo(at(2), digester.digest("lamp", b"off")));
        assert!(!memory.take_echo(at(2), digester.digest("lam", b"pon")));
        assert!(memory.take_echo(at(2), on));
        assert!(memory.take_echo(at(2), on));
        assert!(!memory.take_echo(at(2), on), "the third is somebody else's");
        assert_eq!(memory.count(at(2), on), 2);
    }

    #[test]
    fn memory_is_bounded_in_time_and_number() {
        let (digester, mut memory) = (Digester::new(1), Memory::new(2, Duration::from_secs(1)));
        let digests = ["a", "b", "c"].map(|topic| digester.digest(topic, b""));
        for digest in digests {
            memory.remember(at(0), digest, true);
        }
        assert_eq!(digests.map(|digest| memory.count(at(0), digest)), [0, 1, 1]);
        memory.refresh(at(900));
        assert!(
            memory.take_echo(at(1900), digests[1]),
            "its time began anew"
        );
        assert!(!memory.take_echo(at(1901), digests[2]), "its time is over");
        assert!(memory.counts.is_empty());
    }

    #[test]
    fn without_a_window_nothing_is_remembered() {
        let (digester, mut memory) = (Digester::new(1), Memory::new(2, Duration::ZERO));
        memory.remember(at(0), digester.digest("a", b""), true);
        assert_eq!(memory.count(at(0), digester.digest("a", b"")), 0);
    }
}
