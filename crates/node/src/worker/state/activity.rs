//! What a client does: how many messages it has, and what it publishes to.
//!
//! Rates are means over half a minute and more, so a load that swings faster looks constant; but when a client's subscriptions change, they start
//! again. Topics are counted in a sample of the publications.

use std::{rc::Rc, time::Duration};

use thicket_session::time::Instant;

/// Rates are means over this time at least, and twice it at most while reports are requested.
const MEASURED: Duration = Duration::from_secs(30);

/// Rates of a client that changes its subscriptions all the time are means over about this time nevertheless.
const RESTARTED: Duration = Duration::from_secs(10);

/// One in this many publications is sampled for its topic.
const SAMPLED: u32 = 16;

/// Of 2^32, the golden ratio: its multiples are spread evenly, and so are every second, every third and so on of them.
const SPREAD: u32 = 0x9e37_79b9;

/// Topics that are kept of a client, those with most messages.
const TOPICS: usize = 8;

/// Longer topics and filters are left out, bytes.
pub(in crate::worker) const LONGEST: usize = 1024;

/// How many messages there had been at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    at: Instant,
    messages: u64,
    published: u64,
}

/// What a connection does.
#[derive(Debug, Default)]
pub(in crate::worker) struct Activity {
    pub published: u64,
    /// Rates are counted from the older one.
    marks: [Mark; 2],
    /// When rates last started again.
    began: Instant,
    /// With how often each was sampled.
    topics: Vec<(Rc<str>, u32)>,
}

impl Activity {
    pub fn new(now: Instant) -> Self {
        let mark = Mark {
            at: now,
            ..Mark::default()
        };
        Self {
            marks: [mark; 2],
            began: now,
            ..Self::default()
        }
    }

    /// The client's subscriptions changed, after `messages` messages: what it received before does not predict what it will receive.
    pub fn restart(&mut self, now: Instant, messages: u64) {
        if now.since(self.began) >= RESTARTED {
            thicket_session::reach!("time RESTARTED");
            let mark = Mark {
                at: now,
                messages,
                published: self.published,
            };
            (self.marks, self.began) = ([mark; 2], now);
        }
    }

    /// The client published to a topic, which has the prefix in the cluster. A topic that is listed costs no allocation.
    pub fn note(&mut self, prefix: &str, topic: &str) {
        let is_it = |known: &str| known.strip_prefix(prefix) == Some(topic);
        if let Some(known) = self.topics.iter_mut().find(|known| is_it(&known.0)) {
            known.1 += 1;
        } else if self.topics.len() < TOPICS && prefix.len() + topic.len() <= LONGEST {
            self.topics.push((format!("{prefix}{topic}").into(), 1));
        } else {
            // Topics with few messages are evicted.
            self.topics.retain_mut(|known| {
                known.1 -= 1;
                known.1 > 0
            });
        }
    }

    /// Thousandths of a message a second, of all messages and of those published.
    pub fn rates(&mut self, now: Instant, messages: u64) -> (u64, u64) {
        let since = self.marks[0];
        let millis = now.since(since.at).as_millis().max(1_000);
        let of = |count: u64| (u128::from(count) * 1_000_000 / millis) as u64;
        let rates = (
            of(messages - since.messages),
            of(self.published - since.published),
        );
        if now.since(self.marks[1].at) >= MEASURED {
            thicket_session::reach!("time MEASURED");
            let next = Mark {
                at: now,
                messages,
                published: self.published,
            };
            self.marks = [self.marks[1], next];
            for known in &mut self.topics {
                known.1 = known.1.div_ceil(2);
            }
        }
        rates
    }

    pub fn topics(&self, published: u64) -> Vec<(std::sync::Arc<str>, u64)> {
        let sampled: u64 = self.topics.iter().map(|known| u64::from(known.1)).sum();
        let all = self.topics.iter();
        all.map(|(topic, count)| ((&**topic).into(), published * u64::from(*count) / sampled))
            .collect()
    }
}

/// Whether a publication, by its number in its worker, is sampled: spread so that clients which go round their topics are seen with all of them.
#[inline]
pub(in crate::worker) const fn is_sampled(number: u64) -> bool {
    (number as u32).wrapping_mul(SPREAD) < u32::MAX / SAMPLED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn publish(activity: &mut Activity, topic: &str, count: u64) {
        for _ in 0..count {
            activity.published += 1;
            if is_sampled(activity.published) {
                activity.note("", topic);
            }
        }
    }

    #[test]
    fn rates_are_means_over_half_a_minute_and_more() {
        let mut activity = Activity::new(at(0));
        publish(&mut activity, "a", 100);
        assert_eq!(activity.rates(at(10), 200), (20_000, 10_000));
        // Ten seconds with messages, and ten without: the mean hardly moves.
        for ten in 2..30 {
            publish(&mut activity, "a", 100 * (ten % 2));
            let published = activity.published;
            let (_, rate) = activity.rates(at(10 * ten), 2 * published);
            assert!((3_300..=7_000).contains(&rate), "{rate} after {ten}0 s");
        }
    }

    #[test]
    fn a_client_that_has_just_come_is_measured_over_a_second_at_least() {
        let mut activity = Activity::new(at(5));
        assert_eq!(activity.rates(at(5), 3), (3_000, 0));
    }

    #[test]
    fn rates_begin_anew_when_a_client_wants_something_else_but_not_all_the_time() {
        let mut activity = Activity::new(at(0));
        activity.restart(at(9), 1_000);
        assert_eq!(activity.rates(at(40), 4_000).0, 100_000);
        activity.restart(at(50), 4_000);
        assert_eq!(activity.rates(at(52), 5_000).0, 500_000);
        activity.restart(at(59), 8_500);
        assert_eq!(activity.rates(at(60), 9_000).0, 500_000);
    }

    #[test]
    fn topics_share_what_is_published_as_they_were_sampled_and_rare_ones_make_room() {
        let mut activity = Activity::new(at(0));
        for index in 0..1700 {
            publish(
                &mut activity,
                if index % 4 == 0 { "few" } else { "many" },
                1,
            );
        }
        let topics = activity.topics(1000);
        let rate = |name: &str| topics.iter().find(|it| &*it.0 == name).map_or(0, |it| it.1);
        assert!((200..=300).contains(&rate("few")), "{topics:?}");
        assert!((700..=800).contains(&rate("many")), "{topics:?}");
        for index in 0..100_u64 {
            publish(&mut activity, &format!("rare/{index}"), 17);
        }
        assert!(activity.topics.len() <= TOPICS);
        assert!(
            activity.topics.iter().any(|known| &*known.0 == "many")
                || activity.topics.len() < TOPICS
        );
    }
}
