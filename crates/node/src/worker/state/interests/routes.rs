//! Where the messages of a topic go: what the interests of all say of it.

use std::{cell::Cell, cmp::Ordering, collections::BTreeMap, rc::Rc, sync::Arc};

use thicket_mqtt::{Qos, ReasonCode};
use thicket_overlay::NodeSlot;
use thicket_session::{
    server::MatchedIdentifiers,
    topic::{MAXIMUM_TOPIC_BYTES, level_count},
};

use super::{Interests, Member, Peers, SessionKey, Subscribers, Turns, is_reserved};
use crate::{
    WorkerId,
    messages::{Interest, Place, compare_share_key, search_near},
    work::GROUP,
};

/// A session that gets a message.
#[derive(Debug)]
pub(in crate::worker) struct Recipient {
    pub session: SessionKey,
    /// The highest QoS of the subscriptions that match [MQTT-3.3.4-2].
    pub qos: Qos,
    /// Every matching subscription has No Local.
    pub no_local: bool,
    pub retain_as_published: bool,
    pub identifiers: MatchedIdentifiers,
}

/// A matching shared subscription: one of the candidates gets the message.
#[derive(Debug)]
pub(in crate::worker) struct GroupRoute {
    /// `$share/name/filter`.
    pub key: Arc<str>,
    /// The connected ones first.
    pub local: Rc<[LocalCandidate]>,
    /// Other places with the number of their connected members.
    pub peers: Rc<[(Place, Interest)]>,
    /// Connected members here.
    pub connected: u32,
    pub(super) turns: Turns,
}

impl GroupRoute {
    /// The next turn: rises by one each time.
    pub fn next_turn(&self) -> u32 {
        let turn = self.turns.get().wrapping_add(1);
        self.turns.set(turn);
        turn
    }
}

/// A member of a group in this worker.
#[derive(Debug)]
pub(in crate::worker) struct LocalCandidate {
    pub recipient: Recipient,
    pub connected: bool,
}

/// Where messages of one topic go.
#[derive(Debug)]
pub(in crate::worker) struct Route {
    /// Why no client may publish to the topic.
    pub refusal: Option<ReasonCode>,
    pub recipients: Vec<Recipient>,
    /// Ascending by key.
    pub groups: Vec<GroupRoute>,
    /// Other workers of this node with matching subscriptions, and the highest QoS there, ascending.
    pub workers: Vec<(WorkerId, Qos)>,
    /// Nodes with matching subscriptions of QoS 1 or 2, ascending.
    pub nodes: Arc<[NodeSlot]>,
    /// Nodes with matching subscriptions of QoS 0 only, ascending.
    pub nodes_qos0: Arc<[NodeSlot]>,
    /// Both, ascending: the destinations of what is published at QoS 0.
    pub nodes_all: Arc<[NodeSlot]>,
    /// The shell observes its messages, or may want to trace them. Not while the shell is handed one.
    pub is_observed: Cell<bool>,
    /// Sessions here that subscribe to it and may not read it.
    pub withheld: u32,
    /// Messages of clients here since topics were counted last.
    pub published: Cell<u64>,
    /// Behind the place in `groups` where one was found last.
    found: Cell<usize>,
}

impl Route {
    /// The shared subscription of that name and filter, if it matches.
    pub fn group(&self, name: &str, filter: &str) -> Option<&GroupRoute> {
        self.search_group(|group| compare_share_key(&group.key, name, filter))
    }

    /// The same by its key.
    pub fn find_group(&self, key: &str) -> Option<&GroupRoute> {
        self.search_group(|group| (*group.key).cmp(key))
    }

    fn search_group(&self, compare: impl Fn(&GroupRoute) -> Ordering) -> Option<&GroupRoute> {
        let index = search_near(&self.groups, self.found.get(), compare)?;
        self.found.set(index + 1);
        self.groups.get(index)
    }

