//! Argon2id hashes of passwords, the memory in which they are computed, and the measure of what hashes take.

use std::hint::black_box;

use argon2::{Algorithm, Argon2, Block, MIN_SALT_LEN, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// How such a hash begins.
const PREFIX: &str = "$argon2id$";
/// Bytes of a hash at most.
const MOST_HASH_BYTES: usize = 64;
/// KiB of memory that a hash may take. With more, a few logins would use up the memory of a node.
const MOST_MEMORY_KIB: u32 = 256 * 1024;
/// KiB that all passes of a hash may fill. More would make checking a password a way to keep a thread busy.
const MOST_WORK_KIB: u64 = 4 * 1024 * 1024;

/// The memory in which a thread computes hashes, one at a time. It is as large as the largest hash so far took, and is used again: memory that is
/// allocated for each hash stays with the allocator of each thread.
#[derive(Clone, Default)]
pub struct HashMemory {
    blocks: Vec<Block>,
}

impl std::fmt::Debug for HashMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashMemory(..)")
    }
}

impl HashMemory {
    /// Whether it could be computed. `out`: as long as `params` say.
    fn compute(
        &mut self,
        (version, params): (Version, &Params),
        password: &[u8],
        salt: &[u8],
        out: &mut [u8],
    ) -> bool {
        let count = params.block_count();
        if self.blocks.len() < count {
            // Not both at a time.
            self.blocks = Vec::new();
            self.blocks = vec![Block::new(); count];
        }
        let blocks = &mut self.blocks[..count];
        Argon2::new(Algorithm::Argon2id, version, params.clone())
            .hash_password_into_with_memory(password, salt, out, blocks)
            .is_ok()
    }

    /// Takes as long as hashes of `password` that fill `work_kib`, with at most `memory_kib` at a time.
    pub(crate) fn spend(&mut self, password: &[u8], work_kib: u64, memory_kib: u32) {
        if let Some(params) = params_of(work_kib, memory_kib) {
            let mut out = [0; Params::DEFAULT_OUTPUT_LEN];
            self.compute((Version::default(), &params), password, &[0; 16], &mut out);
            black_box(out);
        }
    }
}

/// A stored hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Argon2Hash {
    text: Box<str>,
    version: Version,
    params: Params,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

impl std::fmt::Debug for Argon2Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Argon2Hash(..)")
    }
}

impl Argon2Hash {
    /// # Errors
    /// It is not a whole argon2id hash, or costs too much: what was expected.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.starts_with(PREFIX) {
            return Err(
                "expected a hash that starts with `$argon2id$` after the colon (`thicket passwd` makes one)",
            );
        }
        let this = Self::parse_whole(text)
            .ok_or("the hash after the colon is not a whole argon2id hash")?;
        if this.memory_kib() > MOST_MEMORY_KIB {
            return Err("expected an argon2id hash with at most 256 MiB of memory (m=262144)");
        }
        if this.work().argon2_kib > MOST_WORK_KIB {
            return Err(
                "expected an argon2id hash that fills at most 4 GiB (m times t at most 4194304)",
            );
        }
        Ok(this)
    }

    /// `$argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH`, as the reference implementation writes it; before version 19 it wrote none.
    /// Mosquitto 2.1 makes salts of 64 bytes.
    fn parse_whole(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (version, rest) = match rest.strip_prefix("v=") {
            Some(rest) => rest.split_once('$')?,
            None => ("16", rest),
        };
        let version: u32 = version.parse().ok()?;
        let mut parts = rest.split('$');
        let (costs, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let salt = STANDARD_NO_PAD.decode(salt).ok()?;
        let hash = STANDARD_NO_PAD.decode(hash).ok()?;
        let is_whole =
            parts.next().is_none() && salt.len() >= MIN_SALT_LEN && hash.len() <= MOST_HASH_BYTES;
        let mut costs = costs.split(',');
        let mut cost = |name| costs.next()?.strip_prefix(name)?.parse().ok();
        let params = Params::new(cost("m=")?, cost("t=")?, cost("p=")?, Some(hash.len())).ok()?;
        (is_whole && costs.next().is_none()).then_some(Self {
            text: text.into(),
            version: version.try_into().ok()?,
            params,
            salt: salt.into(),
            hash: hash.into(),
        })
    }

    /// Of a new password.
    pub fn make(password: &[u8], salt: &[u8], params: &Params) -> String {
        let mut hash = vec![0; params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN)];
        let version = Version::default();
        let is_made = HashMemory::default().compute((version, params), password, salt, &mut hash);
        assert!(is_made, "the salt is long enough");
        format!(
            "{PREFIX}v={}$m={},t={},p={}${}${}",
            version as u32,
            params.m_cost(),
            params.t_cost(),
            params.p_cost(),
            STANDARD_NO_PAD.encode(salt),
            STANDARD_NO_PAD.encode(hash)
        )
    }

    /// As the file has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is of `password`. Slow on purpose.
    pub fn verify(&self, password: &[u8], memory: &mut HashMemory) -> bool {
        let mut computed = [0; MOST_HASH_BYTES];
        let computed = &mut computed[..self.hash.len()];
        memory.compute((self.version, &self.params), password, &self.salt, computed)
            && verify_slices_are_equal(computed, &self.hash).is_ok()
    }

    /// KiB of memory that computing it takes.
    pub fn memory_kib(&self) -> u32 {
        self.params.m_cost()
    }

    /// What computing it takes.
    pub fn work(&self) -> Work {
        Work {
            argon2_kib: u64::from(self.memory_kib()) * u64::from(self.params.t_cost()),
            ..Work::default()
        }
    }
}

