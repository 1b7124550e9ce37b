//! Names of topics: a text with placeholders.

use crate::random::Random;

/// The run: distinct for simultaneous runs.
const RUN: &str = "{run}";
/// The number of the topic; in the tree of `iot` its path.
const NUMBER: &str = "{n}";
/// Eight hexadecimal digits, drawn from the seed for each topic.
const DRAWN: &str = "{random}";
/// Most bytes of a name: what a length of two bytes leaves for placeholders (MQTT 5.0, 1.5.4).
const LONGEST: usize = 60_000;

/// How topics are named: `dst/mqtt/`, `plant/{n}/temperature`, `topic-tree/{random}/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate(String);

impl TopicTemplate {
    /// Reads a template; an error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = [RUN, NUMBER, DRAWN]
            .iter()
            .fold(text.to_owned(), |rest, known| rest.replace(known, ""));
        if text.is_empty() || text.len() > LONGEST {
            return Err(format!("{} bytes are no name of a topic", text.len()));
        }
        if text.starts_with('$') {
            return Err("topics that start with $ belong to brokers".to_owned());
        }
        match rest.chars().find(|letter| "{}+#\0".contains(*letter)) {
            Some(letter) => Err(format!(
                "{letter:?} is not allowed; placeholders are {RUN}, {NUMBER} and {DRAWN}"
            )),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The usual names of a pattern.
    pub(super) fn of_pattern(word: &str) -> Self {
        Self(format!("{RUN}/{word}/{NUMBER}"))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether names of different runs differ.
    #[must_use]
    pub fn names_run(&self) -> bool {
        self.0.contains(RUN)
    }

    /// Whether names of different topics differ.
    pub(super) fn tells_topics_apart(&self) -> bool {
        self.0.contains(NUMBER) || self.0.contains(DRAWN)
    }

    /// The name of a topic.
    pub(super) fn name(&self, run: &str, seed: u64, number: usize) -> String {
        let own = seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let drawn = || format!("{:08x}", Random::new(own).bits() >> 32);
        self.filled(run, &number.to_string(), &drawn)
    }

    /// The name of a node in a tree of topics, by its path; `None` if the path is not the end of
    /// the name.
    pub(super) fn path(&self, run: &str, path: &str) -> Option<String> {
        let start = self.0.strip_suffix(NUMBER)?.strip_suffix('/')?;
        if start.contains(NUMBER) || start.contains(DRAWN) {
            return None;
        }
        let start = start.replace(RUN, run);
        Some(match path {
            "" => start,
            path => format!("{start}/{path}"),
        })
    }

    /// The filter that matches all topics; `None` if what tells them apart is not a whole level of
    /// the name.
    pub(super) fn filter(&self, run: &str) -> Option<String> {
        let level = |level: &str| match level {
            NUMBER | DRAWN => Some("+".to_owned()),
            level if level.contains(NUMBER) || level.contains(DRAWN) => None,
            level => Some(level.replace(RUN, run)),
        };
        let levels: Option<Vec<String>> = self.0.split('/').map(level).collect();
        Some(levels?.join("/"))
    }

    fn filled(&self, run: &str, number: &str, drawn: &dyn Fn() -> String) -> String {
        let mut name = self.0.replace(RUN, run).replace(NUMBER, number);
        if name.contains(DRAWN) {
            name = name.replace(DRAWN, &drawn());
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> TopicTemplate {
        TopicTemplate::parse(text).unwrap()
    }

    #[test]
    fn names_are_the_text_with_its_placeholders_filled() {
        for (text, name) in [
            ("dst/mqtt/", "dst/mqtt/"),
            ("{run}/out/{n}", "r7/out/3"),
            ("plant/{n}/temperature", "plant/3/temperature"),
        ] {
            assert_eq!(template(text).name("r7", 1, 3), name);
        }
        let random = template("topic-tree/{random}/");
        let names: Vec<String> = (0..50).map(|topic| random.name("r", 1, topic)).collect();
        assert!(
            names
                .iter()
                .all(|name| name.len() == "topic-tree/01234567/".len())
        );
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), 50);
        assert_eq!(names[4], random.name("other", 1, 4));
        assert_ne!(names[4], random.name("r", 2, 4));
    }

    #[test]
    fn one_filter_matches_all_topics_if_what_differs_is_a_level() {
        for (text, filter) in [
            ("{run}/in/{n}", Some("r/in/+")),
            ("a/{random}/b", Some("a/+/b")),
            ("dst/mqtt/", Some("dst/mqtt/")),
            ("sensor{n}", None),
        ] {
            assert_eq!(template(text).filter("r").as_deref(), filter, "{text}");
        }
    }

    #[test]
    fn a_path_is_the_end_of_a_name() {
        let places = template("{run}/iot/{n}");
        assert_eq!(places.path("r", "0/2").as_deref(), Some("r/iot/0/2"));
        assert_eq!(places.path("r", "").as_deref(), Some("r/iot"));
        assert_eq!(template("{n}/t").path("r", "0"), None);
    }

    #[test]
    fn texts_that_are_no_topics_are_refused() {
        for (text, words) in [
            ("", "0 bytes"),
            ("a/+/b", "'+' is not allowed"),
            ("a/{topic}", "placeholders are {run}, {n} and {random}"),
            ("$SYS/x", "belong to brokers"),
        ] {
            let error = TopicTemplate::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
