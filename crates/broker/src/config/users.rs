//! The users' file: names and what their passwords hash to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

/// Users and the hashes of their passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    hashes: HashMap<String, String>,
    /// Checked for a name that is not there, so that the time of an answer does not tell which names are.
    decoy: String,
}

/// A users' file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not `name:$argon2id$...`. The hash itself is not repeated.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The system had no randomness to hash with.
    #[error("cannot hash a password: {0}")]
    Hash(String),
}

impl Users {
    /// Reads a file: `name:$argon2id$...` a line; empty lines and lines that start with `#` say nothing.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not of that form.
    pub fn from_file(path: &Path) -> Result<Self, UsersError> {
        let text = std::fs::read_to_string(path).map_err(|source| UsersError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, UsersError> {
        let mut hashes = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = parse_line(line).map_err(|problem| UsersError::Line {
                path: path.to_owned(),
                line: index + 1,
                problem,
            })?;
            if hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                return Err(UsersError::Line {
                    path: path.to_owned(),
                    line: index + 1,
                    problem: "this user is listed twice",
                });
            }
        }
        Ok(Self {
            hashes,
            decoy: hash_password(b"nobody has this password")?,
        })
    }

    /// Whether `password` is that of `name`. Slow on purpose: never call it on a worker's thread.
    #[must_use]
    pub fn verify(&self, name: &str, password: &[u8]) -> bool {
        let known = self.hashes.get(name);
        let hash = known.unwrap_or(&self.decoy);
        let Ok(hash) = PasswordHash::new(hash) else {
            return false;
        };
        Argon2::default().verify_password(password, &hash).is_ok() && known.is_some()
    }
}

fn parse_line(line: &str) -> Result<(&str, &str), &'static str> {
    let (name, hash) = line
        .split_once(':')
        .ok_or("expected `name:$argon2id$...`, found no colon")?;
    if name.is_empty() {
        return Err("the name before the colon is empty");
    }
    if !hash.starts_with("$argon2id$") {
        return Err(
            "expected a hash that starts with `$argon2id$` after the colon (`thicket passwd` makes one)",
        );
    }
    let whole =
        PasswordHash::new(hash).is_ok_and(|hash| hash.salt.is_some() && hash.hash.is_some());
    if !whole {
        return Err("the hash after the colon is not a whole argon2id hash");
    }
    Ok((name, hash))
}

/// A hash for the users' file, with a fresh salt.
///
/// # Errors
/// The system has no randomness.
pub fn hash_password(password: &[u8]) -> Result<String, UsersError> {
    let hash = Argon2::default()
        .hash_password(password)
        .map_err(|error| UsersError::Hash(error.to_string()))?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Users, UsersError> {
        Users::parse(Path::new("users"), text)
    }

    #[test]
    fn a_password_is_accepted_only_for_its_own_user() {
        let hash = hash_password(b"secret").expect("randomness");
        let users = parse(&format!("# staff\n\nann:{hash}\n")).expect("a good file");
        assert!(users.verify("ann", b"secret"));
        assert!(!users.verify("ann", b"Secret"));
        assert!(!users.verify("bob", b"secret"));
        assert!(!users.verify("bob", b"nobody has this password"));
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number_and_without_its_hash() {
        let cases = [
            ("no colon", "\nann", "line 2: expected"),
            ("no name", ":$argon2id$x", "line 1: the name"),
            ("plain password", "ann:hunter2", "line 1: expected a hash"),
            (
                "torn hash",
                "ann:$argon2id$v=19$m=19456",
                "line 1: the hash",
            ),
        ];
        for (name, text, expected) in cases {
            let error = parse(text).expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
            assert!(!error.contains("hunter2"), "{name}: {error}");
        }
    }

    #[test]
    fn a_user_listed_twice_is_refused() {
        let hash = hash_password(b"secret").expect("randomness");
        let error = parse(&format!("ann:{hash}\nann:{hash}\n")).expect_err("twice");
        assert!(
            error
                .to_string()
                .contains("line 2: this user is listed twice")
        );
    }
}
