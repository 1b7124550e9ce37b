//! Topic names and topic filters (5.0, 4.7 and 4.8.2), and the structures that match them.

mod filter;
mod levels;
mod match_cache;
mod name;
mod subscription_filter;
mod subscription_tree;
mod wildcard_trie;

pub use filter::{DEFAULT_MAXIMUM_LEVELS, TopicFilter, TopicFilterError};
pub use match_cache::MatchCache;
pub use name::{TopicName, TopicNameError};
pub use subscription_filter::{ShareName, SubscriptionFilter, SubscriptionFilterError};
pub use subscription_tree::SubscriptionTree;

/// The longest topic name or filter in bytes [MQTT-4.7.3-3].
pub const MAXIMUM_TOPIC_BYTES: usize = 65_535;

/// The longest filter of a subscription in bytes, with its share name and the prefix of the listener. It is less than what a packet holds: a store has a
/// key for each subscription, which begins with the number of the session and has at most as many bytes as a topic.
pub const MAXIMUM_SUBSCRIPTION_BYTES: usize = MAXIMUM_TOPIC_BYTES - 15;

/// Whether `filter` matches `topic` (5.0, 4.7): the plain rule for one pair, both taken to be valid.
///
/// Makes one pass over both. For many filters use a [`SubscriptionTree`].
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    // A publisher of $SYS must not reach clients that subscribed to everything [MQTT-4.7.2-1].
    if topic.starts_with('$') && filter.starts_with(['#', '+']) {
        return false;
    }
    let mut topic_levels = topic.split('/');
    for filter_level in filter.split('/') {
        if filter_level == "#" {
            return true;
        }
        match topic_levels.next() {
            Some(level) if filter_level == "+" || filter_level == level => {}
            Some(_) | None => return false,
        }
    }
    topic_levels.next().is_none()
}

/// Number of levels of a topic name or filter: one more than its slashes.
#[must_use]
pub fn level_count(topic: &str) -> usize {
    topic.bytes().filter(|byte| *byte == b'/').count() + 1
}

/// Whether two names are the same. Names are short: eight bytes at a time without a call cost less than a call; where a rest is left, the last eight
/// are compared, some of them again.
#[must_use]
#[inline]
pub fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        (Some(last), Some(other_last)) => {
            let ((chunks, _), (others, _)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
            last == other_last && chunks.iter().zip(others).all(|(one, other)| one == other)
        }
        _ => one.iter().eq(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_if_no_byte_differs() {
        let name: Vec<u8> = (b'a'..=b'z').collect();
        for len in 0..=name.len() {
            let one = &name[..len];
            assert!(is_same_name(one, &name.clone()[..len]), "{len}");
            for at in 0..len {
                let mut other = one.to_vec();
                other[at] = b'/';
                assert!(!is_same_name(one, &other), "{len}, {at}");
                assert!(!is_same_name(one, &name[..at]), "{len}, {at}");
            }
        }
    }

    #[test]
    fn filters_match_topics_as_the_specification_says() {
        // Examples of 4.7.1 and 4.7.2 first, corners after them.
        let cases: &[(&str, &str, bool)] = &[
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/ranking",
                true,
            ),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/score/wimbledon",
                true,
            ),
            ("sport/#", "sport", true),
            ("#", "sport/tennis", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/monitor", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/monitor", true),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
            ("ACCOUNTS", "Accounts", false),
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/b", "a", false),
            ("a/+/c", "a//c", true),
            ("a/+/#", "a/b", true),
            ("a/+/#", "a", false),
            ("/", "/", true),
            ("+/", "a/", true),
            ("//#", "/", true),
            ("///#", "/", false),
            ("//#", "//", true),
            ("a/$x", "a/$x", true),
            ("a/+", "a/$x", true),
            ("é/+", "é/☃", true),
        ];
        for (filter, topic, expected) in cases {
            assert_eq!(matches(filter, topic), *expected, "{filter} and {topic}");
        }
    }

    #[test]
    fn levels_are_counted_by_slashes() {
        let cases = [("a", 1), ("/", 2), ("a/b/c", 3), ("//", 3)];
        for (topic, levels) in cases {
            assert_eq!(level_count(topic), levels, "{topic}");
        }
    }
}
