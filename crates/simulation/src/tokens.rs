//! Tokens of an issuer that nodes trust, for clients whose credentials expire.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thicket_access::{Algorithm, Policy, Tokens};

const SECRET: &[u8] = b"the secret of the issuer of all tokens";

/// A token of a client that expires at `expires_at_s` seconds since the epoch: its password in [`crate::spec::NodeSpec::passwords`].
pub fn issue(client_id: &str, expires_at_s: u64) -> Vec<u8> {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let claims =
        format!(r#"{{"sub":"{client_id}","client_id":"{client_id}","exp":{expires_at_s}}}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let mac = Hmac::<Sha256>::new_from_slice(SECRET).expect("a key of any length");
    let mac = mac.chain_update(&signed).finalize().into_bytes();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac)).into_bytes()
}

/// Who has a token may do everything until it expires, and so may who has no password.
pub fn policy() -> Policy {
    let tokens = Tokens::new(Algorithm::Hs256, SECRET, None, None).expect("a key");
    Policy {
        tokens: Some(tokens),
        allows_anonymous: true,
        ..Policy::default()
    }
}
