//! Which of several primaries of a session takes precedence.

/// Counts the changes of a session's primary. Of two nodes that both have it, the one with the higher epoch keeps it.
///
/// A claim is the registrar's grant to a node that a client has connected to. A promotion makes a backup the primary, without a client and without
/// the registrar: it is above the claim that it follows, and below the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(u64);

impl Epoch {
    /// Below all others: of a session that was never claimed.
    pub const NONE: Self = Self(0);

    /// As it is stored and sent: claims are even, and a promotion adds one.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// See [`Self::from_bits`].
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Of a claim that follows: its number is the time, so that of claims in two views the later one is higher, but above all before it.
    #[must_use]
    pub fn next_claim(self, unix_ms: u64) -> Self {
        Self((self.claim() + 1).max(unix_ms) * 2)
    }

    /// Of a backup that is promoted. A second promotion with no claim in between ranks as a claim of its own.
    #[must_use]
    pub const fn promoted(self) -> Self {
        Self(self.0 + 1)
    }

    /// Of the claim, or of one above the promotion: for a backup that was handed the session of a connected client.
    #[must_use]
    pub const fn handed_over(self) -> Self {
        Self(self.0 + self.0 % 2)
    }

    /// Whether no client has connected since a backup was promoted.
    #[must_use]
    pub const fn is_promotion(self) -> bool {
        self.0 % 2 == 1
    }

    /// The number of the claim: the same for a session and a backup of it that was promoted.
    #[must_use]
    pub const fn claim(self) -> u64 {
        self.0 / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_is_above_its_claim_and_below_the_next() {
        let claim = Epoch::NONE.next_claim(1_000);
        let promotion = claim.promoted();
        assert!(Epoch::NONE < claim && claim < promotion);
        assert_eq!(claim.claim(), promotion.claim());
        assert_eq!([claim, promotion].map(Epoch::is_promotion), [false, true]);
        // The clock of the next registrar is late.
        let next = promotion.next_claim(900);
        assert!(promotion < next && !next.is_promotion());
        assert!(promotion.next_claim(2_000) > next);
        assert_eq!(Epoch::from_bits(promotion.bits()), promotion);
    }

    #[test]
    fn a_session_that_is_handed_over_counts_as_claimed() {
        let claim = Epoch::NONE.next_claim(1_000);
        let handed = claim.promoted().handed_over();
        assert!(handed > claim.promoted() && !handed.is_promotion());
        assert_eq!(handed.handed_over(), handed);
    }
}
