//! How often clients of this worker publish to which topics: counted in the cached routes, so it costs one addition a message.

use std::{collections::BinaryHeap, sync::Arc, time::Duration};

use thicket_session::time::Instant;

use super::{context::Context, state::timers::Timer};
use crate::{
    Now,
    messages::{HEAVIEST_TOPICS, ToHub, TopicRate},
};

/// Longer ones are left out, bytes.
const LONGEST_TOPIC: usize = 1024;

/// Time between two counts.
const COUNTED: Duration = Duration::from_secs(5);

/// When topics were counted last.
#[derive(Debug, Default)]
pub(super) struct TopicCounts {
    since: Instant,
    /// The last report named some.
    has_reported: bool,
}

impl TopicCounts {
    /// Reports the topics with most messages to the hub, now and then.
    pub(super) fn review(&mut self, cx: &mut Context, now: Now) {
        let passed = now.instant.since(self.since);
        if passed < COUNTED {
            return;
        }
        thicket_session::reach!("time worker/rates COUNTED");
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.since = now.instant;
        let mut heaviest: BinaryHeap<std::cmp::Reverse<(u64, &str)>> = BinaryHeap::new();
        for (topic, route) in cx.interests.remembered() {
            let count = route.published.take();
            if count == 0 || topic.len() > LONGEST_TOPIC {
                continue;
            }
            if heaviest.len() == HEAVIEST_TOPICS {
                let least = heaviest.peek().map_or(0, |least| least.0.0);
                if count <= least {
                    continue;
                }
                heaviest.pop();
            }
            heaviest.push(std::cmp::Reverse((count, topic)));
        }
        let rate = |std::cmp::Reverse((count, topic))| TopicRate {
            topic: Arc::from(topic),
            millis_per_s: count * 1_000_000 / millis,
        };
        let rates: Vec<TopicRate> = heaviest.into_iter().map(rate).collect();
        let had_reported = std::mem::replace(&mut self.has_reported, !rates.is_empty());
        if self.has_reported {
            // If nothing is published any more, no other round may come.
            cx.timers.set(now.instant + COUNTED, Timer::Round);
        }
        if self.has_reported || had_reported {
            cx.send_to_hub(ToHub::TopicRates(rates));
        }
    }
}
