//! Bytes from a peer on a connection of this version.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thicket_fuzz::decode_stream(thicket_mqtt::ProtocolVersion::V5, bytes);
});
