//! Shared subscriptions: which member of a group gets a message, here or elsewhere, and which one when that member is gone.

use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::{
    NodeSlot,
    record::{Record, SharedChoices},
};
use thicket_session::{
    server::{Delivery, Held, Message, MessageId, Outbound},
    time::Instant,
    topic::SubscriptionFilter,
};

use super::{
    capacity::{is_handed_over, member_with_capacity, refuses_when_full},
    context::Context,
    replication::wait_for_backups,
    state::{
        batches::Leaving,
        debts::Debt,
        drops::DropReason,
        interests::GroupRoute,
        outgoing::{Outgoing, publish_again},
        records::{publish_of, record_of},
        replica::backup::ADOPTION_TIMEOUT,
        timers::Timer,
    },
};
use crate::{
    Now, Peer,
    messages::{Interest, InterestChange, NumberRuns, Place, RefusedBy},
};

/// Where members may be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Here, at other workers and on other nodes.
    Everywhere,
    /// On this node: another one looks at other nodes.
    Node,
}

/// The search for a member that is not over its limit.
#[derive(Debug)]
pub(super) struct Search {
    reach: Reach,
    /// Another place chose this one, and looks at others if all members here are over their limits.
    is_of_sender: bool,
    /// Places that have refused the message.
    full: Vec<Place>,
    /// What is owed for it.
    debt: Option<Debt>,
}

impl Search {
    /// For a message that is published here, or is given to a group again.
    pub const fn new(debt: Option<Debt>) -> Self {
        Self {
            reach: Reach::Everywhere,
            is_of_sender: false,
            full: Vec::new(),
            debt,
        }
    }

    /// For a message that another place sent here.
    pub const fn of_sender(reach: Reach, debt: Option<Debt>) -> Self {
        Self {
            reach,
            is_of_sender: true,
            full: Vec::new(),
            debt,
        }
    }

    /// Whether a message that was published here is given to a member for the first time.
    const fn is_first(&self) -> bool {
        self.full.is_empty() && !self.is_of_sender
    }

    fn may_choose(&self, place: Place) -> bool {
        let is_within = match self.reach {
            Reach::Everywhere => true,
            Reach::Node => matches!(place, Place::Worker(_)),
        };
        is_within && !self.full.contains(&place)
    }

    fn peers<'a>(&'a self, group: &'a GroupRoute) -> impl Iterator<Item = &'a (Place, Interest)> {
        group
            .peers
            .iter()
            .filter(|(place, _)| self.may_choose(*place))
    }
}

/// A message on its way to a member elsewhere.
#[derive(Debug)]
struct Chosen {
    place: Place,
    /// `$share/name/filter`.
    group: Arc<str>,
    message: Rc<Message>,
    search: Search,
}

/// An unassigned message: its members were on nodes that are down, or were over their limits.
#[derive(Debug)]
struct Unassigned {
    until: Instant,
    group: Arc<str>,
    message: Rc<Message>,
    search: Search,
}

/// Messages of shared subscriptions that other nodes may not get, and groups whose members were on nodes that are down.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Messages on their way to other nodes, and to other workers if they were refused elsewhere, by their numbers: until they are acknowledged.
    chosen: BTreeMap<u64, Chosen>,
    /// Groups about to fail over to other nodes, and until when they are remembered.
    orphaned: Vec<(Instant, SubscriptionFilter)>,
    unassigned: Vec<Unassigned>,
}

/// A backup is promoted in this time, and all nodes have its interests a second later.
const GRACE: Duration = ADOPTION_TIMEOUT.saturating_add(Duration::from_secs(1));
/// The place of members that were on nodes that are down; no node has this slot.
const GONE: NodeSlot = NodeSlot(u16::MAX);
/// Unassigned messages, which wait for members to appear again.
const UNASSIGNED: usize = 10_000;

