//! The cluster's secret: a file with one secret, or with several during a rotation.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::check::invalid;

const KEY: &str = "cluster_secret_file";
const SHORTEST: usize = 16;
/// Whoever connects to a node can test guesses of its secret offline, so a secret must be too strong to guess. 128 random bits in hexadecimal or
/// base64 are never estimated lower than this.
const FEWEST_BITS: f64 = 80.0;
/// A word counts for less than its letters, and for no more than a word drawn from a list.
const BITS_OF_A_WORD: f64 = 11.0;
const LONGEST_WORD: usize = 12;
/// The current one, the next, and some more.
const MOST: usize = 8;

/// Secrets of a cluster, with the file they came from. This node uses the first; all are accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret {
    path: PathBuf,
    secrets: Vec<Vec<u8>>,
}

impl ClusterSecret {
    /// Reads a file with one secret a line; empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The file cannot be read, has no secret, or has one that could be guessed.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable {
            key: KEY,
            path: path.to_owned(),
            source,
        })?;
        let bad = |problem: String| {
            let expected = format!("{problem}; make one with `head -c 32 /dev/urandom | base64`");
            Err(invalid(KEY, path.display(), expected))
        };
        let mut secrets = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let (line, number) = (line.trim_ascii(), index + 1);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if !line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
                return bad(format!("a secret of printable ASCII in line {number}"));
            }
            if line.len() < SHORTEST {
                let found = line.len();
                return bad(format!(
                    "a secret of at least {SHORTEST} bytes in line {number}, found {found}"
                ));
            }
            let found = bits(line);
            if found < FEWEST_BITS {
                return bad(format!(
                    "a random secret in line {number}: what is there could be guessed, it has about {found:.0} bits and {FEWEST_BITS} are needed"
                ));
            }
            secrets.push(line.to_vec());
        }
        match secrets.len() {
            0 => bad("a secret in a line of its own, found none".to_owned()),
            1..=MOST => Ok(Self {
                path: path.to_owned(),
                secrets,
            }),
            found => bad(format!("at most {MOST} secrets, found {found}")),
        }
    }

    /// The file they came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn secrets(&self) -> &[Vec<u8>] {
        &self.secrets
    }
}

// Written by hand, so that no log shows secrets.
impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ClusterSecret")
            .field("path", &self.path)
            .field("secrets", &self.secrets.len())
            .finish()
    }
}

/// Estimates the bits of a secret from its characters and from the differences between them; words count as words. It detects words and patterns; it
/// cannot prove that a secret is random.
fn bits(secret: &[u8]) -> f64 {
    let steps: Vec<u8> = secret
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    let each = entropy(secret).min(entropy(&steps));
    let parts = secret.split(|byte| b" -_.,".contains(byte));
    let of_part = |part: &[u8]| {
        let bits = part.len() as f64 * each;
        if part.len() <= LONGEST_WORD && part.iter().all(u8::is_ascii_alphabetic) {
            bits.min(BITS_OF_A_WORD)
        } else {
            bits
        }
    };
    // A secret without separators is not a word.
    if secret.iter().any(|byte| b" -_.,".contains(byte)) {
        parts.map(of_part).sum()
    } else {
        secret.len() as f64 * each
    }
}

/// The bits of one of these bytes, by how often each value occurs (Shannon).
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let total = bytes.len().max(1) as f64;
    let seen = counts.iter().filter(|count| **count > 0);
    seen.map(|count| f64::from(*count) / total)
        .map(|share| -share * share.log2())
        .sum()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::scratch::Scratch;

    fn random<const LENGTH: usize>() -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).expect("a system with randomness");
        bytes
    }

    #[test]
    fn random_secrets_are_taken_and_those_that_could_be_guessed_are_not() {
        for _ in 0..200 {
            let as_docs_say = STANDARD.encode(random::<32>());
            let short = STANDARD.encode(random::<18>());
            let hexadecimal: String = random::<24>()
                .iter()
                .map(|it| format!("{it:02x}"))
                .collect();
            for secret in [as_docs_say, short, hexadecimal] {
                let found = bits(secret.as_bytes());
                assert!(found >= FEWEST_BITS, "{secret}: {found}");
            }
        }
        let words = "vowel-tanker-agile-sixty-mural-pebble-orbit-canyon-drift";
        assert!(bits(words.as_bytes()) >= FEWEST_BITS, "nine random words");
        for secret in [
            "sixteen bytes at least",
            "correct horse battery staple",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "0123456789abcdefghijklmnopqrstuvwxyz",
            "passwordpasswordpassword",
            "the secret of our cluster, do keep it",
        ] {
            let found = bits(secret.as_bytes());
            assert!(found < FEWEST_BITS, "{secret}: {found}");
        }
    }

    #[test]
    fn a_file_has_a_secret_a_line_and_says_what_is_wrong_with_one() {
        let scratch = Scratch::new();
        let (one, other) = (
            STANDARD.encode(random::<32>()),
            STANDARD.encode(random::<32>()),
        );
        let text = format!("# the next one\r\n{one}\r\n\n  {other}  \n");
        let read = ClusterSecret::from_file(&scratch.file("two", &text)).expect("two");
        assert_eq!(read.secrets(), [one.as_bytes(), other.as_bytes()]);
        assert!(!format!("{read:?}").contains(&one));
        let many = format!("{one}\n").repeat(9);
        for (name, text, expected) in [
            ("empty", "\n", "a secret in a line of its own, found none"),
            ("short", "abc\n", "at least 16 bytes in line 1, found 3"),
            (
                "weak",
                &format!("{one}\nsixteen bytes at least"),
                "line 2: what is there could be guessed",
            ),
            ("binary", "\u{1}\u{2}\u{3}", "printable ASCII in line 1"),
            ("many", &many, "at most 8 secrets, found 9"),
        ] {
            let error = ClusterSecret::from_file(&scratch.file(name, text)).expect_err(name);
            let error = error.to_string();
            assert!(error.contains(expected), "{name}: {error}");
            assert!(error.contains("head -c 32 /dev/urandom | base64"), "{name}");
            assert!(
                !error.contains("sixteen bytes at least"),
                "{name}: tells it"
            );
        }
    }
}
