//! How long the tokens of the HTTP API are still valid: for the metrics and the check of the configuration.

use thicket_access::ApiUsers;
use thicket_session::time::WallClock;

use crate::clock::wall_ms;
use crate::config::Config;

/// A token with this many days left expires soon.
pub const SOON_DAYS_OF_TOKENS: i64 = 7;

/// A token that expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenDays {
    /// Its name in the file of tokens.
    pub name: String,
    /// Whole days left; less than 0: it has expired.
    pub days: i64,
    /// The same in seconds.
    pub seconds: i64,
}

/// The expiring tokens that a configuration names, by name.
#[must_use]
pub fn token_days(config: &Config) -> Vec<TokenDays> {
    let users = config.access.loaded.http_users.as_ref();
    users.map(days_of).unwrap_or_default()
}

/// The expiring tokens of the HTTP API.
pub(crate) fn days_of(users: &ApiUsers) -> Vec<TokenDays> {
    let now = WallClock::from_unix_millis(wall_ms());
    let left = |(name, expires)| TokenDays::between(name, now, expires);
    users.expiries().into_iter().map(left).collect()
}

impl TokenDays {
    fn between(name: &str, now: WallClock, expires: WallClock) -> Self {
        let millis = |time: WallClock| i64::try_from(time.as_unix_millis()).unwrap_or(i64::MAX);
        let seconds = (millis(expires) - millis(now)).div_euclid(1000);
        Self {
            name: name.to_owned(),
            days: seconds.div_euclid(24 * 3600),
            seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    #[test]
    fn a_token_on_its_last_day_has_0_days_left_and_one_that_expired_less() {
        let at = WallClock::from_unix_millis;
        let now = 30 * DAY_MS as u64;
        for (expires, expected) in [
            (now + 2 * DAY_MS as u64, 2),
            (now + DAY_MS as u64 - 1, 0),
            (now, 0),
            (now - 1, -1),
            (0, -30),
            (u64::MAX, (i64::MAX - 30 * DAY_MS) / DAY_MS),
        ] {
            let left = TokenDays::between("a", at(now), at(expires));
            assert_eq!(left.days, expected, "{expires}");
        }
    }
}
