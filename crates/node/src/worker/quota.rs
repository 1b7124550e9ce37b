//! Quotas at a worker: of one user and one address, of sessions that outlive their connections, of the bytes of subscriptions and wills, and of what is
//! queued; of one tenant, of sessions and of what is queued.
//!
//! Each session is charged to its client's user, if it has one, and to the address that it last connected from. The charge is returned when the
//! session is dropped, whichever way it ends. Sessions that came from another node or from disk are charged when their clients connect.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    rc::{Rc, Weak},
    sync::Arc,
};

use hashbrown::HashMap;
use thicket_mqtt::{Connect, ReasonCode};
use thicket_session::{
    server::{StoredWill, Tally},
    topic::SubscriptionFilter,
};

use super::{
    Refusal, SessionKey, attach::granted_expiry, connect::prefix, context::Context,
    operate::has_no_memory,
};
use crate::{ConnectionId, Limits, Payer, Source, TenantId};

/// What a subscription costs beside the text of its filter: in its session and that of a backup, in the trees of its worker and of the hub, and in
/// what was sent and is stored of it. Measured as memory of the process: 0.7 KB, and 0.4 KB more with backups.
const SUBSCRIPTION_BYTES: u64 = 1024;
/// What it costs at each worker of the node, which all know where its subscribers are. Measured: 0.3 KB.
const WORKER_BYTES: u64 = 384;
/// Accounts that are no longer used are removed when there are twice as many as were left the last time, and this many.
const SWEEP: usize = 1024;

/// What a user or an address uses.
#[derive(Debug)]
struct Account {
    /// Its name, as retained messages carry it.
    payer: Arc<str>,
    sessions: Cell<u32>,
    bytes: Cell<u64>,
    /// What waits for its sessions, with the bound of that.
    queues: Tally,
}

/// The accounts of a worker.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Users and addresses of a tenant are its own.
    accounts: HashMap<(Option<TenantId>, Payer), Weak<Account>>,
    left: usize,
}

/// What a session is charged, and to which accounts.
#[derive(Debug, Default)]
pub(super) struct Charge {
    user: Option<Rc<Account>>,
    address: Option<Rc<Account>>,
    sessions: u32,
    bytes: u64,
    workers: u8,
}

impl Charge {
    const fn new(user: Option<Rc<Account>>, address: Option<Rc<Account>>, workers: u8) -> Self {
        Self {
            user,
            address,
            sessions: 0,
            bytes: 0,
            workers,
        }
    }

    /// What a subscription costs.
    fn cost(&self, filter: &SubscriptionFilter) -> u64 {
        let text = filter.filter.as_str().len() as u64;
        text + SUBSCRIPTION_BYTES + WORKER_BYTES * u64::from(self.workers)
    }

    /// The account that is charged for what its client has retained, and for what is queued: of its user, or of the address of a client without one.
    fn first(&self) -> Option<&Rc<Account>> {
        self.accounts().next()
    }

    /// Who is charged for what its client has retained.
    pub fn publisher(&self) -> Option<&Arc<str>> {
        self.first().map(|account| &account.payer)
    }

    fn accounts(&self) -> impl Iterator<Item = &Rc<Account>> {
        self.user.iter().chain(&self.address)
    }

    fn add(&mut self, sessions: u32, bytes: u64) {
        for account in self.accounts() {
            account.sessions.set(account.sessions.get() + sessions);
            account.bytes.set(account.bytes.get() + bytes);
        }
        self.sessions += sessions;
        self.bytes += bytes;
    }

    fn sub(&mut self, sessions: u32, bytes: u64) {
        let (sessions, bytes) = (sessions.min(self.sessions), bytes.min(self.bytes));
        for account in self.accounts() {
            account.sessions.set(account.sessions.get() - sessions);
            account.bytes.set(account.bytes.get() - bytes);
        }
        self.sessions -= sessions;
        self.bytes -= bytes;
    }

    /// Another subscription. `false`: it is one too many, and nothing was charged.
    pub fn subscribe(&mut self, filter: &SubscriptionFilter, limits: &Limits) -> bool {
        let cost = self.cost(filter);
        let maximum = limits.user_subscription_bytes;
        let is_over = |account: &Rc<Account>| account.bytes.get() + cost > maximum;
        if maximum > 0 && self.accounts().any(is_over) {
            return false;
        }
        self.add(0, cost);
        true
    }

    /// Whether a will of so many bytes, in the place of `before` if there is one, is within the limit.
    fn has_capacity_for_will(
        &self,
        bytes: u64,
        before: Option<&ChargedWill>,
        limits: &Limits,
    ) -> bool {
        let maximum = limits.user_subscription_bytes;
        let is_over = |account: &Rc<Account>| {
            let freed = before.map_or(0, |before| before.charge.bytes_to(account));
            account.bytes.get() - freed + bytes > maximum
        };
        maximum == 0 || !self.accounts().any(is_over)
    }

    fn bytes_to(&self, account: &Rc<Account>) -> u64 {
        let is_charged = self.accounts().any(|own| Rc::ptr_eq(own, account));
        if is_charged { self.bytes } else { 0 }
    }

