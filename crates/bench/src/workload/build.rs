//! Makes the plan of a workload.

use std::collections::BTreeSet;

use super::{
    MAX_DEPTH, Plan, PlanError, SubscriberPlan, TOPICS_OF_A_SUBSCRIBER, TopicTemplate, Workload,
};
use crate::random::{Random, Zipf};

const MAX_STREAMS: usize = 1_000_000;
const MAX_SUBSCRIBERS: usize = 1_000_000;
/// Of all subscribers together: the plan has each.
const MAX_SUBSCRIPTIONS: usize = 100_000_000;
const MAX_DRAWS_PER_TOPIC: usize = 10_000;

/// How the topics of a plan are named.
pub(super) struct Names<'a> {
    pub template: &'a TopicTemplate,
    /// The first level of the usual names, and of others where they say so.
    pub run: &'a str,
    pub seed: u64,
}

impl Names<'_> {
    fn name(&self, topic: usize) -> String {
        self.template.name(self.run, self.seed, topic)
    }

    /// The names of this many topics; an error if they would be the same.
    fn all(&self, count: usize) -> Result<Vec<String>, PlanError> {
        if count > MAX_STREAMS {
            return Err(PlanError::TooLarge(count));
        }
        if count > 1 && !self.template.tells_topics_apart() {
            return Err(self.refusal("is the same for all topics: it needs {n} or {random}"));
        }
        let names: Vec<String> = (0..count).map(|topic| self.name(topic)).collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        match distinct.len() == count {
            true => Ok(names),
            false => Err(self.refusal("names two topics alike: it needs {n}")),
        }
    }

    /// The filter of all topics.
    fn filter(&self) -> Result<String, PlanError> {
        let filter = self.template.filter(self.run);
        filter.ok_or_else(|| {
            self.refusal("has no level of its own for {n}, which subscribers replace by +")
        })
    }

    fn path(&self, path: &str) -> Result<String, PlanError> {
        let name = self.template.path(self.run, path);
        name.ok_or_else(|| self.refusal("must end in /{n}, the path in the tree"))
    }

    fn refusal(&self, reason: &str) -> PlanError {
        PlanError::Topic(format!("{:?} {reason}", self.template.text()))
    }
}

pub(super) fn build(workload: &Workload, names: &Names<'_>) -> Result<Plan, PlanError> {
    let mut random = Random::new(names.seed);
    match workload {
        Workload::Pair { pairs } => {
            positive(&[("pairs", *pairs)])?;
            let plan = Plan::of_topics(names.all(*pairs)?);
            Ok(plan.with_audiences((0..*pairs as u32).map(|stream| vec![stream])))
        }
        Workload::FanOut {
            publishers,
            subscribers,
        } => {
            positive(&[("publishers", *publishers), ("subscribers", *subscribers)])?;
            bounded("subscribers", *subscribers, *publishers)?;
            let plan = Plan::of_topics(names.all(*publishers)?);
            Ok(plan.with_audiences((0..*subscribers).map(|_| (0..*publishers as u32).collect())))
        }
        Workload::FanIn {
            publishers,
            subscribers,
        } => {
            positive(&[("publishers", *publishers), ("subscribers", *subscribers)])?;
            bounded("subscribers", *subscribers, *publishers)?;
            let mut plan = Plan::of_topics(names.all(*publishers)?);
            for audience in 0..*subscribers as u32 {
                plan.audiences.push((0..*publishers as u32).collect());
                plan.subscribers.push(SubscriberPlan {
                    filters: vec![names.filter()?],
                    audience,
                });
            }
            Ok(plan)
        }
        Workload::Social { .. } => build_social(workload, names, &mut random),
        Workload::Iot {
            depth,
            fan_out,
            level_probabilities,
            subscribers,
        } => {
            positive(&[
                ("depth", *depth),
                ("fan-out", *fan_out),
                ("subscribers", *subscribers),
            ])?;
            at_most("depth", *depth, MAX_DEPTH)?;
            bounded("subscribers", *subscribers, 1)?;
            build_iot(
                names,
                *depth,
                *fan_out,
                level_probabilities,
                *subscribers,
                &mut random,
            )
        }
        Workload::Idle { clients } => {
            positive(&[("clients", *clients)])?;
            bounded("clients", *clients, 1)?;
            Ok(Plan::of_topics(Vec::new()).with_audiences((0..*clients).map(|_| Vec::new())))
        }
        Workload::Shared {
            publishers,
            groups,
            members,
        } => {
            positive(&[
                ("publishers", *publishers),
                ("groups", *groups),
                ("members", *members),
            ])?;
            bounded("groups", *groups, *publishers)?;
            at_most("members", *members, MAX_SUBSCRIBERS / *groups)?;
            let mut plan = Plan::of_topics(names.all(*publishers)?);
            for group in 0..*groups as u32 {
                plan.audiences.push((0..*publishers as u32).collect());
                let filters = vec![format!("$share/g{group}/{}", names.filter()?)];
                plan.subscribers
                    .extend((0..*members).map(|_| SubscriberPlan {
                        filters: filters.clone(),
                        audience: group,
                    }));
            }
            Ok(plan)
        }
    }
}