    /// The shared subscriptions whose keys come after this one; `None`: all.
    pub fn groups_after(&self, key: Option<&str>) -> &[GroupRoute] {
        let first = key.map_or(0, |key| {
            self.groups.partition_point(|group| *group.key <= *key)
        });
        &self.groups[first..]
    }

    /// Bytes of memory that it occupies, roughly.
    pub(super) fn bytes(&self) -> usize {
        let identifiers = |recipient: &Recipient| size_of_val(recipient.identifiers.as_slice());
        let recipients = self.recipients.iter().map(identifiers).sum::<usize>();
        size_of::<Self>()
            + self.recipients.capacity() * size_of::<Recipient>()
            + recipients
            + self.groups.capacity() * size_of::<GroupRoute>()
            + self.workers.capacity() * size_of::<(WorkerId, Qos)>()
            + (self.nodes.len() + self.nodes_qos0.len()) * 4
    }

    /// Whether the topic has no recipient anywhere.
    pub fn is_empty(&self) -> bool {
        self.recipients.is_empty()
            && self.groups.is_empty()
            && self.workers.is_empty()
            && self.nodes.is_empty()
            && self.nodes_qos0.is_empty()
    }

    /// Whether the topic's only recipients are sessions of this worker.
    pub fn is_local(&self) -> bool {
        self.groups.is_empty()
            && self.workers.is_empty()
            && self.nodes.is_empty()
            && self.nodes_qos0.is_empty()
    }
}

impl Interests {
    pub(super) fn compute_route(
        &self,
        topic: &str,
        may_receive: &dyn Fn(SessionKey) -> bool,
    ) -> Route {
        let mut recipients: Vec<Recipient> = Vec::new();
        let (mut matched, mut peers) = (Vec::new(), Vec::new());
        let steps = (self.local).for_each_match(topic, |it| matched.push(it))
            + (self.peers).for_each_match(topic, |it| peers.push(it));
        self.note_steps(steps + (matched.len() + peers.len()) as u64);
        for subscribers in &matched {
            recipients.extend(
                subscribers
                    .plain
                    .members
                    .iter()
                    .map(|(session, member)| Recipient::new(*session, member)),
            );
        }
        if matched.len() > 1 {
            recipients = merge(recipients);
        }
        let subscribed = recipients.len();
        recipients.retain(|recipient| may_receive(recipient.session));
        // Thousands of filters may have made one recipient.
        recipients.shrink_to_fit();
        let mut route = Route {
            published: Cell::new(0),
            found: Cell::new(0),
            is_observed: Cell::new(self.is_traced || self.is_observed(topic)),
            withheld: u32::try_from(subscribed - recipients.len()).unwrap_or(u32::MAX),
            refusal: self.refusal(topic),
            recipients,
            groups: Vec::new(),
            workers: Vec::new(),
            nodes: Arc::new([]),
            nodes_qos0: Arc::new([]),
            nodes_all: Arc::new([]),
        };
        add_peers(&peers, &mut route);
        route.groups = self.group_routes(&matched, &peers);
        route
    }

    fn refusal(&self, topic: &str) -> Option<ReasonCode> {
        if is_reserved(topic) {
            Some(ReasonCode::NotAuthorized)
        } else if topic.len() > MAXIMUM_TOPIC_BYTES || level_count(topic) > self.maximum_levels {
            // With the prefix of a listener it may be longer than what another node can be sent, or a client.
            Some(ReasonCode::TopicNameInvalid)
        } else {
            None
        }
    }

