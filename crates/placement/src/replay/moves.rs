//! Moves of sessions that lower the work of a cluster, the best ones first.
//!
//! What is lowered is the sum of the squares of the work of the brokers: it falls both when work moves from a busy broker to an idle one, and when
//! messages between brokers disappear. A message that costs more than one between neighbours counts as that much more work of a broker with mean
//! load. A step moves what one client has of one topic, all that one client has, or all clients of one topic; the step with the largest gain a
//! session that moves comes first. What a filter with wildcards matches moves with its client as a whole. Gains are computed again when their step is about to be made.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::bundles::Bundles;
use crate::cluster::Cluster;
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::placer::{Assignment, Placer};
use crate::simulator::CpuWeights;
use crate::strategy::{Interest, Role};

/// A step must lower the sum by this share at least: less is rounding.
const LEAST_GAIN: f64 = 1e-9;
/// Steps that cost something at first may gain something later: all are examined again this often.
const ROUNDS: usize = 4;

/// Looks for moves.
#[derive(Debug)]
pub(super) struct Moves<'a> {
    placer: &'a mut Placer,
    bundles: &'a Bundles,
    /// By client: the sessions that it may have.
    sessions: &'a [usize],
    weights: CpuWeights,
    /// Of each broker.
    work: Vec<f64>,
    /// The clients that have something of each topic.
    clients_of: Vec<Vec<ClientId>>,
    client_count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// What a client has of a topic, or of all that a filter with wildcards of the client matches.
    Part(ClientId, TopicId, BrokerId),
    /// All that a client has.
    Client(ClientId, BrokerId),
    /// All clients of a topic that need not move others with it.
    Topic(TopicId, BrokerId),
}

/// What one client has of one topic moves elsewhere.
#[derive(Debug, Clone, Copy)]
struct Shift {
    client: ClientId,
    assignment: Assignment,
    to: BrokerId,
}

