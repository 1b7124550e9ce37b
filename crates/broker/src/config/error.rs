//! Errors of a configuration, with messages that say what to do.

use std::path::PathBuf;

use super::UsersError;

/// A configuration that cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("{key}: cannot read {}: {source}", path.display())]
    Unreadable {
        /// The key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or a value does not have the type of its key.
    #[error("in {}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, value and expectation.
        problem: String,
    },
    /// An unknown key.
    #[error("in {}: unknown key `{key}`{}", path.display(), did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// As written.
        key: String,
        /// The most similar known key.
        nearest: Option<String>,
    },
    /// An invalid value.
    #[error("{key} = {value}: expected {expected}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// The expected values.
        expected: String,
    },
    /// A flag with an invalid value.
    #[error("{0}")]
    Flag(String),
    /// A fault in one of several tables.
    #[error("{fault} (in {place})")]
    In {
        /// The table.
        place: String,
        /// What is wrong there.
        fault: Box<ConfigError>,
    },
    /// Two settings that exclude each other, or a setting without another that it needs.
    #[error("{0}")]
    Conflict(&'static str),
    /// A listener that other hosts can reach, without the choices that this requires.
    #[error("{0}")]
    TooOpen(TooOpen),
    /// A file exists, but its content is not valid.
    #[error("{key}: {}: {problem}", path.display())]
    BadFile {
        /// The key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Line and expectation.
        problem: String,
    },
    /// The users' file is not valid.
    #[error("users: {0}")]
    Users(#[from] UsersError),
    /// A certificate or a key is not valid.
    #[error("tls: {0}")]
    Tls(#[from] thicket_transport::tls::TlsError),
}

/// All faults that were found in a configuration, at least one, in the order of the checks. Nothing was started.
#[derive(Debug)]
pub struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigErrors {
    /// Iterates over the faults.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(fault: ConfigError) -> Self {
        Self(vec![fault])
    }
}

/// One line for each fault, or several where a fault has several.
impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The choices that are required before other hosts may reach a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooOpen {
    /// The first such listener, as written.
    pub listen: String,
    /// Nothing says who may connect.
    pub clients: bool,
    /// Nothing says which nodes may join.
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
