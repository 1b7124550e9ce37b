//! Which publications of one publisher arrived, as far back as a client may have them without PUBREC.
//!
//! Two nodes may give one generation to two publications: a client sends again what it had under way, and a node that did not receive that continues
//! from the last generation it has, though the client's former node may have stayed up in another partition and have finished some of them. So the
//! last generations are identified by their content too, by a checksum.

/// Words of a window of generations.
const WORDS: usize = 8;
const WORD_BITS: u32 = u128::BITS;
/// Generations of one publisher that are identified by their content too: those that a client has under way at a time, as a rule.
const CHECKSUMS: u32 = 32;

/// The last generations of one publisher: more than a client may have without PUBREC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generations {
    highest: u32,
    /// Bit `n`: `highest - n` was seen.
    bits: [u128; WORDS],
    /// Of generation `n` at `n` modulo their count, of the last ones; 0: unknown, or not seen.
    checksums: [u16; CHECKSUMS as usize],
}

impl Generations {
    /// Bytes as `encode` appends them, checksums included.
    pub const LEN: usize = 4 + 16 * WORDS + 2 * CHECKSUMS as usize;

    /// One generation. `checksum`: of its content; 0: unknown.
    #[must_use]
    pub const fn of_one(generation: u32, checksum: u16) -> Self {
        let mut one = Self {
            highest: generation,
            bits: [0; WORDS],
            checksums: [0; CHECKSUMS as usize],
        };
        one.bits[0] = 1;
        *one.checksum_mut(generation) = checksum;
        one
    }

    /// The highest one.
    #[must_use]
    pub const fn highest(&self) -> u32 {
        self.highest
    }

    /// Notes a publication; whether it is new. `checksum`: of its content; 0: unknown.
    pub fn insert(&mut self, generation: u32, checksum: u16) -> bool {
        let ahead = generation.wrapping_sub(self.highest) as i32;
        if ahead > 0 {
            self.raise(generation);
            self.bits[0] |= 1;
            *self.checksum_mut(generation) = checksum;
            return true;
        }
        let behind = ahead.unsigned_abs();
        let Some(word) = self.bits.get_mut((behind / WORD_BITS) as usize) else {
            // Farther back than what can still be sent again.
            return true;
        };
        let bit = 1 << (behind % WORD_BITS);
        let is_free = *word & bit == 0;
        *word |= bit;
        if behind >= CHECKSUMS {
            return is_free;
        }
        let known = self.checksum_mut(generation);
        let is_other = *known > 0 && checksum > 0 && *known != checksum;
        let is_new = is_free || is_other;
        if is_new || *known == 0 {
            *known = checksum;
        }
        is_new
    }

    /// Whether a publication was noted. `checksum`: of its content; 0: unknown.
    #[must_use]
    pub fn contains(&self, generation: u32, checksum: u16) -> bool {
        let behind = self.highest.wrapping_sub(generation);
        let word = self.bits.get((behind / WORD_BITS) as usize);
        let is_seen = word.is_some_and(|word| word & (1 << (behind % WORD_BITS)) != 0);
        let known = self.checksum(generation);
        is_seen && (known == 0 || checksum == 0 || known == checksum)
    }

    /// The checksum of a generation; 0: unknown.
    const fn checksum(&self, generation: u32) -> u16 {
        if self.highest.wrapping_sub(generation) < CHECKSUMS {
            self.checksums[(generation % CHECKSUMS) as usize]
        } else {
            0
        }
    }

    /// The checksum of one of the last generations.
    const fn checksum_mut(&mut self, generation: u32) -> &mut u16 {
        &mut self.checksums[(generation % CHECKSUMS) as usize]
    }

    /// The union of both.
    pub fn merge(&mut self, mut other: Self) {
        if other.highest.wrapping_sub(self.highest) as i32 > 0 {
            std::mem::swap(self, &mut other);
        }
        other.raise(self.highest);
        for (word, other) in self.bits.iter_mut().zip(other.bits) {
            *word |= other;
        }
        for (checksum, other) in self.checksums.iter_mut().zip(other.checksums) {
            if *checksum == 0 {
                *checksum = other;
            }
        }
    }

    /// Another generation is the highest.
    fn raise(&mut self, highest: u32) {
        let count = highest.wrapping_sub(self.highest);
        for ahead in 0..count.min(CHECKSUMS) {
            *self.checksum_mut(highest.wrapping_sub(ahead)) = 0;
        }
        self.highest = highest;
        self.shift(count);
    }

    fn shift(&mut self, count: u32) {
        let (words, bits) = ((count / WORD_BITS) as usize, count % WORD_BITS);
        for index in (0..WORDS).rev() {
            let from = |index: usize| self.bits.get(index).copied().unwrap_or(0);
            let low = index.checked_sub(words).map_or(0, from);
            let lower = index.checked_sub(words + 1).map_or(0, from);
            self.bits[index] = match bits {
                0 => low,
                bits => low << bits | lower >> (WORD_BITS - bits),
            };
        }
    }

    /// Appends it as a store or a message has it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.highest.to_le_bytes());
        for word in self.bits {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for checksum in self.checksums {
            out.extend_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Reads what `encode` appended, and returns what is behind it; `None`: that is cut off.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (highest, mut rest) = bytes.split_first_chunk()?;
        let mut generations = Self {
            highest: u32::from_le_bytes(*highest),
            bits: [0; WORDS],
            checksums: [0; CHECKSUMS as usize],
        };
        for word in &mut generations.bits {
            let (bytes, behind) = rest.split_first_chunk()?;
            *word = u128::from_le_bytes(*bytes);
            rest = behind;
        }
        for checksum in &mut generations.checksums {
            let (bytes, behind) = rest.split_first_chunk()?;
            *checksum = u16::from_le_bytes(*bytes);
            rest = behind;
        }
        Some((generations, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_known_of_the_last_generations_whichever_came_first() {
        let (one, two) = (1, 2);
        for first in [1, 1000, 12_345] {
            let mut seen = Generations::of_one(first, one);
            for ahead in [3, 1, 2, CHECKSUMS + 1] {
                assert!(seen.insert(first + ahead, one));
            }
            // The first ones are farther back now than what is identified by its content.
            for (ahead, is_new) in [(0, false), (1, false), (2, true), (3, true)] {
                assert_eq!(seen.insert(first + ahead, two), is_new, "{first} + {ahead}");
            }
        }
    }

    #[test]
    fn a_union_knows_the_content_of_both() {
        let mut one = Generations::of_one(7, 1);
        one.merge(Generations::of_one(9, 1));
        let mut other = Generations::of_one(9, 1);
        other.merge(Generations::of_one(7, 1));
        assert_eq!(one, other);
        assert!(one.contains(7, 1) && !one.contains(7, 2));
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_off_is_refused() {
        let mut written = Generations::of_one(u32::MAX, 7);
        written.insert(3, 9);
        let mut bytes = Vec::new();
        written.encode(&mut bytes);
        let len = bytes.len();
        bytes.push(1);
        assert_eq!(Generations::decode(&bytes), Some((written, &[1][..])));
        for cut in 0..len {
            assert_eq!(Generations::decode(&bytes[..cut]), None);
        }
    }
}
