//! What must hold for whatever bytes a peer sends, or the disk gives back; the targets only choose the version.

mod access;
mod discovery;
mod disk;
mod dispatch;
#[allow(dead_code)]
#[path = "../crates/thicket/src/files.rs"]
mod files;
mod http;
mod links;
mod log;
mod machines;
mod migrate;
mod state;

pub use http::read_bodies;
pub use discovery::read_announcement;
pub use disk::damage_store;
pub use dispatch::examine_client;
pub use links::{greet_on_a_link, read_records, receive_on_a_link, receive_tree_batches};
pub use state::{read_session, read_settings};

use thicket_mqtt::{
    Acknowledgement, AcknowledgementKind, ApplicationProperties, DecodeError,
    PLAIN_ACKNOWLEDGEMENT_LEN, Packet, PacketKind, ProtocolVersion, ReasonCode, connect_version,
    decode, decode_publish, frame_header, plain_acknowledgement,
};

pub use access::{access_acl, access_credentials, access_jwk_set};
pub use log::replay_log;
pub use machines::{import_lines, recover_node};
pub use migrate::{migrate_configuration, migrate_database};

use thicket_transport::proxy_header;
use thicket_transport::websocket::{Decoder, Role, decode_request};

const MAXIMUM_PACKET_SIZE: u32 = 1 << 20;

/// Decodes `bytes` as a connection of `version` would: packet after packet until they end or are refused.
///
/// # Panics
/// If a decoded packet depends on what follows it, disagrees with its header or its parts, or does not survive being encoded
/// and decoded again.
pub fn decode_stream(version: ProtocolVersion, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(len) = decode_one(version, rest) {
        rest = &rest[len..];
    }
}

fn decode_one(version: ProtocolVersion, bytes: &[u8]) -> Option<usize> {
    let outcome = decode(bytes, version, MAXIMUM_PACKET_SIZE);
    check_short_ways(version, bytes, &outcome);
    if let Err(error) = outcome {
        assert!(error.reason_code().is_error());
        assert!(!error.to_string().is_empty());
    }
    let (packet, len) = outcome.ok()??;
    assert_eq!(
        frame_header(bytes).map(|header| header.map(|header| header.packet_len)),
        Ok(Some(len))
    );
    assert_eq!(
        decode(&bytes[..len], version, MAXIMUM_PACKET_SIZE),
        Ok(Some((packet.clone(), len)))
    );
    assert_eq!(
        decode(&bytes[..len - 1], version, MAXIMUM_PACKET_SIZE),
        Ok(None)
    );
    check_parts(version, &packet, bytes);
    let mut again = Vec::new();
    packet
        .encode(version, &mut again)
        .expect("what was decoded can be encoded");
    assert!(
        again.len() <= len,
        "encoding is never longer than what came in"
    );
    let again_len = again.len();
    assert_eq!(
        decode(&again, version, MAXIMUM_PACKET_SIZE),
        Ok(Some((packet, again_len)))
    );
    Some(len)
}

