//! Tenants: clients and topics of a topic prefix, which together have bounds.

use crate::TenantLimits;

/// A tenant, by its place in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantId(pub u16);

/// What the sessions of a tenant use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUsage {
    /// Sessions, connected or not.
    pub sessions: u32,
    /// Bytes in their queues.
    pub queue_bytes: u64,
}

/// What is retained in the topics of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantRetained {
    /// Messages.
    pub messages: u64,
    /// Their bytes, as for [`RetainedLimits::bytes`](crate::RetainedLimits::bytes).
    pub bytes: u64,
}

/// The tenant of clients whose listener has this topic prefix.
pub(crate) fn of_prefix(tenants: &[TenantLimits], prefix: &str) -> Option<TenantId> {
    let at = (tenants.iter()).position(|tenant| tenant.topic_prefix == prefix)?;
    Some(TenantId(at as u16))
}

/// The tenant that a topic belongs to: if several prefixes match, that with the longest.
pub(crate) fn of_topic(tenants: &[TenantLimits], topic: &str) -> Option<TenantId> {
    let all = tenants.iter().enumerate();
    let matching = all.filter(|(_, tenant)| topic.starts_with(&tenant.topic_prefix));
    let (at, _) = matching.max_by_key(|(_, tenant)| tenant.topic_prefix.len())?;
    Some(TenantId(at as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_belong_to_the_tenant_of_their_prefix_and_topics_to_the_longest_one() {
        let tenant = |prefix: &str| TenantLimits {
            topic_prefix: prefix.into(),
            ..TenantLimits::default()
        };
        let tenants = ["a/", "a/b/", "c"].map(tenant);
        let prefix = |prefix| of_prefix(&tenants, prefix).map(|it| it.0);
        assert_eq!(
            ["a/", "a/b/", "c", ""].map(prefix),
            [Some(0), Some(1), Some(2), None]
        );
        let topic = |topic| of_topic(&tenants, topic).map(|it| it.0);
        assert_eq!(
            ["a/x", "a/b/x", "cx", "b"].map(topic),
            [Some(0), Some(1), Some(2), None]
        );
    }
}
