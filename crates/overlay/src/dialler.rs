//! Addresses of other nodes and when to dial them.
//!
//! | state | event | next |
//! |---|---|---|
//! | (unknown) | heard of | `Waiting`, due at once |
//! | `Waiting` | due, and its node has no link | `Dialling` |
//! | `Waiting` | its node lost its link | `Waiting`, due at once |
//! | `Dialling` | dialled | `Linked` |
//! | `Dialling` | failed | `Waiting`, twice as long as before |
//! | `Linked` | link closed | `Waiting`, twice as long as before; at once if the link had been good |
//! | `Linked` | it was this node | `Own`, for ever |

use std::collections::BTreeMap;

use thicket_session::time::Instant;

use crate::config::Timing;
use crate::identity::NodeId;
use crate::random::Random;

/// After so many failures in a row an address may give way to a new one.
const MANY_ATTEMPTS: u32 = 8;

/// All addresses known.
#[derive(Debug)]
pub(crate) struct Dialler {
    addresses: BTreeMap<String, Address>,
    timing: Timing,
    maximum: usize,
    refused: u64,
}

#[derive(Debug)]
struct Address {
    /// Who answered there last, or says to live there.
    node: Option<NodeId>,
    state: State,
    /// Attempts since the last good link.
    attempts: u32,
    /// The last complaint logged, so that the log has it once.
    complaint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting { until: Instant },
    Dialling,
    Linked,
    Own,
}

impl Dialler {
    pub(crate) fn new(own_address: &str, timing: Timing, maximum: usize) -> Self {
        let mut addresses = BTreeMap::new();
        if !own_address.is_empty() {
            let own = Address {
                node: None,
                state: State::Own,
                attempts: 0,
                complaint: None,
            };
            addresses.insert(own_address.to_owned(), own);
        }
        Self {
            addresses,
            timing,
            maximum,
            refused: 0,
        }
    }

    /// Addresses not kept because the table was full.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Heard of an address; `node` if it is known whose it is.
    pub(crate) fn hear(&mut self, now: Instant, address: &str, node: Option<NodeId>) {
        if address.is_empty() {
            return;
        }
        if let Some(known) = self.addresses.get_mut(address) {
            known.node = node.or(known.node);
            return;
        }
        if self.addresses.len() >= self.maximum && !self.give_up_the_worst() {
            self.refused += 1;
            return;
        }
        let state = State::Waiting { until: now };
        self.addresses.insert(
            address.to_owned(),
            Address {
                node,
                state,
                attempts: 0,
                complaint: None,
            },
        );
    }

    /// Makes room in a full table: the address that failed most often goes, if any failed often.
    fn give_up_the_worst(&mut self) -> bool {
        let waiting = self
            .addresses
            .iter()
            .filter(|(_, address)| matches!(address.state, State::Waiting { .. }));
        let worst = waiting.max_by_key(|(_, address)| address.attempts);
        let Some(name) = worst
            .filter(|(_, address)| address.attempts >= MANY_ATTEMPTS)
            .map(|(name, _)| name.clone())
        else {
            return false;
        };
        self.addresses.remove(&name).is_some()
    }

    /// A node says it has moved: its former address is forgotten unless it is in use.
    pub(crate) fn forget(&mut self, address: &str, node: NodeId) {
        let is_its_own = |known: &&Address| {
            known.node == Some(node) && matches!(known.state, State::Waiting { .. })
        };
        if self.addresses.get(address).filter(is_its_own).is_some() {
            self.addresses.remove(address);
        }
    }

