//! Announcements of nodes, as strangers may send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::read_announcement(bytes));
