//! JSON Web Tokens in the place of passwords (RFC 7519, signed as RFC 7515 says, compact form).
//!
//! The key decides the algorithm, never the token: a token whose header names another one is refused. The time is handed in.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::rights::{Rule, RuleError};

/// How far apart our clock and the issuer's may be.
pub const LEEWAY_S: u64 = 30;
/// Longer ones are not looked at.
const MOST_BYTES: usize = 16 * 1024;
/// Shorter secrets can be found by trying (RFC 7518, 3.2).
const SHORTEST_SECRET: usize = 32;

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256 and a shared secret.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    Es256,
}

impl Algorithm {
    /// As headers of tokens name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

/// Why a file is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Too short to be a secret.
    #[error("expected a secret of at least {SHORTEST_SECRET} bytes, found {0}")]
    ShortSecret(usize),
    /// No PEM.
    #[error(
        "expected a public key in PEM: `-----BEGIN PUBLIC KEY-----`, base64, `-----END PUBLIC KEY-----`"
    )]
    NotPem,
    /// PEM, but of something else.
    #[error("expected a public key for {0} (RSA of 2048 bits or more for RS256, P-256 for ES256)")]
    OtherKey(&'static str),
}

/// Verifies tokens of one issuer.
#[derive(Debug, Clone)]
pub struct Tokens {
    key: Key,
    algorithm: Algorithm,
    issuer: Option<String>,
    audience: Option<String>,
    allows_no_expiry: bool,
    fingerprint: u64,
}

#[derive(Clone)]
enum Key {
    Secret(Vec<u8>),
    Public(UnparsedPublicKey<Vec<u8>>),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What a good token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// `sub`: the user name.
    pub user_name: String,
    /// `client_id`, if the token is for one client only.
    pub client_id: Option<String>,
    /// `exp` in seconds since the epoch.
    pub expires_at_s: Option<u64>,
    /// `acl`: all that its bearer may do.
    pub rules: Option<Vec<Rule>>,
}

