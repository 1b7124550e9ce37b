use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::*;

/// The example of RFC 7515, A.1: well signed, of `joe`, but without a subject.
const RFC_TOKEN: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
     eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
     dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const RFC_KEY: &str =
    "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
/// Made with another implementation: `sub` is `ann`, `exp` is 2000000000.
pub(super) const RSA_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA6ffKCtQ2IfXm6JAN/b/+
73yF29b4UhkjeWLkvVDCEs/vtWAf7ynA9wqnKe3p0uW+k+FPYC4xZpWVdNUCK6XW
AG+4owpM+BD9eT5SujQ3OIJBR72p1ysV2tMLwYOG8qjom8Z7hbq8aZbMIuGmclsb
H/yWWnOtsRhMPJI72o8LceGukU8TbMOBCxmS5vCDT9gwpUrxg+pq85lCRFVUKjkx
lOGBsv+U15kpsDvib7ediRM4P2xx0cFT7CuP6POD4DpoY/5KeQXZPxUq3dq9wA+Z
Jqh20inP0KvGWWzkh6gbthtH8BmKehZ5tdB3UcGNOgsnqsuzigg4RGulaD/PM95L
JQIDAQAB
-----END PUBLIC KEY-----
";
pub(super) const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDIwMDAwMDAwMDB9.dK8XkOR_nKQkng8iUd3v4gzy4TS3\
     qDQduTvKAS6hf67omhZOV4HUH9hWQxRAeLB_-VEeHD6PulNPiTEdGBckwkQU69TDb9kAU5Ac0Z0heEPGk49qaoCP0IJ-9PKxr89LMe3nosvZtk\
     lcBaQXOVN3gDcBDizG1eX25071URnGRGnnqArQGAIZkV5_szYVwCuT6XfezyZFoFU8hlx3opLS3Y1nDEkQhG-BY_kDgSgzbiKg6AKaCOQ1-dLZ\
     EGroMFW0ST0oUq7OlyfFqyyLga4ITVowT0d-FHBXStgaZD6VcgtGD0Dr-iGK4o6nUPjqjDWSU_zncxkmyKYXLeJCPQsv7w";
const EC_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEVTgwenvixTQQm+zUj3ofvlvRcWT/
U0REs7loAIxIt6YDxSjCehVdKBgtm7jiiElcS3IN6a/gqJrl47Or3CnSuA==
-----END PUBLIC KEY-----
";
const EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDIwMDAwMDAwMDB9.YficZkb_VDH03cSCQjjfSVoHbGHt\
     TtFbVQIlcsl8Ufrvfbhq8e-9gkaG976P32ijYvcuAA0LtMVjPatlQHB9rQ";
const SECRET: &[u8] = b"a secret of at least thirty-two bytes";
const NOW_S: u64 = 1_900_000_000;

fn signed(header: &str, claims: &str) -> String {
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let mac = Hmac::<Sha256>::new_from_slice(SECRET)
        .expect("any length")
        .chain_update(&message)
        .finalize()
        .into_bytes();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(mac))
}

fn tokens(issuer: Option<&str>, audience: Option<&str>) -> Tokens {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let tokens = Tokens::new(Algorithm::Hs256, SECRET, owned(issuer), owned(audience));
    tokens.expect("a key").allowing_no_expiry(true)
}

