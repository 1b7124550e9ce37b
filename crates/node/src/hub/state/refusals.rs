//! Messages of other nodes that workers here have refused.

use std::collections::BTreeMap;

use crate::messages::{Origin, RefusedBy};

/// Refusals that other nodes have still to note. Bounded by what they may have under way.
#[derive(Debug, Default)]
pub(in crate::hub) struct Refusals {
    pub unannounced: BTreeMap<Origin, Vec<(RefusedBy, (u64, u64))>>,
}
