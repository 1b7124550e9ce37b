//! A share of all: a ratio from 0 to 1.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A ratio from 0 to 1, as a fraction of 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleRatio(pub(super) u64);

const RATIO: &str = "a ratio from 0 to 1, such as 0.001";

impl SampleRatio {
    fn new(ratio: f64) -> Option<Self> {
        // A value that exceeds 64 bits becomes the largest number.
        let part = ratio * 2_f64.powi(64);
        (0.0..=1.0).contains(&ratio).then_some(Self(part as u64))
    }
}

impl FromStr for SampleRatio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ratio = text.parse().ok().and_then(Self::new);
        ratio.ok_or_else(|| format!("expected {RATIO}"))
    }
}

impl<'de> Deserialize<'de> for SampleRatio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = SampleRatio;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(RATIO)
            }

            fn visit_f64<E: Error>(self, ratio: f64) -> Result<SampleRatio, E> {
                SampleRatio::new(ratio)
                    .ok_or_else(|| E::custom(format!("{ratio}: expected {RATIO}")))
            }

            fn visit_i64<E: Error>(self, ratio: i64) -> Result<SampleRatio, E> {
                self.visit_f64(ratio as f64)
            }
        }

        deserializer.deserialize_any(Number)
    }
}
