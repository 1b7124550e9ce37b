//! Addresses of other nodes and when to dial them.
//!
//! | state | event | next |
//! |---|---|---|
//! | (unknown) | received from configuration, discovery or a node | `Waiting`, due at once |
//! | `Waiting` | due, its node has no link, and a dial is free | `Dialling` |
//! | `Waiting` | its node lost its link | `Waiting`, due at once |
//! | `Dialling` | dialled | `Unproved` |
//! | `Dialling` | failed | `Waiting`, twice as long as before |
//! | `Unproved` | the node that answers there is identified | `Linked` |
//! | `Unproved`, `Linked` | link closed | `Waiting`, twice as long as before; at once if the link had been good |
//! | `Unproved`, `Linked` | it was this node | `Own`, for ever |
//!
//! Anyone can send an announcement, with any address. So few addresses that are known only from an announcement are kept, few of them are dialled at
//! a time, and they come last: a flood of them neither delays a node that was there before nor makes this one dial hundreds of strangers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use thicket_session::time::Instant;

use crate::config::{OverlayLimits, Timing};
use crate::identity::NodeId;
use crate::random::Random;

/// After this many failures in a row an address may be replaced by a new one.
const MANY_ATTEMPTS: u32 = 8;

/// All addresses known.
#[derive(Debug)]
pub(crate) struct Dialler {
    addresses: BTreeMap<String, Address>,
    /// Rises with every change.
    generation: u64,
    timing: Timing,
    limits: OverlayLimits,
    refused: u64,
}

#[derive(Debug)]
struct Address {
    /// The node that last answered there, or that gives this as its address.
    node: Option<NodeId>,
    standing: Standing,
    state: State,
    /// Attempts since the last good link.
    attempts: u32,
    /// The last error logged, so that each is logged once.
    complaint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting { until: Instant },
    Dialling,
    Unproved,
    Linked,
    Own,
}

/// The source of an address; the higher ones are dialled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// An announcement, which anyone may have sent.
    Announced,
    /// The configuration, or a node of the cluster.
    Told,
    /// A node of the cluster answered there.
    Proved,
}

/// Dials that may begin now.
#[derive(Debug, Clone, Copy)]
struct Free {
    dials: usize,
    /// Of these, to addresses known only from an announcement.
    announced: usize,
}

impl Free {
    const fn has(self, standing: Standing) -> bool {
        match standing {
            Standing::Announced => self.dials > 0 && self.announced > 0,
            Standing::Told | Standing::Proved => self.dials > 0,
        }
    }

    fn take(&mut self, standing: Standing) {
        self.dials = self.dials.saturating_sub(1);
        if standing == Standing::Announced {
            self.announced = self.announced.saturating_sub(1);
        }
    }
}

impl Dialler {
    pub(crate) fn new(own_address: &str, timing: Timing, limits: OverlayLimits) -> Self {
        let mut addresses = BTreeMap::new();
        if !own_address.is_empty() {
            let own = Address::new(None, Standing::Told, State::Own);
            addresses.insert(own_address.to_owned(), own);
        }
        Self {
            addresses,
            generation: 0,
            timing,
            limits,
            refused: 0,
        }
    }

    /// Rises with every change.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Addresses not kept because the table was full.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// An address from the configuration or a node of the cluster; `node` if its node is known.
    pub(crate) fn note_address(&mut self, now: Instant, address: &str, node: Option<NodeId>) {
        self.remember(now, address, node, Standing::Told);
    }

    /// An address from an announcement.
    pub(crate) fn announce(&mut self, now: Instant, address: &str) {
        self.remember(now, address, None, Standing::Announced);
    }

    fn remember(&mut self, now: Instant, address: &str, node: Option<NodeId>, standing: Standing) {
        if address.is_empty() {
            return;
        }
        if let Some(known) = self.addresses.get_mut(address) {
            let now_known = (node.or(known.node), known.standing.max(standing));
            if now_known != (known.node, known.standing) {
                (known.node, known.standing) = now_known;
                self.generation += 1;
            }
            return;
        }
        if !self.has_capacity(standing) {
            self.refused += 1;
            return;
        }
        let state = State::Waiting { until: now };
        self.generation += 1;
        self.addresses
            .insert(address.to_owned(), Address::new(node, standing, state));
    }

    /// Whether one more address may be kept. If the table is full, the address that failed most often is removed, provided it failed often enough.
    fn has_capacity(&mut self, standing: Standing) -> bool {
        let announced = self.addresses.values().filter(|it| it.is_announced());
        if standing == Standing::Announced
            && announced.count() >= self.limits.announced_addresses
            && !self.give_up_the_worst(Standing::Announced, 1)
        {
            return false;
        }
        self.addresses.len() < self.limits.addresses
            || self.give_up_the_worst(Standing::Announced, 1)
            || self.give_up_the_worst(Standing::Proved, MANY_ATTEMPTS)
    }