    /// The will of the session, charged to the same accounts for as long as it exists.
    pub fn will(&self, will: StoredWill) -> ChargedWill {
        let mut charge = Self::new(self.user.clone(), self.address.clone(), self.workers);
        charge.add(0, will.bytes());
        ChargedWill { will, charge }
    }

    /// A subscription has ended.
    pub fn unsubscribe(&mut self, filter: &SubscriptionFilter) {
        self.sub(0, self.cost(filter));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sub(self.sessions, self.bytes);
    }
}

/// A will of a session here, and what is charged for it. One that came from another node or from disk is charged to nobody.
#[derive(Debug)]
pub(super) struct ChargedWill {
    will: StoredWill,
    charge: Charge,
}

impl From<StoredWill> for ChargedWill {
    fn from(will: StoredWill) -> Self {
        let charge = Charge::default();
        Self { will, charge }
    }
}

impl Deref for ChargedWill {
    type Target = StoredWill;

    fn deref(&self) -> &StoredWill {
        &self.will
    }
}

impl DerefMut for ChargedWill {
    fn deref_mut(&mut self) -> &mut StoredWill {
        &mut self.will
    }
}

impl Quotas {
    /// The account of a user or an address. `queues`: what waits for its sessions, if it has none yet.
    fn open(
        &mut self,
        tenant: Option<TenantId>,
        payer: Payer,
        queues: impl FnOnce() -> Tally,
    ) -> Rc<Account> {
        if self.accounts.len() >= self.left * 2 + SWEEP {
            self.accounts
                .retain(|_, account| account.strong_count() > 0);
            self.left = self.accounts.len();
        }
        let name = (tenant, payer);
        let known = self.accounts.get(&name).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let account = Rc::new(Account {
                payer: name.1.to_string().into(),
                sessions: Cell::default(),
                bytes: Cell::default(),
                queues: queues(),
            });
            self.accounts.insert(name, Rc::downgrade(&account));
            account
        })
    }

    /// The accounts of the client of a connection.
    fn charge_of(&mut self, cx: &Context, id: ConnectionId, user_name: Option<&str>) -> Charge {
        let source = cx.connections.get(id).map(|it| Source::from(it.peer.ip()));
        let source = source.filter(|source| source.is_known());
        let user = user_name.map(|name| Payer::User(name.into()));
        let address = source.map(Payer::Address);
        let maximum = cx.config.limits.user_queue_bytes;
        let tenant = tenant_of(cx, id);
        let queues = || {
            let maximum = (maximum > 0).then_some(maximum);
            cx.sessions.tenants.tally(tenant).part(maximum)
        };
        Charge::new(
            user.map(|payer| self.open(tenant, payer, queues)),
            address.map(|payer| self.open(tenant, payer, queues)),
            cx.config.workers,
        )
    }

    /// The session belongs to the client of this connection: what it uses is charged to it.
    pub(super) fn charge(
        &mut self,
        cx: &mut Context,
        id: ConnectionId,
        key: SessionKey,
        user_name: Option<&str>,
    ) {
        let mut charge = self.charge_of(cx, id, user_name);
        cx.sessions.assign(key, tenant_of(cx, id));
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let filters = session.subscriptions.keys();
        let bytes = filters.map(|filter| charge.cost(filter)).sum();
        charge.add(u32::from(session.is_persistent()), bytes);
        if let Some(account) = charge.first() {
            session.outbound.set_tally(Some(account.queues.clone()));
        }
        session.charge = charge;
    }

    /// Why a client may not have the will of its CONNECT.
    pub(super) fn refuses_will(
        &mut self,
        cx: &Context,
        id: ConnectionId,
        client_id: &str,
        user_name: Option<&str>,
        connect: &Connect<'_>,
    ) -> Option<Refusal> {
        let will = connect.will.as_ref()?;
        let bytes = StoredWill::bytes_of(will, prefix(cx, id));
        let session = cx.sessions.find(client_id);
        let session = session.and_then(|key| cx.sessions.get(key));
        let before = session.and_then(|session| session.will.as_ref());
        let charge = self.charge_of(cx, id, user_name);
        let reason =
            "the user or the address has as many bytes of subscriptions and wills as it may have";
        let has_capacity = charge.has_capacity_for_will(bytes, before, &cx.config.limits);
        (!has_capacity).then(|| Refusal::new(ReasonCode::QuotaExceeded, reason))
    }

    /// Why a client may not have a session that it does not have yet.
    pub(super) fn refuses_new_session(
        &mut self,
        cx: &Context,
        id: ConnectionId,
        user_name: Option<&str>,
        connect: &Connect<'_>,
    ) -> Option<Refusal> {
        if has_no_memory(cx) {
            thicket_session::reach!("worker/quota: a new session is refused, as memory is short");
            let reason = "memory is short: only clients that have a session are let in";
            return Some(Refusal::new(ReasonCode::ServerBusy, reason));
        }
        if granted_expiry(cx, connect) == 0 {
            return None;
        }
        let limits = &cx.config.limits;
        let is_over = |count: usize, maximum: u32| maximum > 0 && count >= maximum as usize;
        let [all, of_user, of_address] = [
            limits.sessions,
            limits.user_sessions,
            limits.address_sessions,
        ];
        let has = |account: &Option<Rc<Account>>| {
            let account = account.as_ref();
            account.map_or(0, |account| account.sessions.get() as usize)
        };
        let charge = self.charge_of(cx, id, user_name);
        let reason = if is_over(cx.sessions.len(), all) {
            "there are as many sessions as there may be"
        } else if cx.sessions.tenants.is_full(tenant_of(cx, id)) {
            "the tenant has as many sessions as it may have"
        } else if is_over(has(&charge.user), of_user) {
            "the user has as many sessions as it may have"
        } else if is_over(has(&charge.address), of_address) {
            "the address has as many sessions as it may have"
        } else {
            return None;
        };
        Some(Refusal::new(ReasonCode::QuotaExceeded, reason))
    }
}

