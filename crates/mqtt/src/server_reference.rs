//! The Server Reference of CONNACK and DISCONNECT, whose form the specification leaves open (5.0, 4.11).

/// Servers of a reference that are looked at.
const MOST: usize = 16;

/// One server of a Server Reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerReference<'a> {
    /// Name or address; one of IPv6 without its brackets.
    pub host: &'a str,
    /// `None`: that of the connection on which the reference came, or the usual one.
    pub port: Option<u16>,
}

/// The servers of a Server Reference, in its order: `HOST`, `HOST:PORT`, `[IPv6]:PORT`, or several with spaces between them.
///
/// The first 16 are looked at, and what is no server is left out, so the list may be empty.
#[must_use]
pub fn server_references(text: &str) -> Vec<ServerReference<'_>> {
    text.split(' ')
        .filter(|word| !word.is_empty())
        .take(MOST)
        .filter_map(one)
        .collect()
}

fn one(word: &str) -> Option<ServerReference<'_>> {
    let (host, port) = match word.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':')?),
            };
            (host, port)
        }
        // More than one colon is an address of IPv6, and so without a port.
        None if word.matches(':').count() > 1 => (word, None),
        None => match word.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (word, None),
        },
    };
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|&port| port > 0)?),
        None => None,
    };
    let is_host = |host: &str| {
        !host.is_empty() && !host.contains(|c: char| c == '/' || c == '@' || c.is_control())
    };
    is_host(host).then_some(ServerReference { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let server = |host, port| ServerReference { host, port };
        for (text, expected) in [
            ("b.example:1884", vec![server("b.example", Some(1884))]),
            ("b.example", vec![server("b.example", None)]),
            ("192.0.2.1:1", vec![server("192.0.2.1", Some(1))]),
            ("[fd00::1]:1883", vec![server("fd00::1", Some(1883))]),
            ("[fd00::1]", vec![server("fd00::1", None)]),
            ("fd00::1", vec![server("fd00::1", None)]),
            (
                "a:1  b:2 c",
                vec![
                    server("a", Some(1)),
                    server("b", Some(2)),
                    server("c", None),
                ],
            ),
        ] {
            assert_eq!(server_references(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_server_is_left_out() {
        for text in [
            "",
            " ",
            "a:",
            "a:0",
            "a:65536",
            "a:x",
            ":1",
            "[::1",
            "[::1]x",
            "mqtt://a:1",
            "u@h:1",
            "a\u{7f}",
        ] {
            assert_eq!(server_references(text), [], "{text}");
        }
        assert_eq!(server_references("a:x b:1").len(), 1);
        assert_eq!(server_references(&"a:1 ".repeat(1000)).len(), MOST);
    }
}
