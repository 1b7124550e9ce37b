//! Makes the plan of a workload.

use std::collections::BTreeSet;

use super::{MAX_DEPTH, Plan, PlanError, SubscriberPlan, TOPICS_OF_A_SUBSCRIBER, Workload};
use crate::random::{Random, Zipf};

const MAX_STREAMS: usize = 1_000_000;
const MAX_SUBSCRIBERS: usize = 1_000_000;
/// Of all subscribers together: the plan has each.
const MAX_SUBSCRIPTIONS: usize = 100_000_000;
const MAX_DRAWS_PER_TOPIC: usize = 10_000;

pub(super) fn build(workload: &Workload, prefix: &str, seed: u64) -> Result<Plan, PlanError> {
    let mut random = Random::new(seed);
    match workload {
        Workload::Pair { pairs } => {
            positive(&[("pairs", *pairs)])?;
            let plan = Plan::with_topics(*pairs, |stream| format!("{prefix}/pair/{stream}"))?;
            Ok(plan.with_audiences((0..*pairs as u32).map(|stream| vec![stream])))
        }
        Workload::FanOut {
            publishers,
            subscribers,
        } => {
            positive(&[("publishers", *publishers), ("subscribers", *subscribers)])?;
            bounded("subscribers", *subscribers, *publishers)?;
            let plan = Plan::with_topics(*publishers, |stream| format!("{prefix}/out/{stream}"))?;
            Ok(plan.with_audiences((0..*subscribers).map(|_| (0..*publishers as u32).collect())))
        }
        Workload::FanIn {
            publishers,
            subscribers,
        } => {
            positive(&[("publishers", *publishers), ("subscribers", *subscribers)])?;
            bounded("subscribers", *subscribers, *publishers)?;
            let mut plan =
                Plan::with_topics(*publishers, |stream| format!("{prefix}/in/{stream}"))?;
            for audience in 0..*subscribers as u32 {
                plan.audiences.push((0..*publishers as u32).collect());
                plan.subscribers.push(SubscriberPlan {
                    filters: vec![format!("{prefix}/in/+")],
                    audience,
                });
            }
            Ok(plan)
        }
        Workload::Social {
            topics,
            subscribers,
            topics_per_subscriber,
            alpha,
        } => {
            positive(&[
                ("topics", *topics),
                ("subscribers", *subscribers),
                (TOPICS_OF_A_SUBSCRIBER, *topics_per_subscriber),
            ])?;
            if !alpha.is_finite() || *alpha < 0.0 {
                return Err(PlanError::Alpha(*alpha));
            }
            if topics_per_subscriber > topics {
                return Err(PlanError::TooFewTopics {
                    wanted: *topics_per_subscriber,
                    topics: *topics,
                });
            }
            bounded("subscribers", *subscribers, *topics_per_subscriber)?;
            let plan = Plan::with_topics(*topics, |stream| format!("{prefix}/social/{stream}"))?;
            let zipf = Zipf::new(*topics, *alpha);
            Ok(plan.with_audiences(
                (0..*subscribers)
                    .map(|_| distinct_topics(&zipf, &mut random, *topics_per_subscriber)),
            ))
        }
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
                prefix,
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
            Ok(Plan::with_topics(0, |_| String::new())?
                .with_audiences((0..*clients).map(|_| Vec::new())))
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
            let mut plan =
                Plan::with_topics(*publishers, |stream| format!("{prefix}/shared/{stream}"))?;
            for group in 0..*groups as u32 {
                plan.audiences.push((0..*publishers as u32).collect());
                let filters = vec![format!("$share/g{group}/{prefix}/shared/+")];
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

/// Distinct draws: a repeated one is drawn again (Detti III-A).
fn distinct_topics(zipf: &Zipf, random: &mut Random, count: usize) -> Vec<u32> {
    let mut drawn = BTreeSet::new();
    for _ in 0..count * MAX_DRAWS_PER_TOPIC {
        if drawn.len() == count {
            break;
        }
        drawn.insert(zipf.sample(random) as u32);
    }
    // With a steep law draws hardly leave the head: the most popular of the rest complete the set.
    let mut rest = 0..;
    while drawn.len() < count {
        drawn.extend(rest.next());
    }
    drawn.into_iter().collect()
}

/// Leaves are numbered so that those below any node are consecutive.
fn build_iot(
    prefix: &str,
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
        let mut names = vec![0; level];
        for name in names.iter_mut().rev() {
            (*name, node) = (node % fan_out, node / fan_out);
        }
        names.iter().fold(format!("{prefix}/iot"), |path, name| {
            format!("{path}/{name}")
        })
    };
    let mut plan = Plan::with_topics(leaves, |leaf| path(leaf, depth - 1))?;
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
            path(node, level)
        } else {
            format!("{}/#", path(node, level))
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
    /// A plan with a publisher for each topic and no subscribers.
    fn with_topics(count: usize, name: impl Fn(usize) -> String) -> Result<Self, PlanError> {
        if count > MAX_STREAMS {
            return Err(PlanError::TooLarge(count));
        }
        Ok(Self {
            topics: (0..count).map(name).collect(),
            subscribers: Vec::new(),
            audiences: Vec::new(),
        })
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
                subscribers: 6,
                topics_per_subscriber: 4,
                alpha: 1.13,
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
            // The deliveries of the iot workload are random.
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
            subscribers: 10,
            topics_per_subscriber: 5,
            alpha: 1.0,
        };
        assert_eq!(workload.plan("t", 5), workload.plan("t", 5));
        assert_ne!(workload.plan("t", 5), workload.plan("t", 6));
    }

    #[test]
    fn popular_topics_have_more_followers() {
        let workload = Workload::Social {
            topics: 1000,
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
