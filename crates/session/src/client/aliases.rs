//! Topic aliases, which live as long as a connection [MQTT-3.3.2-7].

use super::PeerError;
use crate::seeded_hash::SeededHash;

/// Topics the server has given numbers to.
#[derive(Debug, Default)]
pub(super) struct InboundAliases {
    maximum: u16,
    /// By alias, from 1; grows to the highest one used. Empty: stands for none.
    topics: Vec<String>,
}

impl InboundAliases {
    pub(super) fn new(maximum: u16) -> Self {
        Self {
            maximum,
            topics: Vec::new(),
        }
    }

    /// The topic of a PUBLISH with `topic`, perhaps empty, and `alias`.
    pub(super) fn resolve<'a>(
        &'a mut self,
        topic: &'a str,
        alias: u16,
    ) -> Result<&'a str, PeerError> {
        if alias == 0 || alias > self.maximum {
            return Err(PeerError::TopicAliasInvalid {
                alias,
                maximum: self.maximum,
            });
        }
        let index = usize::from(alias) - 1;
        if topic.is_empty() {
            let known = self.topics.get(index).filter(|known| !known.is_empty());
            return known
                .map(String::as_str)
                .ok_or(PeerError::TopicAliasUnknown { alias });
        }
        if index >= self.topics.len() {
            self.topics.resize_with(index + 1, String::new);
        }
        let known = &mut self.topics[index];
        known.clear();
        known.push_str(topic);
        Ok(topic)
    }
}

/// How a PUBLISH gives its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AliasUse {
    /// The topic alone.
    TopicOnly,
    /// The topic, and an alias that stands for it from now on.
    Define(u16),
    /// The alias alone.
    AliasOnly(u16),
}

/// Numbers that we have given to topics: a topic's hash determines its alias, and a newcomer replaces the older one.
///
/// One lookup a message and nothing to keep in order. Two busy topics with one alias cost what no alias would.
#[derive(Debug)]
pub(super) struct OutboundAliases {
    hash: SeededHash,
    /// By alias, from 1.
    topics: Vec<String>,
}

/// A topic this short costs no more than its alias.
const SHORT_TOPIC_BYTES: usize = 3;

impl OutboundAliases {
    pub(super) fn new(maximum: u16) -> Self {
        // The seed need not be secret: a caller that makes topics collide here only makes its own messages longer.
        Self {
            hash: SeededHash::new(0),
            topics: vec![String::new(); usize::from(maximum)],
        }
    }

    /// What to send for `topic`. The packet must then go out, or the server misses the definition.
    #[inline]
    pub(super) fn choose(&mut self, topic: &str) -> AliasUse {
        if self.topics.is_empty() || topic.len() <= SHORT_TOPIC_BYTES {
            return AliasUse::TopicOnly;
        }
        let index = self.index(topic);
        let known = &mut self.topics[index];
        let alias = index as u16 + 1;
        if known == topic {
            return AliasUse::AliasOnly(alias);
        }
        known.clear();
        known.push_str(topic);
        AliasUse::Define(alias)
    }

    /// Undoes `choose` for `topic`: the packet was not sent.
    #[cold]
    pub(super) fn forget(&mut self, topic: &str) {
        if !self.topics.is_empty() {
            let index = self.index(topic);
            self.topics[index].clear();
        }
    }

    fn index(&self, topic: &str) -> usize {
        let count = self.topics.len() as u64;
        // The high half of the product: an even share for each place without a division.
        (((self.hash.text(topic) >> 32) * count) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn inbound_aliases_are_defined_used_and_redefined() {
        type Expected = Result<&'static str, PeerError>;
        let too_high = PeerError::TopicAliasInvalid {
            alias: 3,
            maximum: 2,
        };
        let steps: &[(&str, &str, u16, Expected)] = &[
            (
                "unknown",
                "",
                1,
                Err(PeerError::TopicAliasUnknown { alias: 1 }),
            ),
            ("defined", "a/b", 2, Ok("a/b")),
            ("used", "", 2, Ok("a/b")),
            (
                "a lower one is still unknown",
                "",
                1,
                Err(PeerError::TopicAliasUnknown { alias: 1 }),
            ),
            ("redefined", "c", 2, Ok("c")),
            ("used again", "", 2, Ok("c")),
            ("too high", "d", 3, Err(too_high)),
            (
                "zero",
                "d",
                0,
                Err(PeerError::TopicAliasInvalid {
                    alias: 0,
                    maximum: 2,
                }),
            ),
        ];
        let mut aliases = InboundAliases::new(2);
        for (name, topic, alias, expected) in steps {
            assert_eq!(aliases.resolve(topic, *alias), *expected, "{name}");
        }
        assert!(InboundAliases::default().resolve("a", 1).is_err());
    }

    #[test]
    fn outbound_aliases_always_mean_the_topic_to_a_server_that_follows() {
        let mut aliases = OutboundAliases::new(8);
        let mut server = HashMap::new();
        let mut saved = 0;
        for round in 0..200 {
            let topic = format!("topic/{}", round % 11);
            match aliases.choose(&topic) {
                AliasUse::TopicOnly => unreachable!("there are aliases"),
                AliasUse::Define(alias) => {
                    assert!((1..=8).contains(&alias));
                    server.insert(alias, topic);
                }
                AliasUse::AliasOnly(alias) => {
                    assert_eq!(server[&alias], topic);
                    saved += 1;
                }
            }
        }
        assert!(saved > 0);
        let AliasUse::Define(alias) = aliases.choose("a topic that fails") else {
            unreachable!("it is new")
        };
        aliases.forget("a topic that fails");
        assert_eq!(
            aliases.choose("a topic that fails"),
            AliasUse::Define(alias)
        );
        assert_eq!(
            aliases.choose("a/b"),
            AliasUse::TopicOnly,
            "too short to save anything"
        );
        assert_eq!(
            OutboundAliases::new(0).choose("topic/long"),
            AliasUse::TopicOnly
        );
    }
}