impl Groups {
    /// One member of a shared subscription gets the message: one here, or one of another place that chooses in turn.
    pub(super) fn publish_to_group(
        &mut self,
        cx: &mut Context,
        now: Now,
        group: &GroupRoute,
        outgoing: &mut Outgoing<'_>,
        mut search: Search,
        open: &mut u16,
    ) {
        let debt = search.debt.take();
        cx.effort.spend_on_group(outgoing.publish.payload);
        match choose_with_capacity(cx, now, group, outgoing.publish, &search) {
            None => {}
            Some(Choice::Local(index)) => {
                *open += self.give_to_member(cx, now, group, index, outgoing, debt);
            }
            Some(Choice::Peer(Place::Node(slot), interest)) if !cx.is_slot_up(slot) => {
                *open += self.wait_for_member(cx, now, group, interest.qos, outgoing, debt);
            }
            Some(Choice::Peer(place, interest)) => {
                let publish = outgoing.publish;
                let qos = publish.qos.min(interest.qos);
                let number = if qos > Qos::AtMostOnce {
                    *open += u16::from(debt.is_some());
                    cx.debts.pending.add(1, debt)
                } else {
                    0
                };
                // Another worker that refuses the message sends it back.
                let is_kept = matches!(place, Place::Node(_)) || !search.is_first();
                if number > 0 && is_kept {
                    let chosen = Chosen {
                        place,
                        group: Arc::clone(&group.key),
                        message: outgoing.message(),
                        search,
                    };
                    self.chosen.insert(number, chosen);
                }
                let message = Publish {
                    retain: false,
                    ..*publish
                };
                forward_to_group(cx, &message, number, &group.key, place);
            }
            Some(Choice::Full(index)) => {
                let is_refused = debt.is_some() && (search.is_of_sender || refuses_when_full(cx));
                cx.traffic.queue_refused_messages += u64::from(is_refused && !search.is_of_sender);
                if let Some(debt) = debt.filter(|_| is_refused) {
                    *open += 1;
                    cx.debts.refused.push((debt, RefusedBy::Members));
                } else if let Some(index) = index {
                    *open += self.give_to_member(cx, now, group, index, outgoing, debt);
                } else {
                    cx.traffic.queue_dropped_messages += 1;
                    note_dropped(cx, &group.key, outgoing.publish.topic);
                }
            }
        }
    }

    /// A member here gets the message. If it is handed over, the message waits for the member's next primary. Returns how many conditions that is for
    /// an acknowledgement.
    pub(super) fn give_to_member(
        &mut self,
        cx: &mut Context,
        now: Now,
        group: &GroupRoute,
        index: usize,
        outgoing: &mut Outgoing<'_>,
        debt: Option<Debt>,
    ) -> u16 {
        let recipient = &group.local[index].recipient;
        if is_handed_over(cx, recipient.session) {
            return self.wait_for_member(cx, now, group, recipient.qos, outgoing, debt);
        }
        cx.deliver_alone(now, recipient, &group.key, outgoing);
        0
    }

    /// What shared subscriptions had given to a session that has ended goes to other members: all that was not sent, and what was sent at QoS 1. A
    /// QoS 2 message that was sent may have been seen [MQTT-4.8.2-5].
    pub(super) fn pass_shared_on(&mut self, cx: &mut Context, now: Now, outbound: &Outbound) {
        self.pass_shared_on_from(cx, now, outbound, 0);
    }

    /// The same of what it accepted from a sequence on.
    pub(super) fn pass_shared_on_from(
        &mut self,
        cx: &mut Context,
        now: Now,
        outbound: &Outbound,
        from: u64,
    ) {
        let held = outbound.held_from(from);
        let kept = held.filter_map(|held| match held {
            Held::Queued { delivery, .. } => Some(delivery),
            Held::InFlight { delivery, .. } if delivery.qos == Qos::AtLeastOnce => Some(delivery),
            Held::InFlight { .. } | Held::Received { .. } => None,
        });
        let deliveries: Vec<Delivery> = kept.cloned().collect();
        for delivery in deliveries {
            let Some(key) = &delivery.group else {
                continue;
            };
            let message = &delivery.message;
            if message.is_expired(now.instant) {
                cx.traffic.expired_messages += 1;
                continue;
            }
            let (key, message) = (Arc::clone(key), Rc::clone(message));
            self.choose_again(
                cx,
                now,
                Unassigned {
                    until: now.instant,
                    group: key,
                    message,
                    search: Search::new(None),
                },
            );
        }
    }

