//! The store of a node as a crash, or the disk, may have left it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::damage_store(bytes));
