//! Who may not connect. A ban is a retained message on a topic of the nodes, so that it reaches every node, including ones that join later, is
//! stored, and ends by itself.
//!
//! ```text
//! topic    $thicket/bans/address/TEXT
//!          $thicket/bans/clients/ID/USER/PREFIX   `-`: any, `=` and TEXT, or `anonymous`
//!          TEXT in hexadecimal: it may hold what a topic may not
//! payload  JSON with a version
//! ```
//!
//! It ends when the message expires: each node counts that time on its own clock, so no node uses the time of day of another one.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thicket_session::time::{Instant, WallClock};

/// Topics of bans.
pub(crate) const BANS: &str = "$thicket/bans/";
/// Bans there may be; of more, those whose topics come last are ignored.
const MAXIMUM: usize = 16_384;
/// Longest client identifier, user name or topic prefix that can be banned, bytes.
const LONGEST_SUBJECT: usize = 1024;
/// Longest reason, bytes.
const LONGEST_REASON: usize = 1024;
/// Version of the payload.
const VERSION: u8 = 2;

/// Who is banned.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanSubject {
    /// Clients to which all that is given applies.
    Clients(BannedClients),
    /// Clients from this address.
    Address(IpAddr),
}

/// Banned clients. What is not given may be anything; something is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct BannedClients {
    /// Those with this identifier.
    pub client_id: Option<String>,
    /// Those of this user.
    pub user: Option<BannedUser>,
    /// Those of listeners with this topic prefix; empty: of those without one.
    pub topic_prefix: Option<String>,
}

/// Whose clients are banned.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BannedUser {
    /// Those of the user with this name.
    Name(String),
    /// Those that prove no user name. Nobody has authenticated as one of them, so such a ban applies to no client of a user.
    Anonymous,
}

/// As what a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Login<'a> {
    /// That is not known yet.
    Unproved,
    Anonymous,
    User(&'a str),
}

impl<'a> Login<'a> {
    pub(crate) fn of(user_name: Option<&'a str>) -> Self {
        user_name.map_or(Self::Anonymous, Self::User)
    }
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
    /// Since when; if it does not end by itself, by the clock of the node that banned it.
    pub since: WallClock,
    /// Until when, by the clock of this node; none: until it is lifted.
    pub until: Option<WallClock>,
}

/// A ban that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BanError {
    /// It is empty.
    #[error("expected a client identifier or a user name that is not empty")]
    Empty,
    /// Too long.
    #[error(
        "a client identifier, user name or topic prefix to ban has at most {LONGEST_SUBJECT} bytes"
    )]
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
    lasts_ms: Option<u64>,
}

/// All bans, as workers look them up.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    /// Until when each holds.
    by_subject: HashMap<BanSubject, Option<Instant>>,
}

impl fmt::Display for BanSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BannedClients {
            client_id,
            user,
            topic_prefix,
        } = match self {
            Self::Address(address) => return write!(f, "address {address}"),
            Self::Clients(clients) => clients,
        };
        let id = client_id.as_ref().map(|id| format!("client {id}"));
        let user = user.as_ref().map(|user| match user {
            BannedUser::Name(name) => format!("user {name}"),
            BannedUser::Anonymous => "no user".to_owned(),
        });
        let prefix = topic_prefix.as_ref().map(|prefix| match &**prefix {
            "" => "listeners without a topic prefix".to_owned(),
            prefix => format!("listeners with the topic prefix {prefix}"),
        });
        let parts: Vec<String> = [id, user, prefix].into_iter().flatten().collect();
        f.write_str(&parts.join(" of "))
    }
}

impl BanSubject {
    /// Clients with this identifier, of any user.
    #[must_use]
    pub fn client_id(client_id: &str) -> Self {
        Self::Clients(BannedClients {
            client_id: Some(client_id.to_owned()),
            ..BannedClients::default()
        })
    }

    /// Clients of this user.
    #[must_use]
    pub fn user_name(name: &str) -> Self {
        Self::Clients(BannedClients {
            user: Some(BannedUser::Name(name.to_owned())),
            ..BannedClients::default()
        })
    }

    /// Checks it; an IPv4 address in IPv6 form is that IPv4 address.
    ///
    /// # Errors
    /// [`BanError`]: it is empty or too long.
    pub fn checked(self) -> Result<Self, BanError> {
        let clients = match &self {
            Self::Address(address) => return Ok(Self::Address(address.to_canonical())),
            Self::Clients(clients) => clients,
        };
        let name = match &clients.user {
            Some(BannedUser::Name(name)) => Some(name),
            Some(BannedUser::Anonymous) | None => None,
        };
        let named = || clients.client_id.iter().chain(name);
        let has_some = clients.client_id.is_some() || clients.user.is_some();
        let has_prefix = (clients.topic_prefix.as_ref()).is_some_and(|prefix| !prefix.is_empty());
        if named().any(String::is_empty) || !has_some && !has_prefix {
            return Err(BanError::Empty);
        }
        let mut texts = named().chain(&clients.topic_prefix);
        if texts.any(|text| text.len() > LONGEST_SUBJECT) {
            return Err(BanError::LongSubject);
        }
        Ok(self)
    }

