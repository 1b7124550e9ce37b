//! Who owns a session: the session's name in the cluster includes its user, wherever it goes.
//!
//! With [`SessionScope::User`] the name is made of the topic prefix of the listener, the user name and the client identifier, so that another user
//! with the same identifier has a session of its own. Registrars, moves, backups and files use names only.

use crate::SessionScope;

/// Between the parts. No client identifier holds it, as control characters are malformed, and no topic prefix.
const SEPARATOR: char = '\u{1f}';
/// Names are sent with a length of two bytes.
const LONGEST: usize = u16::MAX as usize;

/// The name of a client's session; `None`: it would be too long.
#[must_use]
pub fn session_name(
    scope: SessionScope,
    prefix: &str,
    user_name: Option<&str>,
    client_id: &str,
) -> Option<String> {
    let name = match (scope, prefix, user_name) {
        (SessionScope::Client, _, _) | (SessionScope::User, "", None) => client_id.to_owned(),
        (SessionScope::User, prefix, user_name) => {
            let user_name = user_name.unwrap_or_default();
            format!("{prefix}{SEPARATOR}{user_name}{SEPARATOR}{client_id}")
        }
    };
    (name.len() <= LONGEST).then_some(name)
}

/// The client identifier in the name of a session.
pub(crate) fn client_id_of(name: &str) -> &str {
    name.rsplit_once(SEPARATOR).map_or(name, |(_, id)| id)
}

/// The topic prefix in the name of a session; empty: none, or it is not there.
pub(crate) fn prefix_of(name: &str) -> &str {
    name.split_once(SEPARATOR).map_or("", |(prefix, _)| prefix)
}

/// The user name in the name of a session, if it is there.
pub(crate) fn user_name_of(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once(SEPARATOR)?;
    let (user_name, _) = rest.rsplit_once(SEPARATOR)?;
    Some(user_name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_user_and_prefix_and_tell_both() {
        let name = |prefix, user| session_name(SessionScope::User, prefix, user, "lamp");
        let name = |prefix, user| name(prefix, user).expect("short");
        assert_eq!(name("", None), "lamp");
        let all = [
            name("", None),
            name("", Some("ann")),
            name("", Some("bob")),
            name("tenant/", None),
            name("tenant/", Some("ann")),
            // A user name from elsewhere may contain anything.
            name("", Some("ann\u{1f}x")),
        ];
        let mut different = all.to_vec();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), all.len());
        assert!(all.iter().all(|name| client_id_of(name) == "lamp"));
        let users: Vec<_> = all.iter().map(|name| user_name_of(name)).collect();
        let expected = [
            None,
            Some("ann"),
            Some("bob"),
            None,
            Some("ann"),
            Some("ann\u{1f}x"),
        ];
        assert_eq!(users, expected);
        let prefixes: Vec<_> = all.iter().map(|name| prefix_of(name)).collect();
        assert_eq!(prefixes, ["", "", "", "tenant/", "tenant/", ""]);
    }

    #[test]
    fn without_scope_the_name_is_the_client_identifier() {
        let name = session_name(SessionScope::Client, "tenant/", Some("ann"), "lamp");
        assert_eq!(name.as_deref(), Some("lamp"));
    }

    #[test]
    fn a_name_that_cannot_travel_is_none() {
        let user = "x".repeat(LONGEST - 5);
        let name = |id| session_name(SessionScope::User, "", Some(&user), id);
        assert!(name("abc").is_some());
        assert_eq!(name("abcd"), None);
    }
}
