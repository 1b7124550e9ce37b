use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::super::tests::{RSA_KEY, RSA_TOKEN};
use super::*;
use crate::{Applicant, Judgement, Policy, Review, Tokens};

const NOW_S: u64 = 1_900_000_000;

/// A key pair of a provider.
struct Pair {
    algorithm: Name,
    key: EncodingKey,
}

impl Pair {
    fn ec(algorithm: Name, signing: &'static EcdsaSigningAlgorithm) -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(signing, &SystemRandom::new()).expect("a key");
        let key = EncodingKey::from_ec_der(pkcs8.as_ref());
        Self { algorithm, key }
    }

    fn p256() -> Self {
        Self::ec(Name::ES256, &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    fn ed25519() -> Self {
        let pair = Ed25519KeyPair::generate().expect("a key");
        let pkcs8 = pair.to_pkcs8v1().expect("PKCS#8");
        let key = EncodingKey::from_ed_der(pkcs8.as_ref());
        Self {
            algorithm: Name::EdDSA,
            key,
        }
    }

    /// As a provider lists it.
    fn listed(&self, name: &str) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a public key");
        let mut listed = serde_json::to_value(jwk).expect("JSON");
        listed["kid"] = name.into();
        listed["use"] = "sig".into();
        listed
    }

    fn token(&self, name: Option<&str>) -> String {
        let header = Header {
            kid: name.map(str::to_owned),
            ..Header::new(self.algorithm)
        };
        let claims = json!({"sub": "ann", "exp": NOW_S + 60});
        encode(&header, &claims, &self.key).expect("a token")
    }
}

fn rsa_listed() -> Value {
    let der = der_of(RSA_KEY.as_bytes()).expect("PEM");
    let jwk = Jwk::from_decoding_key(&DecodingKey::from_rsa_der(&der), None).expect("a key");
    serde_json::to_value(jwk).expect("JSON")
}

fn keys(listed: &[Value]) -> Result<Keys, KeysError> {
    Keys::of_provider(json!({ "keys": listed }).to_string().as_bytes())
}

fn tokens(listed: &[Value]) -> Tokens {
    let mut tokens = Tokens::of_provider(None, None);
    tokens.set_keys(keys(listed).expect("good keys"));
    tokens
}

fn verify(tokens: &Tokens, token: &str) -> Result<String, TokenError> {
    let claims = tokens.verify(token.as_bytes(), NOW_S)?;
    Ok(claims.user_name)
}

#[test]
fn a_token_is_verified_with_the_key_it_names() {
    let pairs = [
        ("one", Pair::p256()),
        ("two", Pair::p256()),
        (
            "long",
            Pair::ec(Name::ES384, &ECDSA_P384_SHA384_FIXED_SIGNING),
        ),
        ("edwards", Pair::ed25519()),
    ];
    let listed: Vec<_> = pairs.iter().map(|(name, pair)| pair.listed(name)).collect();
    let tokens = tokens(&listed);
    for (name, pair) in &pairs {
        let token = pair.token(Some(name));
        assert_eq!(verify(&tokens, &token), Ok("ann".into()), "{name}");
        let unknown = pair.token(Some("three"));
        assert_eq!(verify(&tokens, &unknown), Err(TokenError::UnknownKey));
    }
    let of_another = pairs[0].1.token(Some("two"));
    assert_eq!(verify(&tokens, &of_another), Err(TokenError::Signature));
}

#[test]
fn a_token_without_a_key_name_is_good_where_only_one_key_can_be_meant() {
    let (ec, ed) = (Pair::p256(), Pair::ed25519());
    let both = tokens(&[ec.listed("ec"), ed.listed("ed")]);
    assert_eq!(verify(&both, &ec.token(None)), Ok("ann".into()));
    let two = tokens(&[ec.listed("ec"), Pair::p256().listed("other")]);
    assert_eq!(verify(&two, &ec.token(None)), Err(TokenError::ManyKeys));
}

#[test]
fn an_rsa_key_serves_its_algorithms_and_no_other() {
    let rsa = rsa_listed();
    assert_eq!(
        verify(&tokens(std::slice::from_ref(&rsa)), RSA_TOKEN),
        Ok("ann".into())
    );
    let mut only = rsa.clone();
    only["alg"] = "RS512".into();
    let other = TokenError::OtherAlgorithm("an algorithm of its key");
    assert_eq!(verify(&tokens(&[only]), RSA_TOKEN), Err(other.clone()));
    // A token signed by HMAC with what everyone can read.
    let secret = EncodingKey::from_secret(rsa["n"].as_str().expect("text").as_bytes());
    let forged = Pair {
        algorithm: Name::HS256,
        key: secret,
    };
    assert_eq!(
        verify(&tokens(&[rsa]), &forged.token(None)),
        Err(other.clone())
    );
    let ec = Pair::p256();
    let good = ec.token(Some("ec"));
    let (_, rest) = good.split_once('.').expect("a header");
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"ec"}"#);
    let unsigned = format!("{header}.{rest}");
    assert_eq!(verify(&tokens(&[ec.listed("ec")]), &unsigned), Err(other));
}

