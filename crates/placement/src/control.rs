//! The control plane of Detti IV.A: clients by name ask where their sessions should be, and a placement is a reservation.
//!
//! One [`ControlPlane`] answers at a time; others receive its answers ([`Placement`]) and can continue from them ([`ControlPlane::restore`]). A
//! placement counts from when it is made, so that the next one takes it into account: with a view that many answers share, internal traffic grows
//! by more than an order of magnitude. It holds until its time is over unless it is asked for again.
//!
//! - A topic is in one session. A filter with wildcards stays whole in one too: at the node where most of what it matches is published.
//! - Asking again keeps what stays, and places only what is new.
//! - Sessions have numbers, 1 being the client's own; a number stays with its node as long as the session does.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{Cluster, Dimension};
use crate::distance::Distances;
use crate::error::{ParameterError, check_rate};
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::placer::Placer;
use crate::replay::{is_wildcard, matches};
use crate::strategy::{Interest, Limits, MatchingOptions, Role, StrategyKind};

/// Messages a second that a topic is expected to have when its rate is unknown.
const UNKNOWN_RATE: f64 = 1.0;
/// A node is better for a client if it saves this share of its messages.
const WORTH: f64 = 0.01;
/// What a message costs a subscriber whose publisher is at another node, but will follow when it connects again.
const FOLLOWS_LATER: f64 = 0.5;
/// How fast bringing a topic to one more node gets cheaper with its subscriptions.
const POPULARITY_DISCOUNT: f64 = 0.3;
/// Of new topics with filters with wildcards, for one request.
const MOST_COMPARISONS: usize = 65_536;

/// A topic or filter that a client subscribes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// A topic, or a filter with wildcards.
    pub filter: String,
    /// The node where most of the topic, or of what the filter matches, is published; `None`: unknown.
    pub best: Option<u64>,
    /// Messages a second, as far as they are known.
    pub rate: Option<f64>,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The client.
    pub client_id: String,
    /// Topics that it publishes to, with messages a second as far as they are known.
    pub publish: Vec<(String, Option<f64>)>,
    /// What it subscribes to.
    pub subscribe: Vec<Wanted>,
    /// Sessions that it may have (Nses), at least 1.
    pub max_sessions: usize,
    /// The node that it asks, which is near it when it asks for the first time; `None`: unknown.
    pub home: Option<u64>,
}

/// One session of a placed client.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedSession {
    /// 1 for the client's own session.
    pub number: u16,
    /// Where.
    pub node: u64,
    /// What it publishes there, with messages a second.
    pub publish: Vec<(String, f64)>,
    /// What it receives there, with messages a second.
    pub subscribe: Vec<(String, f64)>,
}

/// Where a client's sessions should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The client.
    pub client_id: String,
    /// At least one, by number.
    pub sessions: Vec<PlacedSession>,
}

/// A node that is better for a client as a whole than the one it connected to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BetterNode {
    /// Which.
    pub node: u64,
    /// Messages a second between nodes that the client there saves.
    pub saves: f64,
}

/// Where all placed clients are, and the strategy that places the next ones.
#[derive(Debug)]
pub struct ControlPlane {
    /// Ascending: the place of a node is its broker.
    nodes: Vec<u64>,
    gamma: f64,
    placer: Placer,
    /// Those that a placed client publishes or subscribes to.
    topics: BTreeMap<String, TopicId>,
    /// Of these, filters with wildcards.
    wildcards: BTreeMap<String, TopicId>,
    /// By topic; empty for one that is free.
    topic_names: Vec<String>,
    /// Numbers of topics that no client has any more.
    free_topics: Vec<TopicId>,
    clients: BTreeMap<String, Known>,
    /// By number; that of a client that has left may stay.
    client_names: Vec<String>,
    /// Numbers of clients that have left.
    free: Vec<ClientId>,
}

