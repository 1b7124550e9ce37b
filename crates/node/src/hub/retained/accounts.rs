//! How much of the retained messages each user published, or each address of clients without one, and how much is in the topics of each tenant: so that
//! nobody uses the capacity of all others.
//!
//! A retained message names its topic and its publisher wherever it is kept, so every node counts the same.

use std::{collections::BTreeMap, sync::Arc};

use crate::{RetainedLimits, TenantId, TenantLimits, TenantRetained, tenants};

/// What one of these accounts has retained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    messages: u64,
    bytes: u64,
}

impl Account {
    const fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    const fn sub(&mut self, bytes: u64) {
        self.messages -= 1;
        self.bytes -= bytes;
    }

    /// Whether another message is within these bounds, of which 0 is none, in the place of one of `freed` bytes if that is given.
    fn has_capacity(self, bytes: u64, freed: Option<u64>, most: Self) -> bool {
        let messages = self.messages + u64::from(freed.is_none());
        let bytes = self.bytes + bytes - freed.unwrap_or(0);
        let is_over = |count: u64, most: u64| most > 0 && count > most;
        !is_over(messages, most.messages) && !is_over(bytes, most.bytes)
    }
}

/// What a retained message is charged, and to which accounts.
#[derive(Debug, Clone)]
pub(super) struct RetainedCharge {
    payer: Option<Arc<str>>,
    tenant: Option<TenantId>,
    bytes: u64,
}

/// The accounts with retained messages: as many as there are retained messages at most, and those of the tenants.
#[derive(Debug)]
pub(super) struct RetainedAccounts {
    publishers: BTreeMap<Arc<str>, Account>,
    most: Account,
    limits: Vec<TenantLimits>,
    /// By [`TenantId`].
    tenants: Vec<Account>,
}

impl RetainedAccounts {
    pub fn new(limits: &RetainedLimits, tenants: Vec<TenantLimits>) -> Self {
        Self {
            publishers: BTreeMap::new(),
            most: Account {
                messages: limits.user_messages,
                bytes: limits.user_bytes,
            },
            tenants: vec![Account::default(); tenants.len()],
            limits: tenants,
        }
    }

    /// What is in the topics of a tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> TenantRetained {
        let account = self.tenants.get(usize::from(tenant.0)).copied();
        let Account { messages, bytes } = account.unwrap_or_default();
        TenantRetained { messages, bytes }
    }

    /// Whether one more message of this topic and publisher is within the bounds, in the place of `before` if that is given.
    pub fn has_capacity(
        &self,
        topic: &str,
        payer: Option<&str>,
        bytes: u64,
        before: Option<&RetainedCharge>,
    ) -> bool {
        let of_publisher = payer.is_none_or(|payer| {
            let has = self.publishers.get(payer).copied().unwrap_or_default();
            let freed = before.filter(|before| before.payer.as_deref() == Some(payer));
            has.has_capacity(bytes, freed.map(|freed| freed.bytes), self.most)
        });
        let tenant = tenants::of_topic(&self.limits, topic);
        of_publisher
            && tenant.is_none_or(|TenantId(at)| {
                let limits = &self.limits[usize::from(at)];
                let most = Account {
                    messages: limits.retained_messages,
                    bytes: limits.retained_bytes,
                };
                let freed = before.map(|freed| freed.bytes);
                self.tenants[usize::from(at)].has_capacity(bytes, freed, most)
            })
    }

    pub fn charge(&mut self, topic: &str, payer: Option<&str>, bytes: u64) -> RetainedCharge {
        let payer = payer.map(|payer| {
            let known = self.publishers.get_key_value(payer);
            let payer = known.map_or_else(|| payer.into(), |(payer, _)| Arc::clone(payer));
            let account = self.publishers.entry(Arc::clone(&payer)).or_default();
            account.add(bytes);
            payer
        });
        let tenant = tenants::of_topic(&self.limits, topic);
        if let Some(TenantId(at)) = tenant {
            self.tenants[usize::from(at)].add(bytes);
        }
        RetainedCharge {
            payer,
            tenant,
            bytes,
        }
    }

    /// The message is not retained any more.
    pub fn give_back(&mut self, charge: &RetainedCharge) {
        if let Some(TenantId(at)) = charge.tenant {
            self.tenants[usize::from(at)].sub(charge.bytes);
        }
        let Some(payer) = &charge.payer else {
            return;
        };
        if let Some(account) = self.publishers.get_mut(payer) {
            account.sub(charge.bytes);
            if account.messages == 0 {
                self.publishers.remove(payer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(user_messages: u64, user_bytes: u64) -> RetainedLimits {
        RetainedLimits {
            user_messages,
            user_bytes,
            ..RetainedLimits::default()
        }
    }

    #[test]
    fn a_publisher_at_its_bound_may_replace_what_it_has_and_others_have_capacity() {
        let (ann, bob) = (Some("ann"), Some("bob"));
        let mut accounts = RetainedAccounts::new(&limits(2, 100), Vec::new());
        let has = |accounts: &RetainedAccounts, payer, bytes, before| {
            accounts.has_capacity("t", payer, bytes, before)
        };
        let first = accounts.charge("t", ann, 60);
        assert!(has(&accounts, ann, 40, None) && !has(&accounts, ann, 41, None));
        let second = accounts.charge("t", ann, 10);
        assert!(!has(&accounts, ann, 10, None), "a third one");
        assert!(has(&accounts, ann, 90, Some(&first)));
        assert!(!has(&accounts, ann, 91, Some(&first)));
        assert!(has(&accounts, bob, 100, None));
        assert!(has(&accounts, bob, 100, Some(&first)), "it is Ann's");
        accounts.give_back(&first);
        assert!(has(&accounts, ann, 90, None));
        accounts.give_back(&second);
        assert!(accounts.publishers.is_empty());
    }

    #[test]
    fn topics_of_a_tenant_have_bounds_whoever_publishes_there() {
        let tenant = TenantLimits {
            topic_prefix: "a/".into(),
            retained_messages: 2,
            retained_bytes: 100,
            ..TenantLimits::default()
        };
        let mut accounts = RetainedAccounts::new(&limits(0, 0), vec![tenant]);
        let has = |accounts: &RetainedAccounts, topic, bytes, before| {
            accounts.has_capacity(topic, Some("cid"), bytes, before)
        };
        let first = accounts.charge("a/x", Some("ann"), 60);
        assert!(has(&accounts, "a/y", 40, None) && !has(&accounts, "a/y", 41, None));
        assert!(has(&accounts, "b", 1000, None), "another prefix");
        assert!(has(&accounts, "a/x", 100, Some(&first)));
        let second = accounts.charge("a/y", None, 10);
        assert!(!has(&accounts, "a/z", 1, None), "a third one");
        let all = |messages, bytes| TenantRetained { messages, bytes };
        assert_eq!(accounts.of_tenant(TenantId(0)), all(2, 70));
        accounts.give_back(&first);
        accounts.give_back(&second);
        assert_eq!(accounts.of_tenant(TenantId(0)), all(0, 0));
    }

    #[test]
    fn without_bounds_there_is_always_capacity() {
        let mut accounts = RetainedAccounts::new(&limits(0, 0), vec![TenantLimits::default()]);
        for _ in 0..10 {
            accounts.charge("t", Some("ann"), 1 << 40);
        }
        assert!(accounts.has_capacity("t", Some("ann"), 1 << 40, None));
    }
}
