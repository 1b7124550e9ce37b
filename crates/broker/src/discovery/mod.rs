//! Finding other nodes: seeds, names in DNS, announcements by UDP multicast. What is found goes to the hub, which knows what to do.

mod announcement;
mod multicast;
mod names;

use std::io;
use std::sync::Arc;

use thicket_overlay::NodeId;

use crate::config::Config;
use crate::counters::Counters;
use crate::mailbox::Mailboxes;

/// The threads that look for other nodes. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Discovery {
    _names: Option<names::Names>,
    _multicast: Option<multicast::Announcer>,
}

impl Discovery {
    /// Starts what the configuration asks for. `address` is where others reach this node; `announced` may be a wildcard instead.
    pub(crate) fn start(
        config: &Config,
        node: NodeId,
        address: &str,
        announced: &str,
        boxes: &Mailboxes,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        let hub = Arc::clone(&boxes[0]);
        let names = names::Names::start(&config.seeds, config.dns.as_ref(), address, hub)?;
        let own = announcement::Announcement {
            node,
            cluster_name: config.cluster_name.clone(),
            address: announced.to_owned(),
        };
        let multicast = config.multicast.as_ref().and_then(|multicast| {
            let started = multicast::Announcer::start(multicast, own, Arc::clone(&boxes[0]), Arc::clone(counters));
            // A host without multicast can still serve, and be found by seeds.
            started.inspect_err(|error| tracing::warn!(%error, group = %multicast.group, "cannot announce this node by multicast")).ok()
        });
        Ok(Self {
            _names: names,
            _multicast: multicast,
        })
    }
}
