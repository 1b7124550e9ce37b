//! Hashing of keys that clients choose.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// A hash function chosen by a seed, so that nobody without the seed can aim for one bucket.
///
/// All constants of the hash come from the seed: with the published ones of `foldhash::fast::FixedState`, a client that chooses the keys could cancel
/// a factor of the multiplication and collide at will.
#[derive(Debug, Clone)]
pub(crate) struct SeededHash {
    seed: u64,
    constants: SharedSeed,
}

impl SeededHash {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            constants: SharedSeed::from_u64(seed),
        }
    }

    #[inline]
    pub(crate) fn text(&self, text: &str) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.constants);
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    #[inline]
    pub(crate) fn number(&self, number: u64) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.constants);
        hasher.write_u64(number);
        hasher.finish()
    }
}