/// Topics with a publisher each, or publishers that draw a topic each; subscribers draw among the
/// topics that are published.
fn build_social(
    workload: &Workload,
    names: &Names<'_>,
    random: &mut Random,
) -> Result<Plan, PlanError> {
    let Workload::Social {
        topics,
        publishers,
        subscribers,
        topics_per_subscriber,
        alpha,
    } = *workload
    else {
        return Err(PlanError::Zero("topics"));
    };
    positive(&[
        ("topics", topics),
        ("publishers", publishers.unwrap_or(topics)),
        ("subscribers", subscribers),
        (TOPICS_OF_A_SUBSCRIBER, topics_per_subscriber),
    ])?;
    if !alpha.is_finite() || alpha < 0.0 {
        return Err(PlanError::Alpha(alpha));
    }
    if topics_per_subscriber > topics {
        return Err(PlanError::TooFewTopics {
            wanted: topics_per_subscriber,
            topics,
        });
    }
    let most = publishers.map_or(topics_per_subscriber, |all| all.max(topics_per_subscriber));
    bounded("subscribers", subscribers, most)?;
    at_most("publishers", publishers.unwrap_or(1), MAX_STREAMS)?;
    let all = names.all(topics)?;
    let zipf = Zipf::new(topics, alpha);
    let topic_of: Vec<usize> = match publishers {
        None => (0..topics).collect(),
        Some(count) => (0..count).map(|_| zipf.sample(random)).collect(),
    };
    let mut streams_of = vec![Vec::new(); topics];
    for (topic, stream) in topic_of.iter().zip(0u32..) {
        streams_of[*topic].push(stream);
    }
    let mut plan = Plan::of_topics(topic_of.iter().map(|&topic| all[topic].clone()).collect());
    for audience in 0..subscribers as u32 {
        let drawn = distinct_topics(&zipf, random, topics_per_subscriber, &streams_of);
        let streams = drawn.iter().flat_map(|&topic| streams_of[topic].clone());
        let mut streams: Vec<u32> = streams.collect();
        streams.sort_unstable();
        plan.audiences.push(streams);
        plan.subscribers.push(SubscriberPlan {
            filters: drawn.into_iter().map(|topic| all[topic].clone()).collect(),
            audience,
        });
    }
    Ok(plan)
}

