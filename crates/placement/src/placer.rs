//! Carries out what a strategy decides: clients arrive, change their topics and leave.

use std::collections::BTreeMap;
use std::fmt;

use crate::cluster::{Cluster, Dimension, Publisher};
use crate::error::{ParameterError, check_rate};
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::strategy::{Interest, Request, Strategy};

/// One topic of a placed client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The topic, each once a client.
    pub topic: TopicId,
    /// Where the client's session for it is.
    pub broker: BrokerId,
    /// Whether the client publishes on it.
    pub publishes: bool,
    /// Whether the client subscribes to it.
    pub subscribes: bool,
}

/// What an arrival changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// A broker that received one of the client's topics is now above gamma times the mean.
    pub flagged: bool,
    /// Idle publishers that moved to the broker of their first subscriber.
    pub redirected: Vec<(ClientId, TopicId, BrokerId)>,
}

/// A cluster, the clients in it, and the strategy that places them.
pub struct Placer {
    cluster: Cluster,
    strategy: Box<dyn Strategy + Send>,
    /// One entry a client number; empty for one that is not there.
    clients: Vec<Box<[Assignment]>>,
    /// By client number: sessions that the client was allowed when it arrived last; 0: unknown.
    most_sessions: Vec<usize>,
}

impl fmt::Debug for Placer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Placer")
            .field("cluster", &self.cluster)
            .field("clients", &self.clients.len())
            .finish_non_exhaustive()
    }
}

