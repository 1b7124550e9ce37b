//! What one client may publish and subscribe to.

use std::sync::Arc;

use hashbrown::HashMap;
use thicket_session::topic::{TopicFilter, TopicFilterError, matches};

use crate::filter::{covers, intersection};

/// Topics whose verdicts a [`CachedRights`] keeps before it starts again.
const CACHED_TOPICS: usize = 128;
/// Longer topics are checked each time, so that a client cannot fill memory with them.
const CACHED_TOPIC_BYTES: usize = 256;

/// The effect of a rule on the topics it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Beats every [`Effect::Allow`], wherever it stands.
    Deny,
    /// Without one of these nothing is allowed.
    Allow,
}

/// Which directions a rule is about, as the client sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// To receive.
    Read,
    /// To publish.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// Whether it is about receiving.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether it is about publishing.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// One rule, perhaps with `%u` (user name) and `%c` (client identifier) in its filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    effect: Effect,
    access: Access,
    filter: Box<str>,
    is_pattern: bool,
}

/// Why a text is no rule. Nothing was kept of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Malformed: nothing after the words of access.
    #[error("expected a topic filter, found the end of the line")]
    MissingFilter,
    /// Malformed: the filter breaks a rule of MQTT.
    #[error("expected a topic filter, found {filter:?}: {problem}")]
    Filter {
        /// As written.
        filter: String,
        /// Which rule.
        problem: TopicFilterError,
    },
    /// Malformed: a mistyped word of access would become a part of the filter, and a denial would deny nothing.
    #[error(
        "expected `read`, `write`, `readwrite` or `deny`, found {word:?}: a filter that begins so needs one of them before it"
    )]
    UnknownAccess {
        /// As written.
        word: String,
    },
}

impl Rule {
    /// A rule for topics that `filter` matches. `is_pattern`: `%u` and `%c` stand for user name and client identifier.
    ///
    /// # Errors
    /// `filter` is no topic filter.
    pub fn new(
        effect: Effect,
        access: Access,
        filter: &str,
        is_pattern: bool,
    ) -> Result<Self, RuleError> {
        let plain = if is_pattern {
            filter.replace("%u", "u").replace("%c", "c")
        } else {
            filter.to_owned()
        };
        if plain.is_empty() {
            return Err(RuleError::MissingFilter);
        }
        TopicFilter::new(&plain).map_err(|problem| RuleError::Filter {
            filter: filter.to_owned(),
            problem,
        })?;
        let is_pattern = is_pattern && plain != filter;
        Ok(Self {
            effect,
            access,
            filter: filter.into(),
            is_pattern,
        })
    }

    /// Parses `[read|write|readwrite|deny [read|write|readwrite]] FILTER`, as it stands after `topic` or `pattern` in an ACL file
    /// and in the `acl` of a token or of a hook's answer. Without a word of access it is `readwrite`. A filter may hold
    /// blanks: in its first level only behind a word of access.
    ///
    /// # Errors
    /// There is no filter, it breaks a rule of MQTT, or the word of access is none of these.
    pub fn parse(text: &str, is_pattern: bool) -> Result<Self, RuleError> {
        let text = text.trim();
        let (effect, text) = match after_word(text, "deny") {
            Some(rest) => (Effect::Deny, rest),
            None => (Effect::Allow, text),
        };
        let words = [
            ("readwrite", Access::ReadWrite),
            ("read", Access::Read),
            ("write", Access::Write),
        ];
        let found = words
            .iter()
            .find_map(|(word, access)| Some((*access, after_word(text, word)?)));
        if found.is_none()
            && let Some((word, _)) = text.split_once([' ', '\t'])
            && !word.contains(['/', '+', '#', '%', '$'])
        {
            let word = word.to_owned();
            return Err(RuleError::UnknownAccess { word });
        }
        let (access, filter) = found.unwrap_or((Access::ReadWrite, text));
        Self::new(effect, access, filter, is_pattern)
    }

    /// The rule for one client.
    ///
    /// A name that is empty, absent, holds `+`, `#`, `/` or U+0000, or would begin the filter with `$`, must not widen a rule: then
    /// what the rule would allow, it does not, and what it would deny, it denies for everybody's names.
    fn bind(&self, client: Client<'_>) -> Option<BoundRule> {
        let bound = |filter: Box<str>| {
            Some(BoundRule {
                effect: self.effect,
                access: self.access,
                filter,
            })
        };
        if !self.is_pattern {
            return bound(self.filter.clone());
        }
        let mut filter = String::with_capacity(self.filter.len() + 16);
        let mut rest = &*self.filter;
        while let Some(at) = next_placeholder(rest) {
            let value = match &rest[at..at + 2] {
                "%u" => client.user_name.unwrap_or_default(),
                _ => client.client_id,
            };
            filter.push_str(&rest[..at]);
            // No wildcard matches topics of the broker [MQTT-4.7.2-1], and no name may.
            let begins_with_dollar = filter.is_empty() && value.starts_with('$');
            if begins_with_dollar || value.is_empty() || value.contains(['+', '#', '/', '\0']) {
                if self.effect == Effect::Allow {
                    return None;
                }
                let level_start = filter.rfind('/').map_or(0, |slash| slash + 1);
                filter.truncate(level_start);
                filter.push('#');
                return bound(filter.into());
            }
            filter.push_str(value);
            rest = &rest[at + 2..];
        }
        filter.push_str(rest);
        bound(filter.into())
    }
}

