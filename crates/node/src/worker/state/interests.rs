//! Interests: of the sessions of this worker, and of the other workers and nodes in aggregate.

mod routes;

use std::{
    cell::{Cell, OnceCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use thicket_mqtt::Qos;
use thicket_overlay::NodeSlot;
use thicket_session::{
    server::Subscription,
    topic::{MatchCache, ShareName, SubscriptionFilter, SubscriptionTree, TopicFilter},
};

pub(in crate::worker) use self::routes::{GroupRoute, LocalCandidate, Recipient, Route};
use super::session_key::SessionKey;
use crate::{
    Remembered,
    messages::{Interest, InterestChange, Place},
};

/// Topics whose routes are cached.
const CACHED_TOPICS: usize = 65_536;
/// Bytes of cached routes.
const CACHED_BYTES: usize = 32 * 1024 * 1024;

/// A session's subscription to a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) struct Member {
    pub subscription: Subscription,
    /// The session outlives its connection.
    pub persistent: bool,
    pub connected: bool,
    /// The session's primary is another node, and its backup is here.
    pub is_backup: bool,
}

impl Member {
    /// A session that outlives its connection and has none now.
    pub const fn away(subscription: Subscription) -> Self {
        Self {
            subscription,
            persistent: true,
            connected: false,
            is_backup: false,
        }
    }

    /// Of the backup of a session whose primary is another node.
    pub const fn backup(subscription: Subscription) -> Self {
        Self {
            is_backup: true,
            ..Self::away(subscription)
        }
    }
}

/// A count for others: what they were sent stays while the true one is within a factor of two of it; none and one are distinguished.
const fn coarse_count(announced: u32, count: u32) -> u32 {
    if announced > 1
        && count > 1
        && count <= announced.saturating_mul(2)
        && announced <= count.saturating_mul(2)
    {
        announced
    } else {
        count
    }
}

/// All members of one filter, or of one group of it.
#[derive(Debug, Default)]
struct Members {
    members: BTreeMap<SessionKey, Member>,
    by_qos: [u32; 3],
    persistent: u32,
    connected: u32,
    /// Without those of backups.
    own: u32,
    /// The count of `own` that others were last sent.
    announced: u32,
}

impl Members {
    fn count(&mut self, member: Member, add: bool) {
        let step = |count: &mut u32| *count = if add { *count + 1 } else { *count - 1 };
        step(&mut self.by_qos[member.subscription.options.qos as usize]);
        if member.persistent {
            step(&mut self.persistent);
        }
        if member.connected {
            step(&mut self.connected);
        }
        if !member.is_backup {
            step(&mut self.own);
        }
        self.announced = coarse_count(self.announced, self.own);
    }

    fn insert(&mut self, session: SessionKey, member: Member) -> Option<Member> {
        let old = self.members.insert(session, member);
        if let Some(old) = old {
            self.count(old, false);
        }
        self.count(member, true);
        old
    }

    fn remove(&mut self, session: SessionKey) -> Option<Member> {
        let old = self.members.remove(&session)?;
        self.count(old, false);
        Some(old)
    }

    /// The interest that others receive; `None` if there are no members. `shared`: the number of connected members matters.
    fn interest(&self, shared: bool) -> Option<Interest> {
        let qos = match self.by_qos {
            [0, 0, 0] => return None,
            [_, 0, 0] => Qos::AtMostOnce,
            [_, _, 0] => Qos::AtLeastOnce,
            [_, _, _] => Qos::ExactlyOnce,
        };
        let weight = if shared {
            self.connected
        } else {
            self.announced
        };
        Some(Interest {
            qos,
            persistent: self.persistent > 0,
            weight,
        })
    }
}

/// The sessions of this worker that subscribe to one filter.
#[derive(Debug, Default)]
struct Subscribers {
    plain: Members,
    groups: BTreeMap<ShareName, LocalGroup>,
}

/// The members here of one shared subscription.
#[derive(Debug)]
struct LocalGroup {
    /// `$share/name/filter`.
    key: Arc<str>,
    members: Members,
    turns: Turns,
    /// The members as routes have them, made when the first one needs them.
    candidates: OnceCell<Rc<[LocalCandidate]>>,
}

impl LocalGroup {
    /// The connected members first.
    fn candidates(&self) -> &Rc<[LocalCandidate]> {
        self.candidates.get_or_init(|| {
            let with = |connected| {
                let members = self.members.members.iter();
                let members = members.filter(move |(_, member)| member.connected == connected);
                members.map(LocalCandidate::new)
            };
            with(true).chain(with(false)).collect()
        })
    }
}

/// How many messages of a shared subscription were given to a member, shared by its routes: it assigns the turns.
type Turns = Rc<Cell<u32>>;

/// The other workers and nodes with interests in one filter.
#[derive(Debug, Default)]
struct Peers {
    plain: BTreeMap<Place, Interest>,
    groups: BTreeMap<ShareName, PeerGroup>,
}

/// The places that have members of one shared subscription.
#[derive(Debug)]
struct PeerGroup {
    /// `$share/name/filter`.
    key: Arc<str>,
    places: BTreeMap<Place, Interest>,
    turns: Turns,
    /// The places as routes have them, made when the first one needs them.
    peers: OnceCell<Rc<[(Place, Interest)]>>,
}

impl PeerGroup {
    fn peers(&self) -> &Rc<[(Place, Interest)]> {
        self.peers.get_or_init(|| {
            let places = self.places.iter();
            places
                .map(|(place, interest)| (*place, *interest))
                .collect()
        })
    }
}

/// All interests that a worker has.
#[derive(Debug)]
pub(in crate::worker) struct Interests {
    local: SubscriptionTree<Subscribers>,
    peers: SubscriptionTree<Peers>,
    cache: MatchCache<Rc<Route>>,
    subscriptions: usize,
    /// Of them, those that are shared.
    shared_subscriptions: usize,
    maximum_levels: usize,
    /// Steps taken in trees since they were last read.
    steps: Cell<u64>,
    /// Topics whose messages the shell observes.
    observed: Vec<TopicFilter>,
    /// Messages on all topics may have to be traced.
    is_traced: bool,
}

impl Interests {
    pub fn new(seed: u64, maximum_levels: u16) -> Self {
        Self {
            maximum_levels: usize::from(maximum_levels),
            local: SubscriptionTree::new(seed),
            peers: SubscriptionTree::new(seed ^ 1),
            cache: MatchCache::new(seed ^ 2, CACHED_TOPICS, CACHED_BYTES),
            subscriptions: 0,
            shared_subscriptions: 0,
            steps: Cell::new(0),
            observed: Vec::new(),
            is_traced: false,
        }
    }

    /// The shell observes messages on matching topics, and may want to trace all.
    pub fn observe(&mut self, filters: Vec<TopicFilter>, is_traced: bool) {
        self.observed = filters;
        self.is_traced = is_traced;
        self.cache.clear();
    }

    /// Whether the shell observes messages on a topic.
    pub fn is_observed(&self, topic: &str) -> bool {
        self.observed.iter().any(|filter| filter.matches(topic))
    }

    /// Subscriptions of all sessions of this worker.
    pub const fn len(&self) -> usize {
        self.subscriptions
    }

    /// Of them, those that are shared.
    pub const fn shared_len(&self) -> usize {
        self.shared_subscriptions
    }

    /// Adds or replaces a session's subscription. Returns the change that others must receive, if the aggregate is new.
    pub fn subscribe(
        &mut self,
        session: SessionKey,
        key: &SubscriptionFilter,
        member: Member,
    ) -> Option<InterestChange> {
        let subscribers = self.local.entry(&key.filter);
        let members = match &key.share_name {
            Some(name) => {
                let new = || LocalGroup {
                    key: key.to_string().into(),
                    members: Members::default(),
                    turns: Turns::default(),
                    candidates: OnceCell::new(),
                };
                let groups = &mut subscribers.groups;
                let group = groups.entry(name.clone()).or_insert_with(new);
                group.candidates.take();
                &mut group.members
            }
            None => &mut subscribers.plain,
        };
        let before = members.interest(key.is_shared());
        let old = members.insert(session, member);
        if old.is_none() {
            self.subscriptions += 1;
            self.shared_subscriptions += usize::from(key.is_shared());
        }
        let after = members.interest(key.is_shared());
        if old != Some(member) {
            self.local.touch();
        }
        (before != after).then(|| InterestChange {
            key: key.clone(),
            interest: after,
        })
    }

    /// Removes a session's subscription.
    pub fn unsubscribe(
        &mut self,
        session: SessionKey,
        key: &SubscriptionFilter,
    ) -> Option<InterestChange> {
        let subscribers = self.local.get_mut(&key.filter)?;
        let members = match &key.share_name {
            Some(name) => {
                let group = subscribers.groups.get_mut(name)?;
                group.candidates.take();
                &mut group.members
            }
            None => &mut subscribers.plain,
        };
        let before = members.interest(key.is_shared());
        members.remove(session)?;
        self.subscriptions -= 1;
        self.shared_subscriptions -= usize::from(key.is_shared());
        let after = members.interest(key.is_shared());
        if let (Some(name), None) = (&key.share_name, after) {
            subscribers.groups.remove(name);
        }
        let unused = subscribers.plain.members.is_empty() && subscribers.groups.is_empty();
        self.local.touch();
        if unused {
            self.local.remove(&key.filter);
        }
        (before != after).then(|| InterestChange {
            key: key.clone(),
            interest: after,
        })
    }

    /// A member of a group connected or disconnected: only shared subscriptions depend on it.
    pub fn set_connected(
        &mut self,
        session: SessionKey,
        key: &SubscriptionFilter,
        connected: bool,
    ) -> Option<InterestChange> {
        let name = key.share_name.as_ref()?;
        let subscribers = self.local.get_mut(&key.filter)?;
        let group = subscribers.groups.get_mut(name)?;
        group.candidates.take();
        let members = &mut group.members;
        let before = members.interest(true);
        let mut member = *members.members.get(&session)?;
        member.connected = connected;
        members.insert(session, member);
        let after = members.interest(true);
        self.local.touch();
        (before != after).then(|| InterestChange {
            key: key.clone(),
            interest: after,
        })
    }

    /// The interests of another place have changed.
    pub fn apply(&mut self, place: Place, change: &InterestChange) {
        let filter = &change.key.filter;
        match (&change.key.share_name, change.interest) {
            (None, Some(interest)) => {
                self.peers.entry(filter).plain.insert(place, interest);
            }
            (Some(name), Some(interest)) => {
                let new = || PeerGroup {
                    key: change.key.to_string().into(),
                    places: BTreeMap::new(),
                    turns: Turns::default(),
                    peers: OnceCell::new(),
                };
                let group = self
                    .peers
                    .entry(filter)
                    .groups
                    .entry(name.clone())
                    .or_insert_with(new);
                group.peers.take();
                group.places.insert(place, interest);
            }
            (name, None) => self.remove_peer(place, filter, name.as_ref()),
        }
        self.peers.touch();
    }

    /// The interest of a group's members in another place that wait for their clients.
    pub fn absent_members(&self, place: Place, key: &SubscriptionFilter) -> Option<Interest> {
        let peers = self.peers.get(&key.filter)?;
        let group = peers.groups.get(key.share_name.as_ref()?)?;
        let interest = group.places.get(&place)?;
        interest.persistent.then_some(Interest {
            weight: 0,
            ..*interest
        })
    }

    fn remove_peer(
        &mut self,
        place: Place,
        filter: &thicket_session::topic::TopicFilter,
        name: Option<&ShareName>,
    ) {
        let Some(peers) = self.peers.get_mut(filter) else {
            return;
        };
        match name {
            None => {
                peers.plain.remove(&place);
            }
            Some(name) => {
                let emptied = peers.groups.get_mut(name).is_some_and(|group| {
                    group.peers.take();
                    group.places.remove(&place);
                    group.places.is_empty()
                });
                if emptied {
                    peers.groups.remove(name);
                }
            }
        }
        if peers.plain.is_empty() && peers.groups.is_empty() {
            self.peers.remove(filter);
        }
    }

    /// Whether another node subscribes to exactly this filter.
    pub fn is_wanted_by(&self, node: NodeSlot, filter: &TopicFilter) -> bool {
        let peers = self.peers.get(filter);
        peers.is_some_and(|peers| peers.plain.contains_key(&Place::Node(node)))
    }

    /// Makes routes be computed again: what sessions may read has changed.
    pub const fn touch(&mut self) {
        self.local.touch();
    }

    /// Where messages of `topic` go. `may_receive`: whether a session may read it; those that may not are left out.
    pub fn route(&mut self, topic: &str, may_receive: &dyn Fn(SessionKey) -> bool) -> Rc<Route> {
        let generation = self
            .local
            .generation()
            .wrapping_add(self.peers.generation());
        if let Some(route) = self.cache.get(topic, generation) {
            return Rc::clone(route);
        }
        let route = Rc::new(self.compute_route(topic, may_receive));
        let before = self
            .cache
            .insert(topic, generation, Rc::clone(&route), route.bytes());
        if let Some(before) = before {
            route.published.set(before.published.get());
        }
        route
    }

    /// The number and limit of cached routes.
    pub fn cached(&self) -> Remembered {
        Remembered::new(
            "routes of topics to clients",
            self.cache.len(),
            self.cache.maximum_entries(),
        )
        .with_bytes(self.cache.bytes())
    }

    /// The topics whose routes are cached.
    pub fn remembered(&self) -> impl Iterator<Item = (&str, &Rc<Route>)> {
        self.cache.iter()
    }

    fn note_steps(&self, steps: u64) {
        self.steps.set(self.steps.get() + steps);
    }

    /// How many steps in trees of filters were taken since the last call.
    pub fn take_steps(&self) -> u64 {
        self.steps.take()
    }
}

/// Topics that clients may not publish to: the nodes', the broker's own, and what looks like a shared subscription.
pub(in crate::worker) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$')
        && ["$thicket/", "$SYS/", "$share/"]
            .iter()
            .any(|prefix| topic.starts_with(prefix))
        && !is_bridge_state(topic)
}

