//! How often clients of this worker publish to which topics: counted in the cached routes, so it costs one addition a message.

use std::{collections::BinaryHeap, sync::Arc};

use thicket_session::time::Instant;

use super::context::Context;
use crate::{
    Now,
    messages::{HEAVIEST_TOPICS, ToHub, TopicRate},
};

/// Longer ones are left out, bytes.
const LONGEST_TOPIC: usize = 1024;

/// When topics were counted last.
#[derive(Debug, Default)]
pub(super) struct TopicCounts {
    since: Instant,
}

impl TopicCounts {
    /// The hub asks for the topics with most messages since its last request.
    pub(super) fn handle_topic_rates_asked(&mut self, cx: &mut Context, now: Now) {
        let passed = now.instant.since(self.since).as_millis();
        let millis = u64::try_from(passed).unwrap_or(u64::MAX).max(1);
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
        let rates = heaviest.into_iter().map(rate).collect();
        cx.send_to_hub(ToHub::TopicRates(rates));
    }
}
