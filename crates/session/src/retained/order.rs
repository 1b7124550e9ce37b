//! The order of topics in the tree: level by level.

use std::cmp::Ordering;

/// A topic in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicKey(Box<str>);

impl TopicKey {
    pub(super) fn new(topic: &str) -> Self {
        Self(topic.into())
    }
}

/// A text sorted as topics are. The map is searched through this trait, so that a borrowed text needs no copy.
pub(super) trait LevelOrder {
    fn text(&self) -> &str;
}

impl LevelOrder for TopicKey {
    fn text(&self) -> &str {
        &self.0
    }
}

impl LevelOrder for &str {
    fn text(&self) -> &str {
        self
    }
}

impl LevelOrder for String {
    fn text(&self) -> &str {
        self
    }
}

impl Ord for TopicKey {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_levels(&self.0, &other.0)
    }
}

impl PartialOrd for TopicKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn LevelOrder + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_levels(self.text(), other.text())
    }
}

impl PartialOrd for dyn LevelOrder + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn LevelOrder + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn LevelOrder + '_ {}

/// Compares bytes with `/` below all others: then a topic and everything under it are adjacent.
///
/// U+0000 is in no topic, so 0 is free to stand for the slash.
pub(crate) fn compare_levels(one: &str, other: &str) -> Ordering {
    const BLOCK: usize = 16;
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // Topics share long beginnings: skip them in blocks.
    let mut start = 0;
    while let (Some(a), Some(b)) = (
        one.get(start..start + BLOCK),
        other.get(start..start + BLOCK),
    ) {
        if a != b {
            break;
        }
        start += BLOCK;
    }
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one[start..]
        .iter()
        .map(rank)
        .cmp(other[start..].iter().map(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_sorts_below_everything() {
        let long = "0123456789abcdef0123456789abcde";
        let cases = [
            ("a", "a", Ordering::Equal),
            ("a", "a/", Ordering::Less),
            ("a/z", "a!", Ordering::Less),
            ("a/z", "a\u{1}", Ordering::Less),
            ("b", "a/b", Ordering::Greater),
            ("", "/", Ordering::Less),
            (long, &long[..20], Ordering::Greater),
            (&format!("{long}/x"), &format!("{long}!"), Ordering::Less),
        ];
        for (one, other, expected) in cases {
            assert_eq!(compare_levels(one, other), expected, "{one} {other}");
            assert_eq!(
                compare_levels(other, one),
                expected.reverse(),
                "{other} {one}"
            );
        }
    }
}
