//! Tenants: tables `[[tenant]]`, each with the bounds of a topic prefix.

use thicket_node::TenantLimits;

use super::faults::Faults;
use super::values::invalid;
use super::{ConfigError, Listen, Settings};

/// Usage is looked at in every round of every thread.
const MOST_TENANTS: usize = 1000;

/// `listeners`: `None`, if they have faults.
pub(super) fn check(
    settings: &Settings,
    listeners: Option<&[Listen]>,
    faults: &mut Faults,
) -> Vec<TenantLimits> {
    let tables = settings.tenant.as_deref().unwrap_or_default();
    if tables.len() > MOST_TENANTS {
        faults.add(ConfigError::Conflict("at most 1000 [[tenant]] tables"));
    }
    let mut tenants: Vec<TenantLimits> = Vec::new();
    for table in tables {
        let prefix = table.topic_prefix.clone().unwrap_or_default();
        let has_listener = listeners.is_none_or(|listeners| {
            let has_prefix = |listen: &Listen| listen.topic_prefix == prefix;
            !prefix.is_empty() && listeners.iter().any(has_prefix)
        });
        if !has_listener {
            let expected = "the topic_prefix of a [[listener]]: its clients are the tenant";
            faults.add(invalid(
                "tenant.topic_prefix",
                format!("{prefix:?}"),
                expected,
            ));
        }
        if tenants.iter().any(|other| other.topic_prefix == prefix) {
            let expected = "another prefix than other tenants";
            faults.add(invalid(
                "tenant.topic_prefix",
                format!("{prefix:?}"),
                expected,
            ));
        }
        tenants.push(TenantLimits {
            topic_prefix: prefix,
            sessions: table.sessions.unwrap_or(0),
            queue_bytes: table.queue_bytes.unwrap_or(0),
            retained_messages: table.retained_messages.unwrap_or(0),
            retained_bytes: table.retained_bytes.unwrap_or(0),
        });
    }
    tenants
}

#[cfg(test)]
mod tests {
    use super::super::checked;

    const LISTENER: &str = "[[listener]]\naddress = '127.0.0.1:1883'\ntopic_prefix = 'a/'\n";

    #[test]
    fn a_tenant_has_the_bounds_that_are_given() {
        let table = "[[tenant]]\ntopic_prefix = 'a/'\nsessions = 7\nqueue_bytes = '1 MiB'\n";
        let config = checked(&format!("{LISTENER}{table}")).expect("good");
        let tenant = &config.tenants[0];
        assert_eq!((tenant.sessions, tenant.queue_bytes), (7, 1 << 20));
        assert_eq!((tenant.retained_messages, tenant.retained_bytes), (0, 0));
    }

    #[test]
    fn bad_tenants_are_refused_with_key_value_and_expectation() {
        let good = "[[tenant]]\ntopic_prefix = 'a/'\n";
        for (tables, expected) in [
            ("[[tenant]]\n".to_owned(), "tenant.topic_prefix = \"\""),
            (good.replace("a/", "b/"), "tenant.topic_prefix = \"b/\""),
            (format!("{good}{good}"), "another prefix than other tenants"),
            (format!("{good}session = 1"), "sessions"),
            (format!("{good}queue_bytes = 'x'"), "queue_bytes"),
        ] {
            let fault = checked(&format!("{LISTENER}{tables}")).expect_err("bad");
            let fault = fault.to_string();
            assert!(fault.contains(expected), "{fault}");
        }
    }
}
