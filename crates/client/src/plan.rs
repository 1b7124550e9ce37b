//! The plan of a client's sessions: which filters each should have, and how a filter moves between them. Pure: reports in, assignments out.
//!
//! | a filter's home | the old session | the new session |
//! | --- | --- | --- |
//! | changes | keeps it | subscribes; retained messages were received already |
//! | and the new session has it | unsubscribes | keeps it |
//! | and the old one is silent | is left, if nothing else is on it | keeps it |
//! | and the new session is refused it | keeps it and is its home again | - |
//!
//! A session that was sent a request and has not answered may have the filter or not: messages may arrive over it, but no other session unsubscribes
//! in its favour.

use std::collections::{BTreeMap, BTreeSet};

use crate::endpoint::{Address, Scheme};
use crate::options::SubscriptionOptions;
use crate::placement::{Placed, overlap, unite};
use crate::session::{Ask, Subscription};

#[derive(Debug)]
pub(crate) struct Plan {
    max_sessions: usize,
    scheme: Scheme,
    /// Filters that the application subscribes to: their options, and their home session.
    wanted: BTreeMap<String, (SubscriptionOptions, usize)>,
    /// Sessions that have a filter, as far as reported.
    at: BTreeMap<String, BTreeSet<usize>>,
    /// Sessions that were sent a SUBSCRIBE or UNSUBSCRIBE and have not answered.
    asked: BTreeMap<String, BTreeSet<usize>>,
    /// Filters that move between sessions.
    moving: BTreeSet<String>,
    slots: BTreeMap<usize, Slot>,
    answers: u64,
}

/// The state of a session.
#[derive(Debug, Default)]
struct Slot {
    address: Option<(u64, Address)>,
    is_leaving: bool,
    /// Moved filters whose last messages may still arrive.
    draining: BTreeSet<String>,
}

impl Plan {
    pub(crate) fn new(max_sessions: usize, scheme: Scheme) -> Self {
        Self {
            max_sessions,
            scheme,
            wanted: BTreeMap::new(),
            at: BTreeMap::new(),
            asked: BTreeMap::new(),
            moving: BTreeSet::new(),
            slots: BTreeMap::from([(1, Slot::default())]),
            answers: 0,
        }
    }

    pub(crate) fn wanted(&self) -> BTreeSet<String> {
        self.wanted.keys().cloned().collect()
    }

    /// The application subscribes to `filter`; one that overlaps another goes to its session. New
    /// options replace the old ones.
    pub(crate) fn subscribe(&mut self, filter: &str, options: SubscriptionOptions) {
        let home = match self.wanted.get(filter) {
            Some((_, home)) => *home,
            None => {
                let other = self.wanted.iter().find(|(other, _)| overlap(filter, other));
                other.map_or(1, |(_, (_, home))| *home)
            }
        };
        self.wanted.insert(filter.to_owned(), (options, home));
    }

    /// The application unsubscribes from `filter`. Returns whether any session has it.
    pub(crate) fn unsubscribe(&mut self, filter: &str) -> bool {
        self.wanted.remove(filter);
        self.at.contains_key(filter)
    }

    /// Whether the home of `filter` has it.
    pub(crate) fn is_home(&self, filter: &str) -> bool {
        match (self.home(filter), self.at.get(filter)) {
            (Some(home), Some(sessions)) => sessions.contains(&home),
            (None | Some(_), None) | (None, Some(_)) => false,
        }
    }

    pub(crate) fn options(&self, filter: &str) -> Option<SubscriptionOptions> {
        self.wanted.get(filter).map(|(options, _)| *options)
    }

    pub(crate) fn home(&self, filter: &str) -> Option<usize> {
        self.wanted.get(filter).map(|(_, home)| *home)
    }