/// The topics on which brokers of another kind say whether their bridges to this node are connected, also in the wills of the bridges. They are the
/// only ones below `$SYS/` that clients publish, and no node publishes any of them.
pub(in crate::worker) fn is_bridge_state(topic: &str) -> bool {
    topic
        .strip_prefix("$SYS/broker/connection/")
        .is_some_and(|rest| rest.ends_with("/state"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_count_and_a_subscription_that_changes_nothing_leaves_routes() {
        const MEMBERS: u32 = 100;
        let mut interests = Interests::new(1, 128);
        let filter = SubscriptionFilter::parse("$share/g/t").expect("a good filter");
        let member = Member::away(Subscription::default());
        for number in 0..MEMBERS {
            interests.subscribe(SessionKey(number), &filter, member);
        }
        let route = interests.route("t", &|_| true);
        assert!(interests.take_steps() >= u64::from(MEMBERS));
        assert_eq!(route.groups[0].local.len(), MEMBERS as usize);
        assert!(route.find_group("$share/g/t").is_some() && route.find_group("$share/g").is_none());
        interests.subscribe(SessionKey(7), &filter, member);
        assert!(Rc::ptr_eq(&route, &interests.route("t", &|_| true)));
        let connected = Member {
            connected: true,
            ..member
        };
        interests.subscribe(SessionKey(7), &filter, connected);
        let route = interests.route("t", &|_| true);
        let first = &route.groups[0].local[0];
        assert_eq!(
            (first.recipient.session, first.connected),
            (SessionKey(7), true)
        );
    }
}
