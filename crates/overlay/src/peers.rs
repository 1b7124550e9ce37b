//! All other nodes that were linked once, and which of them a round must examine.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use thicket_session::time::Instant;

use crate::peer::{Peer, PeerState};
use crate::sorted_set::SortedSet;

/// In the order of their slots, from slot 1; places count from 0. Access that may change a peer marks it for the round.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    /// Places of peers that may have changed since the last round.
    changed: SortedSet<usize>,
    /// Peers without a link that are not down yet, as of the end of the last round.
    lost: SortedSet<usize>,
    /// Peers with messages over trees, parked or in transit, as of the end of the last round.
    flowing: SortedSet<usize>,
    /// What each peer contributes to the counts below, as of the last count.
    counted: Vec<Counted>,
    /// How many peers that are not down have acknowledged which version of our interests; first those that have acknowledged none.
    acknowledged: BTreeMap<Option<u64>, usize>,
    /// How many peers are down and have a link that is being established.
    coming: usize,
}

/// What is counted of a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    /// `None`: it is down.
    acknowledged: Option<Option<u64>>,
    is_coming: bool,
}

impl Deref for Peers {
    type Target = [Peer];

    fn deref(&self) -> &Self::Target {
        &self.peers
    }
}

impl Peers {
    pub(crate) fn push(&mut self, peer: Peer) {
        self.changed.insert(self.peers.len());
        self.peers.push(peer);
        self.counted.push(Counted::default());
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(place)?;
        self.changed.insert(place);
        Some(peer)
    }

    /// Peers that may have changed since the last round, ascending.
    pub(crate) fn changed(&self) -> &[usize] {
        &self.changed
    }

    /// Peers without a link that are not down yet, ascending.
    pub(crate) fn lost(&self) -> SortedSet<usize> {
        let is_lost = |place: &usize| matches!(self.peers[*place].state, PeerState::Lost { .. });
        let places = self.lost.iter().chain(self.changed.iter());
        places.copied().filter(is_lost).collect()
    }

    /// Whether there is a peer without a link that is not down yet.
    pub(crate) fn has_lost(&self) -> bool {
        let mut places = self.lost.iter().chain(self.changed.iter());
        places.any(|place| matches!(self.peers[*place].state, PeerState::Lost { .. }))
    }

    /// Peers with messages over trees, parked or in transit, ascending; possibly some more.
    pub(crate) fn flowing(&self) -> SortedSet<usize> {
        self.with_changed(&self.flowing)
    }

    /// When something sent over trees must next be resent.
    pub(crate) fn next_resend(&self, after: Duration) -> Option<Instant> {
        let flowing = self.flowing.iter().chain(self.changed.iter());
        let peers = flowing.map(|place| &self.peers[*place]);
        let there = peers.filter(|peer| !peer.is_down());
        there.filter_map(|peer| peer.flow.resend_at(after)).min()
    }

    fn with_changed(&self, places: &SortedSet<usize>) -> SortedSet<usize> {
        let mut all = places.clone();
        all.extend(self.changed.iter().copied());
        all
    }

    /// The version of our interests that all peers that are not down have acknowledged, `None` if one has acknowledged none; `otherwise` if all are
    /// down.
    pub(crate) fn acknowledged_by_all(&mut self, otherwise: u64) -> Option<u64> {
        self.count();
        let first = self.acknowledged.first_key_value();
        first.map_or(Some(otherwise), |(version, _)| *version)
    }

    /// Whether a peer that is down has a link that is being established.
    pub(crate) fn has_coming(&mut self) -> bool {
        self.count();
        self.coming > 0
    }

    fn count(&mut self) {
        for place in self.changed.iter() {
            let peer = &self.peers[*place];
            let now = Counted {
                acknowledged: (!peer.is_down()).then_some(peer.interests_acknowledged),
                is_coming: peer.is_down() && peer.link.is_some(),
            };
            let before = std::mem::replace(&mut self.counted[*place], now);
            if before == now {
                continue;
            }
            if let Some(version) = now.acknowledged {
                *self.acknowledged.entry(version).or_default() += 1;
            }
            if let Some(version) = before.acknowledged
                && let Some(count) = self.acknowledged.get_mut(&version)
            {
                *count -= 1;
                if *count == 0 {
                    self.acknowledged.remove(&version);
                }
            }
            self.coming += usize::from(now.is_coming);
            self.coming -= usize::from(before.is_coming);
        }
    }

    /// The round is over.
    pub(crate) fn end_round(&mut self) {
        self.count();
        for place in self.changed.iter().copied() {
            let peer = &self.peers[place];
            let is_lost = matches!(peer.state, PeerState::Lost { .. });
            for (places, is_one) in [
                (&mut self.lost, is_lost),
                (&mut self.flowing, !peer.flow.is_idle()),
            ] {
                if is_one {
                    places.insert(place);
                } else {
                    places.remove(&place);
                }
            }
        }
        self.changed.clear();
    }
}
