//! Topics that stay in one session because a filter with wildcards of their client matches them all.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::placer::Assignment;
use crate::strategy::Interest;

/// For each client with filters with wildcards: what each of their topics belongs to. Filters that overlap are one bundle.
#[derive(Debug, Clone, Default)]
pub(super) struct Bundles(BTreeMap<ClientId, BTreeMap<TopicId, TopicId>>);

impl Bundles {
    /// A filter of `client` matches these topics.
    pub(super) fn add(&mut self, client: ClientId, topics: &[TopicId]) {
        if topics.len() < 2 {
            return;
        }
        let of_client = self.0.entry(client).or_default();
        let joined: BTreeSet<TopicId> = topics
            .iter()
            .map(|topic| of_client.get(topic).copied().unwrap_or(*topic))
            .collect();
        let bundle = joined.first().copied().unwrap_or(topics[0]);
        for topic in topics {
            of_client.insert(*topic, bundle);
        }
        for other in of_client.values_mut() {
            if joined.contains(other) {
                *other = bundle;
            }
        }
    }

    /// The client has no filters any more.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.0.remove(&client);
    }

    /// Whether a client has any.
    pub(super) fn has(&self, client: ClientId) -> bool {
        self.0.contains_key(&client)
    }

    /// What a topic of a client belongs to; `None`: it may move alone.
    pub(super) fn of(&self, client: ClientId, topic: TopicId) -> Option<TopicId> {
        self.0.get(&client)?.get(&topic).copied()
    }

    /// Whether two topics of a client are in the same session, whatever moves.
    pub(super) fn are_together(&self, client: ClientId, one: TopicId, other: TopicId) -> bool {
        let bundle = |topic| self.of(client, topic).unwrap_or(topic);
        bundle(one) == bundle(other)
    }

    /// Where a client that must move, and has these assignments left, has its filters with wildcards: at the broker where most of what they match is
    /// published, in as many sessions as it may have. A filter that has something left stays there.
    pub(super) fn placed(
        &self,
        cluster: &Cluster,
        (client, interests): (ClientId, &[Interest]),
        left: &[Assignment],
        max_sessions: usize,
    ) -> Vec<(Interest, BrokerId)> {
        let mut at: BTreeMap<TopicId, BrokerId> =
            left.iter().map(|it| (it.topic, it.broker)).collect();
        let mut bundles: BTreeMap<TopicId, Vec<TopicId>> = BTreeMap::new();
        for interest in interests {
            if let Some(bundle) = self.of(client, interest.topic) {
                bundles.entry(bundle).or_default().push(interest.topic);
            }
        }
        for topics in bundles.into_values() {
            let stays = topics.iter().find_map(|topic| at.get(topic)).copied();
            let broker = stays.unwrap_or_else(|| {
                let mut open: Vec<BrokerId> = at.values().copied().collect();
                open.sort_unstable();
                open.dedup();
                let may_open = open.len() < max_sessions.max(1);
                most_published(cluster, &topics, |it| may_open || open.contains(&it))
            });
            at.extend(topics.into_iter().map(|topic| (topic, broker)));
        }
        let placed = interests.iter();
        placed
            .filter_map(|interest| Some((*interest, *at.get(&interest.topic)?)))
            .collect()
    }
}

/// The broker, of those that may be, where most messages a second of these topics are published; of several the one with the lowest planned output.
fn most_published(
    cluster: &Cluster,
    topics: &[TopicId],
    may_be: impl Fn(BrokerId) -> bool,
) -> BrokerId {
    let mut published = vec![0.0; cluster.broker_count()];
    for topic in topics {
        for publisher in cluster.publishers(*topic) {
            published[publisher.broker.index()] += publisher.rate;
        }
    }
    let output = cluster.loads(crate::cluster::Dimension::Output);
    let best = cluster.brokers().filter(|it| may_be(*it)).min_by(|a, b| {
        let by_rate = published[b.index()].total_cmp(&published[a.index()]);
        by_rate.then(output[a.index()].total_cmp(&output[b.index()]))
    });
    best.unwrap_or(BrokerId(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_overlap_are_one_bundle_and_others_are_not() {
        let topics = |all: &[u32]| all.iter().map(|it| TopicId(*it)).collect::<Vec<_>>();
        let mut bundles = Bundles::default();
        let (one, two) = (ClientId(1), ClientId(2));
        bundles.add(one, &topics(&[5, 6]));
        bundles.add(one, &topics(&[1, 2]));
        bundles.add(one, &topics(&[8]));
        assert!(!bundles.are_together(one, TopicId(1), TopicId(5)));
        bundles.add(one, &topics(&[2, 3, 6]));
        for topic in [2, 3, 5, 6] {
            assert!(
                bundles.are_together(one, TopicId(1), TopicId(topic)),
                "{topic}"
            );
        }
        assert!(!bundles.are_together(one, TopicId(1), TopicId(8)));
        assert!(!bundles.are_together(two, TopicId(1), TopicId(2)) && !bundles.has(two));
    }
}
