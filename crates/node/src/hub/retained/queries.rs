//! What filters match, in pages: for new subscriptions, and for operators.

use thicket_mqtt::Qos;
use thicket_session::retained::{RetainedCursor, RetainedProgress};

use super::{Kept, RetainedMessages};
use crate::{
    Now, WorkerId,
    hub::{Hub, HubView},
    messages::{PAGE_MESSAGES, RetainedQuery, ToWorker},
    work,
};

/// Topics visited for one page.
const PAGE_TOPICS: usize = PAGE_MESSAGES;
/// Topics that are visited at once at least, unless the messages are large.
const LEAST_TOPICS: usize = 16;
/// Topics visited for a page on which there is nothing yet.
const PAGE_VISITS: usize = 16 * PAGE_TOPICS;
/// Topics of the nodes themselves.
const OF_NODES: &str = "$thicket/";
/// Topics that are visited between two checks of the length of a page.
const PAGE_STEP: usize = 16;
/// Bytes of one page.
pub(super) const PAGE_BYTES: usize = 64 * 1024;

impl RetainedMessages {
    /// The next page for a query, with the expiry each message has left; whether there is more; and how many topics were visited at most.
    fn page(&mut self, now: Now, query: &mut RetainedQuery) -> (Vec<u8>, bool, u64) {
        // With large messages a few topics fill a page.
        let mean_bytes = self.tree.bytes() / self.tree.len().max(1);
        let topics = (PAGE_BYTES / mean_bytes.max(1)).clamp(1, PAGE_TOPICS);
        let topics = topics.min(query.messages.max(LEAST_TOPICS));
        let &mut RetainedQuery {
            since,
            qos,
            is_resumed,
            messages: most,
            ..
        } = query;
        let came_live = |kept: &Kept| {
            since.is_some_and(|since| kept.written.0 > since)
                && (!is_resumed || kept.qos().min(qos) > Qos::AtMostOnce)
        };
        let (mut count, mut last, mut is_over) = (0, None, false);
        let mut page = Vec::new();
        let mut expired = Vec::new();
        let mut progress = RetainedProgress::More;
        let mut visits = 0;
        while page.len() < PAGE_BYTES
            && count < most
            && progress == RetainedProgress::More
            && visits
                < if page.is_empty() {
                    PAGE_VISITS
                } else {
                    PAGE_TOPICS
                }
        {
            visits += topics;
            progress =
                query
                    .cursor
                    .resume(&self.tree, topics, |topic, kept| match kept.expires_at {
                        Some(at) if at <= now.instant => expired.push(topic.to_owned()),
                        _ if came_live(kept) => {}
                        _ if count == most => is_over = true,
                        _ => {
                            kept.append_to(&mut page, now);
                            count += 1;
                            last = Some(topic);
                        }
                    });
        }
        if let Some(last) = last.filter(|_| is_over) {
            query.cursor = query.cursor.clone().behind(last);
            progress = RetainedProgress::More;
        }
        for topic in expired {
            self.forget(now, &topic);
        }
        (page, progress == RetainedProgress::More, visits as u64)
    }
}

impl Hub {
    pub(in crate::hub) fn handle_retained_query(
        &mut self,
        now: Now,
        from: WorkerId,
        query: RetainedQuery,
    ) {
        if self.interests.has_looked_enough() || self.has_retained_queries() {
            self.retained.queries.push_back((from, query));
        } else {
            self.answer_retained_query(now, from, query);
        }
    }

    /// Whether queries wait for the next round.
    pub(in crate::hub) fn has_retained_queries(&self) -> bool {
        !self.retained.queries.is_empty()
    }

    /// Answers queries that waited, in turns, until this round has looked enough too.
    pub(in crate::hub) fn answer_retained_queries(&mut self, now: Now) {
        while !self.interests.has_looked_enough()
            && let Some((from, query)) = self.retained.queries.pop_front()
        {
            self.answer_retained_query(now, from, query);
        }
    }

    fn answer_retained_query(&mut self, now: Now, from: WorkerId, mut query: RetainedQuery) {
        let (records, has_more, visits) = self.retained.page(now, &mut query);
        self.interests.note_work(work::VISIT * visits);
        let page = ToWorker::RetainedPage {
            session: query.session,
            page: query.page,
            records,
            rest: has_more.then_some(query.cursor),
        };
        self.cx.send_to_worker_after_records(from, page);
    }
}

impl HubView<'_> {
    /// Some of the retained messages, without those of the nodes themselves, as records back to back with the expiry they have left: about
    /// a page. `true`: there are more.
    pub fn export_retained(&self, now: Now, cursor: &mut RetainedCursor) -> (Vec<u8>, bool) {
        self.browse_retained(now, cursor, usize::MAX)
    }

    /// The same, for which about `topics` topics are visited, whether they match or not.
    pub fn browse_retained(
        &self,
        now: Now,
        cursor: &mut RetainedCursor,
        topics: usize,
    ) -> (Vec<u8>, bool) {
        let mut page = Vec::new();
        let mut left = topics;
        let mut progress = RetainedProgress::More;
        while left > 0 && page.len() < PAGE_BYTES && progress == RetainedProgress::More {
            left = left.saturating_sub(PAGE_STEP);
            let visit = |topic: &str, kept: &Kept| match kept.expires_at {
                Some(at) if at <= now.instant => {}
                _ if topic.starts_with(OF_NODES) => {}
                _ => kept.append_to(&mut page, now),
            };
            // One with a large payload fills a page.
            progress = cursor.resume(&self.hub.retained.tree, PAGE_STEP, visit);
        }
        (page, progress == RetainedProgress::More)
    }
}
