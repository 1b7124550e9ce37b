//! Which of several primaries of a session takes precedence.

/// Counts the changes of a session's primary. Of two nodes that both have the session, [`Precedence`] decides which one keeps it.
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
pub struct Epoch {
    // In the order in which they are compared.
    claim: u64,
    /// Merges, and promotions after which there was no number left, since the claim: below 32.
    merge: u8,
    /// Promotions since: below 8.
    promotion: u8,
}

/// Bits of a merge in an epoch that is stored or sent.
const MERGE_BITS: u32 = 5;
/// Bits of a promotion.
const PROMOTION_BITS: u32 = 3;
/// Unit of the clock of claims, ms.
const CLAIM_MS: u64 = 128;

impl Epoch {
    /// Below all others: of a session that was never claimed.
    pub const NONE: Self = Self::of_claim(0);

    const fn of_claim(claim: u64) -> Self {
        Self {
            claim,
            merge: 0,
            promotion: 0,
        }
    }

    /// As it is stored and sent: 56 bits of the claim, 5 of the merge, 3 of the promotion.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            claim: bits >> (MERGE_BITS + PROMOTION_BITS),
            merge: (bits >> PROMOTION_BITS) as u8 & ((1 << MERGE_BITS) - 1),
            promotion: bits as u8 & ((1 << PROMOTION_BITS) - 1),
        }
    }

    /// See [`Self::from_bits`].
    #[must_use]
    pub const fn bits(self) -> u64 {
        let (merge, promotion) = (self.merge as u64, self.promotion as u64);
        self.claim << (MERGE_BITS + PROMOTION_BITS) | merge << PROMOTION_BITS | promotion
    }

    /// Of a claim that follows: its number is the time in units of 128 ms, so that of claims in two views the later one is higher, but above all
    /// before it.
    #[must_use]
    pub fn next_claim(self, unix_ms: u64) -> Self {
        Self::of_claim((self.claim + 1).max(unix_ms / CLAIM_MS))
    }

    /// Of a session that takes in a branch: above those of both, of which this is the higher one. A merge that finds no number left counts as a
    /// claim.
    #[must_use]
    pub const fn next_merge(self) -> Self {
        let merge = self.merge + 1;
        if merge == 1 << MERGE_BITS {
            return Self::of_claim(self.claim + 1);
        }
        Self {
            merge,
            promotion: 0,
            ..self
        }
    }

    /// Of a backup that is promoted. A promotion that finds no number left counts as a merge.
    #[must_use]
    pub const fn promoted(self) -> Self {
        let promotion = self.promotion + 1;
        if promotion == 1 << PROMOTION_BITS {
            return self.next_merge();
        }
        Self { promotion, ..self }
    }

    /// Of a backup that was handed the session: that of a claim above what the session had, so that it ranks above the node that had the client. If
    /// the session was promoted since its client connected, a node that others do not see may have the client, and keeps it: then that of a
    /// promotion, above what the session had.
    #[must_use]
    pub const fn handed_over(self) -> Self {
        if self.promotion == 0 {
            Self::of_claim(self.claim + 1)
        } else {
            self.next_merge().promoted()
        }
    }

    /// Whether nothing has changed the primary since a client connected.
    #[must_use]
    pub const fn is_claim(self) -> bool {
        self.merge == 0 && self.promotion == 0
    }

    /// The number of the claim: the same until a client connects again.
    #[must_use]
    pub const fn claim(self) -> u64 {
        self.claim
    }

    /// Of two nodes that have a session the one with the higher precedence keeps it: the later claim; of one claim the one whose client is connected,
    /// as the other one is a backup that no client has connected to; then the higher epoch.
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
        self.claim == other.claim && self.merge == other.merge
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
    fn what_has_no_number_left_counts_as_more_and_still_rises() {
        let mut epoch = Epoch::NONE.next_claim(100_000);
        let claim = epoch.claim();
        for number in 1..=40_u64 {
            let next = epoch.promoted();
            assert_eq!(next.bits(), epoch.bits() + 1);
            assert!(next > epoch);
            assert_eq!(next.bits() % 256 / 8, number / 8);
            epoch = next;
        }
        for _ in 0..32 {
            let next = epoch.next_merge();
            assert!(next > epoch);
            assert_eq!(Epoch::from_bits(next.bits()), next);
            epoch = next;
        }
        assert_eq!(epoch.claim(), claim + 1);
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
