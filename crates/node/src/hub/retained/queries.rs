//! What filters match, in pages: for new subscriptions, and for operators.

use std::collections::{BTreeMap, VecDeque};

use thicket_session::{
    retained::{RetainedCursor, RetainedProgress},
    topic::TopicFilter,
};

use super::{Kept, RetainedMessages};
use crate::{Now, WorkerId, hub::Hub, messages::ToWorker, work};

/// Topics visited for one page.
const PAGE_TOPICS: usize = 512;
/// Topics visited for a page on which there is nothing yet.
const PAGE_VISITS: usize = 16 * PAGE_TOPICS;
/// Topics of the nodes themselves.
const OF_NODES: &str = "$thicket/";
/// Topics that are visited between two checks of the length of a page.
const PAGE_STEP: usize = 16;
/// Bytes of one page.
pub(super) const PAGE_BYTES: usize = 64 * 1024;

/// Queries of workers for new subscriptions.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// Those under way, each with the last arrival that belongs to it: what came later reaches the new subscription as a message.
    cursors: BTreeMap<(WorkerId, u64), (RetainedCursor, u64)>,
    /// Those that wait for their next page, as this round has looked enough: one of a session at a time.
    asked: VecDeque<RetainedQuery>,
}

/// A worker wants the next page of what a filter matches.
#[derive(Debug)]
struct RetainedQuery {
    from: WorkerId,
    query: u64,
    filter: TopicFilter,
    /// Set with the first page: the last arrival that belongs to it.
    begin_at: Option<u64>,
}

impl RetainedMessages {
    pub fn cancel(&mut self, worker: WorkerId, query: u64) {
        self.queries.cursors.remove(&(worker, query));
        self.queries
            .asked
            .retain(|asked| (asked.from, asked.query) != (worker, query));
    }

    /// The next page for a query, with the expiry each message has left; whether there is more; and how many topics were visited at most.
    fn page(
        &mut self,
        now: Now,
        key: (WorkerId, u64),
        filter: &TopicFilter,
        begin_at: Option<u64>,
    ) -> (Vec<u8>, bool, u64) {
        if let Some(last) = begin_at {
            self.queries
                .cursors
                .insert(key, (RetainedCursor::new(filter), last));
        }
        // With large messages a few topics fill a page.
        let mean_bytes = self.tree.bytes() / self.tree.len().max(1);
        let topics = (PAGE_BYTES / mean_bytes.max(1)).clamp(1, PAGE_TOPICS);
        let Some((cursor, last)) = self.queries.cursors.get_mut(&key) else {
            return (Vec::new(), false, 0);
        };
        let mut page = Vec::new();
        let mut expired = Vec::new();
        let mut progress = RetainedProgress::More;
        let mut visits = 0;
        while page.len() < PAGE_BYTES
            && progress == RetainedProgress::More
            && visits
                < if page.is_empty() {
                    PAGE_VISITS
                } else {
                    PAGE_TOPICS
                }
        {
            visits += topics;
            progress = cursor.resume(&self.tree, topics, |topic, kept| match kept.expires_at {
                Some(at) if at <= now.instant => expired.push(topic.to_owned()),
                _ if kept.arrival <= *last => kept.append_to(&mut page, now),
                _ => {}
            });
        }
        for topic in expired {
            self.forget(now, &topic);
        }
        let has_more = progress == RetainedProgress::More;
        if !has_more {
            self.queries.cursors.remove(&key);
        }
        (page, has_more, visits as u64)
    }
}

impl Hub {
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
            progress = cursor.resume(&self.retained.tree, PAGE_STEP, visit);
        }
        (page, progress == RetainedProgress::More)
    }

    pub(in crate::hub) fn handle_retained_query(
        &mut self,
        now: Now,
        from: WorkerId,
        query: u64,
        filter: TopicFilter,
        begin_at: Option<u64>,
    ) {
        let asked = RetainedQuery {
            from,
            query,
            filter,
            begin_at,
        };
        if self.wanted.has_looked_enough() || self.has_retained_queries() {
            self.retained.queries.asked.push_back(asked);
        } else {
            self.answer_retained_query(now, &asked);
        }
    }

    /// Whether queries wait for the next round.
    pub(in crate::hub) fn has_retained_queries(&self) -> bool {
        !self.retained.queries.asked.is_empty()
    }

    /// Answers queries that waited, in turns, until this round has looked enough too.
    pub(in crate::hub) fn answer_retained_queries(&mut self, now: Now) {
        while !self.wanted.has_looked_enough()
            && let Some(asked) = self.retained.queries.asked.pop_front()
        {
            self.answer_retained_query(now, &asked);
        }
    }

    fn answer_retained_query(&mut self, now: Now, asked: &RetainedQuery) {
        let &RetainedQuery {
            from,
            query,
            ref filter,
            begin_at,
        } = asked;
        let page = self.retained.page(now, (from, query), filter, begin_at);
        let (records, has_more, visits) = page;
        self.wanted.note_work(work::VISIT * visits);
        self.cx.send_to_worker_after_records(
            from,
            ToWorker::RetainedPage {
                query,
                records,
                has_more,
            },
        );
    }
}
