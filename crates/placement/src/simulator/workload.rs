//! Populations of clients drawn from a scenario (Detti sections III and V).

use crate::error::{ParameterError, check_rate, count};
use crate::ids::{ClientId, TopicId};
use crate::model::{Scenario, zipf};
use crate::random::Random;
use crate::strategy::{Interest, Role};

/// In which order the clients of a workload arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArrivalOrder {
    /// All publishers, then all subscribers: what the paper's figures are run with here.
    #[default]
    PublishersFirst,
    /// All subscribers, then all publishers.
    SubscribersFirst,
    /// All clients in a random order.
    Random,
}

impl ArrivalOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::PublishersFirst, Self::SubscribersFirst, Self::Random];

    /// The name users give.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PublishersFirst => "publishers-first",
            Self::SubscribersFirst => "subscribers-first",
            Self::Random => "random",
        }
    }
}

/// Messages per second on each topic (lambda_j).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rates {
    /// The same on every topic.
    Equal(f64),
    /// Pareto with this mean and shape, drawn separately for each topic; the lower the shape, the fewer topics carry the most.
    Pareto {
        /// Mean in messages per second.
        mean: f64,
        /// Shape, above 1.
        shape: f64,
    },
}

impl Rates {
    fn check(self) -> Result<(), ParameterError> {
        match self {
            Self::Equal(rate) => check_rate("rate", rate),
            Self::Pareto { mean, shape } => {
                check_rate("rate", mean)?;
                if !(shape.is_finite() && shape > 1.0) {
                    return Err(ParameterError::new("pareto", "must be above 1", shape));
                }
                Ok(())
            }
        }
    }

    /// Mean in messages per second.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Self::Equal(rate) | Self::Pareto { mean: rate, .. } => rate,
        }
    }

    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Equal(rate) => rate,
            Self::Pareto { mean, shape } => {
                let least = mean * (shape - 1.0) / shape;
                least * libm::pow(1.0 - random.unit(), -1.0 / shape)
            }
        }
    }
}

/// What a workload is drawn from.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadOptions {
    /// Topics and how they are followed. Each topic has one publisher.
    pub scenario: Scenario,
    /// Number of subscribers (Nsub).
    pub subscriber_count: usize,
    /// Messages per second on the topics.
    pub rates: Rates,
    /// The order of arrival.
    pub order: ArrivalOrder,
}

/// Clients in the order they arrive. Publisher of topic j is client j; subscribers follow in number.
#[derive(Debug, Clone)]
pub struct Workload {
    rates: Vec<f64>,
    /// Topics of each subscriber, one after the other.
    followed: Vec<u32>,
    /// Where each subscriber's topics end in `followed`.
    ends: Vec<u32>,
    order: Vec<u32>,
}

impl Workload {
    /// Draws the workload of `seed`.
    ///
    /// # Errors
    /// There is no subscriber, a rate is negative, or a Pareto shape is not above 1.
    pub fn draw(options: &WorkloadOptions, seed: u64) -> Result<Self, ParameterError> {
        const WORKLOAD_STREAM: u64 = 1;
        count("subscribers", options.subscriber_count)?;
        options.rates.check()?;
        let mut random = Random::new(seed, WORKLOAD_STREAM);
        let topic_count = options.scenario.topic_count();
        let rates = (0..topic_count)
            .map(|_| options.rates.draw(&mut random))
            .collect();
        let mut chooser = Chooser::new(&options.scenario);
        let mut followed = Vec::new();
        let mut ends = Vec::with_capacity(options.subscriber_count);
        for _ in 0..options.subscriber_count {
            chooser.choose(&mut random, &mut followed);
            ends.push(followed.len() as u32);
        }
        let order = order_of_arrival(
            options.order,
            topic_count,
            options.subscriber_count,
            &mut random,
        );
        Ok(Self {
            rates,
            followed,
            ends,
            order,
        })
    }