    /// Follows an answer of the control plane. Returns the filters that start to move.
    pub(crate) fn apply(&mut self, placed: &BTreeMap<usize, Placed>) -> Vec<String> {
        self.answers += 1;
        for (number, session) in placed {
            let slot = self.slots.entry(*number).or_default();
            let address = match self.scheme {
                Scheme::Mqtt => Some(&session.address),
                Scheme::Mqtts => session.tls.as_ref(),
            };
            let address = address.and_then(|address| {
                Address::list(address, self.scheme.port())
                    .into_iter()
                    .next()
            });
            if let Some(address) = address {
                slot.address = Some((self.answers, address));
            }
        }
        let assigned = |filter: &String| {
            let session = placed.iter().find(|(_, s)| s.subscribe.contains(filter));
            session.map(|(number, _)| *number)
        };
        let mut homes: Vec<(String, usize)> = self
            .wanted
            .iter()
            .map(|(filter, (_, home))| {
                let kept = placed.contains_key(home).then_some(*home);
                (filter.clone(), assigned(filter).or(kept).unwrap_or(1))
            })
            .collect();
        unite(&mut homes);
        homes
            .into_iter()
            .filter(|(filter, home)| self.settle_in(filter, *home))
            .map(|(filter, _)| filter)
            .collect()
    }

    /// The session for `address`, an existing one or a new one. `None`: the limit is reached.
    pub(crate) fn session_at(&mut self, address: &Address) -> Option<usize> {
        let there = self.slots.iter().find(|(_, slot)| {
            !slot.is_leaving && slot.address.as_ref().is_some_and(|(_, at)| at == address)
        });
        if let Some((number, _)) = there {
            return Some(*number);
        }
        let number = (1..=self.max_sessions).find(|number| !self.slots.contains_key(number))?;
        let slot = self.slots.entry(number).or_default();
        self.answers += 1;
        slot.address = Some((self.answers, address.clone()));
        Some(number)
    }

    /// Whether `filter` may have a session of its own; one that overlaps others stays with them.
    pub(crate) fn may_move(&self, filter: &str) -> bool {
        let keeps = |other: &String| other != filter && overlap(other, filter);
        self.wanted.contains_key(filter) && !self.wanted.keys().any(keeps)
    }

    /// Moves one filter. Returns whether it starts to move.
    pub(crate) fn move_to(&mut self, filter: &str, home: usize) -> bool {
        self.may_move(filter) && self.settle_in(filter, home)
    }

    fn settle_in(&mut self, filter: &str, home: usize) -> bool {
        let Some((_, old)) = self.wanted.get_mut(filter) else {
            return false;
        };
        let changes = *old != home;
        *old = home;
        changes && self.is_elsewhere(filter) && self.moving.insert(filter.to_owned())
    }

    /// Whether sessions other than its home have `filter`, or may have it.
    fn is_elsewhere(&self, filter: &str) -> bool {
        let home = self.home(filter);
        let sessions = [self.at.get(filter), self.asked.get(filter)];
        let mut sessions = sessions.into_iter().flatten().flatten();
        sessions.any(|session| Some(*session) != home)
    }

    /// Notes the address of a session, for answers that name no topics for it.
    pub(crate) fn note_address(&mut self, number: usize, address: &Address) {
        if let Some(slot) = self.slots.get_mut(&number)
            && slot.address.is_none()
        {
            slot.address = Some((0, address.clone()));
        }
    }

    /// Those of `filters` for which session `number` may send a SUBSCRIBE or UNSUBSCRIBE, because its assignment has not changed meanwhile. Until the
    /// answer it is unknown whether the session has them.
    pub(crate) fn on_asking(
        &mut self,
        number: usize,
        filters: Vec<String>,
        ask: Ask,
    ) -> Vec<String> {
        let wanted = self.filters(number);
        let mut agreed = filters;
        agreed.retain(|filter| wanted.contains_key(filter) == (ask == Ask::Subscribe));
        for filter in &agreed {
            remove(&mut self.at, filter, number);
            let sessions = self.asked.entry(filter.clone()).or_default();
            sessions.insert(number);
        }
        agreed
    }