    /// Another member of a group gets a message; if all were on nodes that are down, one whose backup is promoted elsewhere.
    fn choose_again(&mut self, cx: &mut Context, now: Now, chosen: Unassigned) {
        let message = Rc::clone(&chosen.message);
        let publish = publish_again(&message, now.instant);
        let mut outgoing = Outgoing::new(&publish, message.expires_at());
        outgoing.id = message.id();
        let route = cx.route(publish.topic);
        let group = route.find_group(&chosen.group);
        let owed = chosen.search.debt;
        let Some(group) = group else {
            let key = Arc::clone(&chosen.group);
            if chosen.until <= now.instant || !self.wait_for_members(chosen) {
                note_dropped(cx, &key, publish.topic);
                cx.debts.met.extend(owed);
            }
            return;
        };
        // It was one condition: now there may be several, as for each backup of the member.
        let debt = owed.map(|owed| cx.debts.divide(owed));
        let mut open = 0;
        let search = Search {
            debt,
            ..chosen.search
        };
        self.publish_to_group(cx, now, group, &mut outgoing, search, &mut open);
        open += wait_for_backups(cx, &outgoing, debt);
        cx.debts.wait_for_portion(debt, open);
        cx.debts.met.extend(debt);
    }

    /// The interests of other places have changed. Interests of a group's members on a node that is down are remembered for a while: their backups
    /// are promoted elsewhere.
    pub(super) fn apply_interests(
        &mut self,
        cx: &mut Context,
        now: Now,
        changes: &[(Place, InterestChange)],
    ) {
        for (place, change) in changes {
            if let (Place::Node(slot), None) = (place, change.interest)
                && !cx.is_slot_up(*slot)
                && let Some(interest) = cx.interests.absent_members(*place, &change.key)
            {
                let until = now.instant + GRACE;
                self.orphaned.push((until, change.key.clone()));
                cx.timers.set(until, Timer::GroupGrace);
                let remembered = InterestChange {
                    key: change.key.clone(),
                    interest: Some(interest),
                };
                cx.interests.apply(Place::Node(GONE), &remembered);
            }
            cx.interests.apply(*place, change);
        }
        self.reassign_unassigned(cx, now);
    }

    /// Unassigned messages are given to the members that are there now.
    pub(super) fn reassign_unassigned(&mut self, cx: &mut Context, now: Now) {
        for unassigned in std::mem::take(&mut self.unassigned) {
            self.choose_again(cx, now, unassigned);
        }
    }

    /// Backups of the members have been promoted by now, or never will be.
    pub(super) fn forget_absent_members(&mut self, cx: &mut Context, now: Now) {
        let (due, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.orphaned)
            .into_iter()
            .partition(|(until, _)| *until <= now.instant);
        self.orphaned = kept;
        for (_, key) in due {
            thicket_session::reach!("time GRACE");
            if self.orphaned.iter().all(|(_, kept)| *kept != key) {
                let interest = None;
                cx.interests
                    .apply(Place::Node(GONE), &InterestChange { key, interest });
            }
        }
        self.reassign_unassigned(cx, now);
    }

    /// Nodes are down: what was on its way to members there goes to other members (rule 16: at least once a group).
    pub(super) fn reassign_from_lost(&mut self, cx: &mut Context, now: Now) {
        let gone: Vec<u64> = (self.chosen.iter())
            .filter(|(_, chosen)| match chosen.place {
                Place::Node(slot) => !cx.is_slot_up(slot),
                Place::Worker(_) => false,
            })
            .map(|(number, _)| *number)
            .collect();
        let gone: Vec<(u64, Chosen)> = gone
            .into_iter()
            .filter_map(|number| Some((number, self.chosen.remove(&number)?)))
            .collect();
        for (number, chosen) in gone {
            let Chosen {
                group,
                message,
                mut search,
                ..
            } = chosen;
            // Nobody acknowledges that number any more; the next one is waited for instead.
            search.debt = cx.debts.pending.take(number).flatten();
            self.choose_again(
                cx,
                now,
                Unassigned {
                    until: now.instant + GRACE,
                    group,
                    message,
                    search,
                },
            );
        }
    }

