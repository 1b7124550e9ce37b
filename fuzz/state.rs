//! What must hold for bytes that describe a state: sessions that move between nodes, and settings that people write.

use std::path::Path;

use thicket_broker::Settings;
use thicket_session::Instant;
use thicket_session::server::{SessionSnapshot, decode_queue, encode_queue};

/// Reads bytes as a session from another node, and as its queue.
///
/// # Panics
/// If what was accepted does not survive being encoded and decoded again.
pub fn read_session(bytes: &[u8]) {
    let now = Instant::from_millis(1_000_000);
    if let Ok(snapshot) = SessionSnapshot::decode(bytes, now) {
        let again = snapshot.encode(now);
        let decoded = SessionSnapshot::decode(&again, now).expect("what we encoded");
        assert_eq!(decoded.encode(now), again);
    }
    if let Ok(queue) = decode_queue(bytes, now) {
        let again = encode_queue(&queue, now);
        let decoded = decode_queue(&again, now).expect("what we encoded");
        assert_eq!(encode_queue(&decoded, now), again);
    }
}

/// Reads text as a configuration file.
///
/// # Panics
/// If a refusal says nothing.
pub fn read_settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Settings::from_toml(Path::new("fuzz.toml"), text) {
        // What is named in it is not read or resolved here.
        Ok((settings, _)) => drop(settings.or(Settings::default())),
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
}