    /// Messages per second, one entry a topic.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// All clients in the order they arrive.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.order.iter().map(|client| ClientId(*client))
    }

    /// Whether `client` is a subscriber; the others are publishers.
    #[must_use]
    pub fn is_subscriber(&self, client: ClientId) -> bool {
        client.index() >= self.rates.len()
    }

    /// Number of topics of `client`.
    #[must_use]
    pub fn topic_count_of(&self, client: ClientId) -> usize {
        self.followed_by(client).map_or(1, <[u32]>::len)
    }

    /// The topics of a subscriber; `None` for a publisher.
    fn followed_by(&self, client: ClientId) -> Option<&[u32]> {
        let subscriber = client.index().checked_sub(self.rates.len())?;
        let first = match subscriber.checked_sub(1) {
            Some(previous) => self.ends[previous] as usize,
            None => 0,
        };
        Some(&self.followed[first..self.ends[subscriber] as usize])
    }

    /// The interests of `client`.
    #[must_use]
    pub fn interests(&self, client: ClientId) -> Vec<Interest> {
        let Some(followed) = self.followed_by(client) else {
            let role = Role::Publisher {
                rate: self.rates[client.index()],
            };
            return vec![Interest {
                topic: TopicId(client.0),
                role,
            }];
        };
        followed
            .iter()
            .map(|topic| Interest {
                topic: TopicId(*topic),
                role: Role::Subscriber,
            })
            .collect()
    }
}

fn order_of_arrival(
    order: ArrivalOrder,
    topic_count: usize,
    subscriber_count: usize,
    random: &mut Random,
) -> Vec<u32> {
    let publishers = 0..topic_count as u32;
    let subscribers = topic_count as u32..(topic_count + subscriber_count) as u32;
    match order {
        ArrivalOrder::PublishersFirst => publishers.chain(subscribers).collect(),
        ArrivalOrder::SubscribersFirst => subscribers.chain(publishers).collect(),
        ArrivalOrder::Random => {
            let mut clients: Vec<u32> = publishers.chain(subscribers).collect();
            random.shuffle(&mut clients);
            clients
        }
    }
}

/// Draws the topics of one subscriber after the other.
struct Chooser<'a> {
    scenario: &'a Scenario,
    popularity: Vec<f64>,
    cumulated: Vec<f64>,
    /// Topics the present subscriber has, to be cleared after it.
    taken: Vec<bool>,
}

