//! Which sessions receive what, a page at a time: for recordings of a running cluster.

use std::collections::BTreeMap;

use super::{WorkerView, state::sessions::Session};
use crate::{
    SessionRecord,
    scope::{client_id_of, user_name_of},
};

impl WorkerView<'_> {
    /// The sessions after the one named `after`, by name, up to `limit`.
    #[must_use]
    pub fn session_records(&self, after: Option<&str>, limit: usize) -> Vec<SessionRecord> {
        let mut first: BTreeMap<&str, &Session> = BTreeMap::new();
        for (_, session) in self.worker.cx.sessions.iter() {
            let name = &*session.client_id;
            if after.is_some_and(|after| name <= after) {
                continue;
            }
            first.insert(name, session);
            if first.len() > limit {
                first.pop_last();
            }
        }
        let record = |(name, session): (&str, &Session)| SessionRecord {
            name: name.to_owned(),
            client_id: client_id_of(name).to_owned(),
            user_name: user_name_of(name).map(str::to_owned),
            filters: session
                .subscriptions
                .keys()
                .map(ToString::to_string)
                .collect(),
        };
        first.into_iter().map(record).collect()
    }
}