#[derive(Debug)]
struct Known {
    id: ClientId,
    placement: Placement,
    /// Where it asked first: later it asks where it was sent.
    home: Option<u64>,
    /// Sessions that it was allowed when it asked last; 0: unknown.
    max_sessions: usize,
    /// It did not ask for a placement, and was only seen at its node: it does not move to its subscribers.
    is_only_seen: bool,
}

impl ControlPlane {
    /// No client is placed yet. `nodes`: those that accept clients, at least one; `gamma`: how far above the mean the load of one may be.
    ///
    /// # Errors
    /// There is no node, or `gamma` is below 1.
    pub fn new(nodes: &BTreeSet<u64>, gamma: f64) -> Result<Self, ParameterError> {
        let limits = Limits::new(1, gamma)?;
        let strategy = StrategyKind::Thicket.build(limits, MatchingOptions::default(), 0);
        Ok(Self {
            nodes: nodes.iter().copied().collect(),
            gamma,
            placer: Placer::new(Cluster::new(nodes.len())?, strategy),
            topics: BTreeMap::new(),
            wildcards: BTreeMap::new(),
            topic_names: Vec::new(),
            free_topics: Vec::new(),
            clients: BTreeMap::new(),
            client_names: Vec::new(),
            free: Vec::new(),
        })
    }

    /// Sets the costs of messages between two nodes, in messages between nodes of one site, at least 1.
    ///
    /// # Errors
    /// A cost is below 1 or not finite; nothing was changed then.
    pub fn set_costs(&mut self, cost: impl Fn(u64, u64) -> f64) -> Result<(), ParameterError> {
        let nodes = &self.nodes;
        let cost = |from: usize, to: usize| {
            if from == to {
                1.0
            } else {
                cost(nodes[from], nodes[to])
            }
        };
        let distances = Distances::new(nodes.len(), cost)?;
        self.placer.cluster_mut().set_distances(distances);
        Ok(())
    }

    /// Places a client, or places it again. Returns its placement, and those of idle publishers that should follow it.
    ///
    /// # Errors
    /// A rate is negative or not finite, or another client has a session of this name ([`session_client_id`]); nothing was changed then.
    pub fn place(&mut self, asked: &Asked) -> Result<Vec<Placement>, ParameterError> {
        if self.is_session_of_another(&asked.client_id) {
            return Err(ParameterError::new(
                "client_id",
                "must not be that of a further session of another client",
                &asked.client_id,
            ));
        }
        let rates = asked.publish.iter().map(|(_, rate)| rate);
        let rates = rates.chain(asked.subscribe.iter().map(|wanted| &wanted.rate));
        for rate in rates.flatten() {
            check_rate("rate", *rate)?;
        }
        let id = self.client(&asked.client_id, asked.home);
        let known = self.clients.get(&asked.client_id);
        let home = known.and_then(|known| self.broker(known.home?));
        let before = self.topics_of(id);
        let interests = self.interests(asked)?;
        self.keep_what_stays(id, asked, &interests, home)?;
        if let Some(known) = self.clients.get_mut(&asked.client_id) {
            known.max_sessions = asked.max_sessions;
            known.is_only_seen = false;
        }
        self.placer.allow_sessions(asked.max_sessions.max(1));
        let attracted = self.attracted(id, &interests, asked.max_sessions);
        let sources = self.sources(asked);
        self.placer.cluster_mut().set_matches(attracted);
        self.placer.cluster_mut().set_sources(sources);
        let placed = self.placer.arrive_near(id, &interests, home)?;
        self.placer.cluster_mut().set_matches(BTreeMap::new());
        self.placer.cluster_mut().set_sources(BTreeMap::new());
        let mut changed = vec![self.note(&asked.client_id, id)];
        let moved: BTreeSet<ClientId> = placed.redirected.iter().map(|it| it.0).collect();
        for moved in moved.into_iter().filter(|moved| *moved != id) {
            let name = self.client_names[moved.index()].clone();
            changed.push(self.note(&name, moved));
        }
        self.free_unused(before);
        Ok(changed)
    }