impl Placer {
    /// Places clients in `cluster`, which has the topics but no clients.
    #[must_use]
    pub fn new(cluster: Cluster, strategy: Box<dyn Strategy + Send>) -> Self {
        Self {
            cluster,
            strategy,
            clients: Vec::new(),
            most_sessions: Vec::new(),
        }
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// For topics that appear on the way and for rates that become known.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The topics of `client`, in the order it named them; empty for a client that is not there.
    #[must_use]
    pub fn assignments(&self, client: ClientId) -> &[Assignment] {
        self.clients
            .get(client.index())
            .map_or(&[], |assignments| assignments)
    }

    /// Brokers `client` has sessions with, each once, lowest index first.
    #[must_use]
    pub fn sessions(&self, client: ClientId) -> Vec<BrokerId> {
        distinct_brokers(self.assignments(client))
    }

    /// `client` arrives with these topics, or changes to them: those it had stay where they are, only new ones are placed.
    ///
    /// A topic named twice counts once, with both roles.
    ///
    /// # Errors
    /// A rate is negative or not finite; nothing was changed then.
    pub fn arrive(
        &mut self,
        client: ClientId,
        interests: &[Interest],
    ) -> Result<Placed, ParameterError> {
        self.arrive_near(client, interests, None)
    }

    /// The same for a client that is near the broker `home`; see [`Request::home`].
    ///
    /// # Errors
    /// As [`Self::arrive`].
    pub fn arrive_near(
        &mut self,
        client: ClientId,
        interests: &[Interest],
        home: Option<BrokerId>,
    ) -> Result<Placed, ParameterError> {
        let interests = merge(interests)?;
        let before = self.remove(client);
        let kept_broker: BTreeMap<TopicId, BrokerId> = before
            .iter()
            .map(|assignment| (assignment.topic, assignment.broker))
            .collect();
        let (kept, fresh): (Vec<Interest>, Vec<Interest>) = interests
            .iter()
            .partition(|interest| kept_broker.contains_key(&interest.topic));
        let mut assignments = Vec::with_capacity(interests.len());
        for interest in &kept {
            assignments.push(self.join(client, interest, kept_broker[&interest.topic]));
        }
        let decision = self.strategy.place(
            &self.cluster,
            &Request {
                interests: &fresh,
                open: &distinct_brokers(&assignments),
                home,
            },
        );
        for (interest, broker) in fresh.iter().zip(&decision.brokers) {
            assignments.push(self.join(client, interest, *broker));
        }
        if !kept.is_empty() {
            let order: BTreeMap<TopicId, usize> = interests
                .iter()
                .enumerate()
                .map(|(position, interest)| (interest.topic, position))
                .collect();
            assignments.sort_by_key(|assignment| order[&assignment.topic]);
        }
        self.keep(client, assignments);
        self.most_sessions[client.index()] = self.strategy.limits().max_sessions();
        let mut placed = Placed::default();
        for (topic, broker) in decision.redirects {
            self.redirect(topic, broker, &mut placed);
        }
        placed.flagged = self.is_flagged(client);
        Ok(placed)
    }

    /// One more than the highest client number there was.
    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// A client that arrives from now on has at most this many sessions.
    pub fn allow_sessions(&mut self, max_sessions: usize) {
        self.strategy.allow_sessions(max_sessions);
    }

    /// `client` has these topics at these brokers, whatever the strategy is: as it was placed elsewhere, or before. What it had before is removed.
    ///
    /// A topic named twice counts once, with both roles, at the first broker named for it.
    ///
    /// # Errors
    /// A rate is negative or not finite; nothing was changed then.
    pub fn restore(
        &mut self,
        client: ClientId,
        at: &[(Interest, BrokerId)],
    ) -> Result<(), ParameterError> {
        let interests: Vec<Interest> = at.iter().map(|(interest, _)| *interest).collect();
        let interests = merge(&interests)?;
        self.remove(client);
        let mut broker_of: BTreeMap<TopicId, BrokerId> = BTreeMap::new();
        for (interest, broker) in at {
            broker_of.entry(interest.topic).or_insert(*broker);
        }
        let assignments: Vec<Assignment> = interests
            .iter()
            .map(|interest| self.join(client, interest, broker_of[&interest.topic]))
            .collect();
        self.keep(client, assignments);
        Ok(())
    }

    fn keep(&mut self, client: ClientId, assignments: Vec<Assignment>) {
        if client.index() >= self.clients.len() {
            self.clients.resize(client.index() + 1, Box::default());
            self.most_sessions.resize(client.index() + 1, 0);
        }
        self.clients[client.index()] = assignments.into_boxed_slice();
    }

    /// `client` leaves; false when it was not there.
    pub fn leave(&mut self, client: ClientId) -> bool {
        if let Some(most) = self.most_sessions.get_mut(client.index()) {
            *most = 0;
        }
        !self.remove(client).is_empty()
    }

    fn remove(&mut self, client: ClientId) -> Box<[Assignment]> {
        let Some(entry) = self.clients.get_mut(client.index()) else {
            return Box::default();
        };
        let assignments = std::mem::take(entry);
        for assignment in &assignments {
            if assignment.publishes {
                self.cluster.unpublish(assignment.topic, client);
            }
            if assignment.subscribes {
                self.cluster
                    .unsubscribe(assignment.topic, assignment.broker);
            }
        }
        assignments
    }

    fn join(&mut self, client: ClientId, interest: &Interest, broker: BrokerId) -> Assignment {
        let publish_rate = interest.role.publish_rate();
        if let Some(rate) = publish_rate {
            self.cluster.publish(
                interest.topic,
                Publisher {
                    client,
                    broker,
                    rate,
                },
            );
        }
        if interest.role.subscribes() {
            self.cluster.subscribe(interest.topic, broker);
        }
        Assignment {
            topic: interest.topic,
            broker,
            publishes: publish_rate.is_some(),
            subscribes: interest.role.subscribes(),
        }
    }

    /// Moves the publishers of `topic` to `broker`, except where a client would have more sessions than it may, and than it has.
    fn redirect(&mut self, topic: TopicId, broker: BrokerId, placed: &mut Placed) {
        let publishers: Vec<Publisher> = self
            .cluster
            .publishers(topic)
            .iter()
            .filter(|publisher| publisher.broker != broker)
            .copied()
            .collect();
        for publisher in publishers {
            let before = &self.clients[publisher.client.index()];
            let most = self.most_sessions[publisher.client.index()];
            let most = most.max(distinct_brokers(before).len());
            let mut moved = before.clone();
            for assignment in &mut moved {
                if assignment.topic == topic && !assignment.subscribes {
                    assignment.broker = broker;
                }
            }
            if distinct_brokers(&moved).len() > most {
                continue;
            }
            self.clients[publisher.client.index()] = moved;
            self.cluster.unpublish(topic, publisher.client);
            self.cluster.publish(
                topic,
                Publisher {
                    broker,
                    ..publisher
                },
            );
            placed.redirected.push((publisher.client, topic, broker));
        }
    }

    fn is_flagged(&self, client: ClientId) -> bool {
        let limits = self.strategy.limits();
        self.assignments(client).iter().any(|assignment| {
            let exceeded = |dimension| limits.exceeded(&self.cluster, assignment.broker, dimension);
            (assignment.publishes && exceeded(Dimension::Input))
                || (assignment.subscribes && exceeded(Dimension::Output))
        })
    }
}

fn distinct_brokers(assignments: &[Assignment]) -> Vec<BrokerId> {
    let mut brokers: Vec<BrokerId> = assignments
        .iter()
        .map(|assignment| assignment.broker)
        .collect();
    brokers.sort_unstable();
    brokers.dedup();
    brokers
}

/// Each topic once, in the order of first mention.
fn merge(interests: &[Interest]) -> Result<Vec<Interest>, ParameterError> {
    let mut merged: Vec<Interest> = Vec::with_capacity(interests.len());
    let mut positions: BTreeMap<TopicId, usize> = BTreeMap::new();
    for interest in interests {
        if let Some(rate) = interest.role.publish_rate() {
            check_rate("rate", rate)?;
        }
        let position = *positions.entry(interest.topic).or_insert(merged.len());
        match merged.get_mut(position) {
            Some(earlier) => earlier.role = interest.role.and(earlier.role),
            None => merged.push(*interest),
        }
    }
    Ok(merged)
}
