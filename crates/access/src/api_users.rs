//! Users of the HTTP API and their roles.
//!
//! A line of users is `ROLE NAME:$argon2id$...` for a name and a password (Basic), or `ROLE NAME:$sha256$HEX` for a token (Bearer). Tokens that
//! expire have a file of their own, with lines `SCOPE NAME EXPIRES $sha256$HEX`. A token is long and random, so that a fast hash does: it is
//! looked up at every request.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use hashbrown::HashMap;
use sha2::{Digest, Sha256};
use thicket_session::time::WallClock;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use crate::hash::{Argon2Hash, HashMemory, Work};
use crate::problem::Problem;
use crate::refusal::Refusal;

/// What a user or a token of the HTTP API may do: the scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read the metrics, and nothing else.
    Metrics,
    /// Read everything.
    Viewer,
    /// Change something as well.
    Admin,
}

impl Role {
    /// All of them, by what they allow.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Viewer, Self::Admin];

    /// As files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// What a request to the HTTP API is authenticated by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// A name and a password.
    Password,
    /// A token.
    Token,
}

/// A user of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiUser {
    /// As the file has it, for a token as well.
    pub name: Box<str>,
    /// What it may do.
    pub role: Role,
    /// How it authenticated.
    pub credential: Credential,
    /// When its token expires; `None`: never, or it has none.
    pub expires: Option<WallClock>,
}

/// The result of checking a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenCheck {
    /// Valid, of this user.
    Valid(ApiUser),
    /// Expired; the name of the token.
    Expired(Box<str>),
    /// No such token.
    Unknown,
}

/// Users of the HTTP API.
#[derive(Debug, Clone, Default)]
pub struct ApiUsers {
    passwords: HashMap<Box<str>, (Role, Argon2Hash)>,
    /// So that the time of an answer does not reveal which names exist.
    refusal: Refusal,
    tokens: HashMap<[u8; 32], ApiUser>,
}

const TOKEN_PREFIX: &str = "$sha256$";

impl ApiUsers {
    /// Parses the text of a file; empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not of the form above. The hash is not repeated.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut all = Self::default();
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
        let role = Role::of_name(role)
            .ok_or("expected `viewer NAME:HASH`, `admin NAME:HASH` or `metrics NAME:HASH`")?;
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
                let user = ApiUser {
                    name: name.into(),
                    role,
                    credential: Credential::Token,
                    expires: None,
                };
                self.has_token(name) || self.tokens.insert(digest, user).is_some()
            }
            None => {
                let hash = Argon2Hash::parse(hash)?;
                self.refusal.add(hash.work(), Some(&hash));
                self.passwords.insert(name.into(), (role, hash)).is_some()
            }
        };
        if is_second {
            return Err("this user is listed twice");
        }
        Ok(())
    }

    /// Whether there is neither a user nor a token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passwords.is_empty() && self.tokens.is_empty()
    }

    /// The user with this name and password. Slow on purpose; a refusal takes the same for every name.
    #[must_use]
    pub fn with_password(
        &self,
        name: &str,
        password: &[u8],
        memory: &mut HashMemory,
    ) -> Option<ApiUser> {
        let known = self.passwords.get(name);
        if let Some((role, hash)) = known
            && hash.verify(password, memory)
        {
            return Some(ApiUser {
                name: name.into(),
                role: *role,
                credential: Credential::Password,
                expires: None,
            });
        }
        let done = known.map_or_else(Work::default, |(_, hash)| hash.work());
        self.refusal.finish(done, password, memory);
        None
    }

    /// Checks a token at the given time. Every known token is compared with it, each in constant time, so that the time of an answer reveals nothing
    /// about any of them.
    #[must_use]
    pub fn with_token(&self, token: &[u8], now: WallClock) -> TokenCheck {
        let given: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (digest, user) in &self.tokens {
            if verify_slices_are_equal(digest, &given).is_ok() {
                found = Some(user);
            }
        }
        match found {
            None => TokenCheck::Unknown,
            Some(user) if user.expires.is_some_and(|expires| expires <= now) => {
                TokenCheck::Expired(user.name.clone())
            }
            Some(user) => TokenCheck::Valid(user.clone()),
        }
    }

    /// Names of the tokens that expire, and when; by name.
    #[must_use]
    pub fn expiries(&self) -> Vec<(&str, WallClock)> {
        let tokens = self.tokens.values();
        let mut all: Vec<_> = tokens
            .filter_map(|user| Some((&*user.name, user.expires?)))
            .collect();
        all.sort_unstable();
        all
    }

    /// Adds the tokens of a file to the users; empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not `SCOPE NAME EXPIRES HASH`, or names a token a second time. The hash is not repeated.
    pub fn add_tokens(&mut self, text: &str) -> Result<(), Problem> {
        let mut lines = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let problem = |expected| Problem::new(index + 1, expected);
            let (digest, user) = token_of_line(line).map_err(problem)?;
            // The audit log and bans contain the token's name.
            let name = user.name.clone();
            if let Some(first) = lines.insert(name.clone(), index + 1) {
                let expected = format!("expected another name, {name} is on line {first}");
                return Err(Problem::new(index + 1, expected));
            }
            if self.has_token(&name) {
                let expected =
                    format!("expected another name, a token of `http_users` is named {name}");
                return Err(Problem::new(index + 1, expected));
            }
            if self.tokens.insert(digest, user).is_some() {
                return Err(problem("this token is listed twice"));
            }
        }
        Ok(())
    }

    fn has_token(&self, name: &str) -> bool {
        self.tokens.values().any(|user| &*user.name == name)
    }
}

