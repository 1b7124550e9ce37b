//! What a refusal costs: as much as the costliest hashes of the file of users, whoever is refused.

use crate::hash::{Argon2Hash, HashMemory, Work};
use crate::{mosquitto, scram};

/// What a refusal takes: of each kind as much as the costliest hash of the file, whoever is refused, so that the time of an answer reveals neither
/// whether there is a user nor which kind of hash it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    all: Work,
    /// KiB of memory of the largest hash.
    memory_kib: u32,
}

impl Refusal {
    /// Takes a hash of the file into account.
    pub fn add(&mut self, work: Work, argon2: Option<&Argon2Hash>) {
        self.all.argon2_kib = self.all.argon2_kib.max(work.argon2_kib);
        self.all.scram = self.all.scram.max(work.scram);
        self.all.mosquitto = self.all.mosquitto.max(work.mosquitto);
        let memory_kib = argon2.map_or(0, Argon2Hash::memory_kib);
        self.memory_kib = self.memory_kib.max(memory_kib);
    }

    /// What is left to do after `done`.
    fn rest(&self, done: Work) -> Work {
        Work {
            argon2_kib: self.all.argon2_kib.saturating_sub(done.argon2_kib),
            scram: self.all.scram.saturating_sub(done.scram),
            mosquitto: self.all.mosquitto.saturating_sub(done.mosquitto),
        }
    }

    /// Does what a refusal takes beyond what was `done` to check the password.
    pub fn finish(&self, done: Work, password: &[u8], memory: &mut HashMemory) {
        let rest = self.rest(done);
        memory.spend(password, rest.argon2_kib, self.memory_kib);
        scram::spend(password, rest.scram);
        mosquitto::spend(password, rest.mosquitto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_takes_the_same_whatever_was_done_before() {
        let work = |argon2_kib, scram, mosquitto| Work {
            argon2_kib,
            scram,
            mosquitto,
        };
        let works = [
            work(19_456 * 2, 0, 0),
            work(65_536 * 3, 0, 0),
            work(0, 10_000, 0),
            work(0, 0, 101),
        ];
        let mut refusal = Refusal::default();
        for work in works {
            refusal.add(work, None);
        }
        for done in works.into_iter().chain([Work::default()]) {
            let rest = refusal.rest(done);
            assert_eq!(rest.argon2_kib + done.argon2_kib, 65_536 * 3);
            assert_eq!(rest.scram + done.scram, 10_000);
            assert_eq!(rest.mosquitto + done.mosquitto, 101);
        }
    }

    #[test]
    fn a_refusal_takes_the_memory_of_the_largest_hash() {
        let hash = |memory_kib: u32| {
            let text = format!(
                "$argon2id$v=19$m={memory_kib},t=1,p=1$c29tZXNhbHQ${}",
                "A".repeat(43)
            );
            Argon2Hash::parse(&text).expect("a whole hash")
        };
        let mut refusal = Refusal::default();
        for memory_kib in [64, 65_536, 19_456] {
            let hash = hash(memory_kib);
            refusal.add(hash.work(), Some(&hash));
        }
        assert_eq!(refusal.memory_kib, 65_536);
    }
}
