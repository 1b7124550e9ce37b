//! The sessions of each tenant at a worker: how many there are, and what waits for them.

use thicket_session::server::{Tally, Waiting};

use crate::{TenantId, TenantLimits, TenantUsage, tenants};

/// All tenants.
#[derive(Debug)]
pub(in crate::worker) struct Tenants {
    /// As in the configuration.
    limits: Vec<TenantLimits>,
    /// By [`TenantId`].
    sessions: Vec<Sessions>,
    /// What waits for all sessions, with those of no tenant.
    waiting: Tally,
}

/// The sessions of a tenant whose primary is here.
#[derive(Debug)]
struct Sessions {
    count: u32,
    waiting: Tally,
    /// What those at other workers of this node use.
    elsewhere: TenantUsage,
}

impl Tenants {
    pub fn new(limits: &[TenantLimits]) -> Self {
        let waiting = Tally::default();
        let sessions = |tenant: &TenantLimits| Sessions {
            count: 0,
            waiting: waiting.part((tenant.queue_bytes > 0).then_some(tenant.queue_bytes)),
            elsewhere: TenantUsage::default(),
        };
        Self {
            limits: limits.to_vec(),
            sessions: limits.iter().map(sessions).collect(),
            waiting,
        }
    }

    /// What waits for all sessions whose primary is here.
    pub fn waiting(&self) -> Waiting {
        self.waiting.waiting()
    }

    /// The tenant of clients whose listener has this topic prefix.
    pub fn of_prefix(&self, prefix: &str) -> Option<TenantId> {
        tenants::of_prefix(&self.limits, prefix)
    }

    /// A session begins or arrives here. Returns where its queue counts.
    pub fn add_session(&mut self, tenant: Option<TenantId>) -> Tally {
        if let Some(sessions) = self.get_mut(tenant) {
            sessions.count += 1;
        }
        self.tally(tenant).clone()
    }

    pub fn remove_session(&mut self, tenant: Option<TenantId>) {
        if let Some(sessions) = self.get_mut(tenant) {
            sessions.count -= 1;
        }
    }

    /// Where the queues of a tenant's sessions count, or of those without one.
    pub fn tally(&self, tenant: Option<TenantId>) -> &Tally {
        let sessions = tenant.and_then(|tenant| self.sessions.get(usize::from(tenant.0)));
        sessions.map_or(&self.waiting, |sessions| &sessions.waiting)
    }

    /// Whether a tenant has as many sessions as it may have.
    pub fn is_full(&self, tenant: Option<TenantId>) -> bool {
        let Some(TenantId(at)) = tenant else {
            return false;
        };
        let at = usize::from(at);
        let (maximum, sessions) = (self.limits[at].sessions, &self.sessions[at]);
        maximum > 0 && sessions.count.saturating_add(sessions.elsewhere.sessions) >= maximum
    }

    /// What a tenant uses here.
    pub fn usage(&self, tenant: TenantId) -> TenantUsage {
        let sessions = self.sessions.get(usize::from(tenant.0));
        sessions.map_or_else(TenantUsage::default, |sessions| TenantUsage {
            sessions: sessions.count,
            queue_bytes: sessions.waiting.waiting().bytes,
        })
    }

    /// What it uses at the other workers.
    pub fn set_elsewhere(&mut self, tenant: TenantId, usage: TenantUsage) {
        let at = usize::from(tenant.0);
        let (Some(limits), Some(sessions)) = (self.limits.get(at), self.sessions.get_mut(at))
        else {
            return;
        };
        sessions.elsewhere = usage;
        if limits.queue_bytes > 0 {
            let left = limits.queue_bytes.saturating_sub(usage.queue_bytes);
            sessions.waiting.set_maximum_bytes(left);
        }
    }

    fn get_mut(&mut self, tenant: Option<TenantId>) -> Option<&mut Sessions> {
        self.sessions.get_mut(usize::from(tenant?.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_of_the_node_use_counts_towards_the_bounds() {
        let limits = TenantLimits {
            topic_prefix: "a/".into(),
            sessions: 3,
            queue_bytes: 1000,
            ..TenantLimits::default()
        };
        let mut tenants = Tenants::new(&[limits]);
        let tenant = tenants.of_prefix("a/");
        let id = tenant.expect("it is there");
        tenants.add_session(tenant);
        tenants.add_session(tenant);
        assert!(!tenants.is_full(tenant) && !tenants.is_full(None));
        let usage = |sessions, queue_bytes| TenantUsage {
            sessions,
            queue_bytes,
        };
        tenants.set_elsewhere(id, usage(1, 1200));
        assert!(tenants.is_full(tenant));
        assert_eq!(tenants.usage(id), usage(2, 0), "its own");
        tenants.remove_session(tenant);
        assert!(!tenants.is_full(tenant));
        assert_eq!(tenants.of_prefix("b/"), None);
    }
}
