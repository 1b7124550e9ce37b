//! Quotas at a worker: of one user and one address, of sessions that outlive their connections, of the bytes of subscriptions and wills, and of what is
//! queued; of one tenant, of sessions and of what is queued.
//!
//! Each session is charged to its client's user, if it has one, and to the address that it last connected from. The charge is returned when the
//! session is dropped, whichever way it ends. Sessions that came from another node or from disk are charged when their clients connect.

use std::{
    cell::Cell,
    rc::{Rc, Weak},
};

use hashbrown::HashMap;
use thicket_mqtt::{Connect, ReasonCode};
use thicket_session::server::{StoredWill, Tally};

use super::{
    capacity::has_no_memory,
    context::Context,
    expiry::granted_expiry,
    listeners::prefix,
    refusal::Refusal,
    state::{
        charge::{Account, Charge},
        sessions::SessionKey,
    },
};
use crate::{ConnectionId, Payer, Source, TenantId};

/// Accounts that are no longer used are removed when there are twice as many as were left the last time, and this many.
const SWEEP: usize = 1024;

/// The accounts of a worker.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Users and addresses of a tenant are its own.
    accounts: HashMap<(Option<TenantId>, Payer), Weak<Account>>,
    left: usize,
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
        let reason = "the limit of subscription bytes of the user or the address is reached";
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
            let reason = "memory limit reached: only clients that have a session are accepted";
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
            "the limit of sessions is reached"
        } else if cx.sessions.tenants.is_full(tenant_of(cx, id)) {
            "the limit of sessions of the tenant is reached"
        } else if is_over(has(&charge.user), of_user) {
            "the limit of sessions of the user is reached"
        } else if is_over(has(&charge.address), of_address) {
            "the limit of sessions of the address is reached"
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
    use thicket_session::topic::SubscriptionFilter;

    use super::*;
    use crate::{
        Limits,
        worker::state::charge::{ChargedWill, SUBSCRIPTION_BYTES, WORKER_BYTES},
    };

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
