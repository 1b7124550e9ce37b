//! Passwords that were correct, so that a client that returns needs no slow hash.
//!
//! Of each it has a code (HMAC-SHA-256) under a key that exists only in the memory of the process, of the user, the stored hash and the password. So an
//! entry holds only while the file has the same hash for the user, and only a correct password is answered sooner: whoever guesses learns nothing from the
//! time, not even whether the user has connected before.

use std::mem;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use hashbrown::HashMap;

use crate::users::StoredHash;

/// Bytes of the code.
const CODE_BYTES: usize = 32;

/// What identifies an entry: the user and the stored hash.
type Of = (Box<str>, StoredHash);

/// The passwords. Bounded: of more than `most`, those that were used longest ago are forgotten.
pub struct Verified {
    key: hmac::Key,
    most: usize,
    /// Half of the bound; when it is full, it becomes `old`, and the former `old` is forgotten.
    young: HashMap<Of, [u8; CODE_BYTES]>,
    old: HashMap<Of, [u8; CODE_BYTES]>,
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verified(..)")
    }
}

impl Verified {
    /// `key`: fresh and random.
    #[must_use]
    pub fn new(key: [u8; 32], most: usize) -> Self {
        Self {
            key: hmac::Key::new(HMAC_SHA256, &key),
            most,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// How many are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether the password was correct before. `stored`: the hash of the user; `None`: no such user. Takes the same whether there is an entry or not.
    pub(crate) fn recall(
        &mut self,
        name: &str,
        stored: Option<StoredHash>,
        password: &[u8],
    ) -> bool {
        let of = (name.into(), stored.unwrap_or_default());
        let code = self.code(&of, password);
        let known = self.young.get(&of).or_else(|| self.old.get(&of));
        let is_known = known.is_some();
        let known = known.copied().unwrap_or_default();
        let is_correct = verify_slices_are_equal(&code, &known).is_ok() && is_known;
        if is_correct && let Some(code) = self.old.remove(&of) {
            self.add(of, code);
        }
        is_correct
    }

    /// The password of a user is correct.
    pub(crate) fn remember(&mut self, name: &str, stored: StoredHash, password: &[u8]) {
        let of = (name.into(), stored);
        let code = self.code(&of, password);
        self.old.remove(&of);
        self.add(of, code);
    }

    /// Forgets those that `is_stored` does not confirm.
    pub(crate) fn retain(&mut self, is_stored: impl Fn(&str, StoredHash) -> bool) {
        for entries in [&mut self.young, &mut self.old] {
            entries.retain(|(name, stored), _| is_stored(name, *stored));
        }
    }

    fn add(&mut self, of: Of, code: [u8; CODE_BYTES]) {
        if self.young.len() >= self.most / 2 && !self.young.contains_key(&of) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(of, code);
    }

    fn code(&self, (name, stored): &Of, password: &[u8]) -> [u8; CODE_BYTES] {
        let mut code = hmac::Context::with_key(&self.key);
        code.update(&(name.len() as u64).to_be_bytes());
        code.update(name.as_bytes());
        code.update(stored);
        code.update(password);
        let tag = code.sign();
        tag.as_ref().try_into().expect("as long as SHA-256")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: StoredHash = [7; 32];

    fn verified(most: usize) -> Verified {
        Verified::new([1; 32], most)
    }

    #[test]
    fn only_the_same_password_of_the_same_user_with_the_same_hash_is_recalled() {
        let mut all = verified(10);
        all.remember("ann", STORED, b"secret");
        let cases: [(&str, Option<StoredHash>, &[u8], bool); 7] = [
            ("ann", Some(STORED), b"secret", true),
            ("ann", Some(STORED), b"Secret", false),
            ("ann", Some(STORED), b"", false),
            ("ann", Some([8; 32]), b"secret", false),
            ("ann", None, b"secret", false),
            ("bob", Some(STORED), b"secret", false),
            ("an", Some(STORED), b"nsecret", false),
        ];
        for (name, stored, password, expected) in cases {
            let found = all.recall(name, stored, password);
            assert_eq!(found, expected, "{name} {stored:?} {password:?}");
        }
    }

    #[test]
    fn nothing_is_recalled_that_was_not_remembered_whatever_the_code() {
        let mut all = verified(10);
        assert!(!all.recall("ann", None, b""));
        assert!(!all.recall("ann", Some(STORED), b"secret"));
    }

    #[test]
    fn another_key_gives_other_codes() {
        let of = ("ann".into(), STORED);
        let one = verified(10).code(&of, b"secret");
        let other = Verified::new([2; 32], 10).code(&of, b"secret");
        assert_ne!(one, other);
    }

    #[test]
    fn at_most_as_many_are_remembered_as_allowed_and_those_in_use_stay() {
        let mut all = verified(10);
        let names: Vec<_> = (0..50).map(|number| format!("user-{number}")).collect();
        all.remember("ann", STORED, b"secret");
        for name in &names {
            all.remember(name, STORED, b"secret");
            assert!(all.count() <= 10);
            assert!(all.recall("ann", Some(STORED), b"secret"), "{name}");
        }
        assert!(!all.recall(&names[0], Some(STORED), b"secret"));
        assert!(all.recall(&names[49], Some(STORED), b"secret"));
    }

    #[test]
    fn a_user_that_is_remembered_again_takes_no_second_place() {
        let mut all = verified(4);
        for _ in 0..10 {
            all.remember("ann", STORED, b"secret");
        }
        assert_eq!(all.count(), 1);
    }

    #[test]
    fn what_is_no_longer_stored_is_forgotten() {
        let mut all = verified(4);
        for name in ["ann", "bob", "cat"] {
            all.remember(name, STORED, b"secret");
        }
        all.retain(|name, stored| name != "bob" && stored == STORED);
        assert_eq!(all.count(), 2);
        assert!(!all.recall("bob", Some(STORED), b"secret"));
        assert!(all.recall("ann", Some(STORED), b"secret"));
    }
}
