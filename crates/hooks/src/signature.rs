//! Proves to a receiver that the sender of a request has the secret, and when the request was made.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Seconds since 1970 at which the request was made.
pub const TIMESTAMP_HEADER: &str = "x-thicket-timestamp";
/// `v1=` and the signature in hexadecimal.
pub const SIGNATURE_HEADER: &str = "x-thicket-signature";

/// The value of [`SIGNATURE_HEADER`]: HMAC-SHA256 of the timestamp as in its header, a full stop and the body.
#[must_use]
pub fn sign(secret: &[u8], timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    for part in [timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    let digits = mac.finalize().into_bytes();
    let mut value = String::from("v1=");
    for byte in digits {
        value.push_str(&format!("{byte:02x}"));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_one_that_openssl_computes() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret
        assert_eq!(
            sign(b"secret", "1700000000", b"{\"a\":1}"),
            "v1=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686"
        );
    }
}
