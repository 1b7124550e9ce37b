//! Bodies of requests to the HTTP API.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::read_bodies(bytes));
