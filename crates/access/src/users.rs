//! The file of users: names, and the hashes of their passwords.
//!
//! A line is `name:$argon2id$...`, `name:$7$...` (Mosquitto 2.0) or `name:SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`; a user may
//! have one of each. All serve a password in CONNECT, the last also enhanced authentication. Nothing in it gives a password away.

use argon2::Params;
use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use crate::hash::{Argon2Hash, HashMemory, Work};
use crate::mosquitto::{self, MosquittoHash};
use crate::problem::Problem;
use crate::refusal::Refusal;
use crate::scram::{self, Credential};

/// Bytes of salt in a new hash.
pub const SALT_BYTES: usize = 16;

/// A hash of all stored hashes of a user.
pub(crate) type StoredHash = [u8; 32];

/// Users and the hashes of their passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    users: HashMap<Box<str>, User>,
    /// So that the time of an answer does not reveal which names exist.
    refusal: Refusal,
    /// The source of salts for names that do not exist; without the file they cannot be distinguished from real ones.
    decoy_key: [u8; 32],
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct User {
    argon2: Option<Box<Argon2Hash>>,
    mosquitto: Option<Box<MosquittoHash>>,
    scram: Option<Box<Credential>>,
}

impl User {
    /// Whether `password` is that of the first hash, in this order.
    fn verify(&self, password: &[u8], memory: &mut HashMemory) -> bool {
        if let Some(hash) = &self.argon2 {
            hash.verify(password, memory)
        } else if let Some(hash) = &self.mosquitto {
            hash.verify(password)
        } else {
            let scram = self.scram.as_ref();
            scram.is_some_and(|credential| credential.verify(password))
        }
    }

    /// What that takes.
    fn work(&self) -> Work {
        if let Some(hash) = &self.argon2 {
            hash.work()
        } else if let Some(hash) = &self.mosquitto {
            hash.work()
        } else {
            let scram = self.scram.as_ref();
            scram.map_or_else(Work::default, |credential| credential.work())
        }
    }
}

/// The file's verdict on a name and a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// The password is that of the user.
    Good,
    /// It is not.
    Wrong,
    /// There is no such user.
    Unknown,
}

impl Users {
    /// Parses the text of a file; empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not of the form above. The hash is not repeated.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut users: HashMap<Box<str>, User> = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let problem = |expected: &str| Problem::new(index + 1, expected);
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| problem("expected `name:$argon2id$...`, found no colon"))?;
            if name.is_empty() {
                return Err(problem("the name before the colon is empty"));
            }
            let user = users.entry(name.into()).or_default();
            let is_second = match Hash::parse(hash).map_err(problem)? {
                Hash::Argon2(hash) => user.argon2.replace(Box::new(hash)).is_some(),
                Hash::Mosquitto(hash) => user.mosquitto.replace(Box::new(hash)).is_some(),
                Hash::Scram(credential) => user.scram.replace(Box::new(credential)).is_some(),
            };
            if is_second {
                return Err(problem("this user is listed twice"));
            }
        }
        let mut refusal = Refusal::default();
        for user in users.values() {
            refusal.add(user.work(), user.argon2.as_deref());
        }
        let decoy_key: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        Ok(Self {
            users,
            refusal,
            decoy_key,
        })
    }

    /// Whether there is no user.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The file's verdict on a name and a password. Slow on purpose: never call it on a worker's thread. A refusal takes the same for every name.
    #[must_use]
    pub fn verify(&self, name: &str, password: &[u8], memory: &mut HashMemory) -> Login {
        let Some(user) = self.users.get(name) else {
            self.refusal.finish(Work::default(), password, memory);
            return Login::Unknown;
        };
        if user.verify(password, memory) {
            return Login::Good;
        }
        self.refusal.finish(user.work(), password, memory);
        Login::Wrong
    }

    /// What identifies the stored password of `name`: another password has another fingerprint. `None`: no such user.
    #[must_use]
    pub fn fingerprint(&self, name: &str) -> Option<u64> {
        let stored = self.stored(name)?;
        Some(u64::from_be_bytes(
            stored[..8].try_into().expect("eight of 32 bytes"),
        ))
    }

    /// The hash of the lines of `name`. `None`: no such user.
    pub(crate) fn stored(&self, name: &str) -> Option<StoredHash> {
        let user = self.users.get(name)?;
        let mut hash = Sha256::new();
        hash.update(user.argon2.as_deref().map_or("", Argon2Hash::text));
        if let Some(mosquitto) = &user.mosquitto {
            hash.update(mosquitto.bytes());
        }
        if let Some(credential) = &user.scram {
            hash.update(credential.to_string());
        }
        Some(hash.finalize().into())
    }

    /// The credential of `name`; for a name without one, a made-up one that no password fits, the same each time.
    pub(crate) fn scram(&self, name: &str) -> (Credential, bool) {
        match self.users.get(name).and_then(|user| user.scram.as_deref()) {
            Some(credential) => (credential.clone(), true),
            None => (Credential::decoy(&self.decoy_key, name), false),
        }
    }

    /// Whether any user can use enhanced authentication.
    #[must_use]
    pub fn has_scram(&self) -> bool {
        self.users.values().any(|user| user.scram.is_some())
    }
}

