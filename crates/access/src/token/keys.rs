//! Keys of tokens: one from a file, or those that a provider publishes as a JWK set (RFC 7517).

use std::sync::Arc;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm as Name, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::TokenError;

/// Shorter secrets can be found by trying (RFC 7518, 3.2).
const SHORTEST_SECRET: usize = 32;
/// Shorter moduli of RSA can be factored, bytes.
const SHORTEST_MODULUS: usize = 256;

/// How tokens of a key in a file are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256 and a shared secret.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// As headers of tokens name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
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
    #[error(
        "expected a public key for {0} (RSA of 2048 bits or more for RS256, P-256 for ES256, Ed25519 for EdDSA)"
    )]
    OtherKey(&'static str),
}

/// Why a provider's answer is no set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// Not the form of RFC 7517.
    #[error("expected a JWK set: a JSON object with a list `keys`")]
    Malformed,
    /// A set, but nothing in it verifies tokens.
    #[error(
        "the JWK set has no key that verifies tokens (RSA of 2048 bits or more, P-256, P-384, Ed25519)"
    )]
    NoKey,
}

/// The keys that verify tokens. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    all: Arc<[Key]>,
    /// The algorithm of a key in a file; `None`: the keys are a provider's, and each token names one.
    algorithm: Option<Algorithm>,
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Its name in tokens, `kid`.
    name: Option<String>,
    /// What it may be used with; never decided by a token.
    algorithms: Vec<Name>,
    fingerprint: u64,
    key: DecodingKey,
}

impl Keys {
    /// The key in a file.
    pub(super) fn of_file(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, KeyError> {
        let (name, key) = match algorithm {
            Algorithm::Hs256 => {
                let secret = bytes.trim_ascii();
                if secret.len() < SHORTEST_SECRET {
                    return Err(KeyError::ShortSecret(secret.len()));
                }
                (Name::HS256, DecodingKey::from_secret(secret))
            }
            Algorithm::Rs256 => (Name::RS256, DecodingKey::from_rsa_der(&der_of(bytes)?)),
            Algorithm::Es256 => (Name::ES256, DecodingKey::from_ec_der(&der_of(bytes)?)),
            Algorithm::EdDsa => (Name::EdDSA, DecodingKey::from_ed_der(&der_of(bytes)?)),
        };
        if !is_good(name, &key) {
            return Err(KeyError::OtherKey(algorithm.name()));
        }
        let key = Key {
            name: None,
            algorithms: vec![name],
            fingerprint: fingerprint(bytes),
            key,
        };
        Ok(Self {
            all: Arc::new([key]),
            algorithm: Some(algorithm),
        })
    }

    /// The keys in a JWK set that verify signatures. Others are ignored: those of other types and uses, and shared secrets, which have no place in a
    /// public document.
    ///
    /// # Errors
    /// It is no such set, or none of its keys verifies signatures.
    pub fn of_provider(json: &[u8]) -> Result<Self, KeysError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_slice(json).map_err(|_| KeysError::Malformed)?;
        let keys = set.keys.into_iter();
        let all: Arc<[Key]> = keys
            .filter_map(|key| Key::of_jwk(&serde_json::from_value(key).ok()?))
            .collect();
        if all.is_empty() {
            return Err(KeysError::NoKey);
        }
        Ok(Self {
            all,
            algorithm: None,
        })
    }

    /// Whether they are a provider's, and may change while the node runs.
    #[must_use]
    pub const fn are_provided(&self) -> bool {
        self.algorithm.is_none()
    }

