//! Metrics of tenants.

use thicket_node::TenantRetained;
use thicket_telemetry::Kind::Gauge;

use super::page::Page;
use crate::thread::TenantCount;

/// `retained`: by tenant.
pub(super) fn append(page: &mut Page, tenants: &[TenantCount], retained: &[TenantRetained]) {
    let mut by_tenant = |name, help, values: Vec<u64>| {
        page.family(name, Gauge, help);
        for (tenant, value) in tenants.iter().zip(values) {
            page.sample(&[("topic_prefix", &tenant.topic_prefix)], value);
        }
    };
    let usages = || tenants.iter().map(TenantCount::usage);
    by_tenant(
        "thicket_tenant_sessions",
        "Sessions of a tenant whose primary is this node",
        usages().map(|usage| usage.sessions.into()).collect(),
    );
    by_tenant(
        "thicket_tenant_queued_bytes",
        "Bytes in the queues of those sessions",
        usages().map(|usage| usage.queue_bytes).collect(),
    );
    by_tenant(
        "thicket_tenant_retained_messages",
        "Retained messages in the topics of a tenant, of the whole cluster",
        retained.iter().map(|it| it.messages).collect(),
    );
    by_tenant(
        "thicket_tenant_retained_bytes",
        "Bytes of those messages, with a surcharge for each",
        retained.iter().map(|it| it.bytes).collect(),
    );
}
