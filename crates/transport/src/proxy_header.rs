//! The header that a load balancer sends before the bytes of its client (HAProxy's PROXY protocol, versions 1 and 2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first twelve bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The start of version 1.
const WORD: &[u8] = b"PROXY ";
/// Longest line of version 1, including its end (section 2.1).
const LONGEST_LINE: usize = 107;
/// Fixed part of version 2.
const FIXED: usize = 16;
/// Addresses and extensions of version 2 that are skipped; balancers send at most a few hundred bytes.
const LONGEST_REST: usize = 4096;

/// The origin of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxied {
    /// A client behind the balancer.
    Client(SocketAddr),
    /// The balancer itself (a health check), or a client whose address it does not know: the socket's own peer applies.
    Unknown,
}

/// Not a PROXY header; close the connection, no answer is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed PROXY header: {0}")]
pub struct Malformed(pub &'static str);

/// Decodes a header at the start of `bytes` and returns its length; `None`: it is incomplete.
///
/// # Errors
/// The bytes cannot become a header, whatever follows.
pub fn decode(bytes: &[u8]) -> Result<Option<(Proxied, usize)>, Malformed> {
    if could_be(bytes, &SIGNATURE) {
        return decode_v2(bytes);
    }
    if could_be(bytes, WORD) {
        return decode_v1(bytes);
    }
    Err(Malformed("it starts like neither version"))
}

/// Whether `bytes`, as received so far, can be the start of something that starts with `start`.
fn could_be(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(a, b)| a == b)
}

fn decode_v1(bytes: &[u8]) -> Result<Option<(Proxied, usize)>, Malformed> {
    let seen = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return match seen.len() < LONGEST_LINE {
            true => Ok(None),
            false => Err(Malformed("the line is longer than 107 bytes")),
        };
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed("the line is not text"))?;
    Ok(Some((parse_line(line)?, end + 2)))
}

fn parse_line(line: &str) -> Result<Proxied, Malformed> {
    let mut words = line.split(' ');
    let (_, family) = (words.next(), words.next());
    let is_v6 = match family {
        // What follows is to be ignored (section 2.1).
        Some("UNKNOWN") => return Ok(Proxied::Unknown),
        Some("TCP4") => false,
        Some("TCP6") => true,
        _ => return Err(Malformed("expected TCP4, TCP6 or UNKNOWN")),
    };
    let (source, destination) = (words.next(), words.next());
    let (source_port, destination_port) = (words.next(), words.next());
    if words.next().is_some() {
        return Err(Malformed("there are words after the ports"));
    }
    let source = address(source, is_v6)?;
    address(destination, is_v6)?;
    port(destination_port)?;
    Ok(Proxied::Client(SocketAddr::new(source, port(source_port)?)))
}

fn address(word: Option<&str>, is_v6: bool) -> Result<IpAddr, Malformed> {
    let address = word.and_then(|word| word.parse::<IpAddr>().ok());
    address
        .filter(|address| address.is_ipv6() == is_v6)
        .ok_or(Malformed("expected an address of the family named"))
}

fn port(word: Option<&str>) -> Result<u16, Malformed> {
    let word = word.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    word.and_then(|word| word.parse().ok())
        .ok_or(Malformed("expected a port"))
}

fn decode_v2(bytes: &[u8]) -> Result<Option<(Proxied, usize)>, Malformed> {
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else {
        return Ok(None);
    };
    let (version, command) = (fixed[12] >> 4, fixed[12] & 0x0f);
    if version != 2 {
        return Err(Malformed("expected version 2 after the signature"));
    }
    if command > 1 {
        return Err(Malformed("expected the command LOCAL or PROXY"));
    }
    let len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if len > LONGEST_REST {
        return Err(Malformed("it is longer than 4096 bytes"));
    }
    let Some(rest) = rest.get(..len) else {
        return Ok(None);
    };
    let proxied = match command {
        0 => Proxied::Unknown,
        _ => parse_addresses(fixed[13], rest)?,
    };
    Ok(Some((proxied, FIXED + len)))
}