/// The ways of the commonest packets say what the general one says.
fn check_short_ways(
    version: ProtocolVersion,
    bytes: &[u8],
    outcome: &Result<Option<(Packet<'_>, usize)>, DecodeError>,
) {
    let publish = decode_publish(bytes, version, MAXIMUM_PACKET_SIZE);
    match (publish, outcome) {
        (Ok(Some((publish, len))), Ok(Some((Packet::Publish(same), same_len)))) => {
            assert_eq!((&publish, len), (same, *same_len));
        }
        (Ok(None), Ok(Some((packet, _)))) => assert!(!matches!(packet, Packet::Publish(_))),
        (Ok(None), Ok(None)) => {}
        (Ok(None), Err(_)) => assert_ne!(bytes[0] >> 4, PacketKind::Publish as u8),
        (Err(error), Err(same)) => assert_eq!(error, *same),
        (short, general) => panic!("{short:?} is not {general:?}"),
    }
    if let Some((kind, packet_id)) = plain_acknowledgement(bytes) {
        let ack = Acknowledgement::new(packet_id, ReasonCode::Success);
        let packet = match kind {
            AcknowledgementKind::Puback => Packet::Puback(ack),
            AcknowledgementKind::Pubrec => Packet::Pubrec(ack),
            AcknowledgementKind::Pubrel => Packet::Pubrel(ack),
            AcknowledgementKind::Pubcomp => Packet::Pubcomp(ack),
        };
        assert_eq!(*outcome, Ok(Some((packet, PLAIN_ACKNOWLEDGEMENT_LEN))));
    }
}

fn check_parts(version: ProtocolVersion, packet: &Packet<'_>, bytes: &[u8]) {
    match packet {
        Packet::Connect(connect) => {
            assert_eq!(connect_version(bytes), Some(connect.version));
            if let Some(will) = &connect.will {
                check_properties(&will.properties);
            }
        }
        Packet::Publish(publish) => {
            check_properties(&publish.properties);
            let mut encoded = Vec::new();
            let at = publish
                .encode(version, &mut encoded)
                .expect("what was decoded can be encoded");
            assert_eq!(encoded.len(), publish.encoded_len(version));
            let id = at.map(|at| u16::from_be_bytes([encoded[at], encoded[at + 1]]));
            assert_eq!(id, publish.packet_id.map(|id| id.value()));
        }
        _ => {}
    }
}

fn check_properties(properties: &ApplicationProperties<'_>) {
    let mut written = Vec::new();
    properties.write_to(&mut written);
    assert_eq!(written.len(), properties.encoded_len());
    assert_eq!(properties.is_empty(), written.is_empty());
    assert_eq!(
        ApplicationProperties::from_encoded(&written),
        Ok(*properties)
    );
    let rebuilt =
        ApplicationProperties::build(properties.iter()).expect("what was decoded can be encoded");
    assert_eq!(rebuilt, written);
}

/// Checks bytes as they come from disk or from another node.
///
/// # Panics
/// If accepted bytes are not the properties they were checked as.
pub fn read_application_properties(bytes: &[u8]) {
    if let Ok(properties) = ApplicationProperties::from_encoded(bytes) {
        let mut written = Vec::new();
        properties.write_to(&mut written);
        assert_eq!(written, bytes);
        check_properties(&properties);
    }
}

/// Reads a PROXY header.
///
/// # Panics
/// If a header depends on what follows it, or is found whole before its last byte.
pub fn read_proxy_header(bytes: &[u8]) {
    let Ok(Some((proxied, len))) = proxy_header::decode(bytes) else {
        return;
    };
    assert_eq!(
        proxy_header::decode(&bytes[..len]),
        Ok(Some((proxied, len)))
    );
    assert_eq!(proxy_header::decode(&bytes[..len - 1]), Ok(None));
}

/// Decodes frames of a client; the first byte says in which pieces they come.
///
/// # Panics
/// If the outcome depends on how the bytes are cut, or more comes out than went in.
pub fn read_frames(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = decode_frames(bytes, bytes.len().max(1));
    assert_eq!(whole, decode_frames(bytes, usize::from(step).max(1)));
    if let Ok((data, _)) = whole {
        assert!(data.len() <= bytes.len());
    }
}

/// Data and control frames, or the status of a refusal.
fn decode_frames(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<String>), u16> {
    let mut decoder = Decoder::new(Role::Server, 1 << 20);
    let (mut data, mut controls) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        let mut piece = piece.to_vec();
        let decoded = decoder.decode(&mut piece, |control| controls.push(format!("{control:?}")));
        data.extend(&piece[..decoded.map_err(|error| error.status())?]);
    }
    Ok((data, controls))
}

/// Reads the opening request of a WebSocket.
///
/// # Panics
/// If a request depends on what follows it, or a refusal is no answer of HTTP.
pub fn read_websocket_request(bytes: &[u8]) {
    match decode_request(bytes, "/mqtt") {
        Ok(None) => {}
        Ok(Some(request)) => assert_eq!(
            decode_request(&bytes[..request.len], "/mqtt"),
            Ok(Some(request))
        ),
        Err(error) => assert!(error.response().starts_with(b"HTTP/1.1 4")),
    }
}
