//! Who publishes to which topics: soft state that only people and tables look at. Messages find their way without it (rule 22).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thicket_session::time::Instant;

use crate::identity::NodeId;

/// Own advertisements sent in one second at most; a topic that has to wait is advertised with a later publication.
const MAXIMUM_RATE: u32 = 200;

/// Longer topics are not advertised, nor remembered: many of them would take too much.
const MAXIMUM_TOPIC_BYTES: usize = 1024;

/// Topics with their publishers' nodes.
#[derive(Debug)]
pub(crate) struct Advertisements {
    heard: BTreeMap<String, BTreeMap<NodeId, Instant>>,
    /// Entries of `heard`.
    count: usize,
    /// Own topics, and when each is to be advertised again.
    own: BTreeMap<String, Instant>,
    maximum: usize,
    life: Duration,
    second: Instant,
    sent: u32,
}

impl Advertisements {
    pub(crate) fn new(maximum: usize, life: Duration, now: Instant) -> Self {
        Self {
            heard: BTreeMap::new(),
            count: 0,
            own: BTreeMap::new(),
            maximum,
            life,
            second: now,
            sent: 0,
        }
    }

    /// Topics known, own ones left out.
    pub(crate) fn len(&self) -> usize {
        self.heard.len()
    }

    /// This node publishes to a topic: whether others are to be told now.
    pub(crate) fn publish(&mut self, now: Instant, topic: &str) -> bool {
        if topic.len() > MAXIMUM_TOPIC_BYTES
            || self.own.get(topic).is_some_and(|again| now < *again)
        {
            return false;
        }
        if now.since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.sent = 0;
        }
        if self.sent >= MAXIMUM_RATE {
            return false;
        }
        if self.own.len() >= self.maximum && !self.own.contains_key(topic) {
            self.own.retain(|_, again| now < *again);
            if self.own.len() >= self.maximum {
                return false;
            }
        }
        self.sent += 1;
        self.own.insert(topic.to_owned(), now + self.life / 2);
        true
    }

    /// Another node publishes to a topic: whether that is news.
    pub(crate) fn hear(&mut self, now: Instant, origin: NodeId, topic: &str) -> bool {
        if topic.len() > MAXIMUM_TOPIC_BYTES {
            return false;
        }
        if self.count >= self.maximum {
            self.forget_old(now);
        }
        let is_full = self.count >= self.maximum;
        if !self.heard.contains_key(topic) {
            if is_full {
                return false;
            }
            self.heard.insert(topic.to_owned(), BTreeMap::new());
        }
        let Some(publishers) = self.heard.get_mut(topic) else {
            return false;
        };
        let until = now + self.life;
        match publishers.get_mut(&origin) {
            // The same one again, over a second way.
            Some(known) if until.since(*known) < Duration::from_secs(1) => false,
            Some(known) => {
                *known = until;
                true
            }
            None if is_full => false,
            None => {
                publishers.insert(origin, until);
                self.count += 1;
                true
            }
        }
    }

    fn forget_old(&mut self, now: Instant) {
        for publishers in self.heard.values_mut() {
            publishers.retain(|_, until| now < *until);
        }
        self.heard.retain(|_, publishers| !publishers.is_empty());
        self.count = self.heard.values().map(BTreeMap::len).sum();
    }

    /// The nodes that advertised a topic, ascending.
    pub(crate) fn publishers(&self, topic: &str) -> BTreeSet<NodeId> {
        self.heard
            .get(topic)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_topic_is_advertised_once_until_half_its_life_is_over_and_not_too_many_at_once() {
        let mut table = Advertisements::new(1000, Duration::from_secs(100), at(0));
        let advertised: Vec<_> = [0, 10, 49_999, 50_000]
            .into_iter()
            .map(|now| table.publish(at(now), "a"))
            .collect();
        assert_eq!(advertised, [true, false, false, true]);
        let many = (0..500)
            .filter(|number| table.publish(at(60_000), &format!("t/{number}")))
            .count();
        assert_eq!(many, MAXIMUM_RATE as usize);
        assert!(table.publish(at(61_000), "t/499"), "a second later it may");
    }

    #[test]
    fn what_is_heard_is_news_once_and_forgotten_when_its_life_is_over() {
        let mut table = Advertisements::new(2, Duration::from_secs(100), at(0));
        let (north, south) = (NodeId(1), NodeId(2));
        assert!(table.hear(at(0), north, "a"));
        assert!(!table.hear(at(5), north, "a"), "over another way");
        assert!(table.hear(at(5_000), south, "a"));
        assert!(!table.hear(at(6_000), south, "b"), "full");
        assert_eq!(table.publishers("a"), BTreeSet::from([north, south]));
        assert!(table.hear(at(102_000), south, "b"), "the first one is old");
        assert_eq!(
            (table.publishers("a"), table.len()),
            (BTreeSet::from([south]), 2)
        );
    }
}
