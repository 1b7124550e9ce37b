//! Finds other nodes: seeds, names in DNS, announcements by UDP multicast. Found addresses go to the hub, which decides what to do.

mod announcement;
mod multicast;
mod names;

pub use announcement::{Announcement, AnnouncementError, Freshness, Heard};

use std::io;
use std::sync::Arc;

use crate::config::Config;
use crate::counters::Counters;
use crate::identity::Identity;
use crate::links::Links;
use crate::mailbox::Mailboxes;
use crate::places::Places;

/// The threads that look for other nodes. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Discovery {
    _names: Option<names::Names>,
    _multicast: Option<multicast::Announcer>,
}

impl Discovery {
    /// Starts what is configured. With `links`, announcements are signed with their keys.
    pub(crate) fn start(
        config: &Config,
        identity: &Identity,
        places: &Places,
        links: Option<Arc<Links>>,
        boxes: &Mailboxes,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        let hub = Arc::clone(&boxes[0]);
        let names_of_dns = config.dns.as_ref().map(|dns| dns.names.join(" "));
        if !config.seeds.is_empty() || names_of_dns.is_some() {
            let seeds = (!config.seeds.is_empty()).then(|| config.seeds.join(" "));
            tracing::info!(
                cluster_name = config.cluster_name,
                seeds,
                dns_name = names_of_dns,
                expect_nodes = config.expect_nodes,
                "looking for other nodes of the cluster"
            );
        }
        let names = names::Names::start(&config.seeds, config.dns.as_ref(), &places.address, hub)?;
        let own = announcement::Announcement {
            node: identity.node,
            fresh: announcement::Freshness {
                incarnation: identity.incarnation,
                number: 0,
            },
            cluster_name: config.cluster_name.clone(),
            address: places.announced.clone(),
        };
        let multicast = config.multicast.as_ref().and_then(|multicast| {
            let started = multicast::Announcer::start(multicast, own, links, Arc::clone(&boxes[0]), Arc::clone(counters));
            // A host without multicast can still serve, and be found by seeds.
            started.inspect_err(|error| tracing::warn!(%error, group = %multicast.group, "cannot announce this node by multicast")).ok()
        });
        Ok(Self {
            _names: names,
            _multicast: multicast,
        })
    }
}
