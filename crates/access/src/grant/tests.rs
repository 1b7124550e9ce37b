use super::*;
use crate::token::Algorithm;
use crate::users::hash_password;

fn policy(users: &str, acl: &str) -> Policy {
    Policy {
        users: Some(Users::parse(users).expect("users")),
        acl: Some(Acl::parse(acl).expect("an ACL")),
        ..Policy::default()
    }
}

fn line(name: &str, password: &str) -> String {
    format!("{name}:{}\n", hash_password(password.as_bytes(), [3; 16]))
}

fn applicant<'a>(user_name: Option<&'a str>, password: &'a str) -> Applicant<'a> {
    Applicant {
        listener: 0,
        client_id: "dev",
        user_name,
        password: Some(password.as_bytes()),
        certificate_name: None,
    }
}

#[track_caller]
fn granted(judgement: Judgement) -> Arc<Grant> {
    match judgement {
        Judgement::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn receives(grant: &Grant, topic: &str) -> bool {
    grant.rights.as_ref().expect("rights").may_receive(topic)
}

#[test]
fn a_user_gets_its_rights_and_a_stranger_nothing() {
    let policy = policy(&line("ann", "secret"), "user ann\ntopic home/#");
    let grant = granted(policy.judge(
        &applicant(Some("ann"), "secret"),
        0,
        &mut HashMemory::default(),
    ));
    assert_eq!(grant.user_name.as_deref(), Some("ann"));
    assert!(receives(&grant, "home/x") && !receives(&grant, "x"));
    assert!(matches!(
        policy.judge(
            &applicant(Some("ann"), "wrong"),
            0,
            &mut HashMemory::default()
        ),
        Judgement::Refused(_)
    ));
    assert_eq!(
        policy.judge(
            &applicant(Some("eve"), "secret"),
            0,
            &mut HashMemory::default()
        ),
        Judgement::Unknown
    );
    assert_eq!(
        policy.judge(&applicant(None, ""), 0, &mut HashMemory::default()),
        Judgement::Unknown
    );
    assert_eq!(policy.grant_anonymous(0, "dev"), Judgement::Unknown);
}

#[test]
fn a_certificate_speaks_before_a_password_where_certificates_are_trusted() {
    let mut policy = policy(&line("ann", "secret"), "pattern read %u/#");
    let with_certificate = Applicant {
        certificate_name: Some("bob"),
        ..applicant(Some("ann"), "wrong")
    };
    assert!(matches!(
        policy.judge(&with_certificate, 0, &mut HashMemory::default()),
        Judgement::Refused(_)
    ));
    policy.trusts_certificates = true;
    let grant = granted(policy.judge(&with_certificate, 0, &mut HashMemory::default()));
    assert_eq!(grant.user_name.as_deref(), Some("bob"));
    assert!(receives(&grant, "bob/x") && !receives(&grant, "ann/x"));
}

#[test]
fn a_grant_is_reviewed_when_files_change() {
    let before = policy(
        &(line("ann", "a") + &line("bob", "b") + &line("eve", "e")),
        "pattern read %u/#",
    );
    let grant = |name: &str, password: &str| {
        granted(before.judge(
            &applicant(Some(name), password),
            0,
            &mut HashMemory::default(),
        ))
    };
    let (ann, bob, eve) = (grant("ann", "a"), grant("bob", "b"), grant("eve", "e"));
    assert_eq!(before.review(&ann), Review::Same);
    let after = policy(
        &(line("ann", "a") + &line("bob", "another")),
        "pattern read %u/#\nuser ann\ntopic read more/#",
    );
    match after.review(&ann) {
        Review::Changed(grant) => {
            assert!(receives(&grant, "more/x") && receives(&grant, "ann/x"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(after.review(&bob), Review::Ended, "password changed");
    assert_eq!(after.review(&eve), Review::Ended, "user gone");
}

#[test]
fn rules_that_came_with_a_grant_outlive_a_reload() {
    let policy = policy("", "pattern read acl/#");
    let rules = [Rule::parse("read own/%c", true).expect("a rule")];
    let own = policy.grant_for_hook(Some("ann"), "dev", Some(&rules));
    assert!(receives(&own, "own/dev") && !receives(&own, "acl/x"));
    assert_eq!(policy.review(&own), Review::Same);
    let plain = policy.grant_for_hook(Some("ann"), "dev", None);
    assert!(receives(&plain, "acl/x"));
}

#[test]
fn nobody_is_asked_only_where_everybody_has_all_rights() {
    let open = Policy {
        allows_anonymous: true,
        ..Policy::default()
    };
    assert!(open.is_open_at(0));
    assert!(!Policy::default().is_open_at(0));
    let with_acl = Policy {
        acl: Some(Acl::default()),
        ..open.clone()
    };
    assert!(!with_acl.is_open_at(0));
    let tokens = Tokens::new(Algorithm::Hs256, &[b'k'; 32], None, None).expect("a key");
    let with_tokens = Policy {
        tokens: Some(tokens),
        ..open
    };
    assert!(!with_tokens.is_open_at(0));
}

#[test]
fn a_listener_may_have_users_of_its_own() {
    let mut policy = policy(&line("ann", "a"), "");
    policy.listeners = vec![
        ListenerPolicy::default(),
        ListenerPolicy {
            users: Some(Users::parse(&line("bob", "b")).expect("users")),
            allows_anonymous: Some(true),
            ..ListenerPolicy::default()
        },
    ];
    let at = |listener, name, password| {
        let applicant = Applicant {
            listener,
            ..applicant(Some(name), password)
        };
        policy.judge(&applicant, 0, &mut HashMemory::default())
    };
    assert_eq!(at(0, "bob", "b"), Judgement::Unknown);
    assert_eq!(at(1, "ann", "a"), Judgement::Unknown);
    let (ann, bob) = (granted(at(0, "ann", "a")), granted(at(1, "bob", "b")));
    assert_eq!(policy.review(&ann), Review::Same);
    assert_eq!(policy.review(&bob), Review::Same);
    assert_eq!(policy.grant_anonymous(0, "dev"), Judgement::Unknown);
    granted(policy.grant_anonymous(1, "dev"));
}

#[test]
fn names_in_certificates_are_taken_at_the_listeners_that_say_so() {
    let at = |policy: &Policy, listener| {
        let applicant = Applicant {
            listener,
            certificate_name: Some("bob"),
            ..applicant(Some("ann"), "wrong")
        };
        policy.judge(&applicant, 0, &mut HashMemory::default())
    };
    let own = |trusts_certificates| ListenerPolicy {
        trusts_certificates,
        ..ListenerPolicy::default()
    };
    let mut policy = Policy {
        listeners: vec![own(None), own(Some(true)), own(Some(false))],
        ..Policy::default()
    };
    let known = |policy: &Policy| [0, 1, 2].map(|listener| policy.knows_users_at(listener));
    assert_eq!(known(&policy), [false, true, false]);
    assert_eq!(at(&policy, 0), Judgement::Unknown);
    let grant = granted(at(&policy, 1));
    assert_eq!(grant.user_name.as_deref(), Some("bob"));
    assert_eq!(policy.review(&grant), Review::Same);
    policy.trusts_certificates = true;
    assert_eq!(known(&policy), [true, true, false]);
    granted(at(&policy, 0));
    assert_eq!(at(&policy, 2), Judgement::Unknown);
    // The client of a listener that no longer trusts certificates goes, others stay.
    policy.listeners[1] = own(Some(false));
    assert_eq!(policy.review(&grant), Review::Ended);
}

#[test]
fn a_password_that_was_correct_is_recalled_with_the_rights_of_now_and_no_other() {
    let before = policy(&line("ann", "secret"), "user ann\ntopic home/#");
    let mut verified = Verified::new([1; 32], 10);
    let ann = applicant(Some("ann"), "secret");
    assert!(before.recall(&ann, &mut verified).is_none());
    before.remember(&ann, &mut verified);
    let now = policy(&line("ann", "secret"), "user ann\ntopic garden/#");
    let grant = now.recall(&ann, &mut verified).expect("correct before");
    assert_eq!(
        grant,
        granted(now.judge(&ann, 0, &mut HashMemory::default()))
    );
    let wrong = applicant(Some("ann"), "wrong");
    assert!(now.recall(&wrong, &mut verified).is_none());
}

#[test]
fn a_password_is_not_recalled_once_the_file_has_another_hash_or_no_user_of_that_name() {
    let text = line("ann", "secret") + &line("bob", "hidden");
    let before = policy(&text, "");
    let again = format!("ann:{}\n", hash_password(b"secret", [4; 16]));
    for (now, count) in [
        (line("bob", "hidden"), 1),
        (again + &line("bob", "hidden"), 1),
        (text.clone(), 2),
    ] {
        let mut verified = Verified::new([1; 32], 10);
        for (name, password) in [("ann", "secret"), ("bob", "hidden")] {
            before.remember(&applicant(Some(name), password), &mut verified);
        }
        let now = policy(&now, "");
        let ann = applicant(Some("ann"), "secret");
        assert_eq!(now.recall(&ann, &mut verified).is_some(), count == 2);
        now.forget_changed(&mut verified);
        assert_eq!(verified.count(), count);
    }
}

#[test]
fn a_password_of_one_listener_is_recalled_at_no_other_with_a_file_of_its_own() {
    let own = format!("ann:{}\n", hash_password(b"secret", [9; 16]));
    let policy = Policy {
        listeners: vec![
            ListenerPolicy::default(),
            ListenerPolicy {
                users: Some(Users::parse(&own).expect("users")),
                ..ListenerPolicy::default()
            },
        ],
        ..policy(&line("ann", "secret"), "")
    };
    let mut verified = Verified::new([1; 32], 10);
    let here = applicant(Some("ann"), "secret");
    let there = Applicant {
        listener: 1,
        ..here
    };
    policy.remember(&here, &mut verified);
    assert!(policy.recall(&there, &mut verified).is_none());
    policy.remember(&there, &mut verified);
    for applicant in [&here, &there] {
        assert!(policy.recall(applicant, &mut verified).is_some());
    }
    policy.forget_changed(&mut verified);
    assert_eq!(verified.count(), 2);
}

#[test]
fn where_the_file_of_users_does_not_decide_nothing_is_recalled() {
    let policy = Policy {
        trusts_certificates: true,
        ..policy(&line("ann", "secret"), "")
    };
    let mut verified = Verified::new([1; 32], 10);
    let ann = applicant(Some("ann"), "secret");
    let by_certificate = Applicant {
        certificate_name: Some("lamp"),
        ..ann
    };
    policy.remember(&ann, &mut verified);
    assert!(policy.recall(&ann, &mut verified).is_some());
    assert!(policy.recall(&by_certificate, &mut verified).is_none());
    policy.remember(&by_certificate, &mut verified);
    assert_eq!(verified.count(), 1);
}
