use super::*;
use crate::scratch::Scratch;

fn error_of(settings: Settings) -> String {
    checked(&settings).expect_err("refused").to_string()
}

fn checked(settings: &Settings) -> Result<Access, ConfigErrors> {
    let mut faults = Faults::default();
    let access = Access::check(settings, false, &mut faults);
    faults.end(access)
}

#[test]
fn a_bad_file_is_named_with_its_line_and_what_was_expected() {
    let scratch = Scratch::new();
    let cases = [
        (
            Settings {
                acl: Some(scratch.file("acl", "topic read a\nallow b\n")),
                ..Settings::default()
            },
            "acl: ",
            "/acl: line 2: expected `user`, `topic` or `pattern`, found \"allow\"",
        ),
        (
            Settings {
                users: Some(scratch.file("users", "ann=x")),
                ..Settings::default()
            },
            "users: ",
            "/users, line 1: expected `name:$argon2id$...`, found no colon",
        ),
        (
            Settings {
                http_users: Some(scratch.file("http", "ann:x")),
                ..Settings::default()
            },
            "http_users: ",
            "/http: line 1: expected `viewer NAME:HASH`, `admin NAME:HASH` or `metrics NAME:HASH`",
        ),
        (
            Settings {
                http_tokens: Some(scratch.file("tokens", "# none\nviewer robot\n")),
                ..Settings::default()
            },
            "http_tokens: ",
            "/tokens: line 2: expected `SCOPE NAME EXPIRES HASH`",
        ),
        (
            Settings {
                jwt_key: Some(scratch.file("key", "no key")),
                jwt_algorithm: Some(AlgorithmChoice::Rs256),
                ..Settings::default()
            },
            "jwt_key: ",
            "/key: expected a public key in PEM",
        ),
        (
            Settings {
                acl: Some("/nowhere/acl".into()),
                ..Settings::default()
            },
            "acl: cannot read /nowhere/acl",
            "",
        ),
    ];
    for (settings, start, part) in cases {
        let error = error_of(settings);
        assert!(error.starts_with(start) && error.contains(part), "{error}");
    }
}

#[test]
fn settings_that_say_nothing_alone_are_refused() {
    let text = |text: &str| Some(text.to_owned());
    let default = Settings::default;
    let cases = [
        (
            Settings {
                jwt_issuer: text("x"),
                ..default()
            },
            "without jwt_key",
        ),
        (
            Settings {
                jwt_key: Some("key".into()),
                ..default()
            },
            "needs a jwt_algorithm",
        ),
        (
            Settings {
                jwt_key: Some("key".into()),
                jwt_oidc_issuer: text("https://id.example"),
                ..default()
            },
            "exclude each other",
        ),
        (
            Settings {
                jwt_oidc_issuer: text("https://id.example"),
                jwt_issuer: text("x"),
                ..default()
            },
            "jwt_issuer has no place",
        ),
        (
            Settings {
                jwt_jwks: text("http://192.0.2.1/keys"),
                ..default()
            },
            "jwt_jwks = http://192.0.2.1/keys: expected https://",
        ),
        (
            Settings {
                jwt_refresh_s: Some(60),
                ..default()
            },
            "without jwt_jwks",
        ),
        (
            Settings {
                auth_hook_cache_s: Some(1),
                ..default()
            },
            "without auth_hook",
        ),
        (
            Settings {
                auth_hook: text("ftp://x/y"),
                ..default()
            },
            "expected http://HOST:PORT/PATH",
        ),
        (
            Settings {
                auth_hook: text("http:///y"),
                ..default()
            },
            "expected http://HOST:PORT/PATH",
        ),
        (
            Settings {
                auth_hook: text("http://x"),
                auth_hook_timeout_ms: Some(1),
                ..default()
            },
            "expected 10 to 60000",
        ),
        (
            Settings {
                allow_anonymous: Some(false),
                ..default()
            },
            "needs a file of users",
        ),
    ];
    for (settings, expected) in cases {
        let error = error_of(settings);
        assert!(error.contains(expected), "`{expected}` in {error}");
    }
}

#[test]
fn who_is_let_in_unasked_follows_from_what_is_set() {
    let scratch = Scratch::new();
    let acl = scratch.file("open-acl", "topic read #");
    let default = Settings::default;
    let cases = [
        ("nothing", default(), true),
        (
            "rights",
            Settings {
                acl: Some(acl),
                ..default()
            },
            false,
        ),
        (
            "certificates",
            Settings {
                certificate_users: Some(true),
                ..default()
            },
            false,
        ),
        (
            "a hook",
            Settings {
                auth_hook: Some("http://localhost:1/x".into()),
                ..default()
            },
            false,
        ),
    ];
    for (name, settings, expected) in cases {
        let access = checked(&settings).expect(name);
        assert_eq!(access.allows_anonymous(), expected, "{name}");
    }
}
