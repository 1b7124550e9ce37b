//! The sessions of a worker.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
};

use hashbrown::HashMap;
use slab::Slab;
use thicket_access::Grant;
use thicket_mqtt::{PacketId, Qos, ReasonCode};
use thicket_session::{
    server::{
        Delivery, Epoch, Inbound, MessageId, Outbound, OutboundLimits, StoredSession, StoredWill,
        Subscribed, Waiting,
    },
    time::Instant,
    topic::SubscriptionFilter,
};

pub(in crate::worker) use super::session_key::SessionKey;
use super::{
    arrivals::Begun,
    charge::{Charge, ChargedWill},
    divergence::{Ancestors, Divergence},
    merging::Merging,
    replica::{backup::Backup, replica_set::StoredAs, will::WillBackup},
    retained::{Overtaken, ReplayLine},
    rights::SessionRights,
    role::Role,
    seen::{AcceptedPublications, Named},
    tenants::Tenants,
};
use crate::{ConnectionId, Limits, TenantId, TenantLimits, marks::Marks, scope::prefix_of};

/// Seconds that mean never.
pub(in crate::worker) const NEVER: u32 = u32::MAX;

/// One session.
#[derive(Debug)]
pub(in crate::worker) struct Session {
    /// Never repeated in a worker.
    pub serial: u64,
    pub client_id: Rc<str>,
    /// Identity across nodes and moves.
    pub uid: u128,
    pub connection: Option<ConnectionId>,
    /// When its client connected last, here or where the session was before; `None`: unknown.
    pub connected_at: Option<Instant>,
    /// Session Expiry Interval in seconds; 0: ends with the connection, [`NEVER`]: never.
    pub expiry_interval: u32,
    /// When the connection ended; `None` while there is one.
    pub disconnected_at: Option<Instant>,
    /// Protocol level of the last connection, for reports; 0: it was elsewhere, or before the node started.
    pub protocol_version: u8,
    pub subscriptions: BTreeMap<SubscriptionFilter, Subscribed>,
    pub outbound: Outbound,
    pub inbound: Inbound,
    /// Acknowledgements to the client, in the order of its PUBLISHes; the front ones go as soon as they are done.
    pub acknowledgements: VecDeque<OwedAcknowledgement>,
    /// Sequence of `acknowledgements[0]`.
    pub first_acknowledgement: u64,
    /// QoS 2 messages of an earlier connection that others have not all admitted: by sequence, the count of numbers still open.
    pub orphaned_publications: BTreeMap<u64, u16>,
    pub will: Option<ChargedWill>,
    /// Which node holds it, of a session that ends with its connection.
    pub will_backup: Option<Box<WillBackup>>,
    /// When a delayed will is due.
    pub will_due: Option<Instant>,
    /// The subscriptions whose retained messages its connection gets.
    pub replays: ReplayLine,
    /// SUBACKs that wait until the interests are settled.
    pub gated_subacks: u32,
    /// Retained messages that arrived meanwhile, as messages.
    pub overtaken: Overtaken,
    pub dropped_messages: u64,
    /// When messages of its queue are dropped that have expired by then; `None`: none expires.
    pub messages_expire_at: Option<Instant>,
    /// This node's role for it.
    pub role: Role,
    /// Messages that came with it from elsewhere, and may still arrive here by themselves.
    pub imported: BTreeSet<MessageId>,
    /// The positions of the streams where the session was before.
    pub marks: Marks,
    /// The positions of the streams here when the session arrived; `None`: it began here.
    pub begun: Option<Rc<Begun>>,
    /// Who its client is, since its last connect here; `None`: unknown, or not checked.
    pub grant: Option<Arc<Grant>>,
    /// What it may do; `None`: everything.
    pub rights: Option<Box<SessionRights>>,
    /// Whose quota it counts towards.
    pub charge: Charge,
    /// Whose client's it is; set by [`Sessions`].
    tenant: Option<TenantId>,
    /// QoS 2 publications that it accepted, as it outlives its connection.
    pub accepted: AcceptedPublications,
    /// Where it is recorded.
    pub stored: StoredAs,
    /// See `StoredSession::epoch`.
    pub epoch: Epoch,
    /// Of the claim with Clean Start that began it; 0: it was begun otherwise.
    pub clean_epoch: Epoch,
    /// What differs from a branch that another node may have.
    pub divergence: Option<Box<Divergence>>,
    /// Sessions that it has merged completely.
    pub ancestors: Ancestors,
    /// A branch that is being merged.
    pub merging: Option<Box<Merging>>,
    /// It ends when its turn comes.
    pub is_over: bool,
    /// The hub's number of a merge that is reported when the backups have what was merged.
    pub merge_to_report: Option<u64>,
    /// The node was started with what was stored, and no other node has had all of it since.
    pub is_interrupted: bool,
}

