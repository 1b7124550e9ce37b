//! Recently redirected clients: a client that comes back at once does not follow redirections, and is relayed.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A client that comes back within this time has not followed.
const WITHIN: Duration = Duration::from_secs(30);
/// Most clients remembered.
const MOST: usize = 65_536;

/// Recently redirected clients, by a hash of address and client identifier.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    hasher: RandomState,
    sent_to: HashMap<u64, (u64, Instant)>,
    /// In the order of time.
    order: VecDeque<(Instant, u64)>,
}

impl Recent {
    /// Notes that a client was redirected to the broker of this key.
    pub fn redirected(&mut self, now: Instant, peer: IpAddr, client_id: &str, broker: u64) {
        while let Some(&(at, hash)) = self.order.front()
            && (self.order.len() >= MOST || now.duration_since(at) > WITHIN)
        {
            self.order.pop_front();
            if self
                .sent_to
                .get(&hash)
                .is_some_and(|&(_, latest)| latest == at)
            {
                self.sent_to.remove(&hash);
            }
        }
        let hash = self.hasher.hash_one((peer, client_id));
        self.sent_to.insert(hash, (broker, now));
        self.order.push_back((now, hash));
    }

    /// The broker to which this client was redirected recently.
    pub fn broker_of(&self, now: Instant, peer: IpAddr, client_id: &str) -> Option<u64> {
        let hash = self.hasher.hash_one((peer, client_id));
        let &(broker, at) = self.sent_to.get(&hash)?;
        (now.duration_since(at) <= WITHIN).then_some(broker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_remembered_for_a_while_and_so_many_of_them() {
        let mut recent = Recent::default();
        let peer = IpAddr::from([127, 0, 0, 1]);
        let start = Instant::now();
        recent.redirected(start, peer, "a", 3);
        recent.redirected(start, peer, "b", 4);
        assert_eq!(recent.broker_of(start + WITHIN, peer, "a"), Some(3));
        assert_eq!(
            recent.broker_of(start, IpAddr::from([127, 0, 0, 2]), "a"),
            None
        );
        let later = start + WITHIN + Duration::from_millis(1);
        assert_eq!(recent.broker_of(later, peer, "a"), None);
        recent.redirected(start + Duration::from_secs(1), peer, "a", 5);
        for number in 0..2 * MOST {
            recent.redirected(later, peer, &number.to_string(), 1);
        }
        assert!(recent.sent_to.len() <= MOST && recent.order.len() <= MOST);
    }
}
