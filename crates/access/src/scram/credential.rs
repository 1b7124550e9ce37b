//! What is stored of a password for SCRAM-SHA-256, and the functions that compute its keys.

use std::fmt;
use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::hash::Work;

/// Its name as authentication method.
pub const METHOD: &str = "SCRAM-SHA-256";
/// RFC 7677, 4.
pub const LEAST_ITERATIONS: u32 = 4096;
/// Beyond this a client would compute for minutes because a broker demands it.
pub const MOST_ITERATIONS: u32 = 1_000_000;
/// What `thicket passwd --scram` uses.
pub const DEFAULT_ITERATIONS: u32 = 10_000;

pub(super) type Key = [u8; 32];

/// What is stored of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
}

impl Credential {
    /// For a password. `salt` is to be fresh and random.
    #[must_use]
    pub fn new(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = salted_password(password, salt, iterations);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: Sha256::digest(mac(&salted, b"Client Key")).into(),
            server_key: mac(&salted, b"Server Key"),
        }
    }

    /// Parses what `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(METHOD)?.strip_prefix('$')?;
        let (cost, keys) = rest.split_once('$')?;
        let (iterations, salt) = cost.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let key = |text: &str| Key::try_from(BASE64.decode(text).ok()?).ok();
        let iterations = iterations.parse().ok()?;
        (LEAST_ITERATIONS..=MOST_ITERATIONS)
            .contains(&iterations)
            .then_some(())?;
        Some(Self {
            iterations,
            salt: BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }

    /// Looks like one of the file's; no password fits.
    pub(crate) fn decoy(key: &Key, name: &str) -> Self {
        let made_up = mac(key, name.as_bytes());
        Self {
            iterations: DEFAULT_ITERATIONS,
            salt: made_up[..16].to_vec(),
            stored_key: made_up,
            server_key: made_up,
        }
    }

    /// Whether it is of `password`. As slow as its iterations.
    #[must_use]
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        let salted = salted_password(password, &self.salt, self.iterations);
        let stored: Key = Sha256::digest(mac(&salted, b"Client Key")).into();
        is_same(&stored, &self.stored_key)
    }

    /// What that takes.
    pub(crate) fn work(&self) -> Work {
        Work {
            scram: self.iterations,
            ..Work::default()
        }
    }
}

/// Takes as long as checking `password` with so many iterations.
pub(crate) fn spend(password: &[u8], iterations: u32) {
    if iterations > 0 {
        black_box(salted_password(password, &[0; 16], iterations));
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salt, stored, server) = (
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key),
        );
        write!(f, "{METHOD}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

pub(super) fn mac(key: &[u8], message: &[u8]) -> Key {
    keyed(key)
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

pub(super) fn xor(a: &Key, b: &Key) -> Key {
    std::array::from_fn(|index| a[index] ^ b[index])
}

/// In a time that does not reveal where they differ.
pub(super) fn is_same(a: &Key, b: &Key) -> bool {
    a.iter().zip(b).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}

/// `Hi` of RFC 5802, 2.2: PBKDF2 with HMAC-SHA-256 and one block.
pub(super) fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let keyed = keyed(password);
    let next = |message: &[u8]| -> Key {
        keyed
            .clone()
            .chain_update(message)
            .finalize()
            .into_bytes()
            .into()
    };
    let mut block = next(&[salt, &1u32.to_be_bytes()].concat());
    let mut result = block;
    for _ in 1..iterations {
        block = next(&block);
        result = xor(&result, &block);
    }
    result
}
