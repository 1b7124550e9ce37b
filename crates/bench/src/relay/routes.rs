//! The subscribers of topics, looked up once for each topic.

use hashbrown::HashMap;

/// A topic's position in the table; invalid after the next change of subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route(usize);

/// Subscriptions, and cached results.
#[derive(Debug, Default)]
pub struct Routes {
    filters: Vec<(Box<[u8]>, u32)>,
    by_topic: HashMap<Box<[u8]>, usize>,
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    topic: Box<[u8]>,
    subscribers: Vec<u32>,
}

impl Routes {
    /// Adds a subscription; a second one to the same filter changes nothing.
    pub fn subscribe(&mut self, filter: &[u8], subscriber: u32) {
        if !self
            .filters
            .iter()
            .any(|(known, by)| *by == subscriber && **known == *filter)
        {
            self.filters.push((filter.into(), subscriber));
        }
        self.forget_answers();
    }

    /// Ends all subscriptions of a client.
    pub fn forget(&mut self, subscriber: u32) {
        let before = self.filters.len();
        self.filters.retain(|(_, by)| *by != subscriber);
        if self.filters.len() != before {
            self.forget_answers();
        }
    }

    fn forget_answers(&mut self) {
        self.by_topic.clear();
        self.known.clear();
    }

    /// The route of `topic`, looked up now if it is not cached.
    pub fn route(&mut self, topic: &[u8]) -> Route {
        if let Some(&index) = self.by_topic.get(topic) {
            return Route(index);
        }
        let mut subscribers: Vec<u32> = self
            .filters
            .iter()
            .filter(|(filter, _)| matches(filter, topic))
            .map(|&(_, by)| by)
            .collect();
        // A client with overlapping filters receives one copy [MQTT-3.3.4-2].
        subscribers.sort_unstable();
        subscribers.dedup();
        self.by_topic.insert(topic.into(), self.known.len());
        self.known.push(Known {
            topic: topic.into(),
            subscribers,
        });
        Route(self.known.len() - 1)
    }

    /// Whether `route` is that of `topic`.
    pub fn is(&self, route: Route, topic: &[u8]) -> bool {
        self.known
            .get(route.0)
            .is_some_and(|known| *known.topic == *topic)
    }

    /// Connections with a matching subscription: sorted, each once.
    pub fn subscribers(&self, route: Route) -> &[u32] {
        self.known
            .get(route.0)
            .map_or(&[], |known| &known.subscribers)
    }
}

/// Whether `filter` matches `topic`, level by level [MQTT-4.7.1-1] [MQTT-4.7.1-2].
pub fn matches(filter: &[u8], topic: &[u8]) -> bool {
    // A wildcard at the start does not match `$SYS` and the like [MQTT-4.7.2-1].
    if topic.first() == Some(&b'$') && matches!(filter.first(), Some(b'#' | b'+')) {
        return false;
    }
    let mut topic_levels = topic.split(|&byte| byte == b'/');
    for level in filter.split(|&byte| byte == b'/') {
        if level == b"#" {
            return true;
        }
        match topic_levels.next() {
            Some(name) if level == b"+" || level == name => {}
            _ => return false,
        }
    }
    topic_levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_level_by_level() {
        for (filter, topic, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a", false),
            ("a", "a/b", false),
            ("a/+", "a/b", true),
            ("a/+", "a/b/c", false),
            ("a/+", "a", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("#", "a/b", true),
            ("#", "$SYS/x", false),
            ("+/b", "/b", true),
        ] {
            assert_eq!(
                matches(filter.as_bytes(), topic.as_bytes()),
                expected,
                "{filter} on {topic}"
            );
        }
    }

    #[test]
    fn a_client_with_overlapping_filters_is_listed_once_and_a_change_renews_the_answer() {
        let mut routes = Routes::default();
        routes.subscribe(b"a/#", 7);
        routes.subscribe(b"a/b", 7);
        let route = routes.route(b"a/b");
        assert_eq!(routes.subscribers(route), [7]);
        routes.subscribe(b"a/b", 3);
        let route = routes.route(b"a/b");
        assert_eq!(routes.subscribers(route), [3, 7]);
        routes.forget(7);
        let route = routes.route(b"a/b");
        assert_eq!(routes.subscribers(route), [3]);
    }
}
