//! Who may not connect. A ban is a retained message on a topic of the nodes, so that it reaches every node, including ones that join later, is
//! stored, and ends by itself.
//!
//! ```text
//! topic    $thicket/bans/KIND/SUBJECT   SUBJECT in hexadecimal: it may hold what a topic may not; /KIND/SUBJECT twice: both hold
//! payload  JSON with a version
//! ```

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thicket_session::time::WallClock;

/// Topics of bans.
pub(crate) const BANS: &str = "$thicket/bans/";
/// Bans there may be; of more, those whose topics come last are ignored.
const MAXIMUM: usize = 16_384;
/// Longest client identifier or user name that can be banned, bytes.
const LONGEST_SUBJECT: usize = 1024;
/// Longest reason, bytes.
const LONGEST_REASON: usize = 1024;
/// Version of the payload.
const VERSION: u8 = 1;

/// Who is banned.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanSubject {
    /// Clients with this identifier, of any user.
    ClientId(String),
    /// Clients of this user.
    UserName(String),
    /// Clients with this identifier, of this user.
    ClientOfUser {
        /// The identifier.
        client_id: String,
        /// The user.
        user_name: String,
    },
    /// Clients from this address.
    Address(IpAddr),
}

/// A client that may not connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    /// Who.
    pub subject: BanSubject,
    /// Why, for operators.
    pub reason: String,
    /// Who banned it; none: the API has no users.
    pub by: Option<String>,
    /// Since when.
    pub since: WallClock,
    /// Until when; none: until it is lifted.
    pub until: Option<WallClock>,
}

/// A ban that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BanError {
    /// It is empty.
    #[error("expected a client identifier or a user name that is not empty")]
    Empty,
    /// Too long.
    #[error("a client identifier or user name to ban has at most {LONGEST_SUBJECT} bytes")]
    LongSubject,
    /// Too long.
    #[error("a reason has at most {LONGEST_REASON} bytes")]
    LongReason,
}

/// As it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Payload {
    version: u8,
    subject: BanSubject,
    reason: String,
    by: Option<String>,
    since_ms: u64,
    until_ms: Option<u64>,
}

/// All bans, as workers look them up.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    /// Until when each holds.
    by_subject: HashMap<BanSubject, Option<WallClock>>,
}

impl fmt::Display for BanSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientId(id) => write!(f, "client {id}"),
            Self::UserName(name) => write!(f, "user {name}"),
            Self::ClientOfUser {
                client_id,
                user_name,
            } => write!(f, "client {client_id} of user {user_name}"),
            Self::Address(address) => write!(f, "address {address}"),
        }
    }
}

impl BanSubject {
    /// Checks it; an IPv4 address in IPv6 form is that IPv4 address.
    ///
    /// # Errors
    /// [`BanError`]: it is empty or too long.
    pub fn checked(self) -> Result<Self, BanError> {
        let texts: &[&str] = match &self {
            Self::ClientId(text) | Self::UserName(text) => &[text],
            Self::ClientOfUser {
                client_id,
                user_name,
            } => &[client_id, user_name],
            Self::Address(address) => return Ok(Self::Address(address.to_canonical())),
        };
        if texts.iter().any(|text| text.is_empty()) {
            return Err(BanError::Empty);
        }
        if texts.iter().any(|text| text.len() > LONGEST_SUBJECT) {
            return Err(BanError::LongSubject);
        }
        Ok(self)
    }

    /// Where its ban is retained.
    pub(crate) fn topic(&self) -> String {
        let hex = |text: &str| -> String {
            let bytes = text.bytes();
            bytes.map(|byte| format!("{byte:02x}")).collect()
        };
        match self {
            Self::ClientId(id) => format!("{BANS}client/{}", hex(id)),
            Self::UserName(name) => format!("{BANS}user/{}", hex(name)),
            Self::ClientOfUser {
                client_id,
                user_name,
            } => format!("{BANS}client/{}/user/{}", hex(client_id), hex(user_name)),
            Self::Address(address) => format!("{BANS}address/{}", hex(&address.to_string())),
        }
    }
}

impl Ban {
    /// Bans there may be.
    pub const MAXIMUM: usize = MAXIMUM;

    /// Checks subject and reason.
    ///
    /// # Errors
    /// [`BanError`]: one of them is empty or too long.
    pub fn checked(self) -> Result<Self, BanError> {
        if self.reason.len() > LONGEST_REASON {
            return Err(BanError::LongReason);
        }
        let subject = self.subject.checked()?;
        Ok(Self { subject, ..self })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let payload = Payload {
            version: VERSION,
            subject: self.subject.clone(),
            reason: self.reason.clone(),
            by: self.by.clone(),
            since_ms: self.since.as_unix_millis(),
            until_ms: self.until.map(WallClock::as_unix_millis),
        };
        serde_json::to_vec(&payload).expect("a ban is plain data")
    }