/// An acknowledgement that waits for conditions or for its turn.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct OwedAcknowledgement {
    pub packet_id: PacketId,
    pub qos: Qos,
    pub reason_code: ReasonCode,
    /// Numbers that others have not acknowledged yet.
    pub open: u16,
}

impl Session {
    /// A new session without connection.
    pub fn new(
        serial: u64,
        client_id: Rc<str>,
        uid: u128,
        expiry_interval: u32,
        limits: &Limits,
    ) -> Self {
        let outbound_limits = OutboundLimits {
            messages: limits.queue_messages,
            bytes: limits.queue_bytes,
        };
        Self {
            serial,
            client_id,
            uid,
            connection: None,
            connected_at: None,
            expiry_interval,
            disconnected_at: None,
            protocol_version: 0,
            subscriptions: BTreeMap::new(),
            outbound: Outbound::new(outbound_limits, expiry_interval > 0),
            inbound: Inbound::default(),
            acknowledgements: VecDeque::new(),
            first_acknowledgement: 0,
            orphaned_publications: BTreeMap::new(),
            will: None,
            will_backup: None,
            will_due: None,
            replays: ReplayLine::default(),
            gated_subacks: 0,
            overtaken: Overtaken::default(),
            dropped_messages: 0,
            messages_expire_at: None,
            role: Role::Primary,
            imported: BTreeSet::new(),
            marks: Marks::new(),
            begun: None,
            accepted: AcceptedPublications::default(),
            stored: StoredAs::default(),
            epoch: Epoch::NONE,
            clean_epoch: Epoch::NONE,
            ancestors: Ancestors::default(),
            divergence: None,
            merging: None,
            is_over: false,
            merge_to_report: None,
            is_interrupted: false,
            grant: None,
            rights: None,
            charge: Charge::default(),
            tenant: None,
        }
    }

    /// Whether it accepts a message that has arrived: see [`Self::is_new`].
    pub fn is_new_message(&mut self, delivery: &Delivery, is_seen: bool) -> bool {
        let publication = Named::of(&delivery.message);
        publication.is_none_or(|publication| self.is_new(publication, delivery.qos, is_seen))
    }

    /// Whether it accepts a QoS 2 publication of a persistent publisher. `is_seen`: it arrived here before, though perhaps not for this session.
    pub fn is_new(&mut self, publication: Named, qos: Qos, is_seen: bool) -> bool {
        if !self.is_persistent() || (is_seen && qos == Qos::AtMostOnce) {
            return !is_seen;
        }
        if is_seen {
            self.accepted.insert_again(publication)
        } else {
            self.accepted.insert(publication)
        }
    }

    /// A message that was begun is not sent: as if it had been delivered and acknowledged [MQTT-3.1.2-25].
    pub fn drop_started(&mut self, packet_id: Option<PacketId>) {
        if let Some(packet_id) = packet_id {
            self.outbound.handle_puback(packet_id);
            self.outbound.handle_pubrec(packet_id, true);
        }
    }

    /// Whether the session outlives its connection.
    pub const fn is_persistent(&self) -> bool {
        self.expiry_interval > 0
    }

    /// Its will, unless its client may not publish it: a node that takes over the session without its client does not check rights.
    pub fn lasting_will(&self) -> Option<&StoredWill> {
        let may_publish = |will: &&StoredWill| match &self.rights {
            Some(rights) => rights.may_publish(&will.topic),
            None => true,
        };
        self.will.as_deref().filter(may_publish)
    }

    /// What a store keeps of it beside its subscriptions and messages.
    pub fn value(&self) -> StoredSession {
        StoredSession {
            client_id: self.client_id.to_string(),
            uid: self.uid,
            epoch: self.epoch,
            expiry_interval: self.expiry_interval,
            disconnected_at: self.disconnected_at,
            will: self.lasting_will().cloned(),
            will_due: self.will_due,
        }
    }

