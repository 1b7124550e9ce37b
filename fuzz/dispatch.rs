//! What strangers send to a dispatcher.

use thicket_dispatch::{Hello, examine};

/// Examines the first bytes of a client, as they arrive.
///
/// # Panics
/// If a dispatcher changes its mind about a client when more bytes of it arrive.
pub fn examine_client(bytes: &[u8]) {
    let mut decided = None;
    for end in 0..=bytes.len() {
        let hello = examine(&bytes[..end]);
        match (&decided, hello) {
            (None, Hello::Unfinished) => {}
            (None, hello) => decided = Some(hello),
            // What is behind a whole CONNECT is not for the dispatcher.
            (Some(first), hello) => assert_eq!(*first, hello, "after {end} bytes"),
        }
    }
}
