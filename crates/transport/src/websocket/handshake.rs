//! The opening handshake (RFC 6455, section 4), both sides.

use base64ct::{Base64, Encoding};
use sha1::{Digest, Sha1};

/// Longest request or answer, in bytes; a longer one is refused.
pub const LONGEST_HANDSHAKE: usize = 8 * 1024;
/// Headers read; a browser sends about twenty.
const MOST_HEADERS: usize = 64;
/// Appended to a key before it is hashed (section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The subprotocols of MQTT: that of the standard, and that of 3.1 clients.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// A valid request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Bytes of the request; frames follow.
    pub len: usize,
    key: String,
    /// As the client wrote it.
    subprotocol: String,
}

/// A handshake that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Malformed: not HTTP, or too long.
    #[error("not a request of HTTP: {0}")]
    Malformed(String),
    /// Refused: an HTTP request for something else.
    #[error("{0}")]
    Refused(&'static str),
    /// Refused: nothing is served at this path.
    #[error("there is nothing at this path")]
    NotFound,
    /// Refused: another version of WebSocket than 13.
    #[error("expected Sec-WebSocket-Version: 13")]
    Version,
    /// The server did not agree.
    #[error("the server answers {0}")]
    Status(String),
}

impl HandshakeError {
    /// A server's answer before it closes.
    #[must_use]
    pub fn response(&self) -> Vec<u8> {
        let (status, more) = match self {
            Self::Malformed(_) | Self::Refused(_) | Self::Status(_) => ("400 Bad Request", ""),
            Self::NotFound => ("404 Not Found", ""),
            Self::Version => ("426 Upgrade Required", "Sec-WebSocket-Version: 13\r\n"),
        };
        let body = format!("{self}\n");
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n",
            body.len()
        );
        (head + &body).into_bytes()
    }
}

/// Decodes a client's request for `path`; `None`: it is incomplete.
///
/// # Errors
/// It is not a request for a WebSocket that carries MQTT at that path; [`HandshakeError::response`] is the answer.
pub fn decode_request(bytes: &[u8], path: &str) -> Result<Option<Request>, HandshakeError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let seen = &bytes[..bytes.len().min(LONGEST_HANDSHAKE)];
    let status = request
        .parse(seen)
        .map_err(|error| HandshakeError::Malformed(error.to_string()))?;
    let httparse::Status::Complete(len) = status else {
        return not_whole(seen).map(|()| None);
    };
    if request.method != Some("GET") || request.version != Some(1) {
        return Err(HandshakeError::Refused("expected GET of HTTP/1.1"));
    }
    if path_of(request.path.unwrap_or_default()) != path {
        return Err(HandshakeError::NotFound);
    }
    let headers = Headers(request.headers);
    if !headers.lists("upgrade", "websocket") || !headers.lists("connection", "upgrade") {
        return Err(HandshakeError::Refused("expected an upgrade to WebSocket"));
    }
    if headers.value("sec-websocket-version") != Some("13") {
        return Err(HandshakeError::Version);
    }
    let key = headers
        .value("sec-websocket-key")
        .filter(|key| Base64::decode_vec(key).is_ok_and(|key| key.len() == 16))
        .ok_or(HandshakeError::Refused(
            "expected Sec-WebSocket-Key of 16 bytes in Base64",
        ))?;
    // [MQTT-6.0.0-3]. What is answered must be what was offered, to the letter (section 4.1), so it is answered as it was written.
    let subprotocol = SUBPROTOCOLS
        .into_iter()
        .find_map(|name| headers.listed("sec-websocket-protocol", name))
        .ok_or(HandshakeError::Refused(
            "expected Sec-WebSocket-Protocol: mqtt",
        ))?;
    Ok(Some(Request {
        len,
        key: key.to_owned(),
        subprotocol: subprotocol.to_owned(),
    }))
}

/// The path in a request's target, which may be a whole URI (RFC 9112 3.2.2).
fn path_of(target: &str) -> &str {
    let after_host = |rest: &'_ str| rest.find(['/', '?']).unwrap_or(rest.len());
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => &rest[after_host(rest)..],
        Some(_) | None => target,
    };
    match path.split('?').next().unwrap_or_default() {
        "" => "/",
        path => path,
    }
}

fn not_whole(seen: &[u8]) -> Result<(), HandshakeError> {
    if seen.len() < LONGEST_HANDSHAKE {
        return Ok(());
    }
    Err(HandshakeError::Malformed(format!(
        "longer than {LONGEST_HANDSHAKE} bytes"
    )))
}

