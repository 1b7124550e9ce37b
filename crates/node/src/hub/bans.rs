//! Bans, as the hub finds them among the retained messages.

use std::sync::Arc;

use thicket_overlay::record::Record;
use thicket_session::topic::TopicFilter;

use super::{Hub, HubView};
use crate::{
    Ban, Now,
    bans::{BANS, Bans},
};

impl Hub {
    /// Sends the bans to the workers when one was made or lifted, here or elsewhere.
    pub(super) fn send_changed_bans(&mut self, now: Now) {
        if !self.retained.take_changed_bans() {
            return;
        }
        let bans = Arc::new(Bans::new(self.view().bans(now)));
        self.cx.change_cluster(|it| it.bans = bans);
    }
}

impl HubView<'_> {
    /// All bans, by kind and subject.
    #[must_use]
    pub fn bans(&self, now: Now) -> Vec<Ban> {
        let Ok(filter) = TopicFilter::new(&format!("{BANS}#")) else {
            return Vec::new();
        };
        let records = self.hub.retained.records(&filter);
        let bans = records
            .filter_map(|bytes| Record::decode(bytes).ok())
            .filter_map(|(record, _)| Ban::decode(record.payload));
        bans.filter(|ban| !ban.is_over(now.wall)).collect()
    }
}
