//! Who may not connect: `/v1/bans`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thicket_node::{Ban, BanError, BanSubject};
use thicket_session::time::WallClock;
use utoipa::ToSchema;

/// A client that may not connect. One of `client_id`, `user_name` and `address` is there, or both of the first two: then both hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ban)]
pub struct BanEntry {
    /// Clients with this identifier.
    #[schema(required)]
    pub client_id: Option<String>,
    /// Clients of this user.
    #[schema(required)]
    pub user_name: Option<String>,
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

/// The subject from the one field that is set, or from the first two together.
///
/// # Errors
/// No field is set, or others are set beside an address.
pub fn subject_of(
    client_id: Option<String>,
    user_name: Option<String>,
    address: Option<IpAddr>,
) -> Result<BanSubject, BadBan> {
    let is_bad = |id: &String| BanSubject::ClientId(id.clone()).checked().is_err();
    let field = match client_id.as_ref().is_some_and(is_bad) {
        true => "client_id",
        false => "user_name",
    };
    let subject = match (client_id, user_name, address) {
        (Some(id), None, None) => BanSubject::ClientId(id),
        (None, Some(name), None) => BanSubject::UserName(name),
        (Some(client_id), Some(user_name), None) => BanSubject::ClientOfUser {
            client_id,
            user_name,
        },
        (None, None, Some(address)) => BanSubject::Address(address),
        _ => return Err(BadBan::Subject),
    };
    subject
        .checked()
        .map_err(|error| BadBan::Text(field, error))
}

/// Why there can be no such ban.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBan {
    /// None of the fields that name clients is set, or too many.
    #[error("expected one of `client_id`, `user_name` and `address`, or the first two")]
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
        let ban = Ban {
            subject: subject_of(self.client_id, self.user_name, self.address)?,
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
            BanSubject::ClientId(id) => entry.client_id = Some(id),
            BanSubject::UserName(name) => entry.user_name = Some(name),
            BanSubject::ClientOfUser {
                client_id,
                user_name,
            } => (entry.client_id, entry.user_name) = (Some(client_id), Some(user_name)),
            BanSubject::Address(address) => entry.address = Some(address),
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
        let with_address = subject_of(Some("a".into()), None, "192.0.2.1".parse().ok());
        assert!(with_address.is_err());
    }
}
