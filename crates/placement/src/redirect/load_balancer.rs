//! One decider's view of the brokers, and its choices.

use std::collections::VecDeque;

use super::load::{Figure, Load, Policy, State};
use crate::Random;

/// How long readings take to show a client in full if they are means of 5 s, taken once a second (Dispatcher III).
const SHOWN_AFTER_MS: u64 = 6_000;
/// Decisions for one broker within this time are remembered as one, so that a crowd costs neither time nor memory.
const TOGETHER_MS: u64 = 100;
/// Share of its CPU from which on a broker gets no clients while another has more capacity.
const BUSY: f64 = 0.95;
/// Scores that differ by less are equal: readings are no better than this.
const NOISE: f64 = 0.02;

/// A broker according to its readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The caller's name for it.
    pub key: u64,
    /// Whether it accepts clients.
    pub state: State,
    /// Its load.
    pub load: Load,
}

/// The loads of the brokers as one decider sees them, and its choices.
#[derive(Debug, Clone)]
pub struct LoadBalancer {
    policy: Policy,
    random: Random,
    candidates: Vec<Candidate>,
    /// How long readings take to show a client in full.
    shown_after_ms: u64,
    /// Decisions that readings do not show in full, by time.
    pending: VecDeque<Pending>,
}

/// The excess load of one broker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Excess {
    /// Where it should go.
    pub to: u64,
    /// Of the load of the broker that has it, above 0 and at most a half.
    pub share: f64,
}

/// Clients sent to one broker at about one time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pending {
    at_ms: u64,
    key: u64,
    clients: f64,
}

/// A candidate with its load in one number, in multiples of the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scored {
    key: u64,
    score: f64,
    /// Decides between equals: clients, those on their way included.
    clients: f64,
}

