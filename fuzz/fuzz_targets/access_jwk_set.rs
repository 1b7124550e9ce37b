//! Keys of a provider of tokens.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::access_jwk_set(bytes));
