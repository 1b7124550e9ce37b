//! The choices Algorithm 1 leaves open, each by name.

use crate::error::ParameterError;

/// Which loads a candidate broker must have within gamma (Eq. 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TestedLoad {
    /// Input for publishers, output for subscribers, both for a client that is both.
    #[default]
    Own,
    /// Input and output for every client, as Eq. 11 prints it.
    Both,
}

/// When a candidate's load is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadMoment {
    /// Before the client is added.
    #[default]
    Before,
    /// As if the client were added with all its topics not yet assigned.
    After,
}

/// What a cluster without any load means for the test of Eq. 11.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdleCluster {
    /// Every broker is a candidate.
    #[default]
    Candidate,
    /// The test is applied as it stands.
    Tested,
}

/// Who wins among brokers with the same growth of internal traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ties {
    /// The least loaded in the client's own dimension, then the lowest index.
    #[default]
    LeastLoaded,
    /// The lowest index.
    LowestIndex,
}

/// What makes a topic active at a broker when a subscriber comes (Ta_k).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActiveBy {
    /// A publisher or a subscriber.
    #[default]
    Either,
    /// A subscriber only.
    Subscriber,
}

/// What a subscription costs while its topic has no publisher (Eq. 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingPublisher {
    /// As much as with one: it will come.
    #[default]
    Anticipated,
    /// Nothing, as Eq. 9 prints it.
    Ignored,
}

/// Which brokers a publisher's messages are assumed to cross to (the indicator of Eq. 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PublisherIndicator {
    /// Those with a subscriber: what the text around Eq. 10 means.
    #[default]
    Subscriber,
    /// Those where the topic is active, by a publisher too.
    Active,
}

/// Which topics one round of Algorithm 1 assigns when all of them cost something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subset {
    /// The single cheapest, the first in the client's order (footnote 5).
    #[default]
    One,
    /// All that share the lowest cost, as the algorithm's text prints it.
    All,
}

/// The choices Algorithm 1 leaves open. `default()` is what performs well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatchingOptions {
    /// Which loads are tested.
    pub tested_load: TestedLoad,
    /// When they are taken.
    pub load_moment: LoadMoment,
    /// Whether an idle cluster passes.
    pub idle_cluster: IdleCluster,
    /// How ties end.
    pub ties: Ties,
    /// What makes a topic active.
    pub active_by: ActiveBy,
    /// What a missing publisher means.
    pub missing_publisher: MissingPublisher,
    /// What the indicator of Eq. 10 counts.
    pub publisher_indicator: PublisherIndicator,
    /// What a round assigns.
    pub subset: Subset,
}

impl MatchingOptions {
    /// The options by name, each with its default first and its other value second.
    pub const NAMES: [(&'static str, [&'static str; 2]); 8] = [
        ("tested-load", ["own", "both"]),
        ("load-moment", ["before", "after"]),
        ("idle-cluster", ["candidate", "tested"]),
        ("ties", ["least-loaded", "lowest-index"]),
        ("active-by", ["either", "subscriber"]),
        ("missing-publisher", ["anticipated", "ignored"]),
        ("publisher-indicator", ["subscriber", "active"]),
        ("subset", ["one", "all"]),
    ];

    /// The paper to the letter: both loads tested, ties to the lowest index, topics without publisher cost nothing, and
    /// the indicator of Eq. 10 as printed. Footnote 5 is the paper's too and stays.
    #[must_use]
    pub fn literal() -> Self {
        Self {
            tested_load: TestedLoad::Both,
            load_moment: LoadMoment::Before,
            idle_cluster: IdleCluster::Tested,
            ties: Ties::LowestIndex,
            active_by: ActiveBy::Either,
            missing_publisher: MissingPublisher::Ignored,
            publisher_indicator: PublisherIndicator::Active,
            subset: Subset::One,
        }
    }

    /// Sets the option `name` of [`MatchingOptions::NAMES`] to `value`.
    ///
    /// # Errors
    /// There is no such option, or it has no such value; nothing was changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let Some((name, values)) = Self::NAMES.iter().find(|(known, _)| *known == name) else {
            let rule = "must be one of the options of Algorithm 1";
            return Err(ParameterError::new("option", rule, name));
        };
        let Some(choice) = values.iter().position(|known| *known == value) else {
            let rule = format!("must be {} or {}", values[0], values[1]);
            return Err(ParameterError::new(name, rule, value));
        };
        match *name {
            "tested-load" => self.tested_load = [TestedLoad::Own, TestedLoad::Both][choice],
            "load-moment" => self.load_moment = [LoadMoment::Before, LoadMoment::After][choice],
            "idle-cluster" => {
                self.idle_cluster = [IdleCluster::Candidate, IdleCluster::Tested][choice]
            }
            "ties" => self.ties = [Ties::LeastLoaded, Ties::LowestIndex][choice],
            "active-by" => self.active_by = [ActiveBy::Either, ActiveBy::Subscriber][choice],
            "missing-publisher" => {
                self.missing_publisher =
                    [MissingPublisher::Anticipated, MissingPublisher::Ignored][choice]
            }
            "publisher-indicator" => {
                self.publisher_indicator =
                    [PublisherIndicator::Subscriber, PublisherIndicator::Active][choice]
            }
            _ => self.subset = [Subset::One, Subset::All][choice],
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_can_be_set_by_name_and_the_first_value_is_the_default() {
        for (name, [default, other]) in MatchingOptions::NAMES {
            let mut options = MatchingOptions::default();
            options.set(name, default).unwrap();
            assert_eq!(options, MatchingOptions::default(), "{name}");
            options.set(name, other).unwrap();
            assert_ne!(options, MatchingOptions::default(), "{name}");
            options.set(name, default).unwrap();
            assert_eq!(options, MatchingOptions::default(), "{name}");
        }
    }

    #[test]
    fn unknown_names_and_values_are_refused() {
        let mut options = MatchingOptions::default();
        assert_eq!(
            options.set("ties", "random").unwrap_err().to_string(),
            "ties: must be least-loaded or lowest-index, not random"
        );
        assert_eq!(
            options.set("colour", "red").unwrap_err().to_string(),
            "option: must be one of the options of Algorithm 1, not colour"
        );
    }
}
