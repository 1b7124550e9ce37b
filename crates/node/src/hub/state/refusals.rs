//! Messages of other nodes that workers here have refused.

use std::collections::BTreeMap;

use crate::messages::{Origin, RefusedBy};

/// From which number to which messages were refused, and by whom.
pub type RefusedRun = (RefusedBy, (u64, u64));

/// Refusals that other nodes have still to note. Bounded by what they may have under way.
#[derive(Debug, Default)]
pub(in crate::hub) struct Refusals {
    pub unannounced: BTreeMap<Origin, Vec<RefusedRun>>,
}