/// `text` after `word` and the blanks behind it.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(word)?;
    if rest.is_empty() {
        return Some(rest);
    }
    rest.starts_with([' ', '\t']).then(|| rest.trim_start())
}

fn next_placeholder(text: &str) -> Option<usize> {
    text.match_indices('%')
        .map(|(at, _)| at)
        .find(|at| matches!(text.as_bytes().get(at + 1), Some(b'u' | b'c')))
}

/// A client whose rights are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// `None`: anonymous.
    pub user_name: Option<&'a str>,
    /// As in CONNECT; empty if the client left it to the broker.
    pub client_id: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BoundRule {
    effect: Effect,
    access: Access,
    filter: Box<str>,
}

/// How much of a filter a client may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// Some topics that match it, not all, or not seen to be all: each message is to be checked.
    Part,
    /// Every topic that matches it.
    All,
}

/// What one client may do: rules with its names filled in. Denials first; what no rule allows is denied.
///
/// Immutable; meant to be shared behind an [`Arc`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// Denials first.
    rules: Box<[BoundRule]>,
}

impl Rights {
    /// Those of `client` under `rules`, whose order does not matter.
    pub fn bind<'a>(rules: impl IntoIterator<Item = &'a Rule>, client: Client<'_>) -> Self {
        let mut rules: Vec<_> = rules
            .into_iter()
            .filter_map(|rule| rule.bind(client))
            .collect();
        rules.sort_by_key(|rule| rule.effect);
        Self {
            rules: rules.into(),
        }
    }

    /// Whether a message may be published to `topic`, a topic name without wildcards.
    #[must_use]
    pub fn may_publish(&self, topic: &str) -> bool {
        self.decide(topic, Access::writes)
    }

    /// Whether a message of `topic` may be delivered to the client.
    #[must_use]
    pub fn may_receive(&self, topic: &str) -> bool {
        self.decide(topic, Access::reads)
    }

    fn decide(&self, topic: &str, asks: fn(Access) -> bool) -> bool {
        self.rules
            .iter()
            .find(|rule| asks(rule.access) && matches(&rule.filter, topic))
            .is_some_and(|rule| rule.effect == Effect::Allow)
    }

    /// How much of what `filter` (without `$share/NAME/`) matches the client may read.
    #[must_use]
    pub fn may_subscribe(&self, filter: &str) -> Reach {
        let of = |effect| {
            self.rules
                .iter()
                .filter(move |rule| rule.access.reads() && rule.effect == effect)
        };
        let denied = || of(Effect::Deny).map(|rule| &*rule.filter);
        let is_whole = of(Effect::Allow).any(|rule| covers(&rule.filter, filter))
            && denied().all(|deny| intersection(deny, filter).is_none());
        if is_whole {
            return Reach::All;
        }
        let reaches = of(Effect::Allow)
            .filter_map(|rule| intersection(&rule.filter, filter))
            .any(|met| !denied().any(|deny| covers(deny, &met)));
        if reaches { Reach::Part } else { Reach::Nothing }
    }
}

/// Rights with the verdicts on recent topics: one small look-up for a repeated topic.
#[derive(Debug)]
pub struct CachedRights {
    rights: Arc<Rights>,
    verdicts: HashMap<Box<str>, Verdicts, foldhash::fast::FixedState>,
}

/// The verdicts on a topic.
#[derive(Debug, Clone, Copy, Default)]
struct Verdicts {
    publish: Option<bool>,
    receive: Option<bool>,
}

impl CachedRights {
    /// Nothing cached yet.
    #[must_use]
    pub fn new(rights: Arc<Rights>) -> Self {
        Self {
            rights,
            verdicts: HashMap::default(),
        }
    }

    /// The rights themselves.
    #[must_use]
    pub const fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// As [`Rights::may_publish`].
    pub fn may_publish(&mut self, topic: &str) -> bool {
        self.look_up(topic, |verdicts| &mut verdicts.publish, Rights::may_publish)
    }

    /// As [`Rights::may_receive`].
    pub fn may_receive(&mut self, topic: &str) -> bool {
        self.look_up(topic, |verdicts| &mut verdicts.receive, Rights::may_receive)
    }

    fn look_up(
        &mut self,
        topic: &str,
        slot: impl Fn(&mut Verdicts) -> &mut Option<bool>,
        decide: impl Fn(&Rights, &str) -> bool,
    ) -> bool {
        if let Some(verdicts) = self.verdicts.get_mut(topic) {
            return *slot(verdicts).get_or_insert_with(|| decide(&self.rights, topic));
        }
        let verdict = decide(&self.rights, topic);
        if topic.len() <= CACHED_TOPIC_BYTES {
            if self.verdicts.len() >= CACHED_TOPICS {
                self.verdicts.clear();
            }
            let mut verdicts = Verdicts::default();
            *slot(&mut verdicts) = Some(verdict);
            self.verdicts.insert(topic.into(), verdicts);
        }
        verdict
    }
}

#[cfg(test)]
mod tests;
