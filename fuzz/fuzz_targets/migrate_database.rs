//! A `mosquitto.db`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thicket_fuzz::migrate_database(bytes));
