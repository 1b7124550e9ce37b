//! An ACL file, and what it says of a client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thicket_fuzz::access_acl(bytes);
});
