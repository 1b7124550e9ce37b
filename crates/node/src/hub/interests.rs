//! Interests: of the workers, in aggregate, and of other nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::{cell::Cell, rc::Rc, sync::Arc};

use thicket_mqtt::Qos;
use thicket_overlay::routing::RoutingMode;
use thicket_overlay::{InterestKey, InterestValue, NodeSlot, Sharing};
use thicket_session::topic::{
    MatchCache, ShareName, SubscriptionFilter, SubscriptionTree, TopicFilter,
};

use super::Hub;
use crate::{
    Now, Remembered, WorkerId,
    messages::{Interest, InterestChange, Place, ToWorker, compare_share_key, search_near},
    work,
};

/// Topics whose routes to workers are cached.
const CACHED_TOPICS: usize = 65_536;
/// Bytes of cached routes.
const CACHED_BYTES: usize = 16 * 1024 * 1024;

/// The workers with subscriptions to one filter.
#[derive(Debug, Default)]
struct Workers {
    plain: BTreeMap<WorkerId, Interest>,
    groups: BTreeMap<ShareName, Group>,
}

/// The workers that have members of one shared subscription.
#[derive(Debug)]
struct Group {
    /// `$share/name/filter`.
    key: Arc<str>,
    places: BTreeMap<WorkerId, Interest>,
    /// The same for routes.
    list: Rc<GroupWorkers>,
}

/// The workers that have members of a shared subscription, ascending.
pub(super) type GroupWorkers = Vec<(WorkerId, Interest)>;

/// The workers with subscriptions that match one topic.
#[derive(Debug)]
pub(super) struct WorkerRoute {
    pub plain: Vec<WorkerId>,
    /// `$share/name/filter` with the workers that have members, ascending.
    groups: Vec<(Arc<str>, Rc<GroupWorkers>)>,
    /// Behind the place in `groups` where one was found last.
    found: Cell<usize>,
}

impl WorkerRoute {
    /// The workers with members of a shared subscription, if it matches.
    pub fn group(&self, name: &str, filter: &str) -> Option<&GroupWorkers> {
        let index = search_near(&self.groups, self.found.get(), |(key, _)| {
            compare_share_key(key, name, filter)
        })?;
        self.found.set(index + 1);
        self.groups.get(index).map(|(_, places)| &**places)
    }
}

/// Changes of a worker on their way to all workers and nodes.
#[derive(Debug)]
struct Settling {
    sequence: u64,
    /// What each worker must have applied, by worker.
    peers: Vec<u64>,
    /// What each other node must have applied.
    version: u64,
}

/// Changes of another node on their way to our workers.
#[derive(Debug)]
struct Applying {
    peers: Vec<u64>,
    slot: NodeSlot,
    version: u64,
}

/// All interests that a hub has.
#[derive(Debug)]
pub(super) struct Interests {
    tree: SubscriptionTree<Workers>,
    cache: MatchCache<Rc<WorkerRoute>>,
    /// The interests of other nodes: removed key by key when one goes down.
    remote: BTreeMap<NodeSlot, BTreeSet<SubscriptionFilter>>,
    /// Sequence of the last `Peers` message to each worker, and of the last one it applied.
    sent: Vec<u64>,
    applied: Vec<u64>,
    settling: Vec<VecDeque<Settling>>,
    applying: VecDeque<Applying>,
    version: u64,
    turn: usize,
    /// Steps taken in the tree in this round.
    steps: u64,
    /// All workers: the route of a topic for which this round has no time.
    everywhere: Rc<WorkerRoute>,
}

impl Interests {
    pub fn new(workers: u8, seed: u64) -> Self {
        let all = (0..workers).map(WorkerId).collect();
        let workers = usize::from(workers);
        Self {
            tree: SubscriptionTree::new(seed ^ 3),
            cache: MatchCache::new(seed ^ 4, CACHED_TOPICS, CACHED_BYTES),
            remote: BTreeMap::new(),
            sent: vec![0; workers],
            applied: vec![0; workers],
            settling: (0..workers).map(|_| VecDeque::new()).collect(),
            applying: VecDeque::new(),
            version: 0,
            turn: 0,
            steps: 0,
            everywhere: Rc::new(WorkerRoute {
                plain: all,
                groups: Vec::new(),
                found: Cell::new(0),
            }),
        }
    }