/// Why a token is refused. All of them are 0x86 to the client; the words are for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Malformed.
    #[error("not a token")]
    Malformed,
    /// Refused: of another algorithm than the key.
    #[error("the token is not signed with {0}")]
    OtherAlgorithm(&'static str),
    /// Refused.
    #[error("the signature is wrong")]
    Signature,
    /// Refused.
    #[error("the token has expired")]
    Expired,
    /// Refused: whoever finds it could use it for ever.
    #[error("the token never expires (no `exp`), and `jwt_allow_no_expiry` is not set")]
    NoExpiry,
    /// Refused.
    #[error("the token is not valid yet")]
    NotYet,
    /// Refused.
    #[error("the token is of another issuer")]
    Issuer,
    /// Refused.
    #[error("the token is for another audience")]
    Audience,
    /// Refused: nobody to be.
    #[error("the token has no subject (`sub`)")]
    NoSubject,
    /// Refused: an `acl` we do not understand must not be taken for none.
    #[error("the token's acl: {0}")]
    Acl(#[from] RuleError),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood: we know none (RFC 7515, 4.1.11).
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct RawClaims {
    sub: Option<String>,
    iss: Option<String>,
    aud: Option<Audience>,
    /// NumericDate may have a fraction.
    exp: Option<f64>,
    nbf: Option<f64>,
    client_id: Option<String>,
    acl: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Tokens {
    /// `key`: the bytes of the key's file; a secret for HS256 (blanks at its ends do not count), else PEM. With `issuer` or
    /// `audience`, only tokens that name it are good.
    ///
    /// # Errors
    /// The file holds no key for the algorithm.
    pub fn new(
        algorithm: Algorithm,
        key: &[u8],
        issuer: Option<String>,
        audience: Option<String>,
    ) -> Result<Self, KeyError> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        Ok(Self {
            key: Key::parse(algorithm, key)?,
            algorithm,
            issuer,
            audience,
            allows_no_expiry: false,
            fingerprint: u64::from_be_bytes(digest[..8].try_into().expect("eight of 32 bytes")),
        })
    }

    /// Tokens without `exp` are good as well: they hold until the key changes.
    #[must_use]
    pub const fn allowing_no_expiry(mut self, allows: bool) -> Self {
        self.allows_no_expiry = allows;
        self
    }

    /// Another key has another one.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Whether a password has the shape of a token: three parts, the first a header.
    #[must_use]
    pub fn looks_like(password: &[u8]) -> bool {
        // `{"` is how the JSON of a header starts.
        password.starts_with(b"eyJ") && password.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// What a token says, if it is good at `now_s` seconds since the epoch.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, token: &[u8], now_s: u64) -> Result<Claims, TokenError> {
        let claims = self.raw_claims(token)?;
        let (earliest, latest) = (
            now_s.saturating_sub(LEEWAY_S) as f64,
            (now_s + LEEWAY_S) as f64,
        );
        if claims.exp.is_some_and(|exp| exp <= earliest) {
            return Err(TokenError::Expired);
        }
        if claims.exp.is_none() && !self.allows_no_expiry {
            return Err(TokenError::NoExpiry);
        }
        if claims.nbf.is_some_and(|nbf| nbf > latest) {
            return Err(TokenError::NotYet);
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        if let Some(wanted) = &self.audience
            && !claims.aud.is_some_and(|aud| aud.holds(wanted))
        {
            return Err(TokenError::Audience);
        }
        let rules = claims
            .acl
            .map(|acl| acl.iter().map(|text| Rule::parse(text, true)).collect())
            .transpose()?;
        let expires_at_s = claims.exp.map(|exp| exp as u64);
        Ok(Claims {
            user_name: claims
                .sub
                .filter(|sub| !sub.is_empty())
                .ok_or(TokenError::NoSubject)?,
            client_id: claims.client_id,
            expires_at_s,
            rules,
        })
    }

    /// The claims of a token that is well signed.
    fn raw_claims(&self, token: &[u8]) -> Result<RawClaims, TokenError> {
        let text = std::str::from_utf8(token).map_err(|_| TokenError::Malformed)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if text.len() > MOST_BYTES || claims.contains('.') {
            return Err(TokenError::Malformed);
        }
        let header: Header = json_of(header)?;
        if header.alg != self.algorithm.name() || header.crit.is_some() {
            return Err(TokenError::OtherAlgorithm(self.algorithm.name()));
        }
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| TokenError::Malformed)?;
        // Nothing else of the token is looked at before its signature is known to be good.
        self.key.verify(signed.as_bytes(), &signature)?;
        json_of(claims)
    }
}

fn json_of<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

impl Key {
    fn parse(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, KeyError> {
        let verification: &'static dyn VerificationAlgorithm = match algorithm {
            Algorithm::Hs256 => {
                let secret = bytes.trim_ascii();
                if secret.len() < SHORTEST_SECRET {
                    return Err(KeyError::ShortSecret(secret.len()));
                }
                return Ok(Self::Secret(secret.to_vec()));
            }
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
        };
        let der = der_of_pem(bytes).ok_or(KeyError::NotPem)?;
        aws_lc_rs::signature::ParsedPublicKey::new(verification, &der)
            .map_err(|_| KeyError::OtherKey(algorithm.name()))?;
        Ok(Self::Public(UnparsedPublicKey::new(verification, der)))
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), TokenError> {
        let is_good = match self {
            // Compares in a time that does not tell where they differ.
            Self::Secret(secret) => Hmac::<Sha256>::new_from_slice(secret)
                .expect("HMAC takes keys of any length")
                .chain_update(message)
                .verify_slice(signature)
                .is_ok(),
            Self::Public(key) => key.verify(message, signature).is_ok(),
        };
        if is_good {
            Ok(())
        } else {
            Err(TokenError::Signature)
        }
    }
}

/// The bytes of `-----BEGIN PUBLIC KEY-----` (SubjectPublicKeyInfo, RFC 7468).
fn der_of_pem(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let base64: String = body
        .chars()
        .filter(|char| !char.is_ascii_whitespace())
        .collect();
    STANDARD.decode(base64).ok()
}

impl Audience {
    fn holds(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one == wanted),
        }
    }
}

#[cfg(test)]
mod tests;