    /// The shared subscriptions with members here or in other places.
    fn group_routes(&self, matched: &[&Subscribers], peers: &[&Peers]) -> Vec<GroupRoute> {
        let mut groups: Vec<GroupRoute> = Vec::new();
        let nobody: Rc<[LocalCandidate]> = Rc::new([]);
        let nowhere: Rc<[(Place, Interest)]> = Rc::new([]);
        let mut members = 0;
        for group in matched.iter().flat_map(|it| it.groups.values()) {
            members += group.members.members.len() as u64;
            groups.push(GroupRoute {
                key: Arc::clone(&group.key),
                local: Rc::clone(group.candidates()),
                peers: Rc::clone(&nowhere),
                connected: group.members.connected,
                turns: Rc::clone(&group.turns),
            });
        }
        let elsewhere = peers.iter().flat_map(|it| it.groups.values());
        groups.extend(elsewhere.map(|group| GroupRoute {
            key: Arc::clone(&group.key),
            local: Rc::clone(&nobody),
            peers: Rc::clone(group.peers()),
            connected: 0,
            turns: Rc::clone(&group.turns),
        }));
        self.note_steps(GROUP * groups.len() as u64 + members);
        // Members here come before those in other places.
        groups.sort_by(|left, right| left.key.cmp(&right.key));
        groups.dedup_by(|elsewhere, here| {
            let is_same = elsewhere.key == here.key;
            if is_same {
                here.peers = Rc::clone(&elsewhere.peers);
            }
            is_same
        });
        groups.shrink_to_fit();
        groups
    }
}

/// Adds the places that have subscriptions which are not shared.
fn add_peers(peers: &[&Peers], route: &mut Route) {
    if peers.is_empty() {
        return;
    }
    let mut places: BTreeMap<Place, Qos> = BTreeMap::new();
    for (place, interest) in peers.iter().flat_map(|it| &it.plain) {
        let qos = places.entry(*place).or_default();
        *qos = (*qos).max(interest.qos);
    }
    let mut nodes = Vec::new();
    let mut nodes_qos0 = Vec::new();
    let all: Vec<_> = places.keys().filter_map(|place| place.node()).collect();
    for (place, qos) in places {
        match (place, qos) {
            (Place::Worker(worker), qos) => route.workers.push((worker, qos)),
            (Place::Node(slot), Qos::AtMostOnce) => nodes_qos0.push(slot),
            (Place::Node(slot), Qos::AtLeastOnce | Qos::ExactlyOnce) => nodes.push(slot),
        }
    }
    route.nodes = nodes.into();
    route.nodes_qos0 = nodes_qos0.into();
    route.nodes_all = match (route.nodes.is_empty(), route.nodes_qos0.is_empty()) {
        (_, true) => Arc::clone(&route.nodes),
        (true, false) => Arc::clone(&route.nodes_qos0),
        (false, false) => all.into(),
    };
}

impl LocalCandidate {
    pub(super) fn new((session, member): (&SessionKey, &Member)) -> Self {
        Self {
            recipient: Recipient::new(*session, member),
            connected: member.connected,
        }
    }
}

impl Recipient {
    fn new(session: SessionKey, member: &Member) -> Self {
        let options = member.subscription.options;
        Self {
            session,
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            identifiers: member
                .subscription
                .identifier
                .map_or(MatchedIdentifiers::None, |id| MatchedIdentifiers::One([id])),
        }
    }
}

/// One recipient a session: overlapping subscriptions make one copy with all identifiers [MQTT-3.3.4-4].
fn merge(mut recipients: Vec<Recipient>) -> Vec<Recipient> {
    recipients.sort_by_key(|recipient| recipient.session);
    let is_one = |left: &Recipient, right: &Recipient| left.session == right.session;
    let mut merged = Vec::new();
    for of_session in recipients.chunk_by(is_one) {
        let identifiers = of_session.iter().flat_map(|it| it.identifiers.as_slice());
        let mut identifiers: Vec<u32> = identifiers.copied().collect();
        identifiers.sort_unstable();
        identifiers.dedup();
        merged.push(Recipient {
            session: of_session[0].session,
            qos: of_session.iter().map(|it| it.qos).max().unwrap_or_default(),
            no_local: of_session.iter().all(|it| it.no_local),
            retain_as_published: of_session.iter().any(|it| it.retain_as_published),
            identifiers: MatchedIdentifiers::from_slice(&identifiers),
        });
    }
    merged
}