    /// The addresses to dial now; `has_link` says of which nodes not.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        has_link: impl Fn(NodeId) -> bool,
    ) -> Vec<String> {
        let mut due = Vec::new();
        for (name, address) in &mut self.addresses {
            if address.due(&has_link).is_some_and(|until| until <= now) {
                address.state = State::Dialling;
                due.push(name.clone());
            }
        }
        due
    }

    /// When the next address is due.
    pub(crate) fn next_due(&self, has_link: impl Fn(NodeId) -> bool) -> Option<Instant> {
        self.addresses
            .values()
            .filter_map(|address| address.due(&has_link))
            .min()
    }

    pub(crate) fn dialled(&mut self, name: &str) {
        if let Some(address) = self.addresses.get_mut(name)
            && address.state != State::Own
        {
            address.state = State::Linked;
        }
    }

    /// The dial failed, or its link closed before it was of use. Answers whose address it is.
    pub(crate) fn failed(
        &mut self,
        now: Instant,
        name: &str,
        random: &mut Random,
    ) -> Option<NodeId> {
        let address = self.addresses.get_mut(name)?;
        if address.state == State::Own {
            return None;
        }
        let doubled = self
            .timing
            .redial_minimum
            .saturating_mul(1 << address.attempts.min(16));
        let wait = random.jitter(doubled.min(self.timing.redial_maximum));
        address.attempts = address.attempts.saturating_add(1);
        address.state = State::Waiting { until: now + wait };
        address.node
    }

    /// Whether `complaint` about an address is news for the log.
    pub(crate) fn is_news(&mut self, name: &str, complaint: &str) -> bool {
        let Some(address) = self.addresses.get_mut(name) else {
            return true;
        };
        let is_news = address.complaint.as_deref() != Some(complaint);
        if is_news {
            address.complaint = Some(complaint.to_owned());
        }
        is_news
    }

    /// It is known who answers there.
    pub(crate) fn identify(&mut self, name: &str, node: NodeId) {
        if let Some(address) = self.addresses.get_mut(name) {
            address.node = Some(node);
        }
    }

    /// This node answers there.
    pub(crate) fn set_own(&mut self, name: &str) {
        if let Some(address) = self.addresses.get_mut(name) {
            address.state = State::Own;
        }
    }

    /// A link to `node` is good: its addresses start from the shortest wait again.
    pub(crate) fn succeeded(&mut self, node: NodeId) {
        for address in self
            .addresses
            .values_mut()
            .filter(|address| address.node == Some(node))
        {
            address.attempts = 0;
            address.complaint = None;
        }
    }

    /// `node` lost its link: dial it now.
    pub(crate) fn hurry(&mut self, now: Instant, node: NodeId) {
        for address in self
            .addresses
            .values_mut()
            .filter(|address| address.node == Some(node))
        {
            if let State::Waiting { until } = &mut address.state {
                *until = now.min(*until);
            }
        }
    }
}

impl Address {
    fn due(&self, has_link: impl Fn(NodeId) -> bool) -> Option<Instant> {
        match self.state {
            State::Waiting { until } if !self.node.is_some_and(has_link) => Some(until),
            State::Waiting { .. } | State::Dialling | State::Linked | State::Own => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialler() -> Dialler {
        Dialler::new("me:1", Timing::default(), 3)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn an_address_is_dialled_once_at_a_time_and_then_ever_less_often() {
        let (mut dialler, mut random) = (dialler(), Random::new(1));
        dialler.hear(at(0), "you:1", None);
        dialler.hear(at(0), "you:1", None);
        let mut now = at(0);
        for least in [75, 150, 300, 600, 1200, 2400, 3750, 3750] {
            assert_eq!(dialler.take_due(now, |_| false), ["you:1"], "{now:?}");
            assert_eq!(dialler.take_due(now, |_| false), [""; 0], "under way");
            dialler.failed(now, "you:1", &mut random);
            let due = dialler.next_due(|_| false).expect("waiting");
            let wait = due.since(now).as_millis();
            assert!(
                (least..=least * 5 / 3 + 1).contains(&wait),
                "{wait} ms, least {least}"
            );
            now = due;
        }
    }

    #[test]
    fn nodes_with_a_link_and_this_node_are_not_dialled() {
        let mut dialler = dialler();
        dialler.hear(at(0), "me:1", None);
        dialler.hear(at(0), "also-me:1", None);
        dialler.hear(at(0), "you:1", Some(NodeId(2)));
        assert_eq!(
            dialler.take_due(at(0), |node| node == NodeId(2)),
            ["also-me:1"]
        );
        dialler.dialled("also-me:1");
        dialler.set_own("also-me:1");
        dialler.failed(at(0), "also-me:1", &mut Random::new(1));
        assert_eq!(dialler.take_due(at(9), |_| false), ["you:1"]);
        dialler.hear(at(9), "one-too-many:1", None);
        assert_eq!(
            (dialler.take_due(at(99_999), |_| false), dialler.refused()),
            (vec![], 1)
        );
    }

    #[test]
    fn a_lost_link_is_dialled_at_once_and_a_complaint_is_news_once() {
        let (mut dialler, mut random) = (dialler(), Random::new(1));
        dialler.hear(at(0), "you:1", Some(NodeId(2)));
        dialler.take_due(at(0), |_| false);
        assert_eq!(dialler.failed(at(0), "you:1", &mut random), Some(NodeId(2)));
        assert!(dialler.is_news("you:1", "refused") && !dialler.is_news("you:1", "refused"));
        dialler.hurry(at(5), NodeId(2));
        assert_eq!(dialler.take_due(at(5), |_| false), ["you:1"]);
        dialler.succeeded(NodeId(2));
        assert!(dialler.is_news("you:1", "refused"));
        dialler.failed(at(5), "you:1", &mut random);
        dialler.forget("you:1", NodeId(2));
        assert_eq!(dialler.next_due(|_| false), None);
    }
}