fn positive(counts: &[(&'static str, usize)]) -> Result<(), PlanError> {
    counts.iter().try_for_each(|&(name, count)| {
        if count == 0 {
            Err(PlanError::Zero(name))
        } else {
            Ok(())
        }
    })
}

fn at_most(name: &'static str, count: usize, most: usize) -> Result<(), PlanError> {
    if count > most {
        return Err(PlanError::TooMany { name, count, most });
    }
    Ok(())
}

/// An error if there are more subscribers, or groups of them, than a plan can hold, each of which receives `streams`.
fn bounded(name: &'static str, count: usize, streams: usize) -> Result<(), PlanError> {
    let most = MAX_SUBSCRIPTIONS / streams.clamp(1, MAX_STREAMS);
    at_most(name, count, most.min(MAX_SUBSCRIBERS))
}

/// Distinct draws among the topics that are published: any other, and a repeated one, is drawn
/// again (Detti III-A).
fn distinct_topics(
    zipf: &Zipf,
    random: &mut Random,
    count: usize,
    streams_of: &[Vec<u32>],
) -> Vec<usize> {
    let is_published = |topic: &usize| !streams_of[*topic].is_empty();
    let count = count.min((0..streams_of.len()).filter(is_published).count());
    let mut drawn = BTreeSet::new();
    for _ in 0..count * MAX_DRAWS_PER_TOPIC {
        if drawn.len() == count {
            break;
        }
        drawn.extend(Some(zipf.sample(random)).filter(is_published));
    }
    // With a steep law draws hardly leave the head: the most popular of the rest complete the set.
    let mut rest = (0..streams_of.len()).filter(is_published);
    while drawn.len() < count {
        drawn.extend(rest.next());
    }
    drawn.into_iter().collect()
}

/// Leaves are numbered so that those below any node are consecutive.
fn build_iot(
    names: &Names<'_>,
    depth: usize,
    fan_out: usize,
    probabilities: &[f64],
    subscribers: usize,
    random: &mut Random,
) -> Result<Plan, PlanError> {
    let total: f64 = probabilities.iter().sum();
    if probabilities.len() != depth
        || probabilities.iter().any(|&p| p < 0.0)
        || total <= 0.0
        || !total.is_finite()
    {
        return Err(PlanError::Levels {
            depth,
            given: probabilities.len(),
        });
    }
    let leaves = (1..depth)
        .try_fold(1usize, |leaves, _| leaves.checked_mul(fan_out))
        .unwrap_or(usize::MAX);
    let path = |mut node: usize, level: usize| {
        let mut places = vec![String::new(); level];
        for place in places.iter_mut().rev() {
            *place = (node % fan_out).to_string();
            node /= fan_out;
        }
        names.path(&places.join("/"))
    };
    if leaves > MAX_STREAMS {
        return Err(PlanError::TooLarge(leaves));
    }
    let topics: Result<Vec<String>, _> = (0..leaves).map(|leaf| path(leaf, depth - 1)).collect();
    let mut plan = Plan::of_topics(topics?);
    for audience in 0..subscribers as u32 {
        let mut point = random.unit() * total;
        let level = probabilities
            .iter()
            .position(|&p| {
                point -= p;
                point < 0.0
            })
            .unwrap_or(depth - 1);
        let node = random.below(fan_out.pow(level as u32));
        let below = fan_out.pow((depth - 1 - level) as u32);
        let filter = if level + 1 == depth {
            path(node, level)?
        } else {
            format!("{}/#", path(node, level)?)
        };
        plan.audiences
            .push(((node * below) as u32..((node + 1) * below) as u32).collect());
        plan.subscribers.push(SubscriberPlan {
            filters: vec![filter],
            audience,
        });
    }
    Ok(plan)
}

impl Plan {
    /// A plan with a publisher for each of these, its topic, and no subscribers.
    const fn of_topics(topics: Vec<String>) -> Self {
        Self {
            topics,
            subscribers: Vec::new(),
            audiences: Vec::new(),
        }
    }

    /// Adds a subscriber for each audience, with its streams as exact filters.
    fn with_audiences(mut self, audiences: impl Iterator<Item = Vec<u32>>) -> Self {
        for (audience, streams) in audiences.enumerate() {
            let filters = streams
                .iter()
                .map(|&stream| self.topics[stream as usize].clone())
                .collect();
            self.subscribers.push(SubscriberPlan {
                filters,
                audience: audience as u32,
            });
            self.audiences.push(streams);
        }
        self
    }

    /// Number of audiences of each stream.
    #[must_use]
    pub fn recipients(&self) -> Vec<u32> {
        let mut recipients = vec![0; self.topics.len()];
        for &stream in self.audiences.iter().flatten() {
            recipients[stream as usize] += 1;
        }
        recipients
    }
}

#[cfg(test)]
mod tests {
    use super::super::level_probabilities;
    use super::*;
    use crate::relay::matches;

    fn all() -> Vec<Workload> {
        vec![
            Workload::Pair { pairs: 3 },
            Workload::FanOut {
                publishers: 2,
                subscribers: 4,
            },
            Workload::FanIn {
                publishers: 5,
                subscribers: 2,
            },
            Workload::Social {
                topics: 30,
                publishers: None,
                subscribers: 6,
                topics_per_subscriber: 4,
                alpha: 1.13,
            },
            Workload::Social {
                topics: 10,
                publishers: Some(20),
                subscribers: 7,
                topics_per_subscriber: 2,
                alpha: 0.0,
            },
            Workload::Iot {
                depth: 4,
                fan_out: 3,
                level_probabilities: level_probabilities(4, 1.5),
                subscribers: 20,
            },
            Workload::Shared {
                publishers: 3,
                groups: 2,
                members: 3,
            },
            Workload::Idle { clients: 4 },
        ]
    }

    #[test]
    fn audiences_are_what_the_filters_match_and_nothing_else() {
        for workload in all() {
            let plan = workload.plan("t", 1).unwrap();
            for (index, subscriber) in plan.subscribers.iter().enumerate() {
                let wanted: Vec<u32> = (0..plan.topics.len() as u32)
                    .filter(|&stream| {
                        let topic = plan.topics[stream as usize].as_bytes();
                        let hits = subscriber.filters.iter().filter(|filter| {
                            let filter = filter
                                .strip_prefix("$share/")
                                .map_or(filter.as_str(), |rest| rest.split_once('/').unwrap().1);
                            matches(filter.as_bytes(), topic)
                        });
                        let hits = hits.count();
                        assert!(
                            hits <= 1,
                            "{workload:?}: overlapping filters of subscriber {index}"
                        );
                        hits == 1
                    })
                    .collect();
                assert_eq!(
                    plan.audiences[subscriber.audience as usize], wanted,
                    "{workload:?}: subscriber {index}"
                );
            }
        }
    }

    #[test]
    fn sizes_are_those_asked_for() {
        for (workload, sizes) in all().iter().zip([
            (3, 3, 3),
            (2, 4, 8),
            (5, 2, 10),
            (30, 6, 24),
            (20, 7, 0),
            (27, 20, 0),
            (3, 6, 6),
            (0, 4, 0),
        ]) {
            let plan = workload.plan("t", 1).unwrap();
            let deliveries: u32 = plan.recipients().iter().sum();
            assert_eq!(
                (plan.topics.len(), plan.subscribers.len()),
                (sizes.0, sizes.1),
                "{workload:?}"
            );
            // Those of drawn publishers and of the iot workload are random.
            assert!(
                sizes.2 == 0 || deliveries == sizes.2,
                "{workload:?}: {deliveries}"
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let workload = Workload::Social {
            topics: 100,
            publishers: None,
            subscribers: 10,
            topics_per_subscriber: 5,
            alpha: 1.0,
        };
        assert_eq!(workload.plan("t", 5), workload.plan("t", 5));
        assert_ne!(workload.plan("t", 5), workload.plan("t", 6));
    }

    #[test]
    fn publishers_draw_their_topics_and_subscribers_follow_those_that_are_published() {
        // (Overlays Table 1): 5 publishers, 20 subscribers, 60 topics.
        let workload = Workload::Social {
            topics: 60,
            publishers: Some(5),
            subscribers: 20,
            topics_per_subscriber: 1,
            alpha: 0.0,
        };
        let (mut published, mut alone) = (0, 0);
        for seed in 0..200 {
            let plan = workload.plan("t", seed).unwrap();
            assert_eq!((plan.topics.len(), plan.subscribers.len()), (5, 20));
            let topics: BTreeSet<&String> = plan.topics.iter().collect();
            published += topics.len();
            alone += usize::from(topics.len() == 5);
            for subscriber in &plan.subscribers {
                assert!(topics.contains(&subscriber.filters[0]), "seed {seed}");
            }
        }
        // The birthday problem: 5 draws of 60 are all different with probability 0.843.
        assert!((157..=180).contains(&alone), "{alone}");
        assert!(published > 950, "{published}");
        let few = Workload::Social {
            topics: 60,
            publishers: Some(2),
            subscribers: 3,
            topics_per_subscriber: 50,
            alpha: 0.0,
        };
        let plan = few.plan("t", 1).unwrap();
        assert!(plan.subscribers.iter().all(|it| it.filters.len() <= 2));
    }

    #[test]
    fn topics_are_named_as_the_template_says() {
        let fan_out = |publishers| Workload::FanOut {
            publishers,
            subscribers: 2,
        };
        let named = |workload: &Workload, text: &str| {
            let template = TopicTemplate::parse(text).unwrap();
            workload.plan_named(Some(&template), "r", 1)
        };
        let plan = named(&fan_out(1), "dst/mqtt/").unwrap();
        assert_eq!(plan.topics, ["dst/mqtt/"]);
        assert_eq!(plan.subscribers[1].filters, ["dst/mqtt/"]);
        let fan_in = Workload::FanIn {
            publishers: 2,
            subscribers: 1,
        };
        let plan = named(&fan_in, "site/{n}/temperature").unwrap();
        assert_eq!(plan.subscribers[0].filters, ["site/+/temperature"]);
        for (workload, text, words) in [
            (&fan_out(2), "dst/mqtt/", "needs {n} or {random}"),
            (&fan_in, "site{n}", "no level of its own"),
        ] {
            let error = named(workload, text).unwrap_err();
            assert_eq!(error.figure(), Some("topic"));
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn popular_topics_have_more_followers() {
        let workload = Workload::Social {
            topics: 1000,
            publishers: None,
            subscribers: 400,
            topics_per_subscriber: 10,
            alpha: 1.13,
        };
        let recipients = workload.plan("t", 2).unwrap().recipients();
        let (head, tail): (u32, u32) = (
            recipients[..10].iter().sum(),
            recipients[500..510].iter().sum(),
        );
        assert!(head > 20 * tail.max(1), "{head} against {tail}");
    }

    #[test]
    fn levels_are_drawn_with_their_probabilities() {
        let probabilities = vec![0.0, 0.03, 0.3, 0.67];
        let workload = Workload::Iot {
            depth: 4,
            fan_out: 10,
            level_probabilities: probabilities.clone(),
            subscribers: 20_000,
        };
        let plan = workload.plan("t", 4).unwrap();
        for (level, probability) in probabilities.iter().enumerate() {
            let below = 10usize.pow(3 - level as u32);
            let drawn = plan
                .audiences
                .iter()
                .filter(|streams| streams.len() == below)
                .count() as f64
                / 20_000.0;
            assert!(
                (drawn - probability).abs() < 0.015,
                "level {level}: {drawn}"
            );
        }
    }

    #[test]
    fn the_levels_of_the_paper_come_out_of_its_alpha() {
        for (alpha, printed) in [
            (1.5, [0.0, 0.122, 0.222, 0.656]),
            (0.5, [0.0, 0.258, 0.293, 0.449]),
        ] {
            // (Detti VI-B) prints figures that no single alpha gives exactly (0.293 / 0.449 is not 2^-0.5): hence the tolerance.
            for (computed, printed) in level_probabilities(4, alpha).iter().zip(printed) {
                assert!(
                    (computed - printed).abs() < 0.02,
                    "alpha {alpha}: {computed} for {printed}"
                );
            }
        }
    }

    #[test]
    fn impossible_workloads_are_refused_in_words() {
        for (workload, words) in [
            (Workload::Pair { pairs: 0 }, "pairs must be at least 1"),
            (
                Workload::Social {
                    topics: 3,
                    publishers: None,
                    subscribers: 1,
                    topics_per_subscriber: 4,
                    alpha: 1.0,
                },
                "cannot follow 4 distinct topics of 3",
            ),
            (
                Workload::Iot {
                    depth: 3,
                    fan_out: 2,
                    level_probabilities: vec![1.0],
                    subscribers: 1,
                },
                "1 level probabilities for a tree of 3",
            ),
            (
                Workload::Iot {
                    depth: 9,
                    fan_out: 100,
                    level_probabilities: vec![1.0; 9],
                    subscribers: 1,
                },
                "more than a run can hold",
            ),
            (
                Workload::FanOut {
                    publishers: 1,
                    subscribers: 99_999_999_999,
                },
                "subscribers must be at most 1000000, not 99999999999",
            ),
            (
                Workload::FanIn {
                    publishers: 1000,
                    subscribers: 100_001,
                },
                "subscribers must be at most 100000",
            ),
            (
                Workload::Iot {
                    depth: 99_999_999_999,
                    fan_out: 1,
                    level_probabilities: vec![1.0],
                    subscribers: 1,
                },
                "depth must be at most 64",
            ),
            (
                Workload::Shared {
                    publishers: 1,
                    groups: 10,
                    members: 100_001,
                },
                "members must be at most 100000",
            ),
            (
                Workload::Social {
                    topics: 3,
                    publishers: None,
                    subscribers: 1,
                    topics_per_subscriber: 1,
                    alpha: f64::NAN,
                },
                "alpha must be a number of 0 or more, not NaN",
            ),
        ] {
            let error = workload.plan("t", 1).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
