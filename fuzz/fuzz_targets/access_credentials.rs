//! Users, tokens, answers of a hook, messages of SCRAM.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thicket_fuzz::access_credentials(bytes);
});
