//! A start from stored data that is damaged.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::recover_node(bytes));
