//! The opening request of a WebSocket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::read_websocket_request(bytes));