/// What computing hashes takes, for each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// KiB that all passes fill.
    pub argon2_kib: u64,
    /// Iterations of HMAC-SHA-256.
    pub scram: u32,
    /// Iterations of HMAC-SHA-512.
    pub mosquitto: u32,
}

/// Parameters of a hash that fills `work_kib` in as few passes as `memory_kib` allows; `None`: there is nothing to do.
fn params_of(work_kib: u64, memory_kib: u32) -> Option<Params> {
    if work_kib == 0 {
        return None;
    }
    let passes = work_kib.div_ceil(u64::from(memory_kib.max(1)));
    let memory_kib = u32::try_from(work_kib / passes).unwrap_or(MOST_MEMORY_KIB);
    let passes = u32::try_from(passes).unwrap_or(u32::MAX);
    Params::new(memory_kib.max(Params::MIN_M_COST), passes, 1, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(params: &Params) -> String {
        Argon2Hash::make(b"secret", &[7; 16], params)
    }

    fn parsed(text: &str) -> Argon2Hash {
        Argon2Hash::parse(text).expect("a whole hash")
    }

    #[test]
    fn one_memory_serves_hashes_of_all_parameters_and_grows_with_the_largest_only() {
        let params = |m, t, p, len| Params::new(m, t, p, len).expect("good parameters");
        let mut memory = HashMemory::default();
        let mut most = 0;
        for params in [
            params(64, 1, 1, None),
            params(256, 3, 4, Some(16)),
            params(100, 2, 1, Some(64)),
            params(64, 1, 1, None),
        ] {
            most = most.max(params.block_count());
            let hash = parsed(&hash(&params));
            for _ in 0..3 {
                assert!(hash.verify(b"secret", &mut memory));
                assert!(!hash.verify(b"Secret", &mut memory));
                assert_eq!(memory.blocks.len(), most);
            }
        }
    }

    #[test]
    fn hashes_of_the_reference_implementation_are_read() {
        let mut memory = HashMemory::default();
        for (name, text) in [
            (
                "salt and hash of 64 bytes, as of Mosquitto 2.1",
                "$argon2id$v=19$m=64,t=1,p=1$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw$\
                 yXaW7P2EU2NkGKxaTXSntlqyamW7QvefJh+SEGbp0Azwikmt5QZktdWHDG/I1FIcomPdvJvL+AotBt8REgE/Ug",
            ),
            (
                "version 16",
                "$argon2id$v=16$m=64,t=2,p=2$AAECAwQFBgcICQoLDA0ODw$hz8nUfqdLuWNEgI4/1r3uv/fAwc2S3SLR3teE6ew3bc",
            ),
            (
                "no version, which is 16",
                "$argon2id$m=64,t=2,p=2$AAECAwQFBgcICQoLDA0ODw$hz8nUfqdLuWNEgI4/1r3uv/fAwc2S3SLR3teE6ew3bc",
            ),
        ] {
            let hash = parsed(text);
            assert!(hash.verify(b"secret", &mut memory), "{name}");
            assert!(!hash.verify(b"Secret", &mut memory), "{name}");
        }
    }

    #[test]
    fn hashes_that_are_not_whole_are_refused() {
        let whole = hash(&Params::DEFAULT);
        parsed(&whole);
        let (head, _) = whole.rsplit_once('$').expect("a hash at the end");
        for text in [
            head.to_owned(),
            format!("{head}$"),
            format!("{head}$AAA"),
            format!("{head}${}", "A".repeat(88)),
            format!("{whole}$"),
            format!("{whole}="),
            whole.replace("v=19", "v=18"),
            whole.replace("t=2", "x=2"),
            whole.replace("p=1", "p=1,q=1"),
            whole.replace("m=19456,", ""),
            whole.replace("BwcHBwcHBwcHBwcHBwcHBw", "BwcHBwc"),
        ] {
            let error = Argon2Hash::parse(&text).err();
            assert!(error.is_some_and(|it| it.contains("not a whole")), "{text}");
        }
    }

    #[test]
    fn hashes_that_cost_too_much_are_refused() {
        let whole = hash(&Params::DEFAULT);
        let with = |params: &str| whole.replace("m=19456,t=2,p=1", params);
        for (params, expected) in [
            ("m=262144,t=16,p=4", None),
            ("m=262145,t=1,p=1", Some("at most 256 MiB")),
            ("m=4294967295,t=1,p=1", Some("at most 256 MiB")),
            ("m=262144,t=17,p=1", Some("at most 4 GiB")),
            ("m=8,t=4294967295,p=1", Some("at most 4 GiB")),
            ("m=8,t=1,p=2", Some("not a whole")),
        ] {
            let error = Argon2Hash::parse(&with(params)).err();
            let is_as_expected = match (error, expected) {
                (None, None) => true,
                (Some(error), Some(expected)) => error.contains(expected),
                _ => false,
            };
            assert!(is_as_expected, "{params}: {error:?}");
        }
    }

    #[test]
    fn what_is_spent_is_nearly_the_work_asked_for_in_no_more_memory() {
        for (work_kib, memory_kib) in [
            (65_536, 65_536),
            (65_536 * 3 - 19_456 * 2, 65_536),
            (65_536 * 2, 65_536),
            (65_536 * 3 - 64 * 700, 65_536),
            (65_536 * 3, 65_536),
        ] {
            let params = params_of(work_kib, memory_kib).expect("there is work");
            assert!(params.m_cost() <= memory_kib, "{work_kib}");
            let passes = u64::from(params.t_cost());
            let work = u64::from(params.m_cost()) * passes;
            assert!(work_kib - work < passes, "{work_kib}");
        }
        assert_eq!(params_of(0, 65_536), None);
    }
}
