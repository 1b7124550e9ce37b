//! What is wrong with a configuration, in words that say what to do.

use std::path::PathBuf;

use super::UsersError;

/// A configuration that cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("{key}: cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which key names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or a value has another type than its key wants.
    #[error("in {}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, value and expectation.
        problem: String,
    },
    /// A key nobody knows.
    #[error("in {}: unknown key `{key}`{}", path.display(), did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// As written.
        key: String,
        /// The known one that looks most like it.
        nearest: Option<String>,
    },
    /// A value that makes no sense.
    #[error("{key} = {value}: expected {expected}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// What would make sense.
        expected: String,
    },
    /// Two settings that exclude each other, or one that is missing beside another.
    #[error("{0}")]
    Conflict(&'static str),
    /// A listener others can reach, without the choices that need.
    #[error("{0}")]
    TooOpen(TooOpen),
    /// A file is there, but not what it should be.
    #[error("{key}: {}: {problem}", path.display())]
    BadFile {
        /// Which key names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Line and expectation.
        problem: String,
    },
    /// The users' file is no good.
    #[error("users: {0}")]
    Users(#[from] UsersError),
    /// A certificate or a key is no good.
    #[error("tls: {0}")]
    Tls(#[from] thicket_transport::tls::TlsError),
}

/// What must be chosen before a listener may be reached by others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooOpen {
    /// The first such listener, as written.
    pub listen: String,
    /// Nobody said who may connect.
    pub clients: bool,
    /// Nobody said which nodes may join.
    pub links: bool,
}

impl std::fmt::Display for TooOpen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "other machines can reach the listener {}, so say first",
            self.listen
        )?;
        if self.clients {
            write!(
                f,
                "\n  who may connect: add `--users FILE` (a line `name:$argon2id$...` each, made by `thicket passwd`), \
                 or `--allow-anonymous` to let everybody in"
            )?;
        }
        if self.links {
            write!(
                f,
                "\n  which nodes may join: add `--cluster-secret-file FILE` (the same secret on every node), \
                 or `--link-tls-certificate`, `--link-tls-key` and `--link-tls-ca` (certificates of one authority on every node), \
                 or `--insecure-links` to let every node in that knows the cluster's name"
            )?;
        }
        write!(f, "\nor listen on loopback only: `--listen localhost:1883`")
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest
        .map(|key| format!("; did you mean `{key}`?"))
        .unwrap_or_default()
}
