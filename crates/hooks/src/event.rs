//! Events as receivers get them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, json};

/// Something that happened on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Counts the events of a run of the node.
    pub number: u64,
    /// Unix time in milliseconds.
    pub time_ms: u64,
    /// Such as `client.connected`.
    pub name: &'static str,
    /// Its facts.
    pub fields: Vec<(&'static str, Value)>,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A number.
    Number(u64),
    /// `true` or `false`.
    Flag(bool),
    /// As text if it is UTF-8, else as base64; the field `..._encoding` says which.
    Bytes(Vec<u8>),
    /// Names and values, which may repeat.
    Pairs(Vec<(String, String)>),
}

/// Size of an event besides its fields.
const OVERHEAD: usize = 128;

impl Event {
    /// Its size in a queue, bytes.
    pub(crate) fn len(&self) -> usize {
        let lens = self
            .fields
            .iter()
            .map(|(key, value)| key.len() + value.len() + 16);
        OVERHEAD + lens.sum::<usize>()
    }

    /// The event as JSON. `run` identifies the run of the node, so that identifiers are unique.
    pub(crate) fn to_json(&self, run: &str) -> serde_json::Value {
        let mut map = Map::new();
        map.insert("id".into(), format!("{run}-{}", self.number).into());
        map.insert("time_ms".into(), self.time_ms.into());
        map.insert("event".into(), self.name.into());
        for (key, value) in &self.fields {
            value.add(key, &mut map);
        }
        serde_json::Value::Object(map)
    }
}

impl Value {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Number(_) | Self::Flag(_) => 8,
            Self::Bytes(bytes) => bytes.len(),
            Self::Pairs(pairs) => pairs
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum(),
        }
    }

    fn add(&self, key: &str, map: &mut Map<String, serde_json::Value>) {
        let value = match self {
            Self::Text(text) => text.as_str().into(),
            Self::Number(number) => (*number).into(),
            Self::Flag(flag) => (*flag).into(),
            Self::Pairs(pairs) => json!(pairs),
            Self::Bytes(bytes) => {
                let text = std::str::from_utf8(bytes);
                let encoding = if text.is_ok() { "utf8" } else { "base64" };
                map.insert(format!("{key}_encoding"), encoding.into());
                text.map_or_else(|_| STANDARD.encode(bytes), str::to_owned)
                    .into()
            }
        };
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_where_they_can_be_and_the_encoding_is_named() {
        let event = |payload: &[u8]| Event {
            number: 7,
            time_ms: 5,
            name: "message.published",
            fields: vec![("payload", Value::Bytes(payload.to_vec()))],
        };
        let text = event("käse".as_bytes()).to_json("r");
        assert_eq!(text["id"], "r-7");
        assert_eq!(
            (&text["payload"], &text["payload_encoding"]),
            (&json!("käse"), &json!("utf8"))
        );
        let bytes = event(&[0xff, 0]).to_json("r");
        assert_eq!(
            (&bytes["payload"], &bytes["payload_encoding"]),
            (&json!("/wA="), &json!("base64"))
        );
    }
}