fn token_of_line(line: &str) -> Result<([u8; 32], ApiUser), &'static str> {
    let mut words = line.split_ascii_whitespace();
    let mut word = || words.next();
    let (Some(scope), Some(name), Some(expires), Some(hash), None) =
        (word(), word(), word(), word(), word())
    else {
        return Err("expected `SCOPE NAME EXPIRES HASH` (`thicket token` makes such lines)");
    };
    let role = Role::of_name(scope).ok_or("expected the scope `viewer`, `admin` or `metrics`")?;
    let expires = match expires {
        "never" => None,
        text => Some(parse_time(text).ok_or("expected the time at which the token expires, such as 2027-01-31T12:00:00Z, or `never`, after the name")?),
    };
    let hex = hash.strip_prefix(TOKEN_PREFIX);
    let digest = hex.and_then(bytes_of_hex);
    let digest = digest.ok_or("expected `$sha256$` and 64 hexadecimal digits at the end")?;
    let user = ApiUser {
        name: name.into(),
        role,
        credential: Credential::Token,
        expires,
    };
    Ok((digest, user))
}

/// A line of the file of tokens. `hash`: of [`hash_token`]. `expires`: to the second; `None`: never.
///
/// # Errors
/// The name is empty, begins with `#` or has blanks or control characters, or the time is beyond the year 9999.
pub fn token_line(
    role: Role,
    name: &str,
    expires: Option<WallClock>,
    hash: &str,
) -> Result<String, &'static str> {
    let is_good = |char: char| !char.is_whitespace() && !char.is_control();
    if name.is_empty() || name.starts_with('#') || !name.chars().all(is_good) {
        return Err("expected a name without blanks and without `#` at its start");
    }
    let expires = match expires {
        None => "never".to_owned(),
        Some(expires) => text_of_time(expires).ok_or("expected a time before the year 10000")?,
    };
    Ok(format!("{} {name} {expires} {hash}", role.name()))
}

/// Parses a time of RFC 3339; `None`: invalid, or before 1970.
#[must_use]
pub fn parse_time(text: &str) -> Option<WallClock> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let millis = time.unix_timestamp_nanos() / 1_000_000;
    let millis = u64::try_from(millis).ok()?;
    Some(WallClock::from_unix_millis(millis))
}

/// The text of a time in RFC 3339, to the second; `None`: after the year 9999.
#[must_use]
pub fn text_of_time(time: WallClock) -> Option<String> {
    let seconds = i64::try_from(time.as_unix_millis() / 1000).ok()?;
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    time.to_offset(UtcOffset::UTC).format(&Rfc3339).ok()
}

