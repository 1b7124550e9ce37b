//! The paper's figures as data: what each varies, with which parameters, and what it shows.

use super::setting::{Application, Axis, Setting};
use super::{ArrivalOrder, Rates};
use crate::error::ParameterError;
use crate::strategy::StrategyKind;

/// A figure of the paper that the simulator reproduces.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its number in the paper.
    pub number: u32,
    /// What it shows, in our words.
    pub title: &'static str,
    /// What is simulated.
    pub sweeps: Vec<Sweep>,
    /// What is drawn, side by side.
    pub panels: Vec<Panel>,
    /// The strategies compared.
    pub strategies: Vec<StrategyKind>,
}

/// One parameter varied, the others fixed.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// What distinguishes this sweep from its neighbours; empty when there is only one.
    pub label: &'static str,
    /// The parameter varied.
    pub axis: Axis,
    /// The points, in ascending order.
    pub settings: Vec<Setting>,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panel {
    /// Its title.
    pub title: &'static str,
    /// Indices of the figure's sweeps shown here.
    pub sweeps: Vec<usize>,
    /// Names of the measures shown.
    pub measures: Vec<&'static str>,
    /// Words for the y axis.
    pub y_label: &'static str,
    /// Whether the y axis is logarithmic.
    pub logarithmic: bool,
}

/// The order of arrival in the figures unless given otherwise.
pub const FIGURE_ORDER: ArrivalOrder = ArrivalOrder::PublishersFirst;

/// Cluster sizes up to the 20 of the paper's text.
const SIZES: [f64; 8] = [1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0];
const SESSIONS: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
const ALPHAS: [f64; 7] = [0.0, 0.5, 0.8, 1.0, 1.13, 1.5, 2.0];

impl Figure {
    /// The figure with `number`. Where a caption or the text gives a parameter, it is that one; points on the x axis are
    /// ours, since the text gives none.
    ///
    /// # Errors
    /// The paper has no such simulation.
    pub fn new(number: u32) -> Result<Self, ParameterError> {
        let overheads = |title, sweep| overhead_figure(number, title, sweep);
        Ok(match number {
            7 => traffic_figure(7, "Cluster traffic, social network", small_social(10)),
            8 => traffic_figure(8, "Cluster traffic, IoT", figure_8()),
            10 => figure_10(),
            11 => figure_11(),
            12 => figure_12(),
            13 => overheads("Overhead by cluster size", sweep(Axis::Brokers, &SIZES)),
            14 => overheads(
                "Overhead by number of subscribers",
                sweep(
                    Axis::Subscribers,
                    &[500.0, 1000.0, 2500.0, 5000.0, 7500.0, 10_000.0],
                ),
            ),
            15 => overheads(
                "Overhead by subscriptions per subscriber",
                sweep(
                    Axis::Subscriptions,
                    &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0],
                ),
            ),
            16 => overheads("Overhead by sessions", sweep(Axis::MaxSessions, &SESSIONS)),
            17 => overheads("Overhead by popularity", sweep(Axis::Alpha, &ALPHAS)),
            18 => figure_18(),
            19 => overheads(
                "IoT: overhead by cluster size",
                iot_sweep(Axis::Brokers, &SIZES),
            ),
            20 => overheads(
                "IoT: overhead by sessions",
                iot_sweep(Axis::MaxSessions, &SESSIONS),
            ),
            21 => overheads(
                "IoT: overhead by popularity of levels",
                iot_sweep(Axis::Alpha, &ALPHAS),
            ),
            _ => {
                return Err(ParameterError::new(
                    "figure",
                    "must be 7, 8 or 10 to 21, the simulations of the paper",
                    number,
                ));
            }
        })
    }
}

/// Fig. 7, 10, 11 and 12 have a fifth of the topics and subscribers of the later ones.
fn small_social(subscriptions: usize) -> Setting {
    Setting {
        application: Application::Social { subscriptions },
        topics: 1000,
        subscribers: 1000,
        ..Setting::figure_13()
    }
}

/// 1000 topics and depth 4 make a fan-out of 10.
fn figure_8() -> Setting {
    Setting {
        application: Application::Iot {
            depth: 4,
            fanout: Some(10),
            levels: Some(vec![0.0, 0.03, 0.3, 0.67]),
        },
        ..small_social(1)
    }
}

/// Fig. 19 to 21.
fn large_iot() -> Setting {
    Setting {
        application: Application::Iot {
            depth: 4,
            fanout: Some(30),
            levels: None,
        },
        alpha: 1.5,
        rates: Rates::Equal(1.0),
        ..Setting::figure_13()
    }
}

fn sweep(axis: Axis, values: &[f64]) -> Sweep {
    sweep_of("", axis, values, &Setting::figure_13())
}

fn iot_sweep(axis: Axis, values: &[f64]) -> Sweep {
    sweep_of("", axis, values, &large_iot())
}

fn sweep_of(label: &'static str, axis: Axis, values: &[f64], base: &Setting) -> Sweep {
    Sweep {
        label,
        axis,
        settings: values.iter().map(|value| axis.at(base, *value)).collect(),
    }
}

