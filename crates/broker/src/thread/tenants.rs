//! What the tenants use at this thread, and at the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thicket_node::{Now, TenantId, TenantLimits, TenantUsage, Worker};

/// What a tenant uses at all threads of the node.
#[derive(Debug)]
pub(crate) struct TenantCount {
    pub(crate) topic_prefix: String,
    sessions: AtomicU64,
    queue_bytes: AtomicU64,
}

impl TenantCount {
    /// One for each tenant.
    pub(crate) fn all(tenants: &[TenantLimits]) -> Arc<[Self]> {
        let count = |tenant: &TenantLimits| Self {
            topic_prefix: tenant.topic_prefix.clone(),
            sessions: AtomicU64::new(0),
            queue_bytes: AtomicU64::new(0),
        };
        tenants.iter().map(count).collect()
    }

    pub(crate) fn usage(&self) -> TenantUsage {
        let sessions = self.sessions.load(Ordering::Relaxed);
        TenantUsage {
            sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
            queue_bytes: self.queue_bytes.load(Ordering::Relaxed),
        }
    }

    /// A thread uses this much, after it used that much.
    fn replace(&self, before: TenantUsage, now: TenantUsage) {
        let replace = |count: &AtomicU64, before: u64, now: u64| {
            count.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        };
        replace(&self.sessions, before.sessions.into(), now.sessions.into());
        replace(&self.queue_bytes, before.queue_bytes, now.queue_bytes);
    }
}

/// The tenants of a thread.
#[derive(Debug)]
pub(super) struct Tenants {
    counts: Arc<[TenantCount]>,
    /// What this thread has counted there.
    own: Vec<TenantUsage>,
}

impl Tenants {
    pub(super) fn new(counts: Arc<[TenantCount]>) -> Self {
        let own = vec![TenantUsage::default(); counts.len()];
        Self { counts, own }
    }

    /// Before the inputs of a round: what the other threads use.
    pub(super) fn limit(&self, worker: &mut Worker, now: Now) {
        for (tenant, (count, own)) in (0..).map(TenantId).zip(self.counts.iter().zip(&self.own)) {
            let all = count.usage();
            // Others may be counting at this moment.
            let elsewhere = TenantUsage {
                sessions: all.sessions.saturating_sub(own.sessions),
                queue_bytes: all.queue_bytes.saturating_sub(own.queue_bytes),
            };
            worker.operate(now).set_tenant_elsewhere(tenant, elsewhere);
        }
    }

    /// Before the outputs of a round: what this thread uses. Whoever has received a CONNACK finds its session counted at the other threads.
    pub(super) fn count(&mut self, worker: &Worker) {
        let all = self.counts.iter().zip(&mut self.own);
        for (tenant, (count, own)) in (0..).map(TenantId).zip(all) {
            let usage = worker.view().tenant_usage(tenant);
            if usage != *own {
                count.replace(*own, usage);
                *own = usage;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_what_they_use_and_take_back_what_they_no_longer_use() {
        let limits = TenantLimits {
            topic_prefix: "a/".into(),
            ..TenantLimits::default()
        };
        let counts = TenantCount::all(&[limits]);
        let usage = |sessions, queue_bytes| TenantUsage {
            sessions,
            queue_bytes,
        };
        let nothing = TenantUsage::default();
        counts[0].replace(nothing, usage(3, 100));
        counts[0].replace(nothing, usage(1, 50));
        assert_eq!(counts[0].usage(), usage(4, 150));
        counts[0].replace(usage(3, 100), usage(0, 10));
        assert_eq!(counts[0].usage(), usage(1, 60));
    }
}
