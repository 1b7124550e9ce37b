//! Which of several primaries of a session takes precedence.

/// Counts the changes of a session's primary. Of two nodes that both have it, the one with the higher epoch keeps it.
///
/// | change | by | ranks |
/// | --- | --- | --- |
/// | claim | the registrar's grant to a node that a client has connected to | above all before it |
/// | merge | a node takes in what another one has of the session, without a client | above the claim that it follows, below the next claim |
/// | handover | a drained node hands the session to a backup | as a claim; if it was promoted since a client connected, as a promotion after a merge |
/// | promotion | a backup becomes the primary, without a client and without the registrar | above the claim or merge that it follows, below the next |
///
/// So where a client connected last decides, not how often nodes have lost each other since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(u64);

/// Numbers from one merge to the next. A promotion that finds none left counts as a merge.
const MERGE: u64 = 8;

/// Numbers from one claim to the next. A merge that finds none left counts as a claim.
const CLAIM: u64 = 32 * MERGE;

impl Epoch {
    /// Below all others: of a session that was never claimed.
    pub const NONE: Self = Self(0);

    /// As it is stored and sent: claims are multiples of 256, merges of 8, and a promotion adds one.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// See [`Self::from_bits`].
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Of a claim that follows: its number is the time in units of 128 ms, so that of claims in two views the later one is higher, but above all
    /// before it.
    #[must_use]
    pub fn next_claim(self, unix_ms: u64) -> Self {
        Self((self.claim() + 1).max(unix_ms * 2 / CLAIM) * CLAIM)
    }

    /// Of a session that takes in a branch: above those of both, of which this is the higher one.
    #[must_use]
    pub const fn next_merge(self) -> Self {
        Self((self.0 / MERGE + 1) * MERGE)
    }

    /// Of a backup that is promoted.
    #[must_use]
    pub const fn promoted(self) -> Self {
        Self(self.0 + 1)
    }

    /// Of a backup that was handed the session: that of a claim above what the session had, so that it ranks above the node that had the client. If the
    /// session was promoted since its client connected, a node that others do not see may have the client, and keeps it: then that of a promotion,
    /// above what the session had.
    #[must_use]
    pub const fn handed_over(self) -> Self {
        if self.0.is_multiple_of(MERGE) {
            Self((self.claim() + 1) * CLAIM)
        } else {
            self.next_merge().promoted()
        }
    }

    /// Whether nothing has changed the primary since a client connected.
    #[must_use]
    pub const fn is_claim(self) -> bool {
        self.0.is_multiple_of(CLAIM)
    }

    /// The number of the claim: the same until a client connects again.
    #[must_use]
    pub const fn claim(self) -> u64 {
        self.0 / CLAIM
    }

    /// Of two nodes that have a session the one with the higher precedence keeps it: the later claim; of one claim the one whose client is connected, as
    /// the other one is a backup that no client has connected to; then the higher epoch.
    #[must_use]
    pub const fn precedence(self, is_connected: bool) -> Precedence {
        Precedence {
            claim: self.claim(),
            is_connected,
            epoch: self,
        }
    }

    /// Whether at most promotions lie between the two: neither is of a session that has taken in, or taken over, the other one.
    #[must_use]
    pub const fn is_same_but_for_promotions(self, other: Self) -> bool {
        self.0 / MERGE == other.0 / MERGE
    }
}

/// See [`Epoch::precedence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    claim: u64,
    is_connected: bool,
    epoch: Epoch,
}

impl Precedence {
    /// Of the session.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        self.epoch
    }

    /// Whether the session had its client, and no client has connected elsewhere until the epoch `later`.
    #[must_use]
    pub const fn keeps_client_until(self, later: Epoch) -> bool {
        self.is_connected && self.claim == later.claim()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_is_above_promotions_and_below_the_next_claim() {
        let claim = Epoch::NONE.next_claim(100_000);
        let promoted = claim.promoted().promoted();
        let merged = promoted.next_merge();
        let ascending = [Epoch::NONE, claim, claim.promoted(), promoted, merged];
        assert!(ascending.is_sorted_by(|low, high| low < high));
        assert!(promoted.is_same_but_for_promotions(claim));
        assert!(!merged.is_same_but_for_promotions(promoted));
        assert!(merged.promoted().is_same_but_for_promotions(merged));
        for change in [promoted, merged, merged.promoted()] {
            assert_eq!(claim.claim(), change.claim());
            assert_eq!([claim, change].map(Epoch::is_claim), [true, false]);
            // The clock of the next registrar is late.
            let next = change.next_claim(90_000);
            assert!(change < next && next.is_claim());
            assert!(change.next_claim(200_000) > next);
            assert_eq!(Epoch::from_bits(change.bits()), change);
        }
    }

    #[test]
    fn a_client_that_is_connected_precedes_promotions_and_merges_but_no_later_claim() {
        let claim = Epoch::NONE.next_claim(100_000);
        let others = [claim, claim.promoted(), claim.next_merge()];
        for other in others {
            assert!(claim.precedence(true) > other.precedence(false));
            assert!(other.promoted().precedence(false) > other.precedence(false));
            assert!(claim.precedence(true).keeps_client_until(other));
            assert!(!claim.precedence(false).keeps_client_until(other));
        }
        let later = claim.next_claim(100_000);
        assert!(later.precedence(false) > claim.precedence(true));
        assert!(!claim.precedence(true).keeps_client_until(later));
    }

    #[test]
    fn a_session_that_is_handed_over_counts_as_claimed() {
        let claim = Epoch::NONE.next_claim(100_000);
        for change in [claim, claim.next_merge()] {
            let handed = change.handed_over();
            assert!(change < handed && handed.is_claim());
        }
    }

    #[test]
    fn a_promoted_session_that_is_handed_over_leaves_the_client_where_it_is() {
        let claim = Epoch::NONE.next_claim(100_000);
        let promoted = claim.promoted();
        let handed = promoted.handed_over();
        assert!(promoted < handed && handed < handed.handed_over());
        assert!(!handed.is_same_but_for_promotions(promoted));
        for change in [handed, handed.handed_over()] {
            assert!(change.precedence(false) < claim.precedence(true));
        }
    }
}
