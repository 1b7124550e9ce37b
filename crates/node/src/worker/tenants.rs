//! What tenants use at a worker, for the shell, which adds up all workers of a node.

use super::{WorkerOperator, WorkerView};
use crate::{TenantId, TenantUsage};

impl WorkerView<'_> {
    /// What the sessions of a tenant use here.
    #[must_use]
    pub fn tenant_usage(&self, tenant: TenantId) -> TenantUsage {
        self.worker.cx.sessions.tenants.usage(tenant)
    }
}

impl WorkerOperator<'_> {
    /// What those at the other workers of this node use: the bounds are for all of them together.
    pub fn set_tenant_elsewhere(&mut self, tenant: TenantId, usage: TenantUsage) {
        self.worker.cx.sessions.tenants.set_elsewhere(tenant, usage);
    }
}
