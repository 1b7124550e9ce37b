//! Whatever bytes come: no decoder panics, and none depends on how they are cut into reads.

use proptest::collection::vec;
use proptest::prelude::*;
use thicket_transport::proxy_header;
use thicket_transport::websocket::{Decoder, Role, decode_request};

/// Data and control frames, or the status of a refusal.
fn decode(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<String>), u16> {
    let mut decoder = Decoder::new(Role::Server, 1 << 20);
    let (mut data, mut controls) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        let mut piece = piece.to_vec();
        let decoded = decoder.decode(&mut piece, |control| controls.push(format!("{control:?}")));
        data.extend(&piece[..decoded.map_err(|error| error.status())?]);
    }
    Ok((data, controls))
}

/// Bytes that are likely to be frames: good first bytes, short masked payloads, noise between them.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        Just(0x82_u8),
        Just(0x02),
        Just(0x80),
        Just(0x88),
        Just(0x89),
        any::<u8>()
    ];
    let frame = (first, vec(any::<u8>(), 0..40)).prop_map(|(first, rest)| {
        let len = 0x80 | rest.len().saturating_sub(4) as u8;
        [vec![first, len], rest].concat()
    });
    vec(frame, 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn frames_come_out_the_same_however_they_are_cut(bytes in frames(), step in 1_usize..20) {
        let whole = decode(&bytes, bytes.len().max(1));
        prop_assert_eq!(&whole, &decode(&bytes, step));
        if let Ok((data, _)) = whole {
            prop_assert!(data.len() <= bytes.len());
        }
    }

    #[test]
    fn a_proxy_header_ends_where_it_says(start in prop_oneof![Just(&b"PROXY "[..]), Just(&b"\r\n\r\n\0\r\nQUIT\n"[..]), Just(&b""[..])], rest in vec(any::<u8>(), 0..200)) {
        let bytes = [start, &rest].concat();
        if let Ok(Some((proxied, len))) = proxy_header::decode(&bytes) {
            prop_assert_eq!(proxy_header::decode(&bytes[..len]), Ok(Some((proxied, len))));
            prop_assert_eq!(proxy_header::decode(&bytes[..len - 1]), Ok(None));
        }
    }

    #[test]
    fn whatever_is_no_request_is_answered_in_http(bytes in vec(any::<u8>(), 0..300)) {
        if let Err(error) = decode_request(&bytes, "/mqtt") {
            prop_assert!(error.response().starts_with(b"HTTP/1.1 4"));
        }
    }
}
