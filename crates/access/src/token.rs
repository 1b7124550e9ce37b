//! JSON Web Tokens in the place of passwords (RFC 7519, signed according to RFC 7515, compact form).
//!
//! The key decides the algorithm, never the token: a token whose header names another one is refused. The time is passed in.

mod keys;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

pub use keys::{Algorithm, KeyError, Keys, KeysError};

use crate::rights::{Rule, RuleError};

/// How far apart our clock and the issuer's may be.
pub const LEEWAY_S: u64 = 30;
/// Longer ones are not parsed.
const MOST_BYTES: usize = 16 * 1024;
/// The claim that is the user name by default.
const SUBJECT: &str = "sub";
/// Claims with another meaning.
const OTHER_CLAIMS: [&str; 6] = ["iss", "aud", "exp", "nbf", "client_id", "acl"];

/// Verifies tokens of one issuer.
#[derive(Debug, Clone)]
pub struct Tokens {
    keys: Keys,
    issuer: Option<String>,
    audience: Option<String>,
    allows_no_expiry: bool,
    user_claim: UserClaim,
}

/// The claim that is the user name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserClaim(String);

impl Default for UserClaim {
    fn default() -> Self {
        Self(SUBJECT.to_owned())
    }
}

impl UserClaim {
    /// A claim that holds a name, such as `preferred_username`; `None`: one that has another meaning here, or no name.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let is_other = name.is_empty() || OTHER_CLAIMS.contains(&name);
        (!is_other).then(|| Self(name.to_owned()))
    }
}

/// The content of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The user name: `sub`, or the claim of [`Tokens::with_user_claim`].
    pub user_name: String,
    /// `client_id`, if the token is for one client only.
    pub client_id: Option<String>,
    /// `exp` in seconds since the epoch.
    pub expires_at_s: Option<u64>,
    /// `acl`: all that its bearer may do.
    pub rules: Option<Vec<Rule>>,
    /// Fingerprint of the key it is signed with.
    pub key: u64,
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
    /// Refused: the provider may have it by now.
    #[error("the token is signed with a key that the provider does not list")]
    UnknownKey,
    /// Refused.
    #[error("the token does not say which of several keys it is signed with (`kid`)")]
    ManyKeys,
    /// Refused.
    #[error("the signature is wrong")]
    Signature,
    /// Refused.
    #[error("the token has expired")]
    Expired,
    /// Refused: anyone who finds it could use it for ever.
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
    /// Refused: there is no user name.
    #[error("the token names no user (`{0}`)")]
    NoUser(String),
    /// Refused: an `acl` that we do not understand must not be treated as none.
    #[error("the token's acl: {0}")]
    Acl(#[from] RuleError),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Names a key of a provider.
    kid: Option<String>,
    /// Extensions that must be understood: we support none (RFC 7515, 4.1.11).
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
    #[serde(flatten)]
    others: serde_json::Map<String, serde_json::Value>,
}

impl RawClaims {
    fn user_name(&mut self, claim: &UserClaim) -> Option<String> {
        let name = if claim.0 == SUBJECT {
            self.sub.take()
        } else {
            let value = self.others.get(&claim.0);
            value.and_then(|it| it.as_str()).map(str::to_owned)
        };
        // As in a CONNECT: what identifies a session is separated by control characters.
        name.filter(|name| !name.is_empty() && !name.contains(char::is_control))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Tokens {
    /// `key`: the bytes of the key's file; a secret for HS256 (blanks at its ends do not count), else PEM. With `issuer` or `audience`, only tokens
    /// that name it are valid.
    ///
    /// # Errors
    /// The file holds no key for the algorithm.
    pub fn new(
        algorithm: Algorithm,
        key: &[u8],
        issuer: Option<String>,
        audience: Option<String>,
    ) -> Result<Self, KeyError> {
        Ok(Self {
            keys: Keys::of_file(algorithm, key)?,
            issuer,
            audience,
            allows_no_expiry: false,
            user_claim: UserClaim::default(),
        })
    }

    /// Verifies tokens with the keys of a provider, which are set later: [`Tokens::set_keys`].
    #[must_use]
    pub fn of_provider(issuer: Option<String>, audience: Option<String>) -> Self {
        Self {
            keys: Keys::default(),
            issuer,
            audience,
            allows_no_expiry: false,
            user_claim: UserClaim::default(),
        }
    }

    /// The provider's keys from now on.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// The keys that verify tokens.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Tokens without `exp` are valid as well: they hold until the key changes.
    #[must_use]
    pub const fn allowing_no_expiry(mut self, allows: bool) -> Self {
        self.allows_no_expiry = allows;
        self
    }

    /// Another claim than `sub` is the user name.
    #[must_use]
    pub fn with_user_claim(mut self, claim: UserClaim) -> Self {
        self.user_claim = claim;
        self
    }

    /// Whether a password has the shape of a token: three parts, the first a header.
    #[must_use]
    pub fn looks_like(password: &[u8]) -> bool {
        // `{"` is how the JSON of a header starts.
        password.starts_with(b"eyJ") && password.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// The content of a token, if it is valid at `now_s` seconds since the epoch.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, token: &[u8], now_s: u64) -> Result<Claims, TokenError> {
        let (mut claims, key) = self.raw_claims(token)?;
        let user_name = claims.user_name(&self.user_claim);
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
            user_name: user_name.ok_or_else(|| TokenError::NoUser(self.user_claim.0.clone()))?,
            client_id: claims.client_id,
            expires_at_s,
            rules,
            key,
        })
    }

    /// The claims of a token that is well signed, and the fingerprint of the key.
    fn raw_claims(&self, token: &[u8]) -> Result<(RawClaims, u64), TokenError> {
        let text = std::str::from_utf8(token).map_err(|_| TokenError::Malformed)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if text.len() > MOST_BYTES || claims.contains('.') {
            return Err(TokenError::Malformed);
        }
        let header: Header = json_of(header)?;
        if header.crit.is_some() {
            return Err(self.keys.other_algorithm());
        }
        // Nothing else of the token is parsed before its signature is verified.
        let (key, algorithm) = self.keys.find(&header.alg, header.kid.as_deref())?;
        key.verify(algorithm, signed.as_bytes(), signature)?;
        Ok((json_of(claims)?, key.fingerprint()))
    }
}

fn json_of<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
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