/// The server's positive answer.
#[must_use]
pub fn encode_response(request: &Request) -> Vec<u8> {
    // [MQTT-6.0.0-4]
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\
         Sec-WebSocket-Protocol: {}\r\n\r\n",
        accept_key(&request.key),
        request.subprotocol
    )
    .into_bytes()
}

/// Encodes a client's request. `nonce` is from the system's randomness; also returns the key whose acceptance to expect.
#[must_use]
pub fn encode_request(host: &str, path: &str, nonce: [u8; 16]) -> (Vec<u8>, String) {
    let key = Base64::encode_string(&nonce);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    (request.into_bytes(), key)
}

/// Decodes a server's answer to a request with `key`; returns its length, or `None`: it is incomplete.
///
/// # Errors
/// The server did not agree, or not to MQTT.
pub fn decode_response(bytes: &[u8], key: &str) -> Result<Option<usize>, HandshakeError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let seen = &bytes[..bytes.len().min(LONGEST_HANDSHAKE)];
    let status = response
        .parse(seen)
        .map_err(|error| HandshakeError::Malformed(error.to_string()))?;
    let httparse::Status::Complete(len) = status else {
        return not_whole(seen).map(|()| None);
    };
    if response.code != Some(101) {
        let (code, reason) = (
            response.code.unwrap_or(0),
            response.reason.unwrap_or_default(),
        );
        return Err(HandshakeError::Status(format!("{code} {reason}")));
    }
    let headers = Headers(response.headers);
    if headers.value("sec-websocket-accept") != Some(accept_key(key).as_str()) {
        return Err(HandshakeError::Refused(
            "the server accepts another key than ours",
        ));
    }
    if headers.value("sec-websocket-protocol") != Some("mqtt") {
        return Err(HandshakeError::Refused(
            "the server does not speak MQTT over WebSocket here",
        ));
    }
    Ok(Some(len))
}

/// Sec-WebSocket-Accept for a Sec-WebSocket-Key (section 4.2.2).
#[must_use]
pub fn accept_key(key: &str) -> String {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    Base64::encode_string(&digest)
}

