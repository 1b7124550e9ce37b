//! The datagram by which a node announces itself.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 4 | `THKT` |
//! | 1 | version, 2 |
//! | 8 | node id, big endian |
//! | 8 | incarnation of the node, big endian: rises with every start |
//! | 8 | number of the announcement, big endian: rises from 1 within the incarnation |
//! | 1 + n | length and bytes of the cluster's name, UTF-8 |
//! | 1 + n | length and bytes of HOST:PORT where the node is reached, UTF-8 |
//! | 1 | 0: not signed; 1: signed |
//! | 0 or 32 | HMAC-SHA256 of all before, under the key for announcements of the cluster's secret |
//!
//! With a secret, nodes ignore announcements that are not signed with it, and announcements of a node that are not newer than its last one. So a
//! recorded datagram that is sent again has an effect only where the node was not received since, and it leads to an address of a node, whose link
//! must still authenticate. No clock is needed. A wildcard host (`0.0.0.0`, `[::]`) stands for the address the datagram came from.

use std::net::{IpAddr, SocketAddr};

use thicket_overlay::{Incarnation, NodeId};
use thicket_transport::tls::AnnouncementKey;

const MAGIC: &[u8; 4] = b"THKT";
const VERSION: u8 = 2;
/// The longest possible datagram: a larger one is not ours.
pub(super) const LONGEST: usize = 4 + 1 + 8 + 16 + 2 * (1 + 255) + 1 + AnnouncementKey::SIGNATURE;

/// The content of a node's announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The node.
    pub node: NodeId,
    /// Newer than those before.
    pub fresh: Freshness,
    /// At most 255 bytes, as the configuration ensures.
    pub cluster_name: String,
    /// HOST:PORT, at most 255 bytes.
    pub address: String,
}

/// Rises with every announcement of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Freshness {
    /// Of the node.
    pub incarnation: Incarnation,
    /// Counted from 1 in each incarnation.
    pub number: u64,
}

/// A received datagram: its content and its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard<'a> {
    /// Its content, which anybody may have written unless [`Heard::is_of`] says otherwise.
    pub announcement: Announcement,
    text: &'a [u8],
    signature: Option<&'a [u8]>,
}

impl Heard<'_> {
    /// Whether it is signed with one of the keys; without keys, whether it is not signed.
    #[must_use]
    pub fn is_of(&self, keys: &[AnnouncementKey]) -> bool {
        match self.signature {
            None => keys.is_empty(),
            Some(signature) => keys.iter().any(|key| key.verify(self.text, signature)),
        }
    }
}

/// A datagram that is not an announcement for this node. Nothing was changed; ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    /// Malformed: other software uses the group, or bytes were lost.
    #[error("not an announcement")]
    Malformed,
    /// Refused: another version of this format.
    #[error("version {0}, expected {VERSION}")]
    Version(u8),
}

impl Announcement {
    /// The datagram, signed if there is a key.
    ///
    /// # Panics
    /// If a text is longer than 255 bytes.
    #[must_use]
    pub fn encode(&self, key: Option<&AnnouncementKey>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION);
        for number in [self.node.0, self.fresh.incarnation.0, self.fresh.number] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for text in [&self.cluster_name, &self.address] {
            bytes.push(
                u8::try_from(text.len()).expect("names and addresses have at most 255 bytes"),
            );
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.push(u8::from(key.is_some()));
        if let Some(key) = key {
            let signature = key.sign(&bytes);
            bytes.extend_from_slice(&signature);
        }
        bytes
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`AnnouncementError`].
    pub fn decode(bytes: &[u8]) -> Result<Heard<'_>, AnnouncementError> {
        let malformed = AnnouncementError::Malformed;
        let rest = bytes.strip_prefix(MAGIC).ok_or(malformed)?;
        let (&version, rest) = rest.split_first().ok_or(malformed)?;
        // Before anything else is decoded: another version may order its bytes otherwise.
        if version != VERSION {
            return Err(AnnouncementError::Version(version));
        }
        let (node, rest) = number(rest)?;
        let (incarnation, rest) = number(rest)?;
        let (sequence, rest) = number(rest)?;
        let (cluster_name, rest) = text(rest)?;
        let (address, rest) = text(rest)?;
        let (&is_signed, signature) = rest.split_first().ok_or(malformed)?;
        let signature = match (is_signed, signature.len()) {
            (0, 0) => None,
            (1, AnnouncementKey::SIGNATURE) => Some(signature),
            _ => return Err(malformed),
        };
        if port(address).is_none() || incarnation > Incarnation::MAXIMUM.0 {
            return Err(malformed);
        }
        let length = bytes.len() - signature.map_or(0, <[u8]>::len);
        Ok(Heard {
            announcement: Self {
                node: NodeId(node),
                fresh: Freshness {
                    incarnation: Incarnation(incarnation),
                    number: sequence,
                },
                cluster_name: cluster_name.to_owned(),
                address: address.to_owned(),
            },
            text: &bytes[..length],
            signature,
        })
    }

    /// Where to reach a node whose datagram came from `source`.
    #[must_use]
    pub fn reachable_at(&self, source: IpAddr) -> String {
        match self.address.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_unspecified() => {
                SocketAddr::new(source, address.port()).to_string()
            }
            Ok(_) | Err(_) => self.address.clone(),
        }
    }
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8]), AnnouncementError> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or(AnnouncementError::Malformed)?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn text(bytes: &[u8]) -> Result<(&str, &[u8]), AnnouncementError> {
    let (&length, rest) = bytes.split_first().ok_or(AnnouncementError::Malformed)?;
    let (text, rest) = rest
        .split_at_checked(usize::from(length))
        .ok_or(AnnouncementError::Malformed)?;
    let text = std::str::from_utf8(text).map_err(|_| AnnouncementError::Malformed)?;
    // It is written to logs.
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(AnnouncementError::Malformed);
    }
    Ok((text, rest))
}

