//! How the ends of a link identify themselves in CONNECT and CONNACK.
//!
//! This proves nothing. Where links must be proved, the shell has done that before the first byte: the other end has shown that it belongs to the
//! cluster, and nobody in between can change what it sends.

use thicket_mqtt::UserProperties;

use crate::identity::{Incarnation, NodeId};
use crate::wire_version::WireRange;

/// Client ids of nodes start with this; no client may use it.
pub(crate) const CLIENT_ID_PREFIX: &str = "$thicket/";

/// The property with the newest wire version; a node of one version has none.
const NEWEST_WIRE: &str = "newest-wire";

/// Longest name or address accepted from another node, in bytes.
const MAXIMUM_TEXT: usize = 1024;

/// What a node sends about itself when a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) wire: WireRange,
    pub(crate) cluster: String,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Random for each start of the program: distinguishes a restarted node from a second one with the same identity.
    pub(crate) process: u64,
    pub(crate) name: String,
    pub(crate) address: String,
    /// Fresh for each link.
    pub(crate) nonce: [u64; 2],
}

/// Why a hello cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    #[error("user property {field} is missing")]
    Missing { field: &'static str },
    #[error("user property {field} cannot be {value:?}")]
    Invalid { field: &'static str, value: String },
}

impl Hello {
    /// The client identifier of a CONNECT.
    pub(crate) fn client_id(&self) -> String {
        format!("{CLIENT_ID_PREFIX}{}", self.node)
    }

    /// As user properties: names and values.
    pub(crate) fn to_properties(&self) -> Vec<(&'static str, String)> {
        let mut properties = vec![
            ("wire", self.wire.oldest.to_string()),
            ("cluster", self.cluster.clone()),
            ("node", self.node.to_string()),
            ("incarnation", self.incarnation.0.to_string()),
            ("process", format!("{:016x}", self.process)),
            ("name", self.name.clone()),
            ("address", self.address.clone()),
            (
                "nonce",
                format!("{:016x}{:016x}", self.nonce[0], self.nonce[1]),
            ),
        ];
        // A node with a single wire version sends the same properties as ever.
        if self.wire.is_wide() {
            properties.push((NEWEST_WIRE, self.wire.newest.to_string()));
        }
        properties
    }

    /// Reads user properties; unknown ones are ignored.
    pub(crate) fn from_properties(properties: &UserProperties<'_>) -> Result<Self, HelloError> {
        let nonce = text(properties, "nonce")?;
        let (high, low) = nonce.split_at_checked(16).unwrap_or((nonce, ""));
        Ok(Self {
            wire: wire_range(properties)?,
            cluster: text(properties, "cluster")?.to_owned(),
            node: NodeId(hexadecimal("node", text(properties, "node")?)?),
            incarnation: incarnation(properties, "incarnation")?,
            process: hexadecimal("process", text(properties, "process")?)?,
            name: text(properties, "name")?.to_owned(),
            address: text(properties, "address")?.to_owned(),
            nonce: [hexadecimal("nonce", high)?, hexadecimal("nonce", low)?],
        })
    }
}

fn wire_range(properties: &UserProperties<'_>) -> Result<WireRange, HelloError> {
    let oldest = decimal::<u16>(properties, "wire")?;
    let newest = match decimal(properties, NEWEST_WIRE) {
        Err(HelloError::Missing { .. }) => oldest,
        newest => newest?,
    };
    if newest < oldest {
        return Err(HelloError::Invalid {
            field: NEWEST_WIRE,
            value: newest.to_string(),
        });
    }
    Ok(WireRange { oldest, newest })
}

fn text<'a>(properties: &UserProperties<'a>, field: &'static str) -> Result<&'a str, HelloError> {
    let (_, value) = properties
        .iter()
        .find(|(name, _)| *name == field)
        .ok_or(HelloError::Missing { field })?;
    if value.len() > MAXIMUM_TEXT {
        return Err(HelloError::Invalid {
            field,
            value: format!("{} bytes", value.len()),
        });
    }
    Ok(value)
}

fn decimal<T: std::str::FromStr>(
    properties: &UserProperties<'_>,
    field: &'static str,
) -> Result<T, HelloError> {
    let value = text(properties, field)?;
    value.parse().map_err(|_| HelloError::Invalid {
        field,
        value: value.to_owned(),
    })
}

/// Refuses an absurd incarnation: a node that accepted it could never rise above it.
fn incarnation(
    properties: &UserProperties<'_>,
    field: &'static str,
) -> Result<Incarnation, HelloError> {
    let found = Incarnation(decimal(properties, field)?);
    if found > Incarnation::MAXIMUM {
        return Err(HelloError::Invalid {
            field,
            value: found.0.to_string(),
        });
    }
    Ok(found)
}

fn hexadecimal(field: &'static str, value: &str) -> Result<u64, HelloError> {
    match u64::from_str_radix(value, 16) {
        Ok(number) if value.len() == 16 => Ok(number),
        Ok(_) | Err(_) => Err(HelloError::Invalid {
            field,
            value: value.to_owned(),
        }),
    }
}

/// Sent to a refused node: the incarnation and process in the record of its identity, so that it can start above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownAs {
    pub(crate) incarnation: Incarnation,
    pub(crate) process: u64,
}

