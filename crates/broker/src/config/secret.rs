//! The cluster's secret: a file with one secret, or with several during a rotation.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::values::invalid;

const KEY: &str = "cluster_secret_file";
/// What a secret may be, for whoever wrote another one.
const EXPECTED: &str = "32 or more hexadecimal digits, 22 or more random characters of base64 with upper case, lower case and digits, or a passphrase of 7 or more random words";
const DIGITS_OF_HEXADECIMAL: usize = 32;
const CHARACTERS_OF_BASE64: usize = 22;
/// So many random characters of base64 may lack digits by chance, one secret in 1,500.
const ENOUGH_WITHOUT_DIGITS: usize = 40;
const WORDS_OF_A_PASSPHRASE: usize = 7;
const SEPARATORS: &[u8] = b" -_.,";
/// Bits by the characters alone, below which a secret repeats itself. 22 random characters of base64 have some 90.
const FEWEST_BITS: f64 = 80.0;
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
        let bytes = super::text::read_bytes(path).map_err(|source| ConfigError::Unreadable {
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
            if !looks_random(line) {
                return bad(format!(
                    "{EXPECTED}, in line {number}; what is there could be guessed"
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

/// Whoever connects to a node can test guesses of its secret offline, so a secret must be too strong to guess. Only what looks as if a generator made
/// it is accepted: this refuses words and patterns, but cannot prove that a secret is random.
fn looks_random(secret: &[u8]) -> bool {
    let is_one = is_hexadecimal(secret) || is_base64(secret) || is_passphrase(secret);
    is_one && varies(secret)
}

fn is_hexadecimal(secret: &[u8]) -> bool {
    secret.len() >= DIGITS_OF_HEXADECIMAL && secret.iter().all(u8::is_ascii_hexdigit)
}

/// Either alphabet, with or without padding.
fn is_base64(secret: &[u8]) -> bool {
    let padding = secret.iter().rev().take_while(|byte| **byte == b'=');
    let digits = &secret[..secret.len() - padding.count()];
    let has = |class: fn(&u8) -> bool| digits.iter().any(class);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    digits.len() >= CHARACTERS_OF_BASE64
        && digits.iter().all(is_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && (has(u8::is_ascii_digit) || digits.len() >= ENOUGH_WITHOUT_DIGITS)
        && !reads_as_words(digits)
}

/// Different words, each of three letters or more; those that join the words of a sentence do not count.
fn is_passphrase(secret: &[u8]) -> bool {
    let words = secret.split(|byte| SEPARATORS.contains(byte));
    let words = words.map(<[u8]>::to_ascii_lowercase);
    let counts = |word: &Vec<u8>| {
        word.len() >= 3 && word.iter().all(u8::is_ascii_lowercase) && !is_listed(JOINING, word)
    };
    words.filter(counts).collect::<HashSet<_>>().len() >= WORDS_OF_A_PASSPHRASE
}

/// Whether its pairs of letters are more likely in English words, perhaps with capitals (`MyCompanyCluster`), than in random base64: the sum of
/// rounded logarithms of both shares, for the letters of a pair and for their cases.
fn reads_as_words(text: &[u8]) -> bool {
    let pairs = text.windows(2);
    let letters = pairs.filter(|pair| pair.iter().all(u8::is_ascii_alphabetic));
    let score = |pair: &[u8]| {
        let of_letters = match is_listed(PAIRS, &pair.to_ascii_lowercase()) {
            true => 5,
            false => -5,
        };
        let of_cases = match (pair[0].is_ascii_lowercase(), pair[1].is_ascii_lowercase()) {
            (true, true) => 4,
            (false, false) => -12,
            (true, false) | (false, true) => -2,
        };
        of_letters + of_cases
    };
    letters.map(score).sum::<i32>() > 0
}

/// Refuses repetitions and sequences, by the characters and by the differences between them.
fn varies(secret: &[u8]) -> bool {
    let steps: Vec<u8> = secret
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    secret.len() as f64 * entropy(secret).min(entropy(&steps)) >= FEWEST_BITS
}

/// The pairs of letters that are most frequent in English texts: three quarters of all.
const PAIRS: &str = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea \
ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un lo wa ge ie wh ee wi em ad ol rt po we \
na ul ni ts mo ow pa im mi ai sh ir su id os";
/// Words of three letters or more that sentences consist of.
const JOINING: &str = "the and for our your his her its this that these those with from into not are was has have will can you who all any but one";

fn is_listed(list: &str, word: &[u8]) -> bool {
    list.split(' ').any(|listed| listed.as_bytes() == word)
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
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::scratch::Scratch;

    /// Bytes that look random and are the same in every run.
    fn bytes(seed: u32) -> [u8; 32] {
        Sha256::digest(seed.to_be_bytes()).into()
    }

    #[test]
    fn secrets_of_generators_are_accepted() {
        let hexadecimal = |bytes: &[u8]| -> String {
            let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
            digits.collect()
        };
        let mut refused = 0;
        for seed in 0..2000 {
            let bytes = bytes(seed);
            for secret in [
                STANDARD.encode(bytes),
                URL_SAFE_NO_PAD.encode(bytes),
                hexadecimal(&bytes[..16]),
            ] {
                refused += u32::from(!looks_random(secret.as_bytes()));
            }
        }
        assert_eq!(refused, 0, "of 6000");
        for secret in [
            "3f1Jb0sZrT1kVQ9wYc4hNu",
            "vowel-tanker-agile-sixty-mural-pebble-orbit",
            "vowel tanker agile sixty mural pebble orbit canyon",
            "qM2f8mXbJ0sZrT1kVQ9wYc4hN7uLpE3a6GdRiBxOoDs",
        ] {
            assert!(looks_random(secret.as_bytes()), "{secret}");
        }
    }

    #[test]
    fn secrets_that_could_be_guessed_are_refused() {
        for secret in [
            "abc",
            "sixteen bytes at least",
            "correct horse battery staple",
            "correcthorsebatterystaple",
            "MyCompanyMqttCluster2026",
            "thicketclustersecret2026",
            "Summer2026!Winter2025?",
            "ThisIsTheSecretOfOurCluster",
            "ThisIsTheSecretOfOurClusterAndNobodyElseKnowsIt",
            "qwertyuiopasdfghjklzxcvbnm",
            "P@ssw0rd1234P@ssw0rd5678",
            "P4ssw0rd1234P4ssw0rd5678",
            "1q2w3e4r5t6y7u8i9o0pazsx",
            "HomeAssistantBroker2026Backup",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "0123456789abcdefghijklmnopqrstuvwxyz",
            "0123456789abcdef0123456789abcdef",
            "00112233445566778899aabbccddeeff",
            "deadbeefdeadbeefdeadbeefdeadbeef",
            "Ab1Ab1Ab1Ab1Ab1Ab1Ab1Ab1",
            "passwordpasswordpassword",
            "the secret of our cluster, do keep it",
            "this is the secret of our cluster for production and staging",
            "mqtt mqtt mqtt mqtt mqtt mqtt mqtt mqtt mqtt",
            // 21 characters of base64, 31 digits of hexadecimal, six words.
            "3f1Jb0sZrT1kVQ9wYc4hN",
            "8b1f0c93d7e24a6650fb9e1d3c7a284",
            "vowel-tanker-agile-sixty-mural-pebble",
        ] {
            assert!(!looks_random(secret.as_bytes()), "{secret}");
        }
    }

    #[test]
    fn a_file_has_a_secret_a_line_and_says_what_is_wrong_with_one() {
        let scratch = Scratch::new();
        let (one, other) = (STANDARD.encode(bytes(1)), STANDARD.encode(bytes(2)));
        let text = format!("# the next one\r\n{one}\r\n\n  {other}  \n");
        let read = ClusterSecret::from_file(&scratch.file("two", &text)).expect("two");
        assert_eq!(read.secrets(), [one.as_bytes(), other.as_bytes()]);
        assert!(!format!("{read:?}").contains(&one));
        let many = format!("{one}\n").repeat(9);
        for (name, text, expected) in [
            ("empty", "\n", "a secret in a line of its own, found none"),
            ("short", "abc\n", "or more random words, in line 1"),
            (
                "weak",
                &format!("{one}\nsixteen bytes at least"),
                "in line 2; what is there could be guessed",
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