    pub(crate) fn on_subscribed(&mut self, number: usize, filter: &str) {
        remove(&mut self.asked, filter, number);
        self.at.entry(filter.to_owned()).or_default().insert(number);
    }

    /// The broker refuses `filter` to session `number`. Returns whether another still has it.
    pub(crate) fn on_refused(&mut self, number: usize, filter: &str) -> bool {
        remove(&mut self.asked, filter, number);
        let elsewhere = self
            .at
            .get(filter)
            .and_then(|sessions| sessions.iter().find(|other| **other != number));
        match (elsewhere.copied(), self.wanted.get_mut(filter)) {
            (Some(other), Some((_, home))) => {
                *home = other;
                true
            }
            (None, _) => {
                self.wanted.remove(filter);
                false
            }
            (Some(_), None) => false,
        }
    }

    /// Session `number` no longer has `filter`.
    pub(crate) fn on_unsubscribed(&mut self, number: usize, filter: &str) {
        remove(&mut self.at, filter, number);
        remove(&mut self.asked, filter, number);
        if self.moving.contains(filter)
            && self.home(filter) != Some(number)
            && let Some(slot) = self.slots.get_mut(&number)
        {
            slot.draining.insert(filter.to_owned());
        }
    }

    /// Whether no session has `filter` or may have it, or the application subscribes to it again.
    pub(crate) fn is_unsubscribed(&self, filter: &str) -> bool {
        let has_any = self.at.contains_key(filter) || self.asked.contains_key(filter);
        !has_any || self.wanted.contains_key(filter)
    }

    /// Session `number` is silent. Returns the filters whose move is complete.
    pub(crate) fn on_drained(&mut self, number: usize) -> Vec<String> {
        let Some(slot) = self.slots.get_mut(&number) else {
            return Vec::new();
        };
        let mut over = Vec::from_iter(std::mem::take(&mut slot.draining));
        over.retain(|filter| !self.may_still_arrive(filter) && self.moving.remove(filter));
        over
    }

    /// Whether messages of `filter` may arrive over a session that is not its home.
    fn may_still_arrive(&self, filter: &str) -> bool {
        let is_draining = |slot: &Slot| slot.draining.contains(filter);
        self.is_elsewhere(filter) || self.slots.values().any(is_draining)
    }

    /// Session `number` has ended. If it is needed again by now, it starts again. Returns the filters whose move is complete.
    pub(crate) fn on_left(&mut self, number: usize, is_routed: bool) -> Vec<String> {
        let all = self.at.iter().chain(&self.asked);
        let has = all.filter(|(_, sessions)| sessions.contains(&number));
        let has: Vec<String> = has.map(|(filter, _)| filter.clone()).collect();
        for filter in has {
            self.on_unsubscribed(number, &filter);
        }
        let over = self.on_drained(number);
        let is_wanted = is_routed || self.wanted.values().any(|(_, home)| *home == number);
        match self.slots.get_mut(&number) {
            Some(slot) if is_wanted => slot.is_leaving = false,
            Some(_) | None => drop(self.slots.remove(&number)),
        }
        over
    }

    /// Session `number` is unavailable: the first takes over its filters.
    pub(crate) fn give_up(&mut self, number: usize) {
        for (_, home) in self.wanted.values_mut() {
            if *home == number {
                *home = 1;
            }
        }
    }

    /// The sessions that should exist.
    pub(crate) fn sessions(&self) -> Vec<usize> {
        let homes = self.wanted.values().map(|(_, home)| *home);
        let all: BTreeSet<usize> = self.slots.keys().copied().chain(homes).collect();
        all.into_iter().collect()
    }

    pub(crate) fn address(&self, number: usize) -> Option<(u64, Address)> {
        self.slots.get(&number)?.address.clone()
    }