fn panel(
    title: &'static str,
    sweeps: &[usize],
    measures: &[&'static str],
    y_label: &'static str,
) -> Panel {
    Panel {
        title,
        sweeps: sweeps.to_vec(),
        measures: measures.to_vec(),
        y_label,
        logarithmic: false,
    }
}

const RATE_LABEL: &str = "Messages per second";

fn traffic_figure(number: u32, title: &'static str, base: Setting) -> Figure {
    Figure {
        number,
        title,
        sweeps: vec![sweep_of("", Axis::Brokers, &SIZES, &base)],
        panels: vec![
            panel("Internal traffic", &[0], &["internal"], RATE_LABEL),
            panel(
                "External traffic",
                &[0],
                &["external_in", "external_out"],
                RATE_LABEL,
            ),
        ],
        strategies: StrategyKind::EVERYDAY.to_vec(),
    }
}

fn overhead_figure(number: u32, title: &'static str, sweep: Sweep) -> Figure {
    Figure {
        number,
        title,
        sweeps: vec![sweep],
        panels: vec![
            panel(
                "Routing",
                &[0],
                &["routing_overhead"],
                "Routing overhead (h_rt)",
            ),
            panel(
                "Forwarding",
                &[0],
                &["forwarding_overhead"],
                "Forwarding overhead (h_fw)",
            ),
        ],
        strategies: StrategyKind::EVERYDAY.to_vec(),
    }
}

fn figure_10() -> Figure {
    Figure {
        number: 10,
        title: "Internal traffic of best-matching",
        sweeps: vec![
            sweep_of("Nsxs = 1", Axis::Brokers, &SIZES, &small_social(1)),
            sweep_of("Nsxs = 40", Axis::Brokers, &SIZES, &small_social(40)),
        ],
        panels: vec![
            panel("1 subscription each", &[0], &["internal"], RATE_LABEL),
            panel("40 subscriptions each", &[1], &["internal"], RATE_LABEL),
        ],
        strategies: StrategyKind::EVERYDAY.to_vec(),
    }
}

fn figure_11() -> Figure {
    let sessions: Vec<f64> = (1..=8).map(f64::from).collect();
    let sweeps = [("Nsxs = 5", 5), ("Nsxs = 10", 10)];
    let by_sessions = sweeps.map(|(label, topics)| {
        sweep_of(label, Axis::MaxSessions, &sessions, &small_social(topics))
    });
    let by_size =
        sweeps.map(|(label, topics)| sweep_of(label, Axis::Brokers, &SIZES, &small_social(topics)));
    let choices = |title, sweeps: &[usize]| Panel {
        logarithmic: true,
        ..panel(title, sweeps, &["choices"], "Choices for a subscriber")
    };
    Figure {
        number: 11,
        title: "Decision space",
        sweeps: by_sessions.into_iter().chain(by_size).collect(),
        panels: vec![
            choices("8 brokers", &[0, 1]),
            choices("4 sessions", &[2, 3]),
        ],
        strategies: vec![StrategyKind::MultiSession, StrategyKind::Thicket],
    }
}

fn figure_12() -> Figure {
    let base = small_social(5);
    let mut strategies = StrategyKind::EVERYDAY.to_vec();
    strategies.push(StrategyKind::Optimum);
    Figure {
        number: 12,
        title: "Greedy against the optimum of each client",
        sweeps: vec![
            sweep_of("M = 8", Axis::MaxSessions, &SESSIONS[..5], &base),
            sweep_of(
                "Nses = 4",
                Axis::Brokers,
                &[1.0, 2.0, 4.0, 6.0, 8.0, 10.0],
                &base,
            ),
        ],
        panels: vec![
            panel("8 brokers", &[0], &["internal"], RATE_LABEL),
            panel("4 sessions", &[1], &["internal"], RATE_LABEL),
        ],
        strategies,
    }
}

fn figure_18() -> Figure {
    Figure {
        panels: vec![panel("Fairness", &[0], &["jain"], "Jain's index")],
        ..overhead_figure(18, "Fairness by cluster size", sweep(Axis::Brokers, &SIZES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_checked_settings_and_panels_that_point_at_its_sweeps() {
        for number in [7, 8].into_iter().chain(10..=21) {
            let figure = Figure::new(number).unwrap();
            assert_eq!(figure.number, number);
            for sweep in &figure.sweeps {
                for setting in &sweep.settings {
                    setting.limits().unwrap();
                    setting.scenario().unwrap();
                }
                assert!(
                    sweep
                        .settings
                        .is_sorted_by(|a, b| sweep.axis.value(a) < sweep.axis.value(b))
                );
            }
            for panel in &figure.panels {
                for measure in &panel.measures {
                    let setting = &figure.sweeps[panel.sweeps[0]].settings[0];
                    assert!(setting.theory(measure).unwrap().is_some());
                }
            }
        }
    }

    #[test]
    fn measurements_and_drawings_of_the_paper_are_no_simulations() {
        for number in [1, 2, 9, 22, 23] {
            assert_eq!(
                Figure::new(number).unwrap_err().to_string(),
                format!(
                    "figure: must be 7, 8 or 10 to 21, the simulations of the paper, not {number}"
                )
            );
        }
    }
}