    /// Whether other keys are the same, with the same names.
    #[must_use]
    pub fn are_same(&self, others: &Self) -> bool {
        let parts = |key: &Key| (key.name.clone(), key.algorithms.clone(), key.fingerprint);
        let of_others = others.all.iter().map(parts);
        self.all.iter().map(parts).eq(of_others)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether the key with this fingerprint is one of them.
    pub(crate) fn has(&self, fingerprint: u64) -> bool {
        self.all.iter().any(|key| key.fingerprint == fingerprint)
    }

    pub(super) fn other_algorithm(&self) -> TokenError {
        TokenError::OtherAlgorithm(
            self.algorithm
                .map_or("an algorithm of its key", Algorithm::name),
        )
    }

    /// The key for a token with this header, and the algorithm to use with it.
    pub(super) fn find(
        &self,
        algorithm: &str,
        name: Option<&str>,
    ) -> Result<(&Key, Name), TokenError> {
        let algorithm: Name = algorithm.parse().map_err(|_| self.other_algorithm())?;
        if self.are_provided() && algorithm.family() == AlgorithmFamily::Hmac {
            return Err(self.other_algorithm());
        }
        let name = name.filter(|_| self.are_provided());
        let is_named = |key: &&Key| name.is_none() || key.name.as_deref() == name;
        let mut named = self.all.iter().filter(is_named).peekable();
        if named.peek().is_none() {
            return Err(TokenError::UnknownKey);
        }
        let mut fitting = named.filter(|key| key.algorithms.contains(&algorithm));
        let found = fitting.next().ok_or_else(|| self.other_algorithm())?;
        match fitting.next() {
            None => Ok((found, algorithm)),
            Some(_) => Err(TokenError::ManyKeys),
        }
    }
}

impl Key {
    fn of_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let verifies = |all: &Vec<KeyOperations>| all.contains(&KeyOperations::Verify);
        let is_for_signatures =
            matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
                && common.key_operations.as_ref().is_none_or(verifies);
        let possible: &[Name] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms(),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                &[Name::ES256]
            }
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
                &[Name::ES384]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[Name::EdDSA]
            }
            _ => return None,
        };
        let is_named = |name: &Name| {
            let only = common.key_algorithm;
            only.is_none_or(|only| only == KeyAlgorithm::from(*name))
        };
        let algorithms: Vec<Name> = possible.iter().copied().filter(is_named).collect();
        let key = DecodingKey::from_jwk(jwk).ok()?;
        if !is_for_signatures || !is_good(*algorithms.first()?, &key) {
            return None;
        }
        let material = serde_json::to_vec(&jwk.algorithm).ok()?;
        Some(Self {
            name: common.key_id.clone(),
            algorithms,
            fingerprint: fingerprint(&material),
            key,
        })
    }

    /// Another key has another fingerprint.
    pub(super) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// `algorithm`: the one that it was found for.
    pub(super) fn verify(
        &self,
        algorithm: Name,
        message: &[u8],
        signature: &str,
    ) -> Result<(), TokenError> {
        match jsonwebtoken::crypto::verify(signature, message, &self.key, algorithm) {
            Ok(true) => Ok(()),
            Ok(false) => Err(TokenError::Signature),
            Err(_) => Err(TokenError::Malformed),
        }
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    u64::from_be_bytes(digest[..8].try_into().expect("eight of 32 bytes"))
}

/// The bytes of `-----BEGIN PUBLIC KEY-----` (SubjectPublicKeyInfo, RFC 7468).
fn der_of(pem: &[u8]) -> Result<SubjectPublicKeyInfoDer<'static>, KeyError> {
    SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| KeyError::NotPem)
}

/// Whether a key is of the type and the strength that an algorithm requires.
fn is_good(algorithm: Name, key: &DecodingKey) -> bool {
    let verification: &'static dyn VerificationAlgorithm = match algorithm.family() {
        AlgorithmFamily::Hmac => return true,
        AlgorithmFamily::Rsa => &RSA_PKCS1_2048_8192_SHA256,
        AlgorithmFamily::Ec if algorithm == Name::ES384 => &ECDSA_P384_SHA384_FIXED,
        AlgorithmFamily::Ec => &ECDSA_P256_SHA256_FIXED,
        AlgorithmFamily::Ed => &ED25519,
    };
    match key.kind() {
        DecodingKeyKind::SecretOrDer(der) => ParsedPublicKey::new(verification, der).is_ok(),
        DecodingKeyKind::RsaModulusExponent { n, .. } => n.len() >= SHORTEST_MODULUS,
    }
}

#[cfg(test)]
mod tests;
