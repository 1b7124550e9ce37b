//! Sessions that operators import.

use std::collections::BTreeMap;

use thicket_session::server::SessionSnapshot;

use crate::Imported;

/// Imports under way and done.
#[derive(Debug, Default)]
pub(in crate::worker) struct Transfers {
    /// By the importer's number.
    pub imports: BTreeMap<u64, Import>,
}

/// The state of an import.
#[derive(Debug)]
pub(in crate::worker) enum Import {
    /// The claim is not answered yet.
    Claimed {
        snapshot: Box<SessionSnapshot>,
        replace: bool,
    },
    Done(Imported),
}

impl Transfers {
    /// The result of an import, once there is one; it is forgotten with this call.
    pub fn take(&mut self, number: u64) -> Option<Imported> {
        match self.imports.get(&number) {
            None => Some(Imported::Unavailable),
            Some(Import::Claimed { .. }) => None,
            Some(Import::Done(done)) => {
                let done = *done;
                self.imports.remove(&number);
                Some(done)
            }
        }
    }
}
