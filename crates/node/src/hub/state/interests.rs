//! The interests of the workers of this node, and which of their changes are settled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::{cell::Cell, rc::Rc, sync::Arc};

use thicket_overlay::NodeSlot;
use thicket_session::topic::{MatchCache, ShareName, SubscriptionFilter, SubscriptionTree};

use crate::{
    Remembered, WorkerId,
    messages::{Interest, InterestChange, Place, compare_share_key, search_near},
    work,
};

/// Topics whose routes to workers are cached.
pub(in crate::hub) const CACHED_TOPICS: usize = 65_536;

/// Bytes of cached routes.
pub(in crate::hub) const CACHED_BYTES: usize = 16 * 1024 * 1024;

/// The workers with subscriptions to one filter.
#[derive(Debug, Default)]
pub(in crate::hub) struct Workers {
    pub plain: BTreeMap<WorkerId, Interest>,
    pub groups: BTreeMap<ShareName, Group>,
}

/// The workers that have members of one shared subscription.
#[derive(Debug)]
pub(in crate::hub) struct Group {
    /// `$share/name/filter`.
    pub key: Arc<str>,
    pub places: BTreeMap<WorkerId, Interest>,
    /// The same for routes.
    pub list: Rc<GroupWorkers>,
}

/// The workers that have members of a shared subscription, ascending.
pub(in crate::hub) type GroupWorkers = Vec<(WorkerId, Interest)>;

/// The workers with subscriptions that match one topic.
#[derive(Debug)]
pub(in crate::hub) struct WorkerRoute {
    pub plain: Vec<WorkerId>,
    /// `$share/name/filter` with the workers that have members, ascending.
    pub groups: Vec<(Arc<str>, Rc<GroupWorkers>)>,
    /// Behind the place in `groups` where one was found last.
    pub found: Cell<usize>,
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
pub(in crate::hub) struct Settling {
    pub sequence: u64,
    /// What each worker must have applied, by worker.
    pub peers: Vec<u64>,
    /// What each other node must have applied.
    pub version: u64,
}

/// Changes of another node on their way to our workers.
#[derive(Debug)]
pub(in crate::hub) struct Applying {
    pub peers: Vec<u64>,
    pub slot: NodeSlot,
    pub version: u64,
}

/// All interests that a hub has.
#[derive(Debug)]
pub(in crate::hub) struct Interests {
    pub tree: SubscriptionTree<Workers>,
    pub cache: MatchCache<Rc<WorkerRoute>>,
    /// The interests of other nodes: removed key by key when one goes down.
    pub remote: BTreeMap<NodeSlot, BTreeSet<SubscriptionFilter>>,
    /// Sequence of the last `Peers` message to each worker, and of the last one it applied.
    pub sent: Vec<u64>,
    pub applied: Vec<u64>,
    pub settling: Vec<VecDeque<Settling>>,
    pub applying: VecDeque<Applying>,
    pub version: u64,
    pub turn: usize,
    /// Steps taken in the tree in this round.
    pub steps: u64,
    /// All workers: the route of a topic for which this round has no time.
    pub everywhere: Rc<WorkerRoute>,
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
    pub fn apply(&mut self, worker: WorkerId, change: &InterestChange) -> Option<Interest> {
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

/// Changes of the interests of places.
pub(in crate::hub) type PlaceChanges = Vec<(Place, InterestChange)>;
