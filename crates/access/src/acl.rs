//! The ACL file.
//!
//! One rule a line, the format of Mosquitto's `acl_file`:
//!
//! ```text
//! # Clients without a user name: lines before the first `user`.
//! topic read public/#
//!
//! user ann
//! topic readwrite home/#
//! topic deny home/safe/#
//! topic deny write home/clock
//!
//! # Everybody, with or without a user name; %u is the user name, %c the client identifier.
//! pattern write devices/%c/up
//! pattern read devices/%c/down
//! ```
//!
//! Denials beat allowances wherever they are, so the order of lines does not matter. What no line allows is denied.

use hashbrown::HashMap;

use crate::{
    problem::Problem,
    rights::{Client, Rights, Rule},
};

/// Who may publish and subscribe to what, by user.
#[derive(Debug, Clone, Default)]
pub struct Acl {
    anonymous: Vec<Rule>,
    users: HashMap<Box<str>, Vec<Rule>>,
    everybody: Vec<Rule>,
}

impl Acl {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first line that is no rule, with what was expected.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut acl = Self::default();
        let mut user: Option<&str> = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |expected: String| Problem::new(index + 1, expected);
            let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let rule =
                |is_pattern| Rule::parse(rest, is_pattern).map_err(|error| at(error.to_string()));
            match word {
                "user" if rest.trim().is_empty() => {
                    return Err(at("expected a name after `user`".into()));
                }
                "user" => user = Some(rest.trim()),
                "topic" => acl.rules_of(user).push(rule(false)?),
                "pattern" => acl.everybody.push(rule(true)?),
                _ => {
                    return Err(at(format!(
                        "expected `user`, `topic` or `pattern`, found {word:?}"
                    )));
                }
            }
        }
        Ok(acl)
    }

    fn rules_of(&mut self, user: Option<&str>) -> &mut Vec<Rule> {
        match user {
            None => &mut self.anonymous,
            Some(name) => self.users.entry(name.into()).or_default(),
        }
    }

    /// What `client` may do.
    #[must_use]
    pub fn rights(&self, client: Client<'_>) -> Rights {
        let own = match client.user_name {
            None => &self.anonymous,
            Some(name) => self.users.get(name).unwrap_or(const { &Vec::new() }),
        };
        Rights::bind(own.iter().chain(&self.everybody), client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# a comment
topic read public/#

user ann
topic home/#
\ttopic deny home/safe/#
user bob smith
topic write  up/bob
pattern write devices/%c/up
user ann
topic read extra
";

    fn rights(user_name: Option<&str>, client_id: &str) -> Rights {
        Acl::parse(SAMPLE).expect("a good file").rights(Client {
            user_name,
            client_id,
        })
    }

    #[test]
    fn each_user_has_its_own_lines_and_everybody_the_patterns() {
        let (ann, bob) = (rights(Some("ann"), "d1"), rights(Some("bob smith"), "d2"));
        let (nobody, stranger) = (rights(None, "d3"), rights(Some("eve"), "d4"));
        // Topic, then who may publish and who may receive.
        let cases = [
            ("public/x", "", "nobody"),
            ("home/x", "ann", "ann"),
            ("home/safe/x", "", ""),
            ("up/bob", "bob", ""),
            ("extra", "", "ann"),
            ("devices/d1/up", "ann", ""),
            ("devices/d3/up", "nobody", ""),
            ("devices/d4/up", "stranger", ""),
        ];
        for (topic, publish, receive) in cases {
            for (name, rights) in [
                ("ann", &ann),
                ("bob", &bob),
                ("nobody", &nobody),
                ("stranger", &stranger),
            ] {
                assert_eq!(rights.may_publish(topic), name == publish, "{name} {topic}");
                assert_eq!(rights.may_receive(topic), name == receive, "{name} {topic}");
            }
        }
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number_and_what_was_expected() {
        let cases = [
            (
                "unknown word",
                "topic a\nallow x",
                2,
                "expected `user`, `topic` or `pattern`, found \"allow\"",
            ),
            ("no name", "user  ", 1, "expected a name after `user`"),
            ("no filter", "\n\ntopic read", 3, "expected a topic filter"),
            (
                "bad filter",
                "pattern read a/%u/#/b",
                1,
                "expected a topic filter, found \"a/%u/#/b\"",
            ),
        ];
        for (name, text, line, expected) in cases {
            let problem = Acl::parse(text).expect_err(name);
            assert_eq!(problem.line, line, "{name}");
            assert!(problem.expected.starts_with(expected), "{name}: {problem}");
        }
    }
}
