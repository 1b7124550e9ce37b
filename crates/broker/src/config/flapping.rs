//! The limit for clients that connect too often.

use std::time::Duration;

use super::faults::Faults;
use super::{ConfigError, Settings};

const DEFAULT_WINDOW_S: u64 = 60;
const DEFAULT_BAN_S: u64 = 300;

/// How often a client may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlappingLimit {
    /// Connects allowed within the window.
    pub connects: u32,
    /// Begins with the first of these connects.
    pub window: Duration,
    /// How long a client that exceeds the limit is banned.
    pub ban: Duration,
}

/// `None`: no limit.
pub(super) fn check(settings: &Settings, faults: &mut Faults) -> Option<FlappingLimit> {
    let connects = faults.in_range(
        "flapping_connects",
        settings.flapping_connects,
        0,
        0..=1_000_000,
    );
    if connects == 0 {
        // An invalid number is no limit either; its fault was noted.
        let is_given = settings.flapping_connects.is_some_and(|it| it > 0);
        let has_others = settings.flapping_window_s.is_some() || settings.flapping_ban_s.is_some();
        if has_others && !is_given {
            faults.add(ConfigError::Conflict(
                "flapping_window_s and flapping_ban_s have no effect without flapping_connects",
            ));
        }
        return None;
    }
    let mut seconds = |key, given, default| faults.in_range(key, given, default, 1..=86_400);
    let window_s = seconds(
        "flapping_window_s",
        settings.flapping_window_s,
        DEFAULT_WINDOW_S,
    );
    let ban_s = seconds("flapping_ban_s", settings.flapping_ban_s, DEFAULT_BAN_S);
    Some(FlappingLimit {
        connects,
        window: Duration::from_secs(window_s),
        ban: Duration::from_secs(ban_s),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_or_there_is_none() {
        let of = |connects, window_s, ban_s| {
            let settings = Settings {
                flapping_connects: connects,
                flapping_window_s: window_s,
                flapping_ban_s: ban_s,
                ..Settings::default()
            };
            let mut faults = Faults::default();
            let limit = check(&settings, &mut faults);
            faults.end(limit).map_err(|error| error.to_string())
        };
        assert_eq!(of(None, None, None), Ok(None));
        assert_eq!(of(Some(0), None, None), Ok(None));
        let limit = FlappingLimit {
            connects: 9,
            window: Duration::from_secs(60),
            ban: Duration::from_secs(300),
        };
        assert_eq!(of(Some(9), None, None), Ok(Some(limit)));
        for (found, expected) in [
            (of(None, Some(1), None), "without flapping_connects"),
            (of(Some(0), None, Some(1)), "without flapping_connects"),
            (of(Some(9), Some(0), None), "flapping_window_s = 0"),
            (of(Some(9), None, Some(86_401)), "flapping_ban_s = 86401"),
        ] {
            let error = found.expect_err(expected);
            assert!(error.contains(expected), "`{expected}` in {error}");
        }
    }
}