fn port(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse()
        .ok()
        .filter(|port| *port != 0 && !host.is_empty())
}

#[cfg(test)]
mod tests {
    use thicket_transport::tls::ClusterKey;

    use super::*;

    fn announcement() -> Announcement {
        Announcement {
            node: NodeId(0x0102_0304_0506_0708),
            fresh: Freshness {
                incarnation: Incarnation(0x1112_1314),
                number: 9,
            },
            cluster_name: "lab".into(),
            address: "10.0.0.1:1883".into(),
        }
    }

    #[test]
    fn an_announcement_is_these_bytes() {
        let expected = b"THKT\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\x11\x12\x13\x14\0\0\0\0\0\0\0\x09\x03lab\x0d10.0.0.1:1883\0";
        assert_eq!(announcement().encode(None), expected);
        let heard = Announcement::decode(expected).expect("ours");
        assert_eq!(heard.announcement, announcement());
    }

    fn key(secret: &str) -> AnnouncementKey {
        let key = ClusterKey::derive(secret.as_bytes()).expect("derived");
        key.announcements().clone()
    }

    #[test]
    fn a_signed_announcement_is_believed_by_those_with_the_secret_and_nobody_may_change_it() {
        let (ours, theirs) = (key("ours"), key("theirs"));
        let plain = announcement().encode(None);
        let signed = announcement().encode(Some(&ours));
        assert!(signed.len() <= LONGEST);
        let is_of = |bytes: &[u8], keys: &[AnnouncementKey]| {
            Announcement::decode(bytes).is_ok_and(|heard| heard.is_of(keys))
        };
        let both = [theirs.clone(), ours.clone()];
        for (name, bytes, keys, expected) in [
            ("signed", &signed, std::slice::from_ref(&ours), true),
            ("signed with the second of two", &signed, &both, true),
            (
                "signed with another",
                &signed,
                std::slice::from_ref(&theirs),
                false,
            ),
            ("not signed", &plain, std::slice::from_ref(&ours), false),
            ("signed where nobody signs", &signed, &[], false),
            ("not signed where nobody signs", &plain, &[], true),
        ] {
            assert_eq!(is_of(bytes, keys), expected, "{name}");
        }
        for at in 0..signed.len() {
            let mut changed = signed.clone();
            changed[at] ^= 1;
            assert!(!is_of(&changed, std::slice::from_ref(&ours)), "byte {at}");
        }
    }

    #[test]
    fn what_is_no_announcement_is_refused() {
        let good = announcement().encode(None);
        for length in 0..good.len() {
            assert!(
                Announcement::decode(&good[..length]).is_err(),
                "the first {length} bytes"
            );
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Announcement::decode(&bytes).map(|_| ())
        };
        let cases = [
            (
                "other software",
                changed(0, b'X'),
                AnnouncementError::Malformed,
            ),
            (
                "another version",
                changed(4, 1),
                AnnouncementError::Version(1),
            ),
            (
                "a name that is not UTF-8",
                changed(30, 0xff),
                AnnouncementError::Malformed,
            ),
            (
                "a name with a line end",
                changed(31, b'\n'),
                AnnouncementError::Malformed,
            ),
            (
                "a name longer than the rest",
                changed(29, 255),
                AnnouncementError::Malformed,
            ),
            (
                "an address without a port",
                changed(good.len() - 6, b'.'),
                AnnouncementError::Malformed,
            ),
            (
                "a signature that is not there",
                changed(good.len() - 1, 1),
                AnnouncementError::Malformed,
            ),
            (
                "an absurd incarnation",
                changed(13, 1),
                AnnouncementError::Malformed,
            ),
        ];
        for (name, result, expected) in cases {
            assert_eq!(result, Err(expected), "{name}");
        }
        let longer = [good.as_slice(), b"x"].concat();
        assert_eq!(
            Announcement::decode(&longer),
            Err(AnnouncementError::Malformed)
        );
    }

    #[test]
    fn a_wildcard_stands_for_the_address_the_datagram_came_from() {
        let source: IpAddr = "192.0.2.7".parse().expect("an address");
        let cases = [
            ("0.0.0.0:1883", "192.0.2.7:1883"),
            ("[::]:1884", "192.0.2.7:1884"),
            ("a.example:1", "a.example:1"),
        ];
        for (address, expected) in cases {
            let found = Announcement {
                address: address.into(),
                ..announcement()
            }
            .reachable_at(source);
            assert_eq!(found, expected, "{address}");
        }
    }
}
