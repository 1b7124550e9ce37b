//! Lines of `thicket ctl import`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::import_lines(bytes));
