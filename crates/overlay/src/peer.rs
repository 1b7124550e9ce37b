//! The state for one other node that outlives a link to it.

use std::collections::VecDeque;

use thicket_session::time::Instant;

use crate::flow::Flow;
use crate::hello::Hello;
use crate::identity::{Incarnation, LinkId, NodeId};
use crate::inbound::Inbound;
use crate::interests::RemoteInterests;
use crate::outbound::Outbound;
use crate::report::LinkCounters;
use crate::wire_version::WireRange;

/// One other node that was identified at least once.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    /// Identifies the current start of the program; everything below except the counters belongs to it.
    pub(crate) process: u64,
    pub(crate) incarnation: Incarnation,
    /// The first incarnation of this process.
    pub(crate) first_incarnation: Incarnation,
    /// Wire versions of this process.
    pub(crate) wire: WireRange,
    pub(crate) state: PeerState,
    /// The selected link, whether it is up or not.
    pub(crate) link: Option<LinkId>,
    /// How often a link was selected: by us, if we decide, otherwise by the other node.
    pub(crate) selects: u64,
    /// How often this node has marked it as down, and how often it reports having marked this node as down.
    pub(crate) given_up: u64,
    pub(crate) gave_us_up: u64,
    /// How often a direct link with it came up.
    pub(crate) link_epoch: u32,
    pub(crate) interests: RemoteInterests,
    /// An acknowledgement was received over the current link: the other node has seen that we are up.
    pub(crate) has_acknowledged: bool,
    pub(crate) owes_applied: bool,
    /// The version of our interests sent on the current link; `None`: a snapshot must be sent.
    pub(crate) interests_sent: Option<u64>,
    /// The version of our interests that all its workers have applied.
    pub(crate) interests_acknowledged: Option<u64>,
    pub(crate) control: ControlQueue,
    pub(crate) control_received: u64,
    pub(crate) owes_control: bool,
    pub(crate) outbound: Outbound,
    /// The part of `outbound` that is sent over trees.
    pub(crate) flow: Flow,
    pub(crate) inbound: Inbound,
    /// Smoothed, in microseconds.
    pub(crate) rtt_us: Option<u64>,
    pub(crate) counters: LinkCounters,
}

/// Whether a node is up.
///
/// | state | event | next |
/// |---|---|---|
/// | `Down` | its link is up | `Up`, `NodeUp` |
/// | `Up` | its link closed | `Lost` |
/// | `Up` | it shuts down | `Down`, `NodeDown` |
/// | `Lost` | a link is up | `Up`; what was not acknowledged is resent |
/// | `Lost` | a dial to it failed, or `down_after` is over, and no other node reaches it | `Down`, `NodeDown` |
/// | `Lost` | others reach it, and it has had no link for `link_grace` | `Down`, `NodeDown` |
/// | `Up`, `Lost` | a link of a later process is selected | `Down`, `NodeDown`, then as there |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// Down: nothing waits for it.
    Down,
    /// Reachable over a link that is up.
    Up,
    /// Its link ended; still waited for.
    Lost {
        /// When something was last received from it.
        since: Instant,
        /// A dial to it failed: it does not answer at its address.
        is_unreachable: bool,
    },
}

impl Peer {
    pub(crate) fn new(hello: &Hello, credit_window: u64) -> Self {
        Self {
            node: hello.node,
            name: hello.name.clone(),
            process: hello.process,
            incarnation: hello.incarnation,
            first_incarnation: hello.incarnation,
            wire: hello.wire,
            state: PeerState::Down,
            link: None,
            selects: 0,
            given_up: 0,
            gave_us_up: 0,
            link_epoch: 0,
            interests: RemoteInterests::default(),
            has_acknowledged: false,
            owes_applied: false,
            interests_sent: None,
            interests_acknowledged: None,
            control: ControlQueue::default(),
            control_received: 0,
            owes_control: false,
            outbound: Outbound::default(),
            flow: Flow::default(),
            inbound: Inbound::new(credit_window),
            rtt_us: None,
            counters: LinkCounters::default(),
        }
    }

    /// The node has restarted: its former state is void. It must be down. Its persistent interests stay aside.
    pub(crate) fn start_process(&mut self, hello: &Hello, credit_window: u64) {
        let interests = std::mem::take(&mut self.interests);
        *self = Self {
            interests,
            counters: self.counters,
            ..Self::new(hello, credit_window)
        };
    }

    pub(crate) const fn is_down(&self) -> bool {
        matches!(self.state, PeerState::Down)
    }

    /// A reply took `sample_us`: smoothed as in RFC 6298.
    pub(crate) const fn measure(&mut self, sample_us: u64) {
        self.rtt_us = Some(match self.rtt_us {
            Some(before) => before - before / 8 + sample_us / 8,
            None => sample_us,
        });
    }
}

/// Control messages that the other node has not confirmed, numbered from 1 for the life of both processes.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    queue: VecDeque<QueuedControl>,
    bytes: usize,
    last: u64,
    /// The last one sent on the current link.
    sent: u64,
}

/// One control message.
#[derive(Debug)]
pub(crate) struct QueuedControl {
    pub(crate) sequence: u64,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl ControlQueue {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, kind: u8, payload: &[u8]) {
        self.last += 1;
        self.bytes += payload.len();
        self.queue.push_back(QueuedControl {
            sequence: self.last,
            kind,
            payload: payload.to_vec(),
        });
    }

    /// The other node has received all up to `received`.
    pub(crate) fn confirm(&mut self, received: u64) {
        while let Some(first) = self.queue.front()
            && first.sequence <= received
        {
            self.bytes -= first.payload.len();
            self.queue.pop_front();
        }
    }

    /// A new link: what is not confirmed is resent.
    pub(crate) fn start_link(&mut self, received: u64) {
        self.confirm(received);
        self.sent = received;
    }

    /// Passes what was not sent on this link to `write`.
    pub(crate) fn send(&mut self, mut write: impl FnMut(&QueuedControl)) {
        // Called for every link in every round, mostly with nothing to send.
        if self.sent == self.last {
            return;
        }
        let first = self
            .queue
            .partition_point(|control| control.sequence <= self.sent);
        self.queue.range(first..).for_each(&mut write);
        self.sent = self.last;
    }

    /// The node is down: what it did not receive is lost. Numbers continue, so that nothing is taken for a duplicate.
    pub(crate) fn abandon(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(queue: &mut ControlQueue) -> Vec<u64> {
        let mut sent = Vec::new();
        queue.send(|control| sent.push(control.sequence));
        sent
    }

    #[test]
    fn control_is_sent_once_a_link_until_it_is_confirmed() {
        let mut queue = ControlQueue::default();
        (0..3).for_each(|kind| queue.push(kind, b"ab"));
        assert_eq!(
            (send(&mut queue), send(&mut queue)),
            (vec![1, 2, 3], vec![])
        );
        queue.confirm(1);
        queue.push(3, b"c");
        assert_eq!((send(&mut queue), queue.bytes()), (vec![4], 5));
        queue.start_link(2);
        assert_eq!(send(&mut queue), [3, 4]);
        queue.abandon();
        queue.push(4, b"");
        queue.start_link(0);
        assert_eq!((send(&mut queue), queue.bytes()), (vec![5], 0));
    }
}
