//! Recorded arrivals, by name, through a strategy.

mod advice;
mod bundles;
mod moves;

pub use advice::{Advisor, Change, Outcome, Relocation};

use std::collections::{BTreeMap, BTreeSet};

use self::bundles::Bundles;
use crate::backups::{self, Failover};
use crate::cluster::{Cluster, Traffic};
use crate::distance::Distances;
use crate::error::{ParameterError, check_rate};
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::placer::Placer;
use crate::strategy::{Interest, Role, Strategy};

/// Rate of a topic without a given one, in messages per second.
const DEFAULT_RATE: f64 = 1.0;

/// One line of a recording: a client comes, changes its topics, or leaves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrival {
    /// Name of the client. A client that is there changes to the topics of this line.
    pub client: String,
    /// Topic names it publishes on.
    pub publish: Vec<String>,
    /// Topic filters it subscribes to. A filter with wildcards stands for the known topics it matches (Detti footnote 3), all of them in one session
    /// if the strategy keeps filters whole.
    pub subscribe: Vec<String>,
    /// Messages per second by topic name: what the client publishes, or what is expected on a topic without publisher.
    /// A topic that is not named has 1.
    pub rates: BTreeMap<String, f64>,
    /// The client leaves; its topics are ignored.
    pub leave: bool,
    /// The node that each of its topics and filters is at now; only an [`Advisor`] reads it.
    pub nodes: BTreeMap<String, String>,
    /// Sessions that it can have, at least 1; `None`: as many as the limits say.
    pub max_sessions: Option<usize>,
}

/// The result of one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The broker of each of the client's topics, by topic name.
    pub brokers: BTreeMap<String, BrokerId>,
    /// A broker that received one of the topics is now above gamma times the mean.
    pub flagged: bool,
    /// Idle publishers that moved: client, topic, new broker.
    pub redirected: Vec<(String, String, BrokerId)>,
}

/// A cluster fed from a recording.
#[derive(Debug)]
pub struct Replay {
    placer: Placer,
    topics: Names,
    clients: Names,
    /// Of a client that does not say how many sessions it can have.
    max_sessions: usize,
    /// Filters of clients, if the strategy keeps them whole.
    bundles: Option<Bundles>,
}

impl Replay {
    /// An empty cluster of `broker_count` brokers.
    ///
    /// # Errors
    /// The number of brokers is out of range.
    pub fn new(
        broker_count: usize,
        strategy: Box<dyn Strategy + Send>,
    ) -> Result<Self, ParameterError> {
        let max_sessions = strategy.limits().max_sessions();
        let bundles = strategy.keeps_filters_whole().then(Bundles::default);
        Ok(Self {
            max_sessions,
            bundles,
            placer: Placer::new(Cluster::new(broker_count)?, strategy),
            topics: Names::default(),
            clients: Names::default(),
        })
    }

    /// Makes the topic names of `arrival` known, so that wildcards of earlier lines match them too.
    ///
    /// # Errors
    /// A name to publish on is empty or has wildcards.
    pub fn announce(&mut self, arrival: &Arrival) -> Result<(), ParameterError> {
        for name in &arrival.publish {
            if name.is_empty() || is_wildcard(name) {
                return Err(ParameterError::new(
                    "publish",
                    "must be topic names, not empty and without + and #",
                    format!("\"{name}\""),
                ));
            }
            self.topic(name);
        }
        for filter in &arrival.subscribe {
            check_filter(filter)?;
            if !is_wildcard(filter) {
                self.topic(filter);
            }
        }
        Ok(())
    }

    /// Processes one line.
    ///
    /// # Errors
    /// As [`Replay::announce`]; a rate is negative, not finite or given for a topic the line does not name; or a client leaves that is not there. No
    /// client was placed then.
    pub fn handle_arrival(&mut self, arrival: &Arrival) -> Result<Step, ParameterError> {
        if arrival.leave {
            return self.leave(&arrival.client);
        }
        self.announce(arrival)?;
        let interests = self.interests(arrival)?;
        let client = ClientId(self.clients.number(&arrival.client));
        let max_sessions = arrival.max_sessions.unwrap_or(self.max_sessions).max(1);
        self.placer.allow_sessions(max_sessions);
        self.keep_filters_whole(client, arrival, &interests, max_sessions)?;
        let placed = self.placer.arrive(client, &interests)?;
        let brokers = self
            .placer
            .assignments(client)
            .iter()
            .map(|assignment| (self.topics.name(assignment.topic.0), assignment.broker))
            .collect();
        let redirected = placed
            .redirected
            .iter()
            .map(|(client, topic, broker)| {
                (
                    self.clients.name(client.0),
                    self.topics.name(topic.0),
                    *broker,
                )
            })
            .collect();
        Ok(Step {
            brokers,
            flagged: placed.flagged,
            redirected,
        })
    }

