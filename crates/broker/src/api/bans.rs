//! Who may not connect: `/v1/bans`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thicket_node::{Ban, BanError, BanSubject, BannedClients, BannedUser};
use thicket_session::time::WallClock;
use utoipa::ToSchema;

/// A client that may not connect: by its address, or by its identifier, user and listener. All that is there holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ban)]
pub struct BanEntry {
    /// Clients with this identifier.
    #[schema(required)]
    pub client_id: Option<String>,
    /// Clients of this user.
    #[schema(required)]
    pub user_name: Option<String>,
    /// Clients that prove no user name.
    #[serde(default)]
    pub anonymous: bool,
    /// Clients of listeners with this topic prefix; empty: of those without one.
    #[schema(required)]
    #[serde(default)]
    pub topic_prefix: Option<String>,
    /// Clients from this address.
    #[schema(value_type = Option<String>, required)]
    pub address: Option<IpAddr>,
    /// Why they are banned: for operators, clients are not told.
    pub reason: String,
    /// The user of the API who banned it; none: the API has no users.
    #[schema(required)]
    pub by: Option<String>,
    /// Since when, Unix time in milliseconds.
    pub since_ms: u64,
    /// Until when, Unix time in milliseconds; none: until the ban is lifted.
    #[schema(required)]
    pub until_ms: Option<u64>,
}

/// What is to be banned: `POST /v1/bans`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BanRequest {
    /// Clients with this identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Clients of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// Clients that prove no user name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anonymous: bool,
    /// Clients of listeners with this topic prefix; empty: of those without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_prefix: Option<String>,
    /// Clients from this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Why they are banned: for operators, clients are not told.
    #[serde(default)]
    pub reason: String,
    /// How long the ban lasts, in seconds; none: until it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4_294_967_295_u32)]
    pub seconds: Option<u64>,
}

/// Who is meant in a request.
#[derive(Debug, Clone, Default)]
pub struct Whom {
    /// A client identifier.
    pub client_id: Option<String>,
    /// A user.
    pub user_name: Option<String>,
    /// No user.
    pub anonymous: bool,
    /// A listener.
    pub topic_prefix: Option<String>,
    /// An address, alone.
    pub address: Option<IpAddr>,
}

impl Whom {
    /// The subject of a ban.
    ///
    /// # Errors
    /// No field is set, others are set beside an address, or one is empty or too long.
    pub fn subject(self) -> Result<BanSubject, BadBan> {
        let is_bad = |id: &String| BanSubject::client_id(id).checked().is_err();
        let is_bad_name = |name: &String| BanSubject::user_name(name).checked().is_err();
        let field = if self.client_id.as_ref().is_some_and(is_bad) {
            "client_id"
        } else if self.user_name.as_ref().is_some_and(is_bad_name) {
            "user_name"
        } else {
            "topic_prefix"
        };
        let user = match (self.user_name, self.anonymous) {
            (Some(_), true) => return Err(BadBan::Subject),
            (Some(name), false) => Some(BannedUser::Name(name)),
            (None, true) => Some(BannedUser::Anonymous),
            (None, false) => None,
        };
        let clients = BannedClients {
            client_id: self.client_id,
            user,
            topic_prefix: self.topic_prefix,
        };
        let nobody = clients == BannedClients::default();
        let subject = match self.address {
            Some(address) if nobody => BanSubject::Address(address),
            None if !nobody => BanSubject::Clients(clients),
            Some(_) | None => return Err(BadBan::Subject),
        };
        subject
            .checked()
            .map_err(|error| BadBan::Text(field, error))
    }
}

/// Why there can be no such ban.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBan {
    /// None of the fields that name clients is set, or too many.
    #[error(
        "expected one of `client_id`, `user_name`, `topic_prefix` and `address`, or several of the first three; `anonymous` in the place of `user_name`"
    )]
    Subject,
    /// Of no length, or too long for an expiry.
    #[error("seconds: expected 1 to {}", u32::MAX)]
    Seconds,
    /// This field is empty or too long.
    #[error("{0}: {1}")]
    Text(&'static str, #[source] BanError),
}

