//! Barriers under way, and what waits behind each.

use std::{collections::BTreeMap, sync::Arc};

use super::{replica::backup::SourceKey, session_key::SessionKey};
use crate::messages::MisroutedMessage;

/// What continues when a barrier has been passed.
#[derive(Debug)]
pub(in crate::worker) enum Behind {
    /// As a primary: sessions that a backup has received are covered.
    Learned(Learned),
    /// As a backup: the full syncs in the stream of this primary, by its identifier, are held up to a position.
    Synced {
        source: SourceKey,
        stream: u64,
        until: u64,
    },
    /// As a primary: messages that reached only backups are delivered, with the stream of each backup.
    Misrouted(Vec<(u8, MisroutedMessage)>),
    /// The queue of a branch is sent, as the answer to this request.
    Queue { request: u64, client_id: Arc<str> },
}

/// A barrier that has not been passed.
#[derive(Debug)]
pub(in crate::worker) struct Open {
    pub behind: Behind,
    /// Of how many nothing is on its way any more: of the other workers and of the hub, which has what other nodes sent.
    pub passed: u8,
}

/// Barriers of a worker, by number.
#[derive(Debug, Default)]
pub(in crate::worker) struct Barriers {
    pub last: u64,
    pub open: BTreeMap<u64, Open>,
}

impl Barriers {
    /// A branch whose queue was to be sent stays.
    pub fn forget_queue(&mut self, leaving: &str) {
        self.open.retain(|_, open| {
            !matches!(&open.behind, Behind::Queue { client_id, .. } if **client_id == *leaving)
        });
    }
}

/// Sessions whose full sync a backup holds: covered when a barrier has been passed.
#[derive(Debug)]
pub(in crate::worker) struct Learned {
    /// The stream that carried the full sync.
    pub stream: u64,
    /// With their numbers.
    pub sessions: Vec<(SessionKey, u64)>,
}