struct Headers<'a>(&'a [httparse::Header<'a>]);

impl<'a> Headers<'a> {
    fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let all = self
            .0
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name));
        all.filter_map(|header| std::str::from_utf8(header.value).ok())
            .map(str::trim)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.values(name).next()
    }

    /// Whether a comma-separated list, in one or several headers, contains `word`.
    fn lists(&self, name: &str, word: &str) -> bool {
        self.listed(name, word).is_some()
    }

    /// The same: the word as it stands there.
    fn listed(&self, name: &str, word: &str) -> Option<&'a str> {
        self.values(name)
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .find(|one| one.eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    /// A valid request with one header replaced, or left out.
    fn request(target: &str, name: &str, value: Option<&str>) -> Vec<u8> {
        let mut headers = vec![
            ("Host", "server.example.com"),
            ("Upgrade", "websocket"),
            ("Connection", "keep-alive, Upgrade"),
            ("Sec-WebSocket-Key", KEY),
            ("Sec-WebSocket-Protocol", "chat, mqtt"),
            ("Sec-WebSocket-Version", "13"),
        ];
        headers.retain(|(header, _)| *header != name);
        headers.extend(value.map(|value| (name, value)));
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        format!("{target}\r\n{lines}\r\n").into_bytes()
    }

    fn good() -> Vec<u8> {
        request("GET /mqtt HTTP/1.1", "Origin", Some("http://example.com"))
    }

    #[test]
    fn the_key_of_the_specification_is_accepted_as_it_says() {
        // RFC 6455 1.3
        assert_eq!(accept_key(KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_good_request_is_answered_and_what_follows_is_left() {
        let bytes = [&good()[..], b"\x82\x80"].concat();
        let request = decode_request(&bytes, "/mqtt")
            .expect("good")
            .expect("whole");
        assert_eq!(&bytes[request.len..], b"\x82\x80");
        let answer = encode_response(&request);
        let len = decode_response(&answer, KEY)
            .expect("agreed")
            .expect("whole");
        assert_eq!(len, answer.len());
        for len in 0..request.len {
            assert_eq!(
                decode_request(&bytes[..len], "/mqtt"),
                Ok(None),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn other_requests_are_refused_with_a_status() {
        let get = "GET /mqtt HTTP/1.1";
        let cases = [
            ("no HTTP", b"\x10\x0d\x00\x04MQTT\x04\x02".to_vec(), "400"),
            (
                "POST",
                request("POST /mqtt HTTP/1.1", "Origin", None),
                "400",
            ),
            (
                "HTTP/1.0",
                request("GET /mqtt HTTP/1.0", "Origin", None),
                "400",
            ),
            (
                "another path",
                request("GET / HTTP/1.1", "Origin", None),
                "404",
            ),
            ("no upgrade", request(get, "Upgrade", None), "400"),
            (
                "another upgrade",
                request(get, "Upgrade", Some("h2c")),
                "400",
            ),
            (
                "no connection",
                request(get, "Connection", Some("close")),
                "400",
            ),
            (
                "another version",
                request(get, "Sec-WebSocket-Version", Some("8")),
                "426",
            ),
            ("no key", request(get, "Sec-WebSocket-Key", None), "400"),
            (
                "short key",
                request(get, "Sec-WebSocket-Key", Some("AAAA")),
                "400",
            ),
            (
                "no subprotocol",
                request(get, "Sec-WebSocket-Protocol", None),
                "400",
            ),
            (
                "another subprotocol",
                request(get, "Sec-WebSocket-Protocol", Some("chat")),
                "400",
            ),
            (
                "endless",
                [
                    &b"GET /mqtt HTTP/1.1\r\nX: "[..],
                    &[b'a'; LONGEST_HANDSHAKE],
                ]
                .concat(),
                "400",
            ),
        ];
        for (name, bytes, status) in cases {
            let error = decode_request(&bytes, "/mqtt").expect_err(name);
            let response = String::from_utf8(error.response()).expect("text");
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status} ")),
                "{name}: {response}"
            );
        }
    }

    #[test]
    fn a_query_after_the_path_and_the_name_of_old_clients_are_welcome() {
        let with_query = request(
            "GET /mqtt?token=1 HTTP/1.1",
            "Sec-WebSocket-Protocol",
            Some("mqttv3.1"),
        );
        let request = decode_request(&with_query, "/mqtt")
            .expect("good")
            .expect("whole");
        let answer = String::from_utf8(encode_response(&request)).expect("text");
        assert!(
            answer.contains("Sec-WebSocket-Protocol: mqttv3.1\r\n"),
            "{answer}"
        );
    }

    #[test]
    fn the_subprotocol_is_answered_as_it_was_offered() {
        for offered in ["mqtt", "MQTT", "Mqtt", "mqttv3.1", "MQTTv3.1"] {
            let lists = format!("chat, {offered} ,mqtt");
            let bytes = request(
                "GET /mqtt HTTP/1.1",
                "Sec-WebSocket-Protocol",
                Some(if offered.len() == 4 { &lists } else { offered }),
            );
            let request = decode_request(&bytes, "/mqtt")
                .expect("good")
                .expect("whole");
            let answer = String::from_utf8(encode_response(&request)).expect("text");
            let expected = format!("Sec-WebSocket-Protocol: {offered}\r\n");
            assert!(answer.contains(&expected), "{answer}");
        }
    }

    #[test]
    fn a_target_may_be_a_whole_uri() {
        for (target, path) in [
            ("http://host/mqtt", "/mqtt"),
            ("http://host:8083/mqtt?a=/b", "/mqtt"),
            ("WS://host/mqtt", "/mqtt"),
            ("wss://[::1]:8084/a/b", "/a/b"),
            ("http://host", "/"),
            ("http://host?a", "/"),
            ("/mqtt", "/mqtt"),
            ("/mqtt?to=http://host/other", "/mqtt"),
            ("/?x", "/"),
        ] {
            let bytes = request(&format!("GET {target} HTTP/1.1"), "Origin", None);
            assert!(
                matches!(decode_request(&bytes, path), Ok(Some(_))),
                "{target}"
            );
            let other = decode_request(&bytes, "/other");
            assert_eq!(other, Err(HandshakeError::NotFound), "{target}");
        }
    }

    #[test]
    fn a_client_believes_only_the_answer_to_its_own_request() {
        let (bytes, key) = encode_request("localhost:8083", "/mqtt", *b"sixteen bytes!!!");
        let request = decode_request(&bytes, "/mqtt")
            .expect("good")
            .expect("whole");
        let answer = encode_response(&request);
        assert_eq!(decode_response(&answer, &key), Ok(Some(answer.len())));
        assert_eq!(decode_response(&answer[..answer.len() - 1], &key), Ok(None));
        assert!(decode_response(&answer, KEY).is_err());
        let refusal =
            decode_response(&HandshakeError::NotFound.response(), &key).expect_err("refused");
        assert_eq!(refusal.to_string(), "the server answers 404 Not Found");
    }
}
