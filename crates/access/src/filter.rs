//! Relations of topic filters: one inside another, or overlapping.

/// Whether every topic that `inner` matches is matched by `outer` as well. Both are taken to be valid.
///
/// Never true by mistake. `+/#` and `#` match the same topics, which is not detected: the answer for that pair is false.
#[must_use]
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    if inner.starts_with('$') && outer.starts_with(['+', '#']) {
        // Wildcards at the start match no topic that starts with $ [MQTT-4.7.2-1].
        return false;
    }
    let mut inner_levels = inner.split('/');
    for outer_level in outer.split('/') {
        if outer_level == "#" {
            return true;
        }
        match inner_levels.next() {
            Some("#") | None => return false,
            Some(_) if outer_level == "+" => {}
            Some(level) if level == outer_level => {}
            Some(_) => return false,
        }
    }
    inner_levels.next().is_none()
}

/// The filter that matches what both match; `None`: no topic is matched by both. Both are taken to be valid.
///
/// Two filters always meet in a single one: each level is the narrower of the two.
#[must_use]
pub(crate) fn intersection(a: &str, b: &str) -> Option<String> {
    let only_one_has_dollar = a.starts_with('$') != b.starts_with('$');
    if only_one_has_dollar {
        return None;
    }
    let (mut left, mut right) = (a.split('/'), b.split('/'));
    let mut common: Vec<&str> = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (None, None) | (Some("#"), None) | (None, Some("#")) => break,
            (Some("#"), Some(level)) => {
                common.push(level);
                common.extend(right);
                break;
            }
            (Some(level), Some("#")) => {
                common.push(level);
                common.extend(left);
                break;
            }
            (Some("+"), Some(level)) | (Some(level), Some("+")) => common.push(level),
            (Some(one), Some(other)) if one == other => common.push(one),
            (Some(_), _) | (None, Some(_)) => return None,
        }
    }
    Some(common.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thicket_session::topic::{TopicFilter, matches};

    #[test]
    fn a_filter_inside_another_is_seen() {
        let cases = [
            ("#", "a/b", true),
            ("#", "a/#", true),
            ("#", "+/b", true),
            ("#", "$SYS/#", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/load", true),
            ("a/#", "a", true),
            ("a/#", "a/#", true),
            ("a/#", "a/+/c", true),
            ("a/#", "#", false),
            ("a/#", "+/b", false),
            ("a/+", "a/b", true),
            ("a/+", "a/+", true),
            ("a/+", "a/#", false),
            ("a/+", "a", false),
            ("a/b", "a/b", true),
            ("a/b", "a/+", false),
            ("a/+/#", "a", false),
            ("a/+/#", "a/b", true),
        ];
        for (outer, inner, expected) in cases {
            assert_eq!(covers(outer, inner), expected, "{outer} over {inner}");
        }
    }

    #[test]
    fn two_filters_meet_in_one() {
        let cases = [
            ("a/b", "a/b", Some("a/b")),
            ("a/b", "a/c", None),
            ("a/+", "+/b", Some("a/b")),
            ("#", "a/+", Some("a/+")),
            ("a/#", "+", Some("a")),
            ("a/#", "a/b/#", Some("a/b/#")),
            ("a/+/#", "+/b", Some("a/b")),
            ("a/+", "a", None),
            ("#", "$SYS/#", None),
            ("$SYS/+", "$SYS/#", Some("$SYS/+")),
        ];
        for (a, b, expected) in cases {
            assert_eq!(intersection(a, b).as_deref(), expected, "{a} and {b}");
            assert_eq!(intersection(b, a).as_deref(), expected, "{b} and {a}");
        }
    }

    fn level() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a", "b", "$x", "", "+", "#"])
    }

    fn valid_filter() -> impl Strategy<Value = String> {
        prop::collection::vec(level(), 1..4)
            .prop_map(|levels| levels.join("/"))
            .prop_filter("a filter", |text| TopicFilter::new(text).is_ok())
    }

    fn topic() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "$x", ""]), 1..5)
            .prop_map(|levels| levels.join("/"))
            .prop_filter("a topic", |text| !text.is_empty())
    }

    proptest! {
        #[test]
        fn what_is_covered_is_matched(outer in valid_filter(), inner in valid_filter(), topic in topic()) {
            if covers(&outer, &inner) && matches(&inner, &topic) {
                prop_assert!(matches(&outer, &topic));
            }
        }

        #[test]
        fn the_intersection_matches_what_both_match(a in valid_filter(), b in valid_filter(), topic in topic()) {
            let both = matches(&a, &topic) && matches(&b, &topic);
            let met = intersection(&a, &b).is_some_and(|met| matches(&met, &topic));
            prop_assert_eq!(both, met);
        }
    }
}
