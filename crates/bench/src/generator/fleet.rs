//! Several generators, one for each thread, that share a workload: for brokers that are faster than one thread.

use std::sync::mpsc::{Receiver, channel};

use super::run::{Progress, Watch};
use super::scenario::{Load, Scenario, Span, Until};
use super::{Acknowledged, Counts, Generator, Sample};
use crate::BenchError;
use crate::outcome::{BrokerUse, CpuUse, Latency, Outcome, Second};
use crate::workload::Workload;

/// Generators with a share of the workload each. Their topics and clients are separate, so they need no lock.
#[derive(Debug)]
pub struct Fleet {
    generators: Vec<Generator>,
    /// Share of each in the messages: its number of streams.
    streams: Vec<u64>,
    workload: String,
}

impl Fleet {
    /// Connects all clients of `scenario`, distributed over `threads` generators.
    ///
    /// Only `pair` can be distributed: in the other patterns the window of a stream depends on receivers everywhere.
    pub fn connect(scenario: Scenario, threads: usize) -> Result<Self, BenchError> {
        let workload = scenario.workload.describe();
        if threads <= 1 {
            return Ok(Self {
                generators: vec![Generator::connect(scenario)?],
                streams: vec![1],
                workload,
            });
        }
        let Workload::Pair { pairs } = scenario.workload else {
            return Err(BenchError::Setting(format!(
                "{workload} runs in one thread: only pair can be shared out"
            )));
        };
        if threads > pairs {
            return Err(BenchError::Setting(format!(
                "{pairs} pairs cannot be shared out over {threads} threads"
            )));
        }
        if scenario.topic.as_ref().is_some_and(|it| !it.names_run()) {
            return Err(BenchError::Setting(
                "topics of several threads need {run} in their names".to_owned(),
            ));
        }
        let streams = shares(pairs as u64, &vec![1; threads]);
        let generators: Result<Vec<Generator>, _> = streams
            .iter()
            .enumerate()
            .map(|(thread, &pairs)| {
                let mut part = scenario.clone();
                part.workload = Workload::Pair {
                    pairs: pairs as usize,
                };
                part.prefix = format!("{}-t{thread}", scenario.prefix);
                part.seed = scenario.seed.wrapping_add(thread as u64);
                Generator::connect(part)
            })
            .collect();
        Ok(Self {
            generators: generators?,
            streams,
            workload,
        })
    }

    /// The generators, one for each thread.
    #[must_use]
    pub fn generators(&self) -> &[Generator] {
        &self.generators
    }

    /// How many threads run a load.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.generators.len()
    }

    /// Keeps the measured arrivals of each run individually, at most about `limit` of them in all threads.
    pub fn keep_samples(&mut self, limit: usize) {
        let each = limit / self.generators.len();
        for generator in &mut self.generators {
            generator.keep_samples(each);
        }
    }

    /// Kept arrivals of the last run, thread by thread and in order in each, with the numbers that streams and subscribers have in the whole workload and
    /// the clock of the first thread.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let mut first = 0;
        let mut all = Vec::new();
        let begin = self.generators.first().map(|it| it.epoch);
        for (generator, streams) in self.generators.iter().zip(&self.streams) {
            let later = begin.map_or(0, |begin| (generator.epoch - begin).as_nanos() as u64);
            all.extend(generator.samples().iter().map(|sample| Sample {
                subscriber: sample.subscriber + first,
                stream: sample.stream + first,
                sent_ns: sample.sent_ns + later,
                ..*sample
            }));
            first += *streams as u32;
        }
        all
    }

    /// Kept acknowledgements of the last run, likewise.
    #[must_use]
    pub fn acknowledgements(&self) -> Vec<Acknowledged> {
        let mut first = 0;
        let mut all = Vec::new();
        let begin = self.generators.first().map(|it| it.epoch);
        for (generator, streams) in self.generators.iter().zip(&self.streams) {
            let later = begin.map_or(0, |begin| (generator.epoch - begin).as_nanos() as u64);
            let kept = generator.acknowledgements().iter();
            all.extend(kept.map(|it| Acknowledged {
                stream: it.stream + first,
                sent_ns: it.sent_ns + later,
                ..*it
            }));
            first += *streams as u32;
        }
        all
    }

    /// Runs `load` for `span` in all threads and sums the results; `progress` receives the sums, too.
    pub fn run(
        &mut self,
        load: Load,
        span: Span,
        watch: &Watch,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome, BenchError> {
        if let [generator] = &mut self.generators[..] {
            return generator.run(load, span, watch, progress);
        }
        let parts = parts(load, span, &self.streams);
        let (sender, receiver) = channel();
        let outcomes: Result<Vec<Outcome>, BenchError> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .generators
                .iter_mut()
                .zip(parts)
                .enumerate()
                .map(|(thread, (generator, (load, span)))| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        generator.run(load, span, watch, &mut |second| {
                            // The receiver exists until all senders are dropped.
                            let _ = sender.send((thread, *second));
                        })
                    })
                })
                .collect();
            drop(sender);
            pass_on_sums(&receiver, threads.len(), progress);
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        Ok(self.add_up(load, &outcomes?))
    }

    fn add_up(&self, load: Load, outcomes: &[Outcome]) -> Outcome {
        let mut sum = outcomes[0].clone();
        sum.workload = format!("{} in {} threads", self.workload, outcomes.len());
        sum.load = load;
        let mut latency = self.generators[0].latency().clone();
        let mut acknowledgement = self.generators[0].acknowledgement().clone();
        let mut own_s = sum.own.cpu_s;
        for (outcome, generator) in outcomes.iter().zip(&self.generators).skip(1) {
            sum.seconds = sum.seconds.max(outcome.seconds);
            sum.published += outcome.published;
            sum.delivered += outcome.delivered;
            sum.published_per_s += outcome.published_per_s;
            sum.delivered_per_s += outcome.delivered_per_s;
            sum.counts = add_counts(&sum.counts, &outcome.counts);
            own_s += outcome.own.cpu_s;
            sum.behind_schedule_ms = sum.behind_schedule_ms.max(outcome.behind_schedule_ms);
            sum.behind_schedule_mean_ms =
                (sum.behind_schedule_mean_ms).max(outcome.behind_schedule_mean_ms);
            // Bounds and precision are the same everywhere, so adding cannot fail.
            let _ = latency.add(generator.latency());
            let _ = acknowledgement.add(generator.acknowledgement());
            for (second, other) in sum.series.iter_mut().zip(&outcome.series) {
                *second = add_seconds(second, other);
            }
            sum.warnings.extend(outcome.warnings.iter().cloned());
        }
        sum.warnings.sort();
        sum.warnings.dedup();
        sum.latency = Latency::of(&latency);
        sum.acknowledgement = Latency::of(&acknowledgement);
        sum.own = CpuUse::new(own_s, sum.seconds, sum.delivered);
        sum.broker = sum.broker.map(|broker| BrokerUse {
            cpu: CpuUse::new(broker.cpu.cpu_s, sum.seconds, sum.delivered),
            memory: broker.memory,
        });
        sum
    }
}

