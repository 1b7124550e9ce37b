//! The first bytes of a client of a dispatcher.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::examine_client(bytes));