    /// `None`: it is of another version, or no ban.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let payload: Payload = serde_json::from_slice(payload).ok()?;
        let ban = Self {
            subject: payload.subject,
            reason: payload.reason,
            by: payload.by,
            since: WallClock::from_unix_millis(payload.since_ms),
            until: payload.until_ms.map(WallClock::from_unix_millis),
        };
        (payload.version == VERSION).then_some(ban)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self, now: WallClock) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Bans {
    pub(crate) fn new(bans: impl IntoIterator<Item = Ban>) -> Self {
        let bans = bans.into_iter().take(MAXIMUM);
        Self {
            by_subject: bans.map(|ban| (ban.subject, ban.until)).collect(),
        }
    }

    /// The subject that a client is banned by, if it is.
    pub(crate) fn find(
        &self,
        now: WallClock,
        client_id: &str,
        user_name: Option<&str>,
        address: IpAddr,
    ) -> Option<BanSubject> {
        if self.by_subject.is_empty() {
            return None;
        }
        let subjects = [
            Some(BanSubject::ClientId(client_id.to_owned())),
            user_name.map(|name| BanSubject::UserName(name.to_owned())),
            user_name.map(|name| BanSubject::ClientOfUser {
                client_id: client_id.to_owned(),
                user_name: name.to_owned(),
            }),
            Some(BanSubject::Address(address.to_canonical())),
        ];
        subjects.into_iter().flatten().find(|subject| {
            let until = self.by_subject.get(subject);
            until.is_some_and(|until| until.is_none_or(|until| until > now))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallClock = WallClock::from_unix_millis(1000);

    fn ban(subject: BanSubject, until_ms: Option<u64>) -> Ban {
        Ban {
            subject,
            reason: "loud".into(),
            by: Some("ann".into()),
            since: WallClock::from_unix_millis(1),
            until: until_ms.map(WallClock::from_unix_millis),
        }
    }

    fn of_user(client_id: &str, user_name: &str) -> BanSubject {
        BanSubject::ClientOfUser {
            client_id: client_id.into(),
            user_name: user_name.into(),
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_ban_is_read_as_it_was_written() {
        for subject in [
            BanSubject::ClientId("a/+#\u{7f}b".into()),
            BanSubject::UserName("ann".into()),
            of_user("lamp/1", "ann"),
            BanSubject::Address(address("2001:db8::1")),
        ] {
            let ban = ban(subject, Some(5));
            assert_eq!(Ban::decode(&ban.encode()), Some(ban.clone()));
            assert!(thicket_session::topic::TopicName::check(&ban.subject.topic()).is_ok());
        }
        assert_eq!(Ban::decode(b"{}"), None);
    }

    #[test]
    fn clients_are_banned_by_identifier_user_or_address_until_then() {
        let bans = Bans::new([
            ban(BanSubject::ClientId("bad".into()), None),
            ban(BanSubject::UserName("eve".into()), Some(1001)),
            ban(BanSubject::Address(address("192.0.2.1")), None),
            ban(BanSubject::ClientId("over".into()), Some(1000)),
            ban(of_user("lamp", "bob"), None),
        ]);
        for (client_id, user_name, from, is_banned) in [
            ("good", None, "192.0.2.2", false),
            ("bad", None, "192.0.2.2", true),
            ("good", Some("eve"), "192.0.2.2", true),
            ("eve", Some("bad"), "192.0.2.2", false),
            ("good", None, "::ffff:192.0.2.1", true),
            ("over", None, "192.0.2.2", false),
            ("lamp", Some("bob"), "192.0.2.2", true),
            ("lamp", Some("ann"), "192.0.2.2", false),
            ("lamp", None, "192.0.2.2", false),
            ("other", Some("bob"), "192.0.2.2", false),
        ] {
            let found = bans.find(NOW, client_id, user_name, address(from));
            assert_eq!(
                found.is_some(),
                is_banned,
                "{client_id} {user_name:?} {from}"
            );
        }
    }

    #[test]
    fn a_ban_that_makes_no_sense_is_refused() {
        let of_client = |id: String| ban(BanSubject::ClientId(id), None).checked();
        assert_eq!(of_client(String::new()), Err(BanError::Empty));
        assert_eq!(of_client("x".repeat(1025)), Err(BanError::LongSubject));
        assert!(of_client("x".repeat(1024)).is_ok());
        assert_eq!(
            ban(of_user("lamp", ""), None).checked(),
            Err(BanError::Empty)
        );
        let mut long = ban(BanSubject::UserName("ann".into()), None);
        long.reason = "x".repeat(1025);
        assert_eq!(long.checked(), Err(BanError::LongReason));
        let mapped = BanSubject::Address(address("::ffff:192.0.2.1")).checked();
        assert_eq!(mapped, Ok(BanSubject::Address(address("192.0.2.1"))));
    }
}