    /// Forgets what belongs to the connection that ended.
    pub fn handle_disconnected(&mut self, now: Instant) {
        self.connection = None;
        self.disconnected_at = Some(now);
        for owed in std::mem::take(&mut self.acknowledgements) {
            if owed.qos == Qos::ExactlyOnce && owed.reason_code.is_error() {
                self.inbound.handle_undelivered_refusal(owed.packet_id);
            } else if owed.qos == Qos::ExactlyOnce && owed.open > 0 {
                self.orphaned_publications
                    .insert(self.first_acknowledgement, owed.open);
            } else if owed.qos == Qos::ExactlyOnce {
                // Its turn had not come, its conditions are met.
                self.inbound.handle_met(owed.packet_id);
            }
            self.first_acknowledgement += 1;
        }
        self.inbound.handle_disconnected();
        self.replays = ReplayLine::default();
    }

    /// The sequence of the next acknowledgement put in line.
    pub fn next_acknowledgement(&self) -> u64 {
        self.first_acknowledgement + self.acknowledgements.len() as u64
    }

    /// An acknowledgement of the present connection that still waits.
    pub fn acknowledgement_mut(&mut self, sequence: u64) -> Option<&mut OwedAcknowledgement> {
        let index = sequence.checked_sub(self.first_acknowledgement)?;
        self.acknowledgements.get_mut(index as usize)
    }

    /// Whether a message that arrives came already where the session was before. A QoS 0 message that may have come, or was left out there, is better
    /// lost than late.
    #[inline]
    pub fn is_imported(&mut self, id: &MessageId, qos: Qos) -> bool {
        let is_new_here =
            self.marks.is_empty() && self.imported.is_empty() && self.outbound.finished().is_none();
        !is_new_here && self.came_where_it_was(id, qos)
    }

    #[cold]
    fn came_where_it_was(&mut self, id: &MessageId, qos: Qos) -> bool {
        if !id.is_sent() {
            return false;
        }
        if qos == Qos::AtMostOnce {
            return self.marks.reach(*id);
        }
        let finished = self.outbound.finished();
        // Beyond the mark there can be copies of retained messages.
        self.marks.contain(*id)
            || self.imported.remove(id)
            || finished.is_some_and(|finished| finished.contains(*id, None))
    }

    /// Whether the client has more than `maximum` messages of QoS 1 and 2 that are not acknowledged.
    pub fn unacknowledged_exceeds(&self, maximum: usize) -> bool {
        // A QoS 2 identifier counts until PUBREL, in line or not; the exact count is rarely needed.
        let held = self.inbound.len();
        let in_line = &self.acknowledgements;
        held + in_line.len() > maximum
            && held
                + in_line
                    .iter()
                    .filter(|owed| owed.qos == Qos::AtLeastOnce)
                    .count()
                > maximum
    }

    /// Whether something waits for capacity at the connection.
    pub fn has_more(&self) -> bool {
        !self.outbound.is_drained() || !self.replays.is_empty()
    }

    /// What a backup keeps of it; `None`: this node is no backup.
    pub fn backup(&self) -> Option<&Backup> {
        match &self.role {
            Role::Backup(backup) => Some(backup),
            Role::Primary | Role::Switching(_) | Role::Handed(_) => None,
        }
    }

    /// See [`Self::backup`].
    pub fn backup_mut(&mut self) -> Option<&mut Backup> {
        match &mut self.role {
            Role::Backup(backup) => Some(backup),
            Role::Primary | Role::Switching(_) | Role::Handed(_) => None,
        }
    }

    /// Whether its client may be served: no other node is about to have it.
    pub fn is_in_service(&self) -> bool {
        match &self.role {
            Role::Primary | Role::Switching(_) => true,
            Role::Handed(_) => self.role.is_branch(),
            Role::Backup(_) => false,
        }
    }

    /// Puts an acknowledgement in line.
    pub fn owe(&mut self, owed: OwedAcknowledgement) {
        self.acknowledgements.push_back(owed);
    }
}

/// All sessions of a worker.
#[derive(Debug)]
pub(in crate::worker) struct Sessions {
    slab: Slab<Session>,
    backups: usize,
    /// Whose clients they are, and what waits for those that live here.
    pub tenants: Tenants,
    by_client: HashMap<Rc<str>, SessionKey, foldhash::fast::FixedState>,
}