    /// Applies a worker's change. Returns the interest of the whole node in the filter now.
    fn apply(&mut self, worker: WorkerId, change: &InterestChange) -> Option<Interest> {
        self.steps += work::CHANGE;
        let workers = self.tree.entry(&change.key.filter);
        let mut group = change.key.share_name.as_ref().map(|name| {
            let new = || Group {
                key: change.key.to_string().into(),
                places: BTreeMap::new(),
                list: Rc::default(),
            };
            workers.groups.entry(name.clone()).or_insert_with(new)
        });
        let places = match &mut group {
            None => &mut workers.plain,
            Some(group) => &mut group.places,
        };
        match change.interest {
            Some(interest) => places.insert(worker, interest),
            None => places.remove(&worker),
        };
        let whole = places.values().copied().reduce(|left, right| Interest {
            qos: left.qos.max(right.qos),
            persistent: left.persistent || right.persistent,
            weight: left.weight.saturating_add(right.weight),
        });
        if let Some(group) = group {
            let places = group.places.iter();
            group.list = Rc::new(places.map(|(worker, it)| (*worker, *it)).collect());
        }
        if let (Some(name), None) = (&change.key.share_name, whole) {
            workers.groups.remove(name);
        }
        let unused = workers.plain.is_empty() && workers.groups.is_empty();
        self.tree.touch();
        if unused {
            self.tree.remove(&change.key.filter);
        }
        whole
    }

    /// Whether this round has searched for recipients enough: clients determine how long that takes, by their filters and topics.
    pub const fn has_looked_enough(&self) -> bool {
        self.steps >= work::ROUND
    }

    /// Counts work besides searches.
    pub const fn note_work(&mut self, steps: u64) {
        self.steps += steps;
    }

    /// Another round begins.
    pub const fn begin_round(&mut self) {
        self.steps = 0;
    }

    /// The number and limit of cached routes.
    pub fn cached(&self) -> Remembered {
        Remembered::new(
            "routes of topics to workers",
            self.cache.len(),
            self.cache.maximum_entries(),
        )
        .with_bytes(self.cache.bytes())
    }

    /// The workers with subscriptions that match `topic`; all workers, and no shared subscription, if it is not known and this round has searched
    /// enough. Workers match what they are given themselves, within what their rounds may do, and pass on what members elsewhere are to have: one
    /// batch of another node has thousands of messages, and filters of one client can make each of them a millisecond's work.
    pub fn route(&mut self, topic: &str) -> Rc<WorkerRoute> {
        let generation = self.tree.generation();
        if let Some(route) = self.cache.get(topic, generation) {
            return Rc::clone(route);
        }
        if self.has_looked_enough() {
            thicket_session::reach!("hub: a message goes to all workers, unmatched");
            return Rc::clone(&self.everywhere);
        }
        let all = self.everywhere.plain.len();
        let mut plain = BTreeSet::new();
        let mut groups = Vec::new();
        self.steps += self.tree.for_each_match(topic, |workers| {
            if plain.len() < all {
                plain.extend(workers.plain.keys().copied());
            }
            let each = workers.groups.values();
            groups.extend(each.map(|group| (Arc::clone(&group.key), Rc::clone(&group.list))));
        });
        self.steps += work::GROUP * groups.len() as u64;
        groups.sort_unstable_by(|(left, _), (right, _)| Arc::cmp(left, right));
        groups.shrink_to_fit();
        let bytes = 64 + plain.len() + groups.len() * size_of::<(Arc<str>, Rc<GroupWorkers>)>();
        let route = Rc::new(WorkerRoute {
            plain: plain.into_iter().collect(),
            groups,
            found: Cell::new(0),
        });
        self.cache
            .insert(topic, generation, Rc::clone(&route), bytes);
        route
    }

    /// The interests of a node are these from now on. Returns the changes for the workers.
    pub fn send_again(
        &mut self,
        slot: NodeSlot,
        wanted: &BTreeMap<SubscriptionFilter, Interest>,
    ) -> PlaceChanges {
        let place = Place::Node(slot);
        let announced = self.remote.remove(&slot).unwrap_or_default();
        let gone = announced
            .into_iter()
            .filter(|key| !wanted.contains_key(key));
        let gone = gone.map(|key| (key, None));
        let there = wanted.iter().map(|(key, it)| (key.clone(), Some(*it)));
        let changes = gone.chain(there);
        let changes = changes.map(|(key, interest)| (place, InterestChange { key, interest }));
        let changes = changes.collect();
        if !wanted.is_empty() {
            self.remote.insert(slot, wanted.keys().cloned().collect());
        }
        changes
    }

