//! What is how much work, in units of a step in a tree of filters or of a delivery. Clients determine how much there is, by their filters and topics: so
//! a worker and the hub count it, and leave the rest for the next round.

/// What a round does before it ends: some ten milliseconds.
pub(crate) const ROUND: u64 = 200_000;
/// A change of an interest: it changes several trees, here and at all other workers and nodes.
pub(crate) const CHANGE: u64 = 100;
/// A retained topic that is visited for a filter.
pub(crate) const VISIT: u64 = 16;
/// A message for a member of a shared subscription: the member is chosen, and elsewhere it is named. Also a shared subscription in the route of a topic.
pub(crate) const GROUP: u64 = 10;

/// The same with the bytes of the message, which are copied each time. So what a round copies is bounded, too: to some 25 MB.
pub(crate) const fn for_member(payload: usize) -> u64 {
    GROUP + payload as u64 / COPIED
}

/// Bytes of messages for one unit, where each is copied for each of its recipients.
pub(crate) const COPIED: u64 = 128;
/// A message that has expired in the queue of a session.
pub(crate) const EXPIRED: u64 = 10;
/// A record that the hub passes on to other nodes.
pub(crate) const FORWARD: u64 = 4;