impl KnownAs {
    pub(crate) fn to_properties(self) -> [(&'static str, String); 2] {
        [
            ("known-incarnation", self.incarnation.0.to_string()),
            ("known-process", format!("{:016x}", self.process)),
        ]
    }

    pub(crate) fn from_properties(properties: &UserProperties<'_>) -> Option<Self> {
        Some(Self {
            incarnation: incarnation(properties, "known-incarnation").ok()?,
            process: hexadecimal("known-process", text(properties, "known-process").ok()?).ok()?,
        })
    }
}

/// Sent to a refused process: the one that has its identity. Nodes of version 3 ignore these properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// HOST:PORT.
    pub(crate) address: String,
    /// Set if the holder is the process that refuses; otherwise the refusing node has the holder as up.
    pub(crate) incarnation: Option<Incarnation>,
}

impl Holder {
    pub(crate) fn to_properties(&self) -> Vec<(&'static str, String)> {
        let mut properties = vec![("holder", self.address.clone())];
        let incarnation = self.incarnation.map(|it| it.0.to_string());
        properties.extend(incarnation.map(|it| ("holder-incarnation", it)));
        properties
    }

    pub(crate) fn from_properties(properties: &UserProperties<'_>) -> Option<Self> {
        Some(Self {
            address: text(properties, "holder").ok()?.to_owned(),
            incarnation: incarnation(properties, "holder-incarnation").ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node: u64) -> Hello {
        Hello {
            wire: WireRange {
                oldest: 3,
                newest: 4,
            },
            cluster: "reef".into(),
            node: NodeId(node),
            incarnation: Incarnation(3),
            process: 4,
            name: "north".into(),
            address: "127.0.0.1:1883".into(),
            nonce: [node, 6],
        }
    }

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        let written = hello(5);
        let properties = written.to_properties();
        let borrowed: UserProperties<'_> = properties
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        assert_eq!(Hello::from_properties(&borrowed), Ok(written));
        for (missing, (missing_field, _)) in properties.iter().enumerate() {
            let mut fewer = borrowed.clone();
            let (field, _) = fewer.remove(missing);
            if field == NEWEST_WIRE {
                let wire = Hello::from_properties(&fewer).map(|hello| hello.wire);
                let only_3 = WireRange {
                    oldest: 3,
                    newest: 3,
                };
                assert_eq!(wire, Ok(only_3), "one version");
                for value in ["2", "x"] {
                    fewer.push((field, value));
                    let is_invalid = Hello::from_properties(&fewer).is_err();
                    assert!(is_invalid, "{value}");
                    fewer.pop();
                }
                continue;
            }
            assert_eq!(
                Hello::from_properties(&fewer).err(),
                Some(HelloError::Missing {
                    field: missing_field
                }),
                "{field}"
            );
            fewer.push((field, "not a number \u{e9}"));
            let is_text = matches!(field, "cluster" | "name" | "address");
            assert_eq!(Hello::from_properties(&fewer).is_ok(), is_text, "{field}");
        }
    }

    #[test]
    fn an_absurd_incarnation_is_refused_wherever_it_stands() {
        let highest = Incarnation::MAXIMUM.0;
        for (value, is_read) in [(highest, true), (highest + 1, false), (u64::MAX, false)] {
            let value = value.to_string();
            let written = hello(5).to_properties();
            let as_said = |(name, own): &(&'static str, String)| {
                let is_it = *name == "incarnation";
                (*name, if is_it { value.clone() } else { own.clone() })
            };
            let mut said: Vec<_> = written.iter().map(as_said).collect();
            for field in ["known-incarnation", "holder-incarnation"] {
                said.push((field, value.clone()));
            }
            said.push(("known-process", "00000000000000ff".to_owned()));
            said.push(("holder", "there:1".to_owned()));
            let said: UserProperties<'_> =
                said.iter().map(|(name, value)| (*name, &**value)).collect();
            assert_eq!(Hello::from_properties(&said).is_ok(), is_read, "{value}");
            assert_eq!(
                KnownAs::from_properties(&said).is_some(),
                is_read,
                "{value}"
            );
            let holder = Holder::from_properties(&said).expect("an address");
            assert_eq!(holder.incarnation.is_some(), is_read, "{value}");
        }
    }
}