    /// The filters that session `number` should have now.
    pub(crate) fn filters(&self, number: usize) -> BTreeMap<String, Subscription> {
        let mut filters = BTreeMap::new();
        if self.slots.get(&number).is_some_and(|slot| slot.is_leaving) {
            return filters;
        }
        for (filter, (options, home)) in &self.wanted {
            let at = self.at.get(filter);
            let has = |session: &usize| at.is_some_and(|sessions| sessions.contains(session));
            let is_moved = at.is_some_and(|sessions| sessions.iter().any(|s| *s != number));
            if *home == number || (has(&number) && !has(home)) {
                let options = *options;
                filters.insert(filter.clone(), Subscription { options, is_moved });
            }
        }
        filters
    }

    /// Marks session `number` as leaving, unless it has or should have something. The first stays.
    pub(crate) fn leaves(&mut self, number: usize) -> bool {
        let mut all = self.at.values().chain(self.asked.values());
        let is_used = number == 1
            || all.any(|sessions| sessions.contains(&number))
            || !self.filters(number).is_empty();
        let slot = self.slots.entry(number).or_default();
        // Once it is leaving, it ends: the next one of this name starts again.
        slot.is_leaving |= !is_used;
        slot.is_leaving
    }
}

fn remove(at: &mut BTreeMap<String, BTreeSet<usize>>, filter: &str, number: usize) {
    if let Some(sessions) = at.get_mut(filter) {
        sessions.remove(&number);
        if sessions.is_empty() {
            at.remove(filter);
        }
    }
}

#[cfg(test)]
mod tests {
    use thicket_mqtt::Qos;

    use super::*;

    fn placed(sessions: &[(usize, &str, &[&str])]) -> BTreeMap<usize, Placed> {
        sessions
            .iter()
            .map(|(number, address, filters)| {
                let session = Placed {
                    address: (*address).to_owned(),
                    subscribe: filters.iter().map(|filter| (*filter).to_owned()).collect(),
                    ..Placed::default()
                };
                (*number, session)
            })
            .collect()
    }

    fn names(filters: &BTreeMap<String, Subscription>) -> Vec<&str> {
        filters.keys().map(String::as_str).collect()
    }

    #[test]
    fn a_filter_is_at_its_new_session_before_it_leaves_the_old_one() {
        let mut plan = Plan::new(4, Scheme::Mqtt);
        plan.subscribe("a", Qos::ExactlyOnce.into());
        plan.subscribe("b", Qos::ExactlyOnce.into());
        plan.on_subscribed(1, "a");
        plan.on_subscribed(1, "b");
        let moving = plan.apply(&placed(&[(1, "x:1", &["a"]), (2, "y:1", &["b"])]));
        assert_eq!(moving, ["b"]);
        assert_eq!(names(&plan.filters(1)), ["a", "b"]);
        assert_eq!(names(&plan.filters(2)), ["b"]);
        assert!(plan.filters(2)["b"].is_moved && !plan.filters(1)["a"].is_moved);
        plan.on_subscribed(2, "b");
        assert_eq!(names(&plan.filters(1)), ["a"]);
        plan.on_unsubscribed(1, "b");
        assert_eq!(plan.on_drained(1), ["b"]);
        assert!(!plan.leaves(1) && !plan.leaves(2));
        assert_eq!(plan.apply(&placed(&[(1, "x:1", &["a", "b"])])), ["b"]);
        assert!(!plan.leaves(2), "it has the filter still");
        plan.on_subscribed(1, "b");
        assert!(!plan.leaves(2), "and may get messages");
        plan.on_unsubscribed(2, "b");
        assert!(plan.leaves(2));
        assert_eq!(plan.on_left(2, false), ["b"]);
        assert_eq!(plan.sessions(), [1]);
    }

