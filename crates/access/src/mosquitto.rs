//! Password hashes of Mosquitto 2.0: `$7$ITERATIONS$SALT$HASH`, PBKDF2 with HMAC-SHA-512. Later ones are argon2id, as ours are.

use std::hint::black_box;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA512};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::Work;

/// How such a hash begins.
pub const PREFIX: &str = "$7$";
/// Bytes of the hash.
const HASH_BYTES: usize = 64;
/// More would make checking a password a way to keep a thread busy.
const MOST_ITERATIONS: u32 = 10_000_000;

/// A stored hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MosquittoHash {
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

impl MosquittoHash {
    /// `None`: it is not a whole hash of this kind.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(PREFIX)?.split('$');
        let (iterations, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let iterations: NonZeroU32 = iterations.parse().ok()?;
        let salt = STANDARD.decode(salt).ok()?;
        let hash = STANDARD.decode(hash).ok()?;
        let is_whole = parts.next().is_none() && !salt.is_empty() && hash.len() == HASH_BYTES;
        (is_whole && iterations.get() <= MOST_ITERATIONS).then(|| Self {
            iterations,
            salt: salt.into(),
            hash: hash.into(),
        })
    }

    /// Whether it is of `password`. As slow as its iterations.
    pub fn verify(&self, password: &[u8]) -> bool {
        let Self {
            iterations,
            salt,
            hash,
        } = self;
        pbkdf2::verify(PBKDF2_HMAC_SHA512, *iterations, salt, password, hash).is_ok()
    }

    /// What computing it takes.
    pub fn work(&self) -> Work {
        Work {
            mosquitto: self.iterations.get(),
            ..Work::default()
        }
    }

    /// What is stored.
    pub fn bytes(&self) -> &[u8] {
        &self.hash
    }
}

/// Takes as long as a hash of `password` with so many iterations.
pub(crate) fn spend(password: &[u8], iterations: u32) {
    if let Some(iterations) = NonZeroU32::new(iterations) {
        let mut out = [0; HASH_BYTES];
        pbkdf2::derive(PBKDF2_HMAC_SHA512, iterations, &[0; 12], password, &mut out);
        black_box(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by mosquitto_passwd 2.0.11 for the password `secret`.
    const MADE: &str = "$7$101$X+B6wVM+HuXrDvrT$YRt8DadPMwCL2FUMuuBSI331va3gS+RCTOoMIMSMLJzt1CCB+ptAQr586Ky5CTuPSM9sM2f1enZWvFuo90aXzg==";

    #[test]
    fn a_hash_that_mosquitto_made_fits_its_password_only() {
        let hash = MosquittoHash::parse(MADE).expect("a whole hash");
        assert!(hash.verify(b"secret"));
        assert!(!hash.verify(b"Secret"));
        assert!(!hash.verify(b""));
    }

    #[test]
    fn hashes_that_are_torn_or_cost_too_much_are_refused() {
        let cases = [
            ("another kind", MADE.replacen("$7$", "$6$", 1)),
            ("no iterations", MADE.replacen("101", "0", 1)),
            ("too many", MADE.replacen("101", "10000001", 1)),
            ("no salt", MADE.replacen("X+B6wVM+HuXrDvrT", "", 1)),
            ("torn", MADE[..MADE.len() - 8].to_owned()),
            ("more", format!("{MADE}$more")),
        ];
        for (name, text) in cases {
            assert_eq!(MosquittoHash::parse(&text), None, "{name}");
        }
    }
}