    /// One worker of a group: connected members first, in turn.
    pub fn choose(&mut self, places: &[(WorkerId, Interest)]) -> Option<WorkerId> {
        self.turn = self.turn.wrapping_add(1);
        let total: usize = places
            .iter()
            .map(|(_, interest)| interest.weight as usize)
            .sum();
        if total == 0 {
            return places
                .get(self.turn.checked_rem(places.len())?)
                .map(|(worker, _)| *worker);
        }
        let mut turn = self.turn % total;
        for (worker, interest) in places {
            if turn < interest.weight as usize {
                return Some(*worker);
            }
            turn -= interest.weight as usize;
        }
        None
    }
}

impl Hub {
    /// The interests of a worker have changed.
    pub(super) fn handle_interest(
        &mut self,
        from: WorkerId,
        sequence: u64,
        changes: Vec<InterestChange>,
    ) {
        for change in &changes {
            let key = interest_key(&change.key);
            let wanted = self.interests.apply(from, change);
            let everything = self.flooding(&key).map(|all| Interest {
                persistent: wanted.is_some_and(|wanted| wanted.persistent),
                ..all
            });
            let version = match everything.or(wanted) {
                Some(interest) => self.cx.overlay.set_interest(
                    key,
                    InterestValue {
                        qos: interest.qos,
                        persistent: interest.persistent,
                        weight: interest.weight,
                    },
                ),
                None => self.cx.overlay.clear_interest(&key),
            };
            self.interests.version = self.interests.version.max(version);
        }
        let place = Place::Worker(from);
        let changes: Vec<_> = changes.into_iter().map(|change| (place, change)).collect();
        self.send_to_workers(Some(from), &changes);
        let settling = Settling {
            sequence,
            peers: self.interests.sent.clone(),
            version: self.interests.version,
        };
        self.interests.settling[usize::from(from.0)].push_back(settling);
        self.settle_interests();
    }

    /// A node that floods is interested in everything, whatever its clients subscribe to (Overlays 5.1): so each of the others sends it all, at the
    /// QoS of the publication.
    fn flooding(&self, key: &InterestKey) -> Option<Interest> {
        let floods = self.cx.config.overlay.routing.mode == RoutingMode::Flood;
        (floods && *key == everything()).then_some(Interest {
            qos: Qos::ExactlyOnce,
            persistent: false,
            weight: 0,
        })
    }

    /// Announces the interest of a node that floods.
    pub(super) fn start_flooding(&mut self) {
        let key = everything();
        if let Some(Interest {
            qos,
            persistent,
            weight,
        }) = self.flooding(&key)
        {
            let value = InterestValue {
                qos,
                persistent,
                weight,
            };
            self.interests.version = self.cx.overlay.set_interest(key, value);
        }
    }

    /// Sends changes to every worker but one.
    fn send_to_workers(&mut self, except: Option<WorkerId>, changes: &[(Place, InterestChange)]) {
        for index in 0..self.cx.config.workers {
            let worker = WorkerId(index);
            if Some(worker) == except {
                continue;
            }
            let sequence = &mut self.interests.sent[usize::from(index)];
            *sequence += 1;
            let content = ToWorker::Peers {
                sequence: *sequence,
                changes: changes.to_vec(),
            };
            self.cx.send_to_worker(worker, content);
        }
    }

    pub(super) fn handle_peers_applied(&mut self, from: WorkerId, sequence: u64) {
        let applied = &mut self.interests.applied[usize::from(from.0)];
        *applied = (*applied).max(sequence);
        self.settle_interests();
        let everywhere = |applying: &mut Applying, applied: &[u64]| {
            applying
                .peers
                .iter()
                .zip(applied)
                .all(|(sent, applied)| applied >= sent)
        };
        while let Some(done) = self
            .interests
            .applying
            .pop_front_if(|applying| everywhere(applying, &self.interests.applied))
        {
            self.cx.overlay.interests_applied(done.slot, done.version);
        }
    }

