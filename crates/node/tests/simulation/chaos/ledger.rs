//! What clients did and what they were told: enough to say afterwards whether a promise was broken.

use std::collections::BTreeMap;

use thicket_mqtt::{PacketId, Qos};
use thicket_session::topic::SubscriptionFilter;

/// A message that a client published.
#[derive(Debug, Clone)]
pub struct Publication {
    pub publisher: usize,
    /// Of the publisher's session.
    pub life: usize,
    /// Of the publisher's connections.
    pub connection: usize,
    pub topic: String,
    pub qos: Qos,
    pub retain: bool,
    pub submitted_at: u64,
    pub acknowledged_at: Option<u64>,
    /// Its publisher connected again before it was acknowledged, and sent it again.
    pub is_sent_again: bool,
}

/// A filter of a session.
#[derive(Debug, Clone)]
pub struct Held {
    pub filter: SubscriptionFilter,
    pub qos: Qos,
    /// When the SUBACK came.
    pub since: Option<u64>,
    /// When the client unsubscribed, or lost interest in some other way.
    pub until: Option<u64>,
}

/// A message that came to a session.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub publication: usize,
    pub qos: Qos,
    /// `forks` of the session then.
    pub forks: usize,
    /// Which of the client's connections it came over.
    pub connection: usize,
    /// Came because of a SUBSCRIBE.
    pub is_replay: bool,
    pub at: u64,
}

/// A session from its beginning to its end.
#[derive(Debug, Clone, Default)]
pub struct Life {
    pub began_at: u64,
    /// How often, and when last, the client connected while nodes were partitioned or just after: two nodes may have had the session,
    /// and one of them gave up what it had.
    pub forks: usize,
    pub forked_at: u64,
    pub held: Vec<Held>,
    pub arrivals: Vec<Arrival>,
    pub ended_at: Option<u64>,
}

/// What is known of a client.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub client_id: String,
    pub is_persistent: bool,
    pub lives: Vec<Life>,
    pub connections: usize,
    /// When the first CONNECT after that went out.
    pub connecting_at: Option<u64>,
    /// The node that the last CONNECT went to.
    pub node: usize,
    /// The node that said the last CONNACK.
    pub served_by: usize,
    /// When the last CONNACK came.
    pub connected_at: u64,
    /// The server must have the session.
    pub is_established: bool,
    /// A CONNECT with Clean Start went out and was not answered: whether the session has ended is unknown until one is.
    pub is_cleaning: bool,
    /// Its client did not wait for that answer, and the node did not notice: that CONNECT may yet end the session which a later one found
    /// or began on another node.
    pub may_be_cleaned: bool,
    /// Publications on their way, by packet identifier.
    pub publishing: BTreeMap<PacketId, usize>,
    /// SUBSCRIBEs on their way: which of `held`.
    pub subscribing: BTreeMap<PacketId, usize>,
    /// Connections that ended without DISCONNECT after their CONNACK, and those of which nobody knows.
    pub dropped: usize,
    pub uncertain: usize,
    /// The node that it was sent to, until it goes there.
    pub sent_to: Option<usize>,
    pub has_will: bool,
    /// Its connection was cut, and it may not know.
    pub is_cut: bool,
}

/// Everything.
#[derive(Debug, Default)]
pub struct Ledger {
    pub publications: Vec<Publication>,
    pub records: Vec<Record>,
    /// When the nodes were not all linked: from, to.
    pub disturbed: Vec<(u64, Option<u64>)>,
    /// Whenever nodes were partitioned each had all sessions.
    pub is_split: bool,
    /// Links stand still now and then, for whatever time; so do all links of a node that stands still.
    pub has_partitions: bool,
    /// While nodes were partitioned clients stayed where they were.
    pub is_still: bool,
    /// Messages are refused where they exceed a limit.
    pub is_cramped: bool,
    /// Nodes restart while they do not see others, and forget who subscribes there.
    pub forgets_interests: bool,
    /// When a node was killed.
    pub kills: Vec<u64>,
    /// Connections that ended: client, node, when. If the node dies in the next moment, the will may have gone out and go out again, or
    /// go out though it was called off.
    pub endings: Vec<(usize, usize, u64)>,
    /// Nodes besides that of a client.
    pub others: usize,
    /// The watcher hears all wills, whatever happens.
    pub hears_all_wills: bool,
    /// And those of sessions that outlive their connections.
    pub hears_stored_wills: bool,
    /// Wills that came to the watcher, by client.
    pub wills: BTreeMap<usize, usize>,
}

impl Record {
    pub fn life(&mut self) -> &mut Life {
        if self.lives.is_empty() {
            self.lives.push(Life::default());
        }
        self.lives.last_mut().expect("pushed above")
    }

    /// The session has ended, or may have.
    pub fn end_life(&mut self, at: u64) {
        self.is_established = false;
        if let Some(life) = self.lives.last_mut() {
            life.ended_at.get_or_insert(at);
        }
        self.subscribing.clear();
        self.publishing.clear();
    }

    /// A subscription that the client has and did not give up.
    pub fn holds(&self, filter: &str) -> bool {
        self.held_now().any(|held| held == filter)
    }

    /// The filters of all of them.
    pub fn held_now(&self) -> impl Iterator<Item = String> {
        let held = self.lives.last().into_iter().flat_map(|life| &life.held);
        held.filter(|held| held.until.is_none())
            .map(|held| held.filter.to_string())
    }
}

impl Ledger {
    /// When nodes began to be partitioned, if they were at some time from `from` to `to`.
    pub fn partitioned_since(&self, from: u64, to: u64) -> Option<u64> {
        let overlaps =
            |(start, end): &&(u64, Option<u64>)| to >= *start && end.is_none_or(|end| end >= from);
        Some(self.disturbed.iter().find(overlaps)?.0)
    }

    /// Whether all nodes saw each other from `from` to `to`.
    pub fn is_calm(&self, from: u64, to: u64) -> bool {
        self.disturbed
            .iter()
            .all(|(start, end)| to < *start || end.is_some_and(|end| end < from))
    }
}

/// What stands in a payload: the number of the publication.
pub fn payload_of(publication: usize) -> Vec<u8> {
    format!("p{publication}").into_bytes()
}

/// The number of the publication in a payload.
pub fn publication_of(payload: &[u8]) -> Option<usize> {
    std::str::from_utf8(payload)
        .ok()?
        .strip_prefix('p')?
        .parse()
        .ok()
}