#[derive(Debug)]
struct Candidate {
    gain: f64,
    step: Step,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_gain = self.gain.total_cmp(&other.gain);
        by_gain.then_with(|| other.step.cmp(&self.step))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl<'a> Moves<'a> {
    pub(super) fn new(
        placer: &'a mut Placer,
        bundles: &'a Bundles,
        sessions: &'a [usize],
        weights: CpuWeights,
    ) -> Self {
        let cluster = placer.cluster();
        let traffic = cluster.traffic();
        let work = traffic.brokers.iter().map(|it| weights.work(it)).collect();
        let mut clients_of = vec![Vec::new(); cluster.topic_count()];
        let client_count = placer.client_count();
        for number in 0..client_count {
            let client = ClientId(number as u32);
            for assignment in placer.assignments(client) {
                clients_of[assignment.topic.index()].push(client);
            }
        }
        Self {
            placer,
            bundles,
            sessions,
            weights,
            work,
            clients_of,
            client_count,
        }
    }

    /// Moves at most `most` sessions.
    pub(super) fn improve(&mut self, most: usize) {
        let mut left = most;
        for _ in 0..ROUNDS {
            let before = left;
            let steps = self.steps().into_iter();
            let rated = steps.filter_map(|step| Some((self.rate(step, left)?, step)));
            let mut heap: BinaryHeap<Candidate> =
                rated.map(|(gain, step)| Candidate { gain, step }).collect();
            while left > 0
                && let Some(Candidate { step, .. }) = heap.pop()
            {
                let Some(gain) = self.rate(step, left) else {
                    continue;
                };
                if heap.peek().is_some_and(|next| next.gain > gain) {
                    heap.push(Candidate { gain, step });
                    continue;
                }
                left -= self.make(step);
            }
            if left == before || left == 0 {
                return;
            }
        }
    }

    fn steps(&self) -> Vec<Step> {
        let brokers: Vec<BrokerId> = self.placer.cluster().brokers().collect();
        let mut steps = Vec::new();
        for number in 0..self.client_count {
            let client = ClientId(number as u32);
            let parts = self.parts(client);
            for to in &brokers {
                if !parts.is_empty() {
                    steps.push(Step::Client(client, *to));
                }
                if parts.len() > 1 {
                    let parts = parts.iter();
                    steps.extend(parts.map(|topic| Step::Part(client, *topic, *to)));
                }
            }
        }
        for number in 0..self.clients_of.len() {
            let topic = TopicId(number as u32);
            steps.extend(brokers.iter().map(|to| Step::Topic(topic, *to)));
        }
        steps
    }

    /// One topic of each part of a client that may move without the rest.
    fn parts(&self, client: ClientId) -> Vec<TopicId> {
        let mut bundles = BTreeSet::new();
        let topics = self.placer.assignments(client).iter().map(|it| it.topic);
        topics
            .filter(|topic| match self.bundles.of(client, *topic) {
                Some(whole) => bundles.insert(whole),
                None => true,
            })
            .collect()
    }

    /// What a step gains a session that moves; `None`: nothing, or it may not be made.
    fn rate(&self, step: Step, left: usize) -> Option<f64> {
        let shifts = self.shifts(step);
        let moves = sessions(&shifts);
        if moves == 0 || moves > left || !self.is_allowed(&shifts) {
            return None;
        }
        let square = |work: &[f64]| work.iter().map(|it| it * it).sum::<f64>();
        let before = square(&self.work);
        let (after, farther) = self.after(&shifts);
        let mean = self.work.iter().sum::<f64>() / self.work.len() as f64;
        let gain = before - square(&after) - 2.0 * mean * farther;
        (gain > before * LEAST_GAIN).then_some(gain / moves as f64)
    }

    fn shifts(&self, step: Step) -> Vec<Shift> {
        let of = |client: ClientId, topic: Option<TopicId>, to: BrokerId| {
            let assignments = self.placer.assignments(client).iter();
            assignments
                .filter(move |it| {
                    let is_part = |topic| self.bundles.are_together(client, it.topic, topic);
                    it.broker != to && topic.is_none_or(is_part)
                })
                .map(move |assignment| Shift {
                    client,
                    assignment: *assignment,
                    to,
                })
        };
        match step {
            Step::Part(client, topic, to) => of(client, Some(topic), to).collect(),
            Step::Client(client, to) => of(client, None, to).collect(),
            Step::Topic(topic, to) => {
                let clients = self.clients_of[topic.index()].iter();
                let clients = clients.filter(|it| self.bundles.of(**it, topic).is_none());
                let moving = clients.flat_map(|client| of(*client, Some(topic), to));
                // A client that would have too many sessions stays; the rest may move without it.
                moving.filter(|shift| self.is_allowed(&[*shift])).collect()
            }
        }
    }

    /// No client has more sessions afterwards than it may, unless it has them already.
    fn is_allowed(&self, shifts: &[Shift]) -> bool {
        let mut by_client: BTreeMap<ClientId, BTreeMap<TopicId, BrokerId>> = BTreeMap::new();
        for shift in shifts {
            let moved = by_client.entry(shift.client).or_default();
            moved.insert(shift.assignment.topic, shift.to);
        }
        by_client.iter().all(|(client, moved)| {
            let assignments = self.placer.assignments(*client);
            let count = |brokers: BTreeSet<BrokerId>| brokers.len();
            let before = count(assignments.iter().map(|it| it.broker).collect());
            let after = assignments.iter();
            let after = count(
                after
                    .map(|it| moved.get(&it.topic).copied().unwrap_or(it.broker))
                    .collect(),
            );
            after <= before.max(self.sessions[client.index()])
        })
    }

    /// The work of each broker after a step, and how much more work it would be, all together, by what messages between brokers cost.
    fn after(&self, shifts: &[Shift]) -> (Vec<f64>, f64) {
        let mut by_topic: BTreeMap<TopicId, Vec<Shift>> = BTreeMap::new();
        for shift in shifts {
            let of_topic = by_topic.entry(shift.assignment.topic).or_default();
            of_topic.push(*shift);
        }
        let (mut work, mut farther) = (self.work.clone(), 0.0);
        let cluster = self.placer.cluster();
        for (topic, shifts) in by_topic {
            let before = Seats::of(cluster, topic);
            self.add_topic(&mut work, -1.0, &before);
            farther -= self.extra(&before);
            let after = before.after(&shifts);
            self.add_topic(&mut work, 1.0, &after);
            farther += self.extra(&after);
        }
        (work, farther)
    }

    /// What a topic costs above the work that it makes.
    fn extra(&self, seats: &Seats) -> f64 {
        let distances = self.placer.cluster().distances();
        if distances.are_even() {
            return 0.0;
        }
        let mut extra = 0.0;
        for (from, published) in seats.published.iter().enumerate() {
            for (to, subscribed) in seats.subscribed.iter().enumerate() {
                if from != to && *subscribed > 0 {
                    let [from, to] = [from, to].map(|it| BrokerId(it as u16));
                    extra += published * (distances.between(from, to) - 1.0);
                }
            }
        }
        extra * (self.weights.received + self.weights.sent)
    }

    /// Adds the work of a topic, `times` times.
    fn add_topic(&self, work: &mut [f64], times: f64, seats: &Seats) {
        let CpuWeights { received, sent } = self.weights;
        let published: f64 = seats.published.iter().sum();
        let listening = seats.subscribed.iter().filter(|count| **count > 0).count();
        for (broker, work) in work.iter_mut().enumerate() {
            let (own, subscribed) = (seats.published[broker], seats.subscribed[broker]);
            let elsewhere = listening - usize::from(subscribed > 0);
            let from_others = if subscribed > 0 { published - own } else { 0.0 };
            let to_all = published * f64::from(subscribed) + own * elsewhere as f64;
            *work += times * (received * (own + from_others) + sent * to_all);
        }
    }

    /// Makes a step. Returns how many sessions it moved.
    fn make(&mut self, step: Step) -> usize {
        let shifts = self.shifts(step);
        self.work = self.after(&shifts).0;
        let clients: BTreeSet<ClientId> = shifts.iter().map(|shift| shift.client).collect();
        for client in clients {
            let cluster = self.placer.cluster();
            let rate_of = |topic: TopicId| {
                let mut publishers = cluster.publishers(topic).iter();
                let own = publishers.find(|it| it.client == client);
                own.map_or(0.0, |it| it.rate)
            };
            let moved = |assignment: &Assignment| {
                let mut own = shifts.iter().filter(|shift| shift.client == client);
                let shift = own.find(|shift| shift.assignment.topic == assignment.topic);
                shift.map_or(assignment.broker, |shift| shift.to)
            };
            let at: Vec<(Interest, BrokerId)> = self
                .placer
                .assignments(client)
                .iter()
                .map(|it| {
                    let rate = rate_of(it.topic);
                    let role = match (it.publishes, it.subscribes) {
                        (true, true) => Role::Both { rate },
                        (true, false) => Role::Publisher { rate },
                        (false, _) => Role::Subscriber,
                    };
                    let topic = it.topic;
                    (Interest { topic, role }, moved(it))
                })
                .collect();
            self.placer
                .restore(client, &at)
                .expect("the rates were taken before");
        }
        sessions(&shifts)
    }
}

/// Sessions, or parts of them, that move from one broker to another.
fn sessions(shifts: &[Shift]) -> usize {
    let ways = shifts
        .iter()
        .map(|shift| (shift.client, shift.assignment.broker, shift.to));
    ways.collect::<BTreeSet<_>>().len()
}

/// Where the clients of one topic are.
struct Seats {
    /// Messages per second from clients, by broker.
    published: Vec<f64>,
    /// Subscriptions, by broker.
    subscribed: Vec<u32>,
    /// Messages per second, by publisher.
    rates: BTreeMap<ClientId, f64>,
}

impl Seats {
    fn of(cluster: &Cluster, topic: TopicId) -> Self {
        let mut published = vec![0.0; cluster.broker_count()];
        let mut rates = BTreeMap::new();
        for publisher in cluster.publishers(topic) {
            published[publisher.broker.index()] += publisher.rate;
            rates.insert(publisher.client, publisher.rate);
        }
        Self {
            published,
            subscribed: cluster.subscriptions(topic).to_vec(),
            rates,
        }
    }

    fn after(mut self, shifts: &[Shift]) -> Self {
        for Shift {
            client,
            assignment,
            to,
        } in shifts
        {
            let (from, to) = (assignment.broker.index(), to.index());
            if assignment.subscribes {
                self.subscribed[from] -= 1;
                self.subscribed[to] += 1;
            }
            if assignment.publishes {
                let rate = self.rates.get(client).copied().unwrap_or(0.0);
                self.published[from] -= rate;
                self.published[to] += rate;
            }
        }
        self
    }
}
