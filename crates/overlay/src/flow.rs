//! Messages in transit to one destination over trees, and messages that wait for the window.
//!
//! Over a tree, credit is what is in transit: it returns with the acknowledgement, so what a failing relay lost is not lost credit.

use std::collections::BTreeMap;
use std::time::Duration;

use thicket_session::time::Instant;

use crate::identity::StreamId;

/// `resend_after` doubles at most this often, while something is overdue.
const MAXIMUM_DOUBLINGS: u32 = 4;

/// Numbered messages towards one destination.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Not sent yet, with their lengths.
    parked: BTreeMap<(StreamId, u64), u32>,
    /// Bytes sent and not acknowledged.
    under_way: u64,
    /// The highest number sent of each stream; there are few.
    sent_up_to: Vec<(StreamId, u64)>,
    /// What was in transit at this time is overdue when it is not acknowledged in `resend_after`, whatever else is acknowledged meanwhile: a lost
    /// acknowledgement would otherwise never come while there is traffic.
    watched_since: Instant,
    /// `sent_up_to` at that time.
    watched: Vec<(StreamId, u64)>,
    doublings: u32,
}

impl Flow {
    /// A new message: true if it may be sent now, otherwise it is parked behind those that wait.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        stream: StreamId,
        number: u64,
        len: u32,
        window: u64,
        is_open: bool,
    ) -> bool {
        let goes = is_open && self.parked.is_empty() && self.has_window(len, window);
        if goes {
            self.send(now, stream, number, len);
        } else {
            self.parked.insert((stream, number), len);
        }
        goes
    }

    /// The next parked message that the window allows; it counts as sent.
    pub(crate) fn release(&mut self, now: Instant, window: u64) -> Option<(StreamId, u64)> {
        let key = self.first_parked()?;
        let len = *self.parked.get(&key)?;
        if !self.is_overtaken(key) && !self.has_window(len, window) {
            return None;
        }
        self.parked.remove(&key);
        self.send(now, key.0, key.1, len);
        Some(key)
    }

    /// The next parked message: one that later ones of its stream have overtaken, otherwise the first. At the destination, the later ones wait for it
    /// and occupy the window, so it is sent whatever the window is; otherwise both would wait for ever.
    pub(crate) fn first_parked(&self) -> Option<(StreamId, u64)> {
        let first = |(key, _): (&(StreamId, u64), &u32)| *key;
        let overtaken = self.sent_up_to.iter().find_map(|&(stream, sent)| {
            let mut before = self.parked.range((stream, 0)..(stream, sent));
            before.next().map(first)
        });
        overtaken.or_else(|| self.parked.first_key_value().map(first))
    }

    /// Whether a later message of its stream was sent.
    fn is_overtaken(&self, (stream, number): (StreamId, u64)) -> bool {
        let mut sent = self.sent_up_to.iter();
        sent.any(|(of, sent)| *of == stream && *sent > number)
    }

    /// Whether nothing is parked and nothing is in transit.
    pub(crate) fn is_idle(&self) -> bool {
        self.parked.is_empty() && self.under_way == 0
    }

    #[cfg(test)]
    fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether the message was sent.
    pub(crate) fn is_sent(&self, stream: StreamId, number: u64) -> bool {
        !self.parked.contains_key(&(stream, number))
    }

    /// A message that was sent must be sent again, and there is no path for it now: it counts as not sent.
    pub(crate) fn park(&mut self, stream: StreamId, number: u64, len: u32) {
        if self.parked.insert((stream, number), len).is_none() {
            self.under_way = self.under_way.saturating_sub(u64::from(len));
        }
    }

    /// A message was acknowledged.
    pub(crate) fn settle(&mut self, stream: StreamId, number: u64, len: u32) {
        if self.parked.is_empty() || self.parked.remove(&(stream, number)).is_none() {
            self.under_way = self.under_way.saturating_sub(u64::from(len));
        }
    }

    /// When what is overdue must be resent; `None` if nothing is in transit.
    pub(crate) fn resend_at(&self, after: Duration) -> Option<Instant> {
        (self.under_way > 0).then(|| self.watched_since + after * (1 << self.doublings))
    }

    /// Whether an unacknowledged message is overdue at the time that `resend_at` states.
    pub(crate) fn is_overdue(&self, stream: StreamId, number: u64) -> bool {
        let mut watched = self.watched.iter();
        let is_watched = watched.any(|(of, up_to)| *of == stream && number <= *up_to);
        is_watched && self.is_sent(stream, number)
    }

    /// What was overdue has been resent, if there was anything.
    pub(crate) fn resent(&mut self, now: Instant, was_overdue: bool) {
        self.doublings = match was_overdue {
            true => (self.doublings + 1).min(MAXIMUM_DOUBLINGS),
            false => 0,
        };
        self.watch(now);
    }

    fn watch(&mut self, now: Instant) {
        self.watched_since = now;
        self.watched.clone_from(&self.sent_up_to);
    }

    /// A single message may always be sent, however long it is.
    const fn has_window(&self, len: u32, window: u64) -> bool {
        self.under_way == 0 || self.under_way + len as u64 <= window
    }

    fn send(&mut self, now: Instant, stream: StreamId, number: u64, len: u32) {
        match self.sent_up_to.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, sent)) => *sent = number.max(*sent),
            None => self.sent_up_to.push((stream, number)),
        }
        if self.under_way == 0 {
            self.doublings = 0;
            self.watch(now);
        }
        self.under_way += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(1);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn what_does_not_fit_waits_in_order_and_leaves_as_others_are_acknowledged() {
        let mut flow = Flow::default();
        let offered: Vec<_> = (1..=4)
            .map(|number| flow.offer(at(0), STREAM, number, 40, 100, number != 2))
            .collect();
        assert_eq!(
            offered,
            [true, false, false, false],
            "2 finds the link full, others wait behind it"
        );
        assert_eq!(flow.release(at(1), 100), Some((STREAM, 2)));
        assert_eq!(
            flow.release(at(1), 100),
            None,
            "80 of 100 bytes are under way"
        );
        flow.settle(STREAM, 1, 40);
        assert_eq!(flow.release(at(2), 100), Some((STREAM, 3)));
        flow.settle(STREAM, 4, 40);
        assert!(
            !flow.has_parked(),
            "acknowledged before it was sent: somebody had it"
        );
        assert!(flow.is_sent(STREAM, 2) && flow.is_sent(STREAM, 3));
    }

    #[test]
    fn what_has_no_path_when_it_is_due_again_waits_for_one_and_occupies_no_window() {
        let mut flow = Flow::default();
        for number in [1, 2] {
            assert!(flow.offer(at(0), STREAM, number, 40, 100, true));
        }
        for number in [1, 2] {
            flow.park(STREAM, number, 40);
            assert!(!flow.is_sent(STREAM, number));
        }
        flow.park(STREAM, 2, 40);
        assert_eq!(flow.resend_at(Duration::from_secs(2)), None);
        assert_eq!(flow.release(at(1), 100), Some((STREAM, 1)));
        assert_eq!(flow.release(at(1), 100), Some((STREAM, 2)));
        assert!(!flow.offer(at(1), STREAM, 3, 40, 100, true));
        flow.settle(STREAM, 1, 40);
        assert_eq!(flow.release(at(2), 100), Some((STREAM, 3)));
    }

    #[test]
    fn what_others_under_way_wait_for_goes_first_and_needs_no_window() {
        let mut flow = Flow::default();
        let other = StreamId(0);
        assert!(flow.offer(at(0), STREAM, 14, 40, 100, true));
        // Added later, when they were matched again: the destination must deliver 13 before 14.
        for (stream, number, len) in [(other, 21, 65), (STREAM, 13, 70), (STREAM, 15, 1)] {
            assert!(!flow.offer(at(1), stream, number, len, 100, false));
        }
        assert_eq!(flow.release(at(1), 100), Some((STREAM, 13)));
        assert_eq!(flow.release(at(1), 100), None, "the window is full");
        flow.settle(STREAM, 13, 70);
        flow.settle(STREAM, 14, 40);
        assert_eq!(flow.release(at(2), 100), Some((other, 21)));
        assert_eq!(flow.release(at(2), 100), Some((STREAM, 15)));
    }

    #[test]
    fn what_is_overdue_is_sent_again_ever_less_often() {
        let (mut flow, after) = (Flow::default(), Duration::from_secs(2));
        assert_eq!(flow.resend_at(after), None);
        assert!(
            flow.offer(at(1000), STREAM, 1, 900, 100, true),
            "alone it may go"
        );
        for wait in [2, 4, 8, 16, 32, 32] {
            let due = flow.resend_at(after).expect("under way");
            assert!(flow.is_overdue(STREAM, 1));
            flow.resent(due, true);
            assert_eq!(
                flow.resend_at(after).map(|next| next.since(due).as_secs()),
                Some((wait * 2).min(32))
            );
        }
        flow.settle(STREAM, 1, 900);
        assert_eq!(flow.resend_at(after), None);
    }

    #[test]
    fn a_lost_acknowledgement_is_noticed_while_others_come() {
        let (mut flow, after) = (Flow::default(), Duration::from_secs(2));
        for number in 1..=3 {
            assert!(flow.offer(at(0), STREAM, number, 10, 100, true));
        }
        // The acknowledgement of 2 is lost.
        flow.settle(STREAM, 1, 10);
        flow.settle(STREAM, 3, 10);
        assert_eq!(flow.resend_at(after), Some(at(2000)));
        assert!(!flow.is_overdue(STREAM, 2), "1 was sent before it");
        flow.resent(at(2000), false);
        assert!(flow.offer(at(3000), STREAM, 4, 10, 100, true));
        assert_eq!(flow.resend_at(after), Some(at(4000)));
        assert!(flow.is_overdue(STREAM, 2) && !flow.is_overdue(STREAM, 4));
        flow.resent(at(4000), true);
        flow.settle(STREAM, 2, 10);
        assert_eq!(flow.resend_at(after), Some(at(8000)), "for 4");
        flow.settle(STREAM, 4, 10);
        assert!(flow.offer(at(9000), STREAM, 5, 10, 100, true));
        assert_eq!(
            flow.resend_at(after),
            Some(at(11_000)),
            "nothing is overdue any more"
        );
    }
}