    /// Reports to each worker how far its changes are applied everywhere.
    pub(super) fn settle_interests(&mut self) {
        let version = self.cx.overlay.settled_version();
        for index in 0..self.cx.config.workers {
            let mut settled = None;
            let applied = &self.interests.applied;
            let queue = &mut self.interests.settling[usize::from(index)];
            let is_done = |settling: &mut Settling| {
                let others = settling.peers.iter().zip(applied).enumerate();
                settling.version <= version
                    && others
                        .filter(|(worker, _)| *worker != usize::from(index))
                        .all(|(_, (sent, applied))| applied >= sent)
            };
            while let Some(done) = queue.pop_front_if(is_done) {
                settled = Some(done.sequence);
            }
            if let Some(sequence) = settled {
                let retained = self.retained.arrivals();
                let content = ToWorker::InterestSettled { sequence, retained };
                self.cx.send_to_worker(WorkerId(index), content);
            }
        }
    }

    /// The interests of another node have changed.
    pub(super) fn handle_interest_changed(
        &mut self,
        now: Now,
        slot: NodeSlot,
        version: u64,
        changes: Vec<thicket_overlay::InterestChange>,
    ) {
        let place = Place::Node(slot);
        let mut announced = Vec::with_capacity(changes.len());
        if self.hints_note_node(now, slot, &changes) {
            // All its interests; what was kept of them from before is void.
            announced = self.interests.send_again(slot, &BTreeMap::new());
        }
        self.interests
            .note_work(work::CHANGE * changes.len() as u64);
        let keys = self.interests.remote.entry(slot).or_default();
        for change in changes {
            // A group whose name no client could have chosen is ignored.
            let Some(key) = subscription_filter(&change.key) else {
                continue;
            };
            let interest = change.value.map(interest_of);
            match interest {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(&key),
            };
            announced.push((place, InterestChange { key, interest }));
        }
        self.send_to_workers(None, &announced);
        self.interests.applying.push_back(Applying {
            peers: self.interests.sent.clone(),
            slot,
            version,
        });
    }

    /// A node is down: its interests are void, but for what `hints` keeps of them.
    pub(super) fn void_interests_of(&mut self, slot: NodeSlot) -> PlaceChanges {
        let applying = &mut self.interests.applying;
        applying.retain(|applying| applying.slot != slot);
        self.interests.send_again(slot, &BTreeMap::new())
    }

    /// Sends every worker changes of interests of nodes that announce nothing themselves.
    pub(super) fn send_places(&mut self, changes: &PlaceChanges) {
        if !changes.is_empty() {
            self.send_to_workers(None, changes);
        }
    }
}

/// Changes of the interests of places.
pub(super) type PlaceChanges = Vec<(Place, InterestChange)>;

/// An interest of another node in the types of workers; `None`: of a group whose name no client could have chosen.
pub(super) fn entry_of(
    key: &InterestKey,
    value: InterestValue,
) -> Option<(SubscriptionFilter, Interest)> {
    Some((subscription_filter(key)?, interest_of(value)))
}

const fn interest_of(value: InterestValue) -> Interest {
    Interest {
        qos: value.qos,
        persistent: value.persistent,
        weight: value.weight,
    }
}

/// The interest in all topics that do not start with `$`.
pub(super) fn everything() -> InterestKey {
    InterestKey {
        filter: TopicFilter::new("#").expect("a filter"),
        sharing: Sharing::Plain,
    }
}

fn interest_key(filter: &SubscriptionFilter) -> InterestKey {
    let sharing = match &filter.share_name {
        None => Sharing::Plain,
        Some(name) => Sharing::Group(name.as_str().into()),
    };
    InterestKey {
        filter: filter.filter.clone(),
        sharing,
    }
}

fn subscription_filter(key: &InterestKey) -> Option<SubscriptionFilter> {
    match &key.sharing {
        Sharing::Plain => Some(SubscriptionFilter {
            share_name: None,
            filter: key.filter.clone(),
        }),
        Sharing::Group(name) => SubscriptionFilter::parse_with_maximum_levels(
            &format!("$share/{name}/{}", key.filter),
            usize::MAX,
        )
        .ok(),
    }
}