    /// Whether everything that `other` names is the same here.
    #[must_use]
    pub fn is_among(&self, other: &Self) -> bool {
        fn agrees<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            other.is_none() || one == other
        }
        match (self, other) {
            (Self::Clients(one), Self::Clients(other)) => {
                agrees(&one.client_id, &other.client_id)
                    && agrees(&one.user, &other.user)
                    && agrees(&one.topic_prefix, &other.topic_prefix)
            }
            (Self::Address(_), _) | (_, Self::Address(_)) => self == other,
        }
    }

    /// Where its ban is retained.
    pub(crate) fn topic(&self) -> String {
        let hex = |text: &str| -> String {
            let bytes = text.bytes();
            bytes.map(|byte| format!("{byte:02x}")).collect()
        };
        let part = |text: &Option<String>| match text {
            Some(text) => format!("={}", hex(text)),
            None => "-".to_owned(),
        };
        match self {
            Self::Clients(BannedClients {
                client_id,
                user,
                topic_prefix,
            }) => {
                let user = match user {
                    Some(BannedUser::Name(name)) => format!("={}", hex(name)),
                    Some(BannedUser::Anonymous) => "anonymous".to_owned(),
                    None => "-".to_owned(),
                };
                let (id, prefix) = (part(client_id), part(topic_prefix));
                format!("{BANS}clients/{id}/{user}/{prefix}")
            }
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
            lasts_ms: self.until.map(|until| ms_between(self.since, until)),
        };
        serde_json::to_vec(&payload).expect("a ban is plain data")
    }

    /// `until`: when the message expires. `None`: it is of another version, or no ban.
    pub(crate) fn decode(payload: &[u8], until: Option<WallClock>) -> Option<Self> {
        let payload: Payload = serde_json::from_slice(payload).ok()?;
        let until_ms = until.map(WallClock::as_unix_millis);
        let since_ms = match until_ms.zip(payload.lasts_ms) {
            Some((until_ms, lasts_ms)) => until_ms.saturating_sub(lasts_ms),
            None => payload.since_ms,
        };
        let ban = Self {
            subject: payload.subject,
            reason: payload.reason,
            by: payload.by,
            since: WallClock::from_unix_millis(since_ms),
            until,
        };
        (payload.version == VERSION).then_some(ban)
    }
}

const fn ms_between(since: WallClock, until: WallClock) -> u64 {
    (until.as_unix_millis()).saturating_sub(since.as_unix_millis())
}

impl Bans {
    pub(crate) fn new(bans: impl IntoIterator<Item = (Ban, Option<Instant>)>) -> Self {
        let bans = bans.into_iter().take(MAXIMUM);
        Self {
            by_subject: bans.map(|(ban, until)| (ban.subject, until)).collect(),
        }
    }