enum Hash {
    Argon2(Argon2Hash),
    Mosquitto(MosquittoHash),
    Scram(Credential),
}

impl Hash {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.starts_with(scram::METHOD) {
            return Credential::parse(text).map(Self::Scram).ok_or(
                "expected `SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY` with 4096 or more iterations (`thicket passwd --scram` makes one)",
            );
        }
        if text.starts_with(mosquitto::PREFIX) {
            return MosquittoHash::parse(text).map(Self::Mosquitto).ok_or(
                "expected `$7$ITERATIONS$SALT$HASH` as mosquitto_passwd writes it, with at most ten million iterations",
            );
        }
        Argon2Hash::parse(text).map(Self::Argon2)
    }
}

/// An argon2id hash for the file of users. `salt` is to be fresh and random.
#[must_use]
pub fn hash_password(password: &[u8], salt: [u8; SALT_BYTES]) -> String {
    Argon2Hash::make(password, &salt, &Params::DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_accepted_only_for_its_own_user() {
        let argon2 = hash_password(b"secret", [7; 16]);
        let scram = Credential::new(b"hidden", &[1; 16], scram::LEAST_ITERATIONS);
        // Made by mosquitto_passwd 2.0.11.
        let mosquitto = "$7$101$X+B6wVM+HuXrDvrT$YRt8DadPMwCL2FUMuuBSI331va3gS+RCTOoMIMSMLJzt1CCB+ptAQr586Ky5CTuPSM9sM2f1enZWvFuo90aXzg==";
        let text = format!("# staff\n\nann:{argon2}\nbob:{scram}\ncat:{mosquitto}\n");
        let users = Users::parse(&text).expect("a good file");
        let cases = [
            ("ann", "secret", Login::Good),
            ("ann", "Secret", Login::Wrong),
            ("bob", "hidden", Login::Good),
            ("bob", "secret", Login::Wrong),
            ("cat", "secret", Login::Good),
            ("cat", "hidden", Login::Wrong),
            ("eve", "secret", Login::Unknown),
            ("eve", "nobody has this password", Login::Unknown),
        ];
        for (name, password, expected) in cases {
            assert_eq!(
                users.verify(name, password.as_bytes(), &mut HashMemory::default()),
                expected,
                "{name} {password}"
            );
        }
    }

    #[test]
    fn another_password_has_another_fingerprint() {
        let parse = |salt| {
            Users::parse(&format!("ann:{}", hash_password(b"secret", [salt; 16]))).expect("good")
        };
        assert_eq!(parse(1).fingerprint("ann"), parse(1).fingerprint("ann"));
        assert_ne!(parse(1).fingerprint("ann"), parse(2).fingerprint("ann"));
        assert_eq!(parse(1).fingerprint("bob"), None);
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number_and_without_its_hash() {
        let twice = format!("ann:{0}\nann:{0}", hash_password(b"x", [1; 16]));
        let cases = [
            ("no colon", "\nann", "line 2: expected"),
            ("no name", ":$argon2id$x", "line 1: the name"),
            ("plain password", "ann:hunter2", "line 1: expected a hash"),
            (
                "torn hash",
                "ann:$argon2id$v=19$m=19456",
                "line 1: the hash",
            ),
            (
                "torn credential",
                "ann:SCRAM-SHA-256$4096:hunter2",
                "line 1: expected `SCRAM",
            ),
            ("twice", &twice, "line 2: this user is listed twice"),
        ];
        for (name, text, expected) in cases {
            let error = Users::parse(text).expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
            assert!(!error.contains("hunter2"), "{name}: {error}");
        }
    }
}
