//! Mosquitto's `$SYS` topics: counters that arrive every `sys_interval`. No I/O.

use super::Figure;
use super::rate::Rate;

/// The subscriptions. The broker's uptime arrives with every interval, even when nothing else has changed.
pub(crate) const TOPICS: [&str; 4] = [
    "$SYS/broker/uptime",
    "$SYS/broker/publish/messages/received",
    "$SYS/broker/publish/messages/sent",
    "$SYS/broker/clients/connected",
];
/// All messages of an interval arrive within this time.
const GATHER_S: f64 = 0.1;
/// A broker without messages for this many intervals is silent.
const MISSED: f64 = 3.0;
/// The interval of Mosquitto's default configuration.
const USUAL_INTERVAL_S: f64 = 10.0;

/// The values of one broker's topics.
#[derive(Debug, Default)]
pub(crate) struct SysTopics {
    received: f64,
    sent: f64,
    connected: Option<f64>,
    /// Start of the latest interval; `None`: it is counted already.
    tick_s: Option<f64>,
    last_tick_s: Option<f64>,
    interval_s: Option<f64>,
    messages: Rate,
}

impl SysTopics {
    /// Handles a message of one of [`TOPICS`].
    pub fn handle(&mut self, now_s: f64, topic: &str, payload: &[u8]) {
        let text = std::str::from_utf8(payload).unwrap_or_default();
        let number = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok());
        let Some(number) = number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
        else {
            return;
        };
        match TOPICS.iter().position(|&known| known == topic) {
            Some(0) => {
                if let Some(last) = self.last_tick_s {
                    self.interval_s = Some(now_s - last);
                }
                self.last_tick_s = Some(now_s);
                self.tick_s = Some(now_s);
            }
            Some(1) => self.received = number,
            Some(2) => self.sent = number,
            // This connection is one of them, and not a client.
            Some(3) => self.connected = Some((number - 1.0).max(0.0)),
            _ => {}
        }
    }

    /// The figures of an interval, once it is complete, and for how many seconds they are valid.
    pub fn poll(&mut self, now_s: f64) -> Option<(Vec<(Figure, f64)>, f64)> {
        let tick = self.tick_s.filter(|tick| now_s >= tick + GATHER_S)?;
        self.tick_s = None;
        self.messages.push(tick, self.received + self.sent);
        let messages = self
            .messages
            .a_second()
            .map(|rate| (Figure::Messages, rate));
        let connections = self.connected.map(|count| (Figure::Connections, count));
        Some((
            messages.into_iter().chain(connections).collect(),
            self.patience_s(),
        ))
    }

    /// How long the broker may be silent.
    pub fn patience_s(&self) -> f64 {
        MISSED * self.interval_s.unwrap_or(USUAL_INTERVAL_S).max(1.0)
    }

    /// When it last sent something.
    pub fn last_tick_s(&self) -> Option<f64> {
        self.last_tick_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(topics: &mut SysTopics, at: f64, received: u32) -> Vec<(Figure, f64)> {
        topics.handle(at, TOPICS[0], format!("{at} seconds").as_bytes());
        topics.handle(at + 0.01, TOPICS[1], received.to_string().as_bytes());
        assert_eq!(topics.poll(at + 0.05), None, "more may come");
        topics.poll(at + 0.2).expect("the interval is over").0
    }

    #[test]
    fn messages_a_second_follow_from_the_counters_of_intervals() {
        let mut topics = SysTopics::default();
        topics.handle(0.0, TOPICS[3], b"4");
        assert_eq!(
            interval(&mut topics, 0.0, 100),
            [(Figure::Connections, 3.0)]
        );
        let figures = interval(&mut topics, 1.0, 2_100);
        assert_eq!(
            figures,
            [(Figure::Messages, 2_000.0), (Figure::Connections, 3.0)]
        );
        // Only the uptime arrived: no messages were received.
        topics.handle(2.0, TOPICS[0], b"2 seconds");
        let (figures, patience) = topics.poll(2.5).unwrap();
        assert_eq!(figures[0], (Figure::Messages, 1_000.0));
        assert_eq!(patience, 3.0);
        assert_eq!(topics.poll(2.6), None);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let mut topics = SysTopics::default();
        for payload in [&b""[..], b"x", b"-1", b"NaN", &[0xFF]] {
            topics.handle(1.0, TOPICS[3], payload);
        }
        topics.handle(1.0, "other", b"1");
        assert_eq!((topics.connected, topics.poll(9.0)), (None, None));
    }
}
