//! One direction of a link as arithmetic: when a frame arrives, if it does. Pure.

use thicket_bench::random::Random;

use crate::delay::Delay;
use crate::topology::LinkShape;

/// Bytes of a full Ethernet frame, the unit of a queue's limit.
const FRAME_BYTES: u64 = 1514;

/// A direction of a link: a queue before a line of some rate, then a delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shaper {
    delay: Delay,
    /// Bits a second; 0: unlimited.
    rate: u64,
    queue_bytes: u64,
    /// Probability of a loss, 0 to 1.
    loss: f64,
    /// When the line has sent everything given to it.
    free_ns: u64,
    /// When the last frame arrives.
    last_ns: u64,
    /// Frames over the queue's limit, and lost frames.
    pub dropped: u64,
}

impl Shaper {
    /// A direction without frames in transit.
    #[must_use]
    pub fn new(shape: &LinkShape) -> Self {
        let mut shaper = Self {
            delay: shape.delay,
            rate: 0,
            queue_bytes: 0,
            loss: 0.0,
            free_ns: 0,
            last_ns: 0,
            dropped: 0,
        };
        shaper.change(shape);
        shaper
    }

    /// Changes the settings from now on; frames in transit arrive as before.
    pub fn change(&mut self, shape: &LinkShape) {
        self.delay = shape.delay;
        self.rate = shape.bandwidth_mbit.map_or(0, |mbit| (mbit * 1e6) as u64);
        self.queue_bytes = u64::from(shape.queue_packets) * FRAME_BYTES;
        self.loss = shape.loss_percent / 100.0;
    }

    /// When a frame of `bytes` given at `now_ns` arrives; `None` if it is lost.
    pub fn admit(&mut self, now_ns: u64, bytes: usize, random: &mut Random) -> Option<u64> {
        if random.unit() < self.loss {
            self.dropped += 1;
            return None;
        }
        if self.rate == 0 {
            return Some(self.arrival_ns(now_ns, random));
        }
        let waiting_ns = self.free_ns.saturating_sub(now_ns);
        let waiting_bytes = (u128::from(waiting_ns) * u128::from(self.rate) / 8_000_000_000) as u64;
        if waiting_bytes + bytes as u64 > self.queue_bytes.max(FRAME_BYTES) {
            self.dropped += 1;
            return None;
        }
        let sending_ns = bytes as u64 * 8_000_000_000 / self.rate;
        self.free_ns = self.free_ns.max(now_ns) + sending_ns;
        Some(self.arrival_ns(self.free_ns, random))
    }

    /// When a frame that the line has sent at `sent_ns` arrives. A delay that varies is that of a queue: no frame overtakes another.
    fn arrival_ns(&mut self, sent_ns: u64, random: &mut Random) -> u64 {
        let due_ns = sent_ns + (self.delay.draw_ms(random) * 1e6) as u64;
        self.last_ns = if self.delay.is_constant() {
            due_ns
        } else {
            due_ns.max(self.last_ns)
        };
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> LinkShape {
        LinkShape {
            delay: Delay::Constant { ms: 2.5 },
            bandwidth_mbit: Some(10.0),
            queue_packets: 10,
            loss_percent: 0.0,
        }
    }

    #[test]
    fn a_frame_takes_its_time_on_the_line_and_then_the_delay() {
        let (mut shaper, mut random) = (Shaper::new(&shape()), Random::new(1));
        // 1250 bytes are 10,000 bits: a millisecond at 10 Mbit/s.
        assert_eq!(shaper.admit(0, 1250, &mut random), Some(3_500_000));
        assert_eq!(shaper.admit(0, 1250, &mut random), Some(4_500_000));
        assert_eq!(
            shaper.admit(10_000_000, 1250, &mut random),
            Some(13_500_000)
        );
    }

    #[test]
    fn the_queue_holds_its_packets_and_no_more() {
        let (mut shaper, mut random) = (Shaper::new(&shape()), Random::new(1));
        let taken = (0..100)
            .filter(|_| shaper.admit(0, 1514, &mut random).is_some())
            .count();
        assert_eq!((taken, shaper.dropped), (10, 90));
    }

    #[test]
    fn a_line_carries_its_rate_and_not_more() {
        let (mut shaper, mut random) = (Shaper::new(&shape()), Random::new(1));
        // Twice the rate, a frame every 606 microseconds, for ten seconds.
        let carried: u64 = (0..16_500u64)
            .filter_map(|frame| shaper.admit(frame * 606_000, 1514, &mut random))
            .map(|_| 1514 * 8)
            .sum();
        let mbit_s = carried as f64 / 1e6 / 10.0;
        assert!((9.9..10.2).contains(&mbit_s), "{mbit_s}");
    }

    #[test]
    fn a_cut_line_loses_all_and_a_healed_one_nothing() {
        let (mut shaper, mut random) = (Shaper::new(&shape()), Random::new(1));
        let cut = LinkShape {
            loss_percent: 100.0,
            ..shape()
        };
        shaper.change(&cut);
        assert_eq!(shaper.admit(0, 100, &mut random), None);
        shaper.change(&shape());
        assert!(shaper.admit(0, 100, &mut random).is_some());
    }

    #[test]
    fn without_a_rate_there_is_only_the_delay() {
        let unlimited = LinkShape {
            bandwidth_mbit: None,
            ..shape()
        };
        let (mut shaper, mut random) = (Shaper::new(&unlimited), Random::new(1));
        for _ in 0..1000 {
            assert_eq!(shaper.admit(5, 1514, &mut random), Some(2_500_005));
        }
    }

    #[test]
    fn delays_of_sparse_frames_follow_the_law() {
        let law = Delay::Uniform {
            min_ms: 5.0,
            max_ms: 15.0,
        };
        let mut shaper = Shaper::new(&LinkShape {
            delay: law,
            bandwidth_mbit: None,
            ..shape()
        });
        let mut random = Random::new(2);
        let mut delays_ms: Vec<f64> = (0..20_000u64)
            .filter_map(|frame| {
                let now_ns = frame * 100_000_000;
                Some((shaper.admit(now_ns, 100, &mut random)? - now_ns) as f64 / 1e6)
            })
            .collect();
        delays_ms.sort_by(f64::total_cmp);
        for (share, expected) in [(0.05, 5.5), (0.5, 10.0), (0.95, 14.5)] {
            let found = delays_ms[(share * 20_000.0) as usize];
            assert!((found - expected).abs() < 0.2, "{share}: {found}");
        }
    }

    #[test]
    fn no_frame_overtakes_another_whatever_is_drawn() {
        let mut shaper = Shaper::new(&LinkShape {
            delay: Delay::Pareto {
                min_ms: 1.0,
                shape: 1.2,
            },
            bandwidth_mbit: None,
            ..shape()
        });
        let mut random = Random::new(3);
        let arrivals: Vec<u64> = (0..10_000u64)
            .filter_map(|frame| shaper.admit(frame * 10_000, 100, &mut random))
            .collect();
        assert_eq!(arrivals.len(), 10_000);
        assert!(arrivals.windows(2).all(|two| two[0] <= two[1]));
    }
}
