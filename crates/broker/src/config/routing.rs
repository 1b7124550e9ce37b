//! Keys of the routing of publications between nodes.

use thicket_overlay::RoutingConfig;
use thicket_overlay::routing::{RootPolicy, RootWeights, RoutingMode};

use super::faults::Faults;
use super::values::invalid;
use super::{ConfigError, Settings};

/// With a higher weight one factor would decide alone, whatever the others are.
const HIGHEST_WEIGHT: u32 = 1_000_000;
/// More trees would take gigabytes.
const MOST_TREES: u32 = 1_000_000;

pub(super) fn check(settings: &Settings, faults: &mut Faults) -> RoutingConfig {
    let default = RoutingConfig::default();
    let mode = match settings.routing.as_deref() {
        None => default.mode,
        Some(text) => {
            let mode = text
                .parse::<RoutingMode>()
                .map_err(|_| invalid("routing", format!("{text:?}"), "mesh, topic, tree or flood"));
            faults.keep(mode).unwrap_or(default.mode)
        }
    };
    let root_policy = match settings.root_policy.as_deref() {
        None => default.root_policy,
        Some(text) => {
            let policy = text.parse::<RootPolicy>().map_err(|_| {
                invalid(
                    "root_policy",
                    format!("{text:?}"),
                    "capacity, balance or delay",
                )
            });
            faults.keep(policy).unwrap_or(default.root_policy)
        }
    };
    let maximum_trees =
        faults.or_default(at_most("maximum_trees", settings.maximum_trees, MOST_TREES));
    RoutingConfig {
        mode,
        root_policy,
        weights: weights(settings, default.weights, faults),
        maximum_trees: maximum_trees.map_or(default.maximum_trees, |count| count as usize),
        ..default
    }
}

fn weights(settings: &Settings, default: RootWeights, faults: &mut Faults) -> RootWeights {
    let mut weight = |key, given, default| {
        let given = faults.or_default(at_most(key, given, HIGHEST_WEIGHT));
        given.unwrap_or(default)
    };
    RootWeights {
        alpha: weight("root_alpha", settings.root_alpha, default.alpha),
        beta: weight("root_beta", settings.root_beta, default.beta),
        gamma: weight("root_gamma", settings.root_gamma, default.gamma),
        delta: weight("root_delta", settings.root_delta, default.delta),
    }
}

fn at_most(key: &'static str, given: Option<u32>, most: u32) -> Result<Option<u32>, ConfigError> {
    match given {
        Some(value) if value > most => Err(invalid(key, value, format!("0 to {most}"))),
        _ => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_policies_and_weights_are_taken_over_or_refused_with_what_was_expected() {
        let given = Settings {
            routing: Some("topic".into()),
            root_policy: Some("balance".into()),
            root_gamma: Some(3),
            maximum_trees: Some(7),
            ..Settings::default()
        };
        let checked = |settings: &Settings| {
            let mut faults = Faults::default();
            let routing = check(settings, &mut faults);
            faults.end(routing)
        };
        let routing = checked(&given).expect("good");
        assert_eq!(
            (routing.mode, routing.root_policy),
            (RoutingMode::Topic, RootPolicy::Balance)
        );
        assert_eq!(
            (
                routing.weights.gamma,
                routing.weights.delta,
                routing.maximum_trees
            ),
            (3, 1, 7)
        );
        let cases = [
            (
                Settings {
                    routing: Some("star".into()),
                    ..Settings::default()
                },
                "routing",
                "mesh, topic, tree or flood",
            ),
            (
                Settings {
                    root_policy: Some("best".into()),
                    ..Settings::default()
                },
                "root_policy",
                "capacity, balance or delay",
            ),
            (
                Settings {
                    root_alpha: Some(u32::MAX),
                    ..Settings::default()
                },
                "root_alpha",
                "0 to 1000000",
            ),
        ];
        for (settings, key, expected) in cases {
            let error = checked(&settings).expect_err(key).to_string();
            assert!(error.contains(key) && error.contains(expected), "{error}");
        }
    }
}