/// The tenant whose client a connection is.
fn tenant_of(cx: &Context, id: ConnectionId) -> Option<TenantId> {
    cx.sessions.tenants.of_prefix(prefix(cx, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: u8 = 2;
    /// Of a filter of three characters.
    const COST: u64 = 3 + SUBSCRIPTION_BYTES + WORKER_BYTES * WORKERS as u64;

    fn filter(text: &str) -> SubscriptionFilter {
        SubscriptionFilter::parse(text).expect("a good filter")
    }

    fn charge(quotas: &mut Quotas, user: &str) -> Charge {
        Charge::new(
            Some(quotas.open(None, Payer::User(user.into()), Tally::default)),
            None,
            WORKERS,
        )
    }

    #[test]
    fn what_a_session_is_charged_is_given_back_when_it_is_dropped() {
        let (mut quotas, limits) = (Quotas::default(), Limits::default());
        let mut first = charge(&mut quotas, "ann");
        let mut second = charge(&mut quotas, "ann");
        first.add(1, 0);
        second.add(1, 0);
        assert!(first.subscribe(&filter("a/b"), &limits));
        let account = quotas.open(None, Payer::User("ann".into()), Tally::default);
        assert_eq!((account.sessions.get(), account.bytes.get()), (2, COST));
        first.unsubscribe(&filter("a/b"));
        // More than it was charged for is ignored.
        first.unsubscribe(&filter("a/b/c/d"));
        assert_eq!((account.sessions.get(), account.bytes.get()), (2, 0));
        drop(first);
        assert_eq!(account.sessions.get(), 1);
        drop(second);
        assert_eq!(account.sessions.get(), 0);
    }

    #[test]
    fn a_user_has_bytes_for_subscriptions_and_another_one_has_its_own() {
        let mut quotas = Quotas::default();
        let limits = Limits {
            user_subscription_bytes: 2 * COST,
            ..Limits::default()
        };
        let mut first = charge(&mut quotas, "ann");
        let mut second = charge(&mut quotas, "ann");
        let mut other = charge(&mut quotas, "bob");
        assert!(first.subscribe(&filter("a/b"), &limits));
        assert!(second.subscribe(&filter("a/b"), &limits));
        assert!(!second.subscribe(&filter("c"), &limits));
        assert!(other.subscribe(&filter("c"), &limits));
        drop(first);
        assert!(second.subscribe(&filter("c"), &limits));
    }

    #[test]
    fn wills_count_for_as_long_as_they_exist() {
        let will = |len: usize| {
            let payload = vec![b'x'; len];
            let will = thicket_mqtt::Will::new("w", &payload);
            StoredWill::new(&will, "")
        };
        let mut quotas = Quotas::default();
        let overhead = will(0).bytes();
        let limits = Limits {
            user_subscription_bytes: 2000 + 2 * overhead,
            ..Limits::default()
        };
        let first = charge(&mut quotas, "ann");
        let second = charge(&mut quotas, "ann");
        let other = charge(&mut quotas, "bob");
        let fits = |charge: &Charge, len, before: Option<&ChargedWill>| {
            charge.has_capacity_for_will(will(len).bytes(), before, &limits)
        };
        assert!(fits(&first, 1500, None));
        let kept = first.will(will(1500));
        assert!(fits(&second, 500, None) && !fits(&second, 501, None));
        assert!(fits(&other, 2000, None), "it is Ann's");
        assert!(fits(&first, 2000, Some(&kept)), "in its place");
        assert!(!fits(&first, 2001 + overhead as usize, Some(&kept)));
        let recovered = ChargedWill::from(will(100_000));
        assert!(
            !fits(&second, 501, Some(&recovered)),
            "it was charged to nobody"
        );
        drop(kept);
        assert!(fits(&second, 2000, None));
    }

    #[test]
    fn accounts_that_nobody_uses_are_forgotten() {
        let mut quotas = Quotas::default();
        let kept = charge(&mut quotas, "kept");
        for number in 0..SWEEP * 5 {
            drop(charge(&mut quotas, &number.to_string()));
        }
        assert!(quotas.accounts.len() <= SWEEP + 2);
        assert!(Rc::ptr_eq(
            kept.user.as_ref().expect("a user"),
            &quotas.open(None, Payer::User("kept".into()), Tally::default)
        ));
    }
}