    /// Places what the client's filters with wildcards match, where most of it is published.
    fn keep_filters_whole(
        &mut self,
        client: ClientId,
        arrival: &Arrival,
        interests: &[Interest],
        max_sessions: usize,
    ) -> Result<(), ParameterError> {
        let Some(bundles) = &mut self.bundles else {
            return Ok(());
        };
        bundles.forget(client);
        for filter in arrival.subscribe.iter().filter(|it| is_wildcard(it)) {
            bundles.add(client, &self.topics.matching(filter));
        }
        if !bundles.has(client) {
            return Ok(());
        }
        let wanted: BTreeSet<TopicId> = interests.iter().map(|it| it.topic).collect();
        let held = self.placer.assignments(client).iter();
        let left: Vec<_> = held
            .filter(|it| wanted.contains(&it.topic))
            .copied()
            .collect();
        let cluster = self.placer.cluster();
        let placed = bundles.placed(cluster, (client, interests), &left, max_sessions);
        self.placer.restore(client, &placed)
    }

    /// Sets the costs of messages between brokers, which the strategy [`Thicket`](crate::Thicket) weighs.
    pub fn set_distances(&mut self, distances: Distances) {
        self.placer.cluster_mut().set_distances(distances);
    }

    /// The traffic of the cluster as it is now.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.placer.cluster().traffic()
    }

    /// The cluster after the death of a broker, when each session has one backup where nodes would have it; see [`Failover`]. `None`: no other broker is
    /// left.
    #[must_use]
    pub fn failover(&self, gone: BrokerId) -> Option<Failover> {
        backups::failover(&self.placer, gone, |client| self.clients.name(client.0))
    }

    fn leave(&mut self, client: &str) -> Result<Step, ParameterError> {
        let known = self.clients.numbers.get(client).copied();
        if known.is_some_and(|number| self.placer.leave(ClientId(number))) {
            Ok(Step::default())
        } else {
            Err(ParameterError::new(
                "leave",
                "must name a client that is there",
                format!("\"{client}\""),
            ))
        }
    }

    fn topic(&mut self, name: &str) -> TopicId {
        let number = self.topics.number(name);
        if number as usize == self.placer.cluster().topic_count() {
            self.placer
                .cluster_mut()
                .add_topic(DEFAULT_RATE)
                .expect("the default rate is a rate");
        }
        TopicId(number)
    }

    fn interests(&mut self, arrival: &Arrival) -> Result<Vec<Interest>, ParameterError> {
        let mut interests = Vec::new();
        for name in &arrival.publish {
            let rate = arrival.rates.get(name).copied().unwrap_or(DEFAULT_RATE);
            interests.push(Interest {
                topic: self.topic(name),
                role: Role::Publisher { rate },
            });
        }
        for filter in &arrival.subscribe {
            let topics = if is_wildcard(filter) {
                self.topics.matching(filter)
            } else {
                vec![self.topic(filter)]
            };
            interests.extend(topics.into_iter().map(|topic| Interest {
                topic,
                role: Role::Subscriber,
            }));
        }
        for (name, rate) in &arrival.rates {
            check_rate("rates", *rate)?;
            let topic = self.topics.numbers.get(name).copied().map(TopicId);
            let Some(topic) =
                topic.filter(|topic| interests.iter().any(|interest| interest.topic == *topic))
            else {
                return Err(ParameterError::new(
                    "rates",
                    "must be given for topics of the same line",
                    format!("\"{name}\""),
                ));
            };
            self.placer.cluster_mut().expect_rate(topic, *rate)?;
        }
        Ok(interests)
    }
}

/// Names and their numbers, in order of appearance.
#[derive(Debug, Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    fn name(&self, number: u32) -> String {
        self.names[number as usize].clone()
    }

    fn matching(&self, filter: &str) -> Vec<TopicId> {
        self.names
            .iter()
            .enumerate()
            .filter(|(_, name)| matches(filter, name))
            .map(|(number, _)| TopicId(number as u32))
            .collect()
    }
}