impl BadBan {
    /// The field that is not valid, if it is a single one.
    pub(crate) const fn field(&self) -> Option<&'static str> {
        match self {
            Self::Subject => None,
            Self::Seconds => Some("seconds"),
            Self::Text(field, _) => Some(field),
        }
    }
}

impl BanRequest {
    /// The ban. `by`: who requests it.
    ///
    /// # Errors
    /// What is not valid.
    pub fn ban(self, now: WallClock, by: Option<String>) -> Result<Ban, BadBan> {
        let until_ms = |seconds: u64| {
            let ms = seconds.checked_mul(1000)?;
            now.as_unix_millis().checked_add(ms)
        };
        let until = match self.seconds {
            None => None,
            // A ban longer than the longest expiry of a retained message would not end by itself.
            Some(seconds) if !(1..=u64::from(u32::MAX)).contains(&seconds) => {
                return Err(BadBan::Seconds);
            }
            Some(seconds) => until_ms(seconds).map(WallClock::from_unix_millis),
        };
        let whom = Whom {
            client_id: self.client_id,
            user_name: self.user_name,
            anonymous: self.anonymous,
            topic_prefix: self.topic_prefix,
            address: self.address,
        };
        let ban = Ban {
            subject: whom.subject()?,
            reason: self.reason,
            by,
            since: now,
            until,
        };
        ban.checked().map_err(|error| BadBan::Text("reason", error))
    }
}

impl From<Ban> for BanEntry {
    fn from(ban: Ban) -> Self {
        let mut entry = Self {
            reason: ban.reason,
            by: ban.by,
            since_ms: ban.since.as_unix_millis(),
            until_ms: ban.until.map(WallClock::as_unix_millis),
            ..Self::default()
        };
        match ban.subject {
            BanSubject::Address(address) => entry.address = Some(address),
            BanSubject::Clients(clients) => {
                entry.client_id = clients.client_id;
                entry.topic_prefix = clients.topic_prefix;
                match clients.user {
                    Some(BannedUser::Name(name)) => entry.user_name = Some(name),
                    Some(BannedUser::Anonymous) => entry.anonymous = true,
                    None => {}
                }
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallClock = WallClock::from_unix_millis(1000);

    #[test]
    fn a_request_becomes_a_ban_and_an_entry() {
        let request = BanRequest {
            address: "::ffff:192.0.2.1".parse().ok(),
            reason: "loud".into(),
            seconds: Some(60),
            ..BanRequest::default()
        };
        let ban = request.ban(NOW, Some("ann".into())).expect("a good one");
        let entry = BanEntry::from(ban);
        assert_eq!(entry.address, "192.0.2.1".parse().ok());
        assert_eq!((entry.client_id, entry.user_name), (None, None));
        assert_eq!((entry.since_ms, entry.until_ms), (1000, Some(61_000)));
        assert_eq!(entry.by.as_deref(), Some("ann"));
    }

    #[test]
    fn a_request_that_makes_no_sense_is_refused_in_words() {
        let of = |id: Option<&str>, name: Option<&str>, seconds| {
            let request = BanRequest {
                client_id: id.map(str::to_owned),
                user_name: name.map(str::to_owned),
                seconds,
                ..BanRequest::default()
            };
            request.ban(NOW, None).map(drop)
        };
        for (found, words) in [
            (of(None, None, None), "expected one of"),
            (of(Some("a"), Some(""), None), "not empty"),
            (of(Some(""), None, None), "not empty"),
            (of(Some("a"), None, Some(0)), "seconds"),
            (of(Some("a"), None, Some(1 << 33)), "seconds"),
        ] {
            let error = found.expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(of(Some("a"), None, Some(u64::from(u32::MAX))), Ok(()));
        assert_eq!(of(Some("a"), Some("b"), None), Ok(()));
        let with_address = Whom {
            client_id: Some("a".into()),
            address: "192.0.2.1".parse().ok(),
            ..Whom::default()
        };
        assert!(with_address.subject().is_err());
        let of_two = Whom {
            user_name: Some("a".into()),
            anonymous: true,
            ..Whom::default()
        };
        assert!(of_two.subject().is_err());
    }
}
