//! Bans, as the hub finds them among the retained messages.

use std::sync::Arc;

use thicket_overlay::record::Record;
use thicket_session::{
    time::{Instant, WallClock},
    topic::TopicFilter,
};

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
        let bans = Arc::new(Bans::new(self.view().bans_until(now)));
        self.cx.change_cluster(|it| it.bans = bans);
    }
}

impl HubView<'_> {
    /// All bans, by kind and subject.
    #[must_use]
    pub fn bans(&self, now: Now) -> Vec<Ban> {
        let bans = self.bans_until(now).into_iter();
        bans.map(|(ban, _)| ban).collect()
    }

    /// The same, with the instant when each ends.
    fn bans_until(&self, now: Now) -> Vec<(Ban, Option<Instant>)> {
        let Ok(filter) = TopicFilter::new(&format!("{BANS}#")) else {
            return Vec::new();
        };
        let records = self.hub.retained.records(&filter);
        let in_force = records.filter(|(_, until)| until.is_none_or(|until| until > now.instant));
        let bans = in_force.filter_map(|(bytes, until)| {
            let (record, _) = Record::decode(bytes).ok()?;
            let millis = until.map(|until| now.times_of_day().millis_of(until));
            let ban = Ban::decode(record.payload, millis.map(WallClock::from_unix_millis))?;
            Some((ban, until))
        });
        bans.collect()
    }
}