    /// Restores a placement that was made before, as far as its nodes are still there.
    ///
    /// # Errors
    /// A rate is negative or not finite; nothing was changed then.
    pub fn restore(&mut self, placement: &Placement) -> Result<(), ParameterError> {
        self.keep(placement, false)
    }

    /// The same for a client that did not ask: it was seen at this node, and does not move to its subscribers until it reconnects.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restore_seen(&mut self, placement: &Placement) -> Result<(), ParameterError> {
        self.keep(placement, true)
    }

    fn keep(&mut self, placement: &Placement, is_only_seen: bool) -> Result<(), ParameterError> {
        let id = self.client(&placement.client_id, None);
        let before = self.topics_of(id);
        let mut at = Vec::new();
        for session in &placement.sessions {
            let Some(broker) = self.broker(session.node) else {
                continue;
            };
            for (topic, rate) in &session.publish {
                let topic = self.topic(topic, Some(*rate))?;
                let role = Role::Publisher { rate: *rate };
                at.push((Interest { topic, role }, broker));
            }
            for (filter, rate) in &session.subscribe {
                let topic = self.topic(filter, Some(*rate))?;
                let role = Role::Subscriber;
                at.push((Interest { topic, role }, broker));
            }
        }
        self.placer.restore(id, &at)?;
        if let Some(known) = self.clients.get_mut(&placement.client_id) {
            known.placement = placement.clone();
            known.is_only_seen = is_only_seen;
        }
        self.free_unused(before);
        Ok(())
    }

    /// The node where a client with one session is cheapest, if that is not `at`, where it connected, and saves more than a hundredth of the client's
    /// messages. Nodes above gamma without the client, and those that are not near `at`, are left out. Nothing is changed. `None`, too, for an
    /// unknown client.
    ///
    /// Clients connect again one by one, so it counts what its partners will do when they do. A subscriber costs what a topic is worth at a node
    /// where it has no subscriber while it has some elsewhere, less for a topic with many subscribers, as that will have some everywhere; and half
    /// where it is the only one and the publisher is elsewhere, as that one will follow. A publisher costs its messages at a node without a
    /// subscriber while there are some elsewhere.
    pub fn better_node(&mut self, client_id: &str, at: u64) -> Option<BetterNode> {
        let id = self.clients.get(client_id)?.id;
        let before = self.held(id);
        let interests: Vec<Interest> = before.iter().map(|(interest, _)| *interest).collect();
        let own = self.broker(at);
        let candidates = self.fair_without(id, own, &interests)?;
        let cluster = self.placer.cluster();
        let messages = self.messages(&interests);
        let cost = |broker: BrokerId| -> f64 {
            interests.iter().map(|one| cost(cluster, one, broker)).sum()
        };
        let costs: Vec<(BrokerId, f64)> = candidates.into_iter().map(|it| (it, cost(it))).collect();
        // What was kept before has valid rates.
        let _ = self.placer.restore(id, &before);
        let (best, least) = *costs
            .iter()
            .min_by(|one, other| one.1.total_cmp(&other.1))?;
        let here = costs.iter().find(|(broker, _)| Some(*broker) == own);
        let saves = here.map_or(f64::INFINITY, |(_, cost)| cost - least);
        let node = self.nodes[best.index()];
        (saves > WORTH * messages).then_some(BetterNode { node, saves })
    }

    /// What a client has, and where.
    fn held(&self, id: ClientId) -> Vec<(Interest, BrokerId)> {
        let cluster = self.placer.cluster();
        let rate = |topic: TopicId| {
            let mut publishers = cluster.publishers(topic).iter();
            let own = publishers.find(|publisher| publisher.client == id);
            own.map_or(0.0, |publisher| publisher.rate)
        };
        let held = self.placer.assignments(id).iter().map(|one| {
            let topic = one.topic;
            let role = match (one.publishes, one.subscribes) {
                (true, true) => Role::Both { rate: rate(topic) },
                (true, false) => Role::Publisher { rate: rate(topic) },
                (false, _) => Role::Subscriber,
            };
            (Interest { topic, role }, one.broker)
        });
        held.collect()
    }

    /// Brokers near `own` that are not above gamma without the client, that with the lowest load first, and `own` in any case. The client is removed
    /// then.
    fn fair_without(
        &mut self,
        id: ClientId,
        own: Option<BrokerId>,
        interests: &[Interest],
    ) -> Option<Vec<BrokerId>> {
        if interests.is_empty() {
            return None;
        }
        self.placer.restore(id, &[]).ok()?;
        let cluster = self.placer.cluster();
        let is_fair = |dimension: Dimension, broker: BrokerId| {
            let mean = cluster.total_load(dimension) / cluster.broker_count() as f64;
            cluster.loads(dimension)[broker.index()] <= self.gamma * mean
        };
        let publishes = interests
            .iter()
            .any(|one| one.role.publish_rate().is_some());
        let subscribes = interests.iter().any(|one| one.role.subscribes());
        let mut fair: Vec<BrokerId> = cluster
            .brokers()
            .filter(|broker| {
                let distances = cluster.distances();
                let is_near = distances.is_near(own, *broker);
                Some(*broker) == own
                    || is_near
                        && (!publishes || is_fair(Dimension::Input, *broker))
                        && (!subscribes || is_fair(Dimension::Output, *broker))
            })
            .collect();
        let load = |broker: &BrokerId| {
            let all = [Dimension::Input, Dimension::Output].into_iter();
            all.map(|dimension| cluster.loads(dimension)[broker.index()])
                .sum::<f64>()
        };
        fair.sort_by(|one, other| load(one).total_cmp(&load(other)));
        Some(fair)
    }

    /// A client's messages a second.
    fn messages(&self, interests: &[Interest]) -> f64 {
        let cluster = self.placer.cluster();
        let of = |interest: &Interest| {
            let received = if interest.role.subscribes() {
                cluster.rate(interest.topic)
            } else {
                0.0
            };
            interest.role.publish_rate().unwrap_or(0.0) + received
        };
        interests.iter().map(of).sum()
    }

    /// Removes the placement of a client; `false`: it had none.
    pub fn remove(&mut self, client_id: &str) -> bool {
        let Some(known) = self.clients.remove(client_id) else {
            return false;
        };
        let before = self.topics_of(known.id);
        self.placer.leave(known.id);
        self.free.push(known.id);
        self.free_unused(before);
        true
    }

    fn topics_of(&self, id: ClientId) -> Vec<TopicId> {
        let held = self.placer.assignments(id).iter();
        held.map(|one| one.topic).collect()
    }

    /// Forgets those that no client has any more: names of topics may come and go without end.
    fn free_unused(&mut self, topics: Vec<TopicId>) {
        for topic in topics {
            let cluster = self.placer.cluster();
            let is_wanted = cluster.subscriptions(topic).iter().any(|count| *count > 0);
            let name = &mut self.topic_names[topic.index()];
            if is_wanted || !cluster.publishers(topic).is_empty() || name.is_empty() {
                continue;
            }
            let name = std::mem::take(name);
            self.topics.remove(&name);
            self.wildcards.remove(&name);
            self.free_topics.push(topic);
        }
    }

    /// Number of topics and filters of placed clients.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// The placement of a client.
    #[must_use]
    pub fn placement(&self, client_id: &str) -> Option<&Placement> {
        Some(&self.clients.get(client_id)?.placement)
    }

    /// The traffic that follows if all placed clients are where they should be.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.placer.cluster()
    }

    /// Whether a client of another name has a further session of this one.
    fn is_session_of_another(&self, client_id: &str) -> bool {
        let Some((of, number)) = client_id.rsplit_once('~') else {
            return false;
        };
        let sessions = self.placement(of).into_iter().flat_map(|it| &it.sessions);
        let mut numbers = sessions.map(|session| session.number);
        numbers.any(|it| it > 1 && number.parse() == Ok(it))
    }

    /// The number of a client, known or new; `home` is that of a new one.
    fn client(&mut self, client_id: &str, home: Option<u64>) -> ClientId {
        if let Some(known) = self.clients.get(client_id) {
            return known.id;
        }
        let next = ClientId(self.client_names.len() as u32);
        let id = self.free.pop().unwrap_or(next);
        if id == next {
            self.client_names.push(String::new());
        }
        client_id.clone_into(&mut self.client_names[id.index()]);
        let placement = Placement {
            client_id: client_id.to_owned(),
            sessions: Vec::new(),
        };
        self.clients.insert(
            client_id.to_owned(),
            Known {
                id,
                placement,
                home,
                max_sessions: 0,
                is_only_seen: false,
            },
        );
        id
    }

    fn broker(&self, node: u64) -> Option<BrokerId> {
        let at = self.nodes.binary_search(&node).ok()?;
        Some(BrokerId(at as u16))
    }

    /// A topic, or a filter that stands for itself.
    fn topic(&mut self, name: &str, rate: Option<f64>) -> Result<TopicId, ParameterError> {
        if let Some(&topic) = self.topics.get(name) {
            if let Some(rate) = rate {
                self.placer.cluster_mut().expect_rate(topic, rate)?;
            }
            return Ok(topic);
        }
        let rate = rate.unwrap_or(UNKNOWN_RATE);
        let cluster = self.placer.cluster_mut();
        let topic = if let Some(&topic) = self.free_topics.last() {
            cluster.expect_rate(topic, rate)?;
            self.free_topics.pop();
            name.clone_into(&mut self.topic_names[topic.index()]);
            topic
        } else {
            let topic = cluster.add_topic(rate)?;
            self.topic_names.push(name.to_owned());
            topic
        };
        self.topics.insert(name.to_owned(), topic);
        if is_wildcard(name) {
            self.wildcards.insert(name.to_owned(), topic);
        }
        Ok(topic)
    }

    fn interests(&mut self, asked: &Asked) -> Result<Vec<Interest>, ParameterError> {
        let mut interests = Vec::new();
        for (name, rate) in &asked.publish {
            let topic = self.topic(name, None)?;
            let cluster = self.placer.cluster();
            // The rate of a topic is that of all its publishers.
            let publishers = cluster.publishers(topic).len().max(1);
            let known = cluster.rate(topic) / publishers as f64;
            let rate = rate.unwrap_or(if known > 0.0 { known } else { UNKNOWN_RATE });
            let role = Role::Publisher { rate };
            interests.push(Interest { topic, role });
        }
        for wanted in &asked.subscribe {
            let topic = self.topic(&wanted.filter, wanted.rate)?;
            let role = Role::Subscriber;
            interests.push(Interest { topic, role });
        }
        Ok(interests)
    }

    /// Before it is placed a client has what it had and still asks for, unless it may have more sessions than before; filters with wildcards where they
    /// are best.
    fn keep_what_stays(
        &mut self,
        id: ClientId,
        asked: &Asked,
        interests: &[Interest],
        home: Option<BrokerId>,
    ) -> Result<(), ParameterError> {
        let before = self.clients.get(&asked.client_id);
        let may_have_more =
            before.is_some_and(|it| it.max_sessions > 0 && asked.max_sessions > it.max_sessions);
        let held: BTreeMap<TopicId, BrokerId> = self
            .placer
            .assignments(id)
            .iter()
            .map(|one| (one.topic, one.broker))
            .filter(|_| !may_have_more)
            .collect();
        let first_wanted = asked.publish.len();
        let mut kept: Vec<(Interest, BrokerId)> = Vec::new();
        let mut open: BTreeSet<BrokerId> = BTreeSet::new();
        for (at, interest) in interests.iter().enumerate() {
            let wanted = at.checked_sub(first_wanted).map(|at| &asked.subscribe[at]);
            let wild = wanted.filter(|wanted| is_wildcard(&wanted.filter));
            let best = wild.and_then(|wanted| self.broker(wanted.best?));
            // What comes from far away arrives once for all who are here, and not for each client.
            let distances = self.placer.cluster().distances();
            let best = best.filter(|best| distances.is_near(home, *best));
            let broker = held.get(&interest.topic).copied().or(best);
            let Some(broker) = broker else { continue };
            // Fewer sessions may be allowed than it had.
            if open.contains(&broker) || open.len() < asked.max_sessions.max(1) {
                open.insert(broker);
                kept.push((*interest, broker));
            }
        }
        self.placer.restore(id, &kept)
    }

    /// For topics that the client wants and whose publishers all stay at their nodes: the broker where most of each is published.
    fn sources(&self, asked: &Asked) -> BTreeMap<TopicId, BrokerId> {
        let wanted = asked.subscribe.iter();
        let topics = wanted.filter(|wanted| !is_wildcard(&wanted.filter));
        let sources = topics.filter_map(|wanted| {
            let topic = *self.topics.get(&wanted.filter)?;
            let publishers = self.placer.cluster().publishers(topic);
            let best = wanted.best.and_then(|node| self.broker(node));
            let seen = publishers.first().map(|publisher| publisher.broker);
            let is_source = publishers.iter().all(|publisher| {
                let name = &self.client_names[publisher.client.index()];
                self.clients.get(name).is_some_and(|it| it.is_only_seen)
            });
            Some((topic, best.or(seen).filter(|_| is_source)?))
        });
        sources.collect()
    }

    /// For topics that the client will publish and that no client subscribes to by name: the brokers where a filter with wildcards matches them, as far as
    /// the topic leaves the broker's input within gamma. Rates that subscribers still wait for do not count, because a filter waits for ever.
    fn attracted(
        &self,
        id: ClientId,
        interests: &[Interest],
        max_sessions: usize,
    ) -> BTreeMap<TopicId, Vec<BrokerId>> {
        let mut attracted = BTreeMap::new();
        if self.wildcards.is_empty() {
            return attracted;
        }
        let cluster = self.placer.cluster();
        let held: BTreeSet<TopicId> = self.topics_of(id).into_iter().collect();
        let new: Vec<(TopicId, f64)> = interests
            .iter()
            .filter(|one| !held.contains(&one.topic) && cluster.listening_count(one.topic) == 0)
            .filter_map(|one| Some((one.topic, one.role.publish_rate()?)))
            .collect();
        let arriving: f64 = new.iter().map(|(_, rate)| rate).sum();
        let total = cluster.total_load(Dimension::Input) + arriving;
        let bound = self.gamma * total / cluster.broker_count() as f64;
        let mut input = cluster.loads(Dimension::Input).to_vec();
        let filters = MOST_COMPARISONS / new.len().max(1);
        for (topic, rate) in new {
            let name = &self.topic_names[topic.index()];
            let filters = self.wildcards.iter().take(filters);
            let matching = filters.filter(|(filter, _)| matches(filter, name));
            let filters: Vec<TopicId> = matching.map(|(_, filter)| *filter).collect();
            // A client with one session brings all its topics.
            let coming = if max_sessions > 1 { rate } else { arriving };
            let has_capacity = |broker: &BrokerId| input[broker.index()] + coming <= bound;
            let listens = |broker: &BrokerId| {
                let mut filters = filters.iter();
                filters.any(|filter| cluster.listens(*filter, *broker))
            };
            let all = cluster.brokers();
            let brokers: Vec<BrokerId> = all.filter(|it| listens(it) && has_capacity(it)).collect();
            // It will be at one of them.
            for broker in brokers.iter().filter(|_| max_sessions > 1) {
                input[broker.index()] += rate;
            }
            if !brokers.is_empty() {
                attracted.insert(topic, brokers);
            }
        }
        attracted
    }

    /// Records where a client is now.
    fn note(&mut self, client_id: &str, id: ClientId) -> Placement {
        let mut by_node: BTreeMap<u64, PlacedSession> = BTreeMap::new();
        for assignment in self.placer.assignments(id) {
            let node = self.nodes[assignment.broker.index()];
            let session = by_node.entry(node).or_insert_with(|| PlacedSession {
                number: 0,
                node,
                publish: Vec::new(),
                subscribe: Vec::new(),
            });
            let name = self.topic_names[assignment.topic.index()].clone();
            let cluster = self.placer.cluster();
            if assignment.publishes {
                let publishers = cluster.publishers(assignment.topic);
                let own = publishers.iter().find(|publisher| publisher.client == id);
                let rate = own.map_or(0.0, |publisher| publisher.rate);
                session.publish.push((name.clone(), rate));
            }
            if assignment.subscribes {
                session
                    .subscribe
                    .push((name, cluster.rate(assignment.topic)));
            }
        }
        if by_node.is_empty() {
            let node = self.nodes[self.idlest().index()];
            by_node.insert(
                node,
                PlacedSession {
                    number: 0,
                    node,
                    publish: Vec::new(),
                    subscribe: Vec::new(),
                },
            );
        }
        let before = self.clients.get(client_id).map(|known| &known.placement);
        let is_client = |number| {
            let name = session_client_id(client_id, number);
            number > 1 && self.clients.contains_key(&name)
        };
        let sessions = numbered(by_node, before, is_client);
        let placement = Placement {
            client_id: client_id.to_owned(),
            sessions,
        };
        if let Some(known) = self.clients.get_mut(client_id) {
            known.placement = placement.clone();
        }
        placement
    }

    /// The broker with the lowest load.
    fn idlest(&self) -> BrokerId {
        let cluster = self.placer.cluster();
        let load = |broker: &BrokerId| {
            cluster.loads(Dimension::Input)[broker.index()]
                + cluster.loads(Dimension::Output)[broker.index()]
        };
        let all = cluster.brokers();
        all.min_by(|one, other| load(one).total_cmp(&load(other)))
            .unwrap_or(BrokerId(0))
    }
}