    #[test]
    fn a_filter_is_unsubscribed_when_no_session_may_have_it() {
        let mut plan = Plan::new(4, Scheme::Mqtt);
        plan.subscribe("a", Qos::ExactlyOnce.into());
        plan.on_subscribed(1, "a");
        plan.apply(&placed(&[(2, "y:1", &["a"])]));
        plan.on_asking(2, vec!["a".to_owned()], Ask::Subscribe);
        assert!(plan.unsubscribe("a"));
        plan.on_unsubscribed(1, "a");
        assert!(!plan.is_unsubscribed("a"), "the second may have it");
        plan.on_refused(2, "a");
        assert!(plan.is_unsubscribed("a"));
        plan.subscribe("a", Qos::ExactlyOnce.into());
        plan.on_subscribed(1, "a");
        assert!(plan.is_unsubscribed("a"), "it is wanted again");
    }

    #[test]
    fn a_session_that_has_not_answered_is_not_relied_on() {
        let mut plan = Plan::new(4, Scheme::Mqtt);
        let a = || vec!["a".to_owned()];
        plan.subscribe("a", Qos::ExactlyOnce.into());
        assert_eq!(plan.on_asking(1, a(), Ask::Subscribe), ["a"]);
        let elsewhere = placed(&[(1, "x:1", &[]), (2, "y:1", &["a"])]);
        assert_eq!(plan.apply(&elsewhere), ["a"], "it may come over both");
        let is_moved = plan.filters(2)["a"].is_moved;
        assert!(
            !is_moved,
            "no session has surely received the retained messages"
        );
        plan.on_subscribed(2, "a");
        plan.on_unsubscribed(1, "a");
        assert_eq!(plan.on_drained(1), ["a"]);
        // On its way back to the first it is moved to the second, before the first has answered its UNSUBSCRIBE.
        let back = placed(&[(1, "x:1", &["a"])]);
        plan.apply(&back);
        plan.on_subscribed(1, "a");
        plan.apply(&elsewhere);
        assert_eq!(plan.on_asking(1, a(), Ask::Unsubscribe), ["a"]);
        plan.apply(&back);
        let none: [&str; 0] = [];
        assert_eq!(
            plan.on_asking(1, a(), Ask::Unsubscribe),
            none,
            "it shall have it again"
        );
        assert_eq!(names(&plan.filters(2)), ["a"]);
        plan.on_unsubscribed(1, "a");
        assert_eq!(names(&plan.filters(2)), ["a"], "the first does not have it");
        plan.on_subscribed(1, "a");
        assert_eq!(names(&plan.filters(2)), none);
    }

    #[test]
    fn a_refused_move_leaves_the_filter_where_it_was() {
        let mut plan = Plan::new(4, Scheme::Mqtt);
        plan.subscribe("a", Qos::AtLeastOnce.into());
        plan.on_subscribed(1, "a");
        plan.apply(&placed(&[(2, "y:1", &["a"])]));
        assert!(plan.on_refused(2, "a"));
        assert_eq!(plan.home("a"), Some(1));
        assert!(plan.leaves(2));
        assert!(!plan.on_refused(1, "b"));
    }

    #[test]
    fn one_filter_follows_advice_unless_it_overlaps_or_there_are_enough_sessions() {
        let mut plan = Plan::new(2, Scheme::Mqtt);
        let address = |host: &str| Address {
            host: host.to_owned(),
            port: 1,
        };
        plan.note_address(1, &address("x"));
        plan.subscribe("a", Qos::AtMostOnce.into());
        plan.subscribe("b/+", Qos::AtMostOnce.into());
        plan.subscribe("b/1", Qos::AtMostOnce.into());
        assert_eq!(plan.session_at(&address("x")), Some(1));
        assert_eq!(plan.session_at(&address("y")), Some(2));
        assert_eq!(plan.session_at(&address("y")), Some(2));
        assert_eq!(plan.session_at(&address("z")), None);
        plan.on_subscribed(1, "a");
        assert!(plan.move_to("a", 2));
        assert!(!plan.move_to("b/1", 2), "it overlaps another");
        assert!(!plan.move_to("c", 2), "the application does not want it");
        assert_eq!(names(&plan.filters(2)), ["a"]);
    }
}
