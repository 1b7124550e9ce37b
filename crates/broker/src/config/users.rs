//! Reads the users' file.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thicket_access::Problem;

/// Users and the hashes of their passwords, with the file they came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    pub(crate) path: PathBuf,
    pub(crate) users: thicket_access::Users,
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
    /// A line is not `name:HASH`. The hash itself is not repeated.
    #[error("{}, {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line and expectation.
        problem: Problem,
    },
    /// The system has no randomness for the hash.
    #[error("cannot hash a password: {0}")]
    Random(#[from] getrandom::Error),
}

impl Users {
    /// Reads a file with `name:$argon2id$...` or `name:SCRAM-SHA-256$...` on each line; empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not of that form.
    pub fn from_file(path: &Path) -> Result<Self, UsersError> {
        let path = path.to_owned();
        let text = match super::text::read_text(&path) {
            Ok(text) => text,
            Err(source) => return Err(UsersError::Unreadable { path, source }),
        };
        match thicket_access::Users::parse(&text) {
            Ok(users) => Ok(Self { path, users }),
            Err(problem) => Err(UsersError::Line { path, problem }),
        }
    }
}

/// A hash for the users' file, with a fresh salt.
///
/// # Errors
/// The system has no randomness.
pub fn hash_password(password: &[u8]) -> Result<String, UsersError> {
    Ok(thicket_access::hash_password(password, random()?))
}

/// A credential for SCRAM-SHA-256 for the users' file, with a fresh salt.
///
/// # Errors
/// The system has no randomness.
pub fn hash_for_scram(password: &[u8]) -> Result<String, UsersError> {
    use thicket_access::scram::{Credential, DEFAULT_ITERATIONS};
    let salt: [u8; thicket_access::SALT_BYTES] = random()?;
    Ok(Credential::new(password, &salt, DEFAULT_ITERATIONS).to_string())
}

/// A token for a user of the HTTP API, and its line for the file.
///
/// # Errors
/// The system has no randomness.
pub fn make_token() -> Result<(String, String), UsersError> {
    let token = URL_SAFE_NO_PAD.encode(random::<32>()?);
    let hash = thicket_access::hash_token(token.as_bytes());
    Ok((token, hash))
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], getrandom::Error> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