/// What one topic of a client costs at a broker, in messages a second between nodes of one site; see [`ControlPlane::better_node`].
fn cost(cluster: &Cluster, interest: &Interest, broker: BrokerId) -> f64 {
    let topic = interest.topic;
    if cluster.listens(topic, broker) {
        return 0.0;
    }
    let is_wanted = cluster.listening_count(topic) > 0;
    let near = cluster.nearest_listener(topic, broker);
    let mut cost = 0.0;
    if interest.role.subscribes() {
        let all: u32 = cluster.subscriptions(topic).iter().sum();
        let share = if is_wanted {
            libm::pow(1.0 + f64::from(all), -POPULARITY_DISCOUNT)
        } else if cluster.publishes(topic, broker) {
            0.0
        } else {
            FOLLOWS_LATER
        };
        cost += cluster.rate(topic) * share * near;
    }
    if let (Some(rate), true) = (interest.role.publish_rate(), is_wanted) {
        cost += rate * near;
    }
    cost
}

/// The client identifier that session `number` of a client connects with.
#[must_use]
pub fn session_client_id(client_id: &str, number: u16) -> String {
    match number {
        1 => client_id.to_owned(),
        number => format!("{client_id}~{number}"),
    }
}

/// A session that stays has the number it had; the others get the lowest free ones. `is_client`: a client of its own has the name of that session.
fn numbered(
    mut by_node: BTreeMap<u64, PlacedSession>,
    before: Option<&Placement>,
    is_client: impl Fn(u16) -> bool,
) -> Vec<PlacedSession> {
    let mut taken = BTreeSet::new();
    for session in before.iter().flat_map(|placement| &placement.sessions) {
        if let Some(stays) = by_node.get_mut(&session.node) {
            stays.number = session.number;
            taken.insert(session.number);
        }
    }
    let mut free = (1..).filter(|number| !taken.contains(number) && !is_client(*number));
    let mut sessions: Vec<PlacedSession> = by_node
        .into_values()
        .map(|mut session| {
            if session.number == 0 {
                session.number = free.next().unwrap_or(u16::MAX);
            }
            session
        })
        .collect();
    sessions.sort_by_key(|session| session.number);
    sessions
}

#[cfg(test)]
mod tests;