impl Sessions {
    /// `seed` keeps clients from choosing identifiers that collide.
    pub fn new(seed: u64, tenants: &[TenantLimits]) -> Self {
        Self {
            slab: Slab::new(),
            backups: 0,
            tenants: Tenants::new(tenants),
            by_client: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
        }
    }

    pub fn get(&self, key: SessionKey) -> Option<&Session> {
        self.slab.get(key.0 as usize)
    }

    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.slab.get_mut(key.0 as usize)
    }

    /// The session if it is still the one with this `serial`.
    pub fn get_same(&mut self, key: SessionKey, serial: u64) -> Option<&mut Session> {
        self.get_mut(key).filter(|session| session.serial == serial)
    }

    pub fn find(&self, client_id: &str) -> Option<SessionKey> {
        self.by_client.get(client_id).copied()
    }

    pub fn insert(&mut self, session: Session) -> SessionKey {
        let key = self.insert_backup(session);
        self.backups -= 1;
        self.name(key);
        key
    }

    /// A session whose primary is another node: it is not found by its client identifier.
    pub fn insert_backup(&mut self, session: Session) -> SessionKey {
        self.backups += 1;
        SessionKey(
            u32::try_from(self.slab.insert(session))
                .expect("fewer than 2^32 sessions fit in memory"),
        )
    }

    /// The backup was promoted.
    pub fn promote(&mut self, key: SessionKey) {
        self.backups -= 1;
        self.name(key);
    }

    fn name(&mut self, key: SessionKey) {
        let Some(session) = self.slab.get_mut(key.0 as usize) else {
            return;
        };
        let name = Rc::clone(&session.client_id);
        session.tenant = self.tenants.of_prefix(prefix_of(&name));
        let tally = self.tenants.add_session(session.tenant);
        session.outbound.set_tally(Some(tally));
        self.by_client.insert(name, key);
    }

    /// The session belongs to a client of this tenant, which its name need not contain.
    pub fn assign(&mut self, key: SessionKey, tenant: Option<TenantId>) {
        if let Some(session) = self.slab.get_mut(key.0 as usize)
            && session.tenant != tenant
        {
            self.tenants.remove_session(session.tenant);
            session.tenant = tenant;
            let tally = self.tenants.add_session(tenant);
            session.outbound.set_tally(Some(tally));
        }
    }

    pub fn remove(&mut self, key: SessionKey) -> Option<Session> {
        let mut session = self.slab.try_remove(key.0 as usize)?;
        session.outbound.set_tally(None);
        if session.backup().is_some() {
            self.backups -= 1;
        } else {
            self.tenants.remove_session(session.tenant);
            self.by_client.remove(&session.client_id);
        }
        Some(session)
    }

    /// Number of sessions whose primary is here.
    pub fn len(&self) -> usize {
        self.slab.len() - self.backups
    }

    /// Number of backups of sessions whose primaries are on other nodes.
    pub const fn backups(&self) -> usize {
        self.backups
    }

    /// Messages that wait for those that live here, and their bytes.
    pub fn waiting(&self) -> Waiting {
        self.tenants.waiting()
    }

    /// Every key is below this.
    pub fn slots(&self) -> usize {
        self.slab.capacity()
    }

    /// Backups of sessions whose primaries are on other nodes.
    pub fn iter_backups(&self) -> impl Iterator<Item = &Backup> {
        let all = self.slab.iter();
        all.filter_map(|(_, session)| session.backup())
    }

    /// Backups of sessions whose primaries are on other nodes.
    pub fn backups_mut(&mut self) -> impl Iterator<Item = &mut Backup> {
        let all = self.slab.iter_mut();
        all.filter_map(|(_, session)| session.backup_mut())
    }

    /// Sessions whose primary is here.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionKey, &mut Session)> {
        self.slab
            .iter_mut()
            .filter(|(_, session)| session.backup().is_none())
            .map(|(key, session)| (SessionKey(key as u32), session))
    }

    /// Sessions whose primary is here.
    pub fn iter(&self) -> impl Iterator<Item = (SessionKey, &Session)> {
        self.slab
            .iter()
            .filter(|(_, session)| session.backup().is_none())
            .map(|(key, session)| (SessionKey(key as u32), session))
    }
}

/// Why a connection left its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Cause {
    /// The network connection ended, from either side, or the client sent DISCONNECT: the will, if still there, is due.
    Closed,
    /// The client connected again.
    TakenOver,
    /// The session moves to another node with its will.
    Moved,
}
