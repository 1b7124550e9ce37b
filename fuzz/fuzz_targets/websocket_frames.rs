//! Frames from a peer, in whatever pieces they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::read_frames(bytes));
