//! The first bytes of a connection that a load balancer should have made.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::read_proxy_header(bytes));