pub(crate) fn is_wildcard(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

fn check_filter(filter: &str) -> Result<(), ParameterError> {
    let levels: Vec<&str> = filter.split('/').collect();
    let last = levels.len() - 1;
    let well_formed = levels
        .iter()
        .enumerate()
        .all(|(index, level)| match *level {
            "+" => true,
            "#" => index == last,
            name => !is_wildcard(name),
        });
    if filter.is_empty() || !well_formed {
        return Err(ParameterError::new(
            "subscribe",
            "must be topic filters, + alone in its level and # alone in the last",
            format!("\"{filter}\""),
        ));
    }
    Ok(())
}

/// Whether a topic filter matches a topic name [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.2-1].
pub(crate) fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut names = name.split('/');
    for level in filter.split('/') {
        if level == "#" {
            // Also where the name has ended: "sport/#" matches "sport".
            return true;
        }
        match names.next() {
            Some(name) if level == "+" || level == name => {}
            Some(_) | None => return false,
        }
    }
    names.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::{Limits, MatchingOptions, StrategyKind};

    fn replay(brokers: usize, strategy: StrategyKind, max_sessions: usize) -> Replay {
        let limits = Limits::new(max_sessions, 1.1).unwrap();
        Replay::new(
            brokers,
            strategy.build(limits, MatchingOptions::default(), 1),
        )
        .unwrap()
    }

    fn arrival(client: &str, publish: &[&str], subscribe: &[&str]) -> Arrival {
        Arrival {
            client: client.to_owned(),
            publish: publish.iter().map(ToString::to_string).collect(),
            subscribe: subscribe.iter().map(ToString::to_string).collect(),
            ..Arrival::default()
        }
    }

    fn figure_9() -> [Arrival; 5] {
        [
            arrival("tennis publisher", &["tennis"], &[]),
            arrival("tennis subscriber", &[], &["tennis"]),
            arrival("baseball publisher", &["baseball"], &[]),
            arrival("baseball subscriber", &[], &["baseball"]),
            arrival("fan of both", &[], &["tennis", "baseball"]),
        ]
    }

    #[test]
    fn figure_9_ends_with_zero_internal_traffic_over_two_sessions() {
        for strategy in [
            StrategyKind::MultiSession,
            StrategyKind::Thicket,
            StrategyKind::Optimum,
        ] {
            let mut replay = replay(2, strategy, 2);
            let mut last = Step::default();
            for arrival in figure_9() {
                last = replay.handle_arrival(&arrival).unwrap();
            }
            assert_ne!(last.brokers["tennis"], last.brokers["baseball"]);
            let traffic = replay.traffic();
            assert_eq!(traffic.internal(), 0.0, "{}", strategy.name());
            assert_eq!(traffic.external_in(), 2.0);
            assert_eq!(traffic.external_out(), 4.0);
            assert_eq!(traffic.jain(), 1.0);
        }
    }

    #[test]
    fn figure_9_with_one_session_brings_one_topic_over() {
        let mut replay = replay(2, StrategyKind::BestMatch, 2);
        for arrival in figure_9() {
            replay.handle_arrival(&arrival).unwrap();
        }
        assert_eq!(replay.traffic().internal(), 1.0);
        assert_eq!(replay.traffic().routing_overhead(), 1.5);
        assert_eq!(replay.traffic().forwarding_overhead(), 1.25);
    }

    #[test]
    fn a_client_that_left_leaves_nothing_behind_and_cannot_leave_twice() {
        let mut replay = replay(2, StrategyKind::Thicket, 2);
        for arrival in figure_9() {
            replay.handle_arrival(&arrival).unwrap();
        }
        for arrival in figure_9() {
            let leaving = Arrival {
                leave: true,
                ..arrival
            };
            replay.handle_arrival(&leaving).unwrap();
            assert_eq!(
                replay.handle_arrival(&leaving).unwrap_err().parameter,
                "leave"
            );
        }
        assert_eq!(replay.traffic().external_in(), 0.0);
        assert_eq!(replay.traffic().external_out(), 0.0);
    }

    #[test]
    fn rates_belong_to_the_publisher_or_are_expected_until_it_comes() {
        let mut replay = replay(1, StrategyKind::MultiSession, 1);
        let mut early = arrival("s", &[], &["t", "u"]);
        early.rates.insert("t".to_owned(), 4.0);
        replay.handle_arrival(&early).unwrap();
        assert_eq!(replay.traffic().external_out(), 0.0);
        let mut publisher = arrival("p", &["t"], &[]);
        publisher.rates.insert("t".to_owned(), 5.0);
        replay.handle_arrival(&publisher).unwrap();
        assert_eq!(replay.traffic().external_in(), 5.0);
        assert_eq!(replay.traffic().external_out(), 5.0);
    }

    #[test]
    fn a_wildcard_stands_for_the_topics_it_matches() {
        let mut replay = replay(1, StrategyKind::LeastLoaded, 1);
        for name in ["a/1", "a/2", "b/1", "a", "$x/1"] {
            replay.announce(&arrival("p", &[name], &[])).unwrap();
        }
        for (filter, expected) in [
            ("a/#", vec!["a", "a/1", "a/2"]),
            ("+/1", vec!["a/1", "b/1"]),
            ("#", vec!["a", "a/1", "a/2", "b/1"]),
            ("$x/#", vec!["$x/1"]),
            ("c/+", vec![]),
        ] {
            let step = replay
                .handle_arrival(&arrival(filter, &[], &[filter]))
                .unwrap();
            let found: Vec<&str> = step.brokers.keys().map(String::as_str).collect();
            assert_eq!(found, expected, "{filter}");
        }
    }

    #[test]
    fn a_client_has_no_more_sessions_than_its_line_says() {
        for strategy in [
            StrategyKind::MultiSession,
            StrategyKind::Thicket,
            StrategyKind::Optimum,
        ] {
            for (most, internal) in [(Some(1), 1.0), (Some(2), 0.0), (None, 0.0)] {
                let mut replay = replay(2, strategy, 4);
                for arrival in figure_9() {
                    let is_fan = arrival.client == "fan of both";
                    let max_sessions = if is_fan { most } else { None };
                    let arrival = Arrival {
                        max_sessions,
                        ..arrival
                    };
                    replay.handle_arrival(&arrival).unwrap();
                }
                let name = strategy.name();
                assert_eq!(replay.traffic().internal(), internal, "{name} {most:?}");
            }
        }
        let mut replay = replay(2, StrategyKind::Thicket, 1);
        let mut last = Step::default();
        for mut arrival in figure_9() {
            arrival.max_sessions = Some(2);
            last = replay.handle_arrival(&arrival).unwrap();
        }
        assert_ne!(last.brokers["tennis"], last.brokers["baseball"]);
    }

    #[test]
    fn a_filter_with_wildcards_is_in_one_session_as_at_nodes() {
        let lines = [
            ("p1", &["a/1"][..], &[][..]),
            ("s1", &[], &["a/1"]),
            ("p2", &["a/2"], &[]),
            ("s2", &[], &["a/2"]),
            ("p3", &["b"], &[]),
            ("s3", &[], &["b"]),
            ("all", &[], &["a/+", "b"]),
        ];
        let nodes = |strategy| {
            let mut replay = replay(3, strategy, 4);
            let mut last = Step::default();
            for (client, publish, subscribe) in lines {
                let arrival = arrival(client, publish, subscribe);
                last = replay.handle_arrival(&arrival).unwrap();
            }
            let used: BTreeSet<BrokerId> = last.brokers.values().copied().collect();
            let is_whole = last.brokers["a/1"] == last.brokers["a/2"];
            (is_whole, used.len(), replay.traffic().internal())
        };
        assert_eq!(nodes(StrategyKind::Thicket), (true, 2, 1.0));
        assert_eq!(
            nodes(StrategyKind::MultiSession),
            (false, 3, 0.0),
            "footnote 3"
        );
        // Later topics come to where the filter is.
        let mut replay = replay(3, StrategyKind::Thicket, 4);
        for (client, publish, subscribe) in lines {
            replay
                .announce(&arrival(client, publish, subscribe))
                .unwrap();
        }
        let all = replay
            .handle_arrival(&arrival("all", &[], &["a/+"]))
            .unwrap();
        assert_eq!(all.brokers["a/1"], all.brokers["a/2"]);
        let more = replay
            .handle_arrival(&arrival("all", &[], &["a/+", "b"]))
            .unwrap();
        assert_eq!(more.brokers["a/1"], all.brokers["a/1"]);
    }

    #[test]
    fn bad_lines_are_refused_with_the_field_and_its_rule() {
        let mut stray = arrival("c", &["t"], &[]);
        stray.rates.insert("u".to_owned(), 1.0);
        let mut negative = arrival("c", &["t"], &[]);
        negative.rates.insert("t".to_owned(), -1.0);
        let cases = [
            (
                arrival("c", &["a/+"], &[]),
                "publish: must be topic names, not empty and without + and #, not \"a/+\"",
            ),
            (
                arrival("c", &[], &["a#"]),
                "subscribe: must be topic filters, + alone in its level and # alone in the last, not \"a#\"",
            ),
            (
                stray,
                "rates: must be given for topics of the same line, not \"u\"",
            ),
            (
                negative,
                "rates: must be a number of messages per second, at least 0, not -1",
            ),
        ];
        for (arrival, expected) in cases {
            let mut replay = replay(2, StrategyKind::Thicket, 2);
            let error = replay.handle_arrival(&arrival).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