impl LoadBalancer {
    /// A load balancer without brokers. Deciders side by side need different seeds.
    #[must_use]
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            random: Random::new(seed, 0),
            candidates: Vec::new(),
            shown_after_ms: SHOWN_AFTER_MS,
            pending: VecDeque::new(),
        }
    }

    /// The same for readings that show a client in full after `shown_after_ms`, other than after 6 s.
    #[must_use]
    pub const fn with_readings_of(mut self, shown_after_ms: u64) -> Self {
        self.shown_after_ms = shown_after_ms;
        self
    }

    /// Uses the latest readings, each broker once, in place of all before. What was decided and cannot show in them yet still counts.
    pub fn update(&mut self, now_ms: u64, candidates: Vec<Candidate>) {
        self.candidates = candidates;
        self.forget_shown(now_ms);
    }

    /// A broker for a client that connects now; `None`: none accepts clients. The choice counts from now on.
    pub fn choose(&mut self, now_ms: u64) -> Option<u64> {
        self.forget_shown(now_ms);
        let scored = self.scored(now_ms);
        let chosen = self.lesser_of_two(&scored)?.key;
        self.sent(now_ms, chosen);
        Some(chosen)
    }

    /// A broker for a client that now is at `current`, one of those that `suits` accepts; `None`: it stays.
    ///
    /// It moves only where the load is less by the `margin` (0.2: by a fifth of the mean), even after the move: so no client moves back and forth.
    /// From a broker that does not serve, it moves to any that does.
    pub fn choose_instead_of(
        &mut self,
        now_ms: u64,
        current: u64,
        margin: f64,
        suits: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        self.forget_shown(now_ms);
        let (here, other) = self.here_and_other(now_ms, current, suits)?;
        if let Some(here) = here
            && other.score + self.of_a_client() + margin >= here.score
        {
            return None;
        }
        self.sent(now_ms, other.key);
        Some(other.key)
    }

    /// What `current` should give to another broker, so that both have the same load; `None`: no other one has less by the `margin`. This decides
    /// nothing: a caller that moves clients reports that by [`Self::sent`].
    pub fn excess(
        &mut self,
        now_ms: u64,
        current: u64,
        margin: f64,
        suits: impl Fn(u64) -> bool,
    ) -> Option<Excess> {
        self.forget_shown(now_ms);
        let (here, other) = self.here_and_other(now_ms, current, suits)?;
        let here = here.filter(|here| here.score > other.score + margin)?;
        Some(Excess {
            to: other.key,
            share: (here.score - other.score) / 2.0 / here.score,
        })
    }

    /// The brokers that serve, the one with least load first.
    #[must_use]
    pub fn ranked(&self, now_ms: u64) -> Vec<(u64, f64)> {
        let mut ranked: Vec<_> = self
            .scored(now_ms)
            .into_iter()
            .map(|scored| (scored.key, scored.score))
            .collect();
        ranked.sort_by(|one, other| one.1.total_cmp(&other.1));
        ranked
    }

    fn here_and_other(
        &mut self,
        now_ms: u64,
        current: u64,
        suits: impl Fn(u64) -> bool,
    ) -> Option<(Option<Scored>, Scored)> {
        let scored = self.scored(now_ms);
        let here = scored.iter().find(|scored| scored.key == current).copied();
        let others: Vec<Scored> = scored
            .iter()
            .filter(|scored| scored.key != current && suits(scored.key))
            .copied()
            .collect();
        Some((here, self.lesser_of_two(&others)?))
    }

    /// Whether a broker is in the readings and accepts clients.
    #[must_use]
    pub fn serves(&self, key: u64) -> bool {
        let found = self
            .candidates
            .iter()
            .find(|candidate| candidate.key == key);
        found.is_some_and(|candidate| candidate.state == State::Serving)
    }

    /// Clients of a broker, those included that were sent there and do not show in its readings yet.
    #[must_use]
    pub fn clients(&self, now_ms: u64, key: u64) -> f64 {
        let found = self
            .candidates
            .iter()
            .find(|candidate| candidate.key == key);
        let known = found.and_then(|candidate| Figure::Connections.of(&candidate.load));
        known.unwrap_or(0.0) + self.unshown(now_ms, key)
    }

    /// Counts a client that was sent to `key` for other reasons than a choice.
    pub fn sent(&mut self, now_ms: u64, key: u64) {
        let at_ms = now_ms - now_ms % TOGETHER_MS;
        let same = self
            .pending
            .iter_mut()
            .rev()
            .take_while(|pending| pending.at_ms == at_ms)
            .find(|pending| pending.key == key);
        match same {
            Some(pending) => pending.clients += 1.0,
            None => self.pending.push_back(Pending {
                at_ms,
                key,
                clients: 1.0,
            }),
        }
    }

    fn forget_shown(&mut self, now_ms: u64) {
        let shown_after_ms = self.shown_after_ms;
        let is_shown = |pending: &Pending| now_ms.saturating_sub(pending.at_ms) >= shown_after_ms;
        while self.pending.front().is_some_and(is_shown) {
            self.pending.pop_front();
        }
    }

    /// Clients sent to `key` that its readings do not show: each counts less from its decision on.
    fn unshown(&self, now_ms: u64, key: u64) -> f64 {
        let of_this = self.pending.iter().filter(|pending| pending.key == key);
        of_this
            .map(|pending| {
                let passed = now_ms.saturating_sub(pending.at_ms);
                let passed = passed.min(self.shown_after_ms);
                pending.clients * (1.0 - passed as f64 / self.shown_after_ms as f64)
            })
            .sum()
    }

    /// All that serve, without those whose CPU is used up unless all are.
    fn scored(&self, now_ms: u64) -> Vec<Scored> {
        let serving = || {
            self.candidates
                .iter()
                .filter(|candidate| candidate.state == State::Serving)
        };
        let is_busy = |candidate: &&Candidate| {
            Figure::Cpu
                .of(&candidate.load)
                .is_some_and(|cpu| cpu >= BUSY)
        };
        let all_busy = serving().all(|candidate| is_busy(&candidate));
        let open: Vec<&Candidate> = serving()
            .filter(|candidate| all_busy || !is_busy(candidate))
            .collect();
        let means = Figure::ALL.map(|figure| mean(open.iter().map(|one| figure.of(&one.load))));
        let units = [0, 1, 2].map(|at| means[at].map(|mean| mean.max(Figure::ALL[at].floor())));
        let of_a_client = self.of_a_client();
        let score = |candidate: &Candidate| {
            let weighted = Figure::ALL.iter().zip(self.policy.weights()).zip(units);
            let (mut sum, mut weights) = (0.0, 0.0);
            for ((figure, weight), unit) in weighted {
                // A figure that is unknown, or zero, for all distinguishes none.
                if let Some(unit) = unit.filter(|&unit| unit > 0.0) {
                    let mean = mean_of(&means, *figure);
                    sum += weight * figure.of(&candidate.load).unwrap_or(mean) / unit;
                    weights += weight;
                }
            }
            if weights > 0.0 { sum / weights } else { 0.0 }
        };
        open.iter()
            .map(|candidate| {
                let unshown = self.unshown(now_ms, candidate.key);
                let known = Figure::Connections.of(&candidate.load);
                Scored {
                    key: candidate.key,
                    score: score(candidate) + unshown * of_a_client,
                    clients: known.unwrap_or(mean_of(&means, Figure::Connections)) + unshown,
                }
            })
            .collect()
    }

    /// What an average client adds to a score: the mean load, 1, over the mean number of clients.
    fn of_a_client(&self) -> f64 {
        let connections = self
            .candidates
            .iter()
            .filter(|candidate| candidate.state == State::Serving)
            .map(|candidate| Figure::Connections.of(&candidate.load));
        let each = mean(connections).filter(|&mean| mean > 0.0);
        each.map_or(1.0, |mean| 1.0 / mean)
    }

    /// Draws two and returns the one with less load; equals by their clients, and then by chance.
    fn lesser_of_two(&mut self, among: &[Scored]) -> Option<Scored> {
        let first = match among.len() {
            0 => return None,
            1 => return Some(among[0]),
            count => self.random.below(count),
        };
        let second = (first + 1 + self.random.below(among.len() - 1)) % among.len();
        let (one, other) = (among[first], among[second]);
        let by_score = (one.score - other.score).abs() > NOISE * one.score.max(other.score);
        let other_is_less = if by_score {
            other.score < one.score
        } else {
            other.clients < one.clients
        };
        Some(if other_is_less { other } else { one })
    }
}

/// Of those that are known; 0 if none is.
fn mean_of(means: &[Option<f64>; 3], figure: Figure) -> f64 {
    means[figure as usize].unwrap_or(0.0)
}

/// Of those that are known; `None`: none is.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u32);
    for value in values.flatten() {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}
