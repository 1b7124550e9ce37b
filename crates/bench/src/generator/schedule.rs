//! The schedule of an open loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::scenario::Arrivals;
use crate::random::Random;

/// The messages to send, in order. Times are nanoseconds of the run's clock.
#[derive(Debug)]
pub struct Schedule {
    random: Random,
    /// Mean gap between two messages of all streams together.
    gap_ns: f64,
    next: (u64, u32),
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Message k is due at the start plus k gaps and belongs to the streams in turn.
    Constant {
        start_ns: u64,
        sent: u64,
        streams: u32,
    },
    /// The Poisson processes of all streams together are one whose events belong to a random stream each.
    Poisson { at_ns: f64, streams: u32 },
    /// Renewals of each stream by itself.
    Renewal {
        due: BinaryHeap<Reverse<(u64, u32)>>,
        streams: u32,
        coefficient_of_variation: f64,
    },
}

impl Schedule {
    /// A schedule from `start_ns` on, over `streams` streams (at least 1), `rate_per_s` messages a second in all.
    #[must_use]
    pub fn new(
        arrivals: Arrivals,
        rate_per_s: f64,
        streams: u32,
        start_ns: u64,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed ^ 0x74_69_6d_65);
        let gap_ns = 1e9 / rate_per_s;
        let kind = match arrivals {
            Arrivals::Constant => Kind::Constant {
                start_ns,
                sent: 0,
                streams,
            },
            Arrivals::Poisson => Kind::Poisson {
                at_ns: start_ns as f64,
                streams,
            },
            Arrivals::LogNormal {
                coefficient_of_variation,
            } => {
                // Streams start at a random time within their first gap; otherwise all would send at once.
                let period = gap_ns * f64::from(streams);
                let due = (0..streams)
                    .map(|stream| Reverse((start_ns + (random.unit() * period) as u64, stream)));
                Kind::Renewal {
                    due: due.collect(),
                    streams,
                    coefficient_of_variation,
                }
            }
        };
        let mut schedule = Self {
            random,
            gap_ns,
            next: (start_ns, 0),
            kind,
        };
        schedule.advance();
        schedule
    }

    /// When the next message is due.
    #[must_use]
    pub fn next_due_ns(&self) -> u64 {
        self.next.0
    }

    /// Removes the next message: its time and its stream.
    pub fn pop(&mut self) -> (u64, u32) {
        let message = self.next;
        self.advance();
        message
    }

    fn advance(&mut self) {
        let gap_ns = self.gap_ns;
        self.next = match &mut self.kind {
            Kind::Constant {
                start_ns,
                sent,
                streams,
            } => {
                let number = *sent;
                *sent += 1;
                (
                    *start_ns + (number as f64 * gap_ns) as u64,
                    (number % u64::from(*streams)) as u32,
                )
            }
            Kind::Poisson { at_ns, streams } => {
                *at_ns += self.random.exponential(gap_ns);
                (*at_ns as u64, self.random.below(*streams as usize) as u32)
            }
            Kind::Renewal {
                due,
                streams,
                coefficient_of_variation,
            } => {
                // The heap has one entry for each stream, at least one.
                let Reverse((at, stream)) = due.pop().unwrap_or(Reverse((u64::MAX, 0)));
                let gap = self
                    .random
                    .log_normal(gap_ns * f64::from(*streams), *coefficient_of_variation);
                due.push(Reverse((at.saturating_add(gap as u64), stream)));
                (at, stream)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Arrivals; 3] = [
        Arrivals::Constant,
        Arrivals::Poisson,
        Arrivals::LogNormal {
            coefficient_of_variation: 0.5,
        },
    ];

    #[test]
    fn times_rise_and_the_rate_is_the_one_asked_for() {
        for arrivals in KINDS {
            let mut schedule = Schedule::new(arrivals, 10_000.0, 50, 1_000_000_000, 3);
            let (mut last, mut count, mut streams) = (0, 0, vec![0u32; 50]);
            while schedule.next_due_ns() < 11_000_000_000 {
                let (at, stream) = schedule.pop();
                assert!(at >= last, "{arrivals:?}");
                last = at;
                count += 1;
                streams[stream as usize] += 1;
            }
            assert!(
                (97_000..103_000).contains(&count),
                "{arrivals:?}: {count} in ten seconds"
            );
            assert!(
                streams.iter().all(|&of| (1500..2500).contains(&of)),
                "{arrivals:?}: {streams:?}"
            );
        }
    }

    #[test]
    fn a_constant_schedule_is_even() {
        let mut schedule = Schedule::new(Arrivals::Constant, 1000.0, 2, 5, 1);
        assert_eq!(
            [schedule.pop(), schedule.pop(), schedule.pop()],
            [(5, 0), (1_000_005, 1), (2_000_005, 0)]
        );
    }

    #[test]
    fn gaps_of_a_stream_vary_as_named() {
        for (arrivals, expected) in [(KINDS[0], 0.0), (KINDS[1], 1.0), (KINDS[2], 0.5)] {
            let mut schedule = Schedule::new(arrivals, 1000.0, 4, 0, 9);
            let times: Vec<f64> = (0..200_000)
                .map(|_| schedule.pop())
                .filter(|&(_, stream)| stream == 2)
                .map(|(at, _)| at as f64)
                .collect();
            let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>()
                / gaps.len() as f64)
                .sqrt();
            assert!(
                (deviation / mean - expected).abs() < 0.03,
                "{arrivals:?}: {}",
                deviation / mean
            );
        }
    }
}
