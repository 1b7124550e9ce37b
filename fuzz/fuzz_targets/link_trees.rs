//! Batches on trees from another node on a link that is up.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::receive_tree_batches(bytes));
