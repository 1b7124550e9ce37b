//! The topics of publishers and subscribers, and the first node of each client.

use std::collections::BTreeSet;

use super::{Attach, Load, PlacementExperiment};
use crate::random::{Random, Zipf};

/// Publisher *n* has topic *n*; subscribers have the numbers after the publishers.
#[derive(Debug)]
pub(super) struct Population {
    /// Topics by subscriber.
    pub wanted: Vec<Vec<usize>>,
    /// Node by publisher, then by subscriber.
    pub first: Vec<usize>,
}

impl Population {
    pub fn draw(experiment: &PlacementExperiment, attach: Attach) -> Self {
        let mut random = Random::new(experiment.seed);
        let topics = experiment.load.topics();
        let wanted: Vec<Vec<usize>> = match experiment.load {
            Load::Pairs { .. } => (0..topics).map(|topic| vec![topic]).collect(),
            Load::Social {
                subscribers,
                wanted,
                exponent,
                ..
            } => {
                let law = Zipf::new(topics, exponent);
                let mut draw = || {
                    let mut all = BTreeSet::new();
                    while all.len() < wanted.min(topics) {
                        all.insert(law.sample(&mut random));
                    }
                    all.into_iter().collect()
                };
                (0..subscribers).map(|_| draw()).collect()
            }
        };
        let mut draw = |client: usize| match attach {
            Attach::Local => client % topics % experiment.nodes,
            Attach::Random | Attach::Placed { .. } | Attach::Learned { .. } | Attach::Redirect => {
                random.below(experiment.nodes)
            }
        };
        let first = (0..topics + wanted.len()).map(&mut draw).collect();
        Self { wanted, first }
    }

    /// Subscribers of each topic.
    pub fn audience(&self, topics: usize) -> Vec<u64> {
        let mut audience = vec![0; topics];
        for topic in self.wanted.iter().flatten() {
            audience[*topic] += 1;
        }
        audience
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::experiment;
    use super::*;

    #[test]
    fn a_population_wants_distinct_topics_the_first_ones_most() {
        let population = Population::draw(&experiment(), Attach::Random);
        assert_eq!(population.wanted.len(), 10);
        for wanted in &population.wanted {
            let distinct: BTreeSet<_> = wanted.iter().collect();
            assert_eq!(distinct.len(), 4);
        }
        let audience = population.audience(20);
        assert_eq!(audience.iter().sum::<u64>(), 40);
        assert!(audience[0] > audience[19]);
        assert_eq!(population.first.len(), 30);
        assert!(population.first.iter().all(|node| *node < 3));
    }

    #[test]
    fn local_pairs_are_at_one_node_and_all_nodes_have_some() {
        let experiment = PlacementExperiment {
            load: Load::Pairs { topics: 8 },
            ..experiment()
        };
        let population = Population::draw(&experiment, Attach::Local);
        assert_eq!(population.first[..8], population.first[8..]);
        assert_eq!(population.first[..3], [0, 1, 2]);
    }
}
