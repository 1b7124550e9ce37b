//! Who is at the other end of a link: what both ends say of themselves in CONNECT, AUTH and CONNACK, and how they prove that
//! they know the cluster's secret.
//!
//! With a secret the dialler names the authentication method [`METHOD`]; the acceptor answers with AUTH: its own hello and
//! HMAC-SHA256 over both hellos with the label of its role; the dialler answers with AUTH and the HMAC of its role; CONNACK
//! ends it. Each hello holds a fresh nonce, so a proof is good for one link and one role only. The proof says who opened the
//! link; it does not encrypt what follows.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thicket_mqtt::UserProperties;

use crate::identity::{Incarnation, NodeId};
use crate::wire::put_bytes;
use crate::wire_version::{WireRange, WireVersion};

/// Authentication method of links with a secret.
pub(crate) const METHOD: &str = "thicket-1";

/// Client ids of nodes start with this; no client may use it.
pub(crate) const CLIENT_ID_PREFIX: &str = "$thicket/";

/// The property with the newest wire version; a node of one version has none.
const NEWEST_WIRE: &str = "newest-wire";

/// Longest name or address taken from another node, in bytes.
const MAXIMUM_TEXT: usize = 1024;

/// What a node says of itself when a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) wire: WireRange,
    pub(crate) cluster: String,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Random for each start of the program: tells a restarted node from a second one with the same identity.
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
        let mut properties = self.to_first_properties().to_vec();
        // The node that speaks one version only says no more than it ever did.
        if self.wire.is_wide() {
            properties.push((NEWEST_WIRE, self.wire.newest.to_string()));
        }
        properties
    }

    /// Those of the first released version, which all nodes sign.
    fn to_first_properties(&self) -> [(&'static str, String); 8] {
        [
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
        ]
    }

    /// Reads user properties; unknown ones are passed over.
    pub(crate) fn from_properties(properties: &UserProperties<'_>) -> Result<Self, HelloError> {
        let nonce = text(properties, "nonce")?;
        let (high, low) = nonce.split_at_checked(16).unwrap_or((nonce, ""));
        Ok(Self {
            wire: wire_range(properties)?,
            cluster: text(properties, "cluster")?.to_owned(),
            node: NodeId(hexadecimal("node", text(properties, "node")?)?),
            incarnation: Incarnation(decimal(properties, "incarnation")?),
            process: hexadecimal("process", text(properties, "process")?)?,
            name: text(properties, "name")?.to_owned(),
            address: text(properties, "address")?.to_owned(),
            nonce: [hexadecimal("nonce", high)?, hexadecimal("nonce", low)?],
        })
    }

    fn sign(&self, signs_range: bool, out: &mut Vec<u8>) {
        for (name, value) in self.to_first_properties() {
            put_bytes(out, name.as_bytes());
            put_bytes(out, value.as_bytes());
        }
        if signs_range {
            put_bytes(out, NEWEST_WIRE.as_bytes());
            put_bytes(out, self.wire.newest.to_string().as_bytes());
        }
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

fn hexadecimal(field: &'static str, value: &str) -> Result<u64, HelloError> {
    match u64::from_str_radix(value, 16) {
        Ok(number) if value.len() == 16 => Ok(number),
        Ok(_) | Err(_) => Err(HelloError::Invalid {
            field,
            value: value.to_owned(),
        }),
    }
}

/// What a refused node is told it is known as, so that it can start above.
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
            incarnation: Incarnation(decimal(properties, "known-incarnation").ok()?),
            process: hexadecimal("known-process", text(properties, "known-process").ok()?).ok()?,
        })
    }
}

/// What a refused process is told of the one that has its identity; none of it is known to nodes of version 3, who pass it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// HOST:PORT.
    pub(crate) address: String,
    /// It is the one that refuses; else it is one that the refusing node sees.
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
            incarnation: decimal(properties, "holder-incarnation")
                .ok()
                .map(Incarnation),
        })
    }
}

/// Which end of a link proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Acceptor,
}