#[test]
fn keys_that_verify_no_signatures_are_passed_over() {
    let good = Pair::p256().listed("good");
    let changed = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed
    };
    let mut weak = rsa_listed();
    weak["n"] = "AQAB".into();
    let useless = [
        changed("use", "enc".into()),
        changed("key_ops", json!(["encrypt"])),
        changed("alg", "RS256".into()),
        changed("crv", "P-384".into()),
        changed("crv", "P-521".into()),
        changed("x", "AAAA".into()),
        changed("kid", 7.into()),
        json!({"kty": "oct", "kid": "secret", "k": "c2VjcmV0"}),
        json!("no key"),
        weak,
    ];
    for key in useless {
        let alone = keys(std::slice::from_ref(&key));
        assert_eq!(alone.err(), Some(KeysError::NoKey), "{key}");
        let both = keys(&[key, good.clone()]).expect("a good one");
        assert_eq!(both.count(), 1);
    }
    for text in ["", "[]", "{}", r#"{"keys":{}}"#] {
        let parsed = Keys::of_provider(text.as_bytes());
        assert_eq!(parsed.err(), Some(KeysError::Malformed), "{text}");
    }
}

#[test]
fn sets_are_the_same_if_names_and_keys_are() {
    let (one, two) = (Pair::p256(), Pair::p256());
    let of = |pair: &Pair, name: &str| keys(&[pair.listed(name)]).expect("good");
    assert!(of(&one, "a").are_same(&of(&one, "a")));
    assert!(!of(&one, "a").are_same(&of(&one, "b")));
    assert!(!of(&one, "a").are_same(&of(&two, "a")));
    assert!(!of(&one, "a").are_same(&Keys::default()));
}

#[test]
fn a_grant_ends_when_the_provider_no_longer_lists_its_key() {
    let (old, new) = (Pair::p256(), Pair::p256());
    let policy = |listed: &[Value]| Policy {
        tokens: Some(tokens(listed)),
        ..Policy::default()
    };
    let judge = |policy: &Policy, token: &str| {
        let applicant = Applicant {
            listener: 0,
            client_id: "lamp",
            user_name: None,
            password: Some(token.as_bytes()),
            certificate_name: None,
        };
        policy.judge(&applicant, NOW_S, &mut crate::HashMemory::default())
    };
    let before = policy(&[old.listed("old")]);
    assert_eq!(
        judge(&before, &new.token(Some("new"))),
        Judgement::UnknownKey
    );
    let Judgement::Granted(grant) = judge(&before, &old.token(Some("old"))) else {
        panic!("expected a grant");
    };
    let both = policy(&[new.listed("new"), old.listed("old")]);
    assert_eq!(both.review(&grant), Review::Same);
    let after = policy(&[new.listed("new")]);
    assert_eq!(after.review(&grant), Review::Ended);
}
