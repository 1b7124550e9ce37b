//! Numbers of a scenario that are checked while the file is read, so that an error shows the line and the key.

use serde::{Deserialize, Serialize};

macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $holds:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize, Serialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// The number.
            #[must_use]
            pub const fn value(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = String;

            fn try_from(value: f64) -> Result<Self, String> {
                let holds: fn(f64) -> bool = $holds;
                if holds(value) {
                    Ok(Self(value))
                } else {
                    Err(format!(concat!("{} is not ", $expected), value))
                }
            }
        }

        impl From<$name> for f64 {
            fn from(number: $name) -> f64 {
                number.0
            }
        }
    };
}

checked!(
    /// A number of 0 or more: a time, a standard deviation.
    NonNegative,
    |value| (0.0..1e9).contains(&value),
    "a number from 0 to 1e9"
);
checked!(
    /// A number above 0: a rate, a count of cores. Its reciprocal is a time that can be waited for.
    Positive,
    |value| (1e-9..1e9).contains(&value),
    "a number above 0, from 1e-9 to 1e9"
);
checked!(
    /// A number of either sign: how far a clock is ahead, or behind.
    Signed,
    |value| (-1e9..=1e9).contains(&value),
    "a number from -1e9 to 1e9"
);
checked!(
    /// A share in percent.
    Percent,
    |value| (0.0..=100.0).contains(&value),
    "a percentage from 0 to 100"
);

impl Default for NonNegative {
    fn default() -> Self {
        Self(0.0)
    }
}

impl Default for Signed {
    fn default() -> Self {
        Self(0.0)
    }
}