fn parse_addresses(family_and_protocol: u8, bytes: &[u8]) -> Result<Proxied, Malformed> {
    let short = Malformed("it is too short for its addresses");
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    match family_and_protocol {
        // Unspecified, or a Unix socket: no usable address.
        0x00 | 0x31 => Ok(Proxied::Unknown),
        0x11 => {
            let source: [u8; 4] = *bytes.first_chunk().ok_or(short)?;
            let ip = Ipv4Addr::from(source);
            (bytes.len() >= 12)
                .then(|| Proxied::Client(SocketAddr::from((ip, port(8)))))
                .ok_or(short)
        }
        0x21 => {
            let source: [u8; 16] = *bytes.first_chunk().ok_or(short)?;
            let ip = Ipv6Addr::from(source);
            (bytes.len() >= 36)
                .then(|| Proxied::Client(SocketAddr::from((ip, port(32)))))
                .ok_or(short)
        }
        _ => Err(Malformed(
            "expected a stream over IPv4, IPv6 or a Unix socket",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of version 2.
    fn v2(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [&SIGNATURE[..], &[version_and_command, family], &len, rest].concat()
    }

    fn client(text: &str) -> Proxied {
        Proxied::Client(text.parse().expect("an address"))
    }

    fn good() -> Vec<(&'static str, Vec<u8>, Proxied)> {
        let v4 = [192, 0, 2, 7, 192, 0, 2, 1, 0x9c, 0x40, 0x07, 0x5b];
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(
            &"2001:db8::7"
                .parse::<Ipv6Addr>()
                .expect("an address")
                .octets(),
        );
        v6[32..34].copy_from_slice(&40000_u16.to_be_bytes());
        let extended = [&v4[..], &[0x04, 0, 3, 1, 2, 3]].concat();
        vec![
            (
                "v1 IPv4",
                b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n".to_vec(),
                client("192.0.2.7:40000"),
            ),
            (
                "v1 IPv6",
                b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n".to_vec(),
                client("[2001:db8::7]:40000"),
            ),
            (
                "v1 unknown",
                b"PROXY UNKNOWN\r\n".to_vec(),
                Proxied::Unknown,
            ),
            (
                "v1 unknown with more",
                b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(),
                Proxied::Unknown,
            ),
            ("v2 IPv4", v2(0x21, 0x11, &v4), client("192.0.2.7:40000")),
            (
                "v2 IPv6",
                v2(0x21, 0x21, &v6),
                client("[2001:db8::7]:40000"),
            ),
            (
                "v2 with extensions",
                v2(0x21, 0x11, &extended),
                client("192.0.2.7:40000"),
            ),
            ("v2 local", v2(0x20, 0x00, &[]), Proxied::Unknown),
            (
                "v2 local with addresses",
                v2(0x20, 0x11, &v4),
                Proxied::Unknown,
            ),
            (
                "v2 unspecified",
                v2(0x21, 0x00, &[1, 2, 3]),
                Proxied::Unknown,
            ),
            (
                "v2 Unix socket",
                v2(0x21, 0x31, &[0; 216]),
                Proxied::Unknown,
            ),
        ]
    }

    #[test]
    fn a_header_is_read_whole_and_nothing_after_it() {
        for (name, bytes, expected) in good() {
            let followed = [&bytes[..], b"\x10\x0d\x00\x04MQTT"].concat();
            assert_eq!(
                decode(&followed),
                Ok(Some((expected, bytes.len()))),
                "{name}"
            );
        }
    }

    #[test]
    fn a_header_that_comes_byte_by_byte_is_waited_for() {
        for (name, bytes, _) in good() {
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Ok(None), "{name}, {len} bytes");
            }
        }
    }

    #[test]
    fn anything_else_is_malformed_as_soon_as_it_shows() {
        let long = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
        let cases: [(&str, Vec<u8>); 15] = [
            ("an MQTT CONNECT", b"\x10".to_vec()),
            ("another word", b"PROXX".to_vec()),
            ("torn signature", b"\r\n\r\n\0\r\nQUIX".to_vec()),
            ("no end of line", long),
            (
                "another family",
                b"PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n".to_vec(),
            ),
            ("IPv6 in TCP4", b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec()),
            ("no address", b"PROXY TCP4 a b 1 2\r\n".to_vec()),
            ("no ports", b"PROXY TCP4 192.0.2.7 192.0.2.1\r\n".to_vec()),
            (
                "a port above 65535",
                b"PROXY TCP4 192.0.2.7 192.0.2.1 65536 2\r\n".to_vec(),
            ),
            (
                "a signed port",
                b"PROXY TCP4 192.0.2.7 192.0.2.1 +5 2\r\n".to_vec(),
            ),
            (
                "more words",
                b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2 3\r\n".to_vec(),
            ),
            ("version 3", v2(0x31, 0x11, &[0; 12])),
            ("another command", v2(0x22, 0x11, &[0; 12])),
            ("datagrams", v2(0x21, 0x12, &[0; 12])),
            ("too short for IPv6", v2(0x21, 0x21, &[0; 12])),
        ];
        for (name, bytes) in cases {
            assert!(decode(&bytes).is_err(), "{name}");
        }
    }

    #[test]
    fn a_giant_claimed_length_is_refused_before_it_comes() {
        let mut bytes = v2(0x21, 0x11, &[]);
        bytes[14..].copy_from_slice(&0xffff_u16.to_be_bytes());
        assert!(decode(&bytes).is_err());
    }
}
