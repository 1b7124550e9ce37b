//! Interests: of the workers, in aggregate, and of other nodes.

use std::collections::BTreeMap;

use thicket_mqtt::Qos;
use thicket_overlay::routing::RoutingMode;
use thicket_overlay::{InterestKey, InterestValue, NodeSlot, Sharing};
use thicket_session::topic::{SubscriptionFilter, TopicFilter};

use super::Hub;
use crate::{
    Now, WorkerId,
    hub::state::interests::{Applying, PlaceChanges, Settling},
    messages::{Interest, InterestChange, Place, ToWorker},
    work,
};

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
                let since = self.retained.last_written();
                let content = ToWorker::InterestSettled { sequence, since };
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