/// The proof of `role` for the link with these two hellos.
pub(crate) fn prove(secret: &[u8], role: Role, dialler: &Hello, acceptor: &Hello) -> Vec<u8> {
    transcript(secret, role, dialler, acceptor)
        .finalize()
        .into_bytes()
        .to_vec()
}

/// Whether `proof` is the proof of `role`; takes the same time wherever it differs.
pub(crate) fn verify(
    secret: &[u8],
    role: Role,
    dialler: &Hello,
    acceptor: &Hello,
    proof: &[u8],
) -> bool {
    transcript(secret, role, dialler, acceptor)
        .verify_slice(proof)
        .is_ok()
}

fn transcript(secret: &[u8], role: Role, dialler: &Hello, acceptor: &Hello) -> Hmac<Sha256> {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(secret).expect("HMAC takes keys of any length");
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, METHOD.as_bytes());
    put_bytes(
        &mut bytes,
        match role {
            Role::Dialler => b"dialler",
            Role::Acceptor => b"acceptor",
        },
    );
    // A node of version 3 does not know of ranges. Who takes them out of both hellos on the way gets a link of version 3, no more.
    let knows_ranges = |hello: &Hello| hello.wire.newest > WireVersion::V3.number();
    let signs_ranges = knows_ranges(dialler) && knows_ranges(acceptor);
    dialler.sign(signs_ranges, &mut bytes);
    acceptor.sign(signs_ranges, &mut bytes);
    mac.update(&bytes);
    mac
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
                let only_3 = WireRange::up_to(WireVersion::V3);
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
    fn a_proof_is_good_for_one_secret_one_role_and_one_pair_of_hellos() {
        let (dialler, acceptor) = (hello(1), hello(2));
        let proof = prove(b"secret", Role::Dialler, &dialler, &acceptor);
        assert!(verify(
            b"secret",
            Role::Dialler,
            &dialler,
            &acceptor,
            &proof
        ));
        let other_nonce = Hello {
            nonce: [0, 0],
            ..acceptor.clone()
        };
        let other_range = Hello {
            wire: WireRange {
                oldest: 3,
                newest: 5,
            },
            ..acceptor.clone()
        };
        let cases = [
            (
                "another range of versions",
                verify(b"secret", Role::Dialler, &dialler, &other_range, &proof),
            ),
            (
                "another secret",
                verify(b"Secret", Role::Dialler, &dialler, &acceptor, &proof),
            ),
            (
                "the other role",
                verify(b"secret", Role::Acceptor, &dialler, &acceptor, &proof),
            ),
            (
                "turned round",
                verify(b"secret", Role::Dialler, &acceptor, &dialler, &proof),
            ),
            (
                "another nonce",
                verify(b"secret", Role::Dialler, &dialler, &other_nonce, &proof),
            ),
            (
                "cut short",
                verify(b"secret", Role::Dialler, &dialler, &acceptor, &proof[..31]),
            ),
            (
                "empty",
                verify(b"secret", Role::Dialler, &dialler, &acceptor, &[]),
            ),
        ];
        for (name, verified) in cases {
            assert!(!verified, "{name}");
        }
    }

    #[test]
    fn what_is_said_and_signed_to_a_node_of_version_3_is_what_it_expects() {
        let only_3 = Hello {
            wire: WireRange::up_to(WireVersion::V3),
            ..hello(2)
        };
        let names: Vec<_> = only_3.to_properties().iter().map(|it| it.0).collect();
        let of_version_3 = [
            "wire",
            "cluster",
            "node",
            "incarnation",
            "process",
            "name",
            "address",
            "nonce",
        ];
        assert_eq!(names, of_version_3);
        // It passes over what it does not know, so it sees both as hellos of its own version.
        let as_it_sees_us = Hello {
            wire: WireRange::up_to(WireVersion::V3),
            ..hello(1)
        };
        assert_eq!(hello(1).to_properties()[..8], as_it_sees_us.to_properties());
        let its_proof = prove(b"secret", Role::Acceptor, &as_it_sees_us, &only_3);
        assert!(verify(
            b"secret",
            Role::Acceptor,
            &hello(1),
            &only_3,
            &its_proof
        ));
    }
}
