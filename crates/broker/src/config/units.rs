//! Sizes and times with units: `64MB`, `1GiB`, `15s`, `2min`. A bare number is in bytes, or in the unit of the key's name.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

const SIZES: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
/// In milliseconds.
const TIMES: [(&str, u64); 7] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

/// What a number with a unit can be: a size or a time.
trait Kind {
    /// The expected form, for error messages.
    const EXPECTED: &'static str;

    /// The number in the unit of the key; `None`: the unit is unknown, or the number does not fit.
    fn value(number: u64, unit: &str) -> Option<u64>;
}

struct Bytes;
struct Seconds;
struct Millis;

impl Kind for Bytes {
    const EXPECTED: &'static str = "a size such as 65536, 64kB, 64MB, 64MiB or 1GiB";

    fn value(number: u64, unit: &str) -> Option<u64> {
        let (_, bytes) = SIZES.iter().find(|it| it.0.eq_ignore_ascii_case(unit))?;
        number.checked_mul(*bytes)
    }
}

impl Kind for Seconds {
    const EXPECTED: &'static str = "a number of seconds, or a time such as 90s, 15min, 2h or 1d";

    fn value(number: u64, unit: &str) -> Option<u64> {
        if unit.is_empty() {
            return Some(number);
        }
        let millis = Millis::value(number, unit)?;
        let is_whole = millis.is_multiple_of(1000);
        is_whole.then(|| Duration::from_millis(millis).as_secs())
    }
}

impl Kind for Millis {
    const EXPECTED: &'static str = "a number of milliseconds, or a time such as 250ms, 3s or 1min";

    fn value(number: u64, unit: &str) -> Option<u64> {
        if unit.is_empty() {
            return Some(number);
        }
        let (_, millis) = TIMES.iter().find(|it| it.0 == unit)?;
        number.checked_mul(*millis)
    }
}

fn parse<K: Kind, T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let problem = || format!("expected {}", K::EXPECTED);
    let text = text.trim();
    let digits = text.len()
        - text
            .trim_start_matches(|it: char| it.is_ascii_digit())
            .len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| problem())?;
    let unit = unit.trim_start();
    let less = || format!("expected less: {text} is more than this key takes");
    let value = match K::value(number, unit) {
        Some(value) => value,
        // The unit is one, the number is not.
        None if K::value(1, unit).is_some() => return Err(less()),
        None => return Err(problem()),
    };
    T::try_from(value).map_err(|_| less())
}

/// Accepts a bare number, or a text with a unit.
struct Value<K, T>(PhantomData<(K, T)>);

impl<K: Kind, T: TryFrom<u64>> Visitor<'_> for Value<K, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(K::EXPECTED)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
        let value = parse::<K, T>(text);
        value
            .map(Some)
            .map_err(|problem| E::custom(format!("{text:?}: {problem}")))
    }
}

macro_rules! readers {
    ($($kind:ident: $of_flag:ident $of_file:ident,)*) => {
        $(
            /// Of a flag or a variable.
            pub(super) fn $of_flag<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
                parse::<$kind, T>(text)
            }

            /// Of a file.
            pub(super) fn $of_file<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
                deserializer: D,
            ) -> Result<Option<T>, D::Error> {
                deserializer.deserialize_any(Value::<$kind, T>(PhantomData))
            }
        )*
    };
}

readers! {
    Bytes: bytes bytes_of_file,
    Seconds: seconds seconds_of_file,
    Millis: millis millis_of_file,
}

/// Parses a time such as `90s`, `15min`, `2h` or `1d`, or a bare number of seconds, as for keys of the configuration.
///
/// # Errors
/// The expected form.
pub fn parse_seconds<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    seconds(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_of_both_kinds() {
        let cases = [
            ("65536", 65_536),
            ("64kB", 64_000),
            ("64KB", 64_000),
            ("64MB", 64_000_000),
            ("64 MiB", 67_108_864),
            ("1GiB", 1 << 30),
            ("2b", 2),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "MB", "1.5MB", "-1", "1XB", "1 M B", "99999999999TiB"] {
            assert!(bytes::<u64>(text).is_err(), "{text}");
        }
        let error = bytes::<u32>("8GiB").expect_err("more than 32 bits");
        assert!(error.contains("expected less: 8GiB"), "{error}");
        let error = bytes::<u64>("99999999999GiB").expect_err("more than 64 bits");
        assert!(error.contains("expected less"), "{error}");
    }

    #[test]
    fn times_are_in_the_unit_of_their_key() {
        let second_cases = [
            ("90", 90),
            ("90s", 90),
            ("15min", 900),
            ("2h", 7200),
            ("3000ms", 3),
        ];
        for (text, expected) in second_cases {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert!(seconds::<u64>("500ms").is_err(), "no whole second");
        for (text, expected) in [("250", 250), ("250ms", 250), ("3s", 3000), ("1min", 60_000)] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        assert!(millis::<u64>("3 weeks").is_err());
    }
}
