//! Sessions that ended while nodes were away. Such a node may still have an earlier branch of one, and is sent the order to end it when it is back.
//!
//! | event | then |
//! | --- | --- |
//! | a client or an operator ends a session while not all members are up | its registrar remembers the epoch that it had |
//! | the view changes | each node that remembers ended sessions registers them, each at its present registrar |
//! | a node registers a session with that epoch or a lower one | it is evicted, and not merged |
//! | all members have registered, and the view changes again | forgotten |
//!
//! The end of an expired session is not remembered: its client may have been connected to a paused node all along.

use std::collections::{BTreeMap, VecDeque};

use thicket_session::server::Epoch;

use crate::Remembered;

/// Of more sessions the first ones are forgotten.
const ENDED: usize = 100_000;
/// Bytes of their client identifiers, likewise.
const ENDED_BYTES: usize = 8 * 1024 * 1024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// By client identifier. A session that was claimed later continues.
    epochs: BTreeMap<String, Epoch>,
    order: VecDeque<String>,
    bytes: usize,
    /// All members have registered in this round: nobody is left who has an earlier branch.
    pub is_known_to_all: bool,
}

impl Ended {
    /// Up to which epoch sessions of a client identifier have ended.
    pub fn epoch(&self, client_id: &str) -> Epoch {
        self.epochs.get(client_id).copied().unwrap_or_default()
    }

    /// Whether a session with this epoch has ended.
    pub fn includes(&self, client_id: &str, epoch: Epoch) -> bool {
        self.epochs
            .get(client_id)
            .is_some_and(|ended| epoch <= *ended)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Epoch)> {
        let epochs = self.epochs.iter();
        epochs.map(|(client_id, epoch)| (client_id.as_str(), *epoch))
    }

    /// How many are remembered.
    pub fn report(&self) -> Remembered {
        // Each identifier is in both collections.
        Remembered::new("sessions that ended", self.epochs.len(), ENDED).with_bytes(2 * self.bytes)
    }

    pub fn note(&mut self, client_id: &str, epoch: Epoch) {
        self.is_known_to_all = false;
        if let Some(known) = self.epochs.get_mut(client_id) {
            *known = epoch.max(*known);
            return;
        }
        self.epochs.insert(client_id.to_owned(), epoch);
        self.order.push_back(client_id.to_owned());
        self.bytes += client_id.len();
        while (self.order.len() > ENDED || self.bytes > ENDED_BYTES)
            && let Some(first) = self.order.pop_front()
        {
            self.bytes -= first.len();
            self.epochs.remove(&first);
        }
    }

    /// A round of registrations begins.
    pub fn begin_round(&mut self) {
        if self.is_known_to_all {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_remembered_within_bounds_until_all_have_heard_of_it() {
        let mut ended = Ended::default();
        let (first, second) = (Epoch::from_bits(256), Epoch::from_bits(512));
        ended.note("a", second);
        ended.note("a", first);
        assert_eq!((ended.epoch("a"), ended.epoch("b")), (second, Epoch::NONE));
        ended.begin_round();
        assert_eq!(ended.epochs.len(), 1);
        ended.is_known_to_all = true;
        ended.begin_round();
        assert_eq!(ended.epochs.len(), 0);
        for number in 0..=ENDED {
            ended.note(&number.to_string(), first);
        }
        assert_eq!((ended.epochs.len(), ended.epoch("0")), (ENDED, Epoch::NONE));
        for letter in ["x", "y"] {
            ended.note(&letter.repeat(ENDED_BYTES - 1), first);
        }
        assert_eq!((ended.epochs.len(), ended.order.len()), (1, 1));
        assert_eq!(ended.bytes, ENDED_BYTES - 1);
    }
}
