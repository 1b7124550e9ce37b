//! What must hold for files and tokens whatever they hold: nothing panics, and rights never contradict themselves.

use thicket_access::{
    Acl, Algorithm, ApiUsers, Client, HashMemory, Keys, Login, Reach, Tokens, Users,
    hook::Answer,
    scram::{ClientExchange, ServerExchange},
};

/// The first line names a user, a client, a topic and a filter; the rest is an ACL.
///
/// # Panics
/// If a filter that is read wholly matches a topic that may not be received, or the other way round.
pub fn access_acl(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (first, file) = text.split_once('\n').unwrap_or((text, ""));
    let mut words = first.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (user_name, client_id, topic, filter) = (word(), word(), word(), word());
    let client = Client {
        user_name: Some(user_name).filter(|name| !name.is_empty()),
        client_id,
    };
    let Ok(acl) = Acl::parse(file) else { return };
    let rights = acl.rights(client);
    let is_topic = !topic.is_empty() && !topic.contains(['+', '#', '\0']);
    let Ok(filter) = thicket_session::topic::TopicFilter::new(filter) else {
        return;
    };
    if !is_topic || !filter.matches(topic) {
        return;
    }
    match rights.may_subscribe(filter.as_str()) {
        Reach::All => assert!(rights.may_receive(topic), "{topic} of {filter}"),
        Reach::Nothing => assert!(!rights.may_receive(topic), "{topic} of {filter}"),
        Reach::Part => {}
    }
}

/// The first line is a token, the rest the keys of its provider.
///
/// # Panics
/// If a token is accepted that nobody signed: the fuzzer has no private key.
pub fn access_jwk_set(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let (token, set) = bytes.split_at(end.unwrap_or(0));
    let Ok(keys) = Keys::of_provider(set.trim_ascii()) else {
        return;
    };
    let mut tokens = Tokens::of_provider(None, None);
    tokens.set_keys(keys);
    assert!(tokens.verify(token, 1_900_000_000).is_err(), "a forged one");
}

/// Everything else that is parsed: users, users of the API, tokens, answers of a hook, messages of SCRAM.
///
/// # Panics
/// If an unknown user is let in, or one proves to know a password who does not.
pub fn access_credentials(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = ApiUsers::parse(text);
        // Hashing a password for every input would leave no time for others.
        if text.len() < 8
            && let Ok(users) = Users::parse(text)
        {
            assert_ne!(users.verify("nobody", bytes, &mut HashMemory::default()), Login::Good);
        }
    }
    let _ = Answer::parse(bytes);
    let tokens = Tokens::new(Algorithm::Hs256, &[7; 32], None, None).expect("a key");
    assert!(
        tokens.verify(bytes, 1_900_000_000).is_err(),
        "a forged token"
    );
    for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa] {
        let _ = Tokens::new(algorithm, bytes, None, None);
    }
    let mut client = ClientExchange::new("user", b"pencil", "nonce");
    assert!(client.verify(bytes).is_err());
    // A challenge costs what it asks for.
    if !bytes.windows(3).any(|three| three == b",i=") {
        let _ = client.respond(bytes);
    }
    thread_local! {
        static USERS: Users = Users::parse("").expect("an empty file");
    }
    USERS.with(|users| {
        let _ = ServerExchange::start(users, bytes, "nonce");
        let (server, _) =
            ServerExchange::start(users, b"n,,n=user,r=nonce", "nonce").expect("good");
        assert!(server.finish(bytes).is_err(), "there are no users");
    });
}
