//! What messages are: the law of their payloads, and wills.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thicket_bench::generator::WillMessage;
use thicket_bench::random::Random;
use thicket_mqtt::Qos;

use crate::network::Law;
use crate::units::Positive;

/// Bytes of number and time in a payload.
pub(super) const STAMP: usize = 16;
/// Most bytes of a payload: a packet has up to 268,435,455 bytes after its length (MQTT 5.0,
/// 1.5.5), a topic among them.
pub(super) const MAX_PAYLOAD: usize = 268_000_000;
/// Most bytes of a will (MQTT 5.0, 1.5.6).
const MAX_WILL: usize = 65_535;
/// Distinguishes the order of payloads from other draws.
const ORDER: u64 = 0x0070_6179_6C6F_6164;

/// The law of payloads, with its two parameters.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PayloadLaw {
    /// Which law.
    pub law: Law,
    /// The least payload: uniform, pareto.
    #[serde(default)]
    pub min_bytes: Option<Positive>,
    /// The greatest: uniform.
    #[serde(default)]
    pub max_bytes: Option<Positive>,
    /// The mean: normal, log-normal.
    #[serde(default)]
    pub mean_bytes: Option<Positive>,
    /// The standard deviation: normal, log-normal.
    #[serde(default)]
    pub sd_bytes: Option<Positive>,
    /// The tail index: pareto.
    #[serde(default)]
    pub shape: Option<Positive>,
}

impl PayloadLaw {
    /// Payloads in bytes, 4096 that are equally likely, in an order drawn from the seed; none is
    /// too short for number and time. An error names the key.
    pub fn sizes(&self, seed: u64) -> Result<Arc<[u32]>, String> {
        let keys = match self.law {
            Law::Uniform => ["min_bytes", "max_bytes"],
            Law::Normal | Law::LogNormal => ["mean_bytes", "sd_bytes"],
            Law::Pareto => ["min_bytes", "shape"],
        };
        let given = [
            ("min_bytes", self.min_bytes),
            ("max_bytes", self.max_bytes),
            ("mean_bytes", self.mean_bytes),
            ("sd_bytes", self.sd_bytes),
            ("shape", self.shape),
        ];
        let (name, both) = (self.law.name(), keys.join(" and "));
        if let Some((key, _)) = (given.iter()).find(|(key, it)| it.is_some() && !keys.contains(key))
        {
            return Err(format!(
                "workload.payload.{key}: {name} does not use it, only {both}"
            ));
        }
        let value = |key: &str| {
            let found = given.iter().find(|(own, _)| *own == key);
            found.and_then(|(_, value)| *value).ok_or_else(|| {
                format!("workload.payload.{key}: it is missing, {name} needs {both}")
            })
        };
        let parameters = [value(keys[0])?.value(), value(keys[1])?.value()];
        let law = self.law.with(parameters).map_err(|(key, reason)| {
            format!(
                "workload.payload.{}: {reason}",
                key.replace("_ms", "_bytes")
            )
        })?;
        let size = |bytes: f64| bytes.round().clamp(STAMP as f64, MAX_PAYLOAD as f64) as u32;
        let mut sizes: Vec<u32> = law.quantiles().into_iter().map(size).collect();
        let mut random = Random::new(seed ^ ORDER);
        for at in (1..sizes.len()).rev() {
            sizes.swap(at, random.below(at + 1));
        }
        Ok(sizes.into())
    }

    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        let of = |value: Option<Positive>| value.map_or(0.0, Positive::value);
        match self.law {
            Law::Uniform => format!("{} to {} bytes", of(self.min_bytes), of(self.max_bytes)),
            Law::Normal | Law::LogNormal => format!(
                "{} bytes on average ({}, standard deviation {})",
                of(self.mean_bytes),
                self.law.name(),
                of(self.sd_bytes)
            ),
            Law::Pareto => format!(
                "from {} bytes on (Pareto, shape {})",
                of(self.min_bytes),
                of(self.shape)
            ),
        }
    }
}

/// The will of every client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Will {
    /// Its topic, to which nobody subscribes.
    #[serde(default = "will_topic")]
    pub topic: String,
    /// Its payload.
    pub payload_bytes: usize,
    /// Its quality of service.
    #[serde(default)]
    pub qos: u8,
    /// Whether it is retained.
    #[serde(default)]
    pub retain: bool,
}

fn will_topic() -> String {
    "will".to_owned()
}

impl Will {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.qos > 2 {
            return Err(format!("workload.will.qos: {} is not 0, 1 or 2", self.qos));
        }
        if self.payload_bytes > MAX_WILL {
            return Err(format!(
                "workload.will.payload_bytes: {} is above {MAX_WILL}",
                self.payload_bytes
            ));
        }
        if self.topic.is_empty() || self.topic.contains(['+', '#', '\0']) {
            return Err(format!("workload.will.topic: {:?} is no topic", self.topic));
        }
        Ok(())
    }

    /// The will in the terms of the load generator.
    #[must_use]
    pub fn message(&self) -> WillMessage {
        WillMessage {
            topic: self.topic.clone(),
            payload_len: self.payload_bytes,
            qos: Qos::from_bits(self.qos).unwrap_or_default(),
            retain: self.retain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(text: &str) -> PayloadLaw {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn payloads_follow_their_law_and_carry_number_and_time() {
        let mean = |text: &str| {
            let sizes = law(text).sizes(1).unwrap();
            assert_eq!(sizes.len(), 4096);
            assert!(sizes.iter().all(|size| *size >= 16));
            sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / 4096.0
        };
        for (text, expected) in [
            ("law = \"uniform\"\nmin_bytes = 100\nmax_bytes = 300", 200.0),
            ("law = \"normal\"\nmean_bytes = 500\nsd_bytes = 50", 500.0),
            ("law = \"pareto\"\nmin_bytes = 100\nshape = 3", 150.0),
        ] {
            let mean = mean(text);
            assert!((mean / expected - 1.0).abs() < 0.01, "{text}: {mean}");
        }
        let one = law("law = \"log-normal\"\nmean_bytes = 200\nsd_bytes = 300");
        assert_eq!(one.sizes(1), one.sizes(1));
        assert_ne!(one.sizes(1), one.sizes(2), "the order is drawn");
    }

    #[test]
    fn a_law_without_its_parameters_is_refused() {
        for (text, words) in [
            (
                "law = \"uniform\"\nmin_bytes = 9",
                "max_bytes: it is missing",
            ),
            (
                "law = \"uniform\"\nmin_bytes = 9\nmax_bytes = 8",
                "payload.max_bytes: 8 is not above",
            ),
            (
                "law = \"pareto\"\nmin_bytes = 9\nshape = 2\nsd_bytes = 1",
                "sd_bytes: pareto does not use it",
            ),
        ] {
            let error = law(text).sizes(1).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