/// Splits `whole` in parts weighted by `weights`, which are not all 0; the parts add up to it.
fn shares(whole: u64, weights: &[u64]) -> Vec<u64> {
    let total: u64 = weights.iter().sum();
    let (mut seen, mut given) = (0, 0);
    weights
        .iter()
        .map(|weight| {
            seen += weight;
            let up_to = (u128::from(whole) * u128::from(seen) / u128::from(total.max(1))) as u64;
            let part = up_to - given;
            given = up_to;
            part
        })
        .collect()
}

/// The load and the span of each thread: rates and counts are divided, windows apply to each stream anyway.
fn parts(load: Load, span: Span, streams: &[u64]) -> Vec<(Load, Span)> {
    let total: u64 = streams.iter().sum();
    let counts = match span.until {
        Until::Published(count) => shares(count, streams),
        Until::Elapsed(_) => vec![0; streams.len()],
    };
    let part = |(&streams, count): (&u64, u64)| {
        let load = match load {
            Load::Open {
                rate_per_s,
                arrivals,
            } => Load::Open {
                rate_per_s: rate_per_s * streams as f64 / total as f64,
                arrivals,
            },
            Load::Closed { .. } | Load::Volleys { .. } => load,
        };
        let until = match span.until {
            Until::Published(_) => Until::Published(count),
            Until::Elapsed(_) => span.until,
        };
        (load, Span { until, ..span })
    };
    streams.iter().zip(counts).map(part).collect()
}

/// Calls `progress` with the sum of each second once all threads have reported theirs.
fn pass_on_sums(
    receiver: &Receiver<(usize, Progress)>,
    threads: usize,
    progress: &mut dyn FnMut(&Progress),
) {
    let mut told = vec![std::collections::VecDeque::new(); threads];
    for (thread, second) in receiver {
        told[thread].push_back(second);
        if told.iter().all(|seconds| !seconds.is_empty()) {
            let sum = told
                .iter_mut()
                .filter_map(std::collections::VecDeque::pop_front)
                .reduce(|sum, other| Progress {
                    second: add_seconds(&sum.second, &other.second),
                    on_their_way: sum.on_their_way + other.on_their_way,
                });
            if let Some(sum) = sum {
                progress(&sum);
            }
        }
    }
}

fn add_seconds(one: &Second, other: &Second) -> Second {
    Second {
        at_s: one.at_s,
        published_per_s: one.published_per_s + other.published_per_s,
        delivered_per_s: one.delivered_per_s + other.delivered_per_s,
    }
}

fn add_counts(one: &Counts, other: &Counts) -> Counts {
    Counts {
        published: one.published + other.published,
        expected: one.expected + other.expected,
        delivered: one.delivered + other.delivered,
        lost: one.lost + other.lost,
        duplicated: one.duplicated + other.duplicated,
        reordered: one.reordered + other.reordered,
        refused: one.refused + other.refused,
        unknown: one.unknown + other.unknown,
        closed_connections: one.closed_connections + other.closed_connections,
        refused_connections: one.refused_connections + other.refused_connections,
        foreign: one.foreign + other.foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole() {
        for (whole, weights, expected) in [
            (10, &[1, 1, 1][..], &[3, 3, 4][..]),
            (100, &[34, 33, 33], &[34, 33, 33]),
            (1, &[1, 1], &[0, 1]),
            (7, &[5], &[7]),
        ] {
            assert_eq!(shares(whole, weights), expected, "{whole} over {weights:?}");
        }
    }

    #[test]
    fn rates_and_counts_are_shared_out_and_windows_are_not() {
        let open = Load::Open {
            rate_per_s: 300.0,
            arrivals: super::super::Arrivals::Poisson,
        };
        let rates: Vec<f64> = parts(open, Span::seconds(1.0), &[2, 1])
            .into_iter()
            .map(|(load, _)| {
                if let Load::Open { rate_per_s, .. } = load {
                    rate_per_s
                } else {
                    0.0
                }
            })
            .collect();
        assert_eq!(rates, [200.0, 100.0]);
        let closed = parts(Load::Closed { window: 9 }, Span::messages(30), &[2, 1]);
        assert_eq!(closed[0], (Load::Closed { window: 9 }, Span::messages(20)));
        assert_eq!(closed[1], (Load::Closed { window: 9 }, Span::messages(10)));
    }
}
