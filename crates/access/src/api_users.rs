//! Users of the HTTP API and their roles.
//!
//! A line is `ROLE NAME:$argon2id$...` for a name and a password (Basic), or `ROLE NAME:$sha256$HEX` for a token (Bearer). A token is long
//! and random, so that a fast hash does: it is looked up at every request.

use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use crate::{problem::Problem, users};

/// What a user of the HTTP API may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read everything.
    Viewer,
    /// Change something as well.
    Admin,
}

/// A user of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiUser {
    /// As the file has it, for a token as well.
    pub name: Box<str>,
    /// What it may do.
    pub role: Role,
}

/// Users of the HTTP API.
#[derive(Debug, Clone, Default)]
pub struct ApiUsers {
    passwords: HashMap<Box<str>, (Role, Box<str>)>,
    /// Checked for a name that is not there, so that the time of an answer does not tell which names are.
    decoy: Box<str>,
    tokens: HashMap<[u8; 32], ApiUser>,
}

const TOKEN_PREFIX: &str = "$sha256$";

impl ApiUsers {
    /// Parses the text of a file; empty lines and lines that start with `#` say nothing.
    ///
    /// # Errors
    /// The first line that is not of the form above. The hash is not repeated.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut all = Self {
            decoy: users::decoy(text),
            ..Self::default()
        };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            all.add(line)
                .map_err(|expected| Problem::new(index + 1, expected))?;
        }
        Ok(all)
    }

    fn add(&mut self, line: &str) -> Result<(), &'static str> {
        let (role, user) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let role = match role {
            "viewer" => Role::Viewer,
            "admin" => Role::Admin,
            _ => return Err("expected `viewer NAME:HASH` or `admin NAME:HASH`"),
        };
        let (name, hash) = user
            .trim_start()
            .split_once(':')
            .filter(|(name, _)| !name.is_empty())
            .ok_or("expected `NAME:HASH` after the role")?;
        let is_second = match hash.strip_prefix(TOKEN_PREFIX) {
            Some(hex) => {
                let digest = bytes_of_hex(hex).ok_or(
                    "expected 64 hexadecimal digits after `$sha256$` (`thicket passwd --token` makes them)",
                )?;
                let name = name.into();
                self.tokens.insert(digest, ApiUser { name, role }).is_some()
            }
            None => {
                users::check_argon2(hash)?;
                let entry = (role, hash.into());
                self.passwords.insert(name.into(), entry).is_some()
            }
        };
        if is_second {
            return Err("this user is listed twice");
        }
        Ok(())
    }

    /// Who has this name and password. Slow on purpose, for a name that is not there as well.
    #[must_use]
    pub fn with_password(&self, name: &str, password: &[u8]) -> Option<ApiUser> {
        let known = self.passwords.get(name);
        let hash = known.map_or(&self.decoy, |(_, hash)| hash);
        let is_good = users::verify_argon2(hash, password);
        known.filter(|_| is_good).map(|(role, _)| ApiUser {
            name: name.into(),
            role: *role,
        })
    }

    /// Who has this token.
    #[must_use]
    pub fn with_token(&self, token: &[u8]) -> Option<ApiUser> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.tokens.get(&digest).cloned()
    }
}

/// What stands in the file for a token.
#[must_use]
pub fn hash_token(token: &[u8]) -> String {
    let digest = Sha256::digest(token);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{TOKEN_PREFIX}{hex}")
}

fn bytes_of_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|char| char.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let bytes: Vec<u8> = digits?
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect();
    (text.len() == 64).then(|| bytes.try_into().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_have_roles() {
        let text = format!(
            "# staff\nviewer ann:{}\nadmin  robot:{}\n",
            users::hash_password(b"secret", [5; 16]),
            hash_token(b"a long token")
        );
        let all = ApiUsers::parse(&text).expect("a good file");
        let user = |name: &str, role| {
            let name = name.into();
            Some(ApiUser { name, role })
        };
        let ann = user("ann", Role::Viewer);
        assert_eq!(all.with_password("ann", b"secret"), ann);
        assert_eq!(all.with_password("ann", b"Secret"), None);
        assert_eq!(all.with_password("robot", b"a long token"), None);
        assert_eq!(all.with_password("eve", b"nobody has this password"), None);
        let robot = user("robot", Role::Admin);
        assert_eq!(all.with_token(b"a long token"), robot);
        assert_eq!(all.with_token(b"secret"), None);
        assert!(Role::Admin > Role::Viewer);
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        let hash = hash_token(b"x");
        let twice = format!("viewer a:{hash}\nviewer b:{hash}");
        let cases = [
            (
                "no role",
                "ann:$argon2id$",
                "line 1: expected `viewer NAME:HASH`",
            ),
            (
                "unknown role",
                "\nroot ann:$argon2id$",
                "line 2: expected `viewer NAME:HASH`",
            ),
            ("no user", "viewer", "line 1: expected `NAME:HASH`"),
            (
                "no name",
                "viewer :$argon2id$",
                "line 1: expected `NAME:HASH`",
            ),
            (
                "plain password",
                "viewer ann:hunter2",
                "line 1: expected a hash",
            ),
            (
                "short token",
                "viewer ann:$sha256$00",
                "line 1: expected 64",
            ),
            (
                "the same token",
                &twice,
                "line 2: this user is listed twice",
            ),
        ];
        for (name, text, expected) in cases {
            let error = ApiUsers::parse(text).expect_err(name).to_string();
            assert!(error.starts_with(expected), "{name}: {error}");
            assert!(!error.contains("hunter2"), "{name}: {error}");
        }
    }
}