    /// All members at other places are over their limits: others get these messages, if there are any.
    pub(super) fn choose_after_refusal(&mut self, cx: &mut Context, now: Now, runs: &NumberRuns) {
        for &(from, to) in runs {
            let numbers: Vec<u64> = self.chosen.range(from..=to).map(|it| *it.0).collect();
            for number in numbers {
                if let Some(chosen) = self.chosen.remove(&number) {
                    self.look_elsewhere(cx, now, number, chosen);
                }
            }
        }
        // Of what was not chosen here nothing is kept.
        if refuses_when_full(cx) {
            cx.debts.refuse(runs);
        }
    }

    /// All members at another worker are over their limits: it sends the message back.
    pub(super) fn members_refused(&mut self, cx: &mut Context, now: Now, by: Peer, bytes: &[u8]) {
        let (Ok((record, _)), Peer::Worker(worker)) = (Record::decode(bytes), by) else {
            return;
        };
        let chosen = self.chosen.remove(&record.number);
        let chosen = chosen.or_else(|| {
            let (name, filter) = record.shared.iter().next()?;
            let (publish, expires_at) = publish_of(&record, now);
            Some(Chosen {
                place: Place::Worker(worker),
                group: format!("$share/{name}/{filter}").into(),
                message: Rc::new(Message::new(MessageId::default(), &publish, expires_at)),
                search: Search::new(None),
            })
        });
        if let Some(chosen) = chosen {
            self.look_elsewhere(cx, now, record.number, chosen);
        }
    }

    fn look_elsewhere(&mut self, cx: &mut Context, now: Now, number: u64, chosen: Chosen) {
        let Chosen {
            place,
            group,
            message,
            mut search,
        } = chosen;
        // Its number is acknowledged, too, but what is owed waits for the next one.
        let Some(debt) = cx.debts.pending.take(number) else {
            return;
        };
        search.debt = debt;
        search.full.push(place);
        let unassigned = Unassigned {
            until: now.instant,
            group,
            message,
            search,
        };
        self.choose_again(cx, now, unassigned);
    }

    /// The member that is to get a message is about to be a member elsewhere. Returns how many conditions that is for an acknowledgement.
    fn wait_for_member(
        &mut self,
        cx: &mut Context,
        now: Now,
        group: &GroupRoute,
        granted: Qos,
        outgoing: &mut Outgoing<'_>,
        debt: Option<Debt>,
    ) -> u16 {
        let until = now.instant + GRACE;
        let is_kept = outgoing.publish.qos.min(granted) > Qos::AtMostOnce;
        let waits = is_kept
            && self.wait_for_members(Unassigned {
                until,
                group: Arc::clone(&group.key),
                message: outgoing.message(),
                search: Search::new(debt),
            });
        if !waits {
            note_dropped(cx, &group.key, outgoing.publish.topic);
            return 0;
        }
        cx.timers.set(until, Timer::GroupGrace);
        u16::from(debt.is_some())
    }

    /// Keeps a message until members appear again. False: that would be over the limit.
    fn wait_for_members(&mut self, unassigned: Unassigned) -> bool {
        let has_capacity = self.unassigned.len() < UNASSIGNED;
        if has_capacity {
            self.unassigned.push(unassigned);
        }
        has_capacity
    }

    /// Other places have accepted these messages, or have refused them.
    pub(super) fn chosen_are_done(&mut self, runs: &NumberRuns) {
        if self.chosen.is_empty() {
            return;
        }
        for &(from, to) in runs {
            while let Some((&number, _)) = self.chosen.range(from..=to).next() {
                self.chosen.remove(&number);
            }
        }
    }
}