/// The entry of a token in the file.
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
            crate::hash_password(b"secret", [5; 16]),
            hash_token(b"a long token")
        );
        let all = ApiUsers::parse(&text).expect("a good file");
        let user = |name: &str, role, credential| ApiUser {
            name: name.into(),
            role,
            credential,
            expires: None,
        };
        let ann = user("ann", Role::Viewer, Credential::Password);
        let mut memory = HashMemory::default();
        let mut with_password =
            |name: &str, password: &[u8]| all.with_password(name, password, &mut memory);
        assert_eq!(with_password("ann", b"secret"), Some(ann));
        assert_eq!(with_password("ann", b"Secret"), None);
        assert_eq!(with_password("robot", b"a long token"), None);
        assert_eq!(with_password("eve", b"nobody has this password"), None);
        let robot = user("robot", Role::Admin, Credential::Token);
        let check = |token: &[u8]| all.with_token(token, WallClock::from_unix_millis(u64::MAX));
        assert_eq!(check(b"a long token"), TokenCheck::Valid(robot));
        assert_eq!(check(b"secret"), TokenCheck::Unknown);
        assert!(Role::Admin > Role::Viewer && Role::Viewer > Role::Metrics);
    }

    #[test]
    fn tokens_of_a_file_have_scopes_and_expire() {
        let noon = parse_time("2027-01-31T12:00:00Z").expect("a time");
        let line = |role, name, expires, token: &[u8]| {
            token_line(role, name, expires, &hash_token(token)).expect("a good one")
        };
        let text = [
            "# tokens".to_owned(),
            line(Role::Metrics, "prometheus", None, b"scrape"),
            line(Role::Admin, "deploy:1", Some(noon), b"deploy"),
        ];
        assert!(
            text[2].starts_with("admin deploy:1 2027-01-31T12:00:00Z $sha256$"),
            "{}",
            text[2]
        );
        let mut all = ApiUsers::default();
        all.add_tokens(&text.join("\n")).expect("a good file");
        assert_eq!(all.expiries(), [("deploy:1", noon)]);
        let role =
            |token: &[u8], at: u64| match all.with_token(token, WallClock::from_unix_millis(at)) {
                TokenCheck::Valid(user) => user.role.name().to_owned(),
                TokenCheck::Expired(name) => format!("{name} has expired"),
                TokenCheck::Unknown => "nobody".to_owned(),
            };
        let end = noon.as_unix_millis();
        for (token, at, expected) in [
            (&b"scrape"[..], u64::MAX, "metrics"),
            (b"deploy", end - 1, "admin"),
            (b"deploy", end, "deploy:1 has expired"),
            (b"deplo", end - 1, "nobody"),
            (b"", 0, "nobody"),
        ] {
            assert_eq!(role(token, at), expected, "{token:?} {at}");
        }
    }

    #[test]
    fn a_bad_line_of_tokens_is_refused_with_its_number() {
        let hash = hash_token(b"x");
        let other = hash_token(b"y");
        for (text, expected) in [
            (
                format!("viewer a never {hash} more"),
                "line 1: expected `SCOPE NAME EXPIRES HASH`",
            ),
            (
                format!("\nviewer a {hash}"),
                "line 2: expected `SCOPE NAME EXPIRES HASH`",
            ),
            (format!("root a never {hash}"), "line 1: expected the scope"),
            (
                format!("viewer a tomorrow {hash}"),
                "line 1: expected the time",
            ),
            (
                format!("viewer a 2027-02-30T00:00:00Z {hash}"),
                "line 1: expected the time",
            ),
            (
                format!("viewer a 1969-01-01T00:00:00Z {hash}"),
                "line 1: expected the time",
            ),
            (
                "viewer a never hunter2".to_owned(),
                "line 1: expected `$sha256$`",
            ),
            (
                format!("viewer a never {hash}\nadmin a never {other}"),
                "line 2: expected another name, a is on line 1",
            ),
            (
                format!("viewer a never {hash}\nadmin b never {hash}"),
                "line 2: this token is listed twice",
            ),
        ] {
            let error = ApiUsers::default()
                .add_tokens(&text)
                .expect_err(&text)
                .to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let mut all = ApiUsers::parse(&format!("admin a:{hash}")).expect("a good file");
        let added = all.add_tokens(&format!("# more\nviewer a never {other}"));
        let expected = "line 2: expected another name, a token of `http_users` is named a";
        assert_eq!(added.map_err(|it| it.to_string()), Err(expected.to_owned()));
        for name in ["", "a b", "#a", "a\n"] {
            assert!(
                token_line(Role::Viewer, name, None, &hash).is_err(),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        let hash = hash_token(b"x");
        let twice = format!("viewer a:{hash}\nviewer b:{hash}");
        let same_name = format!("viewer a:{hash}\nviewer a:{}", hash_token(b"y"));
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
            (
                "two tokens of one name",
                &same_name,
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
