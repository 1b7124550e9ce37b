//! What a session is charged, to its client's user and address: returned when the session is dropped, whichever way it ends.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    rc::Rc,
    sync::Arc,
};

use thicket_session::{
    server::{StoredWill, Tally},
    topic::{SubscriptionFilter, level_count},
};

use crate::Limits;

/// What a subscription costs beside the text of its filter: in its session and that of a backup, in the trees of its worker and of the hub, and in
/// what was sent and is stored of it. Measured as memory of the process: 0.7 KB, and 0.4 KB more with backups.
pub(in crate::worker) const SUBSCRIPTION_BYTES: u64 = 1024;

/// What it costs at each worker of the node, which all know where its subscribers are. Measured: 0.3 KB.
pub(in crate::worker) const WORKER_BYTES: u64 = 384;

/// Levels of a filter with wildcards that are among what it costs above.
const LEVELS: u64 = 8;

/// What each further level costs in the tree of each worker, and in that of the hub: its number, and its text where no other filter has it.
const LEVEL_BYTES: u64 = 64;

/// What a user or an address uses.
#[derive(Debug)]
pub(in crate::worker) struct Account {
    /// Its name, as retained messages carry it.
    pub payer: Arc<str>,
    pub sessions: Cell<u32>,
    pub bytes: Cell<u64>,
    /// What waits for its sessions, with the bound of that.
    pub queues: Tally,
}

/// What a session is charged, and to which accounts.
#[derive(Debug, Default)]
pub(in crate::worker) struct Charge {
    pub user: Option<Rc<Account>>,
    pub address: Option<Rc<Account>>,
    sessions: u32,
    bytes: u64,
    workers: u8,
}

impl Charge {
    pub const fn new(user: Option<Rc<Account>>, address: Option<Rc<Account>>, workers: u8) -> Self {
        Self {
            user,
            address,
            sessions: 0,
            bytes: 0,
            workers,
        }
    }

    /// What a subscription costs.
    pub fn cost(&self, filter: &SubscriptionFilter) -> u64 {
        let text = filter.filter.as_str();
        let workers = u64::from(self.workers);
        let levels = if filter.filter.has_wildcards() {
            (level_count(text) as u64).saturating_sub(LEVELS)
        } else {
            0
        };
        let everywhere = WORKER_BYTES * workers + LEVEL_BYTES * levels * (workers + 1);
        text.len() as u64 + SUBSCRIPTION_BYTES + everywhere
    }

    /// The account that is charged for what its client has retained, and for what is queued: of its user, or of the address of a client without one.
    pub fn first(&self) -> Option<&Rc<Account>> {
        self.accounts().next()
    }

    /// Who is charged for what its client has retained.
    pub fn publisher(&self) -> Option<&Arc<str>> {
        self.first().map(|account| &account.payer)
    }

    fn accounts(&self) -> impl Iterator<Item = &Rc<Account>> {
        self.user.iter().chain(&self.address)
    }

    pub fn add(&mut self, sessions: u32, bytes: u64) {
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

    /// Whether a will of `bytes`, in the place of `before` if there is one, is within the limit.
    pub fn has_capacity_for_will(
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
pub(in crate::worker) struct ChargedWill {
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
