//! The datagram by which a node says that it is there.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 4 | `THKT` |
//! | 1 | version, 1 |
//! | 8 | node id, big endian |
//! | 1 + n | length and bytes of the cluster's name, UTF-8 |
//! | 1 + n | length and bytes of HOST:PORT where the node is reached, UTF-8 |
//!
//! It holds no secret and proves nothing: whoever is found by it still has to say a good hello on a link. A host that is a wildcard
//! (`0.0.0.0`, `[::]`) stands for the address the datagram came from.

use std::net::{IpAddr, SocketAddr};

use thicket_overlay::NodeId;

const MAGIC: &[u8; 4] = b"THKT";
const VERSION: u8 = 1;
/// The longest datagram there can be: one larger is not ours.
pub(super) const LONGEST: usize = 4 + 1 + 8 + 2 * (1 + 255);

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) node: NodeId,
    /// At most 255 bytes, as the configuration ensures.
    pub(super) cluster_name: String,
    /// HOST:PORT, at most 255 bytes.
    pub(super) address: String,
}

/// A datagram that is no announcement for us. Nothing was changed; ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnnouncementError {
    /// Malformed: other software uses the group, or bytes were lost.
    #[error("not an announcement")]
    Malformed,
    /// Refused: another version of this format.
    #[error("version {0}, expected {VERSION}")]
    Version(u8),
}

impl Announcement {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.node.0.to_be_bytes());
        for text in [&self.cluster_name, &self.address] {
            bytes.push(
                u8::try_from(text.len()).expect("names and addresses have at most 255 bytes"),
            );
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, AnnouncementError> {
        let malformed = AnnouncementError::Malformed;
        let rest = bytes.strip_prefix(MAGIC).ok_or(malformed)?;
        let (&version, rest) = rest.split_first().ok_or(malformed)?;
        // Before anything else of the datagram is believed: another version may order its bytes otherwise.
        if version != VERSION {
            return Err(AnnouncementError::Version(version));
        }
        let (node, rest) = rest.split_first_chunk().ok_or(malformed)?;
        let (cluster_name, rest) = text(rest)?;
        let (address, rest) = text(rest)?;
        if !rest.is_empty() || port(address).is_none() {
            return Err(malformed);
        }
        Ok(Self {
            node: NodeId(u64::from_be_bytes(*node)),
            cluster_name: cluster_name.to_owned(),
            address: address.to_owned(),
        })
    }

    /// Where to reach a node whose datagram came from `source`.
    pub(super) fn reachable_at(&self, source: IpAddr) -> String {
        match self.address.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_unspecified() => {
                SocketAddr::new(source, address.port()).to_string()
            }
            Ok(_) | Err(_) => self.address.clone(),
        }
    }
}

fn text(bytes: &[u8]) -> Result<(&str, &[u8]), AnnouncementError> {
    let (&length, rest) = bytes.split_first().ok_or(AnnouncementError::Malformed)?;
    let (text, rest) = rest
        .split_at_checked(usize::from(length))
        .ok_or(AnnouncementError::Malformed)?;
    let text = std::str::from_utf8(text).map_err(|_| AnnouncementError::Malformed)?;
    // It goes into logs.
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
    use super::*;

    fn announcement() -> Announcement {
        Announcement {
            node: NodeId(0x0102_0304_0506_0708),
            cluster_name: "lab".into(),
            address: "10.0.0.1:1883".into(),
        }
    }

    #[test]
    fn an_announcement_is_these_bytes() {
        let expected = b"THKT\x01\x01\x02\x03\x04\x05\x06\x07\x08\x03lab\x0d10.0.0.1:1883";
        assert_eq!(announcement().encode(), expected);
        assert_eq!(Announcement::decode(expected), Ok(announcement()));
    }

    #[test]
    fn what_is_no_announcement_is_refused() {
        let good = announcement().encode();
        for length in 0..good.len() {
            assert!(
                Announcement::decode(&good[..length]).is_err(),
                "the first {length} bytes"
            );
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Announcement::decode(&bytes)
        };
        let cases = [
            (
                "other software",
                changed(0, b'X'),
                AnnouncementError::Malformed,
            ),
            (
                "another version",
                changed(4, 2),
                AnnouncementError::Version(2),
            ),
            (
                "a name that is not UTF-8",
                changed(14, 0xff),
                AnnouncementError::Malformed,
            ),
            (
                "a name with a line end",
                changed(15, b'\n'),
                AnnouncementError::Malformed,
            ),
            (
                "a name longer than the rest",
                changed(13, 255),
                AnnouncementError::Malformed,
            ),
            (
                "an address without a port",
                changed(good.len() - 5, b'.'),
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
