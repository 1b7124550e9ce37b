//! How much of the retained messages each user published, or each address of clients without one: so that nobody uses the capacity of all others.
//!
//! A retained message names its publisher wherever it is kept, so every node counts the same.

use std::{collections::BTreeMap, sync::Arc};

use crate::RetainedLimits;

/// What a user or an address has retained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    messages: u64,
    bytes: u64,
}

/// What a retained message is charged, and to which account.
#[derive(Debug, Clone)]
pub(super) struct RetainedCharge {
    payer: Arc<str>,
    bytes: u64,
}

/// The accounts with retained messages: as many as there are retained messages at most.
#[derive(Debug)]
pub(super) struct RetainedAccounts {
    accounts: BTreeMap<Arc<str>, Account>,
    most: Account,
}

impl RetainedAccounts {
    pub const fn new(limits: &RetainedLimits) -> Self {
        Self {
            accounts: BTreeMap::new(),
            most: Account {
                messages: limits.user_messages,
                bytes: limits.user_bytes,
            },
        }
    }

    /// Whether one more message is within the limit, in the place of `before` if that is given.
    pub fn has_capacity(&self, payer: &str, bytes: u64, before: Option<&RetainedCharge>) -> bool {
        let has = self.accounts.get(payer).copied().unwrap_or_default();
        let freed = before.filter(|before| *before.payer == *payer);
        let messages = has.messages + u64::from(freed.is_none());
        let bytes = has.bytes + bytes - freed.map_or(0, |freed| freed.bytes);
        let is_over = |count: u64, most: u64| most > 0 && count > most;
        !is_over(messages, self.most.messages) && !is_over(bytes, self.most.bytes)
    }

    pub fn charge(&mut self, payer: &str, bytes: u64) -> RetainedCharge {
        let known = self.accounts.get_key_value(payer);
        let payer = known.map_or_else(|| payer.into(), |(payer, _)| Arc::clone(payer));
        let account = self.accounts.entry(Arc::clone(&payer)).or_default();
        account.messages += 1;
        account.bytes += bytes;
        RetainedCharge { payer, bytes }
    }

    /// The message is not retained any more.
    pub fn give_back(&mut self, charge: &RetainedCharge) {
        let Some(account) = self.accounts.get_mut(&charge.payer) else {
            return;
        };
        account.messages -= 1;
        account.bytes -= charge.bytes;
        if account.messages == 0 {
            self.accounts.remove(&charge.payer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(user_messages: u64, user_bytes: u64) -> RetainedAccounts {
        RetainedAccounts::new(&RetainedLimits {
            user_messages,
            user_bytes,
            ..RetainedLimits::default()
        })
    }

    #[test]
    fn who_has_enough_may_replace_what_it_has_and_others_have_room() {
        let (ann, bob) = ("ann", "bob");
        let mut accounts = accounts(2, 100);
        let first = accounts.charge(ann, 60);
        assert!(accounts.has_capacity(ann, 40, None) && !accounts.has_capacity(ann, 41, None));
        let second = accounts.charge(ann, 10);
        assert!(!accounts.has_capacity(ann, 10, None), "a third one");
        assert!(accounts.has_capacity(ann, 90, Some(&first)));
        assert!(!accounts.has_capacity(ann, 91, Some(&first)));
        assert!(accounts.has_capacity(bob, 100, None));
        assert!(accounts.has_capacity(bob, 100, Some(&first)), "it is Ann's");
        accounts.give_back(&first);
        assert!(accounts.has_capacity(ann, 90, None));
        accounts.give_back(&second);
        assert!(accounts.accounts.is_empty());
    }

    #[test]
    fn without_bounds_there_is_always_room() {
        let ann = "ann";
        let mut accounts = accounts(0, 0);
        for _ in 0..10 {
            accounts.charge(ann, 1 << 40);
        }
        assert!(accounts.has_capacity(ann, 1 << 40, None));
    }
}