impl<'a> Chooser<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let popularity = match scenario {
            Scenario::Social {
                topic_count, alpha, ..
            } => zipf(*topic_count, *alpha),
            Scenario::Iot { .. } => Vec::new(),
        };
        let mut sum = 0.0;
        let cumulated = popularity
            .iter()
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        Self {
            scenario,
            taken: vec![false; popularity.len()],
            popularity,
            cumulated,
        }
    }

    fn choose(&mut self, random: &mut Random, followed: &mut Vec<u32>) {
        match self.scenario {
            Scenario::Social { subscriptions, .. } => {
                self.draw_distinct(*subscriptions, random, followed);
            }
            Scenario::Iot { tree, .. } => {
                let mut left = random.unit();
                let likely = tree.levels().iter().rposition(|level| *level > 0.0);
                let level = tree
                    .levels()
                    .iter()
                    .position(|level| {
                        left -= level;
                        left < 0.0
                    })
                    .or(likely)
                    .expect("probabilities sum to 1");
                let node = random.below(tree.width(level) as usize) as u64;
                let below = self.scenario.topics_below(level, node);
                followed.extend(below.map(|topic| topic as u32));
            }
        }
    }

    /// Draws by popularity until `count` are different: a duplicate is drawn again (Detti III-A).
    fn draw_distinct(&mut self, count: usize, random: &mut Random, followed: &mut Vec<u32>) {
        const DRAWS_PER_TOPIC: usize = 16;
        let first = followed.len();
        let total = self.cumulated.last().copied().unwrap_or(0.0);
        for _ in 0..count * DRAWS_PER_TOPIC {
            let drawn = random.unit() * total;
            let topic = self
                .cumulated
                .partition_point(|sum| *sum <= drawn)
                .min(self.taken.len() - 1);
            if !std::mem::replace(&mut self.taken[topic], true) {
                followed.push(topic as u32);
                if followed.len() - first == count {
                    break;
                }
            }
        }
        self.draw_rest(count - (followed.len() - first), random, followed);
        for topic in &followed[first..] {
            self.taken[*topic as usize] = false;
        }
    }

    /// The last `count` topics when redrawing takes too long, with the same distribution: each topic left rings after an
    /// exponential time with its popularity as rate, and the first to ring are taken.
    fn draw_rest(&mut self, count: usize, random: &mut Random, followed: &mut Vec<u32>) {
        if count == 0 {
            return;
        }
        let mut rings: Vec<(f64, u32)> = self
            .popularity
            .iter()
            .enumerate()
            .filter(|(topic, _)| !self.taken[*topic])
            .map(|(topic, weight)| (random.exponential() / weight, topic as u32))
            .collect();
        rings.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, topic) in &rings[..count] {
            self.taken[*topic as usize] = true;
            followed.push(*topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tree;

    fn social(topics: usize, subscriptions: usize, alpha: f64, order: ArrivalOrder) -> Workload {
        let options = WorkloadOptions {
            scenario: Scenario::social(topics, subscriptions, alpha).unwrap(),
            subscriber_count: 400,
            rates: Rates::Equal(1.0),
            order,
        };
        Workload::draw(&options, 1).unwrap()
    }

    #[test]
    fn a_subscriber_follows_distinct_topics_however_skewed_they_are() {
        for (topics, subscriptions, alpha) in [(50, 50, 1.13), (100, 10, 0.0), (200, 20, 6.0)] {
            let workload = social(topics, subscriptions, alpha, ArrivalOrder::Random);
            for client in workload.clients().filter(|c| workload.is_subscriber(*c)) {
                let mut followed: Vec<_> = workload
                    .interests(client)
                    .iter()
                    .map(|interest| interest.topic)
                    .collect();
                assert_eq!(followed.len(), subscriptions);
                followed.sort_unstable();
                followed.dedup();
                assert_eq!(followed.len(), subscriptions);
            }
        }
    }

    #[test]
    fn drawing_the_rest_has_the_distribution_of_drawing_again() {
        // Two of three topics with weights 6 : 3 : 2 over 11; the last is left out with probability
        // 6/11 * 3/5 + 3/11 * 6/8 = 0.5318.
        let scenario = Scenario::social(3, 2, 1.0).unwrap();
        let mut chooser = Chooser::new(&scenario);
        let mut random = Random::new(2, 0);
        let mut without_last = 0;
        for _ in 0..20_000 {
            let mut followed = Vec::new();
            chooser.draw_rest(2, &mut random, &mut followed);
            without_last += u32::from(!followed.contains(&2));
            chooser.taken.fill(false);
        }
        assert!((f64::from(without_last) / 20_000.0 - 0.5318).abs() < 0.01);
    }

    #[test]
    fn every_client_comes_once_in_every_order() {
        for order in ArrivalOrder::ALL {
            let workload = social(100, 5, 1.0, order);
            let mut clients: Vec<_> = workload.clients().collect();
            let first_subscribes = workload.is_subscriber(clients[0]);
            match order {
                ArrivalOrder::PublishersFirst => assert!(!first_subscribes),
                ArrivalOrder::SubscribersFirst => assert!(first_subscribes),
                ArrivalOrder::Random => {}
            }
            clients.sort_unstable();
            assert_eq!(clients, (0..500).map(ClientId).collect::<Vec<_>>());
        }
    }

    #[test]
    fn iot_subscribers_follow_whole_branches_at_the_chosen_levels() {
        let tree = Tree::new(10, vec![0.0, 0.03, 0.3, 0.67]).unwrap();
        let options = WorkloadOptions {
            scenario: Scenario::iot(1000, tree).unwrap(),
            subscriber_count: 5000,
            rates: Rates::Equal(1.0),
            order: ArrivalOrder::PublishersFirst,
        };
        let workload = Workload::draw(&options, 4).unwrap();
        let mut by_size = [0_u32; 3];
        for client in workload.clients().filter(|c| workload.is_subscriber(*c)) {
            let size = workload.interests(client).len();
            by_size[[1, 10, 100].iter().position(|s| *s == size).unwrap()] += 1;
        }
        for (count, share) in by_size.iter().zip([0.67, 0.3, 0.03]) {
            assert!(
                (f64::from(*count) / 5000.0 - share).abs() < 0.02,
                "{by_size:?}"
            );
        }
    }

    #[test]
    fn pareto_rates_have_their_mean_and_bad_shapes_are_refused() {
        let mut random = Random::new(8, 0);
        let rates = Rates::Pareto {
            mean: 2.0,
            shape: 2.5,
        };
        let sum: f64 = (0..100_000).map(|_| rates.draw(&mut random)).sum();
        assert!((sum / 100_000.0 - 2.0).abs() < 0.03);
        let bad = Rates::Pareto {
            mean: 1.0,
            shape: 1.0,
        };
        assert_eq!(
            bad.check().unwrap_err().to_string(),
            "pareto: must be above 1, not 1"
        );
    }
}