/// Who gets the message: if that is a member here and all members here are over the limit, another place that has members, which refuses it if
/// all there are over the limit too.
fn choose_with_capacity(
    cx: &mut Context,
    now: Now,
    group: &GroupRoute,
    publish: &Publish<'_>,
    search: &Search,
) -> Option<Choice> {
    let turn = group.next_turn() as usize;
    let connected = group.connected as usize;
    let choice = choose_connected(group, search, turn, connected)
        .or_else(|| choose_absent(cx, group, search, turn));
    let index = match choice {
        Some(Choice::Local(index)) => index,
        // All places that have members have refused it.
        None if !search.full.is_empty() => return Some(Choice::Full(None)),
        Some(Choice::Peer(..) | Choice::Full(_)) | None => return choice,
    };
    if let Some(index) = member_with_capacity(cx, now, group, index, publish) {
        return Some(Choice::Local(index));
    }
    let elsewhere = choose_connected(group, search, turn, 0)
        .or_else(|| choose_waiting(cx, group, search, turn));
    // One that is handed over has its limit where it goes.
    let goes = is_handed_over(cx, group.local[index].recipient.session);
    elsewhere.or(Some(if goes {
        Choice::Local(index)
    } else {
        Choice::Full(Some(index))
    }))
}

/// One of the members that are connected: `connected` here, and those of other places.
fn choose_connected(
    group: &GroupRoute,
    search: &Search,
    turn: usize,
    connected: usize,
) -> Option<Choice> {
    let weight = |(_, interest): &(Place, Interest)| interest.weight as usize;
    let elsewhere: usize = search.peers(group).map(weight).sum();
    let mut turn = turn.checked_rem(connected + elsewhere)?;
    if turn < connected {
        return Some(Choice::Local(turn));
    }
    turn -= connected;
    for (place, interest) in search.peers(group) {
        if turn < interest.weight as usize {
            return Some(Choice::Peer(*place, *interest));
        }
        turn -= interest.weight as usize;
    }
    None
}

/// Nobody of the group is connected anywhere: a session that waits for its client keeps the message; one on a node that is down only if there is
/// no other.
fn choose_absent(cx: &Context, group: &GroupRoute, search: &Search, turn: usize) -> Option<Choice> {
    if !group.local.is_empty() {
        return Some(Choice::Local(turn % group.local.len()));
    }
    choose_waiting(cx, group, search, turn)
}

/// A place with members that wait for their clients.
fn choose_waiting(
    cx: &Context,
    group: &GroupRoute,
    search: &Search,
    turn: usize,
) -> Option<Choice> {
    let is_here = |place: &Place| match place {
        Place::Worker(_) => true,
        Place::Node(slot) => cx.is_slot_up(*slot),
    };
    let persistent = search
        .peers(group)
        .filter(|(_, interest)| interest.persistent);
    let (here, gone): (Vec<_>, Vec<_>) = persistent.partition(|(place, _)| is_here(place));
    let waiting = if here.is_empty() { gone } else { here };
    let (place, interest) = waiting.get(turn.checked_rem(waiting.len())?)?;
    Some(Choice::Peer(*place, *interest))
}

/// Who gets a message of a shared subscription.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// A member here, by its index.
    Local(usize),
    /// Another place.
    Peer(Place, Interest),
    /// Nobody: all are over their limits. If there are members here, the one whose turn it is.
    Full(Option<usize>),
}

/// Sends a message to another place that has members of a group: one of them gets it.
fn forward_to_group(
    cx: &mut Context,
    publish: &Publish<'_>,
    number: u64,
    group: &str,
    place: Place,
) {
    let mut choices = Vec::new();
    let choice = group
        .strip_prefix("$share/")
        .and_then(|key| key.split_once('/'));
    let shared = choice.map_or_else(SharedChoices::default, |choice| {
        SharedChoices::build([choice], &mut choices)
    });
    let mut leaving = Leaving::new(Record {
        shared,
        ..record_of(publish, number, publish.qos, None)
    });
    match place {
        Place::Worker(worker) => cx.batches.add_for_worker(worker, &mut leaving),
        Place::Node(slot) => {
            cx.batches.add_for_node(slot, &mut leaving);
        }
    }
}

/// No member of a shared subscription takes a message.
fn note_dropped(cx: &mut Context, group: &str, topic: &str) {
    cx.traffic.dropped_messages += 1;
    cx.drops.note(DropReason::NoMember, &group.into(), topic);
}
