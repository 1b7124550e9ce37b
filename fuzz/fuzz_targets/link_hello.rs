//! The first bytes of a link.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::greet_on_a_link(bytes));