    /// The subject that a client is banned by, if it is. Of a client whose user is not known yet, only bans that apply to all users do.
    pub(crate) fn find(
        &self,
        now: Instant,
        client_id: &str,
        login: Login<'_>,
        topic_prefix: &str,
        address: IpAddr,
    ) -> Option<BanSubject> {
        if self.by_subject.is_empty() {
            return None;
        }
        let user = match login {
            Login::Unproved => None,
            Login::Anonymous => Some(BannedUser::Anonymous),
            Login::User(name) => Some(BannedUser::Name(name.to_owned())),
        };
        let ids = [None, Some(client_id.to_owned())];
        let users = if user.is_some() {
            vec![None, user]
        } else {
            vec![None]
        };
        let prefixes = [None, Some(topic_prefix.to_owned())];
        let mut subjects = vec![BanSubject::Address(address.to_canonical())];
        for client_id in &ids {
            for user in &users {
                for topic_prefix in &prefixes {
                    subjects.push(BanSubject::Clients(BannedClients {
                        client_id: client_id.clone(),
                        user: user.clone(),
                        topic_prefix: topic_prefix.clone(),
                    }));
                }
            }
        }
        subjects.into_iter().find(|subject| {
            let until = self.by_subject.get(subject);
            until.is_some_and(|until| until.is_none_or(|until| until > now))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1000);

    fn ban(subject: BanSubject) -> Ban {
        Ban {
            subject,
            reason: "loud".into(),
            by: Some("ann".into()),
            since: WallClock::from_unix_millis(1),
            until: Some(WallClock::from_unix_millis(5)),
        }
    }

    fn scoped(client_id: &str, user: BannedUser, topic_prefix: Option<&str>) -> BanSubject {
        BanSubject::Clients(BannedClients {
            client_id: Some(client_id.into()),
            user: Some(user),
            topic_prefix: topic_prefix.map(str::to_owned),
        })
    }

    fn of_user(client_id: &str, user_name: &str) -> BanSubject {
        scoped(client_id, BannedUser::Name(user_name.into()), None)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_ban_is_read_as_it_was_written() {
        for subject in [
            BanSubject::client_id("a/+#\u{7f}b"),
            BanSubject::user_name("ann"),
            scoped("lamp", BannedUser::Anonymous, Some("")),
            scoped("lamp", BannedUser::Anonymous, Some("t/")),
            of_user("lamp/1", "ann"),
            BanSubject::Address(address("2001:db8::1")),
        ] {
            let ban = ban(subject);
            assert_eq!(Ban::decode(&ban.encode(), ban.until), Some(ban.clone()));
            // By another clock.
            let read = Ban::decode(&ban.encode(), Some(WallClock::from_unix_millis(100)));
            let since = read.map(|ban| ban.since.as_unix_millis());
            assert_eq!(since, Some(96));
            assert!(thicket_session::topic::TopicName::check(&ban.subject.topic()).is_ok());
        }
        assert_eq!(Ban::decode(b"{}", None), None);
    }

    #[test]
    fn clients_are_banned_by_identifier_user_or_address_until_then() {
        let until = |subject, until: Option<u64>| (ban(subject), until.map(Instant::from_millis));
        let bans = Bans::new([
            until(BanSubject::client_id("bad"), None),
            until(BanSubject::user_name("eve"), Some(1001)),
            until(BanSubject::Address(address("192.0.2.1")), None),
            until(BanSubject::client_id("over"), Some(1000)),
            until(of_user("lamp", "bob"), None),
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
            let found = bans.find(NOW, client_id, Login::of(user_name), "", address(from));
            assert_eq!(
                found.is_some(),
                is_banned,
                "{client_id} {user_name:?} {from}"
            );
        }
    }

    /// A stranger connects with the identifier of a user's client, at the same listener and at another one.
    #[test]
    fn a_ban_of_a_client_without_a_user_applies_to_no_client_of_a_user_and_to_one_listener() {
        let bans = Bans::new([
            (ban(scoped("lamp", BannedUser::Anonymous, Some("t/"))), None),
            (
                ban(scoped("own", BannedUser::Name("ann".into()), Some("t/"))),
                None,
            ),
        ]);
        for (client_id, login, prefix, is_banned) in [
            ("lamp", Login::Anonymous, "t/", true),
            ("lamp", Login::Unproved, "t/", false),
            ("lamp", Login::User("ann"), "t/", false),
            ("lamp", Login::Anonymous, "", false),
            ("lamp", Login::Anonymous, "u/", false),
            ("other", Login::Anonymous, "t/", false),
            ("own", Login::User("ann"), "t/", true),
            ("own", Login::User("ann"), "u/", false),
            ("own", Login::Unproved, "t/", false),
        ] {
            let found = bans.find(NOW, client_id, login, prefix, address("192.0.2.2"));
            assert_eq!(found.is_some(), is_banned, "{client_id} {login:?} {prefix}");
        }
    }

    #[test]
    fn a_ban_is_among_those_that_less_is_said_of() {
        let one = scoped("lamp", BannedUser::Anonymous, Some("t/"));
        assert!(one.is_among(&one) && one.is_among(&BanSubject::client_id("lamp")));
        assert!(!BanSubject::client_id("lamp").is_among(&one));
        assert!(!one.is_among(&BanSubject::user_name("ann")));
        assert!(!one.is_among(&BanSubject::Address(address("192.0.2.1"))));
    }

    #[test]
    fn a_ban_that_makes_no_sense_is_refused() {
        let of_client = |id: String| ban(BanSubject::client_id(&id)).checked();
        assert_eq!(of_client(String::new()), Err(BanError::Empty));
        assert_eq!(of_client("x".repeat(1025)), Err(BanError::LongSubject));
        assert!(of_client("x".repeat(1024)).is_ok());
        assert_eq!(ban(of_user("lamp", "")).checked(), Err(BanError::Empty));
        let of_nobody = BanSubject::Clients(BannedClients::default());
        assert_eq!(ban(of_nobody).checked(), Err(BanError::Empty));
        let mut long = ban(BanSubject::user_name("ann"));
        long.reason = "x".repeat(1025);
        assert_eq!(long.checked(), Err(BanError::LongReason));
        let mapped = BanSubject::Address(address("::ffff:192.0.2.1")).checked();
        assert_eq!(mapped, Ok(BanSubject::Address(address("192.0.2.1"))));
    }
}
