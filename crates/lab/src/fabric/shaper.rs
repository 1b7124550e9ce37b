//! One direction of a link as arithmetic: when a frame arrives, if it does. Pure.

use crate::topology::LinkShape;

/// Bytes of a full Ethernet frame, the unit of a queue's limit.
const FRAME_BYTES: u64 = 1514;

/// A direction of a link: a queue before a line of some rate, then a delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shaper {
    delay_ns: u64,
    /// Bits a second; 0: unlimited.
    rate: u64,
    queue_bytes: u64,
    /// Probability of a loss, 0 to 1.
    loss: f64,
    /// When the line has sent everything given to it.
    free_ns: u64,
    /// Frames over the queue's limit, and lost frames.
    pub dropped: u64,
}

impl Shaper {
    /// A direction without frames in transit.
    #[must_use]
    pub fn new(shape: &LinkShape) -> Self {
        let mut shaper = Self {
            delay_ns: 0,
            rate: 0,
            queue_bytes: 0,
            loss: 0.0,
            free_ns: 0,
            dropped: 0,
        };
        shaper.change(shape);
        shaper
    }

    /// Changes the settings from now on; frames in transit arrive as before.
    pub fn change(&mut self, shape: &LinkShape) {
        self.delay_ns = (shape.one_way_ms * 1e6) as u64;
        self.rate = shape.bandwidth_mbit.map_or(0, |mbit| (mbit * 1e6) as u64);
        self.queue_bytes = u64::from(shape.queue_packets) * FRAME_BYTES;
        self.loss = shape.loss_percent / 100.0;
    }

    /// When a frame of `bytes` given at `now_ns` arrives; `None` if it is lost. `draw` is uniform in 0 to 1.
    pub fn admit(&mut self, now_ns: u64, bytes: usize, draw: f64) -> Option<u64> {
        if draw < self.loss {
            self.dropped += 1;
            return None;
        }
        if self.rate == 0 {
            return Some(now_ns + self.delay_ns);
        }
        let waiting_ns = self.free_ns.saturating_sub(now_ns);
        let waiting_bytes = (u128::from(waiting_ns) * u128::from(self.rate) / 8_000_000_000) as u64;
        if waiting_bytes + bytes as u64 > self.queue_bytes.max(FRAME_BYTES) {
            self.dropped += 1;
            return None;
        }
        let sending_ns = bytes as u64 * 8_000_000_000 / self.rate;
        self.free_ns = self.free_ns.max(now_ns) + sending_ns;
        Some(self.free_ns + self.delay_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> LinkShape {
        LinkShape {
            one_way_ms: 2.5,
            bandwidth_mbit: Some(10.0),
            queue_packets: 10,
            loss_percent: 0.0,
        }
    }

    #[test]
    fn a_frame_takes_its_time_on_the_line_and_then_the_delay() {
        let mut shaper = Shaper::new(&shape());
        // 1250 bytes are 10,000 bits: a millisecond at 10 Mbit/s.
        assert_eq!(shaper.admit(0, 1250, 0.5), Some(3_500_000));
        assert_eq!(shaper.admit(0, 1250, 0.5), Some(4_500_000));
        assert_eq!(shaper.admit(10_000_000, 1250, 0.5), Some(13_500_000));
    }

    #[test]
    fn the_queue_holds_its_packets_and_no_more() {
        let mut shaper = Shaper::new(&shape());
        let taken = (0..100)
            .filter(|_| shaper.admit(0, 1514, 0.5).is_some())
            .count();
        assert_eq!((taken, shaper.dropped), (10, 90));
    }

    #[test]
    fn a_line_carries_its_rate_and_not_more() {
        let mut shaper = Shaper::new(&shape());
        // Twice the rate, a frame every 606 microseconds, for ten seconds.
        let carried: u64 = (0..16_500u64)
            .filter_map(|frame| shaper.admit(frame * 606_000, 1514, 0.5))
            .map(|_| 1514 * 8)
            .sum();
        let mbit_s = carried as f64 / 1e6 / 10.0;
        assert!((9.9..10.2).contains(&mbit_s), "{mbit_s}");
    }

    #[test]
    fn a_cut_line_loses_all_and_a_healed_one_nothing() {
        let mut shaper = Shaper::new(&shape());
        let cut = LinkShape {
            loss_percent: 100.0,
            ..shape()
        };
        shaper.change(&cut);
        assert_eq!(shaper.admit(0, 100, 0.999_999), None);
        shaper.change(&shape());
        assert!(shaper.admit(0, 100, 0.0).is_some());
    }

    #[test]
    fn without_a_rate_there_is_only_the_delay() {
        let unlimited = LinkShape {
            bandwidth_mbit: None,
            ..shape()
        };
        let mut shaper = Shaper::new(&unlimited);
        for _ in 0..1000 {
            assert_eq!(shaper.admit(5, 1514, 0.5), Some(2_500_005));
        }
    }
}