    /// Removes the address that failed most often, among those of this standing or less with at least `attempts` failures.
    fn give_up_the_worst(&mut self, standing: Standing, attempts: u32) -> bool {
        let candidates = self.addresses.iter().filter(|(_, address)| {
            matches!(address.state, State::Waiting { .. })
                && address.standing <= standing
                && address.attempts >= attempts
        });
        let Some(name) = candidates
            .max_by_key(|(_, address)| address.attempts)
            .map(|(name, _)| name.clone())
        else {
            return false;
        };
        self.generation += 1;
        self.addresses.remove(&name).is_some()
    }

    /// A node has a new address: its former one is forgotten unless it is in use.
    pub(crate) fn forget(&mut self, address: &str, node: NodeId) {
        let is_its_own = |known: &&Address| {
            known.node == Some(node) && matches!(known.state, State::Waiting { .. })
        };
        if self.addresses.get(address).filter(is_its_own).is_some() {
            self.generation += 1;
            self.addresses.remove(address);
        }
    }

    /// The addresses to dial now, the most trusted first; nodes for which `has_link` holds are left out.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        has_link: impl Fn(NodeId) -> bool,
    ) -> Vec<String> {
        self.generation += 1;
        let mut free = self.free();
        let due = self.addresses.iter_mut().filter_map(|(name, address)| {
            let until = address.due(&has_link).filter(|until| *until <= now)?;
            Some((Reverse(address.standing), until, name, address))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(standing, until, name, _)| (*standing, *until, *name));
        let mut taken = Vec::new();
        for (_, _, name, address) in due {
            if free.has(address.standing) {
                free.take(address.standing);
                address.state = State::Dialling;
                taken.push(name.clone());
            }
        }
        taken
    }

    /// When the next address is due. An address that waits for a free dial has no instant: it waits until another dial ends.
    pub(crate) fn next_due(&self, has_link: impl Fn(NodeId) -> bool) -> Option<Instant> {
        let free = self.free();
        let may = self
            .addresses
            .values()
            .filter(|address| free.has(address.standing));
        may.filter_map(|address| address.due(&has_link)).min()
    }

    fn free(&self) -> Free {
        let mut free = Free {
            dials: self.limits.dials,
            announced: self.limits.announced_dials,
        };
        let is_open =
            |address: &&Address| matches!(address.state, State::Dialling | State::Unproved);
        for address in self.addresses.values().filter(is_open) {
            free.take(address.standing);
        }
        free
    }

    pub(crate) fn dialled(&mut self, name: &str) {
        self.generation += 1;
        if let Some(address) = self.addresses.get_mut(name)
            && address.state != State::Own
        {
            address.state = State::Unproved;
        }
    }

    /// The dial failed, or its link closed before it was of use. Returns the node of the address.
    pub(crate) fn failed(
        &mut self,
        now: Instant,
        name: &str,
        random: &mut Random,
    ) -> Option<NodeId> {
        self.generation += 1;
        let address = self.addresses.get_mut(name)?;
        if address.state == State::Own {
            return None;
        }
        let doubled = self
            .timing
            .redial_minimum
            .saturating_mul(1 << address.attempts.min(16));
        let wait = random.jitter(doubled.min(self.timing.redial_maximum));
        thicket_session::reach!("time redial_minimum");
        if doubled >= self.timing.redial_maximum {
            thicket_session::reach!("time redial_maximum");
        }
        address.attempts = address.attempts.saturating_add(1);
        address.state = State::Waiting { until: now + wait };
        address.node
    }

    /// Whether `complaint` about an address has not been logged yet.
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

    /// The node that answers there is identified.
    pub(crate) fn identify(&mut self, name: &str, node: NodeId) {
        self.generation += 1;
        if let Some(address) = self.addresses.get_mut(name) {
            address.node = Some(node);
            address.standing = Standing::Proved;
            if address.state == State::Unproved {
                address.state = State::Linked;
            }
        }
    }

    /// This node answers there.
    pub(crate) fn set_own(&mut self, name: &str) {
        self.generation += 1;
        if let Some(address) = self.addresses.get_mut(name) {
            address.state = State::Own;
        }
    }

    /// A link to `node` is good: its addresses start from the shortest wait again.
    pub(crate) fn succeeded(&mut self, node: NodeId) {
        self.generation += 1;
        for address in self
            .addresses
            .values_mut()
            .filter(|address| address.node == Some(node))
        {
            address.attempts = 0;
            address.complaint = None;
        }
    }

    /// `node` has lost its link: dial it now.
    pub(crate) fn hurry(&mut self, now: Instant, node: NodeId) {
        self.generation += 1;
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
    const fn new(node: Option<NodeId>, standing: Standing, state: State) -> Self {
        Self {
            node,
            standing,
            state,
            attempts: 0,
            complaint: None,
        }
    }

    const fn is_announced(&self) -> bool {
        matches!(self.standing, Standing::Announced)
    }

    fn due(&self, has_link: impl Fn(NodeId) -> bool) -> Option<Instant> {
        match self.state {
            State::Waiting { until } if !self.node.is_some_and(has_link) => Some(until),
            State::Waiting { .. }
            | State::Dialling
            | State::Unproved
            | State::Linked
            | State::Own => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialler() -> Dialler {
        let limits = OverlayLimits {
            addresses: 3,
            ..OverlayLimits::default()
        };
        Dialler::new("me:1", Timing::default(), limits)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn an_address_is_dialled_once_at_a_time_and_then_ever_less_often() {
        let (mut dialler, mut random) = (dialler(), Random::new(1));
        dialler.note_address(at(0), "you:1", None);
        dialler.note_address(at(0), "you:1", None);
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
        dialler.note_address(at(0), "me:1", None);
        dialler.note_address(at(0), "also-me:1", None);
        dialler.note_address(at(0), "you:1", Some(NodeId(2)));
        assert_eq!(
            dialler.take_due(at(0), |node| node == NodeId(2)),
            ["also-me:1"]
        );
        dialler.dialled("also-me:1");
        dialler.set_own("also-me:1");
        dialler.failed(at(0), "also-me:1", &mut Random::new(1));
        assert_eq!(dialler.take_due(at(9), |_| false), ["you:1"]);
        dialler.note_address(at(9), "one-too-many:1", None);
        assert_eq!(
            (dialler.take_due(at(99_999), |_| false), dialler.refused()),
            (vec![], 1)
        );
    }

    #[test]
    fn a_lost_link_is_dialled_at_once_and_a_complaint_is_news_once() {
        let (mut dialler, mut random) = (dialler(), Random::new(1));
        dialler.note_address(at(0), "you:1", Some(NodeId(2)));
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

    #[test]
    fn a_flood_of_announcements_dials_few_and_delays_nobody_who_is_known() {
        let limits = OverlayLimits {
            announced_addresses: 20,
            dials: 6,
            announced_dials: 4,
            ..OverlayLimits::default()
        };
        let mut dialler = Dialler::new("me:1", Timing::default(), limits);
        let mut random = Random::new(1);
        dialler.note_address(at(0), "proved:1", Some(NodeId(2)));
        assert_eq!(dialler.take_due(at(0), |_| false), ["proved:1"]);
        dialler.dialled("proved:1");
        dialler.identify("proved:1", NodeId(2));
        for number in 0..1000 {
            dialler.announce(at(1), &format!("flood:{number:04}"));
        }
        assert_eq!(dialler.refused(), 980, "few are remembered");
        dialler.note_address(at(2), "seed:1", None);
        dialler.failed(at(2), "proved:1", &mut random);
        dialler.hurry(at(2), NodeId(2));
        let due = dialler.take_due(at(2), |_| false);
        assert_eq!(due[..2], ["proved:1", "seed:1"], "the known ones first");
        assert_eq!(due.len(), 6, "and few others: {due:?}");
        assert_eq!(dialler.next_due(|_| false), None, "no dial is free");
        // A stranger that accepts the connection and sends nothing occupies a dial until the handshake times out.
        dialler.dialled(&due[2]);
        assert_eq!(dialler.next_due(|_| false), None);
        dialler.failed(at(3), &due[2], &mut random);
        assert_eq!(dialler.take_due(at(3), |_| false).len(), 1);
        // An announced address that failed is replaced by another one; an address where a node answers no longer counts as announced.
        dialler.announce(at(4), "late:1");
        assert_eq!(dialler.refused(), 980);
        dialler.identify(&due[3], NodeId(3));
        dialler.failed(at(4), &due[3], &mut random);
        dialler.hurry(at(4), NodeId(3));
        assert_eq!(dialler.take_due(at(4), |_| false)[0], due[3]);
    }

    #[test]
    fn an_address_that_was_announced_and_is_told_too_is_one_of_those_told() {
        let limits = OverlayLimits {
            announced_addresses: 1,
            announced_dials: 0,
            ..OverlayLimits::default()
        };
        let mut dialler = Dialler::new("me:1", Timing::default(), limits);
        dialler.announce(at(0), "you:1");
        assert_eq!(dialler.take_due(at(0), |_| false), [""; 0]);
        dialler.note_address(at(0), "you:1", None);
        dialler.announce(at(0), "you:1");
        assert_eq!(dialler.take_due(at(0), |_| false), ["you:1"]);
    }
}
