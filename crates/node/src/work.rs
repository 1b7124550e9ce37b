//! What is how much work, in units of a step in a tree of filters or of a delivery. Clients determine how much there is, by their filters and topics: so
//! a worker and the hub count it, and leave the rest for the next round.

/// What a round does before it ends: some ten milliseconds.
pub(crate) const ROUND: u64 = 200_000;
/// A change of an interest: it changes several trees, here and at all other workers and nodes.
pub(crate) const CHANGE: u64 = 100;
/// A retained topic that is visited for a filter.
pub(crate) const VISIT: u64 = 16;
/// A message for a member of a shared subscription: the member is chosen, and elsewhere it is named.
pub(crate) const GROUP: u64 = 4;