#[test]
fn a_token_that_never_expires_is_good_only_where_that_is_allowed() {
    let token = signed(r#"{"alg":"HS256"}"#, r#"{"sub":"ann"}"#);
    let strict = Tokens::new(Algorithm::Hs256, SECRET, None, None).expect("a key");
    let verify = |tokens: &Tokens| tokens.verify(token.as_bytes(), NOW_S);
    assert_eq!(verify(&strict), Err(TokenError::NoExpiry));
    let claims = verify(&strict.allowing_no_expiry(true)).expect("allowed");
    assert_eq!(claims.expires_at_s, None);
}

#[test]
fn the_example_of_rfc_7515_is_well_signed() {
    let key = URL_SAFE_NO_PAD.decode(RFC_KEY).expect("base64");
    let tokens = Tokens::new(Algorithm::Hs256, &key, Some("joe".into()), None).expect("a key");
    let verify = |now_s| tokens.verify(RFC_TOKEN.as_bytes(), now_s);
    assert_eq!(verify(1_300_819_379), Err(TokenError::NoUser("sub".into())));
    assert_eq!(verify(1_300_819_380 + LEEWAY_S), Err(TokenError::Expired));
}

#[test]
fn tokens_signed_with_public_keys_are_verified() {
    for (algorithm, key, token) in [
        (Algorithm::Rs256, RSA_KEY, RSA_TOKEN),
        (Algorithm::Es256, EC_KEY, EC_TOKEN),
    ] {
        let tokens = Tokens::new(algorithm, key.as_bytes(), None, None).expect("a key");
        let claims = tokens.verify(token.as_bytes(), NOW_S).expect("good");
        assert_eq!(claims.user_name, "ann");
        assert_eq!(claims.expires_at_s, Some(2_000_000_000));
        let torn = token.replacen("eyJzdWIi", "eyJzdWIj", 1);
        assert_ne!(torn, token);
        assert_eq!(
            tokens.verify(torn.as_bytes(), NOW_S),
            Err(TokenError::Signature)
        );
    }
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    // The classic: a token signed by HMAC with the public key's text, which everyone has.
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(r#"{"sub":"root"}"#));
    let mac = Hmac::<Sha256>::new_from_slice(RSA_KEY.as_bytes())
        .expect("any length")
        .chain_update(&message)
        .finalize()
        .into_bytes();
    let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(mac));
    let tokens = Tokens::new(Algorithm::Rs256, RSA_KEY.as_bytes(), None, None).expect("a key");
    assert_eq!(
        tokens.verify(token.as_bytes(), NOW_S),
        Err(TokenError::OtherAlgorithm("RS256"))
    );
}

#[test]
fn another_claim_than_the_subject_may_be_the_user_name() {
    let header = r#"{"alg":"HS256"}"#;
    let claim = |name| UserClaim::new(name);
    for other in ["", "exp", "client_id", "acl"] {
        assert_eq!(claim(other), None, "{other}");
    }
    assert_eq!(claim("sub"), Some(UserClaim::default()));
    let missing = || Err(TokenError::NoUser("preferred_username".into()));
    for (claims, expected) in [
        (
            r#"{"sub":"4f1","preferred_username":"ann","exp":1900000001}"#,
            Ok("ann".to_owned()),
        ),
        (r#"{"preferred_username":"ann"}"#, Ok("ann".to_owned())),
        (r#"{"sub":"4f1"}"#, missing()),
        (r#"{"sub":"4f1","preferred_username":""}"#, missing()),
        (r#"{"sub":"4f1","preferred_username":["ann"]}"#, missing()),
    ] {
        let tokens =
            tokens(None, None).with_user_claim(claim("preferred_username").expect("a name"));
        let user = tokens.verify(signed(header, claims).as_bytes(), NOW_S);
        assert_eq!(user.map(|claims| claims.user_name), expected, "{claims}");
    }
}

#[test]
fn claims_decide_whether_a_well_signed_token_is_good() {
    use TokenError as Error;
    let header = r#"{"alg":"HS256","typ":"JWT"}"#;
    let cases: [(&str, &str, Option<Error>); 18] = [
        ("subject", r#"{"sub":"ann"}"#, None),
        ("no subject", "{}", Some(Error::NoUser("sub".into()))),
        (
            "empty subject",
            r#"{"sub":""}"#,
            Some(Error::NoUser("sub".into())),
        ),
        (
            "subject with what separates users from clients",
            r#"{"sub":"ann\u001fx"}"#,
            Some(Error::NoUser("sub".into())),
        ),
        (
            "subject with a null character",
            r#"{"sub":"ann\u0000"}"#,
            Some(Error::NoUser("sub".into())),
        ),
        ("not expired", r#"{"sub":"ann","exp":1900000001.5}"#, None),
        (
            "expired within leeway",
            r#"{"sub":"ann","exp":1899999971}"#,
            None,
        ),
        (
            "expired",
            r#"{"sub":"ann","exp":1899999970}"#,
            Some(Error::Expired),
        ),
        (
            "expired before the epoch",
            r#"{"sub":"ann","exp":-5}"#,
            Some(Error::Expired),
        ),
        (
            "exp is text",
            r#"{"sub":"ann","exp":"2100000000"}"#,
            Some(Error::Malformed),
        ),
        ("valid since long", r#"{"sub":"ann","nbf":1}"#, None),
        (
            "not yet",
            r#"{"sub":"ann","nbf":1900000031}"#,
            Some(Error::NotYet),
        ),
        ("not JSON", "sub=ann", Some(Error::Malformed)),
        ("not an object", "[]", Some(Error::Malformed)),
        ("acl", r#"{"sub":"ann","acl":["read a/#"]}"#, None),
        (
            "acl of no list",
            r#"{"sub":"ann","acl":"read a/#"}"#,
            Some(Error::Malformed),
        ),
        (
            "unknown claims",
            r#"{"sub":"ann","jti":"x","iss":"anyone","aud":["x"]}"#,
            None,
        ),
        (
            "bad acl",
            r#"{"sub":"ann","acl":["read"]}"#,
            Some(Error::Acl(RuleError::MissingFilter)),
        ),
    ];
    for (name, claims, expected) in cases {
        let result = tokens(None, None).verify(signed(header, claims).as_bytes(), NOW_S);
        assert_eq!(result.err(), expected, "{name}");
    }
}

#[test]
fn issuer_and_audience_are_asked_for_where_configured() {
    let header = r#"{"alg":"HS256"}"#;
    let cases = [
        (r#"{"sub":"ann","iss":"us","aud":"mqtt"}"#, None),
        (r#"{"sub":"ann","iss":"us","aud":["web","mqtt"]}"#, None),
        (
            r#"{"sub":"ann","iss":"them","aud":"mqtt"}"#,
            Some(TokenError::Issuer),
        ),
        (r#"{"sub":"ann","aud":"mqtt"}"#, Some(TokenError::Issuer)),
        (
            r#"{"sub":"ann","iss":"us","aud":"web"}"#,
            Some(TokenError::Audience),
        ),
        (r#"{"sub":"ann","iss":"us"}"#, Some(TokenError::Audience)),
    ];
    for (claims, expected) in cases {
        let tokens = tokens(Some("us"), Some("mqtt"));
        let result = tokens.verify(signed(header, claims).as_bytes(), NOW_S);
        assert_eq!(result.err(), expected, "{claims}");
    }
}

#[test]
fn what_is_no_token_or_of_another_kind_is_refused() {
    let good = signed(r#"{"alg":"HS256"}"#, r#"{"sub":"ann"}"#);
    let (unsigned, _) = good.rsplit_once('.').expect("three parts");
    let none = signed(r#"{"alg":"none"}"#, r#"{"sub":"ann"}"#);
    let critical = signed(r#"{"alg":"HS256","crit":["b64"]}"#, r#"{"sub":"ann"}"#);
    let other = TokenError::OtherAlgorithm("HS256");
    let cases = [
        ("empty", String::new(), TokenError::Malformed),
        ("two parts", unsigned.to_owned(), TokenError::Malformed),
        ("four parts", format!("{good}.x"), TokenError::Malformed),
        (
            "no signature",
            format!("{unsigned}."),
            TokenError::Signature,
        ),
        ("padding", format!("{good}="), TokenError::Malformed),
        ("no algorithm", none, other.clone()),
        ("an extension", critical, other),
        (
            "long",
            format!("{good}{}", "A".repeat(MOST_BYTES)),
            TokenError::Malformed,
        ),
    ];
    for (name, token, expected) in cases {
        let result = tokens(None, None).verify(token.as_bytes(), NOW_S);
        assert_eq!(result, Err(expected), "{name}");
    }
    assert!(Tokens::looks_like(good.as_bytes()));
    assert!(!Tokens::looks_like(b"a.password.with.dots"));
}

#[test]
fn a_file_that_is_no_key_is_refused() {
    let new = |algorithm, key: &str| Tokens::new(algorithm, key.as_bytes(), None, None);
    let cases = [
        (new(Algorithm::Hs256, "short\n"), KeyError::ShortSecret(5)),
        (new(Algorithm::Rs256, "not a key"), KeyError::NotPem),
        (new(Algorithm::Rs256, EC_KEY), KeyError::OtherKey("RS256")),
        (new(Algorithm::Es256, RSA_KEY), KeyError::OtherKey("ES256")),
    ];
    for (result, expected) in cases {
        assert_eq!(result.err(), Some(expected));
    }
}
